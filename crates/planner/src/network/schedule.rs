//! Pairs of nodes and their order. In a round no node is in two pairs, so that tests do not share a node's bandwidth.

use std::collections::{BTreeMap, BTreeSet};

use super::{Test, Topology};

/// Maximum number of nodes for which every pair is tested.
pub const ALL_PAIRS: usize = 16;
/// Maximum number of leaves for which every pair of leaves is tested.
const ALL_LEAF_PAIRS: usize = 32;
/// Number of good nodes of each kind (same leaf, other leaf) to test with a doubtful node.
const GOOD_PEERS: usize = 2;
/// Maximum number of doubtful nodes. More of them point to a fault beyond single nodes.
const MOST_DOUBTFUL: usize = 64;

/// Pairs of nodes. Each node occurs at most once.
pub type Round = Vec<(usize, usize)>;

/// The rounds of a cluster.
///
/// Up to [`ALL_PAIRS`] nodes, all pairs are tested, as in a round-robin tournament. Beyond that, each node is paired
/// with the nodes at distance 1, 2, 4, ... on both sides, in topology order: first within leaves, then across them, at
/// most 2 log2 n rounds. In addition, every pair of leaves is tested once. Only pairs with a node of `fresh` are kept.
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

/// All pairs by the circle method: one node stays, the others rotate.
fn tournament(nodes: usize) -> Vec<Round> {
    let slots = nodes + nodes % 2;
    let rounds = 0..slots.saturating_sub(1);
    let pairs = |turn: usize| {
        let at = |place: usize| {
            if place == 0 {
                0
            } else {
                1 + (place - 1 + turn) % (slots - 1)
            }
        };
        let all = (0..slots / 2).map(|place| (at(place), at(slots - 1 - place)));
        // With an odd number, the node paired with the empty seat pauses.
        all.filter(|(a, b)| *a < nodes && *b < nodes).collect()
    };
    rounds.map(pairs).collect()
}

/// Pairs at distance 1, 2, 4, ...: two rounds for each distance.
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

/// Pairs a node of each leaf with one of every other leaf.
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

/// All nodes send at once, each to the node `by` positions further: the next one, and half way round.
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

/// Further rounds: every slow pair again, and its nodes with the nodes that have the lowest share of bad tests, on the
/// same leaf and on others.
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
        // Lowest share of bad tests first.
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

/// Packs pairs into rounds: each pair goes into the first round that has both nodes free.
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
