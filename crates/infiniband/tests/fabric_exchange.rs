//! Devices in each other's places, names that differ and nodes that are off are one finding each.

use std::collections::BTreeMap;

use proptest::prelude::*;
use rackwright_infiniband::check::{Report, check};
use rackwright_infiniband::{DeviceKind, FatTree, FaultKind, Plan, PlannedCable, Speed};

mod fabric_common;

use fabric_common::{EVERY, Known, Lab, kinds};

/// What tells devices, so that an exchange can be seen.
const KNOWN: [Known; 4] = [Known::Guids, Known::Names, Known::Both, Known::Switches];

fn of(lab: &Lab, name: &str) -> usize {
    let prefix = format!("{name} ");
    let is = |end: (usize, u8)| {
        let device = &lab.devices[end.0].name;
        device == name || device.starts_with(&prefix)
    };
    lab.cables.iter().filter(|cable| is(cable.a) || is(cable.b)).count()
}

#[test]
fn two_exchanged_leaves_are_one_finding() {
    let lab = Lab::new(64, 8, 64);
    let cables = lab.exchanged("leaf-su01-r0", "leaf-su02-r3");
    for known in KNOWN {
        let report = lab.checked(&cables, known);
        assert_eq!(
            kinds(&report),
            [FaultKind::DevicesExchanged],
            "{known:?}: {:#?}",
            report.faults
        );
        let fault = &report.faults[0];
        assert_eq!(fault.devices, ["leaf-su01-r0", "leaf-su02-r3"]);
        assert_eq!(fault.cables.len(), of(&lab, "leaf-su01-r0") + of(&lab, "leaf-su02-r3"));
        assert_eq!(report.right, report.cables - fault.cables.len());
    }
    assert_eq!(
        lab.checked(&cables, Known::Guids).faults[0].text,
        "leaf-su01-r0 and leaf-su02-r3 are in each other's places: leaf-su02-r3 (0xfc6a1c03000002c0) in the place of \
         leaf-su01-r0, leaf-su01-r0 (0xfc6a1c0300000000) in the place of leaf-su02-r3; 128 cables show this (0001, \
         0009, 0017, 0025, 0033, 0041, 0049, 0057, 0065, 0073, 0081, 0089, and 116 more); exchange the switches or \
         their cables, or correct the plan; other cables are checked as if the switches were exchanged"
    );
    let text = lab.checked(&cables, Known::Names).faults.remove(0).text;
    assert!(
        text.contains("exchange the switches or their cables, or correct their names;"),
        "{text}"
    );
    // Without any name there is nothing to tell them by.
    assert_eq!(lab.checked(&cables, Known::Shape).faults, []);
}

#[test]
fn an_exchange_of_guids_alone_is_said_to_be_one() {
    let lab = Lab::new(64, 8, 64);
    let cables = lab.exchanged("leaf-su01-r0", "leaf-su01-r1");
    let (a, b) = (lab.device("leaf-su01-r0"), lab.device("leaf-su01-r1"));
    let name = |at: usize| {
        if at == a {
            b
        } else if at == b {
            a
        } else {
            at
        }
    };
    let found = lab.describe(&cables, |at| lab.devices[name(at)].name.clone());
    let report = check(&lab.plan(Known::Both), &found);
    assert_eq!(kinds(&report), [FaultKind::DevicesExchanged]);
    let text = &report.faults[0].text;
    assert!(text.contains("the GUIDs in the plan may be exchanged"), "{text}");
}

#[test]
fn further_faults_beside_an_exchange_are_found() {
    let lab = Lab::new(64, 8, 64);
    let mut cables = lab.exchanged("leaf-su01-r0", "leaf-su01-r1");
    // On the exchanged leaf: a swapped pair, a slow one and one that is gone; and one that is gone elsewhere.
    let at = |name: &str| lab.cable_of(name);
    let (x, y) = (at("gpu0003 mlx5_0"), at("gpu0005 mlx5_4"));
    (cables[x].b, cables[y].b) = (cables[y].b, cables[x].b);
    cables[at("gpu0007 mlx5_1")].speed = Some(Speed::Hdr);
    let gone = [at("gpu0009 mlx5_0"), at("gpu0040 mlx5_6")];
    let names = gone.map(|gone| lab.cables[gone].name.clone());
    cables.retain(|cable| !names.contains(&cable.name));
    for known in [Known::Guids, Known::Names, Known::Both] {
        let report = lab.checked(&cables, known);
        let wanted = [
            FaultKind::DevicesExchanged,
            FaultKind::WrongSpeed,
            FaultKind::Swapped,
            FaultKind::Missing,
            FaultKind::Missing,
        ];
        assert_eq!(kinds(&report), wanted, "{:#?}", report.faults);
        assert_eq!(report.faults[1].cables, [lab.cables[at("gpu0007 mlx5_1")].name.clone()]);
        assert_eq!(report.faults[2].cables, [x, y].map(|at| lab.cables[at].name.clone()));
        assert_eq!(report.faults[3].cables, [names[0].clone()]);
        assert_eq!(report.faults[4].cables, [names[1].clone()]);
    }
}

