//! Links that break under clusters: new clusters do not use them, and a changed cluster leaves them if there are
//! others.

#![allow(clippy::unwrap_used)] // helpers of tests fail loudly

#[path = "../../placement/tests/placement_common/mod.rs"]
mod placement_common;

use std::collections::{BTreeMap, BTreeSet};

use placement_common::{Dice, Size, hall_spec, judge, request, seed};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use rackwright_placement::*;
use rackwright_planner::hall::site_node;
use rackwright_planner::planner::Planner;
use rackwright_site::file::{Source, check};
use rackwright_site::generate::{ReferenceSku, Request as Reference, site_file};
use rackwright_site::model::{Port, Site, SwitchRole};

const WIDE: Size = Size {
    pods: (1, 3),
    units: (2, 4),
    hosts: (3, 5),
    parallel: 2,
};

/// The broken links, by unit, and by pod and spine.
#[derive(Default)]
struct Broken {
    uplinks: BTreeMap<u32, Mask>,
    cores: BTreeMap<(u32, u32), Mask>,
}

impl Broken {
    fn some(dice: &mut Dice, hall: &Hall) -> Self {
        let mut broken = Self::default();
        let any = |dice: &mut Dice, all: Mask| u128::from(dice.next()) & u128::from(dice.next()) & all;
        let wirings = hall.wirings(PodId(0));
        let mut unit = 0;
        for (pod, given) in hall.spec().pods.iter().enumerate() {
            for _ in &given.units {
                broken.uplinks.insert(unit, any(dice, wirings.spines.all()));
                unit += 1;
            }
            for spine in 0..wirings.spines.peers {
                broken.cores.insert((pod as u32, spine), any(dice, wirings.cores.all()));
            }
        }
        broken
    }

    fn set(&self, hall: &mut Hall) {
        for (&unit, &mask) in &self.uplinks {
            assert!(hall.set_broken_uplinks(UnitId(unit), mask));
        }
        for (&(pod, spine), &mask) in &self.cores {
            assert!(hall.set_broken_cores(PodId(pod), spine, mask));
        }
    }

    /// Number of broken links in a placement.
    fn held_by(&self, placement: &Placement) -> u32 {
        let units = placement.units.iter().map(|share| {
            let broken = self.uplinks.get(&share.unit.0).copied().unwrap_or(0);
            (share.links & broken).count_ones()
        });
        let cores = placement.cores.iter().map(|share| {
            let broken = self.cores.get(&(share.pod.0, share.spine)).copied().unwrap_or(0);
            (share.links & broken).count_ones()
        });
        units.sum::<u32>() + cores.sum::<u32>()
    }
}

fn all_is_free(hall: &Hall) -> bool {
    let wirings = hall.wirings(PodId(0));
    let units: usize = hall.spec().pods.iter().map(|pod| pod.units.len()).sum();
    let uplinks = (0..units).all(|unit| hall.free_uplinks(UnitId(unit as u32)) == wirings.spines.all());
    let pods = 0..hall.spec().pods.len() as u32;
    let mut places = pods.flat_map(|pod| (0..wirings.spines.peers).map(move |spine| (pod, spine)));
    uplinks && places.all(|(pod, spine)| hall.free_core_links(PodId(pod), spine) == wirings.cores.all())
}

fn fill(hall: &mut Hall, dice: &mut Dice, from: u64) -> Vec<Placement> {
    let mut placed = Vec::new();
    for number in from..from + 4 {
        let wish = request(dice, hall.spec(), number);
        if let Ok(placement) = plan(hall, &wish) {
            hall.take(&placement).unwrap();
            placed.push(placement);
        }
    }
    placed
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 500,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(seed()),
        ..ProptestConfig::default()
    })]

    #[test]
    fn nobody_new_counts_on_a_broken_link(seed: u64) {
        let mut dice = Dice::new(seed);
        let mut hall = Hall::new(hall_spec(&mut dice, WIDE)).unwrap();
        let before = fill(&mut hall, &mut dice, 0);
        let broken = Broken::some(&mut dice, &hall);
        broken.set(&mut hall);
        for placement in fill(&mut hall, &mut dice, 10) {
            prop_assert_eq!(broken.held_by(&placement), 0, "{:?}", placement);
        }
        // Every traffic pattern works on the working links, and no cluster has lost a link.
        prop_assert_eq!(judge(&hall), Vec::<String>::new());
        for placement in &before {
            prop_assert_eq!(placement, &hall.clusters()[&placement.request.cluster]);
        }
        for placement in &before {
            let number = placement.request.cluster;
            let change = Change {
                leaving: vec![placement.nodes[0]],
                nodes: 1,
                ..Change::default()
            };
            if let Ok(after) = amend(&mut hall, number, &change) {
                let (was, is) = (broken.held_by(placement), broken.held_by(&after));
                prop_assert!(is <= was, "a change brings no broken link: {was}, {is}");
                prop_assert!(hall.exchange(&after).is_ok(), "{:?}", after);
                prop_assert_eq!(judge(&hall), Vec::<String>::new());
            }
        }
        // Repaired links are free for all clusters, and none is lost.
        let live: Vec<ClusterId> = hall.clusters().keys().copied().collect();
        for cluster in live {
            hall.free(cluster).unwrap();
        }
        for (&unit, &mask) in &broken.uplinks {
            prop_assert_eq!(hall.free_uplinks(UnitId(unit)), hall.wirings(PodId(0)).spines.all() & !mask);
        }
        let none = Broken {
            uplinks: broken.uplinks.keys().map(|&unit| (unit, 0)).collect(),
            cores: broken.cores.keys().map(|&place| (place, 0)).collect(),
        };
        none.set(&mut hall);
        prop_assert!(all_is_free(&hall));
    }
}

