//! Clusters grow, shrink and swap nodes in random halls. Remaining nodes do not move, and every promise holds after
//! each change. The judge works from the definitions.

#![allow(clippy::unwrap_used)] // helpers of tests fail loudly

mod placement_common;

use std::collections::BTreeSet;

use placement_common::{Dice, Size, TINY, hall_spec, judge, request, seed};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use rackwright_placement::*;

const WIDE: Size = Size {
    pods: (1, 3),
    units: (2, 4),
    hosts: (3, 5),
    parallel: 2,
};

fn nodes_of(placement: &Placement) -> BTreeSet<NodeId> {
    placement.nodes.iter().chain(&placement.spares).copied().collect()
}

/// A reasonable change for a cluster.
fn change(dice: &mut Dice, placement: &Placement) -> Change {
    let mut change = Change::default();
    let all: Vec<NodeId> = nodes_of(placement).into_iter().collect();
    let any = all[dice.roll(0, all.len() as u64 - 1) as usize];
    match dice.roll(0, 4) {
        0 => change.nodes = dice.roll(1, 4) as u32,
        1 => change.spares = 1,
        2 => change.leaving = vec![any],
        3 if !placement.spares.is_empty() => {
            change.leaving = vec![placement.nodes[0]];
            change.promoted = vec![placement.spares[0]];
        }
        _ => {
            change.leaving = vec![any];
            let spare = placement.spares.contains(&any);
            change.nodes = u32::from(!spare);
            change.spares = u32::from(spare);
            change.first = placement.units.first().map(|u| u.unit);
        }
    }
    change
}

/// Makes one change and checks its result.
fn one_change(
    hall: &mut Hall,
    dice: &mut Dice,
    cluster: ClusterId,
    out: &BTreeSet<NodeId>,
) -> Result<bool, TestCaseError> {
    let before = hall.clusters()[&cluster].clone();
    let wanted = change(dice, &before);
    let text = format!("{:?}", hall.clusters());
    let found = amend(hall, cluster, &wanted);
    prop_assert_eq!(&text, &format!("{:?}", hall.clusters()), "the search changes nothing");
    let placement = match found {
        Ok(placement) => placement,
        Err(refusal) => {
            prop_assert!(!refusal.to_string().is_empty());
            let only_less = wanted.nodes + wanted.spares == 0;
            prop_assert!(
                !only_less || before.nodes.len() == 1,
                "nodes can always leave: {refusal}"
            );
            return Ok(false);
        }
    };
    hall.exchange(&placement).unwrap();
    let (was, is) = (nodes_of(&before), nodes_of(&placement));
    let leaving: BTreeSet<NodeId> = wanted.leaving.iter().copied().collect();
    let stays: BTreeSet<NodeId> = was.difference(&leaving).copied().collect();
    prop_assert!(is.is_superset(&stays), "who stays, stays");
    let joined: BTreeSet<NodeId> = is.difference(&was).copied().collect();
    prop_assert_eq!(joined.len() as u32, wanted.nodes + wanted.spares);
    prop_assert!(joined.is_disjoint(out), "nobody gets a node that is out of service");
    prop_assert!(is.is_disjoint(&leaving));
    for spare in before
        .spares
        .iter()
        .filter(|s| stays.contains(s) && !wanted.promoted.contains(s))
    {
        prop_assert!(placement.spares.contains(spare), "a spare stays a spare");
    }
    prop_assert!(hall.check_rule(&placement).is_ok());
    Ok(true)
}

fn life(seed: u64, size: Size) -> Result<u32, TestCaseError> {
    let mut dice = Dice::new(seed);
    let spec = hall_spec(&mut dice, size);
    let mut hall = Hall::new(spec).unwrap();
    let mut changed = 0;
    let mut out = BTreeSet::new();
    for step in 0..12 {
        let live: Vec<ClusterId> = hall.clusters().keys().copied().collect();
        let any = |dice: &mut Dice| live[dice.roll(0, live.len() as u64 - 1) as usize];
        match dice.roll(0, 9) {
            0..=2 => {
                let mut wish = request(&mut dice, hall.spec(), step);
                wish.nodes = wish.nodes.min(6);
                if let Some(placement) = find(&hall, &wish, 20_000) {
                    hall.take(&placement).unwrap();
                }
            }
            3 if !live.is_empty() => {
                let cluster = any(&mut dice);
                if dice.chance(50) {
                    hall.free(cluster).unwrap();
                } else {
                    assert!(hall.commit(cluster));
                }
            }
            4 => {
                let node = NodeId(dice.roll(0, hall.spec().nodes.len() as u64 - 1) as u32);
                hall.exclude(node);
                out.insert(node);
            }
            _ if !live.is_empty() => {
                let cluster = any(&mut dice);
                let node = hall.clusters()[&cluster].nodes[0];
                let node_status = hall.node_status(node);
                changed += u32::from(one_change(&mut hall, &mut dice, cluster, &out)?);
                if hall.clusters()[&cluster].nodes.contains(&node) {
                    prop_assert_eq!(hall.node_status(node), node_status, "committed stays committed");
                }
            }
            _ => {}
        }
        prop_assert_eq!(judge(&hall), Vec::<String>::new(), "step {}", step);
    }
    empties(&mut hall, &out)?;
    Ok(changed)
}

