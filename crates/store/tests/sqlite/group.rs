//! Changes that share a transaction: each succeeds or fails by itself, and is acknowledged only after the commit.

use std::future::Future;
use std::sync::Arc;

use rackwright_store::{Scope, Store, StoreError};
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use crate::conformance::support::{at, event, node};
use crate::database::Fresh;

async fn kinds(store: &Store) -> Vec<String> {
    let events = store.events(&Scope::Site, 0, "", 10_000).await.unwrap();
    events.into_iter().map(|event| event.kind.to_string()).collect()
}

/// Makes SQLite end the transaction in the middle of a change that adds such an event, as a full disk does.
const BREAKS: &str = "CREATE TRIGGER breaks BEFORE INSERT ON events WHEN NEW.kind = 'breaks' \
                      BEGIN SELECT RAISE(ROLLBACK, 'disk is full'); END";

#[tokio::test]
async fn concurrent_changes_commit_or_roll_back_separately() {
    let fresh = Fresh::new().await;
    let store = Store::open(&fresh.path()).await.unwrap();
    let start = Arc::new(Barrier::new(60));
    let mut changes = JoinSet::new();
    for n in 0..60 {
        let (store, start) = (store.clone(), start.clone());
        changes.spawn(async move {
            start.wait().await;
            let mut tx = store.write().await.unwrap();
            let kind = if n % 3 == 0 { "dropped" } else { "kept" };
            tx.add_event(&event(kind, "t", n)).await.unwrap();
            if kind == "dropped" {
                return;
            }
            tx.commit().await.unwrap();
            // An acknowledged change is visible to every reader.
            let events = store.events(&Scope::Site, 0, "", 10_000).await.unwrap();
            assert!(events.iter().any(|event| event.at.0 == n), "{n} is not there");
        });
    }
    while let Some(ended) = changes.join_next().await {
        ended.unwrap();
    }
    assert_eq!(kinds(&store).await, vec!["kept"; 40]);
}

#[tokio::test]
async fn a_caller_that_stops_waiting_undoes_nothing_and_blocks_no_other() {
    let fresh = Fresh::new().await;
    let store = Store::open(&fresh.path()).await.unwrap();
    let mut first = store.write().await.unwrap();
    first.add_event(&event("first", "t", 1)).await.unwrap();
    // Both wait for the writer before the first is complete, so that all are in one batch.
    let (second, third) = (store.clone(), store.clone());
    let second = tokio::spawn(async move {
        let mut tx = second.write().await.unwrap();
        tx.add_event(&event("second", "t", 2)).await.unwrap();
        tx.commit().await
    });
    let third = tokio::spawn(async move {
        let _tx = third.write().await.unwrap();
        std::future::pending::<()>().await;
    });
    tokio::task::yield_now().await;
    // Polled once and dropped: the change is complete by then, or undone.
    let gone = tokio::time::timeout(std::time::Duration::ZERO, first.commit()).await;
    third.abort();
    second.await.unwrap().unwrap();
    let kinds = kinds(&store).await;
    assert_eq!(kinds.last().map(String::as_str), Some("second"), "{kinds:?} {gone:?}");
    // The writer is free again.
    store.write().await.unwrap().commit().await.unwrap();
}

#[tokio::test]
async fn a_broken_transaction_is_refused_whole_and_the_next_works() {
    let fresh = Fresh::new().await;
    let store = Store::open(&fresh.path()).await.unwrap();
    fresh.sql(BREAKS).await;
    let mut first = store.write().await.unwrap();
    first.add_event(&event("first", "t", 1)).await.unwrap();
    let other = store.clone();
    let other = tokio::spawn(async move {
        let mut tx = other.write().await?;
        tx.add_event(&event("breaks", "t", 2)).await?;
        tx.commit().await
    });
    tokio::task::yield_now().await;
    let (first, other) = (first.commit().await, other.await.unwrap());
    assert!(other.is_err(), "{other:?}");
    // The scheduler decides whether they share a transaction; exactly the acknowledged changes are stored.
    let expected = match first {
        Ok(()) => vec!["first"],
        Err(StoreError::NotCommitted(_)) => vec![],
        Err(error) => panic!("{error}"),
    };
    assert_eq!(kinds(&store).await, expected);
    let mut tx = store.write().await.unwrap();
    tx.add_event(&event("next", "t", 3)).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(kinds(&store).await.last().map(String::as_str), Some("next"));
}

async fn change(store: &Store, kind: &str, n: i64) -> Result<(), StoreError> {
    let mut tx = store.write().await?;
    tx.add_event(&event(kind, "t", n)).await?;
    tx.commit().await
}

/// Polls a future `polls` times and drops it, as when a caller goes away.
async fn give_up(work: impl Future, polls: usize) {
    tokio::pin!(work);
    for _ in 0..polls {
        let poll = std::future::poll_fn(|cx| std::task::Poll::Ready(work.as_mut().poll(cx).is_ready()));
        if poll.await {
            return;
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_caller_that_gives_up_at_any_moment_affects_no_other() {
    let fresh = Fresh::new().await;
    let store = Store::open(&fresh.path()).await.unwrap();
    for n in 0..600 {
        let polls = n % 30;
        match n % 3 {
            // No other change waits.
            0 => give_up(change(&store, "given up", 0), polls).await,
            // Before, and after, another change that is kept.
            1 => {
                tokio::join!(give_up(change(&store, "given up", 0), polls), async {
                    change(&store, "kept", 0).await.unwrap();
                });
            }
            _ => {
                tokio::join!(
                    async { change(&store, "kept", 0).await.unwrap() },
                    give_up(change(&store, "given up", 0), polls)
                );
            }
        }
        change(&store, "kept", 0).await.unwrap();
    }
    let kept = kinds(&store).await.into_iter().filter(|kind| kind == "kept").count();
    assert_eq!(kept, 1000);
}

#[tokio::test]
async fn a_statement_that_breaks_the_transaction_acknowledges_nothing_of_it() {
    let fresh = Fresh::new().await;
    let store = Store::open(&fresh.path()).await.unwrap();
    let mut tx = store.write().await.unwrap();
    tx.insert_node(&node("n1")).await.unwrap();
    tx.commit().await.unwrap();
    fresh
        .sql("CREATE TRIGGER breaks BEFORE UPDATE ON nodes BEGIN SELECT RAISE(ROLLBACK, 'disk is full'); END")
        .await;
    let mut first = store.write().await.unwrap();
    first.add_event(&event("first", "t", 1)).await.unwrap();
    // These wait for the writer in this order before the first is complete, so that all are in one batch.
    let (breaking, later) = (store.clone(), store.clone());
    let breaking = tokio::spawn(async move { breaking.wake(&"n1".into(), at(-1)).await });
    tokio::task::yield_now().await;
    tokio::task::yield_now().await;
    let later = tokio::spawn(async move { change(&later, "later", 2).await });
    tokio::task::yield_now().await;
    tokio::task::yield_now().await;
    let first = first.commit().await;
    assert!(breaking.await.unwrap().is_err());
    let later = later.await.unwrap();
    let acknowledged = [("first", first.is_ok()), ("later", later.is_ok())];
    let acknowledged: Vec<&str> = acknowledged
        .iter()
        .filter(|(_, ok)| *ok)
        .map(|(kind, _)| *kind)
        .collect();
    assert_eq!(kinds(&store).await, acknowledged);
}
