//! Nodes: rows are read back as written, versions guard them, and a MAC address belongs to one node.

use rackwright_lifecycle::{Bmc, BootTarget, Edge, Effect, Evidence, NodeId, Power, Reading, State, Wait};
use rackwright_store::{HistoryRow, Identity, Proof, Readings, Scope, Store, StoreError};

use super::support::{Lab, at, claim, event, is_conflict, is_missing, node, node_in, try_of};

fn full_record() -> rackwright_store::NodeRecord {
    let mut record = node_in("gpu-001", State::Active);
    record.node.generation = 3;
    record.node.claim = Some(claim("b3-aa"));
    record.node.wanted.hold = Some("fan".into());
    record.node.evidence = Evidence {
        written_at: Some(at(5)),
        clean_at: Some(at(4)),
        image_digest: Some("b3-aa".into()),
        deployment: Some(2),
        erased_at: Some(at(3)),
        drives: ["S1".to_owned(), "S2".to_owned()].into(),
    };
    // Sealed passwords are arbitrary bytes, not text.
    record.spec.bmc_password = vec![0, 255, 254, b'"', b'\\', 0];
    record.spec.boot_macs = vec!["52:54:00:00:00:02".into()];
    record.labels = [("rack".to_owned(), "r1".to_owned())].into();
    record.identity = Identity {
        uuid: "0000-1".into(),
        macs: vec!["52:54:00:00:00:01".into()],
        boot_option_macs: vec!["52:54:00:00:00:01".into()],
        ..Identity::default()
    };
    record.reason = "a \"reason\"".into();
    record.readings.bmc = Reading::Known {
        value: Bmc::Unreachable("no route".into()),
        at: at(7),
    };
    record
}

#[tokio::test]
async fn a_node_is_read_back_as_it_was_written() {
    let record = full_record();
    let lab = Lab::new().await.with(std::slice::from_ref(&record)).await;
    let found = lab.store.node(&Scope::Site, &"gpu-001".into()).await.unwrap();
    assert_eq!(found, record);

    let mut next = found;
    next.node.state = State::Reclaiming;
    next.node.since = at(200);
    next.node.claim = None;
    next.labels.clear();
    next.spec.sku = "big".into();
    let mut tx = lab.store.write().await.unwrap();
    tx.save_node(&mut next, at(210)).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!((next.version, next.updated_at), (2, at(210)));
    assert_eq!(lab.store.node(&Scope::Site, &"gpu-001".into()).await.unwrap(), next);
}

#[tokio::test]
async fn a_stale_save_is_refused_and_nothing_of_its_change_stays() {
    let lab = Lab::new().await.with(&[node("n1")]).await;
    let mut stale = lab.store.node(&Scope::Site, &"n1".into()).await.unwrap();
    let mut fast = stale.clone();
    fast.reason = "the first".into();
    fast.labels = [("who".to_owned(), "first".to_owned())].into();
    let mut tx = lab.store.write().await.unwrap();
    tx.save_node(&mut fast, at(200)).await.unwrap();
    tx.commit().await.unwrap();

    stale.reason = "the second".into();
    stale.labels = [("who".to_owned(), "second".to_owned())].into();
    let mut tx = lab.store.write().await.unwrap();
    tx.add_event(&event("too-late", "nodes/n1", 300)).await.unwrap();
    tx.begin_effect(&try_of("n1", Effect::Identify, 1)).await.unwrap();
    let refused = tx.save_node(&mut stale, at(300)).await;
    assert!(is_conflict(&refused), "{refused:?}");
    assert!(refused.unwrap_err().is_retryable());
    drop(tx);

    assert_eq!(stale.version, 1, "a refused save does not count the version on");
    assert_eq!(lab.store.node(&Scope::Site, &"n1".into()).await.unwrap(), fast);
    assert!(lab.store.events(&Scope::Site, 0, "", 10).await.unwrap().is_empty());
    assert!(lab.store.open_effects().await.unwrap().is_empty());
}