/// Without clusters, nothing is taken.
fn empties(hall: &mut Hall, out: &BTreeSet<NodeId>) -> Result<(), TestCaseError> {
    let live: Vec<ClusterId> = hall.clusters().keys().copied().collect();
    live.into_iter().for_each(|cluster| _ = hall.free(cluster));
    out.iter().for_each(|&node| {
        if !hall.spec().nodes[node.at()].excluded {
            hall.restore(node);
        }
    });
    let mut fresh = Hall::new(hall.spec().clone()).unwrap();
    for (at, node) in hall.spec().nodes.iter().enumerate().filter(|(_, n)| n.excluded) {
        assert!(node.excluded && fresh.exclude(NodeId(at as u32)));
    }
    prop_assert_eq!(format!("{hall:?}"), format!("{fresh:?}"));
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 700,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(seed()),
        ..ProptestConfig::default()
    })]

    #[test]
    fn every_promise_holds_after_every_change(seed: u64) {
        life(seed, TINY)?;
        life(seed, WIDE)?;
    }
}

/// The property alone would also hold for a search that refuses everything.
#[test]
fn most_changes_that_fit_are_made() {
    let changed: u32 = (0..200).map(|seed| life(seed, WIDE).unwrap()).sum();
    assert!(changed > 500, "{changed}");
}

/// Growth within a cluster's units succeeds whenever a new search succeeds.
#[test]
fn growth_within_one_unit_is_found_whenever_there_is_room() {
    let mut dice = Dice::new(3);
    let mut grown = 0;
    for _ in 0..200 {
        let mut spec = hall_spec(&mut dice, WIDE);
        spec.skus.truncate(1);
        spec.contracts.clear();
        spec.nodes
            .iter_mut()
            .for_each(|n| (n.sku, n.excluded) = (SkuId(0), false));
        spec.domains.iter_mut().for_each(|d| d.capacity_w = u64::MAX / 4);
        spec.cooling.iter_mut().for_each(|c| c.capacity_w = u64::MAX / 4);
        let in_unit = spec.nodes.iter().filter(|n| n.unit == Some(UnitId(0))).count() as u32;
        let mut hall = Hall::new(spec).unwrap();
        let placement = plan(&hall, &Request::plain(ClusterId(1), CustomerId(0), SkuId(0), 1)).unwrap();
        hall.take(&placement).unwrap();
        let more = in_unit - 1;
        let placement = amend(
            &mut hall,
            ClusterId(1),
            &Change {
                nodes: more,
                ..Change::default()
            },
        )
        .unwrap();
        hall.exchange(&placement).unwrap();
        assert_eq!((placement.units.len(), placement.units[0].links), (1, 0));
        // Growth into another unit: the first unit gets links, too.
        let wide = hall.wirings(PodId(0)).spines.all() != 0;
        let beyond = amend(
            &mut hall,
            ClusterId(1),
            &Change {
                nodes: 1,
                ..Change::default()
            },
        );
        let placement = beyond.unwrap();
        assert!(wide && placement.units.iter().all(|u| u.links != 0), "{placement:?}");
        hall.exchange(&placement).unwrap();
        assert_eq!(judge(&hall), Vec::<String>::new());
        // Back to one unit, which needs no links.
        let last: Vec<NodeId> = nodes_of(&placement)
            .into_iter()
            .filter(|n| hall.spec().nodes[n.at()].unit == Some(UnitId(0)))
            .collect();
        let leaving: Vec<NodeId> = nodes_of(&placement).into_iter().filter(|n| !last.contains(n)).collect();
        let placement = amend(
            &mut hall,
            ClusterId(1),
            &Change {
                leaving,
                ..Change::default()
            },
        )
        .unwrap();
        assert!(placement.units.len() == 1 && placement.units[0].links == 0 && placement.cores.is_empty());
        grown += 1;
    }
    assert_eq!(grown, 200);
}
