//! Live clusters of a site: random lives, and planners restored from stored names.

#![allow(clippy::unwrap_used)] // helpers of tests fail loudly

#[path = "../../placement/tests/placement_common/mod.rs"]
mod placement_common;

use std::collections::BTreeSet;

use placement_common::{Dice, judge, seed};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use rackwright_placement::{Bandwidth, ClusterId, CustomerId, LabelKind, Placement, Request, SkuId, UnitId};
use rackwright_planner::hall::{hall_node, site_node};
use rackwright_planner::planner::{NamedPlacement, Planner, Refused};
use rackwright_site::file::{Source, check};
use rackwright_site::generate::{ReferenceSku, Request as Reference, site_file};
use rackwright_site::model::{NodeId, Site};

const CUSTOMERS: &str = "customers:\n- {name: acme, redundancy: feed-loss}\n- {name: zeta}\n\
                         - {name: owl, dedicated_circuits: true, contracted_watts: 300 kW}\n";

fn site_of(text: &str) -> Site {
    let checked = check(&[Source {
        name: "site.yaml",
        text,
    }]);
    checked.site.unwrap_or_else(|| panic!("{:?}", checked.findings.list))
}

fn generated(nodes: usize) -> Site {
    let text = site_file(&Reference::new(ReferenceSku::DgxH100, nodes)).unwrap();
    site_of(&format!("{text}---\n{CUSTOMERS}"))
}

fn nodes_of(placement: &Placement) -> Vec<NodeId> {
    let nodes = placement.nodes.iter().chain(&placement.spares);
    nodes.map(|&node| site_node(node)).collect()
}

fn wish(dice: &mut Dice, cluster: u64) -> Request {
    let customer = CustomerId(dice.roll(0, 2) as u32);
    let nodes = if dice.chance(70) {
        dice.roll(1, 12)
    } else {
        dice.roll(20, 50)
    };
    let mut request = Request::plain(ClusterId(cluster), customer, SkuId(0), nodes as u32);
    request.spares = u32::from(dice.chance(40));
    if dice.chance(20) {
        request.bandwidth = Bandwidth::Ratio { down: 2, up: 1 };
    }
    if dice.chance(10) {
        request.affinity.spread.push((LabelKind(0), 2));
    }
    request
}

/// A step of a random life. Returns its description and the nodes that joined a cluster.
fn step(planner: &mut Planner, dice: &mut Dice, number: u64) -> (String, Vec<NodeId>) {
    let live: Vec<ClusterId> = planner.hall().clusters().keys().copied().collect();
    let what = if live.is_empty() { 0 } else { dice.roll(0, 9) };
    let any = live
        .get(dice.next() as usize % live.len().max(1))
        .copied()
        .unwrap_or(ClusterId(0));
    let own = planner.placement(any).map(nodes_of).unwrap_or_default();
    let one = own.get(dice.next() as usize % own.len().max(1)).copied();
    let all = planner.hall().spec().nodes.len() as u64;
    let some = NodeId(dice.roll(0, all - 1) as u32);
    match (what, one) {
        (0..=2, _) | (_, None) => {
            let placed = planner.place(wish(dice, number));
            ("place".to_owned(), placed.map(|p| nodes_of(&p)).unwrap_or_default())
        }
        (3, _) => {
            planner.release(any).unwrap();
            (format!("release {any:?}"), Vec::new())
        }
        (4, _) => {
            assert!(planner.exclude(some));
            (format!("hold out {some:?}"), Vec::new())
        }
        (5, _) => {
            planner.restore_node(some);
            (format!("give back {some:?}"), Vec::new())
        }
        (6, _) => {
            let grown = planner.grow(any, dice.roll(1, 12) as u32);
            (
                format!("grow {any:?}: {grown:?}"),
                grown.map(|c| c.joined).unwrap_or_default(),
            )
        }
        (7, Some(one)) => {
            let leaving = [one, own[0]];
            let shrunk = planner.shrink(any, &leaving);
            (format!("shrink {any:?}: {shrunk:?}"), Vec::new())
        }
        (_, Some(one)) => {
            planner.exclude(one);
            let swap = planner.replace(any, one, &[some]);
            let by: Vec<NodeId> = swap.iter().filter(|s| !s.was_spare).map(|s| s.by).collect();
            assert!(!by.contains(&some) && !by.contains(&one));
            (format!("replace {one:?} of {any:?}: {swap:?}"), by)
        }
    }
}

