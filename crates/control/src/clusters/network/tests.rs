use rackwright_ground::config::network_test::Settings;
use rackwright_lifecycle::NodeId;
use rackwright_planner::handover::Verdict;
use rackwright_planner::network::{Lane, Rule, Test, Topology, Transport, Usual, judge};
use rackwright_site::generate::{ReferenceSku, Request, site_file};
use rackwright_site::model::{Port, Site};
use rackwright_validate::ServedLane;

use super::*;

const LATER: Timestamp = Timestamp(i64::MAX / 2);

const NAMES: [&str; 5] = ["n0", "n1", "n2", "n3", "n4"];

/// All pairs of five nodes; the pairs of `slow` have a fifth of the rate.
fn found(slow: Option<usize>) -> Found {
    let topology = Topology::bare(&NAMES.map(str::to_owned));
    let pairs = (0..5).flat_map(|a| (a + 1..5).map(move |b| (a, b)));
    let test = |(a, b)| Test {
        a,
        b,
        lane: Lane::Address,
        transport: Transport::Tcp(None),
        gbit_per_s: if slow == Some(a) || slow == Some(b) { 2.0 } else { 10.0 },
        p99_us: 50.0,
        retransmits: 0,
        error: None,
    };
    let rule = Rule {
        floor_gbit_per_s: 0.0,
        share_of_usual: 0.5,
    };
    let tests: Vec<Test> = pairs.map(test).collect();
    Found {
        judgement: judge(&topology, &tests, &rule, &Usual::new()),
        fresh: (0..5).collect(),
        topology,
        ..Found::default()
    }
}

fn began() -> NetworkTest {
    let members = NAMES.map(|name| (NodeId::stored(name), "1.1".to_owned()));
    NetworkTest {
        run: "r".into(),
        until: Some(LATER),
        members: members.into(),
        ..NetworkTest::default()
    }
}

#[test]
fn the_others_have_passed_where_one_is_at_fault() {
    let test = outcome::conclude(&"alpha".into(), &began(), &found(Some(3)));
    assert_eq!(test.faults.keys().collect::<Vec<_>>(), ["n3"]);
    assert!(
        test.faults["n3"].1.contains("2.00 Gbit/s, but at least 5.00 Gbit/s"),
        "{:?}",
        test.faults
    );
    assert_eq!(test.passed.keys().collect::<Vec<_>>(), ["n0", "n1", "n2", "n4"]);
    assert_eq!(
        (test.until, test.blocked.as_str(), test.usual["address"]),
        (None, "", 10.0)
    );
    // The rows of the others remain without the one that leaves.
    let verdicts: Vec<(&str, &str)> = test
        .rows
        .iter()
        .map(|row| (row.check.as_str(), row.verdict.as_str()))
        .collect();
    assert_eq!(
        verdicts,
        [
            ("network-pairs", "passed"),
            ("network-slowest-pair", "passed"),
            ("network-fault", "failed")
        ]
    );
    let report = report(&"alpha".into(), Some(&test));
    assert_eq!(report.iter().filter(|row| row.verdict == Verdict::Failed).count(), 1);
}

#[test]
fn too_many_faulty_nodes_blame_the_network() {
    let mut found = found(None);
    found.excluded = [
        (0, "no login".to_owned()),
        (1, "no login".to_owned()),
        (2, "no login".to_owned()),
    ]
    .into();
    let test = outcome::conclude(&"alpha".into(), &began(), &found);
    assert!(test.faults.is_empty() && test.passed.is_empty());
    assert!(
        test.blocked.starts_with("3 of 5 nodes are at fault"),
        "{}",
        test.blocked
    );
    found.excluded = [(4, "no login".to_owned())].into();
    let test = outcome::conclude(&"alpha".into(), &began(), &found);
    assert_eq!((test.faults.len(), test.blocked.as_str()), (1, ""));
}

#[test]
fn a_node_that_could_not_be_cleaned_is_not_given_to_anybody() {
    let mut found = found(None);
    plan::note_unclean(&mut found, [(2, "it hangs".to_owned())].into());
    let test = outcome::conclude(&"alpha".into(), &began(), &found);
    assert_eq!(test.faults["n2"].1, "after the network test: it hangs");
    assert!(test.passed.len() == 4 && !test.passed.contains_key("n2"));
}

#[test]
fn a_node_without_peers_passes_with_a_note() {
    let topology = Topology::bare(&["n0".to_owned()]);
    let found = Found {
        fresh: [0].into(),
        topology,
        ..Found::default()
    };
    let mut began = began();
    began.members.retain(|node, _| node == "n0");
    let test = outcome::conclude(&"alpha".into(), &began, &found);
    assert_eq!(test.passed.len(), 1);
    let report = report(&"alpha".into(), Some(&test));
    assert_eq!((report.len(), report[0].verdict), (1, Verdict::Skipped));
    assert!(report[0].measured.starts_with("no peer is available"));
}

#[test]
fn a_run_of_thousands_of_nodes_has_a_time_by_which_it_is_over() {
    let settings = Settings::default();
    assert!(plan::longest_s(&settings, 2) < 3600);
    assert!(plan::longest_s(&settings, 4096) < 6 * 3600);
}

fn read(text: &str) -> Site {
    let name = "site.yaml";
    let checked = rackwright_site::file::check(&[rackwright_site::file::Source { name, text }]);
    checked.site.unwrap()
}

/// Four nodes of eight HCAs.
fn site() -> Site {
    read(&site_file(&Request::new(ReferenceSku::DgxH100, 4)).unwrap())
}

