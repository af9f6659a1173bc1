//! A random cluster of a reference site, one broken part, and simulated rates: the fault names this part and no healthy
//! one.

#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use rackwright_health::groups::{Culprit, Element, Outcome, Search};
use rackwright_planner::network::{
    ALL_PAIRS, Judgement, Kind, Lane, Part, Round, Rule, Summary, Test, Topology, Transport, Usual, follow_up, judge,
    parts_of, rows, schedule, shifts,
};
use rackwright_site::file::{Source, check};
use rackwright_site::generate::{ReferenceSku, Request, site_file};
use rackwright_site::model::{Port, Site};

const RULE: Rule = Rule {
    floor_gbit_per_s: 0.0,
    share_of_usual: 0.8,
};
const RATE: f64 = 100.0;

fn site(nodes: usize) -> Site {
    let text = site_file(&Request::new(ReferenceSku::DgxH100, nodes)).unwrap();
    let checked = check(&[Source { name: "s", text: &text }]);
    checked.site.unwrap()
}

thread_local! {
    static SITE: Site = site(128);
}

/// The broken part.
#[derive(Debug, Clone, PartialEq)]
enum Broken {
    Nothing,
    Node(usize),
    End(usize, Lane),
    Leaf(usize),
    /// The cable from a leaf to the spine with this index.
    Uplink(usize, usize),
}

/// The real fabric, which the judge does not know. The destination's number selects the spine.
struct Fabric<'a> {
    topology: &'a Topology,
    broken: Broken,
    spines: usize,
    seed: u64,
}

impl Fabric<'_> {
    /// A factor from 0.97 to 1.03, derived from the pair.
    fn noise(&self, a: usize, b: usize, lane: Lane) -> f64 {
        let Lane::Hca(hca) = lane else { return 1.0 };
        let mixed =
            (self.seed ^ (a as u64) << 20 ^ (b as u64) << 8 ^ u64::from(hca)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        0.97 + 0.06 * ((mixed >> 40) as f64 / (1_u64 << 24) as f64)
    }

    fn one_way(&self, a: usize, b: usize, lane: Lane) -> f64 {
        let leaf = |node| self.topology.leaf(node, lane).unwrap();
        let spine = b % self.spines;
        let hit = match &self.broken {
            Broken::Nothing => false,
            Broken::Node(node) => a == *node || b == *node,
            Broken::End(node, bad) => (a == *node || b == *node) && *bad == lane,
            Broken::Leaf(bad) => leaf(a) == *bad || leaf(b) == *bad,
            Broken::Uplink(bad, to) => leaf(a) != leaf(b) && (leaf(a) == *bad || leaf(b) == *bad) && spine == *to,
        };
        RATE * self.noise(a, b, lane) * if hit { 0.4 } else { 1.0 }
    }

    fn test(&self, a: usize, b: usize, lane: Lane) -> Test {
        Test {
            a,
            b,
            lane,
            transport: Transport::Rdma,
            gbit_per_s: self.one_way(a, b, lane).min(self.one_way(b, a, lane)),
            p99_us: 9.0,
            retransmits: 0,
            error: None,
        }
    }

    fn tests(&self, rounds: &[Round], lanes: u8) -> Vec<Test> {
        let pairs = rounds.iter().flatten();
        pairs
            .flat_map(|(a, b)| (0..lanes).map(move |hca| self.test(*a, *b, Lane::Hca(hca))))
            .collect()
    }

    /// Runs the tests as the control plane does.
    fn judged(&self, lanes: u8) -> Judgement {
        let all = (0..self.topology.len()).collect();
        let mut tests = self.tests(&schedule(self.topology, &all), lanes);
        let mut found = judge(self.topology, &tests, &RULE, &Usual::new());
        for _ in 0..2 {
            if found.faults.is_empty() {
                break;
            }
            let more = follow_up(self.topology, &found.tests, &found.bad);
            tests.extend(self.tests(&more, lanes));
            found = judge(self.topology, &tests, &RULE, &Usual::new());
        }
        found
    }
}

fn each_node_once(rounds: &[Round]) {
    for round in rounds {
        let nodes: Vec<usize> = round.iter().flat_map(|(a, b)| [*a, *b]).collect();
        let different: BTreeSet<usize> = nodes.iter().copied().collect();
        assert_eq!(nodes.len(), different.len(), "{round:?}");
    }
}

fn names(places: &BTreeSet<usize>) -> Vec<String> {
    SITE.with(|site| places.iter().map(|at| site.nodes[*at].name.to_string()).collect())
}

