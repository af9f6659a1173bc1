//! Who is tested with whom, in which order. In a round no node is in two pairs: what a pair gives is not what another took.

use std::collections::{BTreeMap, BTreeSet};

use super::{Test, Topology};

/// Up to so many nodes every pair is tested.
pub const ALL_PAIRS: usize = 16;
/// Up to so many leaves every pair of them is.
const ALL_LEAF_PAIRS: usize = 32;
/// Good nodes of each kind (same leaf, another) that a doubtful one is tested with.
const GOOD_PEERS: usize = 2;
/// More doubtful nodes than these are no fault of single nodes.
const MOST_DOUBTFUL: usize = 64;

/// Pairs of nodes, each node at most once.
pub type Round = Vec<(usize, usize)>;

/// The rounds of a cluster.
///
/// Up to [`ALL_PAIRS`] nodes all pairs, as in a round-robin tournament. Beyond that each node with those at distance 1, 2, 4, ...
/// on both sides, in the order in which they stand, which is 2 log2 n rounds at most: first within leaves, then across them. And every pair
/// of leaves once. Only pairs with a node of `fresh` are left.
#[must_use]
pub fn schedule(topology: &Topology, fresh: &BTreeSet<usize>) -> Vec<Round> {
    let order = topology.order();
    let rounds = if order.len() <= ALL_PAIRS {
        tournament(order.len())
    } else {
        let mut rounds = doubling(order.len());
        rounds.extend(leaf_pairs(topology, &order));
        rounds
    };
    let real = |(a, b): (usize, usize)| (order[a], order[b]);
    let mut seen = BTreeSet::new();
    let mut kept = Vec::new();
    for round in rounds {
        let pairs = round.into_iter().map(real);
        let wanted = pairs.filter(|(a, b)| fresh.contains(a) || fresh.contains(b));
        let new: Round = wanted.filter(|(a, b)| seen.insert((*a.min(b), *a.max(b)))).collect();
        if !new.is_empty() {
            kept.push(new);
        }
    }
    kept
}

/// All pairs by the circle method: one stays, the others go round.
fn tournament(nodes: usize) -> Vec<Round> {
    let seats = nodes + nodes % 2;
    let rounds = 0..seats.saturating_sub(1);
    let pairs = |turn: usize| {
        let at = |place: usize| {
            if place == 0 {
                0
            } else {
                1 + (place - 1 + turn) % (seats - 1)
            }
        };
        let all = (0..seats / 2).map(|place| (at(place), at(seats - 1 - place)));
        // With an odd number somebody rests: whoever meets the seat that nobody has.
        all.filter(|(a, b)| *a < nodes && *b < nodes).collect()
    };
    rounds.map(pairs).collect()
}

/// Each with those at distance 1, 2, 4, ...: two rounds for each distance.
fn doubling(nodes: usize) -> Vec<Round> {
    let mut rounds = Vec::new();
    let mut distance = 1;
    while distance < nodes {
        for odd in [0, 1] {
            let begins = (0..nodes - distance).filter(|at| at / distance % 2 == odd);
            rounds.push(begins.map(|at| (at, at + distance)).collect());
        }
        distance *= 2;
    }
    rounds
}

/// A node of each leaf with one of each other leaf.
fn leaf_pairs(topology: &Topology, order: &[usize]) -> Vec<Round> {
    let mut members: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for (place, node) in order.iter().enumerate() {
        if let Some(leaf) = topology.home(*node) {
            members.entry(leaf).or_default().push(place);
        }
    }
    if members.len() > ALL_LEAF_PAIRS {
        return Vec::new();
    }
    let members: Vec<Vec<usize>> = members.into_values().collect();
    let rounds = tournament(members.len()).into_iter().enumerate();
    let node = |leaf: usize, turn: usize| members[leaf][turn % members[leaf].len()];
    rounds
        .map(|(turn, round)| round.into_iter().map(|(a, b)| (node(a, turn), node(b, turn))).collect())
        .collect()
}

/// Every node sends to the one so many places further, all at once: to the next, and half way round.
#[must_use]
pub fn shifts(topology: &Topology) -> Vec<Round> {
    let order = topology.order();
    let nodes = order.len();
    let mut by: Vec<usize> = [1, nodes / 2].into_iter().filter(|by| *by > 0 && *by < nodes).collect();
    by.dedup();
    by.into_iter()
        .map(|by| (0..nodes).map(|at| (order[at], order[(at + by) % nodes])).collect())
        .collect()
}

/// Further rounds: every slow pair once more, and its nodes with nodes of which no test was bad, near and far.
#[must_use]
pub fn follow_up(topology: &Topology, tests: &[Test], bad: &[bool]) -> Vec<Round> {
    let mut counts = vec![(0_usize, 0_usize); topology.len()];
    let mut good_pairs = BTreeSet::new();
    let mut pairs: Vec<(usize, usize)> = Vec::new();
    for (test, bad) in tests.iter().zip(bad) {
        for node in [test.a, test.b] {
            counts[node].0 += 1;
            counts[node].1 += usize::from(*bad);
        }
        let pair = (test.a.min(test.b), test.a.max(test.b));
        if *bad {
            pairs.push(pair);
        } else {
            good_pairs.insert(pair);
        }
    }
    pairs.sort_unstable();
    pairs.dedup();
    let doubtful: BTreeSet<usize> = pairs.iter().flat_map(|(a, b)| [*a, *b]).collect();
    if doubtful.len() <= MOST_DOUBTFUL {
        // The best first: a node is good by its share of bad tests.
        let share = |node: usize| counts[node].1 as f64 / counts[node].0.max(1) as f64;
        let mut best: Vec<usize> = (0..topology.len()).collect();
        best.sort_by(|a, b| share(*a).total_cmp(&share(*b)));
        for node in &doubtful {
            let is_new = |peer: &&usize| {
                let pair = (*node.min(peer), *node.max(peer));
                *peer != node && !good_pairs.contains(&pair)
            };
            let home = topology.home(*node);
            let near = best.iter().filter(is_new).filter(|peer| topology.home(**peer) == home);
            let far = best.iter().filter(is_new).filter(|peer| topology.home(**peer) != home);
            let chosen = near.take(GOOD_PEERS).chain(far.take(GOOD_PEERS));
            pairs.extend(chosen.map(|peer| (*node.min(peer), *node.max(peer))));
        }
        pairs.sort_unstable();
        pairs.dedup();
    }
    pack(pairs)
}

/// Pairs in as few rounds as come of taking each where it first fits.
fn pack(pairs: Vec<(usize, usize)>) -> Vec<Round> {
    let mut rounds: Vec<(BTreeSet<usize>, Round)> = Vec::new();
    for (a, b) in pairs {
        let free = rounds
            .iter_mut()
            .find(|(busy, _)| !busy.contains(&a) && !busy.contains(&b));
        let round = match free {
            Some(round) => round,
            None => {
                rounds.push(Default::default());
                let last = rounds.len() - 1;
                &mut rounds[last]
            }
        };
        round.0.extend([a, b]);
        round.1.push((a, b));
    }
    rounds.into_iter().map(|(_, round)| round).collect()
}