#[test]
fn rings_and_several_exchanges_are_one_finding_each() {
    let lab = Lab::new(64, 8, 64);
    let next = |round: &[&str], at: usize| {
        let place = round.iter().position(|name| lab.device(name) == at)?;
        Some(lab.device(round[(place + 1) % round.len()]))
    };
    let three = ["leaf-su01-r0", "leaf-su01-r5", "leaf-su02-r2"];
    let (leaves, spines) = (["leaf-su01-r1", "leaf-su02-r1"], ["spine-01", "spine-03"]);
    let cables = lab.stand(|at| {
        let rounds: [&[&str]; 3] = [&three, &leaves, &spines];
        rounds.iter().find_map(|round| next(round, at)).unwrap_or(at)
    });
    // With nothing but switches to tell, too few cables are left that show each.
    for known in [Known::Guids, Known::Names, Known::Both] {
        let report = lab.checked(&cables, known);
        assert_eq!(
            kinds(&report),
            [FaultKind::DevicesExchanged; 3],
            "{known:?}: {:#?}",
            report.faults
        );
        assert_eq!(report.faults[0].devices.len(), 3);
        assert_eq!(report.faults[1].devices, leaves);
        assert_eq!(report.faults[2].devices, spines);
    }
}

#[test]
fn two_exchanged_nodes_are_one_finding() {
    for (rails, rail_optimised) in [(8, true), (2, true), (8, false)] {
        let lab = Lab::of(&FatTree {
            rails,
            rail_optimised,
            ..FatTree::rail_optimised(64)
        });
        let cables = lab.exchanged("gpu0003", "gpu0040");
        for known in [Known::Guids, Known::Names, Known::Both] {
            let report = lab.checked(&cables, known);
            assert_eq!(
                kinds(&report),
                [FaultKind::DevicesExchanged],
                "{known:?}: {:#?}",
                report.faults
            );
            assert_eq!(report.faults[0].devices, ["node gpu0003", "node gpu0040"]);
            assert_eq!(report.faults[0].cables.len(), 2 * usize::from(rails));
            assert!(report.faults[0].text.contains("exchange the nodes or their cables"));
        }
    }
}

#[test]
fn fewer_cables_than_the_rule_asks_for_are_swapped_cables() {
    let lab = Lab::new(64, 8, 64);
    let mut cables = lab.cables.clone();
    for rail in 0..6 {
        let (a, b) = (format!("gpu0003 mlx5_{rail}"), format!("gpu0004 mlx5_{rail}"));
        let (a, b) = (lab.cable_of(&a), lab.cable_of(&b));
        (cables[a].b, cables[b].b) = (cables[b].b, cables[a].b);
    }
    assert_eq!(kinds(&lab.checked(&cables, Known::Guids)), [FaultKind::Swapped; 6]);
    let (a, b) = (lab.cable_of("gpu0003 mlx5_6"), lab.cable_of("gpu0004 mlx5_6"));
    (cables[a].b, cables[b].b) = (cables[b].b, cables[a].b);
    // Seven of eight: the eighth pair is what is swapped.
    let report = lab.checked(&cables, Known::Guids);
    assert_eq!(kinds(&report), [FaultKind::DevicesExchanged, FaultKind::Swapped]);
}

/// The fabric as planned, with other names.
fn renamed(lab: &Lab, name: impl Fn(&str) -> Option<String>) -> Report {
    let found = lab.describe(&lab.cables, |at| {
        let planned = &lab.devices[at].name;
        name(planned).unwrap_or_else(|| planned.clone())
    });
    check(&lab.plan(Known::Both), &found)
}

