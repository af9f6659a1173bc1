//! Tests that need a server.

use std::error::Error;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use rackwright_lifecycle::Timestamp;
use rackwright_store::{Database, EventRow, Scope, Store, StoreError};
use tokio::sync::Barrier;

use crate::conformance::support::{Lab, at, event, member};
use crate::database::Fresh;

/// Long enough for a task that does not wait to finish.
const MOMENT: Duration = Duration::from_millis(150);

async fn add(store: &Store, event: &EventRow) -> Result<(), StoreError> {
    let mut tx = store.write().await?;
    tx.add_event(event).await?;
    tx.commit().await
}

/// Positions and kinds, in reading order.
async fn log(store: &Store, after: i64) -> Vec<(i64, String)> {
    let events = store.events(&Scope::Site, after, "", 1000).await.unwrap();
    events.into_iter().map(|e| (e.position, e.kind.to_string())).collect()
}

#[tokio::test]
async fn concurrent_changes_have_the_order_in_which_they_become_visible() {
    let lab = Lab::new().await;
    let mut slow = lab.database.connect().await;
    let insert = "BEGIN; INSERT INTO event_inbox (at, kind, target, message, attributes) \
                  VALUES (100, 'slow', 't', '', '{}')";
    sqlx::raw_sql(insert).execute(&mut slow).await.unwrap();
    add(&lab.store, &event("quick", "t", 50)).await.unwrap();
    assert_eq!(log(&lab.store, 0).await, [(1, "quick".into())]);
    sqlx::raw_sql("COMMIT").execute(&mut slow).await.unwrap();
    // Begun first, committed last: a follower at position 1 finds it.
    assert_eq!(log(&lab.store, 1).await, [(2, "slow".into())]);
    assert_eq!(lab.store.event_range().await.unwrap(), (1, 2));
}

