//! Simulated clusters with known faults and noisy tests, to measure how well the search finds the faults. The results
//! depend only on the seed.

use std::collections::BTreeSet;

use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng as _, SeedableRng as _};

use super::{Conclusion, Culprit, Element, GroupTest, Outcome, Search};

/// A simulated cluster.
#[derive(Debug, Clone, Default)]
pub struct Simulated {
    /// The leaf of each node.
    pub leaves: Vec<Option<usize>>,
    /// Faulty nodes, each with its faulty element.
    pub bad: Vec<(usize, Element)>,
    /// Faulty leaves: every test with a node below such a leaf fails.
    pub bad_leaves: Vec<usize>,
    /// A leaf with faulty uplinks: every test with nodes below this leaf and below another one fails.
    pub bad_uplinks: Option<usize>,
    /// The share of tests with the wrong outcome: faults that pass, and healthy groups that fail.
    pub noise: f64,
}

impl Simulated {
    /// Nodes below leaves of one size.
    #[must_use]
    pub fn cluster(nodes: usize, per_leaf: usize, noise: f64) -> Self {
        Self {
            leaves: (0..nodes).map(|node| Some(node / per_leaf.max(1))).collect(),
            noise,
            ..Self::default()
        }
    }

    /// The same cluster with this many faulty nodes, chosen by `random`.
    #[must_use]
    pub fn with_bad(mut self, count: usize, random: &mut SeededRandom) -> Self {
        let mut nodes = BTreeSet::new();
        while nodes.len() < count.min(self.leaves.len()) {
            nodes.insert(random.below(self.leaves.len()));
        }
        let bad = nodes.into_iter().map(|node| (node, random.element()));
        self.bad = bad.collect();
        self
    }

    /// Runs a search to its end.
    ///
    /// # Panics
    /// A round tests a node twice, or the search does not end.
    #[must_use]
    pub fn search(&self, random: &mut SeededRandom) -> Conclusion {
        let mut search = Search::new(&self.leaves);
        for _ in 0..1000 {
            let round = search.next_round();
            if round.is_empty() {
                return search.conclusion();
            }
            let mut nodes: Vec<usize> = round.iter().flat_map(|test| test.nodes.clone()).collect();
            let count = nodes.len();
            nodes.sort_unstable();
            nodes.dedup();
            assert_eq!(nodes.len(), count, "a node is in two tests of a round: {round:?}");
            let outcomes: Vec<Outcome> = round.iter().map(|test| self.outcome(test, random)).collect();
            search.record(&outcomes);
        }
        panic!("the search does not end: {:?}", self.bad)
    }

    fn outcome(&self, test: &GroupTest, random: &mut SeededRandom) -> Outcome {
        let found = self.bad.iter().filter(|(node, _)| test.nodes.contains(node));
        let found: Vec<(usize, Element)> = found.copied().collect();
        let leaf = |node: usize| self.leaves.get(node).copied().flatten();
        let leaves: BTreeSet<Option<usize>> = test.nodes.iter().map(|node| leaf(*node)).collect();
        let fails_by_leaf = self.bad_leaves.iter().any(|bad| leaves.contains(&Some(*bad)));
        let fails_by_uplink = leaves.len() > 1 && self.bad_uplinks.is_some_and(|bad| leaves.contains(&Some(bad)));
        let fails = !found.is_empty() || fails_by_leaf || fails_by_uplink;
        let wrong = random.happens(self.noise);
        if fails == wrong {
            return Outcome::Passed;
        }
        let named = if found.is_empty() || random.happens(self.noise) {
            (test.nodes[random.below(test.nodes.len())], random.element())
        } else {
            found[random.below(found.len())]
        };
        if random.happens(0.5) {
            Outcome::Slow(Some(named))
        } else {
            Outcome::Crashed(Some(named))
        }
    }
}

/// Figures of many searches.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Figures {
    /// Culprits that are faulty.
    pub right: usize,
    /// Culprits that are not faulty.
    pub wrong: usize,
    /// Faulty nodes that were not named.
    pub missed: usize,
    /// Culprits with the right element.
    pub right_element: usize,
    /// Culprits that are not a single node: a leaf, the network above the leaves, or one of several nodes.
    pub unresolved: usize,
    /// Tests of each search, ascending.
    pub tests: Vec<usize>,
    /// Rounds of each search, ascending.
    pub rounds: Vec<usize>,
}

impl Figures {
    /// Searches among `nodes` nodes with `bad` faulty ones, one for each seed.
    #[must_use]
    pub fn of(nodes: usize, per_leaf: usize, bad: usize, noise: f64, seeds: u64) -> Self {
        let mut figures = Self::default();
        for seed in 0..seeds {
            let mut random = SeededRandom::new(seed);
            let cluster = Simulated::cluster(nodes, per_leaf, noise).with_bad(bad, &mut random);
            figures.add(&cluster, &cluster.search(&mut random));
        }
        figures.tests.sort_unstable();
        figures.rounds.sort_unstable();
        figures
    }

    fn add(&mut self, cluster: &Simulated, conclusion: &Conclusion) {
        self.tests.push(conclusion.tests);
        self.rounds.push(conclusion.rounds);
        let mut named = 0;
        for culprit in &conclusion.culprits {
            let Culprit::Node { node, element, .. } = culprit else {
                self.unresolved += 1;
                continue;
            };
            match cluster.bad.iter().find(|(bad, _)| bad == node) {
                None => self.wrong += 1,
                Some((_, bad)) => {
                    named += 1;
                    self.right_element += usize::from(*element == Some(*bad));
                }
            }
        }
        self.right += named;
        self.missed += cluster.bad.len() - named;
    }

    /// The share of named nodes that are faulty; 1 if none was named.
    #[must_use]
    pub fn precision(&self) -> f64 {
        share(self.right, self.right + self.wrong)
    }

    /// The share of faulty nodes that were named; 1 if there was none.
    #[must_use]
    pub fn recall(&self) -> f64 {
        share(self.right, self.right + self.missed)
    }

    /// The least value of an ascending list that this share of the values does not exceed.
    #[must_use]
    pub fn quantile(sorted: &[usize], share: f64) -> usize {
        let place = (sorted.len() as f64 * share).ceil() as usize;
        sorted.get(place.saturating_sub(1)).copied().unwrap_or_default()
    }

    /// The share of values that are at most `most`.
    #[must_use]
    pub fn share_up_to(sorted: &[usize], most: usize) -> f64 {
        share(sorted.iter().filter(|count| **count <= most).count(), sorted.len())
    }
}

fn share(part: usize, whole: usize) -> f64 {
    if whole == 0 { 1.0 } else { part as f64 / whole as f64 }
}

/// The random numbers of one seed.
#[derive(Debug, Clone)]
pub struct SeededRandom(SplitMix64);

impl SeededRandom {
    /// A generator with this seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mixed = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d;
        Self(SplitMix64::from_seed(mixed.to_le_bytes()))
    }

    fn next(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A number below `most`, which must not be 0.
    pub fn below(&mut self, most: usize) -> usize {
        (self.next() % most as u64) as usize
    }

    /// `true` with this probability.
    pub fn happens(&mut self, probability: f64) -> bool {
        ((self.next() >> 11) as f64) < probability * (1_u64 << 53) as f64
    }

    fn element(&mut self) -> Element {
        let index = self.below(8) as u8;
        if self.happens(0.5) {
            Element::Gpu(index)
        } else {
            Element::Hca(index)
        }
    }
}