#[test]
fn exchanged_and_wrong_names_are_told_where_guids_are_known() {
    let lab = Lab::new(64, 8, 64);
    let other = |name: &str, to: &[(&str, &str)]| {
        let (unit, rest) = name.split_at(name.find(' ').unwrap_or(name.len()));
        to.iter()
            .find(|(from, _)| *from == unit)
            .map(|(_, to)| format!("{to}{rest}"))
    };
    let report = renamed(&lab, |name| {
        other(
            name,
            &[
                ("gpu0003", "GPU0004.hall-1"),
                ("gpu0004", "gpu0003"),
                ("gpu0009", "gpu0009.hall-1"),
            ],
        )
    });
    assert_eq!(kinds(&report), [FaultKind::NamesExchanged], "{:#?}", report.faults);
    assert_eq!(
        report.faults[0].text,
        "the names of node gpu0003 and node gpu0004 are exchanged: node gpu0003 (0xa088c20300000200 and 7 more) has \
         the description \"GPU0004.hall-1\", node gpu0004 (0xa088c20300000300 and 7 more) has the description \
         \"gpu0003\"; correct the names there, or the GUIDs in the plan"
    );
    assert_eq!((report.right, report.named_otherwise), (report.cables, 0));
    // Switches, managed ones too.
    let report = renamed(&lab, |name| {
        other(
            name,
            &[
                ("leaf-su01-r0", "MF0;leaf-su01-r1:MQM9700/U1"),
                ("leaf-su01-r1", "leaf-su01-r0"),
            ],
        )
    });
    assert_eq!(kinds(&report), [FaultKind::NamesExchanged]);
    assert_eq!(report.faults[0].devices, ["leaf-su01-r0", "leaf-su01-r1"]);
    // A name that the plan does not have, and the name of another node.
    let report = renamed(&lab, |name| {
        other(name, &[("gpu0005", "db-01"), ("gpu0006", "gpu0007")])
    });
    assert_eq!(kinds(&report), [FaultKind::WrongName, FaultKind::WrongName]);
    assert_eq!(
        report.faults[0].text,
        "node gpu0005 (0xa088c20300000400 and 7 more) has the description \"db-01\"; correct the name of the node, or \
         the plan"
    );
    assert!(
        report.faults[1]
            .text
            .contains("\"gpu0007\", which the plan gives to node gpu0007;")
    );
    // One adapter says another node.
    let report = renamed(&lab, |name| {
        (name == "gpu0005 mlx5_2").then(|| "gpu0006 mlx5_9".to_owned())
    });
    assert_eq!(kinds(&report), [FaultKind::WrongName]);
    assert!(
        report.faults[0]
            .text
            .starts_with("HCA 2 of node gpu0005 (0xa088c20300000420)")
    );
}

#[test]
fn names_of_another_scheme_are_counted_and_are_no_faults() {
    let lab = Lab::new(64, 8, 64);
    let report = renamed(&lab, |name| {
        Some(format!("x-{name}")).filter(|_| name.starts_with("gpu"))
    });
    assert_eq!((report.faults.len(), report.named_otherwise), (0, 64));
    // But not that two names of the plan are exchanged.
    let report = renamed(&lab, |name| match name.split_once(' ') {
        Some(("gpu0003", rest)) => Some(format!("gpu0004 {rest}")),
        Some(("gpu0004", rest)) => Some(format!("gpu0003 {rest}")),
        Some((unit, rest)) => Some(format!("x-{unit} {rest}")),
        None => None,
    });
    assert_eq!(kinds(&report), [FaultKind::NamesExchanged]);
    assert_eq!(report.named_otherwise, 62);
}

#[test]
fn a_node_that_is_off_is_one_finding_where_all_names_are_others() {
    let lab = Lab::new(64, 8, 64);
    let cables = lab.without(is_of("gpu0007"));
    let found = lab.describe(&cables, |at| format!("x-{}", lab.devices[at].name));
    let report = check(&lab.plan(Known::Shape), &found);
    assert_eq!(kinds(&report), [FaultKind::DeviceMissing], "{:#?}", report.faults);
    assert_eq!(report.named_otherwise, 63);
}

fn is_of(machine: &str) -> impl Fn(&str) -> bool {
    let prefix = format!("{machine} ");
    move |name| name.starts_with(&prefix)
}

