//! A backup of a server's database beside a running daemon, and its restore.

use rackwright_store::{BackupError, Database, Store};

use crate::conformance::support::event;
use crate::database::Fresh;

async fn add(store: &Store, kind: &str) {
    let mut tx = store.write().await.unwrap();
    tx.add_event(&event(kind, "t", 1)).await.unwrap();
    tx.commit().await.unwrap();
}

async fn kinds(store: &Store) -> Vec<String> {
    let events = store.events(&rackwright_store::Scope::Site, 0, "", 100).await.unwrap();
    events.into_iter().map(|event| event.kind.to_string()).collect()
}

#[tokio::test]
async fn a_backup_is_restored_whole_and_only_without_connections() {
    let server = Fresh::new().await;
    let database = server.database();
    let empty = database.site().await.unwrap_err();
    assert!(matches!(empty, BackupError::NoSite(_)), "{empty:?}");
    assert_eq!(database.authority().await.unwrap(), None);
    let store = Store::open(database.clone()).await.unwrap();
    store.site_authority("aa").await.unwrap();
    assert_eq!(database.authority().await.unwrap().as_deref(), Some("aa"));
    add(&store, "before").await;
    let dir = tempfile::tempdir().unwrap();
    let copy = dir.path().join("database.pgdump");
    database.back_up(&copy).await.unwrap();
    add(&store, "after").await;

    let refused = database.put_back(&copy).await.unwrap_err();
    assert!(matches!(refused, BackupError::InUse(1..)), "{refused:?}");
    assert_eq!(kinds(&store).await, ["before", "after"]);
    store.close().await;
    drop(store);

    // A broken archive changes nothing.
    let broken = dir.path().join("broken");
    std::fs::write(&broken, &std::fs::read(&copy).unwrap()[..2000]).unwrap();
    let refused = database.put_back(&broken).await.unwrap_err();
    assert!(matches!(refused, BackupError::Program { .. }), "{refused:?}");
    let store = Store::open(database.clone()).await.unwrap();
    assert_eq!(kinds(&store).await, ["before", "after"]);
    store.close().await;
    drop(store);

    database.put_back(&copy).await.unwrap();
    let site = database.site().await.unwrap();
    assert_eq!(
        (site.authority.as_str(), site.schema),
        ("aa", Database::newest_schema())
    );
    let store = Store::open(database).await.unwrap();
    assert_eq!(kinds(&store).await, ["before"]);
    add(&store, "new").await;
    assert_eq!(kinds(&store).await, ["before", "new"]);
    store.close().await;
}

#[tokio::test]
async fn a_site_that_cannot_be_read_is_no_missing_site() {
    let server = Fresh::new().await;
    let store = Store::open(server.database()).await.unwrap();
    store.site_authority("aa").await.unwrap();
    store.close().await;
    drop(store);
    let fails = "ALTER TABLE site RENAME TO kept; \
                 CREATE VIEW site AS SELECT id, ca_sha256, database_id, 1 / (id - id) AS age FROM kept";
    server.sql(fails).await;
    let refused = server.database().site().await.unwrap_err();
    assert!(matches!(refused, BackupError::Database(_)), "{refused:?}");
    server
        .sql("DROP VIEW site; ALTER TABLE kept DROP COLUMN age; ALTER TABLE kept RENAME TO site")
        .await;
    let older = server.database().site().await.unwrap_err();
    assert!(matches!(older, BackupError::NoSite(_)), "{older:?}");
}
