//! Hints from one replica to another.

use std::time::Duration;

use rackwright_lifecycle::Wait;
use rackwright_store::{Change, Changes};

use crate::conformance::support::{Lab, at, event, node, rest};

/// A hint arrives within this time, however busy the computer is; without hints, the periodic check happens within it.
const SOON: Duration = Duration::from_secs(30);

/// Waits until no hint has come for a while.
async fn quiet(changes: &mut Changes) {
    while tokio::time::timeout(Duration::from_millis(300), changes.next())
        .await
        .is_ok()
    {}
}

/// Waits for a hint of that kind.
async fn wait_for_change(changes: &mut Changes, wanted: Change) {
    let heard = async { while changes.next().await != wanted {} };
    tokio::time::timeout(SOON, heard).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_replica_is_notified_of_events_and_due_nodes() {
    let lab = Lab::new().await.with(&[node("n1")]).await;
    let other = lab.other().await;
    let mut changes = other.changes();
    wait_for_change(&mut changes, Change::Due).await;
    let mut quickest = Duration::MAX;
    // The periodic check without a hint may happen in some rounds, but not in every round.
    for round in 0..5 {
        quiet(&mut changes).await;
        let start = std::time::Instant::now();
        let mut tx = lab.store.write().await.unwrap();
        tx.add_event(&event("one", "t", 1)).await.unwrap();
        tx.commit().await.unwrap();
        wait_for_change(&mut changes, Change::Events).await;
        quiet(&mut changes).await;
        rest(&lab.store, "n1", &Wait::Rest, at(5000 + round)).await;
        lab.store.wake(&"n1".into(), at(100)).await.unwrap();
        wait_for_change(&mut changes, Change::Due).await;
        quickest = quickest.min(start.elapsed());
    }
    assert!(quickest < Duration::from_secs(3), "{quickest:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn notifications_resume_after_a_restart_of_the_server() {
    let mut lab = Lab::new().await;
    let other = lab.other().await;
    let mut changes = other.changes();
    wait_for_change(&mut changes, Change::Events).await;
    lab.database.kill();
    lab.database.restart().await;
    quiet(&mut changes).await;
    let lab = lab.with(&[node("n1")]).await;
    let mut tx = lab.store.write().await.unwrap();
    tx.add_event(&event("one", "t", 1)).await.unwrap();
    tx.commit().await.unwrap();
    wait_for_change(&mut changes, Change::Events).await;
}