#[tokio::test]
async fn readings_are_not_versioned_and_a_save_does_not_undo_them() {
    let lab = Lab::new().await.with(&[node("n1")]).await;
    let mut decided = lab.store.node(&Scope::Site, &"n1".into()).await.unwrap();
    let seen = Readings {
        power: Reading::Known {
            value: Power::On,
            at: at(150),
        },
        boot_target: Reading::Known {
            value: BootTarget::Network,
            at: at(151),
        },
        ..Readings::default()
    };
    let mut tx = lab.store.write().await.unwrap();
    tx.save_readings(&"n1".into(), &seen, at(300)).await.unwrap();
    tx.save_address(&"n1".into(), "10.0.0.9", "dhcp").await.unwrap();
    tx.save_inventory(&"n1".into(), &[1, 0, 255]).await.unwrap();
    tx.commit().await.unwrap();

    let mut tx = lab.store.write().await.unwrap();
    tx.save_node(&mut decided, at(200)).await.unwrap();
    tx.commit().await.unwrap();
    let found = lab.store.node(&Scope::Site, &"n1".into()).await.unwrap();
    assert_eq!((found.readings, found.address.as_str()), (seen, "10.0.0.9"));
    assert_eq!(lab.store.inventory(&"n1".into()).await.unwrap(), Some(vec![1, 0, 255]));
}

#[tokio::test]
async fn an_inventory_is_replaced_and_expected_only_on_request() {
    let lab = Lab::new().await.with(&[node("n1")]).await;
    let report = async |reported: &[u8], is_expected: bool| {
        let mut tx = lab.store.write().await.unwrap();
        tx.save_inventory(&"n1".into(), reported).await.unwrap();
        tx.save_inventory(&"nobody".into(), reported).await.unwrap();
        if is_expected {
            tx.expect_inventory(&"n1".into()).await.unwrap();
        }
        tx.commit().await.unwrap();
        let (store, id) = (&lab.store, "n1");
        (
            store.inventory(&NodeId::stored(id)).await.unwrap(),
            store.expected_inventory(&NodeId::stored(id)).await.unwrap(),
        )
    };
    let some = |byte: u8| Some(vec![byte]);
    assert_eq!(report(&[1], false).await, (some(1), None));
    assert_eq!(report(&[1], true).await, (some(1), some(1)));
    assert_eq!(report(&[2], false).await, (some(2), some(1)));
    assert_eq!(report(&[2], true).await, (some(2), some(2)));
    assert!(is_missing(&lab.store.inventory(&"nobody".into()).await));
}

