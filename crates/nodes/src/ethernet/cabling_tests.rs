use rackwright_ground::agents::AdmittedAgent;
use rackwright_ground::testing;
use rackwright_lifecycle::NodeId;
use rackwright_site::file::{Source, check};

use super::*;

const SITE: &str = "site: {name: lab}\nrooms: [{name: hall}]\nracks: [{name: r, room: hall}]\n\
    skus: [{name: k, power: {max_watts: 1 kW}, psus: {count: 1, watts: 1 kW, needed: 1}, height_units: 1}]\n\
    nodes:\n- {name: n1, sku: k, rack: r, unit: 1, ethernet: {eth0: leaf-1/swp1, eth1: leaf-2/swp1}}\n\
    - {name: n2, sku: k, rack: r, unit: 2, ethernet: {eth0: leaf-1/swp2}}\n\
    - {name: n3, sku: k, rack: r, unit: 3, ethernet: {eth0: leaf-1/swp10}}\n";

fn site() -> Site {
    let source = Source {
        name: "site.yaml",
        text: SITE,
    };
    check(&[source]).site.unwrap()
}

fn heard(nic: &str, switch: &str, port: &str) -> v1::Neighbour {
    v1::Neighbour {
        nic: nic.into(),
        mac: format!("02:00:00:00:00:{:02x}", nic.len()),
        chassis_id: "02:00:00:00:00:99".into(),
        port_id: port.into(),
        system_name: switch.into(),
        ..v1::Neighbour::default()
    }
}

fn found(node: &str, heard: &[v1::Neighbour]) -> Vec<Finding> {
    let site = site();
    compare(&site, &Settings::default(), ports(&site, &NodeId::stored(node)), heard)
}

fn texts(findings: &[Finding]) -> Vec<String> {
    let texts = |finding: &Finding| match finding {
        Finding::Matches(port) => format!("{} right", port.nic),
        Finding::NoNeighbour(port) => format!("{} silent", port.nic),
        Finding::Differs { .. } => finding.difference().unwrap(),
    };
    findings.iter().map(texts).collect()
}

#[test]
fn each_card_is_matched_misplaced_or_silent() {
    let right = [
        heard("eth0", "leaf-1", "swp1"),
        heard("eth1", "LEAF-2.dc.example", "Swp1"),
    ];
    assert_eq!(texts(&found("n1", &right)), ["eth0 right", "eth1 right"]);
    assert_eq!(texts(&found("n1", &[])), ["eth0 silent", "eth1 silent"]);
    let swapped = [heard("eth0", "leaf-1", "swp2"), heard("eth1", "leaf-9", "7")];
    assert_eq!(
        texts(&found("n1", &swapped)),
        [
            "eth0 is cabled to leaf-1/swp2, the port of n2, eth0; the site file says leaf-1/swp1",
            "eth1 is cabled to leaf-9/7, a port of no node in the site file; the site file says leaf-2/swp1",
        ]
    );
    // swp1 does not match swp10.
    let longer = [heard("eth0", "leaf-1", "swp10")];
    assert!(texts(&found("n1", &longer))[0].contains("the port of n3, eth0"));
}

#[test]
fn a_port_is_known_by_its_description_and_a_switch_by_its_chassis_or_the_name_of_the_settings() {
    let described = v1::Neighbour {
        port_id: "02:00:00:00:00:77".into(),
        port_description: "swp2".into(),
        ..heard("eth0", "leaf-1", "")
    };
    assert_eq!(texts(&found("n2", &[described])), ["eth0 right"]);
    let nameless = v1::Neighbour {
        chassis_id: "leaf-1".into(),
        ..heard("eth0", "", "swp2")
    };
    assert_eq!(texts(&found("n2", &[nameless])), ["eth0 right"]);
    let settings: Settings = serde_json::from_str(
        r#"{"switches": {"leaf-1": {"ovsdb": "tcp:10.0.0.2:6640", "lldp_name": "02:00:00:00:00:99"}}}"#,
    )
    .unwrap();
    let site = site();
    let other = [heard("eth0", "cumulus", "swp2")];
    let by_chassis = compare(&site, &settings, ports(&site, &"n2".into()), &other);
    assert_eq!(texts(&by_chassis), ["eth0 right"]);
}