fn topology(places: &BTreeSet<usize>) -> Topology {
    SITE.with(|site| Topology::of_site(site, &names(places)))
}

/// The cluster's nodes under each leaf of a lane.
fn members(topology: &Topology, lane: Lane) -> BTreeMap<usize, Vec<usize>> {
    let mut members: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for node in 0..topology.len() {
        members
            .entry(topology.leaf(node, lane).unwrap())
            .or_default()
            .push(node);
    }
    members
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn the_broken_part_is_named_and_no_healthy_one(
        places in prop::collection::btree_set(0_usize..128, 3..60),
        kind in 0_usize..5,
        pick in any::<prop::sample::Index>(),
        hca in 0_u8..8,
        spine in 0_usize..4,
        lanes in prop::sample::select(vec![1_u8, 8]),
        seed in any::<u64>(),
    ) {
        let topology = topology(&places);
        let lane = Lane::Hca(hca % lanes);
        let node = pick.index(topology.len());
        let leaf = topology.leaf(node, lane).unwrap();
        let broken = match kind {
            0 => Broken::Nothing,
            1 => Broken::Node(node),
            2 => Broken::End(node, lane),
            3 => Broken::Leaf(leaf),
            _ => Broken::Uplink(leaf, spine),
        };
        let fabric = Fabric { topology: &topology, broken: broken.clone(), spines: 4, seed };
        let found = fabric.judged(lanes);
        let under = members(&topology, lane)[&leaf].len();
        let elsewhere = topology.len() - under;
        let named: Vec<&Vec<Part>> = found.faults.iter().map(|fault| &fault.parts).collect();
        match broken {
            Broken::Nothing => prop_assert!(named.is_empty(), "{named:?}"),
            Broken::Node(node) if lanes > 1 => {
                prop_assert_eq!(&named, &[&vec![Part::Node(node)]]);
                prop_assert_eq!(found.faults[0].node(), Some(node));
            }
            Broken::Node(node) => prop_assert!(named.len() == 1 && named[0].contains(&Part::End(node, lane)), "{named:?}"),
            Broken::End(node, lane) => {
                prop_assert!(named.len() == 1 && named[0].contains(&Part::End(node, lane)), "{named:?}");
                // With another node under the same leaf, the result is unambiguous.
                if under > 1 {
                    prop_assert_eq!(named[0], &vec![Part::End(node, lane)]);
                }
            }
            // If the leaf has all nodes of a single lane, there is no comparison.
            Broken::Leaf(_) if lanes == 1 && elsewhere < 2 * under => {}
            Broken::Leaf(leaf) => {
                prop_assert!(named.len() == 1 && named[0].contains(&Part::Leaf(leaf)), "{named:?}");
                if under > 1 {
                    prop_assert_eq!(named[0], &vec![Part::Leaf(leaf)]);
                }
            }
            Broken::Uplink(leaf, _) => {
                for parts in &named {
                    prop_assert!(parts.contains(&Part::Uplinks(leaf)), "{named:?}");
                }
                prop_assert_eq!(named.is_empty(), !found.bad.contains(&true));
                prop_assert!(found.faults.iter().all(|fault| fault.node().is_none()), "{named:?}");
            }
        }
    }

    #[test]
    fn rounds_are_few_and_reach_everybody(places in prop::collection::btree_set(0_usize..128, 2..128)) {
        let topology = topology(&places);
        let n = topology.len();
        let rounds = schedule(&topology, &(0..n).collect());
        each_node_once(&rounds);
        let pairs: BTreeSet<(usize, usize)> = rounds.iter().flatten().map(|(a, b)| (*a.min(b), *a.max(b))).collect();
        prop_assert_eq!(pairs.len(), rounds.iter().map(Vec::len).sum::<usize>(), "no pair twice");
        if n <= ALL_PAIRS {
            prop_assert_eq!(pairs.len(), n * (n - 1) / 2);
            prop_assert!(rounds.len() <= n);
        } else {
            let leaves = members(&topology, Lane::Hca(0));
            let log = usize::BITS - n.leading_zeros();
            prop_assert!(rounds.len() <= 2 * log as usize + leaves.len());
            for node in 0..n {
                let of = pairs.iter().filter(|(a, b)| *a == node || *b == node).count();
                prop_assert!(of >= 4, "node {node} has {of} tests");
            }
            for (x, y) in leaves.keys().flat_map(|x| leaves.keys().map(move |y| (x, y))).filter(|(x, y)| x < y) {
                let between = |(a, b): &&(usize, usize)| {
                    let ends = [*a, *b].map(|node| topology.leaf(node, Lane::Hca(0)).unwrap());
                    ends.contains(x) && ends.contains(y)
                };
                prop_assert!(pairs.iter().any(|pair| between(&pair)), "leaves {x} and {y}");
            }
        }
        for shift in shifts(&topology) {
            let from: BTreeSet<usize> = shift.iter().map(|(a, _)| *a).collect();
            let to: BTreeSet<usize> = shift.iter().map(|(_, b)| *b).collect();
            prop_assert_eq!((from.len(), to.len()), (n, n));
            prop_assert!(shift.iter().all(|(a, b)| a != b));
        }
    }
}

