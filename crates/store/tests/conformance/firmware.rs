//! Firmware files, last reports, running updates, and windows.

use rackwright_lifecycle::{State, Timestamp};
use rackwright_store::{FirmwareFileRow, FirmwareSeenRow, FirmwareUpdateRow, StoreError, WindowRow};

use super::support::{Lab, node_in};

fn file(digest: &str, component: &str, version: &str) -> FirmwareFileRow {
    FirmwareFileRow {
        digest: digest.into(),
        component: component.into(),
        version: version.into(),
        name: format!("{component}.bin"),
        bytes: 7,
        created_at: Timestamp(5),
    }
}

#[tokio::test]
async fn files_are_added_once_and_kept_while_they_are_used() {
    let lab = Lab::new()
        .await
        .with(&[node_in("n1", State::Available), node_in("n2", State::Available)])
        .await;
    let store = &lab.store;
    let bmc = file("sha256:1", "BMC", "1.2");
    let mut tx = store.write().await.unwrap();
    tx.add_firmware_file(&bmc).await.unwrap();
    tx.add_firmware_file(&bmc).await.unwrap();
    tx.add_firmware_file(&file("sha256:2", "BIOS", "3")).await.unwrap();
    tx.commit().await.unwrap();
    let mut tx = store.write().await.unwrap();
    let other = tx.add_firmware_file(&file("sha256:3", "BMC", "1.2")).await;
    assert!(matches!(other, Err(StoreError::Exists { .. })), "{other:?}");
    drop(tx);
    let all = store.firmware_files().await.unwrap();
    assert_eq!(
        all.iter().map(|f| f.component.as_str()).collect::<Vec<_>>(),
        ["BIOS", "BMC"]
    );
    assert_eq!(all[1], bmc);

    let update = FirmwareUpdateRow {
        node: "n1".into(),
        digest: "sha256:1".into(),
        changed_at: Timestamp(6),
        body: "{}".into(),
    };
    store.put_firmware_update(&update).await.unwrap();
    let later = FirmwareUpdateRow {
        body: "[1]".into(),
        ..update.clone()
    };
    store.put_firmware_update(&later).await.unwrap();
    assert_eq!(store.firmware_update(&"n1".into()).await.unwrap(), Some(later.clone()));
    let mut tx = store.write().await.unwrap();
    assert_eq!(tx.firmware_update(&"n1".into()).await.unwrap(), Some(later));
    tx.put_firmware_update(&update).await.unwrap();
    assert_eq!(tx.firmware_update(&"n1".into()).await.unwrap(), Some(update));
    drop(tx);
    let mut tx = store.write().await.unwrap();
    assert!(!tx.remove_firmware_file("sha256:1").await.unwrap(), "it is being used");
    assert!(tx.remove_firmware_file("sha256:2").await.unwrap());
    let none = tx.remove_firmware_file("sha256:9").await;
    assert!(matches!(none, Err(StoreError::NotFound { .. })), "{none:?}");
    tx.commit().await.unwrap();
    store.end_firmware_update(&"n1".into()).await.unwrap();
    assert_eq!(store.firmware_update(&"n1".into()).await.unwrap(), None);
    let mut tx = store.write().await.unwrap();
    assert!(tx.remove_firmware_file("sha256:1").await.unwrap());
    tx.commit().await.unwrap();
}

#[tokio::test]
async fn a_node_with_a_begun_update_is_not_free_until_the_update_is_over() {
    let lab = Lab::new()
        .await
        .with(&[node_in("n1", State::Available), node_in("n2", State::Available)])
        .await;
    let store = &lab.store;
    assert_eq!(store.free_nodes().await.unwrap(), ["n1", "n2"]);
    let update = FirmwareUpdateRow {
        node: "n1".into(),
        digest: "sha256:1".into(),
        changed_at: Timestamp(6),
        body: "{}".into(),
    };
    store.put_firmware_update(&update).await.unwrap();
    assert_eq!(store.free_nodes().await.unwrap(), ["n2"]);
    store.end_firmware_update(&"n1".into()).await.unwrap();
    assert_eq!(store.free_nodes().await.unwrap(), ["n1", "n2"]);
}

#[tokio::test]
async fn readings_are_deleted_with_their_node_and_windows_are_replaced() {
    let lab = Lab::new()
        .await
        .with(&[node_in("n1", State::Available), node_in("n2", State::Available)])
        .await;
    let store = &lab.store;
    for (node, at) in [("n1", 5), ("n2", 6)] {
        let seen = FirmwareSeenRow {
            node: node.into(),
            at: Timestamp(at),
            body: "[]".into(),
        };
        store.put_firmware_seen(&seen).await.unwrap();
        store.put_firmware_seen(&seen).await.unwrap();
    }
    assert_eq!(
        store.firmware_seen(&"n1".into()).await.unwrap().unwrap().at,
        Timestamp(5)
    );
    for (after, last, expected) in [
        ("", "n2", vec!["n1", "n2"]),
        ("", "n1", vec!["n1"]),
        ("n1", "n2", vec!["n2"]),
    ] {
        let rows = store.firmware_seen_between(after, last).await.unwrap();
        assert_eq!(rows.iter().map(|s| s.node.as_str()).collect::<Vec<_>>(), expected);
    }
    let mut tx = store.write().await.unwrap();
    let record = tx.node(&"n1".into()).await.unwrap();
    tx.delete_node(&record).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(store.firmware_seen(&"n1".into()).await.unwrap(), None);

    let mut window = WindowRow {
        target: "nodes/n2".into(),
        generation: 3,
        changed_at: Timestamp(1),
        body: "{}".into(),
    };
    for generation in [3, 4] {
        window.generation = generation;
        let mut tx = store.write().await.unwrap();
        tx.put_maintenance_window(&window).await.unwrap();
        tx.commit().await.unwrap();
    }
    assert_eq!(store.maintenance_window("nodes/n2").await.unwrap(), Some(window));
    assert_eq!(store.maintenance_window("nodes/n1").await.unwrap(), None);
}