fn site(nodes: usize) -> Site {
    let mut text = site_file(&Reference::new(ReferenceSku::DgxH100, nodes)).unwrap();
    text.push_str("---\ncustomers:\n- {name: acme}\n");
    let name = "site.yaml";
    let checked = check(&[Source { name, text: &text }]);
    checked.site.unwrap_or_else(|| panic!("{:?}", checked.findings.list))
}

/// The labels of the cables between switches of two roles.
fn cables(site: &Site, low: SwitchRole, high: SwitchRole) -> Vec<String> {
    let role = |port: Port| match port {
        Port::Switch { switch, .. } => Some(site.switch(switch).role),
        Port::Hca { .. } => None,
    };
    let is = |cable: &&rackwright_site::model::Cable| {
        let ends = [role(cable.a), role(cable.b)];
        ends.contains(&Some(low)) && ends.contains(&Some(high))
    };
    let found = site.cables.iter().filter(is);
    found.map(|cable| cable.label.to_string()).collect()
}

fn wish(number: u64, nodes: u32) -> Request {
    Request::plain(ClusterId(number), CustomerId(0), SkuId(0), nodes)
}

/// Each cable, broken alone under a cluster that fills the hall, is one that the cluster uses. If it is broken before,
/// no such cluster fits.
#[test]
fn every_cable_between_switches_is_found_in_the_hall() {
    for nodes in [128, 2_048] {
        let site = site(nodes);
        let mut planner = Planner::new(&site).unwrap();
        let all = planner.place(wish(1, nodes as u32)).unwrap();
        let live = [planner.named(&all)];
        let mut labels = cables(&site, SwitchRole::Leaf, SwitchRole::Spine);
        assert!(!labels.is_empty());
        let upper = cables(&site, SwitchRole::Spine, SwitchRole::Core);
        assert_eq!(upper.is_empty(), nodes == 128);
        labels.extend(upper);
        for label in labels.iter().step_by(labels.len() / 4) {
            let one: BTreeSet<String> = [label.clone()].into();
            let counting = planner.counting_on(&live, &one);
            assert_eq!(counting, [(label.clone(), vec![0])].into(), "{nodes} nodes");
            let mut other = Planner::new(&site).unwrap();
            assert_eq!(other.break_links(&one), 1);
            assert!(
                other.place(wish(1, nodes as u32)).is_err(),
                "{nodes} nodes without {label}"
            );
            // A smaller cluster avoids the broken link.
            let less = other.place(wish(1, nodes as u32 - 32)).unwrap();
            let counting = other.counting_on(&[other.named(&less)], &one);
            assert!(counting.is_empty(), "{counting:?}");
            // The link is repaired.
            assert_eq!(other.break_links(&BTreeSet::new()), 0);
            other.release(ClusterId(1)).unwrap();
            assert!(other.place(wish(1, nodes as u32)).is_ok());
        }
    }
}

#[test]
fn a_live_cluster_keeps_its_broken_link_until_a_change_finds_another() {
    let site = site(128);
    let mut planner = Planner::new(&site).unwrap();
    let placed = planner.place(wish(1, 40)).unwrap();
    let live = [planner.named(&placed)];
    let labels = cables(&site, SwitchRole::Leaf, SwitchRole::Spine);
    let mut held = labels.iter().map(|label| BTreeSet::from([label.clone()]));
    let held = held.find(|one| !planner.counting_on(&live, one).is_empty());
    let held = held.expect("a cable that the cluster counts on");
    // Placement ignores cables of nodes and unknown cables.
    let mut named = held.clone();
    named.extend(["no such cable".to_owned(), site.cables[0].label.to_string()]);
    assert_eq!(planner.break_links(&named), 1);
    assert_eq!(planner.placement(ClusterId(1)), Some(&placed));
    let bad = site_node(placed.nodes[0]);
    let swap = planner.replace(ClusterId(1), bad, &[]).unwrap();
    let counting = planner.counting_on(&[planner.named(&swap.placement)], &held);
    assert!(counting.is_empty(), "there are other links: {counting:?}");
}
