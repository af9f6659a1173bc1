//! The site and the hall.

use rackwright_store::{SiteFile, SiteRow, StoreError};

use super::support::{Lab, at};

fn version(number: i64) -> SiteRow {
    SiteRow {
        version: number,
        uid: "site-1".into(),
        digest: format!("b3-{number}"),
        files: vec![SiteFile {
            name: "site.yaml".into(),
            text: format!("site: {{name: lab-{number}}} # \u{fc}\n"),
        }],
        applied_by: "ann".into(),
        applied_at: at(100 + number),
    }
}

async fn apply(lab: &Lab, number: i64) -> Result<(), StoreError> {
    let mut tx = lab.store.write().await?;
    tx.insert_site(&version(number)).await?;
    tx.commit().await
}

#[tokio::test]
async fn the_newest_site_is_current_and_read_back_as_it_was_applied() {
    let lab = Lab::new().await;
    assert_eq!(lab.store.site().await.unwrap(), None);
    assert_eq!(lab.store.site_version().await.unwrap(), 0);
    for number in 1..=30 {
        apply(&lab, number).await.unwrap();
    }
    assert_eq!(lab.store.site().await.unwrap(), Some(version(30)));
    assert_eq!(lab.store.site_version().await.unwrap(), 30);
}

#[tokio::test]
async fn a_site_that_was_made_of_an_older_one_is_refused() {
    let lab = Lab::new().await;
    apply(&lab, 1).await.unwrap();
    for number in [1, 3] {
        let refused = apply(&lab, number).await;
        assert!(matches!(refused, Err(StoreError::Conflict { .. })), "{refused:?}");
    }
    assert_eq!(lab.store.site().await.unwrap(), Some(version(1)));
}

#[tokio::test]
async fn a_change_based_on_an_older_hall_is_refused() {
    let lab = Lab::new().await;
    let stale = lab.store.hall().await.unwrap();
    assert_eq!(stale.version, 0);
    let mut tx = lab.store.write().await.unwrap();
    let mut row = tx.hall().await.unwrap();
    tx.save_hall(&mut row).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(lab.store.hall().await.unwrap(), row);
    assert_eq!(row.version, 1);
    let mut tx = lab.store.write().await.unwrap();
    let refused = tx.save_hall(&mut stale.clone()).await;
    assert!(matches!(refused, Err(StoreError::Conflict { .. })), "{refused:?}");
}

#[tokio::test]
async fn one_replica_at_a_time_applies_partitions_to_the_fabric() {
    let lab = Lab::new().await;
    let lease = async |replica: &str, now, until| lab.store.lease_fabric(replica, at(now), at(until)).await.unwrap();
    let has = async |replica: &str, now| lab.store.has_fabric_lease(replica, at(now)).await.unwrap();
    assert!(lease("one", 100, 200).await);
    assert!(has("one", 200).await && !has("two", 200).await);
    assert!(
        !has("one", 201).await,
        "its lease is over, although no other replica has a lease"
    );
    assert!(!lease("two", 150, 250).await);
    assert!(lease("one", 190, 300).await, "its holder keeps it");
    assert!(!lease("two", 250, 350).await);
    assert!(lease("two", 301, 400).await);
    assert!(!lease("one", 350, 450).await);
    assert!(has("two", 350).await && !has("one", 350).await);
}