#[test]
fn a_card_with_another_name_is_found_by_its_port_and_foreign_networks_are_ignored() {
    assert_eq!(
        texts(&found("n2", &[heard("enp1s0", "leaf-1", "swp2")])),
        ["eth0 right"]
    );
    let elsewhere = texts(&found("n2", &[heard("enp1s0", "leaf-1", "swp1")]));
    assert_eq!(
        elsewhere,
        [
            "eth0 (card enp1s0, 02:00:00:00:00:06) is cabled to leaf-1/swp1, the port of n1, eth0; the site file says leaf-1/swp2"
        ]
    );
    assert_eq!(
        texts(&found("n2", &[heard("enp9s0", "storage-1", "7")])),
        ["eth0 silent"]
    );
    let by_mac = v1::Neighbour {
        mac: "ETH0".into(),
        ..heard("enp1s0", "leaf-1", "swp2")
    };
    assert_eq!(texts(&found("n2", &[by_mac])), ["eth0 right"]);
}

#[test]
fn a_difference_and_its_end_are_reported_once() {
    let with = |findings: Vec<Finding>| {
        findings
            .into_iter()
            .map(|finding| (finding, String::new()))
            .collect::<Vec<_>>()
    };
    let wrong = with(found("n2", &[heard("eth0", "leaf-1", "swp1")]));
    let (reported, events) = changed_findings("", &wrong);
    assert_eq!((events.len(), &events[0].0), (1, &EventKind::EthernetCabling));
    assert_eq!(changed_findings(&reported, &wrong), (reported.clone(), Vec::new()));
    // A new boot has no neighbours yet.
    let silent = with(found("n2", &[]));
    assert_eq!(changed_findings(&reported, &silent), (reported.clone(), Vec::new()));
    let other = with(found("n2", &[heard("eth0", "leaf-1", "swp10")]));
    assert_eq!(changed_findings(&reported, &other).1.len(), 1);
    let right = with(found("n2", &[heard("eth0", "leaf-1", "swp2")]));
    let (reported, events) = changed_findings(&reported, &right);
    assert_eq!(
        (reported.as_str(), &events[0].0),
        ("", &EventKind::EthernetCablingRight)
    );
    assert!(changed_findings("", &right).1.is_empty());
}

#[tokio::test]
async fn an_agents_report_is_bounded_and_counts_only_in_its_own_session_and_boot() {
    let core = testing::core_with("ethernet: {cabling: hold}\n").await;
    let record = testing::node("n2", State::Imaging, Some("b3-1"));
    testing::add(&core, &record).await;
    let admitted_agent = |number, boot_id: &str| AdmittedAgent {
        node: "n2".into(),
        number,
        of: rackwright_store::AgentSession::default(),
        boot_id: boot_id.into(),
    };
    let long = "x\n".repeat(10_000);
    let message = v1::Neighbours {
        neighbours: vec![heard(&long, &long, &long); 1000],
    };
    super::heard(&core, &admitted_agent(77, "b1"), message.clone())
        .await
        .unwrap();
    assert_eq!(
        core.store.node_neighbours(&"n2".into()).await.unwrap(),
        None,
        "another session"
    );
    super::heard(&core, &admitted_agent(record.hold.session, "b1"), message)
        .await
        .unwrap();
    let row = core.store.node_neighbours(&"n2".into()).await.unwrap().unwrap();
    let kept = neighbours(&row).unwrap();
    assert_eq!(kept.len(), CARDS_MAX);
    assert!(kept[0].nic.len() <= NAME_MAX && !kept[0].nic.contains('\n'));
    assert_eq!(row.boot_id, "b1");
}