/// A planner restored from the stored names has the same state.
fn restores(site: &Site, planner: &Planner) -> Result<(), TestCaseError> {
    let live = planner.hall().clusters().values();
    let named: Vec<NamedPlacement> = live.clone().map(|p| planner.named(p)).collect();
    let text = serde_json::to_string(&named).unwrap();
    let read: Vec<NamedPlacement> = serde_json::from_str(&text).unwrap();
    prop_assert_eq!(&read, &named);
    for (name, placement) in read.iter().zip(live.clone()) {
        prop_assert_eq!(&planner.resolve(name).unwrap(), placement);
    }
    let by_name = Planner::restore_named(site, &read).unwrap();
    let as_json = serde_json::to_string(&live.collect::<Vec<_>>()).unwrap();
    let placements: Vec<Placement> = serde_json::from_str(&as_json).unwrap();
    for fresh in [by_name, Planner::restore(site, &placements).unwrap()] {
        prop_assert_eq!(fresh.ledger().loads(), planner.ledger().loads());
        prop_assert_eq!(fresh.ledger().heat(), planner.ledger().heat());
        let (a, b) = (fresh.ledger().reservations(), planner.ledger().reservations());
        prop_assert_eq!(a.collect::<Vec<_>>(), b.collect::<Vec<_>>());
        prop_assert_eq!(fresh.hall().clusters(), planner.hall().clusters());
        let units: usize = fresh.hall().spec().pods.iter().map(|p| p.units.len()).sum();
        for unit in (0..units as u32).map(UnitId) {
            prop_assert_eq!(fresh.hall().free_uplinks(unit), planner.hall().free_uplinks(unit));
        }
    }
    Ok(())
}

fn life(site: &Site, seed: u64, steps: u64) -> Result<(), TestCaseError> {
    let mut dice = Dice::new(seed);
    let mut planner = Planner::new(site).unwrap();
    for number in 1..=steps {
        let before: BTreeSet<NodeId> = planner.excluded().collect();
        let (what, joined) = step(&mut planner, &mut dice, number);
        prop_assert!(joined.iter().all(|node| !before.contains(node)), "{}", what);
        prop_assert_eq!(judge(planner.hall()), Vec::<String>::new(), "after {}", what);
        let held: BTreeSet<NodeId> = planner.hall().clusters().values().flat_map(nodes_of).collect();
        let reserved: BTreeSet<NodeId> = planner.ledger().reservations().map(|r| r.node).collect();
        prop_assert_eq!(held, reserved, "after {}", what);
    }
    restores(site, &planner)
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 24,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(seed()),
        ..ProptestConfig::default()
    })]

    #[test]
    fn a_planner_made_anew_knows_the_same(seed: u64) {
        life(&generated(96), seed, 20)?;
    }
}

#[test]
fn three_levels_are_restored_too() {
    // Four units per pod: more than two pods.
    life(&generated(300), 7, 12).unwrap();
    let site = generated(1024);
    let mut planner = Planner::new(&site).unwrap();
    let big = planner
        .place(Request::plain(ClusterId(1), CustomerId(1), SkuId(0), 300))
        .unwrap();
    assert!(!big.cores.is_empty(), "it spans pods");
    restores(&site, &planner).unwrap();
}

