//! Fabrics without a plan: missing parts are suspected, rails are right or unknown, other hosts are no nodes.

use std::collections::BTreeMap;

use proptest::prelude::*;
use rackwright_infiniband::structure::{OddityKind, Rails};
use rackwright_infiniband::{DeviceKind, Fabric, FatTree, PlannedCable, PlannedDevice, Structure};

mod fabric_common;

use fabric_common::Lab;

const PATHS: [&str; 8] = [
    "ibp24s0", "ibp64s0", "ibp79s0", "ibp94s0", "ibp154s0", "ibp192s0", "ibp206s0", "ibp220s0",
];
const ROCE: [&str; 8] = [
    "rocep24s0f0",
    "rocep24s0f1",
    "rocep79s0",
    "rocep94s0",
    "rocep154s0",
    "rocep192s0",
    "roceP1p3s0",
    "roceP1p9s0",
];
const SLOTS: [&str; 8] = ["ibs1", "ibs2", "ibs3", "ibs4", "ibs5", "ibs9", "ibs10", "ibs11"];
const BONDS: [&str; 8] = [
    "mlx5_bond_0",
    "mlx5_bond_1",
    "mlx5_bond_2",
    "mlx5_bond_3",
    "mlx5_bond_4",
    "mlx5_bond_5",
    "mlx5_bond_6",
    "mlx5_bond_7",
];
const KERNEL: [&str; 8] = [
    "mlx5_0", "mlx5_3", "mlx5_4", "mlx5_5", "mlx5_6", "mlx5_9", "mlx5_10", "mlx5_11",
];
const SCHEMES: [[&str; 8]; 5] = [PATHS, ROCE, SLOTS, BONDS, KERNEL];

/// The fabric with these cables, where the adapter of rail r has name r.
fn discovered(lab: &Lab, cables: &[PlannedCable], names: &[&str]) -> Fabric {
    lab.describe(cables, |at| renamed(lab, at, names))
}

fn renamed(lab: &Lab, at: usize, names: &[&str]) -> String {
    let device = &lab.devices[at];
    match (device.rail, device.name.split_once(' ')) {
        (Some(rail), Some((machine, _))) => format!("{machine} {}", names[usize::from(rail)]),
        _ => device.name.clone(),
    }
}

fn kinds(found: &Structure) -> Vec<OddityKind> {
    found.oddities.iter().map(|odd| odd.kind).collect()
}

/// Every leaf with the rail in its name, as planned, and the rail found.
fn rails(fabric: &Fabric, found: &Structure) -> Vec<(u8, Option<u8>)> {
    let leaves = found.switches.iter().filter_map(|view| {
        let (_, rail) = fabric.device(view.device).name.rsplit_once("-r")?;
        Some((rail.parse().ok()?, view.rail))
    });
    leaves.collect()
}

fn all_right(fabric: &Fabric, found: &Structure) -> bool {
    rails(fabric, found).iter().all(|(rail, seen)| *seen == Some(*rail))
}

fn is_of(machine: &str) -> impl Fn(&str) -> bool {
    let prefix = format!("{machine} ");
    move |name| name.starts_with(&prefix)
}

#[test]
fn names_of_udev_and_rdma_core_are_rails() {
    let lab = Lab::new(64, 8, 64);
    for names in SCHEMES {
        let fabric = discovered(&lab, &lab.cables, &names);
        let found = Structure::of(&fabric);
        assert_eq!(found.rails, Rails::Optimised(8), "{names:?}");
        assert!(all_right(&fabric, &found), "{names:?} {:?}", rails(&fabric, &found));
        assert_eq!(found.oddities, [], "{names:?}");
        assert_eq!(found.units.iter().map(|unit| unit.nodes.len()).sum::<usize>(), 64);
    }
    // One kind of nodes has other names than the other.
    let fabric = lab.describe(&lab.cables, |at| {
        let first = lab.devices[at].name.as_str() < "gpu0017";
        renamed(&lab, at, if first { &PATHS } else { &KERNEL })
    });
    let found = Structure::of(&fabric);
    assert!(
        all_right(&fabric, &found) && found.is_regular(),
        "{:#?}",
        found.oddities
    );
}

