use rackwright_ground::testing;
use rackwright_lifecycle::{State, Timestamp};
use rackwright_nodes::golden_firmware::{id_of, parse};
use rackwright_redfish::FirmwareEntry;
use rackwright_store::FirmwareValuesRow;

use super::*;
use crate::caller::Caller;
use crate::test_calls;

const SITE: &str = "site: {name: hall}\nskus:\n- name: wants\n  power: {max_watts: 1000}\n  \
                    psus: {count: 2, watts: 1000, needed: 1}\n  height_units: 2\n  firmware:\n  \
                    - {component: BMC, version: \"2.0\"}\n";

/// A page of nodes after `after`, and the state of each in the report.
async fn page(core: &Core, after: &str, limit: i64) -> Vec<(String, String)> {
    let records = core.store.nodes(&Scope::Site, &Vec::new(), after, limit).await.unwrap();
    let reported = report_of(core, after, &records).await.unwrap();
    reported.into_iter().map(|node| (node.node, node.state)).collect()
}

#[tokio::test]
async fn a_page_of_the_report_tells_of_its_own_nodes_each() {
    let core = testing::core().await;
    assert!(page(&core, "", 10).await.is_empty(), "no node, no site");
    test_calls::apply_site(&core, "1", SITE).await.unwrap();
    for (id, sku) in [("n1", "wants"), ("n2", "other"), ("n3", "wants"), ("n4", "wants")] {
        let mut record = testing::node(id, State::Available, None);
        sku.clone_into(&mut record.spec.sku);
        testing::add(&core, &record).await;
    }
    for (node, version) in [("n1", "2.0"), ("n4", "1.0")] {
        let entry = FirmwareEntry {
            id: "BMC".into(),
            version: version.into(),
            updateable: Some(true),
            ..FirmwareEntry::default()
        };
        let state = FirmwareState {
            entries: vec![entry],
            ..FirmwareState::default()
        };
        let row = FirmwareSeenRow {
            node: node.into(),
            at: Timestamp(5_000_000),
            body: serde_json::to_string(&state).unwrap(),
        };
        core.store.put_firmware_seen(&row).await.unwrap();
    }
    let so = |node: &str, state: &str| (format!("nodes/{node}"), state.to_owned());
    let all = [so("n1", "compliant"), so("n3", "unknown"), so("n4", "drift")];
    assert_eq!(page(&core, "", 10).await, all);
    assert_eq!(page(&core, "", 2).await, all[..1]);
    assert_eq!(page(&core, "n2", 2).await, all[1..]);
}

fn operator() -> Caller {
    Caller {
        name: "ann".into(),
        role: v1::Role::Operator,
        scope: Scope::Site,
        epoch: 0,
    }
}

async fn approve(core: &Core, key: &str, values: &str) -> Result<v1::GoldenFirmware, ApiError> {
    let (caller, mutation) = (
        operator(),
        v1::Mutation {
            idempotency_key: key.into(),
            ..v1::Mutation::default()
        },
    );
    let request = v1::AddGoldenFirmwareRequest {
        node: "nodes/n1".into(),
        reason: "as delivered".into(),
        values: values.into(),
        mutation: None,
    };
    let call = MutatingCall::new(core, &caller, "AddGoldenFirmware", Some(&mutation), &request)?;
    golden::add(&call, &request).await
}

async fn show(core: &Core, digest: &str) -> String {
    let row = FirmwareValuesRow {
        node: "n1".into(),
        body: format!("{{\"registers\":{{\"0\":{{\"value\":\"sha256:{digest}\",\"events\":[]}}}}}}"),
        ..FirmwareValuesRow::default()
    };
    let mut tx = core.store.write().await.unwrap();
    tx.put_firmware_values(&row).await.unwrap();
    core.commit(tx).await.unwrap();
    id_of("h100", &parse("n1", &row.body).unwrap())
}

#[tokio::test]
async fn an_operator_approves_what_a_node_shows_and_nothing_else() {
    let core = testing::core().await;
    let mut record = testing::node("n1", State::Available, None);
    "h100".clone_into(&mut record.spec.sku);
    testing::add(&core, &record).await;
    let unknown = approve(&core, "k1", "").await;
    assert!(matches!(&unknown, Err(ApiError::Precondition { .. })), "{unknown:?}");

    let first = show(&core, "aa").await;
    let added = approve(&core, "k2", &first).await.unwrap();
    assert_eq!(
        (added.name, added.sku.as_str()),
        (format!("golden-firmware/{first}"), "h100")
    );
    assert_eq!(
        (added.registers[0].pcr, added.registers[0].value.as_str()),
        (0, "sha256:aa")
    );
    let again = approve(&core, "k3", "").await.unwrap();
    assert_eq!(again.approve_time, added.approve_time, "the first approval stands");

    // The machine shows other values than the operator saw.
    let second = show(&core, "bb").await;
    let other = approve(&core, "k4", &first).await;
    assert!(matches!(&other, Err(ApiError::Precondition { .. })), "{other:?}");
    assert_eq!(core.store.golden_firmware_of("h100").await.unwrap().len(), 1);
    approve(&core, "k5", &second).await.unwrap();
    assert_eq!(core.store.golden_firmware_of("h100").await.unwrap().len(), 2);
    for number in 2..16 {
        show(&core, &number.to_string()).await;
        approve(&core, &format!("n{number}"), "").await.unwrap();
    }
    show(&core, "cc").await;
    let full = approve(&core, "k6", "").await;
    assert!(format!("{full:?}").contains("golden remove"), "{full:?}");
}
