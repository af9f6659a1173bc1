//! Requested work on BMCs, and their stored logs.

use rackwright_lifecycle::{NodeId, State};
use rackwright_store::BmcLogRow;

use super::support::{Lab, at, node_in};

fn wanted(node: &'static str, what: &str, when: i64) -> BmcLogRow {
    BmcLogRow {
        node: node.into(),
        wanted: what.into(),
        wanted_at: at(when),
        wanted_by: "ann".into(),
        due_at: at(when),
        ..BmcLogRow::default()
    }
}

async fn want(lab: &Lab, row: &BmcLogRow) {
    let mut tx = lab.store.write().await.unwrap();
    tx.request_bmc_work(row).await.unwrap();
    tx.commit().await.unwrap();
}

async fn take(lab: &Lab, now: i64, until: i64) -> Vec<NodeId> {
    let mut tx = lab.store.write().await.unwrap();
    let taken = tx.take_bmc_work(at(now), at(until), 10).await.unwrap();
    tx.commit().await.unwrap();
    taken.into_iter().map(|row| row.node).collect()
}

#[tokio::test]
async fn a_request_is_taken_by_one_replica_and_done_once() {
    let nodes = ["n1", "n2"].map(|id| node_in(id, State::Available));
    let lab = Lab::new().await.with(&nodes).await;
    assert!(!lab.store.is_bmc_work_due(at(1000)).await.unwrap());
    want(&lab, &wanted("n2", "read", 10)).await;
    want(&lab, &wanted("n1", "clear", 20)).await;
    assert!(!lab.store.is_bmc_work_due(at(9)).await.unwrap());
    assert!(lab.store.is_bmc_work_due(at(10)).await.unwrap());
    assert_eq!(take(&lab, 20, 80).await, ["n2", "n1"], "the longest waiting first");
    assert!(take(&lab, 79, 100).await.is_empty(), "a replica has them");
    let mut done = lab.store.bmc_log(&"n2".into()).await.unwrap().unwrap();
    done.done = "read: 3 entries".into();
    (done.done_at, done.read_at, done.body) = (at(30), at(30), "[1]".into());
    let mut tx = lab.store.write().await.unwrap();
    assert!(tx.end_bmc_work(&done).await.unwrap());
    assert!(!tx.end_bmc_work(&done).await.unwrap(), "once");
    tx.commit().await.unwrap();
    let kept = lab.store.bmc_log(&"n2".into()).await.unwrap().unwrap();
    assert_eq!(
        (kept.wanted.as_str(), kept.body.as_str(), kept.read_at),
        ("", "[1]", at(30))
    );
    // The replica with the other lease is gone: the work is taken again.
    assert_eq!(take(&lab, 80, 200).await, ["n1"]);
}

#[tokio::test]
async fn an_outcome_of_a_withdrawn_request_is_dropped_and_the_last_reading_stays() {
    let lab = Lab::new().await.with(&[node_in("n1", State::Available)]).await;
    want(&lab, &wanted("n1", "read", 10)).await;
    let mut done = lab.store.bmc_log(&"n1".into()).await.unwrap().unwrap();
    done.body = "[1]".into();
    done.read_at = at(11);
    let mut tx = lab.store.write().await.unwrap();
    assert!(tx.end_bmc_work(&done).await.unwrap());
    tx.commit().await.unwrap();
    want(&lab, &wanted("n1", "read", 20)).await;
    want(&lab, &wanted("n1", "clear", 30)).await;
    let mut tx = lab.store.write().await.unwrap();
    let late = BmcLogRow {
        body: "[2]".into(),
        ..wanted("n1", "read", 20)
    };
    assert!(!tx.end_bmc_work(&late).await.unwrap());
    assert_eq!(tx.bmc_log(&"n1".into()).await.unwrap().unwrap().body, "[1]");
    tx.commit().await.unwrap();
    assert_eq!(lab.store.bmc_log(&"n2".into()).await.unwrap(), None);
}