/// Inventories were columns of `nodes` before schema 6.
#[tokio::test]
async fn inventories_of_an_older_schema_are_kept() {
    let mut claimed = node("n2");
    claimed.node.claim = Some(claim("b3-1"));
    let lab = Lab::new().await.with(&[node("n1"), claimed]).await;
    let mut tx = lab.store.write().await.unwrap();
    tx.save_inventory(&"n1".into(), &[1]).await.unwrap();
    tx.expect_inventory(&"n1".into()).await.unwrap();
    tx.save_inventory(&"n1".into(), &[2]).await.unwrap();
    tx.commit().await.unwrap();
    lab.store.close().await;
    let is_server = lab.database.database().to_string().starts_with("postgres");
    let bytes = if is_server { "BYTEA" } else { "BLOB" };
    let column = |name: &str, from: &str| {
        format!(
            "ALTER TABLE nodes ADD COLUMN {name} {bytes}; \
             UPDATE nodes SET {name} = (SELECT {from} FROM node_inventories WHERE node_id = id);"
        )
    };
    let function = if is_server {
        "DROP FUNCTION audit_is_append_only;"
    } else {
        ""
    };
    let back = [
        column("inventory", "reported"),
        column("expected", "expected"),
        "DROP INDEX nodes_waiting; ALTER TABLE nodes DROP COLUMN wait_kind; \
         ALTER TABLE nodes RENAME COLUMN wait TO wait_why; \
         UPDATE nodes SET wait_why = 'an operator', due_at = 9000, updated_at = 300 WHERE id = 'n1'; \
         CREATE INDEX nodes_waiting ON nodes (state, substr(wait_why, 1, 36)) WHERE wait_why <> ''; \
         DROP INDEX nodes_customer; ALTER TABLE nodes DROP COLUMN customer; \
         ALTER TABLE nodes DROP COLUMN customer_since; ALTER TABLE members DROP COLUMN customer; \
         ALTER TABLE reports DROP COLUMN customer; ALTER TABLE erase_certificates DROP COLUMN customer; \
         DROP TABLE node_inventories; DROP TABLE cluster_history; DROP TABLE cluster_nodes; DROP TABLE clusters; \
         DROP TABLE sites; DROP TABLE hall; DROP TABLE usage; DROP TABLE terms; \
         DROP TABLE fabric; DROP TABLE fabric_keys; DROP TABLE fabric_comparison; DROP TABLE fabric_faults; \
         DROP TABLE fabric_broken_links; DROP TABLE fabric_impaired_nodes; \
         DROP TABLE fabric_check; DROP TABLE fabric_breaches; DROP TABLE usage_breaches; DROP TABLE sessions; \
         DROP INDEX members_origin; ALTER TABLE members DROP COLUMN issuer; ALTER TABLE members DROP COLUMN subject; \
         DROP TABLE facility_holds; DROP TABLE facility_alarms; DROP TABLE facility_readings; DROP TABLE facility_pins; \
         DROP TABLE discovery_findings; DROP TABLE discoveries; DROP TABLE discovery_guard; \
         DROP TABLE node_settings; \
         DROP TABLE firmware_files; DROP TABLE firmware_seen; DROP TABLE firmware_updates; DROP TABLE maintenance_windows; \
         DROP TABLE factory_credentials; DROP TABLE node_firmware_values; DROP TABLE golden_firmware; \
         DROP TABLE member_ssh_keys; DROP TABLE console_pins; DROP TABLE sealed_keys; \
         DROP TABLE bmc_logs; DROP TABLE node_bmc_state; DROP TABLE node_uefi; DROP TABLE node_neighbours; DROP TABLE node_networks; DROP TABLE vlans; DROP TABLE audit; DROP TABLE audit_head; \
         ALTER TABLE members DROP COLUMN epoch; ALTER TABLE members DROP COLUMN used_at; \
         ALTER TABLE members DROP COLUMN certificate_ends_at; ALTER TABLE members DROP COLUMN warned_of; \
         ALTER TABLE tokens DROP COLUMN customer; ALTER TABLE tokens DROP COLUMN made_by; \
         DROP TABLE node_drives; \
         ALTER TABLE deployment_keys DROP COLUMN user_data; ALTER TABLE replicas DROP COLUMN sealing_keys; \
         ALTER TABLE replicas DROP COLUMN seals_with; ALTER TABLE site DROP COLUMN sealing_key; \
         DROP TABLE agent_boots; ALTER TABLE nodes DROP COLUMN agent_generation; \
         ALTER TABLE nodes DROP COLUMN agent_boot; ALTER TABLE nodes DROP COLUMN address_witness; \
         DROP INDEX nodes_doubted; ALTER TABLE nodes DROP COLUMN doubt_cause; ALTER TABLE nodes DROP COLUMN doubt_since; \
         ALTER TABLE nodes DROP COLUMN doubt_why; ALTER TABLE nodes DROP COLUMN doubt_generation; \
         ALTER TABLE nodes DROP COLUMN agent_identity; ALTER TABLE site DROP COLUMN database_id; ALTER TABLE site DROP COLUMN age; ALTER TABLE site DROP COLUMN challenge; \
         ALTER TABLE site DROP COLUMN authority; ALTER TABLE site DROP COLUMN erase_count; ALTER TABLE site DROP COLUMN erase_head; \
         ALTER TABLE replicas DROP COLUMN authorities; ALTER TABLE replicas DROP COLUMN issues_with; \
         ALTER TABLE members DROP COLUMN authority; DROP INDEX erase_certificates_number; \
         ALTER TABLE erase_certificates DROP COLUMN number; ALTER TABLE erase_certificates DROP COLUMN payload_hash; \
         DELETE FROM schema_version WHERE version >= 6;"
            .into(),
        function.to_owned(),
    ];
    lab.database.sql(&back.concat()).await;
    let store = Store::open(lab.database.database()).await.unwrap();
    assert_eq!(store.inventory(&"n1".into()).await.unwrap(), Some(vec![2]));
    assert_eq!(store.expected_inventory(&"n1".into()).await.unwrap(), Some(vec![1]));
    assert_eq!(store.inventory(&"n2".into()).await.unwrap(), None);
    // A wait stored as a sentence is decided anew.
    let record = store.node(&Scope::Site, &"n1".into()).await.unwrap();
    assert_eq!((record.wait, record.due_at), (Wait::Rest, at(300)));
    // A node's customer comes from its claim.
    let acme = Scope::Customer("acme".into());
    let own_nodes = store.nodes(&acme, &Vec::new(), "", 10).await.unwrap();
    assert_eq!(own_nodes.iter().map(|n| n.id.as_str()).collect::<Vec<_>>(), ["n2"]);
}

