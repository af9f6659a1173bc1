//! The decision, disagreement by disagreement, and the readings of BMCs.

use rackwright_api::v1::{Hca, HcaPort};

use super::*;

fn guid(raw: u64) -> Guid {
    Guid::new(raw).unwrap()
}

/// An inventory with these ports, each in a slot.
fn inventory(ports: &[(&str, &str)]) -> Inventory {
    let hca = |(port, slot): &(&str, &str)| Hca {
        pci_address: (*slot).to_owned(),
        ports: vec![HcaPort {
            port_guid: (*port).to_owned(),
            ..HcaPort::default()
        }],
        ..Hca::default()
    };
    Inventory {
        hcas: ports.iter().map(hca).collect(),
        ..Inventory::default()
    }
}

const FORMER: &str = "946d:ae03:0000:0001";
const NEW: &str = "946d:ae03:0000:00f1";
const OTHER: &str = "946d:ae03:0000:0002";
const SLOT: &str = "0000:17:00.0";
const OTHER_SLOT: &str = "0000:2a:00.0";

fn named(port: &str) -> Guid {
    port.parse().unwrap()
}

#[test]
fn each_disagreement_of_fabric_and_agent_has_its_words() {
    let accepted = inventory(&[(FORMER, SLOT), (OTHER, OTHER_SLOT)]);
    let reported = inventory(&[(NEW, SLOT), (OTHER, OTHER_SLOT)]);
    let both = inventory(&[(NEW, SLOT), (FORMER, OTHER_SLOT)]);
    let moved = inventory(&[(OTHER, SLOT), (NEW, OTHER_SLOT)]);
    let without = inventory(&[(OTHER, OTHER_SLOT)]);
    let without_slot = inventory(&[(FORMER, "")]);
    let agreed = Evidence {
        former: named(FORMER),
        port: named(NEW),
        is_in_place: true,
        is_elsewhere: false,
        accepted: Some(&accepted),
        reported: Some(&reported),
    };
    assert_eq!(agent_and_fabric(&agreed), Ok(()));
    let (former, new) = (agreed.former, agreed.port);
    let cases = [
        (
            Evidence {
                is_elsewhere: true,
                ..agreed
            },
            format!("port {new} is in the site or in the fabric a second time"),
        ),
        (
            Evidence {
                is_in_place: false,
                ..agreed
            },
            format!("the fabric does not have port {new} at the leaf port of the former one"),
        ),
        (
            Evidence {
                accepted: None,
                ..agreed
            },
            format!("no inspection has accepted the former port {former}, so its PCI slot is unknown"),
        ),
        (
            Evidence {
                accepted: Some(&without),
                ..agreed
            },
            format!("no inspection has accepted the former port {former}, so its PCI slot is unknown"),
        ),
        (
            Evidence {
                accepted: Some(&without_slot),
                ..agreed
            },
            format!("no inspection has accepted the former port {former}, so its PCI slot is unknown"),
        ),
        (
            Evidence {
                reported: None,
                ..agreed
            },
            "the agent has not reported since its last boot; it reports when the node is imaged or inspected"
                .to_owned(),
        ),
        (
            Evidence {
                reported: Some(&both),
                ..agreed
            },
            format!("the agent still reports the former port {former}"),
        ),
        (
            Evidence {
                reported: Some(&without),
                ..agreed
            },
            format!(
                "the agent's last report is without port {new}; the agent reports when the node is imaged or inspected"
            ),
        ),
        (
            Evidence {
                reported: Some(&moved),
                ..agreed
            },
            format!("the agent reports port {new} at PCI address {OTHER_SLOT}, but the former port was at {SLOT}"),
        ),
    ];
    for (evidence, words) in cases {
        let disagreement = agent_and_fabric(&evidence).unwrap_err();
        assert_eq!(disagreement.to_string(), words, "{evidence:?}");
    }
}

#[test]
fn a_bmc_agrees_only_if_it_lists_the_new_port_alone() {
    let (former, new, other) = (named(FORMER), named(NEW), named(OTHER));
    let listed = |ports: &[Guid]| BmcPorts::Listed(ports.iter().copied().collect());
    assert_eq!(bmc(former, new, &listed(&[new, other])), Ok(()));
    let cases = [
        (
            BmcPorts::Unread("no answer".to_owned()),
            "the adapters of the BMC could not be read: no answer".to_owned(),
        ),
        (
            listed(&[]),
            "the BMC lists no port GUIDs, which is no agreement".to_owned(),
        ),
        (
            listed(&[former, new]),
            format!("the BMC still lists the former port {former}"),
        ),
        (listed(&[other]), format!("the BMC does not list port {new}")),
    ];
    for (ports, words) in cases {
        assert_eq!(bmc(former, new, &ports).unwrap_err().to_string(), words);
    }
}

#[test]
fn a_bmc_is_read_once_in_a_while_and_some_at_once() {
    let listings = Listings::default();
    let node = |number: usize| NodeId::stored(format!("n{number}").as_str());
    let now = Timestamp(0);
    for number in 0..BMCS_MAX {
        assert!(matches!(listings.look(&node(number), now), Listing::Due));
        assert!(matches!(listings.look(&node(number), now), Listing::Waits));
    }
    assert!(
        matches!(listings.look(&node(99), now), Listing::Waits),
        "others are read first"
    );
    let ports = BmcPorts::Listed([guid(1)].into());
    listings.put(&node(0), ports.clone(), now);
    assert!(matches!(listings.look(&node(0), now), Listing::Known(known) if known == ports));
    assert!(matches!(listings.look(&node(99), now), Listing::Due));
    // A reading that never ended counts no longer than one that did.
    let later = now.plus(seconds(BMC_AGAIN_S));
    assert!(matches!(listings.look(&node(0), later), Listing::Due));
    assert!(matches!(listings.look(&node(1), later), Listing::Due));
}

#[test]
fn the_setting_is_off_unless_it_is_given() {
    let read = |text: &str| serde_json::from_str::<Adapters>(text).map(|settings| settings.by_agreement());
    assert!(!read("{}").unwrap());
    assert!(!read("{\"confirm\": \"site\"}").unwrap());
    assert!(read("{\"confirm\": \"agreement\"}").unwrap());
    assert!(read("{\"confirm\": \"always\"}").is_err());
}

#[test]
fn a_port_whose_guid_answers_in_several_fabrics_is_elsewhere() {
    let site = rackwright_site::file::check(&[rackwright_site::file::Source {
        name: "s.yaml",
        text: "site: {name: s}\n",
    }]);
    let site = site.site.unwrap();
    let replaced = ReplacedPort {
        node: "n1".into(),
        hca: "mlx5_0".into(),
        former: named(FORMER),
        port: named(NEW),
        is_in_place: true,
    };
    let fault = rackwright_planner::watch::Fault {
        kind: rackwright_planner::watch::Kind::Cable,
        what: "device-replaced".into(),
        cables: Vec::new(),
        ends: Vec::new(),
        nodes: vec!["n1".into()],
        impairs: true,
        broken: Vec::new(),
        text: String::new(),
        replaced: vec![replaced],
    };
    let mut found = FabricComparison {
        faults: [("cable/device-replaced/n1".to_owned(), fault)].into(),
        ..FabricComparison::default()
    };
    assert_eq!(elsewhere(&site, &found), BTreeSet::new());
    found.twice.insert(named(NEW));
    assert_eq!(elsewhere(&site, &found), [named(NEW)].into());
}