#[test]
fn names_that_show_no_place_leave_the_rails_unknown() {
    let lab = Lab::new(64, 8, 64);
    let by_guid = |at: usize| {
        let machine = lab.devices[at].name.split(' ').next().unwrap_or_default();
        format!("{machine} ibx{at:016x}")
    };
    let switch = |at: usize| lab.devices[at].kind == DeviceKind::Switch;
    let name = |at: usize| lab.devices[at].name.clone();
    let found = Structure::of(&lab.describe(&lab.cables, |at| if switch(at) { name(at) } else { by_guid(at) }));
    assert_eq!((found.rails, kinds(&found)), (Rails::Unknown, Vec::new()));
    assert!(found.switches.iter().all(|view| view.rail.is_none()));
    assert_eq!(found.units.len(), 2);
    // One node has such names: that node is unknown.
    let one = is_of("gpu0007");
    let fabric = lab.describe(&lab.cables, |at| if one(&name(at)) { by_guid(at) } else { name(at) });
    let found = Structure::of(&fabric);
    assert_eq!(kinds(&found), [OddityKind::UnknownRails]);
    assert_eq!(
        found.oddities[0].text,
        "node gpu0007: its rails are unknown: an adapter is named by its GUID, which shows no place"
    );
    assert!(all_right(&fabric, &found));
}

#[test]
fn a_missing_leaf_is_suspected_and_no_other_leaf_gets_its_rail() {
    let lab = Lab::new(64, 8, 64);
    for names in SCHEMES {
        for rail in [0, 3, 7] {
            let gone = format!("leaf-su02-r{rail}");
            let fabric = discovered(&lab, &lab.without(|name| name == gone), &names);
            let found = Structure::of(&fabric);
            assert_eq!(
                kinds(&found),
                [OddityKind::MissingLeaf],
                "{gone} {names:?}: {:#?}",
                found.oddities
            );
            assert!(all_right(&fabric, &found), "{gone} {:?}", rails(&fabric, &found));
            let text = &found.oddities[0].text;
            let wanted = format!(
                ": a leaf for {} is suspected to be missing: 32 of 32 nodes",
                names[rail]
            );
            assert!(text.contains(&wanted), "{text}");
            assert!(found.oddities[0].kind.is_suspicion());
        }
    }
}

#[test]
fn a_leaf_whose_nodes_are_not_seen_is_no_core() {
    let lab = Lab::new(64, 8, 64);
    let leaf = lab.device("leaf-su02-r3");
    let is_down = |cable: &PlannedCable| cable.a.0 == leaf && lab.devices[cable.b.0].kind == DeviceKind::ChannelAdapter;
    let cables: Vec<PlannedCable> = lab.cables.iter().filter(|cable| !is_down(cable)).cloned().collect();
    let fabric = discovered(&lab, &cables, &PATHS);
    let found = Structure::of(&fabric);
    assert_eq!((found.levels, found.units.len()), (2, 2));
    assert_eq!(kinds(&found), [OddityKind::EmptyLeaf, OddityKind::MissingLeaf]);
    assert!(
        found.oddities[0]
            .text
            .starts_with("leaf-su02-r3: a leaf without adapters")
    );
    for (rail, seen) in rails(&fabric, &found) {
        assert!(seen.is_none_or(|seen| seen == rail), "{rail} {seen:?}");
    }
    // Real cores stay cores.
    let tree = FatTree {
        radix: 8,
        rails: 2,
        ..FatTree::rail_optimised(64)
    };
    let lab = Lab::of(&tree);
    assert_eq!(Structure::of(&discovered(&lab, &lab.cables, &PATHS)).levels, 3);
}

