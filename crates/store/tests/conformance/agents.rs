//! The replica with the connection of a node's agent, and the claim and boot of that connection.

use rackwright_lifecycle::{NodeId, State, Wait};
use rackwright_store::{AgentBootRow, AgentConnection, ContestKind, NodeRecord, Scope, Store, StoreError};

use super::support::{Lab, at, is_conflict, is_missing, node, node_in, rest, session_of};

async fn hold(store: &Store, id: &str, replica: &str) -> i64 {
    let mut tx = store.write().await.unwrap();
    let session = tx
        .connect_agent(&NodeId::stored(id), replica, &session_of(0), "address only")
        .await
        .unwrap();
    tx.commit().await.unwrap();
    session
}

async fn release(store: &Store, id: &str, session: i64, us: i64) -> bool {
    let mut tx = store.write().await.unwrap();
    let is_done = tx.disconnect_agent(&NodeId::stored(id), session, at(us)).await.unwrap();
    tx.commit().await.unwrap();
    is_done
}

async fn held(store: &Store, id: &str) -> AgentConnection {
    store.node(&Scope::Site, &NodeId::stored(id)).await.unwrap().hold
}

#[tokio::test]
async fn the_end_of_a_connection_counts_only_while_it_is_the_present_one() {
    let lab = Lab::new().await.with(&[node("n1")]).await;
    assert_eq!(held(&lab.store, "n1").await, AgentConnection::default());
    let first = hold(&lab.store, "n1", "a").await;
    let second = hold(&lab.store, "n1", "b").await;
    assert!(second > first);
    assert!(!release(&lab.store, "n1", first, 300).await, "it is elsewhere by now");
    assert_eq!((held(&lab.store, "n1").await.replica.as_str(), second), ("b", second));
    rest(&lab.store, "n1", &Wait::Rest, at(9000)).await;
    assert!(release(&lab.store, "n1", second, 400).await);
    let after = held(&lab.store, "n1").await;
    assert_eq!((after.replica.as_str(), after.gone_at), ("", at(400)));
    assert!(after.session > second);
    assert_eq!(
        lab.store.next_due("a").await.unwrap(),
        Some(at(400)),
        "the loss of the agent has to be handled"
    );
    assert!(!release(&lab.store, "n1", second, 500).await, "once");
    let mut tx = lab.store.write().await.unwrap();
    assert!(is_missing(
        &tx.connect_agent(&"ghost".into(), "a", &session_of(0), "address only")
            .await
    ));
}

#[tokio::test]
async fn a_decision_from_before_the_agent_came_or_went_is_refused() {
    let lab = Lab::new().await.with(&[node("n1")]).await;
    let mut before = lab.store.node(&Scope::Site, &"n1".into()).await.unwrap();
    let session = hold(&lab.store, "n1", "a").await;
    assert!(is_conflict(&lab.store.rest(&before, &Wait::Rest, at(900)).await));
    let mut tx = lab.store.write().await.unwrap();
    assert!(is_conflict(&tx.save_node(&mut before, at(200)).await));
    drop(tx);
    let mut held = lab.store.node(&Scope::Site, &"n1".into()).await.unwrap();
    lab.store.rest(&held, &Wait::Rest, at(900)).await.unwrap();
    release(&lab.store, "n1", session, 300).await;
    held.due_at = lab.store.node(&Scope::Site, &"n1".into()).await.unwrap().due_at;
    assert!(is_conflict(&lab.store.rest(&held, &Wait::Rest, at(900)).await));
}

#[tokio::test]
async fn only_agents_of_dead_replicas_are_disconnected() {
    let lab = Lab::new().await.with(&["n1", "n2", "n3", "n4"].map(node)).await;
    lab.store.record_heartbeat("alive", at(200)).await.unwrap();
    lab.store.record_heartbeat("silent", at(100)).await.unwrap();
    for (id, replica) in [("n1", "alive"), ("n2", "silent"), ("n3", "nobody")] {
        hold(&lab.store, id, replica).await;
        rest(&lab.store, id, &Wait::Rest, at(9000)).await;
    }
    assert_eq!(lab.store.connected_agents("silent").await.unwrap(), [("n2".into(), 1)]);
    assert_eq!(lab.store.disconnect_agents_of_dead(at(150), at(300)).await.unwrap(), 2);
    assert_eq!(held(&lab.store, "n1").await.replica, "alive");
    for id in ["n2", "n3"] {
        let freed = AgentConnection {
            replica: String::new(),
            session: 2,
            gone_at: at(300),
            of: session_of(0),
            identity: "address only".into(),
        };
        assert_eq!(held(&lab.store, id).await, freed);
    }
    let mut due = lab.store.lease_due_nodes("alive", at(300), at(900), 9).await.unwrap();
    due.sort();
    assert_eq!(due, ["n2", "n3", "n4"]);
    assert_eq!(lab.store.disconnect_agents_of("alive", at(400)).await.unwrap(), 1);
    assert_eq!(lab.store.disconnect_agents_of("", at(400)).await.unwrap(), 0);
    assert_eq!(lab.store.connected_agents("").await.unwrap(), []);
}

