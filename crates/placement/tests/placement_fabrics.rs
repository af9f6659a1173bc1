//! Halls of several fabrics: a cluster is in one of them, and gets what the best of them alone would give.

#![allow(clippy::unwrap_used)] // helpers of tests fail loudly

mod placement_common;

use std::collections::BTreeSet;

use placement_common::{Dice, Size, hall_spec, judge, request, seed, sku};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use rackwright_placement::*;

const WIDE: Size = Size {
    pods: (2, 4),
    units: (1, 3),
    hosts: (2, 4),
    parallel: 2,
};

/// Gives the last pods a fabric of their own, with another tree. Some nodes are impaired.
fn split(dice: &mut Dice, spec: &mut HallSpec) {
    let pods = spec.pods.len() as u64;
    let first_pod = PodId(dice.roll(1, pods - 1) as u32);
    let tree = Tree {
        spines: dice.roll(1, 4) as u32,
        links_per_spine: dice.roll(1, 2) as u32,
        cores_per_spine: dice.roll(0, 3) as u32,
        links_per_core: dice.roll(1, 2) as u32,
    };
    spec.more_fabrics.push(FabricSpec { first_pod, tree });
    for node in &mut spec.nodes {
        node.impaired = dice.chance(10);
    }
}

/// The pod of a unit.
fn pod_of(spec: &HallSpec, unit: UnitId) -> PodId {
    let mut pods = (0..)
        .zip(&spec.pods)
        .flat_map(|(pod, known)| known.units.iter().map(move |_| PodId(pod)));
    pods.nth(unit.at()).unwrap()
}

/// The same hall in which only the nodes of one fabric take clusters.
fn only(spec: &HallSpec, fabric: usize) -> Hall {
    let mut one = spec.clone();
    for node in &mut one.nodes {
        node.unit = node.unit.filter(|unit| spec.fabric_of(pod_of(spec, *unit)) == fabric);
    }
    Hall::new(one).unwrap()
}

fn fabrics_of(hall: &Hall, placement: &Placement) -> BTreeSet<usize> {
    let pods = placement.units.iter().map(|share| share.pod);
    pods.chain(placement.cores.iter().map(|share| share.pod))
        .map(|pod| hall.spec().fabric_of(pod))
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 500,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(seed()),
        ..ProptestConfig::default()
    })]

    #[test]
    fn the_answer_is_the_best_of_the_fabrics_alone(seed: u64) {
        let mut dice = Dice::new(seed);
        let mut spec = hall_spec(&mut dice, WIDE);
        split(&mut dice, &mut spec);
        let hall = Hall::new(spec.clone()).unwrap();
        let halls = [only(&spec, 0), only(&spec, 1)];
        for number in 0..4 {
            let wish = request(&mut dice, &spec, number);
            let answers = halls.each_ref().map(|hall| plan(hall, &wish));
            let is_proven = answers.iter().all(|one| one.as_ref().err().is_none_or(|refusal| refusal.proven));
            let fewest = answers.iter().flatten().map(|placement| placement.units.len()).min();
            match plan(&hall, &wish) {
                Ok(placement) => prop_assert_eq!(Some(placement.units.len()), fewest, "{:?}", wish),
                Err(refusal) => prop_assert!(
                    fewest.is_none() || !refusal.proven || !is_proven,
                    "{:?}: {}", wish, refusal
                ),
            }
        }
    }

    #[test]
    fn clusters_come_grow_and_go_within_one_fabric(seed: u64) {
        let mut dice = Dice::new(seed);
        let mut spec = hall_spec(&mut dice, WIDE);
        split(&mut dice, &mut spec);
        let mut hall = Hall::new(spec).unwrap();
        for number in 0..8 {
            let wish = request(&mut dice, hall.spec(), number);
            if let Ok(placement) = plan(&hall, &wish) {
                hall.take(&placement).unwrap();
            }
            let live: Vec<ClusterId> = hall.clusters().keys().copied().collect();
            for cluster in live {
                let nodes = dice.roll(1, 3) as u32;
                if let Ok(after) = amend(&mut hall, cluster, &Change { nodes, ..Change::default() }) {
                    prop_assert!(hall.exchange(&after).is_ok(), "{:?}", after);
                }
                if dice.chance(20) {
                    hall.free(cluster);
                }
            }
            for placement in hall.clusters().values() {
                prop_assert_eq!(fabrics_of(&hall, placement).len(), 1, "{:?}", placement);
            }
            prop_assert_eq!(judge(&hall), Vec::<String>::new());
        }
    }
}