#[test]
fn a_cable_is_named_by_its_label_and_both_its_ends() {
    let places = (0..6).collect();
    let topology = topology(&places);
    let fabric = Fabric {
        topology: &topology,
        broken: Broken::End(2, Lane::Hca(3)),
        spines: 4,
        seed: 1,
    };
    let found = fabric.judged(8);
    let words = found.faults[0].words(&topology, &found.tests, &found.wanted);
    let expected = SITE.with(|site| {
        let node = site.node_named(topology.name(2)).unwrap();
        let is_it = |port| port == Port::Hca { node, hca: 3 };
        let cable = site
            .cables
            .iter()
            .find(|cable| is_it(cable.a) || is_it(cable.b))
            .unwrap();
        let far = if is_it(cable.a) { cable.b } else { cable.a };
        let far = site.port_name(far).replace('/', " port ");
        format!("cable {}: node {} mlx5_5 to {far}; ", cable.label, topology.name(2))
    });
    assert!(words.starts_with(&expected), "{words} / {expected}");
    assert!(
        words.contains("Gbit/s, but at least") && words.contains(topology.name(2)),
        "{words}"
    );
    assert_eq!(found.faults[0].node(), Some(2));
}

#[test]
fn only_pairs_with_a_new_node_are_tested_again_and_it_is_held_against_the_others() {
    let places = (0..40).collect();
    let topology = topology(&places);
    let rounds = schedule(&topology, &[7].into());
    assert!(rounds.iter().flatten().all(|(a, b)| *a == 7 || *b == 7));
    assert!((4..=16).contains(&rounds.len()), "{}", rounds.len());
    let fabric = Fabric {
        topology: &topology,
        broken: Broken::Node(7),
        spines: 4,
        seed: 1,
    };
    let tests = fabric.tests(&rounds, 8);
    // All its tests are slow, so a low rate seems usual.
    assert!(judge(&topology, &tests, &RULE, &Usual::new()).faults.is_empty());
    let found = judge(&topology, &tests, &RULE, &[(Kind::Rdma, RATE)].into());
    assert_eq!(found.faults[0].parts, [Part::Node(7)]);
}

#[test]
fn two_nodes_are_not_told_from_each_other_and_nobody_is_blamed() {
    let names = ["a".to_owned(), "b".to_owned()];
    let topology = Topology::bare(&names);
    let slow = Test {
        a: 0,
        b: 1,
        lane: Lane::Address,
        transport: Transport::Tcp(None),
        gbit_per_s: 0.01,
        p99_us: 900.0,
        retransmits: 4,
        error: None,
    };
    let rule = Rule {
        floor_gbit_per_s: 0.1,
        ..RULE
    };
    let found = judge(&topology, std::slice::from_ref(&slow), &rule, &Usual::new());
    assert_eq!(found.faults[0].node(), None);
    let words = found.faults[0].words(&topology, &found.tests, &found.wanted);
    assert_eq!(
        words,
        "one of: node a: its network interface or the cable to it | node b: its network interface or the cable to it; \
         a – b: 0.01 Gbit/s, but at least 0.10 Gbit/s is required"
    );
    // The better of two tests counts.
    let again = Test {
        gbit_per_s: 1.0,
        ..slow.clone()
    };
    assert!(judge(&topology, &[slow, again], &rule, &Usual::new()).faults.is_empty());
}