#[tokio::test]
async fn readers_wait_for_an_uncommitted_log_position() {
    let lab = Lab::new().await;
    let mut placing = lab.database.connect().await;
    // Another process has drawn a position and has not committed yet.
    let place = "BEGIN; SELECT last FROM event_counter FOR UPDATE; UPDATE event_counter SET last = 1; \
                 INSERT INTO events VALUES (1, 100, 'first', 't', '', '{}')";
    sqlx::raw_sql(place).execute(&mut placing).await.unwrap();
    add(&lab.store, &event("second", "t", 50)).await.unwrap();
    let store = lab.store.clone();
    let reading = tokio::spawn(async move { log(&store, 0).await });
    tokio::time::sleep(MOMENT).await;
    assert!(!reading.is_finished(), "it has to wait");
    sqlx::raw_sql("COMMIT").execute(&mut placing).await.unwrap();
    assert_eq!(reading.await.unwrap(), [(1, "first".into()), (2, "second".into())]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_followers_see_the_same_log_while_many_write() {
    const WRITERS: usize = 4;
    const EACH: usize = 20;
    let lab = Lab::new().await;
    let mut writers = tokio::task::JoinSet::new();
    for writer in 0..WRITERS {
        let store = lab.other().await;
        writers.spawn(async move {
            for n in 0..EACH {
                let mut tx = store.write().await.unwrap();
                for part in 0..2 {
                    let kind = format!("{writer}-{n:02}-{part}");
                    tx.add_event(&event(&kind, "t", 1)).await.unwrap();
                }
                tx.commit().await.unwrap();
            }
        });
    }
    let mut followers = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let store = lab.other().await;
        followers.spawn(async move {
            let mut seen = Vec::new();
            while seen.len() < 2 * WRITERS * EACH {
                let after = seen.last().map_or(0, |(position, _)| *position);
                seen.extend(log(&store, after).await);
            }
            seen
        });
    }
    writers.join_all().await;
    let logs = followers.join_all().await;
    let first = &logs[0];
    assert!(logs.iter().all(|log| log == first));
    assert!(first.iter().map(|(position, _)| *position).eq(1..=first.len() as i64));
    // The events of each writer are in its order.
    for writer in 0..WRITERS {
        let own: Vec<_> = first
            .iter()
            .filter(|(_, kind)| kind.starts_with(&format!("{writer}-")))
            .collect();
        assert!(own.is_sorted_by_key(|(_, kind)| kind) && own.len() == 2 * EACH);
    }
}

#[tokio::test]
async fn a_change_that_fails_leaves_no_gap() {
    let lab = Lab::new().await;
    add(&lab.store, &event("one", "t", 1)).await.unwrap();
    let refused = add(&lab.store, &event("nul \0", "t", 2)).await.unwrap_err();
    assert!(!refused.is_retryable(), "PostgreSQL keeps no NUL: {refused:?}");
    add(&lab.store, &event("two", "t", 3)).await.unwrap();
    let seen = lab.store.events(&Scope::Site, 0, "", 10).await.unwrap();
    assert_eq!(seen.iter().map(|e| e.position).collect::<Vec<_>>(), [1, 2]);
}

#[tokio::test]
async fn a_cancelled_begin_leaves_no_other_change_uncommitted() {
    let lab = Lab::new().await;
    add(&lab.store, &event("warm", "t", 1)).await.unwrap();
    let mut other = lab.database.connect().await;
    for turn in 0..20 {
        // Far enough to have sent BEGIN, not far enough to have its answer.
        let mut beginning = Box::pin(lab.store.write());
        let polled = std::future::poll_fn(|cx| Poll::Ready(beginning.as_mut().poll(cx).is_pending())).await;
        assert!(polled, "a server cannot have answered before it was waited for");
        drop(beginning);
        let replica = format!("replica-{turn}");
        lab.store.record_heartbeat(&replica, at(turn)).await.unwrap();
        let query = sqlx::query("SELECT 1 FROM replicas WHERE id = $1").bind(replica);
        let kept = query.fetch_optional(&mut other).await.unwrap();
        assert!(
            kept.is_some(),
            "turn {turn}: acknowledged, and in a transaction without a commit"
        );
    }
}

#[tokio::test]
async fn a_deadlock_is_a_retryable_error() {
    let lab = Lab::new().await;
    let mut tx = lab.store.write().await.unwrap();
    for name in ["ann", "bob"] {
        tx.put_member(name, &member("viewer"), 1, at(1)).await.unwrap();
    }
    tx.commit().await.unwrap();
    let both_hold_one = Arc::new(Barrier::new(2));
    let mut tasks = tokio::task::JoinSet::new();
    for (first, second) in [("ann", "bob"), ("bob", "ann")] {
        let (store, both_hold_one) = (lab.store.clone(), both_hold_one.clone());
        tasks.spawn(async move {
            let mut tx = store.write().await?;
            tx.put_member(first, &member("operator"), 1, at(1)).await?;
            both_hold_one.wait().await;
            tx.put_member(second, &member("operator"), 1, at(1)).await?;
            tx.commit().await
        });
    }
    let ended = tasks.join_all().await;
    let refused: Vec<_> = ended.iter().filter_map(|r| r.as_ref().err()).collect();
    assert_eq!(refused.len(), 1, "{ended:?}");
    assert!(
        matches!(refused[0], StoreError::Contended(_)) && refused[0].is_retryable(),
        "{refused:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn acknowledged_changes_outlive_the_server() {
    let mut lab = Lab::on(Fresh::durable().await).await;
    for round in 0..3 {
        let mut writers = tokio::task::JoinSet::new();
        for writer in 0..4 {
            let store = lab.other().await;
            writers.spawn(async move {
                let mut acknowledged = Vec::new();
                for n in 0.. {
                    let kind = format!("{round}-{writer}-{n}");
                    if add(&store, &event(&kind, "t", n)).await.is_err() {
                        break;
                    }
                    acknowledged.push(kind);
                }
                acknowledged
            });
        }
        tokio::time::sleep(Duration::from_millis(400)).await;
        lab.database.kill();
        let acknowledged: Vec<_> = writers.join_all().await.into_iter().flatten().collect();
        assert!(!acknowledged.is_empty());
        lab.database.restart().await;
        let store = lab.other().await;
        let mut seen = Vec::new();
        loop {
            let page = store.events(&Scope::Site, seen.len() as i64, "", 500).await.unwrap();
            if page.is_empty() {
                break;
            }
            seen.extend(page);
        }
        let positions: Vec<_> = seen.iter().map(|e| e.position).collect();
        assert_eq!(positions, (1..=seen.len() as i64).collect::<Vec<_>>(), "without gaps");
        let lost: Vec<_> = acknowledged
            .iter()
            .filter(|kind| !seen.iter().any(|e| e.kind == kind.as_str()))
            .collect();
        assert!(
            lost.is_empty(),
            "of {} acknowledged, lost: {lost:?}",
            acknowledged.len()
        );
    }
}

#[tokio::test]
async fn an_open_store_reconnects_to_the_server() {
    let mut lab = Lab::new().await;
    add(&lab.store, &event("before", "t", 1)).await.unwrap();
    lab.database.kill();
    let refused = add(&lab.store, &event("meanwhile", "t", 2)).await.unwrap_err();
    assert!(refused.is_retryable(), "{refused:?}");
    lab.database.restart().await;
    tokio::time::timeout(Duration::from_secs(20), async {
        while add(&lab.store, &event("after", "t", 3)).await.is_err() {
            tokio::time::sleep(MOMENT).await;
        }
    })
    .await
    .unwrap();
    assert_eq!(
        lab.store
            .events(&Scope::Site, 0, "", 10)
            .await
            .unwrap()
            .last()
            .unwrap()
            .at,
        Timestamp(3)
    );
}

/// An error with all its sources, as a log shows it.
fn error_text(error: &StoreError) -> String {
    let mut text = format!("{error} {error:?}");
    let mut source = error.source();
    while let Some(error) = source {
        text.push_str(&format!(" {error} {error:?}"));
        source = error.source();
    }
    text
}

#[tokio::test]
async fn a_server_that_cannot_be_used_is_named_without_its_password() {
    let fresh = Fresh::new().await;
    let url = fresh.url().replace("rackwright@", "rackwright:hunter2@");
    for (url, word) in [
        (url.replace("/site", "/nowhere"), "CREATE DATABASE"),
        (url.replace("rackwright:", "nobody:"), "pg_hba.conf"),
        (
            "postgres://rackwright:hunter2@127.0.0.1:1/site".into(),
            "check that the server runs",
        ),
    ] {
        let database = Database::parse(&url, None).unwrap();
        assert!(!format!("{database} {database:?}").contains("hunter2"));
        let refused = Store::open(database).await.unwrap_err();
        let text = error_text(&refused);
        assert!(
            refused.to_string().contains("postgres://") && text.contains(word),
            "{text}"
        );
        assert!(!text.contains("hunter2"), "{text}");
    }
    let store = Store::open(Database::parse(&url, None).unwrap()).await.unwrap();
    assert!(!format!("{store:?}").contains("hunter2"), "{store:?}");
}

#[tokio::test]
async fn the_password_may_be_in_a_file() {
    let fresh = Fresh::new().await;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("password");
    let open = || Store::open(Database::parse(&fresh.url(), Some(path.clone())).unwrap());
    let refused = open().await.unwrap_err();
    assert!(refused.to_string().contains(path.to_str().unwrap()), "{refused}");
    std::fs::write(&path, "p@ss/w#rd\n").unwrap();
    assert!(open().await.is_ok());
}

#[test]
fn settings_name_a_server_by_its_url() {
    let shown = |text: &str| Database::parse(text, None).map(|database| database.to_string());
    assert_eq!(
        shown("postgres://u:p%23w@db.example:5433/site?sslmode=verify-full"),
        Ok("postgres://u@db.example:5433/site".into())
    );
    assert_eq!(
        shown("postgresql://u@localhost/site?host=/run/postgresql"),
        Ok("postgresql://u@localhost/site at /run/postgresql".into())
    );
    for (text, word) in [
        ("postgres://u:hunter2@h/", "names no database"),
        ("postgres://u@h/site?password=hunter2", "before the @"),
        ("postgres://u@h/site?pasword=hunter2", "\"pasword\""),
        ("postgres://u:hunt#er2@h/site", "%23"),
        ("postgres://u:hunter2@h/site#1", "%23"),
        ("postgres://u:hunter2@h:port/site", "not a URL"),
    ] {
        let refused = shown(text).unwrap_err();
        assert!(refused.contains(word) && !refused.contains("hunt"), "{text}: {refused}");
    }
    let both = Database::parse("postgres://u:hunter2@h/site", Some("/secret".into())).unwrap_err();
    assert!(both.contains("keep one") && !both.contains("hunter2"), "{both}");
}