fn lane(name: &str, guid: u64) -> ServedLane {
    ServedLane {
        name: name.to_owned(),
        guid: format!("{guid:#x}"),
        address: None,
    }
}

#[test]
fn a_node_without_a_planned_cable_is_tested_on_its_other_lanes() {
    let mut site = site();
    let node = site.node_named("gpu-2").unwrap();
    let is = |port: Port| matches!(port, Port::Hca { node: other, hca: 3 } if other == node);
    site.cables.retain(|cable| !is(cable.a) && !is(cable.b));
    let topology = Topology::of_site(&site, &["gpu-1", "gpu-2"].map(str::to_owned));
    let common: BTreeSet<Lane> = (0..8).map(Lane::Hca).collect();
    let without = |hca: u8| -> BTreeSet<Lane> {
        let lanes = common.iter().filter(|lane| **lane != Lane::Hca(hca));
        lanes.copied().collect()
    };
    assert_eq!(plan::missing(&topology, 1, &without(3), &common), Vec::<Lane>::new());
    // A lane with a cable is missing, and so is every lane of a node that has none of the others.
    assert_eq!(plan::missing(&topology, 1, &without(4), &common), [Lane::Hca(4)]);
    assert_eq!(plan::missing(&topology, 0, &without(3), &common), [Lane::Hca(3)]);
    assert_eq!(plan::missing(&topology, 1, &BTreeSet::new(), &common).len(), 8);
    // Without cables in the site, every lane is expected.
    let bare = Topology::bare(&["gpu-1", "gpu-2"].map(str::to_owned));
    assert_eq!(plan::missing(&bare, 1, &without(3), &common), [Lane::Hca(3)]);
}

#[test]
fn a_name_counts_only_for_an_adapter_that_no_guid_names() {
    let mut site = site();
    let node = site.node_named("gpu-2").unwrap();
    let names: Vec<String> = site.sku_of(node).hcas.iter().map(|hca| hca.name.to_string()).collect();
    site.nodes[node.index()].port_guids = (0..8).map(|hca| Some(0xa0 + hca)).collect();
    // The machine has no adapter 0: each other adapter has the name of the one before it.
    let shifted: Vec<ServedLane> = (1..8)
        .map(|hca: usize| lane(&names[hca - 1], 0xa0 + hca as u64))
        .collect();
    let served: Vec<&ServedLane> = shifted.iter().collect();
    let places = plan::places(&site, &NodeId::stored("gpu-2"), &served);
    let expected: Vec<Lane> = (1..8).map(Lane::Hca).collect();
    assert_eq!(places.keys().copied().collect::<Vec<_>>(), expected);
    assert_eq!(places[&Lane::Hca(1)].name, names[0]);
    // Adapter 5 was replaced: its GUID is unknown, and its name is free.
    let replaced: Vec<ServedLane> = (0..8)
        .map(|hca: usize| lane(&names[hca], if hca == 5 { 0xff } else { 0xa0 + hca as u64 }))
        .collect();
    let served: Vec<&ServedLane> = replaced.iter().collect();
    let places = plan::places(&site, &NodeId::stored("gpu-2"), &served);
    assert_eq!(places[&Lane::Hca(5)].guid, "0xff");
    // An unknown adapter does not take the place of a known one.
    let stranger = lane(&names[4], 0xff);
    let known = lane("mlx9", 0xa4);
    let places = plan::places(&site, &NodeId::stored("gpu-2"), &[&stranger, &known]);
    assert_eq!(places.into_iter().collect::<Vec<_>>(), [(Lane::Hca(4), &known)]);
}

#[test]
fn an_adapter_that_leads_to_storage_is_no_lane() {
    let site = read(
        "site: {name: s}
rooms: [{name: h}]
racks: [{name: r, room: h}]
skus: [{name: k, power: {max_watts: 1 kW}, psus: {count: 1, watts: 1 kW, needed: 1}, height_units: 1, hcas: [c0, s0]}]
nodes: [{name: 'n[1-2]', sku: k, rack: r, unit: [1, 2]}]
fabrics: [{name: east}, {name: disks, purpose: storage}]
switches:
- {name: leaf, role: leaf, ports: 8, fabric: east}
- {name: stor, role: leaf, ports: 8, fabric: disks}
cables:
- {label: 'a[1-2]', a: 'n[1-2]/c0', b: 'leaf/[1-2]'}
- {label: 's[1-2]', a: 'n[1-2]/s0', b: 'stor/[1-2]'}
",
    );
    let served = [lane("c0", 0xa0), lane("s0", 0xa1)];
    let served: Vec<&ServedLane> = served.iter().collect();
    let places = plan::places(&site, &NodeId::stored("n1"), &served);
    assert_eq!(places.into_keys().collect::<Vec<_>>(), [Lane::Hca(0)]);
    let topology = Topology::of_site(&site, &["n1", "n2"].map(str::to_owned));
    assert_eq!(topology.leaf(0, Lane::Hca(0)), Some(0));
    assert_eq!(topology.leaf(0, Lane::Hca(1)), None);
}

#[tokio::test]
async fn a_run_without_a_readable_site_tests_nothing_and_says_why() {
    let core = rackwright_ground::testing::core().await;
    rackwright_ground::testing::damage_site(&core).await;
    let nodes =
        ["n0", "n1"].map(|name| rackwright_ground::testing::node(name, rackwright_lifecycle::State::Active, None));
    let found = plan::run(&core, &"alpha".into(), &began(), nodes.into()).await.unwrap();
    let why = found.refused.unwrap();
    assert!(why.starts_with("the site cannot be read: the applied site"), "{why}");
    assert_eq!(found.topology.len(), 2);
}