#[test]
fn what_the_site_no_longer_has_is_named() {
    let site = generated(96);
    let mut planner = Planner::new(&site).unwrap();
    let placement = planner
        .place(Request::plain(ClusterId(1), CustomerId(1), SkuId(0), 40))
        .unwrap();
    let mut named = planner.named(&placement);
    named.nodes[0] = "gpu-9999".to_owned();
    named.uplinks[0].cables[0] = "spine-none".to_owned();
    named.uplinks[1].cables[0] = named.uplinks[1].leaves[0].clone();
    named.uplinks[1].leaves[1] = "leaf-none".to_owned();
    let faults = planner.resolve(&named).unwrap_err().faults;
    for word in [
        "node gpu-9999 is not in the site",
        "switch spine-none is",
        "has no cable to",
        "switch leaf-none is",
    ] {
        assert!(faults.iter().any(|fault| fault.contains(word)), "{word}: {faults:?}");
    }
    let twice = [planner.named(&placement), planner.named(&placement)];
    let error = Planner::restore_named(&site, &twice).unwrap_err().to_string();
    assert!(
        error.contains("cluster 1:") && error.contains("already reserved"),
        "{error}"
    );
}

#[test]
fn a_spare_steps_in_first_and_a_free_node_after_it() {
    let site = generated(96);
    let mut planner = Planner::new(&site).unwrap();
    let mut request = Request::plain(ClusterId(1), CustomerId(0), SkuId(0), 20);
    request.spares = 1;
    let placement = planner.place(request).unwrap();
    let (bad, spare) = (site_node(placement.nodes[3]), site_node(placement.spares[0]));
    planner.exclude(bad);
    let swap = planner.replace(ClusterId(1), bad, &[]).unwrap();
    assert!(swap.was_spare && swap.by == spare && swap.placement.spares.is_empty());
    let bad = site_node(swap.placement.nodes[5]);
    planner.exclude(bad);
    let swap = planner.replace(ClusterId(1), bad, &[]).unwrap();
    let unit = |node: NodeId| planner.hall().spec().nodes[node.index()].unit;
    assert!(
        !swap.was_spare && unit(swap.by) == unit(bad),
        "the same unit if it can be"
    );
    assert_eq!(swap.placement.nodes.len(), 20);
    assert_eq!(planner.add_spares(ClusterId(1), 1).unwrap().placement.spares.len(), 1);
    assert!(matches!(
        planner.replace(ClusterId(9), bad, &[]),
        Err(Refused::Placement(_))
    ));
    let stranger = planner.replace(ClusterId(1), bad, &[]).unwrap_err().to_string();
    assert!(stranger.contains("is not part of cluster 1"), "{stranger}");
}

/// A cluster has one and a half of three units with 96 nodes in total.
#[test]
fn a_swap_goes_to_another_unit_with_links_or_says_what_is_in_the_way() {
    let site = generated(96);
    let mut planner = Planner::new(&site).unwrap();
    let ask = |cluster, customer, nodes| Request::plain(ClusterId(cluster), CustomerId(customer), SkuId(0), nodes);
    let placement = planner.place(ask(1, 1, 32)).unwrap();
    assert_eq!((placement.units.len(), placement.units[0].links), (1, 0));
    let bad = site_node(placement.nodes[7]);
    planner.exclude(bad);
    let swap = planner.replace(ClusterId(1), bad, &[]).unwrap();
    let moved = swap.placement;
    assert_eq!(moved.units.len(), 2, "its unit is full");
    let links: Vec<u32> = moved.units.iter().map(|u| u.links.count_ones()).collect();
    assert_eq!(links, [1, 1], "one stream crosses");
    assert_eq!(judge(planner.hall()), Vec::<String>::new());
    // Back in the first unit, the links are free again.
    planner.restore_node(bad);
    let home = planner.replace(ClusterId(1), swap.by, &[]).unwrap();
    assert_eq!(
        (home.by, home.placement.units.len(), home.placement.units[0].links),
        (bad, 1, 0)
    );
    let free: Vec<NodeId> = site
        .node_ids()
        .filter(|n| planner.hall().is_free(hall_node(*n)))
        .collect();
    free.iter().skip(3).for_each(|&node| assert!(planner.exclude(node)));
    let refused = planner.replace(ClusterId(1), bad, &free[..3]).unwrap_err().to_string();
    assert!(
        refused.contains("0 nodes of dgx-h100 are free, 1 are requested; 61 nodes are out of service"),
        "{refused}"
    );
    let refused = planner.grow(ClusterId(1), 9).unwrap_err().to_string();
    assert!(
        refused.contains("3 nodes of dgx-h100 are free") && refused.contains("what fits: 3 of 9 more"),
        "{refused}"
    );
    assert!(planner.grow(ClusterId(1), u32::MAX).is_err());
    assert_eq!(planner.ledger().reservations().count(), 32);
    assert_eq!(
        planner.placement(ClusterId(1)),
        Some(&home.placement),
        "nothing has changed"
    );
}

