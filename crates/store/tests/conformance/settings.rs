//! Stored readings of nodes' firmware settings.

use rackwright_lifecycle::{NodeId, State};
use rackwright_store::SettingsRead;

use super::support::{Lab, at, node_in};

fn seen(is_proof: bool, is_as_wanted: bool, body: &str) -> SettingsRead {
    SettingsRead {
        is_proof,
        is_as_wanted,
        body: body.into(),
    }
}

async fn put(lab: &Lab, node: &str, read: &SettingsRead, when: i64) -> bool {
    let mut tx = lab.store.write().await.unwrap();
    let is_new = tx
        .put_node_settings(&NodeId::stored(node), read, at(when))
        .await
        .unwrap();
    tx.commit().await.unwrap();
    is_new
}

#[tokio::test]
async fn drift_is_new_once_and_does_not_replace_the_proof() {
    let nodes = [node_in("n1", State::Available), node_in("n2", State::Active)];
    let lab = Lab::new().await.with(&nodes).await;
    assert_eq!(lab.store.node_settings(&"n1".into()).await.unwrap(), None);
    // As wanted, but not read after a start by the control plane: no proof.
    assert!(!put(&lab, "n1", &seen(false, true, "a"), 10).await);
    let of = async |node: &str| lab.store.node_settings(&NodeId::stored(node)).await.unwrap().unwrap();
    assert_eq!(of("n1").await.verified_at, None);
    assert!(!put(&lab, "n1", &seen(true, true, "a"), 20).await);
    assert_eq!(of("n1").await.verified_at, Some(at(20)));
    assert!(put(&lab, "n1", &seen(false, false, "b"), 30).await);
    assert!(!put(&lab, "n1", &seen(false, false, "b"), 40).await);
    assert!(
        put(&lab, "n1", &seen(false, false, "c"), 50).await,
        "otherwise otherwise"
    );
    let row = of("n1").await;
    assert_eq!(
        (row.read_at, row.verified_at, row.drifted_at),
        (at(50), Some(at(20)), Some(at(30)))
    );
    assert!(put(&lab, "n2", &seen(true, false, "x"), 60).await);
    let drift = async |after: &str, limit| {
        let rows = lab.store.settings_drift(after, limit).await.unwrap();
        rows.into_iter().map(|row| row.node).collect::<Vec<_>>()
    };
    assert_eq!(drift("", 10).await, ["n1", "n2"]);
    assert_eq!(drift("", 1).await, ["n1"]);
    assert_eq!(drift("n1", 10).await, ["n2"]);
    assert!(!put(&lab, "n1", &seen(false, true, "a"), 70).await);
    assert_eq!(drift("", 10).await, ["n2"]);
    let mut tx = lab.store.write().await.unwrap();
    tx.forget_node_settings(&"n2".into()).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(drift("", 10).await, [""; 0]);
}

#[tokio::test]
async fn every_node_is_listed_with_its_sku() {
    let mut other = node_in("n2", State::Active);
    other.spec.sku = "big".to_owned();
    let lab = Lab::new().await.with(&[node_in("n1", State::Available), other]).await;
    let mut skus = lab.store.node_skus().await.unwrap();
    skus.sort();
    let nodes: Vec<&str> = skus.iter().map(|(node, _)| node.as_str()).collect();
    assert_eq!(nodes, ["n1", "n2"]);
    assert_eq!(skus[1].1, "big");
}