#[test]
fn a_node_that_is_off_is_one_finding_whatever_tells_the_devices() {
    // The last one has a single switch.
    for (hosts, rails, rail_optimised) in [
        (64, 8, true),
        (64, 8, false),
        (64, 1, true),
        (64, 2, true),
        (20, 1, true),
    ] {
        let lab = Lab::of(&FatTree {
            rails,
            rail_optimised,
            ..FatTree::rail_optimised(hosts)
        });
        for known in EVERY {
            let report = lab.checked(&lab.without(is_of("gpu0007")), known);
            assert_eq!(
                kinds(&report),
                [FaultKind::DeviceMissing],
                "{rails} {known:?}: {:#?}",
                report.faults
            );
            assert_eq!(report.faults[0].cables.len(), usize::from(rails));
        }
        // A former dump as the plan.
        let plan = Plan::of_reference(lab.discover(&lab.cables, Known::Both));
        let report = check(&plan, &lab.discover(&lab.without(is_of("gpu0007")), Known::Both));
        assert_eq!(
            kinds(&report),
            [FaultKind::DeviceMissing],
            "{rails}: {:#?}",
            report.faults
        );
    }
}

#[test]
fn a_node_whose_adapters_the_plan_names_in_one_word_is_one_finding() {
    let mut lab = Lab::new(64, 8, 64);
    let spoken = lab.clone();
    for device in &mut lab.devices {
        device.name = device.name.replace(' ', "-");
    }
    let names = |at: usize| spoken.devices[at].name.clone();
    for known in [Known::Guids, Known::Names] {
        let plan = lab.plan(known);
        assert_eq!(check(&plan, &lab.describe(&lab.cables, names)).faults, []);
        let report = check(&plan, &lab.describe(&spoken.without(is_of("gpu0007")), names));
        assert_eq!(
            kinds(&report),
            [FaultKind::DeviceMissing],
            "{known:?}: {:#?}",
            report.faults
        );
        assert!(
            report.faults[0]
                .text
                .starts_with("node gpu0007: none of its 8 adapters")
        );
    }
}

#[test]
fn a_node_that_is_off_is_told_beside_what_took_one_of_its_ports() {
    let lab = Lab::new(64, 8, 64);
    let mut cables = lab.without(is_of("gpu0007"));
    let port = lab.cables[lab.cable_of("gpu0007 mlx5_3")].a;
    let moved = lab.cables[lab.cable_of("gpu0009 mlx5_3")].name.clone();
    let cable = cables.iter_mut().find(|cable| cable.name == moved).expect("the cable");
    cable.a = port;
    for known in [Known::Guids, Known::Names, Known::Both] {
        let report = lab.checked(&cables, known);
        let wanted = [FaultKind::DeviceMissing, FaultKind::WrongDevice, FaultKind::WrongPort];
        assert_eq!(kinds(&report), wanted, "{:#?}", report.faults);
        assert_eq!(report.faults[0].cables.len(), 7);
    }
}

#[test]
fn a_node_that_is_off_is_one_finding_while_an_adapter_with_power_of_its_own_is_seen() {
    let lab = Lab::new(64, 8, 64);
    let node = is_of("gpu0007");
    for known in EVERY {
        let report = lab.checked(&lab.without(|name| node(name) && name != "gpu0007 mlx5_5"), known);
        assert_eq!(
            kinds(&report),
            [FaultKind::DeviceMissing],
            "{known:?}: {:#?}",
            report.faults
        );
        let fault = &report.faults[0];
        assert!(
            fault.text.starts_with("node gpu0007: 7 of its 8 adapters are not seen"),
            "{fault}"
        );
        assert_eq!((fault.cables.len(), fault.devices.len()), (7, 7));
    }
    // Half of them are cables.
    let half = ["gpu0007 mlx5_0", "gpu0007 mlx5_1", "gpu0007 mlx5_2", "gpu0007 mlx5_3"];
    let report = lab.checked(&lab.without(|name| half.contains(&name)), Known::Both);
    assert_eq!(kinds(&report), [FaultKind::Missing; 4]);
}

#[test]
fn devices_that_a_list_has_without_links_are_not_seen() {
    let lab = Lab::new(64, 8, 64);
    let node = is_of("gpu0007");
    let cables = lab.without(|name| node(name) || name == "spine-02");
    let found = lab.listed(&cables, |_| true, |at| lab.devices[at].name.clone());
    for known in [Known::Guids, Known::Names] {
        let report = check(&lab.plan(known), &found);
        assert_eq!(kinds(&report), [FaultKind::DeviceMissing; 2], "{:#?}", report.faults);
    }
}