#[tokio::test]
async fn only_a_difference_of_the_present_boot_holds_a_node_that_is_imaged() {
    let core = testing::core_with("ethernet: {cabling: hold}\n").await;
    testing::put_site(&core, SITE).await;
    let record = testing::node("n2", State::Imaging, Some("b3-1"));
    testing::add(&core, &record).await;
    let admitted_agent = AdmittedAgent {
        node: "n2".into(),
        number: record.hold.session,
        of: rackwright_store::AgentSession::default(),
        boot_id: "b1".into(),
    };
    let agent = |boot_id: &str| Reading::Known {
        value: Agent::Present {
            boot_id: boot_id.into(),
            booted_at: Timestamp(1),
        },
        at: Timestamp(1),
    };
    let say = async |neighbours: Vec<v1::Neighbour>| {
        let message = v1::Neighbours { neighbours };
        super::heard(&core, &admitted_agent, message).await.unwrap();
        holds(&core, &record, &agent("b1")).await.unwrap()
    };
    assert_eq!(
        say(Vec::new()).await,
        None,
        "a card that receives no frame holds no node"
    );
    let why = say(vec![heard("eth0", "leaf-1", "swp1")]).await.unwrap();
    assert!(
        why.starts_with("eth0 is cabled to leaf-1/swp1, the port of n1"),
        "{why}"
    );
    assert_eq!(holds(&core, &record, &agent("b2")).await.unwrap(), None, "another boot");
    assert_eq!(holds(&core, &record, &Reading::Never).await.unwrap(), None);
    let resting = testing::node("n2", State::Available, None);
    assert_eq!(holds(&core, &resting, &agent("b1")).await.unwrap(), None);
    assert_eq!(say(vec![heard("eth0", "leaf-1", "swp2")]).await, None);
}

#[tokio::test]
async fn an_unreadable_site_holds_a_node_and_forgets_no_difference() {
    let core = testing::core_with("ethernet: {cabling: hold}\n").await;
    testing::put_site(&core, SITE).await;
    let record = testing::node("n2", State::Imaging, Some("b3-1"));
    testing::add(&core, &record).await;
    let admitted_agent = AdmittedAgent {
        node: "n2".into(),
        number: record.hold.session,
        of: rackwright_store::AgentSession::default(),
        boot_id: "b1".into(),
    };
    let agent = Reading::Known {
        value: Agent::Present {
            boot_id: "b1".into(),
            booted_at: Timestamp(1),
        },
        at: Timestamp(1),
    };
    let wrong = || v1::Neighbours {
        neighbours: vec![heard("eth0", "leaf-1", "swp1")],
    };
    super::heard(&core, &admitted_agent, wrong()).await.unwrap();
    let row = async || core.store.node_neighbours(&"n2".into()).await.unwrap().unwrap();
    let reported = row().await.reported;
    assert!(reported.starts_with("eth0 is cabled to leaf-1/swp1"), "{reported}");

    testing::damage_site(&core).await;
    let why = holds(&core, &record, &agent).await.unwrap().unwrap();
    assert!(
        why.starts_with("the cables cannot be compared with the site: "),
        "{why}"
    );
    let (explained, _) = explain(&core, &record).await.unwrap();
    assert!(explained.starts_with("not compared: the applied site"), "{explained}");
    super::heard(&core, &admitted_agent, wrong()).await.unwrap();
    assert_eq!(row().await.reported, reported);
}

#[tokio::test]
async fn stored_neighbours_that_do_not_decode_are_a_named_error() {
    let core = testing::core_with("ethernet: {cabling: hold}\n").await;
    testing::put_site(&core, SITE).await;
    let record = testing::node("n2", State::Imaging, Some("b3-1"));
    testing::add(&core, &record).await;
    let mut tx = core.store.write().await.unwrap();
    let row = NodeNeighbours {
        node: "n2".into(),
        boot_id: "b1".into(),
        heard_at: Timestamp(1),
        body: b"no message".to_vec(),
        reported: String::new(),
    };
    tx.save_neighbours(&row).await.unwrap();
    tx.commit().await.unwrap();
    let error = explain(&core, &record).await.unwrap_err();
    assert_eq!(error.to_string(), "neighbours of node \"n2\" cannot be read back");
    assert!(name_neighbours(&core, &"n2".into(), &mut []).await.is_err());
}