#[test]
fn the_report_says_what_was_measured() {
    let topology = topology(&(0..5).collect());
    let fabric = Fabric {
        topology: &topology,
        broken: Broken::Nothing,
        spines: 4,
        seed: 3,
    };
    let found = fabric.judged(8);
    let summary = Summary {
        all_at_once: vec![vec![90.0, 80.0, 95.0, 90.0, 91.0]],
        rounds: 5,
        seconds: 2.0,
    };
    let rows = rows("alpha", &topology, &found, &summary);
    let checks: Vec<&str> = rows.iter().map(|row| row.check.as_str()).collect();
    assert_eq!(checks, ["network-pairs", "network-slowest-pair", "network-all-nodes"]);
    let words = "RDMA between nodes by their adapters, both ways, 5 rounds of 2.0 s: 80 tests, 0 bad; usual ";
    assert!(rows[0].measured.starts_with(words), "{}", rows[0].measured);
    assert!(!rows[0].measured.contains("segments"), "{}", rows[0].measured);
    assert!(
        rows[2]
            .measured
            .contains("all at once, by RDMA: 446.0 Gbit/s together, the slowest 80.0 Gbit/s"),
        "{}",
        rows[2].measured
    );
}

#[test]
fn tcp_is_compared_with_tcp_and_the_report_says_why_it_was_not_rdma() {
    let topology = topology(&(0..6).collect());
    let fabric = Fabric {
        topology: &topology,
        broken: Broken::Nothing,
        spines: 4,
        seed: 3,
    };
    let mut tests = fabric.tests(&schedule(&topology, &(0..6).collect()), 1);
    // One node's system lacks RDMA, and TCP is much slower.
    for test in tests.iter_mut().filter(|test| test.a == 2 || test.b == 2) {
        test.transport = Transport::Tcp(Some("there: libibverbs.so.1 cannot be loaded".into()));
        test.gbit_per_s /= 5.0;
    }
    let found = judge(&topology, &tests, &RULE, &Usual::new());
    assert!(found.faults.is_empty(), "{:?}", found.faults);
    let summary = Summary {
        all_at_once: vec![vec![90.0; 6]],
        rounds: 5,
        seconds: 2.0,
    };
    let rows = rows("alpha", &topology, &found, &summary);
    let words = "TCP between nodes by their adapters (no RDMA: there: libibverbs.so.1 cannot be loaded), both ways";
    assert!(rows[0].measured.starts_with(words), "{}", rows[0].measured);
    assert!(rows[0].measured.contains(": 5 tests, 0 bad;"), "{}", rows[0].measured);
    assert!(rows[2].measured.starts_with("RDMA between"), "{}", rows[2].measured);
    assert!(rows[4].measured.contains("by RDMA and TCP"), "{}", rows[4].measured);
    // The minimum rate of the profile applies to TCP as well.
    let rule = Rule {
        floor_gbit_per_s: RATE / 2.0,
        ..RULE
    };
    let found = judge(&topology, &tests, &rule, &Usual::new());
    assert_eq!(found.faults.len(), 1);
    assert_eq!(found.faults[0].node(), Some(2));
}

#[test]
fn a_search_by_groups_names_the_cable_of_a_slow_lane_and_a_leaf() {
    let topology = topology(&(0..128).collect());
    let homes = topology.homes();
    let found = |fails: &dyn Fn(usize) -> Option<Element>| {
        let mut search = Search::new(&homes);
        loop {
            let tests = search.next_round();
            if tests.is_empty() {
                return search.conclusion().culprits;
            }
            let outcome = |nodes: &[usize]| {
                let weakest = nodes.iter().find_map(|node| Some((*node, fails(*node)?)));
                weakest.map_or(Outcome::Passed, |weakest| Outcome::Slow(Some(weakest)))
            };
            search.record(&tests.iter().map(|test| outcome(&test.nodes)).collect::<Vec<_>>());
        }
    };
    let culprits = found(&|node| (node == 93).then_some(Element::Hca(3)));
    let parts: Vec<Part> = culprits.iter().flat_map(parts_of).collect();
    assert_eq!(parts, [Part::End(93, Lane::Hca(3))]);
    let words = topology.words(parts[0]);
    assert!(
        words.starts_with("cable ") && words.contains(topology.name(93)),
        "{words}"
    );
    // Every node of one leaf fails: the leaf is named, as the tests of pairs name it.
    let leaf = homes[0];
    let culprits = found(&|node| (homes[node] == leaf).then_some(Element::Hca(0)));
    let parts: Vec<Part> = culprits.iter().flat_map(parts_of).collect();
    assert_eq!(parts, [Part::Leaf(leaf.unwrap())], "{culprits:?}");
    assert_eq!(parts_of(&Culprit::OneOf(vec![4, 5])), [Part::Node(4), Part::Node(5)]);
    assert_eq!(parts_of(&Culprit::Across), [Part::Above]);
}
