//! Tests that need a file.

use rackwright_store::{Database, Store, StoreError};

use crate::conformance::support::{at, node};

#[tokio::test]
async fn other_files_are_refused_as_a_database() {
    let dir = tempfile::TempDir::new().unwrap();
    let path = dir.path().join("notes.txt");
    let text = "these are notes\n".repeat(500);
    std::fs::write(&path, &text).unwrap();
    let refused = Store::open(&path).await.unwrap_err();
    assert!(matches!(refused, StoreError::Open { .. }), "{refused:?}");
    assert!(refused.to_string().contains("notes.txt"), "{refused}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
    assert!(Store::open(&dir.path().join("no/such/folder.db")).await.is_err());
}

#[tokio::test]
async fn a_file_may_have_any_name() {
    let dir = tempfile::TempDir::new().unwrap();
    let path = dir.path().join("50% off? #1 & gü.db");
    let store = Store::open(&path).await.unwrap();
    let mut tx = store.write().await.unwrap();
    tx.insert_node(&node("n1")).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(store.next_due("replica-1").await.unwrap(), Some(at(100)));
    assert!(path.is_file(), "nothing else was made of it");
}

#[test]
fn settings_name_a_file_by_its_absolute_path() {
    let file = Database::parse("/var/lib/rackwright/site.db", None).unwrap();
    assert_eq!(file.to_string(), "/var/lib/rackwright/site.db");
    for (text, password) in [
        ("site.db", None),
        ("mysql://h/d", None),
        ("", None),
        ("/a.db", Some("/pw")),
    ] {
        assert!(Database::parse(text, password.map(Into::into)).is_err(), "{text:?}");
    }
}

#[tokio::test]
async fn sqlite_has_no_notifications() {
    let dir = tempfile::TempDir::new().unwrap();
    let store = Store::open(&dir.path().join("site.db")).await.unwrap();
    let mut changes = store.changes();
    let mut tx = store.write().await.unwrap();
    tx.insert_node(&node("n1")).await.unwrap();
    tx.commit().await.unwrap();
    let heard = tokio::time::timeout(std::time::Duration::from_millis(100), changes.next()).await;
    assert!(heard.is_err(), "{heard:?}");
}
