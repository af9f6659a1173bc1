//! Searches for BMCs: their replica, their progress, and their findings.

use rackwright_lifecycle::OperationId;
use rackwright_store::{DiscoveryRow, FindingRow, StoreError};

use super::support::{Lab, at};

fn search(id: &'static str) -> DiscoveryRow {
    DiscoveryRow {
        id: id.into(),
        requested_by: "ann".into(),
        created_at: at(100),
        phase: "listening".into(),
        spec: "{}".into(),
        heard: "{}".into(),
        secrets: vec![1, 2],
        total: 10,
        ..DiscoveryRow::default()
    }
}

fn found(discovery: &'static str, place: &str, state: &str) -> FindingRow {
    FindingRow {
        discovery: discovery.into(),
        place: place.into(),
        address: format!("https://{place}"),
        state: state.into(),
        body: "{}".into(),
        ..FindingRow::default()
    }
}

async fn lab(ids: &[&'static str]) -> Lab {
    let lab = Lab::new().await;
    let mut tx = lab.store.write().await.unwrap();
    for id in ids {
        tx.insert_discovery(&search(id), 2).await.unwrap();
    }
    tx.commit().await.unwrap();
    lab
}

async fn save(lab: &Lab, row: &DiscoveryRow) -> bool {
    let mut tx = lab.store.write().await.unwrap();
    let is_ours = tx.save_discovery(row).await.unwrap();
    tx.commit().await.unwrap();
    is_ours
}

#[tokio::test]
async fn one_replica_at_a_time_works_on_a_search() {
    let lab = lab(&["d1"]).await;
    let store = &lab.store;
    assert_eq!(store.claimable_discoveries("a", at(1)).await.unwrap(), ["d1"]);
    assert!(store.lease_discovery(&"d1".into(), "a", at(1), at(60)).await.unwrap());
    assert!(store.claimable_discoveries("b", at(59)).await.unwrap().is_empty());
    assert!(!store.lease_discovery(&"d1".into(), "b", at(59), at(100)).await.unwrap());
    // A replica takes its own search at once, as after a restart.
    assert_eq!(store.claimable_discoveries("a", at(2)).await.unwrap(), ["d1"]);
    let mut row = store.discovery(&"d1".into()).await.unwrap();
    row.reached = 5;
    row.lease_until = at(70);
    assert!(save(&lab, &row).await);
    // Another replica takes over from a dead one, which then can store nothing.
    assert!(store.lease_discovery(&"d1".into(), "b", at(71), at(130)).await.unwrap());
    row.reached = 6;
    assert!(!save(&lab, &row).await);
    let now = store.discovery(&"d1".into()).await.unwrap();
    assert_eq!((now.reached, now.owner.as_str()), (5, "b"));
    let ended = DiscoveryRow {
        ended_at: Some(at(80)),
        phase: "done".into(),
        ..now
    };
    assert!(save(&lab, &ended).await);
    assert!(!save(&lab, &ended).await, "what has ended stays as it is");
    assert!(store.claimable_discoveries("b", at(999)).await.unwrap().is_empty());
    let mut tx = store.write().await.unwrap();
    assert!(tx.open_discoveries().await.unwrap().is_empty());
    tx.forget_discovery_secrets(&"d1".into()).await.unwrap();
    tx.commit().await.unwrap();
    assert!(store.discovery(&"d1".into()).await.unwrap().secrets.is_empty());
    let missing = store.discovery(&"d9".into()).await;
    assert!(
        matches!(missing, Err(StoreError::NotFound { kind: "discovery", .. })),
        "{missing:?}"
    );
}

#[tokio::test]
async fn the_newest_searches_that_ended_are_kept_and_open_ones_stay() {
    let lab = lab(&["d1", "d2", "d3", "d4"]).await;
    for id in ["d2", "d3", "d4"] {
        let row = DiscoveryRow {
            ended_at: Some(at(200)),
            ..lab.store.discovery(&OperationId::stored(id)).await.unwrap()
        };
        assert!(save(&lab, &row).await);
    }
    let mut tx = lab.store.write().await.unwrap();
    tx.put_findings(&[found("d2", "a", "new")]).await.unwrap();
    tx.insert_discovery(&search("d5"), 2).await.unwrap();
    tx.commit().await.unwrap();
    let ids = async |before: &str, limit| {
        let rows = lab.store.discoveries(before, limit).await.unwrap();
        rows.into_iter().map(|row| row.id).collect::<Vec<_>>()
    };
    assert_eq!(ids("", 10).await, ["d5", "d4", "d3", "d1"]);
    assert_eq!(ids("d4", 1).await, ["d3"]);
    assert!(
        lab.store.findings(&"d2".into(), "", "", 10).await.unwrap().is_empty(),
        "findings go with their search"
    );
    let mut tx = lab.store.write().await.unwrap();
    let open: Vec<OperationId> = tx
        .open_discoveries()
        .await
        .unwrap()
        .into_iter()
        .map(|row| row.id)
        .collect();
    assert_eq!(open, ["d1", "d5"]);
}

#[tokio::test]
async fn findings_are_kept_by_place_and_logins_are_counted_before_they_are_tried() {
    let lab = lab(&["d1"]).await;
    let store = &lab.store;
    store.record_login_try(&found("d1", "b", "")).await.unwrap();
    store.record_login_try(&found("d1", "b", "")).await.unwrap();
    let tries = store.finding_tries(&"d1".into()).await.unwrap();
    assert_eq!(tries.into_iter().collect::<Vec<_>>(), [("b".to_owned(), 2)]);
    assert!(
        store.findings(&"d1".into(), "*", "", 10).await.unwrap().is_empty(),
        "it is not finished"
    );
    let mut same = found("d1", "c", "same");
    same.first = "b".into();
    let mut tx = store.write().await.unwrap();
    let rows = [
        found("d1", "b", "new"),
        same.clone(),
        found("d1", "a", "known"),
        found("d1", "d", "new"),
    ];
    tx.put_findings(&rows).await.unwrap();
    tx.put_findings(&rows[..1]).await.unwrap();
    tx.commit().await.unwrap();
    assert!(store.finding_tries(&"d1".into()).await.unwrap().is_empty());
    let places = async |state: &str, after: &str, limit| {
        let rows = store.findings(&"d1".into(), state, after, limit).await.unwrap();
        rows.into_iter().map(|row| row.place).collect::<Vec<_>>()
    };
    assert_eq!(places("", "", 10).await, ["a", "b", "d"]);
    assert_eq!(places("*", "", 10).await, ["a", "b", "c", "d"]);
    assert_eq!(places("new", "", 1).await, ["b"]);
    assert_eq!(places("new", "b", 1).await, ["d"]);
    assert_eq!(store.finding(&"d1".into(), "https://c").await.unwrap(), same);
    assert!(store.finding(&"d1".into(), "https://z").await.is_err());
    let others = store.finding_others(&"d1".into(), "a", "b").await.unwrap();
    assert_eq!(others, [("b".to_owned(), "https://c".to_owned())]);
    assert!(store.finding_others(&"d1".into(), "d", "e").await.unwrap().is_empty());
    let counts = store.finding_counts(&"d1".into()).await.unwrap();
    assert_eq!(
        counts,
        [("known".to_owned(), 1), ("new".to_owned(), 2), ("same".to_owned(), 1)]
    );
}