/// Saves the node after a change; returns the connections that the change ended, and the row.
async fn ended_by(lab: &Lab, change: impl FnOnce(&mut NodeRecord)) -> (Vec<(NodeId, i64)>, AgentConnection) {
    let mut record = lab.store.node(&Scope::Site, &"n1".into()).await.unwrap();
    change(&mut record);
    let mut tx = lab.store.write().await.unwrap();
    tx.save_node(&mut record, at(500)).await.unwrap();
    let ended_sessions = tx.take_ended_sessions();
    tx.commit().await.unwrap();
    let stored = held(&lab.store, "n1").await;
    assert_eq!(record.hold, stored, "the stored record stays valid");
    (ended_sessions, stored)
}

#[tokio::test]
async fn only_another_state_or_generation_ends_the_session() {
    let lab = Lab::new().await.with(&[node_in("n1", State::Imaging)]).await;
    let session = hold(&lab.store, "n1", "a").await;
    let (ended_sessions, kept) = ended_by(&lab, |record| record.reason = "a word".into()).await;
    assert_eq!(
        (ended_sessions, kept.session, kept.replica.as_str()),
        (vec![], session, "a")
    );
    let changes: [fn(&mut NodeRecord); 2] = [
        |record| record.node.since = at(450),
        |record| record.node.generation += 1,
    ];
    for change in changes {
        let session = hold(&lab.store, "n1", "a").await;
        let (ended_sessions, ended) = ended_by(&lab, change).await;
        assert_eq!(ended_sessions, [("n1".into(), session + 1)]);
        assert_eq!(
            (ended.replica.as_str(), ended.session, ended.gone_at),
            ("", session + 1, at(500))
        );
        let (ended_sessions, _) = ended_by(&lab, |record| record.node.since = at(460)).await;
        assert_eq!(ended_sessions, [], "there is none");
    }
}

#[tokio::test]
async fn the_newest_boot_of_a_node_replaces_the_former_and_is_deleted_with_the_node() {
    let lab = Lab::new().await.with(&[node("n1")]).await;
    assert_eq!(lab.store.agent_boot(&"n1".into()).await.unwrap(), None);
    let mut row = AgentBootRow {
        node_id: "n1".into(),
        boot: "on-1".into(),
        state_since: at(100),
        powered_on_at: at(110),
        mac: "02:00:00:00:00:01".into(),
        address: "10.0.0.9".into(),
        token_hash: "hash".into(),
        plans: 2,
        ..AgentBootRow::default()
    };
    let rows = [row.clone(), {
        row.kernel_boot_id = "kernel".into();
        row.key_sha256 = "key".into();
        row.registered_at = at(120);
        row.contests = 1;
        row.contested_at = at(130);
        row.contested_why = "two of them".into();
        row.usual_us = 7;
        row.identity = "tpm".into();
        row.tpm_ek = "sha256:ab".into();
        row.contest_kind = ContestKind::Identity;
        row.bmc_secret = "inserted".into();
        row.clone()
    }];
    for row in &rows {
        let mut tx = lab.store.write().await.unwrap();
        tx.put_agent_boot(row).await.unwrap();
        assert_eq!(tx.agent_boot(&"n1".into()).await.unwrap().as_ref(), Some(row));
        tx.commit().await.unwrap();
        assert_eq!(lab.store.agent_boot(&"n1".into()).await.unwrap().as_ref(), Some(row));
    }
    assert!(!rows[0].is_registered() && rows[1].is_registered() && rows[1].is_contested());
    let later = AgentBootRow {
        powered_on_at: at(140),
        ..rows[1].clone()
    };
    assert!(!later.is_contested(), "an earlier boot was");
    lab.database.sql("UPDATE agent_boots SET contest_kind = 'twin'").await;
    let refused = lab.store.agent_boot(&"n1".into()).await;
    let is_named = matches!(&refused, Err(StoreError::Corrupt { id, source, .. })
        if id == "n1" && source.to_string().contains("\"twin\""));
    assert!(is_named, "{refused:?}");
    let record = lab.store.node(&Scope::Site, &"n1".into()).await.unwrap();
    let mut tx = lab.store.write().await.unwrap();
    tx.delete_node(&record).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(lab.store.agent_boot(&"n1".into()).await.unwrap(), None);
}

#[tokio::test]
async fn a_database_belongs_to_the_site_that_came_first() {
    let lab = Lab::new().await;
    assert_eq!(lab.store.site_authority("one").await.unwrap(), "one");
    assert_eq!(lab.other().await.site_authority("another").await.unwrap(), "one");
}
