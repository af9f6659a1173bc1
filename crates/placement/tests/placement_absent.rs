//! Halls with absent links and nodes that are left out: clusters get none of them.

#![allow(clippy::unwrap_used)] // helpers of tests fail loudly

mod placement_common;

use placement_common::{Dice, Size, hall_spec, judge, request, seed};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use rackwright_placement::*;

const WIDE: Size = Size {
    pods: (1, 3),
    units: (2, 4),
    hosts: (3, 5),
    parallel: 2,
};

fn wirings(tree: Tree) -> (Wiring, Wiring) {
    let spines = Wiring {
        peers: tree.spines,
        parallel: tree.links_per_spine,
    };
    let cores = Wiring {
        peers: tree.cores_per_spine,
        parallel: tree.links_per_core,
    };
    (spines, cores)
}

/// Removes one link in eight and one node in eight.
fn thin(dice: &mut Dice, spec: &mut HallSpec) {
    let (spines, cores) = wirings(spec.tree);
    let some = |dice: &mut Dice, all: Mask| {
        let [a, b, c] = [0; 3].map(|_| u128::from(dice.next()));
        a & b & c & all
    };
    let mut unit = 0;
    for pod in 0..spec.pods.len() as u32 {
        for _ in 0..spec.pods[pod as usize].units.len() {
            spec.absent_uplinks.insert(UnitId(unit), some(dice, spines.all()));
            unit += 1;
        }
        for spine in 0..spines.peers {
            spec.absent_cores.insert((PodId(pod), spine), some(dice, cores.all()));
        }
    }
    for node in &mut spec.nodes {
        if dice.chance(12) {
            node.unit = None;
        }
    }
}

/// What a cluster has although it is absent or left out.
fn impossible(hall: &Hall, placement: &Placement) -> Vec<String> {
    let spec = hall.spec();
    let mut found = Vec::new();
    for share in &placement.units {
        let absent = spec.absent_uplinks.get(&share.unit).copied().unwrap_or(0);
        if share.links & absent != 0 {
            found.push(format!("{:?} has absent uplinks", share.unit));
        }
    }
    for share in &placement.cores {
        let absent = spec.absent_cores.get(&(share.pod, share.spine)).copied().unwrap_or(0);
        if share.links & absent != 0 {
            found.push(format!("spine {} of {:?} has absent links", share.spine, share.pod));
        }
    }
    for node in placement.nodes.iter().chain(&placement.spares) {
        if spec.nodes[node.at()].unit.is_none() {
            found.push(format!("{node:?} is left out"));
        }
    }
    found
}

fn free_links(hall: &Hall) -> Vec<Mask> {
    let units: usize = hall.spec().pods.iter().map(|pod| pod.units.len()).sum();
    let pods = 0..hall.spec().pods.len() as u32;
    let uplinks = (0..units as u32).map(|unit| hall.free_uplinks(UnitId(unit)));
    let cores = pods.flat_map(|pod| (0..hall.spec().tree.spines).map(move |spine| (pod, spine)));
    let cores = cores.map(|(pod, spine)| hall.free_core_links(PodId(pod), spine));
    uplinks.chain(cores).collect()
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 500,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(seed()),
        ..ProptestConfig::default()
    })]

    #[test]
    fn no_cluster_gets_an_absent_link_or_a_node_that_is_left_out(seed: u64) {
        let mut dice = Dice::new(seed);
        let mut spec = hall_spec(&mut dice, WIDE);
        thin(&mut dice, &mut spec);
        let mut hall = Hall::new(spec).unwrap();
        let new = free_links(&hall);
        for number in 0..8 {
            let wish = request(&mut dice, hall.spec(), number);
            if let Ok(placement) = plan(&hall, &wish) {
                hall.take(&placement).unwrap();
            }
            // Links break and are repaired: the absent ones do not appear.
            let unit = UnitId(dice.roll(0, 1) as u32);
            hall.set_broken_uplinks(unit, u128::from(dice.next()));
            hall.set_broken_uplinks(unit, 0);
            hall.set_broken_cores(PodId(0), 0, u128::from(dice.next()));
            hall.set_broken_cores(PodId(0), 0, 0);
            if dice.chance(30) {
                hall.free(ClusterId(dice.roll(0, number)));
            }
        }
        let live: Vec<ClusterId> = hall.clusters().keys().copied().collect();
        for &cluster in &live {
            let change = Change { nodes: 1, ..Change::default() };
            if let Ok(after) = amend(&mut hall, cluster, &change) {
                prop_assert!(hall.exchange(&after).is_ok(), "{:?}", after);
            }
        }
        for placement in hall.clusters().values() {
            prop_assert_eq!(impossible(&hall, placement), Vec::<String>::new());
        }
        // Every traffic pattern of every cluster is routable on the links that the cluster has.
        prop_assert_eq!(judge(&hall), Vec::<String>::new());
        for cluster in live {
            hall.free(cluster).unwrap();
        }
        prop_assert_eq!(free_links(&hall), new);
    }
}

#[test]
fn a_node_that_is_left_out_is_out_of_service_for_good() {
    let mut dice = Dice::new(1);
    let mut spec = hall_spec(&mut dice, WIDE);
    spec.contracts.clear();
    let all = spec.nodes.len();
    for node in &mut spec.nodes {
        node.excluded = false;
        // Its power does not matter either.
        if node.unit == Some(UnitId(0)) {
            node.unit = None;
            node.psus.clear();
        }
    }
    let out: Vec<NodeId> = (0..all as u32)
        .map(NodeId)
        .filter(|node| spec.nodes[node.at()].unit.is_none())
        .collect();
    let mut hall = Hall::new(spec).unwrap();
    for &node in &out {
        assert!(hall.exclude(node) && hall.restore(node));
        assert_eq!(hall.node_status(node), Some(NodeStatus::Excluded));
        assert!(!hall.is_free(node));
    }
    let wish = Request::plain(ClusterId(1), CustomerId(0), SkuId(0), all as u32);
    let refused = plan(&hall, &wish).unwrap_err().to_string();
    let named = format!("{} nodes of the hall are left out", out.len());
    assert!(refused.contains(&named), "{refused}");
}