#[tokio::test]
async fn an_id_is_used_once_and_a_missing_node_is_an_error() {
    let lab = Lab::new().await.with(&[node("n1")]).await;
    let mut again = node("n1");
    again.uid = "another".into();
    let mut tx = lab.store.write().await.unwrap();
    let refused = tx.insert_node(&again).await;
    assert!(
        matches!(&refused, Err(StoreError::Exists { kind: "node", id }) if id == "n1"),
        "{refused:?}"
    );
    assert!(is_missing(&tx.node(&"n2".into()).await));
    drop(tx);
    assert!(is_missing(&lab.store.node(&Scope::Site, &"n2".into()).await));
    assert!(is_missing(&lab.store.inventory(&"n2".into()).await));
    assert_eq!(lab.store.inventory(&"n1".into()).await.unwrap(), None);
}

#[tokio::test]
async fn a_mac_address_belongs_to_one_node_and_is_free_when_the_node_is_deleted() {
    let mac = "52:54:00:00:00:01".to_owned();
    let other = "52:54:00:00:00:02".to_owned();
    let lab = Lab::new().await.with(&[node("n1"), node("n2")]).await;
    let mut tx = lab.store.write().await.unwrap();
    tx.put_macs(&"n1".into(), std::slice::from_ref(&mac)).await.unwrap();
    // The same addresses again are no error, and an address no longer listed is free.
    tx.put_macs(&"n1".into(), &[mac.clone(), other.clone()]).await.unwrap();
    tx.put_macs(&"n1".into(), std::slice::from_ref(&mac)).await.unwrap();
    tx.put_macs(&"n2".into(), std::slice::from_ref(&other)).await.unwrap();
    tx.commit().await.unwrap();

    let mut tx = lab.store.write().await.unwrap();
    let refused = tx.put_macs(&"n2".into(), &[other.clone(), mac.clone()]).await;
    assert!(
        matches!(&refused, Err(StoreError::MacTaken { mac: m, node }) if *m == mac && node == "n1"),
        "{refused:?}"
    );
    drop(tx);
    assert_eq!(lab.store.node_of_mac(&mac).await.unwrap(), Some("n1".into()));
    assert_eq!(lab.store.node_of_mac(&other).await.unwrap(), Some("n2".into()));

    let record = lab.store.node(&Scope::Site, &"n1".into()).await.unwrap();
    let mut tx = lab.store.write().await.unwrap();
    tx.delete_node(&record).await.unwrap();
    tx.put_macs(&"n2".into(), &[other, mac.clone()]).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(lab.store.node_of_mac(&mac).await.unwrap(), Some("n2".into()));
}

#[tokio::test]
async fn a_mac_address_named_twice_is_kept_once() {
    let mac = "52:54:00:00:00:01".to_owned();
    let lab = Lab::new().await.with(&[node("n1")]).await;
    let mut tx = lab.store.write().await.unwrap();
    tx.put_macs(&"n1".into(), &[mac.clone(), mac.clone()]).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(lab.store.node_of_mac(&mac).await.unwrap(), Some("n1".into()));
}

