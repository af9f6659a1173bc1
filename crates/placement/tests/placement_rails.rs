//! Nodes that lack a rail or have exchanged rails: no non-blocking cluster of several nodes gets them, and every other
//! cluster does.

#![allow(clippy::unwrap_used)] // helpers of tests fail loudly

mod placement_common;

use placement_common::{Dice, TINY, hall_spec, judge, request, seed};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use rackwright_placement::*;

/// A hall in which some nodes are impaired. `all_whole`: without them, `all_out`: with them out of service.
struct Halls {
    impaired: Hall,
    all_whole: Hall,
    all_out: Hall,
}

impl Halls {
    fn new(dice: &mut Dice) -> Self {
        let whole = hall_spec(dice, TINY);
        let (mut impaired, mut out) = (whole.clone(), whole.clone());
        for at in 0..whole.nodes.len() {
            if dice.chance(30) {
                impaired.nodes[at].impaired = true;
                out.nodes[at].excluded = true;
            }
        }
        Self {
            impaired: Hall::new(impaired).unwrap(),
            all_whole: Hall::new(whole).unwrap(),
            all_out: Hall::new(out).unwrap(),
        }
    }
}

/// Whether a request fits. `None`: the search was cut short.
fn fits(hall: &Hall, wish: &Request) -> Option<bool> {
    match plan(hall, wish) {
        Ok(_) => Some(true),
        Err(refusal) => refusal.proven.then_some(false),
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 500,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(seed()),
        ..ProptestConfig::default()
    })]

    /// A non-blocking cluster of several nodes fits as if the impaired nodes were out of service, and any other cluster as
    /// if they were whole.
    #[test]
    fn impaired_nodes_are_out_of_service_for_non_blocking_clusters_alone(seed: u64) {
        let mut dice = Dice::new(seed);
        let halls = Halls::new(&mut dice);
        for number in 0..6 {
            let wish = request(&mut dice, halls.impaired.spec(), number);
            let is_strict = wish.bandwidth == Bandwidth::FULL && wish.nodes + wish.spares > 1;
            let same = if is_strict { &halls.all_out } else { &halls.all_whole };
            if let (Some(here), Some(there)) = (fits(&halls.impaired, &wish), fits(same, &wish)) {
                prop_assert_eq!(here, there, "{:?}", wish);
            }
        }
    }

    /// Clusters come, go, grow and lose nodes: none gets an impaired node that it must not have.
    #[test]
    fn no_change_gives_an_impaired_node_to_a_non_blocking_cluster(seed: u64) {
        let mut dice = Dice::new(seed);
        let mut hall = Halls::new(&mut dice).impaired;
        for number in 0..8 {
            let mut wish = request(&mut dice, hall.spec(), number);
            wish.nodes = wish.nodes.min(dice.roll(1, 5) as u32);
            if let Ok(placement) = plan(&hall, &wish) {
                hall.take(&placement).unwrap();
            }
            let live: Vec<Placement> = hall.clusters().values().cloned().collect();
            for placement in live {
                let leaving = if dice.chance(40) { vec![placement.nodes[0]] } else { Vec::new() };
                let nodes = dice.roll(leaving.len() as u64, 2) as u32;
                let change = Change { leaving, nodes, ..Change::default() };
                if let Ok(after) = amend(&mut hall, placement.request.cluster, &change) {
                    prop_assert!(hall.exchange(&after).is_ok(), "{:?}", after);
                }
            }
            if dice.chance(30) {
                hall.free(ClusterId(dice.roll(0, number)));
            }
            prop_assert_eq!(judge(&hall), Vec::<String>::new());
        }
    }
}

/// One unit of four nodes, the first two impaired.
fn small() -> HallSpec {
    let domain = DomainSpec {
        name: "feed".to_owned(),
        capacity_w: 100_000,
        ..DomainSpec::default()
    };
    let node = |at: u32| NodeSpec {
        name: format!("n{at}"),
        unit: Some(UnitId(0)),
        sku: SkuId(0),
        psus: vec![DomainId(0)],
        cooling: Vec::new(),
        labels: Vec::new(),
        excluded: false,
        impaired: at < 2,
    };
    HallSpec {
        tree: Tree {
            spines: 4,
            links_per_spine: 1,
            ..Tree::default()
        },
        pods: vec![PodSpec {
            name: "pod".to_owned(),
            units: vec!["su".to_owned()],
        }],
        skus: vec![placement_common::sku("dgx", 1_000, 1)],
        domains: vec![domain],
        nodes: (0..4).map(node).collect(),
        ..HallSpec::default()
    }
}

