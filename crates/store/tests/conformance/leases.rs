//! The next node to work on: its replica, and the end of the lease.

use std::collections::BTreeSet;

use rackwright_lifecycle::{Effect, NodeId, Outcome, State, Wait};
use rackwright_store::{NodeRecord, Scope, StoreError};

use super::support::{Lab, at, node, node_in, rest, session_of, try_of};

async fn due(lab: &Lab, now: i64, end: i64, limit: i64) -> Vec<NodeId> {
    lab.store
        .lease_due_nodes("replica-1", at(now), at(end), limit)
        .await
        .unwrap()
}

#[tokio::test]
async fn a_due_node_is_taken_once_and_again_when_the_lease_has_ended() {
    let lab = Lab::new().await.with(&[node("n1")]).await;
    assert_eq!(due(&lab, 99, 160, 9).await, [""; 0], "not due yet");
    assert_eq!(due(&lab, 100, 160, 9).await, ["n1"]);
    assert_eq!(due(&lab, 159, 219, 9).await, [""; 0], "a runner has it");
    assert_eq!(lab.store.next_due("replica-1").await.unwrap(), Some(at(160)));
    assert_eq!(due(&lab, 160, 220, 9).await, ["n1"], "the former runner is gone");
}

#[tokio::test]
async fn the_longest_overdue_are_taken_first_up_to_the_limit() {
    let mut records = Vec::new();
    // Sorted by name they would come in another order.
    for (id, us) in [("a", 500), ("b", 300), ("c", 400), ("d", 100), ("e", 200)] {
        let mut record = node(id);
        record.created_at = at(us);
        records.push(record);
    }
    let lab = Lab::new().await.with(&records).await;
    assert_eq!(lab.store.next_due("replica-1").await.unwrap(), Some(at(100)));
    assert_eq!(due(&lab, 450, 1000, 0).await, [""; 0]);
    let first: BTreeSet<_> = due(&lab, 450, 1000, 3).await.into_iter().collect();
    assert_eq!(first, ["b", "d", "e"].map(NodeId::from).into());
    assert_eq!(due(&lab, 450, 1000, 3).await, ["c"]);
    assert_eq!(due(&lab, 500, 1000, 3).await, ["a"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn runners_that_ask_at_once_never_get_the_same_node() {
    let records: Vec<_> = (0..40).map(|n| node(&format!("n{n:02}"))).collect();
    let lab = Lab::new().await.with(&records).await;
    let mut runners = tokio::task::JoinSet::new();
    for _ in 0..6 {
        // Each task has its own connections, as another process would.
        let store = lab.other().await;
        runners.spawn(async move {
            let mut mine = Vec::new();
            loop {
                let got = store.lease_due_nodes("replica-1", at(200), at(900), 3).await.unwrap();
                if got.is_empty() {
                    return mine;
                }
                mine.extend(got);
            }
        });
    }
    let all: Vec<NodeId> = runners.join_all().await.into_iter().flatten().collect();
    assert_eq!(all.len(), 40, "{all:?}");
    assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), 40);
}

#[tokio::test]
async fn rest_has_a_reason_and_an_end_and_waking_ends_it() {
    let lab = Lab::new().await.with(&[node("n1"), node("n2")]).await;
    rest(&lab.store, "n1", &Wait::PowerSettling, at(5000)).await;
    let record = lab.store.node(&Scope::Site, &"n1".into()).await.unwrap();
    assert_eq!((&record.wait, record.wait_until), (&Wait::PowerSettling, at(5000)));
    assert_eq!(record.version, 1, "waiting is not a change");
    assert_eq!(due(&lab, 4999, 6000, 9).await, ["n2"]);
    lab.store.wake(&"n1".into(), at(300)).await.unwrap();
    assert_eq!(due(&lab, 299, 6000, 9).await, [""; 0]);
    assert_eq!(due(&lab, 300, 6000, 9).await, ["n1"]);
}

#[tokio::test]
async fn waking_never_puts_a_node_off() {
    let lab = Lab::new().await.with(&[node("n1")]).await;
    lab.store.wake(&"n1".into(), at(900)).await.unwrap();
    assert_eq!(lab.store.next_due("replica-1").await.unwrap(), Some(at(100)));
    lab.store.wake(&"nobody".into(), at(900)).await.unwrap();
}

#[tokio::test]
async fn a_node_made_due_after_its_read_does_not_rest() {
    let lab = Lab::new().await.with(&[node("n1")]).await;
    rest(&lab.store, "n1", &Wait::Rest, at(5000)).await;
    let seen = lab.store.node(&Scope::Site, &"n1".into()).await.unwrap();
    let mut tx = lab.store.write().await.unwrap();
    tx.save_readings(&"n1".into(), &seen.readings, at(300)).await.unwrap();
    tx.commit().await.unwrap();
    let stale = lab.store.rest(&seen, &Wait::Rest, at(9000)).await;
    assert!(matches!(stale, Err(StoreError::Conflict { .. })), "{stale:?}");
    assert_eq!(lab.store.next_due("replica-1").await.unwrap(), Some(at(300)));

    // The replica's own lease and wait do not make the node due for others.
    let mut tx = lab.store.write().await.unwrap();
    tx.wake(&"n1".into(), at(310)).await.unwrap();
    tx.wait(&"n1".into(), &Wait::PowerSettling, at(700), &seen.readings)
        .await
        .unwrap();
    tx.commit().await.unwrap();
    let record = lab.store.node(&Scope::Site, &"n1".into()).await.unwrap();
    assert_eq!((record.due_at, record.wait_until), (at(700), at(700)));
    assert_eq!(record.wait, Wait::PowerSettling);
}

#[tokio::test]
async fn a_change_makes_a_node_due_unless_its_runner_keeps_it() {
    let lab = Lab::new().await.with(&[node("n1")]).await;
    rest(&lab.store, "n1", &Wait::Rest, at(5000)).await;
    let mut record = lab.store.node(&Scope::Site, &"n1".into()).await.unwrap();
    let mut tx = lab.store.write().await.unwrap();
    tx.save_node(&mut record, at(300)).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(lab.store.next_due("replica-1").await.unwrap(), Some(at(300)));

    let mut tx = lab.store.write().await.unwrap();
    tx.save_node(&mut record, at(310)).await.unwrap();
    tx.put_due(&"n1".into(), at(370)).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(lab.store.next_due("replica-1").await.unwrap(), Some(at(370)));
    let former = NodeRecord {
        version: 1,
        ..lab.store.node(&Scope::Site, &"n1".into()).await.unwrap()
    };
    let stale = lab.store.rest(&former, &Wait::Rest, at(9000)).await;
    assert!(
        matches!(stale, Err(StoreError::Conflict { .. })),
        "a decision of a former version: {stale:?}"
    );
    assert_eq!(lab.store.next_due("replica-1").await.unwrap(), Some(at(370)));
}

#[tokio::test]
async fn nodes_that_a_former_process_left_unfinished_are_woken() {
    let records: Vec<_> = State::ALL.iter().map(|s| node_in(s.as_str(), *s)).collect();
    let lab = Lab::new().await.with(&records).await;
    for state in State::ALL {
        rest(&lab.store, state.as_str(), &Wait::Rest, at(5000)).await;
    }
    // One node at rest has an effect that never ended; another has one that did.
    let mut tx = lab.store.write().await.unwrap();
    tx.begin_effect(&try_of("active", Effect::PowerOff, 1)).await.unwrap();
    tx.begin_effect(&try_of("failed", Effect::PowerOff, 1)).await.unwrap();
    tx.end_effect("failed-power-off-1", &Outcome::Succeeded, at(200))
        .await
        .unwrap();
    tx.commit().await.unwrap();

    assert_eq!(lab.store.wake_unfinished(at(300)).await.unwrap(), 8);
    let mut woken = due(&lab, 300, 400, 99).await;
    woken.sort();
    let wanted = [
        "active",
        "allocated",
        "discovered",
        "imaging",
        "inspecting",
        "rebooting",
        "reclaiming",
        "validating",
    ];
    assert_eq!(woken, wanted);
}

#[tokio::test]
async fn nothing_is_due_in_an_empty_store() {
    let lab = Lab::new().await;
    assert_eq!(lab.store.next_due("replica-1").await.unwrap(), None);
    assert_eq!(due(&lab, i64::MAX, i64::MAX, 9).await, [""; 0]);
    assert_eq!(lab.store.wake_unfinished(at(1)).await.unwrap(), 0);
}

#[tokio::test]
async fn a_node_goes_to_the_replica_of_its_open_try_then_to_that_of_its_agent() {
    let lab = Lab::new()
        .await
        .with(&["free", "held", "tried", "both"].map(node))
        .await;
    let mut tx = lab.store.write().await.unwrap();
    for id in ["held", "both"] {
        tx.connect_agent(&NodeId::stored(id), "r2", &session_of(0), "address only")
            .await
            .unwrap();
    }
    for id in ["tried", "both"] {
        // Owned by "replica-1".
        tx.begin_effect(&try_of(id, Effect::PowerOff, 1)).await.unwrap();
    }
    tx.commit().await.unwrap();
    for (replica, wanted) in [
        ("r3", &["free"][..]),
        ("r2", &["free", "held"]),
        ("replica-1", &["both", "free", "tried"]),
    ] {
        let mut got = lab.store.lease_due_nodes(replica, at(100), at(100), 9).await.unwrap();
        got.sort();
        assert_eq!(got, wanted, "{replica}");
    }
    rest(&lab.store, "free", &Wait::Rest, at(900)).await;
    assert_eq!(lab.store.next_due("r3").await.unwrap(), Some(at(900)));
    assert_eq!(lab.store.next_due("r2").await.unwrap(), Some(at(100)));
    let mut tx = lab.store.write().await.unwrap();
    tx.end_effect("both-power-off-1", &Outcome::Succeeded, at(110))
        .await
        .unwrap();
    tx.commit().await.unwrap();
    assert_eq!(
        lab.store
            .lease_due_nodes("replica-1", at(100), at(100), 9)
            .await
            .unwrap(),
        ["tried"]
    );
}

/// Otherwise a wait of a former state would be shown until the next step, and could be mistaken for one of the new state.
#[tokio::test]
async fn a_wait_ends_with_the_state_and_outlasts_other_changes() {
    let lab = Lab::new().await.with(&[node("n1")]).await;
    rest(&lab.store, "n1", &Wait::Cluster, at(5000)).await;
    let mut tx = lab.store.write().await.unwrap();
    let mut record = tx.node(&"n1".into()).await.unwrap();
    record.reason = "a look at it".into();
    tx.save_node(&mut record, at(300)).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(record.wait, Wait::Cluster);
    assert_eq!(lab.store.count_waiting().await.unwrap().len(), 1);
    let mut tx = lab.store.write().await.unwrap();
    let mut record = tx.node(&"n1".into()).await.unwrap();
    (record.node.state, record.node.since) = (State::Available, at(400));
    tx.save_node(&mut record, at(400)).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(record.wait, Wait::Rest);
    let stored = lab.store.node(&Scope::Site, &"n1".into()).await.unwrap();
    assert_eq!(stored.wait, Wait::Rest);
    assert_eq!(lab.store.count_waiting().await.unwrap(), []);
}
