//! Which replica has the connection of a node's agent.

use rackwright_store::{Hold, Scope, Store};

use super::support::{Lab, at, is_conflict, is_missing, node, rest};

async fn hold(store: &Store, id: &str, replica: &str) -> i64 {
    let mut tx = store.write().await.unwrap();
    let session = tx.hold_agent(id, replica).await.unwrap();
    tx.commit().await.unwrap();
    session
}

async fn release(store: &Store, id: &str, session: i64, us: i64) -> bool {
    let mut tx = store.write().await.unwrap();
    let is_done = tx.release_agent(id, session, at(us)).await.unwrap();
    tx.commit().await.unwrap();
    is_done
}

async fn held(store: &Store, id: &str) -> Hold {
    store.node(&Scope::Site, id).await.unwrap().hold
}

#[tokio::test]
async fn the_end_of_a_connection_counts_only_while_it_is_the_present_one() {
    let lab = Lab::new().await.with(&[node("n1")]).await;
    assert_eq!(held(&lab.store, "n1").await, Hold::default());
    let first = hold(&lab.store, "n1", "a").await;
    let second = hold(&lab.store, "n1", "b").await;
    assert!(second > first);
    assert!(!release(&lab.store, "n1", first, 300).await, "it is elsewhere by now");
    assert_eq!((held(&lab.store, "n1").await.replica.as_str(), second), ("b", second));
    rest(&lab.store, "n1", "", at(9000)).await;
    assert!(release(&lab.store, "n1", second, 400).await);
    let after = held(&lab.store, "n1").await;
    assert_eq!((after.replica.as_str(), after.gone_at), ("", at(400)));
    assert!(after.session > second);
    assert_eq!(
        lab.store.next_due("a").await.unwrap(),
        Some(at(400)),
        "somebody has to look"
    );
    assert!(!release(&lab.store, "n1", second, 500).await, "once");
    let mut tx = lab.store.write().await.unwrap();
    assert!(is_missing(&tx.hold_agent("ghost", "a").await));
}

#[tokio::test]
async fn what_was_decided_before_the_agent_came_or_went_is_refused() {
    let lab = Lab::new().await.with(&[node("n1")]).await;
    let mut before = lab.store.node(&Scope::Site, "n1").await.unwrap();
    let session = hold(&lab.store, "n1", "a").await;
    assert!(is_conflict(&lab.store.rest(&before, "", at(900)).await));
    let mut tx = lab.store.write().await.unwrap();
    assert!(is_conflict(&tx.save_node(&mut before, at(200)).await));
    drop(tx);
    let mut held = lab.store.node(&Scope::Site, "n1").await.unwrap();
    lab.store.rest(&held, "", at(900)).await.unwrap();
    release(&lab.store, "n1", session, 300).await;
    held.due_at = lab.store.node(&Scope::Site, "n1").await.unwrap().due_at;
    assert!(is_conflict(&lab.store.rest(&held, "", at(900)).await));
}

#[tokio::test]
async fn the_agents_of_the_dead_are_freed_and_those_of_the_living_are_not() {
    let lab = Lab::new().await.with(&["n1", "n2", "n3", "n4"].map(node)).await;
    lab.store.replica_lives("alive", at(200)).await.unwrap();
    lab.store.replica_lives("silent", at(100)).await.unwrap();
    for (id, replica) in [("n1", "alive"), ("n2", "silent"), ("n3", "nobody")] {
        hold(&lab.store, id, replica).await;
        rest(&lab.store, id, "", at(9000)).await;
    }
    assert_eq!(lab.store.held_agents("silent").await.unwrap(), [("n2".to_owned(), 1)]);
    assert_eq!(lab.store.free_agents_of_dead(at(150), at(300)).await.unwrap(), 2);
    assert_eq!(held(&lab.store, "n1").await.replica, "alive");
    for id in ["n2", "n3"] {
        let freed = Hold {
            replica: String::new(),
            session: 2,
            gone_at: at(300),
        };
        assert_eq!(held(&lab.store, id).await, freed);
    }
    let mut due = lab.store.lease_due("alive", at(300), at(900), 9).await.unwrap();
    due.sort();
    assert_eq!(due, ["n2", "n3", "n4"]);
    assert_eq!(lab.store.free_agents_of("alive", at(400)).await.unwrap(), 1);
    assert_eq!(lab.store.free_agents_of("", at(400)).await.unwrap(), 0);
    assert_eq!(lab.store.held_agents("").await.unwrap(), []);
}

#[tokio::test]
async fn a_database_belongs_to_the_site_that_came_first() {
    let lab = Lab::new().await;
    assert_eq!(lab.store.site_authority("one").await.unwrap(), "one");
    assert_eq!(lab.other().await.site_authority("another").await.unwrap(), "one");
}
