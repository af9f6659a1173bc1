//! Shapes of fabrics: regular ones are recognised, irregular ones are described.

use rackwright_infiniband::dump::{Limits, read};
use rackwright_infiniband::structure::{OddityKind, Rails};
use rackwright_infiniband::{FatTree, Plan, Role, Speed, Structure, Width};

fn plan(tree: &FatTree) -> Plan {
    let (devices, cables) = tree.plan().expect("a tree");
    Plan::new(&devices, &cables).expect("a plan")
}

fn shape(tree: &FatTree) -> Structure {
    Structure::of(plan(tree).fabric())
}

/// Hosts, switches, links and levels. The rows for 16, 128, 512 and 1,024 are from NVIDIA's tables for SuperPODs.
#[test]
fn rail_optimised_trees_have_the_switches_of_the_reference_architecture() {
    for (hosts, switches, links, levels) in [
        (16, 10, 256, 2),
        (64, 24, 1_024, 2),
        (128, 48, 2_048, 2),
        (256, 96, 4_096, 2),
        (512, 320, 12_288, 3),
        (1_024, 640, 24_576, 3),
    ] {
        let found = shape(&FatTree::rail_optimised(hosts));
        assert_eq!(found.counts.switches, switches, "{hosts} hosts");
        assert_eq!(found.counts.links, links, "{hosts} hosts");
        assert_eq!(
            (found.levels, found.rails),
            (levels, Rails::Optimised(8)),
            "{hosts} hosts"
        );
        assert_eq!(found.units.len(), hosts.div_ceil(32) as usize);
        assert_eq!(found.worst_leaf(), Some(1.0), "{hosts} hosts");
        assert_eq!(found.oddities, [], "{hosts} hosts");
        assert_eq!(found.pods.len(), if levels == 3 { hosts as usize / 128 } else { 1 });
        assert_eq!(found.groups.len(), if levels == 3 { 32 } else { 0 });
        for pod in &found.pods {
            assert_eq!(found.pod_oversubscription(pod), (levels == 3).then_some(1.0));
        }
        for unit in &found.units {
            let rails: Vec<Option<u8>> = unit
                .leaves
                .iter()
                .map(|leaf| found.switch(*leaf).expect("a leaf").rail)
                .collect();
            assert_eq!(rails, (0..8).map(Some).collect::<Vec<_>>());
            assert_eq!(unit.nodes.len(), 32.min(hosts as usize));
        }
    }
}

#[test]
fn a_tree_with_all_adapters_of_a_node_on_one_leaf_is_not_rail_optimised() {
    let tree = FatTree {
        rail_optimised: false,
        ..FatTree::rail_optimised(32)
    };
    let found = shape(&tree);
    assert_eq!((found.levels, found.rails), (2, Rails::NotOptimised));
    assert_eq!((found.units.len(), found.of_role(Role::Leaf).count()), (8, 8));
    assert!(found.is_regular());
}

#[test]
fn trees_that_cannot_be_are_refused() {
    for tree in [
        FatTree::rail_optimised(0),
        FatTree {
            radix: 7,
            ..FatTree::rail_optimised(4)
        },
        FatTree {
            radix: 4,
            rail_optimised: false,
            ..FatTree::rail_optimised(4)
        },
        FatTree {
            radix: 4,
            ..FatTree::rail_optimised(100)
        },
    ] {
        assert!(tree.plan().is_err(), "{tree:?}");
    }
}

