use rackwright_lifecycle::{State, Timestamp};
use rackwright_redfish::FirmwareEntry;

use super::*;
use crate::grpc::said;
use crate::testing;

const SITE: &str = "site: {name: hall}\nskus:\n- name: wants\n  power: {max_watts: 1000}\n  \
                    psus: {count: 2, watts: 1000, needed: 1}\n  height_units: 2\n  firmware:\n  \
                    - {component: BMC, version: \"2.0\"}\n";

/// A page of nodes after `after`, and how each that is told of stands.
async fn page(core: &Core, after: &str, limit: i64) -> Vec<(String, String)> {
    let records = core.store.nodes(&Scope::Site, &Vec::new(), after, limit).await.unwrap();
    let told = report_of(core, after, &records).await.unwrap();
    told.into_iter().map(|node| (node.node, node.state)).collect()
}

#[tokio::test]
async fn a_page_of_the_report_tells_of_its_own_nodes_each() {
    let core = testing::core().await;
    assert!(page(&core, "", 10).await.is_empty(), "no node, no site");
    said::apply_site(&core, "1", SITE).await.unwrap();
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
