//! What only a server can show.

use std::error::Error;
use std::time::Duration;

use rackwright_lifecycle::Timestamp;
use rackwright_store::{Database, EventRow, Store, StoreError};

use crate::conformance::support::{Lab, at, event};
use crate::database::Fresh;

/// Long enough that who does not wait has gone on.
const MOMENT: Duration = Duration::from_millis(150);

async fn add(store: &Store, event: &EventRow) -> Result<(), StoreError> {
    let mut tx = store.write().await?;
    tx.add_event(event).await?;
    tx.commit().await
}

#[tokio::test]
async fn an_event_is_not_seen_before_one_with_a_lower_position() {
    let lab = Lab::new().await;
    let mut other = lab.database.connect().await;
    // Somebody is between taking a position and the end of the commit, for as long as we like.
    for statement in [
        "BEGIN",
        "UPDATE event_counter SET last = last + 1 WHERE id = 1",
        "INSERT INTO events VALUES (1, 100, 'first', 't', '', '{}')",
    ] {
        sqlx::raw_sql(statement).execute(&mut other).await.unwrap();
    }
    let store = lab.store.clone();
    let later = tokio::spawn(async move { add(&store, &event("second", "t", 50)).await });
    tokio::time::sleep(MOMENT).await;
    assert!(!later.is_finished(), "it has to wait");
    assert_eq!(lab.store.events(0, "", 10).await.unwrap(), []);
    // Changes that add no event do not wait.
    let mut tx = lab.store.write().await.unwrap();
    tx.put_member("ann", "viewer", at(1)).await.unwrap();
    tx.commit().await.unwrap();
    sqlx::raw_sql("COMMIT").execute(&mut other).await.unwrap();
    later.await.unwrap().unwrap();
    let seen = lab.store.events(0, "", 10).await.unwrap();
    let seen: Vec<_> = seen.iter().map(|e| (e.position, e.kind.as_str())).collect();
    assert_eq!(seen, [(1, "first"), (2, "second")]);
}

#[tokio::test]
async fn a_change_that_fails_leaves_no_gap() {
    let lab = Lab::new().await;
    add(&lab.store, &event("one", "t", 1)).await.unwrap();
    let refused = add(&lab.store, &event("nul \0", "t", 2)).await.unwrap_err();
    assert!(!refused.is_retryable(), "PostgreSQL keeps no NUL: {refused:?}");
    add(&lab.store, &event("two", "t", 3)).await.unwrap();
    let seen = lab.store.events(0, "", 10).await.unwrap();
    assert_eq!(seen.iter().map(|e| e.position).collect::<Vec<_>>(), [1, 2]);
}

#[tokio::test]
async fn who_waits_in_a_circle_is_told_to_try_again() {
    let lab = Lab::new().await;
    let mut tx = lab.store.write().await.unwrap();
    for name in ["ann", "bob"] {
        tx.put_member(name, "viewer", at(1)).await.unwrap();
    }
    tx.commit().await.unwrap();
    let mut tasks = tokio::task::JoinSet::new();
    for (first, second) in [("ann", "bob"), ("bob", "ann")] {
        let store = lab.store.clone();
        tasks.spawn(async move {
            let mut tx = store.write().await?;
            tx.put_member(first, "operator", at(1)).await?;
            tokio::time::sleep(MOMENT).await;
            tx.put_member(second, "operator", at(1)).await?;
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
async fn what_was_acknowledged_outlives_the_server() {
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
            let page = store.events(seen.len() as i64, "", 500).await.unwrap();
            if page.is_empty() {
                break;
            }
            seen.extend(page);
        }
        let positions: Vec<_> = seen.iter().map(|e| e.position).collect();
        assert_eq!(positions, (1..=seen.len() as i64).collect::<Vec<_>>(), "without gaps");
        let lost: Vec<_> = acknowledged
            .iter()
            .filter(|kind| !seen.iter().any(|e| e.kind == **kind))
            .collect();
        assert!(
            lost.is_empty(),
            "of {} acknowledged, lost: {lost:?}",
            acknowledged.len()
        );
    }
}

#[tokio::test]
async fn a_store_that_was_open_finds_the_server_again() {
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
        lab.store.events(0, "", 10).await.unwrap().last().unwrap().at,
        Timestamp(3)
    );
}

/// An error with all that is behind it, as a log shows it.
fn told(error: &StoreError) -> String {
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
            "is the server up",
        ),
    ] {
        let database = Database::parse(&url, None).unwrap();
        assert!(!format!("{database} {database:?}").contains("hunter2"));
        let refused = Store::open(database).await.unwrap_err();
        let told = told(&refused);
        assert!(
            refused.to_string().contains("postgres://") && told.contains(word),
            "{told}"
        );
        assert!(!told.contains("hunter2"), "{told}");
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
