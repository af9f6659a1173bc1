//! Firmware values from TPMs, and golden values.

use rackwright_lifecycle::{State, Timestamp};
use rackwright_store::{FirmwareValuesRow, GoldenFirmwareRow, StoreError};

use super::support::{Lab, at, node_in};

#[tokio::test]
async fn values_of_a_node_keep_an_update_and_go_with_the_node() {
    let lab = Lab::new().await.with(&[node_in("n1", State::Available)]).await;
    let store = &lab.store;
    assert_eq!(store.firmware_values(&"n1".into()).await.unwrap(), None);
    store
        .record_firmware_update(&"n1".into(), at(5), "BIOS 2.1")
        .await
        .unwrap();
    let updated = FirmwareValuesRow {
        node: "n1".into(),
        updated_at: at(5),
        updated_to: "BIOS 2.1".into(),
        ..FirmwareValuesRow::default()
    };
    assert_eq!(
        store.firmware_values(&"n1".into()).await.unwrap(),
        Some(updated.clone())
    );
    let seen = FirmwareValuesRow {
        first_seen_at: at(6),
        tpm_ek: "sha256:aa".into(),
        body: "{}".into(),
        reported: "differs".into(),
        updated_at: Timestamp(0),
        updated_to: String::new(),
        ..updated
    };
    let mut tx = store.write().await.unwrap();
    tx.put_firmware_values(&seen).await.unwrap();
    assert_eq!(tx.firmware_values(&"n1".into()).await.unwrap(), Some(seen.clone()));
    tx.commit().await.unwrap();
    store
        .record_firmware_update(&"n1".into(), at(7), "BIOS 2.2")
        .await
        .unwrap();
    store
        .record_firmware_update(&"n1".into(), at(8), "NIC 3")
        .await
        .unwrap();
    let both = FirmwareValuesRow {
        updated_at: at(8),
        updated_to: "BIOS 2.2, NIC 3".into(),
        ..seen
    };
    assert_eq!(store.firmware_values(&"n1".into()).await.unwrap(), Some(both));
    let mut tx = store.write().await.unwrap();
    let record = tx.node(&"n1".into()).await.unwrap();
    tx.delete_node(&record).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(store.firmware_values(&"n1".into()).await.unwrap(), None);
}

#[tokio::test]
async fn a_sku_has_several_golden_values_and_each_is_approved_once() {
    let lab = Lab::new().await;
    let store = &lab.store;
    let golden = |id: &str, sku: &str, approved: i64| GoldenFirmwareRow {
        id: id.into(),
        sku: sku.into(),
        body: "{}".into(),
        approved_at: at(approved),
        approved_by: "ann".into(),
        node: "n1".into(),
        reason: "new".into(),
    };
    let mut tx = store.write().await.unwrap();
    for row in [golden("a", "h100", 1), golden("b", "h100", 2), golden("c", "cpu", 3)] {
        assert!(tx.add_golden_firmware(&row).await.unwrap());
    }
    assert!(!tx.add_golden_firmware(&golden("a", "h100", 9)).await.unwrap());
    let of_sku = tx.golden_firmware_of("h100").await.unwrap();
    assert_eq!(of_sku, [golden("b", "h100", 2), golden("a", "h100", 1)]);
    tx.commit().await.unwrap();
    assert_eq!(store.golden_firmware_of("h100").await.unwrap(), of_sku);
    let all = store.golden_firmware().await.unwrap();
    assert_eq!(
        all.iter().map(|row| row.id.as_str()).collect::<Vec<_>>(),
        ["c", "b", "a"]
    );
    let mut tx = store.write().await.unwrap();
    assert_eq!(tx.remove_golden_firmware("a").await.unwrap(), golden("a", "h100", 1));
    let none = tx.remove_golden_firmware("a").await;
    assert!(matches!(none, Err(StoreError::NotFound { .. })), "{none:?}");
    tx.commit().await.unwrap();
    assert_eq!(store.golden_firmware_of("h100").await.unwrap().len(), 1);
}