#[test]
fn a_missing_adapter_is_suspected_by_leaf_and_name() {
    let lab = Lab::new(64, 8, 64);
    for (rail, names, what) in [
        (3, PATHS, "ibp94s0"),
        (7, PATHS, "ibp220s0"),
        (3, KERNEL, "mlx5_5"),
        (7, KERNEL, "an adapter"),
    ] {
        let gone = format!("gpu0007 mlx5_{rail}");
        let fabric = discovered(&lab, &lab.without(|name| name == gone), &names);
        let found = Structure::of(&fabric);
        assert_eq!(
            kinds(&found),
            [OddityKind::MissingAdapter],
            "{names:?} {:#?}",
            found.oddities
        );
        assert_eq!(
            found.oddities[0].text,
            format!(
                "node gpu0007: 7 of 8 adapters are seen, none on leaf-su01-r{rail}; {what} or its cable is suspected to \
                 be faulty"
            )
        );
        assert!(all_right(&fabric, &found));
    }
}

#[test]
fn an_adapter_without_power_does_not_exchange_the_rails_of_the_others() {
    let lab = Lab::new(64, 8, 64);
    let cables = lab.without(|name| name == "gpu0007 mlx5_3");
    // The kernel numbers the others without a gap.
    let fabric = lab.describe(&cables, |at| {
        let device = &lab.devices[at];
        match device
            .rail
            .filter(|rail| *rail > 3 && device.name.starts_with("gpu0007 "))
        {
            Some(rail) => format!("gpu0007 mlx5_{}", rail - 1),
            None => device.name.clone(),
        }
    });
    let found = Structure::of(&fabric);
    assert_eq!(kinds(&found), [OddityKind::MissingAdapter], "{:#?}", found.oddities);
    assert!(
        found.oddities[0]
            .text
            .contains("none on leaf-su01-r3; an adapter or its cable")
    );
    assert!(all_right(&fabric, &found));
}

#[test]
fn a_missing_adapter_of_a_node_on_one_leaf_is_suspected_by_name() {
    let lab = Lab::of(&FatTree {
        rail_optimised: false,
        ..FatTree::rail_optimised(32)
    });
    let found = Structure::of(&discovered(&lab, &lab.without(|name| name == "gpu0007 mlx5_3"), &PATHS));
    assert_eq!(found.rails, Rails::NotOptimised);
    assert_eq!(kinds(&found), [OddityKind::MissingAdapter]);
    assert_eq!(
        found.oddities[0].text,
        "node gpu0007: 7 of 8 adapters are seen; ibp94s0 or its cable is suspected to be faulty"
    );
}

#[test]
fn nodes_that_are_off_are_suspected_at_their_ports() {
    let lab = Lab::new(64, 8, 64);
    let without = |nodes: &[&str]| lab.without(|name| nodes.iter().any(|node| is_of(node)(name)));
    for (nodes, place, what) in [
        (&["gpu0007"][..], "port 7 of its 8 leaves has", "node gpu0007 is"),
        (
            &["gpu0007", "gpu0008"][..],
            "ports 7 to 8 of its 8 leaves have",
            "nodes gpu0007 to gpu0008 are",
        ),
        (&["gpu0001"][..], "port 1 of its 8 leaves has", "a node is"),
    ] {
        let found = Structure::of(&discovered(&lab, &without(nodes), &PATHS));
        assert_eq!(kinds(&found), [OddityKind::MissingNode], "{:#?}", found.oddities);
        assert_eq!(
            found.oddities[0].text,
            format!(
                "unit of leaf-su01-r0: {place} no adapter, but other ports beside have; {what} suspected to be off or \
                 not cabled"
            )
        );
    }
    // The last ports may be spare, and ports that no unit uses are meant to be free.
    let found = Structure::of(&discovered(&lab, &without(&["gpu0032", "gpu0064"]), &PATHS));
    assert_eq!(found.oddities, []);
    let found = Structure::of(&discovered(&lab, &without(&["gpu0007", "gpu0039"]), &PATHS));
    assert_eq!(found.oddities, []);
}

