//! The audit: a chain that only grows.

use std::sync::Arc;

use rackwright_store::{AuditFilter, AuditRow, Store};

use super::support::{Lab, at};

fn row(position: i64, caller: &str, target: &str, outcome: &str) -> AuditRow {
    AuditRow {
        position,
        at: at(position * 100),
        caller: caller.into(),
        customer: "acme".into(),
        method: "NodeService/HoldNode".into(),
        target: target.into(),
        outcome: outcome.into(),
        record: format!("record {position}"),
        hash: format!("{position:064x}"),
        key: "00".into(),
        signature: "11".into(),
    }
}

async fn add(store: &Store, row: &AuditRow) {
    let mut tx = store.write().await.unwrap();
    tx.audit_head().await.unwrap();
    tx.add_audit(row).await.unwrap();
    tx.commit().await.unwrap();
}

async fn found(store: &Store, filter: AuditFilter) -> Vec<i64> {
    let rows = store.audit(&filter, 0, 10).await.unwrap();
    rows.iter().map(|row| row.position).collect()
}

#[tokio::test]
async fn the_head_follows_the_records_and_a_dropped_change_leaves_neither() {
    let lab = Lab::new().await;
    let store = &lab.store;
    assert_eq!(store.audit_head().await.unwrap(), (0, String::new()));
    let first = row(1, "members/ann", "nodes/a", "OK");
    add(store, &first).await;
    let mut tx = store.write().await.unwrap();
    tx.add_audit(&row(2, "members/ann", "nodes/a", "OK")).await.unwrap();
    drop(tx);
    assert_eq!(store.audit_head().await.unwrap(), (1, first.hash.clone()));
    assert_eq!(
        store.audit(&AuditFilter::default(), 0, 10).await.unwrap(),
        std::slice::from_ref(&first)
    );
    let mut tx = store.write().await.unwrap();
    assert_eq!(tx.audit_head().await.unwrap(), (1, first.hash.clone()));
    assert_eq!(tx.audit_hash(1).await.unwrap(), Some(first.hash.clone()));
    assert_eq!(tx.audit_hash(2).await.unwrap(), None);
    assert!(tx.add_audit(&first).await.is_err(), "a position is given once");
}

#[tokio::test]
async fn records_are_found_by_each_of_their_columns() {
    let lab = Lab::new().await;
    let store = &lab.store;
    add(store, &row(1, "members/ann", "nodes/a", "OK")).await;
    add(store, &row(2, "members/bob", "nodes/a", "PERMISSION_DENIED")).await;
    add(store, &row(3, "members/ann", "nodes/b", "OK")).await;
    let filter = AuditFilter::default;
    assert_eq!(found(store, filter()).await, [1, 2, 3]);
    assert_eq!(
        found(
            store,
            AuditFilter {
                caller: "members/ann".into(),
                ..filter()
            }
        )
        .await,
        [1, 3]
    );
    assert_eq!(
        found(
            store,
            AuditFilter {
                target: "nodes/a".into(),
                ..filter()
            }
        )
        .await,
        [1, 2]
    );
    assert_eq!(
        found(
            store,
            AuditFilter {
                only_failed: true,
                ..filter()
            }
        )
        .await,
        [2]
    );
    assert_eq!(
        found(
            store,
            AuditFilter {
                customer: "bolt".into(),
                ..filter()
            }
        )
        .await,
        [0; 0]
    );
    assert_eq!(
        found(
            store,
            AuditFilter {
                method: "NodeService/".into(),
                ..filter()
            }
        )
        .await,
        [1, 2, 3]
    );
    assert_eq!(
        found(
            store,
            AuditFilter {
                method: "NodeService/Hold".into(),
                ..filter()
            }
        )
        .await,
        [0; 0]
    );
    let between = AuditFilter {
        since: Some(at(200)),
        until: Some(at(300)),
        ..filter()
    };
    assert_eq!(found(store, between).await, [2]);
    let rows = store.audit_before(&filter(), 3, 1).await.unwrap();
    assert_eq!(rows.iter().map(|row| row.position).collect::<Vec<_>>(), [2]);
    assert_eq!(store.audit(&filter(), 1, 1).await.unwrap()[0].position, 2);
}

#[tokio::test]
async fn the_database_refuses_to_change_and_to_delete_a_record() {
    let lab = Lab::new().await;
    let only = row(1, "members/ann", "nodes/a", "OK");
    add(&lab.store, &only).await;
    let database = Arc::new(lab.database);
    for statement in ["UPDATE audit SET caller = 'members/eve'", "DELETE FROM audit"] {
        let database = database.clone();
        let done = tokio::spawn(async move { database.sql(statement).await }).await;
        assert!(done.is_err(), "{statement} was done");
    }
    assert_eq!(lab.store.audit(&AuditFilter::default(), 0, 10).await.unwrap(), [only]);
}
