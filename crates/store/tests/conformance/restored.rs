//! The age of a database, and doubted nodes.

use rackwright_lifecycle::{Doubt, DoubtCause, NodeId, State};
use rackwright_store::Scope;

use super::support::{Lab, at, node_in};

fn doubt() -> Doubt {
    Doubt {
        cause: DoubtCause::Restored,
        since: at(300),
        why: "the database was restored".into(),
        generation: 0,
    }
}

#[tokio::test]
async fn a_database_keeps_its_first_id_and_the_age_that_it_is_given() {
    let lab = Lab::new().await;
    lab.store.site_authority("one").await.unwrap();
    let mut tx = lab.store.write().await.unwrap();
    let found = tx.database_age("first").await.unwrap();
    assert_eq!((found.id.as_str(), found.age), ("first", 0));
    tx.put_database_age(7).await.unwrap();
    tx.commit().await.unwrap();
    let mut tx = lab.store.write().await.unwrap();
    let found = tx.database_age("second").await.unwrap();
    assert_eq!((found.id.as_str(), found.age), ("first", 7));
    drop(tx);
    lab.store.put_challenge("c").await.unwrap();
    assert_eq!(lab.other().await.challenge().await.unwrap(), "c");
}

#[tokio::test]
async fn a_doubted_node_is_due_but_not_free_or_watched() {
    let lab = Lab::new().await.with(&[node_in("n1", State::Available)]).await;
    let seen = lab.store.node(&Scope::Site, &"n1".into()).await.unwrap();
    let mut tx = lab.store.write().await.unwrap();
    assert_eq!(tx.doubt_all(&doubt()).await.unwrap(), 1);
    tx.commit().await.unwrap();
    let mut record = lab.store.node(&Scope::Site, &"n1".into()).await.unwrap();
    assert_eq!(record.node.doubt, Some(doubt()));
    assert!(record.version > seen.version, "a step that read it before is refused");
    assert_eq!(record.due_at, at(300));
    assert_eq!(lab.store.doubted_nodes().await.unwrap(), 1);
    assert!(lab.store.is_restored().await.unwrap());
    assert!(lab.store.free_nodes().await.unwrap().is_empty());
    assert!(lab.store.resting_ids("", 9).await.unwrap().is_empty());
    assert!(lab.store.resting(&[&"n1".into()]).await.unwrap().is_empty());
    record.node.doubt = None;
    let mut tx = lab.store.write().await.unwrap();
    tx.save_node(&mut record, at(400)).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(
        lab.store.node(&Scope::Site, &"n1".into()).await.unwrap().node.doubt,
        None
    );
    assert_eq!(lab.store.free_nodes().await.unwrap(), ["n1"]);
    assert!(!lab.store.is_restored().await.unwrap());
}

#[tokio::test]
async fn a_doubt_is_stored_with_its_details_and_found_by_the_cluster_of_its_node() {
    let shown = Doubt {
        cause: DoubtCause::Generation,
        generation: 9,
        ..doubt()
    };
    let mut doubted = node_in("n1", State::Active);
    doubted.node.doubt = Some(shown.clone());
    let lab = Lab::new().await.with(&[doubted, node_in("n2", State::Active)]).await;
    assert_eq!(
        lab.store.node(&Scope::Site, &"n1".into()).await.unwrap().node.doubt,
        Some(shown)
    );
    assert!(!lab.store.is_restored().await.unwrap());
    for node in ["n2", "n1"] {
        let mut tx = lab.store.write().await.unwrap();
        if node == "n2" {
            tx.insert_cluster(&super::clusters::cluster("c1", "acme"))
                .await
                .unwrap();
        }
        tx.add_cluster_node(&"c1".into(), &NodeId::stored(node)).await.unwrap();
        tx.commit().await.unwrap();
        let found = lab.store.doubted_node_of(&"c1".into()).await.unwrap();
        assert_eq!(found, (node == "n1").then(|| "n1".to_owned()).map(NodeId::stored));
    }
}