#[tokio::test]
async fn deleting_is_guarded_and_leaves_only_proof() {
    let lab = Lab::new().await.with(&[node("n1")]).await;
    let stale = lab.store.node(&Scope::Site, &"n1".into()).await.unwrap();
    let mut tx = lab.store.write().await.unwrap();
    tx.save_node(&mut stale.clone(), at(200)).await.unwrap();
    tx.begin_effect(&try_of("n1", Effect::Identify, 1)).await.unwrap();
    tx.add_proof(Proof::EraseCertificate, "c1", &"n1".into(), b"proof")
        .await
        .unwrap();
    tx.add_proof(Proof::Report, "r1", &"n1".into(), b"report")
        .await
        .unwrap();
    tx.commit().await.unwrap();

    let mut tx = lab.store.write().await.unwrap();
    assert!(is_conflict(&tx.delete_node(&stale).await));
    drop(tx);
    let fresh = lab.store.node(&Scope::Site, &"n1".into()).await.unwrap();
    let mut tx = lab.store.write().await.unwrap();
    tx.delete_node(&fresh).await.unwrap();
    tx.commit().await.unwrap();
    assert!(is_missing(&lab.store.node(&Scope::Site, &"n1".into()).await));
    assert!(lab.store.open_effects().await.unwrap().is_empty());
    for (kind, body) in [(Proof::EraseCertificate, "proof"), (Proof::Report, "report")] {
        let kept = lab
            .store
            .proofs(&Scope::Site, kind, &"n1".into(), i64::MAX, 10)
            .await
            .unwrap();
        assert_eq!(kept.len(), 1);
        assert_eq!(kept[0].1, body.as_bytes());
    }
    // A save after a deletion is as stale as one after a change.
    let mut tx = lab.store.write().await.unwrap();
    assert!(is_conflict(&tx.save_node(&mut fresh.clone(), at(300)).await));
}

#[tokio::test]
async fn history_is_newest_first_and_bounded() {
    let lab = Lab::new().await.with(&[node("n1"), node("n2")]).await;
    let row = |us: i64| HistoryRow {
        edge: "enrolled".into(),
        from: State::Discovered,
        to: State::Inspecting,
        at: at(us),
        spent_us: us - 100,
        reason: format!("number {us}"),
    };
    let mut tx = lab.store.write().await.unwrap();
    for us in [200, 300, 250] {
        tx.add_history(&"n1".into(), Edge::Enrolled, &row(us)).await.unwrap();
    }
    tx.add_history(&"n2".into(), Edge::Enrolled, &row(1)).await.unwrap();
    tx.commit().await.unwrap();
    // In the order of writing, whatever the timestamps.
    assert_eq!(lab.store.history(&"n1".into(), 2).await.unwrap(), [row(250), row(300)]);
    assert_eq!(lab.store.history(&"n1".into(), 10).await.unwrap().len(), 3);
}

#[tokio::test]
async fn a_deleted_node_leaves_a_note_of_its_data_until_it_is_enrolled_again() {
    let macs = vec!["52:54:00:00:00:01".to_owned(), "52:54:00:00:00:02".to_owned()];
    let mut dirty = node("n1");
    dirty.identity.macs = macs.clone();
    dirty.node.evidence.written_at = Some(at(500));
    let mut erased = node("n2");
    erased.identity.macs = vec!["52:54:00:00:00:03".to_owned()];
    erased.node.evidence.written_at = Some(at(500));
    erased.node.evidence.erased_at = Some(at(600));
    let lab = Lab::new().await.with(&[dirty.clone(), erased.clone()]).await;
    let mut tx = lab.store.write().await.unwrap();
    tx.delete_node(&dirty).await.unwrap();
    tx.delete_node(&erased).await.unwrap();
    assert_eq!(tx.take_unerased(&erased.identity.macs).await.unwrap(), None);
    assert_eq!(tx.take_unerased(&macs).await.unwrap(), Some(at(500)));
    assert_eq!(tx.take_unerased(&macs).await.unwrap(), None, "the node records it now");
}