#[test]
fn cut_crossed_and_slow_cables_are_odd_without_any_plan() {
    let (devices, mut cables) = FatTree::rail_optimised(64).plan().expect("a tree");
    // Two adapters of one node on each other's leaf, one on a leaf of another unit, a missing uplink, and a narrow one.
    let at = |cables: &[rackwright_infiniband::PlannedCable], name: &str| {
        let device = devices.iter().position(|device| device.name == name).expect("a device");
        cables.iter().position(|cable| cable.b.0 == device).expect("a cable")
    };
    let (a, b) = (at(&cables, "gpu0003 mlx5_1"), at(&cables, "gpu0003 mlx5_6"));
    (cables[a].b, cables[b].b) = (cables[b].b, cables[a].b);
    let (a, b) = (at(&cables, "gpu0005 mlx5_2"), at(&cables, "gpu0050 mlx5_2"));
    (cables[a].b, cables[b].b) = (cables[b].b, cables[a].b);
    cables[7].width = Some(Width::X1);
    cables[9].speed = Some(Speed::Hdr);
    cables.pop();
    let found = Structure::of(Plan::new(&devices, &cables).expect("a plan").fabric());
    let count = |kind| found.oddities.iter().filter(|odd| odd.kind == kind).count();
    assert_eq!(found.rails, Rails::Optimised(8));
    assert_eq!(found.units.len(), 2);
    assert_eq!(count(OddityKind::Rail), 2);
    assert_eq!(count(OddityKind::OtherUnit), 2);
    assert_eq!(count(OddityKind::FewUplinks), 1);
    assert_eq!(count(OddityKind::UnevenUplinks), 1);
    assert_eq!((count(OddityKind::Narrow), count(OddityKind::Slow)), (1, 1));
    assert_eq!(found.oddities.len(), 8, "{:#?}", found.oddities);
    let worst = found.worst_leaf().expect("uplinks");
    assert!((worst - 32.0 / 31.0).abs() < 1e-9, "{worst}");
}

#[test]
fn a_machine_on_a_spine_does_not_make_a_leaf_of_it() {
    let mut text = rackwright_infiniband::Dump::of(plan(&FatTree::rail_optimised(16)).fabric().clone()).write();
    let spine = text
        .lines()
        .find(|line| line.contains("# \"spine-01\" enhanced"))
        .expect("a spine")
        .to_owned();
    let id = spine.split('"').nth(1).expect("an id").to_owned();
    text.push_str(&format!("\ncaguid=0x77\nCa\t1 \"H-0000000000000077\"\t\t# \"ufm HCA-1\"\n[1](78) \t\"{id}\"[65]\t\t# lid 0 lmc 0 \"spine-01\" lid 0 4xNDR\n"));
    text = text.replace(&spine, &spine.replace("Switch\t64", "Switch\t66"));
    let dump = read(text.as_bytes(), Limits::default()).expect("a dump");
    let found = Structure::of(&dump.fabric);
    assert_eq!(
        (
            found.levels,
            found.of_role(Role::Leaf).count(),
            found.of_role(Role::Spine).count()
        ),
        (2, 8, 2)
    );
}

#[test]
#[ignore = "needs a dump of a real fabric, in the folder RACKWRIGHT_FABRICS"]
fn a_real_irregular_fabric_is_described() {
    let folder = std::env::var_os("RACKWRIGHT_FABRICS").expect("RACKWRIGHT_FABRICS: a folder with x5.ibnetdiscover");
    let bytes = std::fs::read(std::path::Path::new(&folder).join("x5.ibnetdiscover")).expect("x5.ibnetdiscover");
    let found = Structure::of(&read(&bytes, Limits::default()).expect("a dump").fabric);
    assert_eq!(found.rails, Rails::Unknown);
    assert!(found.levels >= 1 && !found.is_regular());
    assert_eq!(found.switches.iter().map(|view| view.adapters).sum::<u32>(), 89);
    eprintln!(
        "levels {} pods {} {:#?}",
        found.levels,
        found.pods.len(),
        found.oddities
    );
}

/// 100,000 adapters: built, written, read, described and compared in acceptable time.
#[test]
fn a_fabric_of_a_hundred_thousand_adapters_is_handled() {
    let tree = FatTree {
        radix: 128,
        ..FatTree::rail_optimised(12_500)
    };
    let plan = plan(&tree);
    let text = rackwright_infiniband::Dump::of(plan.fabric().clone()).write();
    let dump = read(text.as_bytes(), Limits::default()).expect("a dump");
    assert_eq!(dump.findings, []);
    assert_eq!(dump.fabric.counts(), plan.fabric().counts());
    assert_eq!(dump.fabric.counts().adapters, 100_000);
    let found = Structure::of(&dump.fabric);
    assert_eq!(
        (found.levels, found.rails, found.units.len()),
        (3, Rails::Optimised(8), 196)
    );
    let report = rackwright_infiniband::check(&plan, &dump.fabric);
    assert_eq!((report.faults.len(), report.right), (0, plan.fabric().links().len()));
}