/// Three pods of one unit of four nodes. The last two are a fabric with cores; the first has none.
fn three_pods() -> HallSpec {
    let tree = |cores_per_spine| Tree {
        spines: 4,
        links_per_spine: 1,
        cores_per_spine,
        links_per_core: 1,
    };
    let mut spec = HallSpec {
        tree: tree(0),
        more_fabrics: vec![FabricSpec {
            first_pod: PodId(1),
            tree: tree(2),
        }],
        skus: vec![sku("dgx", 10_000, 1)],
        ..HallSpec::default()
    };
    spec.domains.push(DomainSpec {
        name: "feed".to_owned(),
        capacity_w: 1_000_000,
        ..DomainSpec::default()
    });
    for pod in 0..3 {
        spec.pods.push(PodSpec {
            name: format!("pod{pod}"),
            units: vec![format!("su{pod}")],
        });
        for host in 0..4 {
            spec.nodes.push(NodeSpec {
                name: format!("n{pod}{host}"),
                unit: Some(UnitId(pod)),
                sku: SkuId(0),
                psus: vec![DomainId(0)],
                cooling: Vec::new(),
                labels: Vec::new(),
                excluded: false,
                impaired: false,
            });
        }
    }
    spec
}

fn wish(cluster: u64, nodes: u32) -> Request {
    Request::plain(ClusterId(cluster), CustomerId(0), SkuId(0), nodes)
}

#[test]
fn a_cluster_spans_the_pods_of_a_later_fabric_and_no_two_fabrics() {
    let mut hall = Hall::new(three_pods()).unwrap();
    let refusal = plan(&hall, &wish(1, 9)).unwrap_err();
    assert_eq!((refusal.leaves, refusal.proven), (8, true));
    assert_eq!(refusal.constraint, Constraint::Links);
    let why = "a cluster is in one fabric, and no fabric has more than 8 free nodes of dgx; 9 are requested";
    assert_eq!(refusal.why, why);
    assert!(refusal.to_string().contains("what fits: "), "{refusal}");

    let placed = plan(&hall, &wish(1, 6)).unwrap();
    let pods: Vec<PodId> = placed.units.iter().map(|share| share.pod).collect();
    assert_eq!(pods, [PodId(1), PodId(2)]);
    assert!(!placed.cores.is_empty());
    hall.take(&placed).unwrap();
    // The first fabric has four free nodes, the cluster's own fabric two.
    let grow = |nodes| Change {
        nodes,
        ..Change::default()
    };
    assert!(amend(&mut hall, ClusterId(1), &grow(3)).is_err());
    assert_eq!(amend(&mut hall, ClusterId(1), &grow(2)).unwrap().units.len(), 2);
}

#[test]
fn an_impaired_node_is_missing_in_its_fabric_for_a_non_blocking_cluster() {
    let mut spec = three_pods();
    spec.nodes[4].impaired = true;
    let hall = Hall::new(spec).unwrap();
    // 11 nodes are free and whole, seven of them in the second fabric.
    let refusal = plan(&hall, &wish(1, 8)).unwrap_err();
    assert_eq!((refusal.leaves, refusal.proven), (7, true));
    assert_eq!(refusal.constraint, Constraint::Links);
    let why =
        "a cluster is in one fabric, and no fabric has more than 7 free nodes of dgx with all rails; 8 are requested";
    assert_eq!(refusal.why, why);
    let slower = Request {
        bandwidth: Bandwidth::Ratio { down: 2, up: 1 },
        ..wish(1, 8)
    };
    assert!(plan(&hall, &slower).is_ok());
}

#[test]
fn a_placement_in_two_fabrics_is_refused() {
    let mut hall = Hall::new(three_pods()).unwrap();
    let mut torn = plan(&hall, &wish(1, 6)).unwrap();
    // The same shape, with the first share in the first fabric.
    torn.cores.clear();
    (torn.units[0].unit, torn.units[0].pod) = (UnitId(0), PodId(0));
    torn.nodes = torn.units.iter().flat_map(|share| hall.nodes_of(share)).collect();
    assert_eq!(hall.take(&torn), Err(TakeError::Shape(Breach::Fabrics)));
    assert!(hall.clusters().is_empty());
}

#[test]
fn faults_of_fabrics_are_named() {
    let mut spec = three_pods();
    spec.more_fabrics[0].first_pod = PodId(3);
    let faults = Hall::new(spec).unwrap_err();
    assert_eq!(faults[0].to_string(), "a fabric names pod 3, but there are only 3");
    let mut spec = three_pods();
    let tree = spec.tree;
    spec.more_fabrics[0].first_pod = PodId(2);
    spec.more_fabrics.push(FabricSpec {
        first_pod: PodId(1),
        tree,
    });
    assert_eq!(Hall::new(spec).unwrap_err(), [HallFault::FabricOrder]);
    let mut spec = three_pods();
    spec.more_fabrics[0].tree.spines = 200;
    let faults = Hall::new(spec).unwrap_err();
    assert!(
        matches!(&faults[0], HallFault::TooMany { count: 200, .. }),
        "{faults:?}"
    );
}