/// Two racks that are equal for placement. In the first, all PSUs are on one phase.
const PHASES: &str = "
site: {name: lab}
rooms: [{name: hall}]
racks: [{name: 'r[1-2]', room: hall}]
outlet_layouts:
- {name: lopsided, outlets: [{name: '[1-6]', phase: L1, amps: 32}]}
- {name: even, outlets: [{name: '[1-6]', phase: [L1, L2, L3], amps: 32}]}
power:
- {name: utility, kind: utility, feed: A, watts: 100 kW}
- {name: 'circuit-[1-2]', kind: circuit, parent: utility*2, volts: 415, amps: 32, phases: 3}
- {name: pdu-1, kind: rack-pdu, parent: circuit-1, rack: r1, volts: 415, amps: 32, phases: 3, outlets: lopsided}
- {name: pdu-2, kind: rack-pdu, parent: circuit-2, rack: r2, volts: 415, amps: 32, phases: 3, outlets: even}
skus:
- {name: box, power: {max_watts: 6 kW}, psus: {count: 3, watts: 3000, needed: 2}, height_units: 8, hcas: [mlx5_0]}
nodes:
- {name: n1, sku: box, rack: r1, unit: 1, psus: [pdu-1/1, pdu-1/2, pdu-1/3]}
- {name: n2, sku: box, rack: r1, unit: 9, psus: [pdu-1/4, pdu-1/5, pdu-1/6]}
- {name: n3, sku: box, rack: r2, unit: 1, psus: [pdu-2/1, pdu-2/2, pdu-2/3]}
- {name: n4, sku: box, rack: r2, unit: 9, psus: [pdu-2/4, pdu-2/5, pdu-2/6]}
switches: [{name: leaf-1, role: leaf, ports: 8, scalable_unit: 1}]
cables: [{label: 'c[1-4]', a: 'n[1-4]/mlx5_0', b: 'leaf-1/[1-4]'}]
customers: [{name: acme}]
";

#[test]
fn a_rack_with_an_overloaded_phase_is_passed_over_for_one_that_fits() {
    let site = site_of(PHASES);
    let mut planner = Planner::new(&site).unwrap();
    let ask = |cluster, nodes| Request::plain(ClusterId(cluster), CustomerId(0), SkuId(0), nodes);
    // One node on L1 draws 25.0 A of 25.6 A. Two do not fit into the rack that placement tries first.
    let pair = planner.place(ask(1, 2)).unwrap();
    let racks: Vec<_> = nodes_of(&pair)
        .iter()
        .map(|n| site.rack(site.node(*n).rack).name.to_string())
        .collect();
    assert!(racks.contains(&"r2".to_owned()), "{racks:?}");
    assert_eq!(planner.place(ask(2, 1)).unwrap().nodes.len(), 1);
    let refused = planner.place(ask(3, 1)).unwrap_err();
    assert!(refused.to_string().contains("L1 of"), "{refused}");
    // Growth and swaps check the ledger, too.
    let grown = planner.grow(ClusterId(1), 1).unwrap_err();
    assert!(grown.to_string().contains("L1 of"), "{grown}");
    assert_eq!(planner.ledger().reservations().count(), 3);
}