#[test]
fn a_node_and_a_leaf_that_are_off_are_one_finding_each() {
    let lab = Lab::new(64, 8, 64);
    let node = is_of("gpu0007");
    let report = lab.checked(&lab.without(|name| node(name) || name == "leaf-su01-r2"), Known::Guids);
    assert_eq!(kinds(&report), [FaultKind::DeviceMissing; 2], "{:#?}", report.faults);
    assert_eq!(report.faults[0].devices[0], "leaf-su01-r2");
    assert!(
        report.faults[1]
            .text
            .starts_with("node gpu0007: none of its 8 adapters")
    );
}

#[test]
fn a_node_in_whose_place_another_one_stands_is_one_finding() {
    let lab = Lab::new(64, 8, 64);
    let mut strange = lab.clone();
    for device in strange
        .devices
        .iter_mut()
        .filter(|device| device.name.starts_with("gpu0007 "))
    {
        device.guid = device
            .guid
            .and_then(|guid| rackwright_infiniband::Guid::new(guid.get() + 0x10_0000_0000));
        device.name = device.name.replace("gpu0007", "spare-3");
    }
    for known in [Known::Guids, Known::Names, Known::Both] {
        let report = check(&lab.plan(known), &strange.discover(&strange.cables, known));
        assert_eq!(
            kinds(&report),
            [FaultKind::DeviceReplaced],
            "{known:?}: {:#?}",
            report.faults
        );
        assert!(
            report.faults[0]
                .text
                .starts_with("node gpu0007: 8 other adapters are in its place")
        );
    }
}

fn trees() -> impl Strategy<Value = Lab> {
    let radix = prop_oneof![Just(16u8), Just(32), Just(64)];
    (16u32..70, 2u8..9, radix, any::<bool>()).prop_map(|(hosts, rails, radix, rail_optimised)| {
        Lab::of(&FatTree {
            rails,
            radix,
            rail_optimised,
            ..FatTree::rail_optimised(hosts)
        })
    })
}

fn known() -> impl Strategy<Value = Known> {
    (0..KNOWN.len()).prop_map(|at| KNOWN[at])
}

fn switches<'a>(lab: &'a Lab, prefix: &str) -> Vec<&'a str> {
    let switches = lab.devices.iter().filter(|device| device.kind == DeviceKind::Switch);
    let names = switches.map(|device| device.name.as_str());
    names.filter(|name| name.starts_with(prefix)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_two_exchanged_leaves_are_one_finding(lab in trees(), known in known(), (first, second) in (0usize..1000, 0usize..1000)) {
        let leaves = switches(&lab, "leaf-");
        prop_assume!(leaves.len() > 1);
        let first = first % leaves.len();
        let second = (first + 1 + second % (leaves.len() - 1)) % leaves.len();
        let report = lab.checked(&lab.exchanged(leaves[first], leaves[second]), known);
        prop_assert_eq!(kinds(&report), [FaultKind::DevicesExchanged], "{:#?}", report.faults);
    }

    #[test]
    fn any_node_that_is_off_is_one_finding(lab in trees(), known in known(), node in 0usize..1000) {
        let mut nodes: BTreeMap<&str, usize> = BTreeMap::new();
        for device in lab.devices.iter().filter(|device| device.kind == DeviceKind::ChannelAdapter) {
            *nodes.entry(device.name.split(' ').next().unwrap_or_default()).or_default() += 1;
        }
        let (node, rails) = nodes.iter().nth(node % nodes.len()).expect("a node");
        let cables: Vec<PlannedCable> = lab.without(is_of(node));
        let report = lab.checked(&cables, known);
        prop_assert_eq!(kinds(&report), [FaultKind::DeviceMissing], "{:#?}", report.faults);
        prop_assert_eq!(report.faults[0].cables.len(), *rails);
        prop_assert_eq!(report.right, report.cables - rails);
    }

    #[test]
    fn any_two_exchanged_nodes_are_one_finding(lab in trees(), first in 1usize..1000, second in 1usize..1000) {
        let hosts = lab.devices.iter().filter(|device| device.name.ends_with("mlx5_0")).count();
        let (first, second) = (first % hosts, second % hosts);
        prop_assume!(first != second);
        let cables = lab.exchanged(&format!("gpu{:04}", first + 1), &format!("gpu{:04}", second + 1));
        let report = lab.checked(&cables, Known::Both);
        prop_assert_eq!(kinds(&report), [FaultKind::DevicesExchanged], "{:#?}", report.faults);
    }
}