#[test]
fn hosts_of_subnet_managers_and_storage_are_no_nodes_of_the_rails() {
    let mut lab = Lab::new(40, 8, 64);
    let mut cables = lab.cables.clone();
    for (name, leaf, port) in [
        ("ufm mlx5_0", "leaf-su02-r5", 20),
        ("store-1 ibp24s0", "leaf-su02-r6", 21),
        ("store-1 ibp64s0", "leaf-su02-r7", 21),
        ("unknown", "leaf-su02-r2", 22),
    ] {
        lab.devices.push(PlannedDevice {
            rail: None,
            guid: None,
            ..PlannedDevice::adapter(name, 0, 0)
        });
        cables.push(PlannedCable {
            a: (lab.device(leaf), port),
            b: (lab.devices.len() - 1, 1),
            ..lab.cables[0].clone()
        });
    }
    for names in SCHEMES {
        let fabric = discovered(&lab, &cables, &names);
        let found = Structure::of(&fabric);
        assert_eq!(found.oddities, [], "{names:?}");
        assert!(all_right(&fabric, &found));
        let mut units: Vec<(usize, &[String])> = found
            .units
            .iter()
            .map(|unit| (unit.nodes.len(), &*unit.others))
            .collect();
        units.sort_unstable();
        let others = ["store-1", "ufm"].map(str::to_owned);
        assert_eq!(units, [(8, &others[..]), (32, &others[..0])]);
    }
}

/// The parts of the second unit that are gone.
#[derive(Debug, Clone)]
struct Gone {
    leaf: Option<u8>,
    nodes: Vec<u32>,
    /// Adapters that are seen without their cable, by node and rail.
    cut: Vec<(u32, u8)>,
    /// Adapters without power.
    dead: Vec<(u32, u8)>,
}

fn gone() -> impl Strategy<Value = Gone> {
    let adapters = |most: usize| proptest::collection::vec((0u32..8, 0u8..8), 0..most);
    let leaf = proptest::option::of(0u8..8);
    let nodes = proptest::collection::vec(0u32..8, 0..3);
    (leaf, nodes, adapters(3), adapters(3)).prop_map(|(leaf, nodes, cut, dead)| Gone { leaf, nodes, cut, dead })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever is gone from a unit: the rail of a leaf is right or unknown, and no rail is said to be exchanged.
    #[test]
    fn the_rail_of_a_leaf_is_right_or_unknown(
        gone in gone(), more in 1u32..9, rails_of_node in 3u8..9, scheme in proptest::option::of(0usize..5),
    ) {
        let lab = Lab::new(8 + more, rails_of_node, 16);
        let adapter = |at: usize| -> Option<(u32, u8)> {
            let (machine, _) = lab.devices[at].name.split_once(' ')?;
            let number: u32 = machine.strip_prefix("gpu")?.parse().ok()?;
            Some((number.checked_sub(9)?, lab.devices[at].rail?))
        };
        let leaf = gone.leaf.map(|rail| format!("leaf-su02-r{rail}"));
        let is_gone = |at: usize| {
            let by_node = adapter(at).is_some_and(|(node, rail)| {
                gone.nodes.contains(&node) || gone.cut.contains(&(node, rail)) || gone.dead.contains(&(node, rail))
            });
            by_node || leaf.as_ref().is_some_and(|leaf| lab.devices[at].name == *leaf)
        };
        let cables: Vec<PlannedCable> = lab
            .cables
            .iter()
            .filter(|cable| !is_gone(cable.a.0) && !is_gone(cable.b.0))
            .cloned()
            .collect();
        let fabric = lab.describe(&cables, |at| match (scheme, adapter(at)) {
            (Some(scheme), _) => renamed(&lab, at, &SCHEMES[scheme]),
            (None, Some((node, rail))) => {
                let before = (0..rail).filter(|other| !gone.dead.contains(&(node, *other))).count();
                format!("gpu{:04} mlx5_{before}", node + 9)
            }
            (None, None) => lab.devices[at].name.clone(),
        });
        let found = Structure::of(&fabric);
        for (rail, seen) in rails(&fabric, &found) {
            prop_assert!(seen.is_none_or(|seen| seen == rail), "rail {} is {:?}: {:#?}", rail, seen, found.oddities);
        }
        let mut counts: BTreeMap<OddityKind, usize> = BTreeMap::new();
        for odd in &found.oddities {
            *counts.entry(odd.kind).or_default() += 1;
        }
        prop_assert!(!counts.contains_key(&OddityKind::Rail), "{:#?}", found.oddities);
        prop_assert!(!counts.contains_key(&OddityKind::OtherUnit), "{:#?}", found.oddities);
    }
}