fn wish(number: u64, nodes: u32, spares: u32, bandwidth: Bandwidth) -> Request {
    Request {
        spares,
        bandwidth,
        ..Request::plain(ClusterId(number), CustomerId(0), SkuId(0), nodes)
    }
}

#[test]
fn the_size_and_the_bandwidth_decide_about_impaired_nodes() {
    let slower = Bandwidth::Ratio { down: 2, up: 1 };
    let faster = Bandwidth::Ratio { down: 1, up: 2 };
    let hall = Hall::new(small()).unwrap();
    for (nodes, spares, bandwidth, fits) in [
        (2, 0, Bandwidth::FULL, true),
        (3, 0, Bandwidth::FULL, false),
        (2, 1, Bandwidth::FULL, false),
        (3, 0, faster, false),
        (4, 0, slower, true),
        (3, 1, Bandwidth::BestEffort, true),
    ] {
        let planned = plan(&hall, &wish(1, nodes, spares, bandwidth));
        assert_eq!(planned.is_ok(), fits, "{nodes} and {spares} at {bandwidth:?}");
    }
    let refusal = plan(&hall, &wish(1, 3, 0, Bandwidth::FULL)).unwrap_err();
    assert_eq!(
        (&refusal.constraint, refusal.leaves, refusal.proven),
        (&Constraint::Rails, 2, true)
    );
    assert_eq!(
        refusal.to_string(),
        "nodes that lack a rail or have exchanged rails do not join a non-blocking cluster: 2 free nodes of dgx remain, \
         3 are requested; what fits: 2 nodes, or all of them at 2:1 oversubscription"
    );
}

#[test]
fn a_cluster_of_one_impaired_node_stays_one_until_the_node_is_replaced() {
    let mut hall = Hall::new(small()).unwrap();
    let two = plan(&hall, &wish(1, 2, 0, Bandwidth::FULL)).unwrap();
    assert_eq!(two.nodes, [NodeId(2), NodeId(3)]);
    hall.take(&two).unwrap();
    let one = plan(&hall, &wish(2, 1, 0, Bandwidth::FULL)).unwrap();
    assert_eq!(one.nodes, [NodeId(0)]);
    hall.take(&one).unwrap();
    hall.free(ClusterId(1)).unwrap();
    let more = Change {
        nodes: 1,
        ..Change::default()
    };
    let refused = amend(&mut hall, ClusterId(2), &more).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "node n0 lacks a rail or has exchanged rails, so its non-blocking cluster cannot have more nodes; repair the \
         cables of the node, or replace the node first"
    );
    assert_eq!(refused.constraint, Constraint::Rails);
    let replaced = Change {
        leaving: vec![NodeId(0)],
        nodes: 2,
        ..Change::default()
    };
    let grown = amend(&mut hall, ClusterId(2), &replaced).unwrap();
    assert_eq!(grown.nodes, [NodeId(2), NodeId(3)]);
}

#[test]
fn a_cluster_keeps_its_node_that_lost_a_rail_and_gets_no_other_one() {
    let mut whole = small();
    for node in &mut whole.nodes {
        node.impaired = false;
    }
    let mut before = Hall::new(whole).unwrap();
    assert!(before.exclude(NodeId(1)));
    let placed = plan(&before, &wish(1, 3, 0, Bandwidth::FULL)).unwrap();
    assert_eq!(placed.nodes, [NodeId(0), NodeId(2), NodeId(3)]);
    let mut hall = Hall::new(small()).unwrap();
    assert_eq!(hall.take(&placed), Err(TakeError::NotAdmitted(NodeId(0))));
    hall.adopt(&placed).unwrap();
    // Only the other impaired node is free.
    for leaving in [Vec::new(), vec![NodeId(3)]] {
        let change = Change {
            leaving,
            nodes: 1,
            ..Change::default()
        };
        let refused = amend(&mut hall, ClusterId(1), &change).unwrap_err();
        assert_eq!(refused.constraint, Constraint::Rails, "{refused}");
    }
    assert_eq!(hall.clusters()[&ClusterId(1)], placed);
}
