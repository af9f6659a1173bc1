//! Finds rates that are too low and the common parts of slow pairs.

use std::collections::{BTreeMap, BTreeSet};

use super::{Kind, Lane, Test, Topology};

/// Minimum share of bad tests, for each kind of test, that makes a part faulty.
const MOST: f64 = 0.75;
/// Minimum number of tests for a usual rate.
const MIN_TESTS: usize = 3;
/// The usual rate is the rate reached by one in four like tests, because a faulty leaf may slow more than half
/// of a small cluster.
const QUARTER: usize = 4;

/// The required rate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rule {
    /// Minimum rate in Gbit/s. 0: only the comparison with other tests counts.
    pub floor_gbit_per_s: f64,
    /// Minimum share of the usual rate of like tests, 0 to 1.
    pub share_of_usual: f64,
}

/// The usual rate by kind of test, in Gbit/s. A few new nodes are compared with the usual rates of an earlier run.
pub type Usual = BTreeMap<Kind, f64>;

/// A part of the network on the path of a test.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Part {
    /// A node with all its lanes.
    Node(usize),
    /// One lane of a node: adapter, cable, and the leaf's port.
    End(usize, Lane),
    Leaf(usize),
    /// One of the uplinks of a leaf. The subnet manager chooses the uplink of a pair, so it is unknown here.
    Uplinks(usize),
    /// A switch above the leaves.
    Above,
    /// Two nodes, if the tests narrow the fault no further.
    Between(usize, usize),
}

/// A fault in the network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// One of these parts is faulty. The tests cannot distinguish between them.
    pub parts: Vec<Part>,
    /// Indices of the bad tests that the fault explains.
    pub tests: Vec<usize>,
}

impl Fault {
    /// The node to replace, if only this node can be faulty.
    #[must_use]
    pub fn node(&self) -> Option<usize> {
        let of = |part: &Part| match part {
            Part::Node(node) | Part::End(node, _) => Some(*node),
            _ => None,
        };
        let first = of(self.parts.first()?)?;
        self.parts.iter().all(|part| of(part) == Some(first)).then_some(first)
    }

    /// Describes the fault, with its worst test.
    #[must_use]
    pub fn words(&self, topology: &Topology, tests: &[Test], wanted: &Usual) -> String {
        let parts: Vec<String> = self.parts.iter().map(|part| topology.words(*part)).collect();
        let mine = self.tests.iter().filter_map(|at| tests.get(*at));
        let worst = mine.min_by(|a, b| a.gbit_per_s.total_cmp(&b.gbit_per_s));
        let worst = worst.map_or(String::new(), |test| {
            let pair = format!("{} – {}", topology.name(test.a), topology.name(test.b));
            match &test.error {
                Some(error) => format!("; {pair}: {error}"),
                None => {
                    let least = wanted.get(&test.kind()).copied().unwrap_or_default();
                    format!(
                        "; {pair}: {}, but at least {} is required",
                        rate(test.gbit_per_s),
                        rate(least)
                    )
                }
            }
        });
        let one_of = if parts.len() > 1 { "one of: " } else { "" };
        format!("{one_of}{}{worst}", parts.join(" | "))
    }
}

/// Such as `12.3 Gbit/s` or `0.95 Gbit/s`.
#[must_use]
pub(super) fn rate(gbit_per_s: f64) -> String {
    let digits = if gbit_per_s < 10.0 { 2 } else { 1 };
    format!("{gbit_per_s:.digits$} Gbit/s")
}

/// The result of all tests.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Judgement {
    /// The tests that count: the best of each pair and lane.
    pub tests: Vec<Test>,
    /// Whether each test is bad.
    pub bad: Vec<bool>,
    /// Minimum rate by kind of test, in Gbit/s.
    pub wanted: Usual,
    /// Usual rates of this run, in Gbit/s.
    pub usual: Usual,
    /// The faults. Those that explain the most come first.
    pub faults: Vec<Fault>,
}

impl Judgement {
    /// The same without the tests of these nodes, for example after their replacement.
    #[must_use]
    pub fn without(&self, nodes: &BTreeSet<usize>) -> Self {
        let (tests, bad) = self
            .tests
            .iter()
            .zip(&self.bad)
            .filter(|(test, _)| !nodes.contains(&test.a) && !nodes.contains(&test.b))
            .map(|(test, bad)| (test.clone(), *bad))
            .unzip();
        Self {
            tests,
            bad,
            wanted: self.wanted.clone(),
            usual: self.usual.clone(),
            faults: Vec::new(),
        }
    }
}

/// Judges all tests of a cluster.
#[must_use]
pub fn judge(topology: &Topology, tests: &[Test], rule: &Rule, before: &Usual) -> Judgement {
    let mut best: BTreeMap<(usize, usize, Lane), Test> = BTreeMap::new();
    for test in tests {
        let kept = best.entry(test.key()).or_insert_with(|| test.clone());
        if test.gbit_per_s > kept.gbit_per_s {
            *kept = test.clone();
        }
    }
    let tests: Vec<Test> = best.into_values().collect();
    let usual = usual(&tests);
    let mut wanted = Usual::new();
    for kind in Kind::ALL {
        let of = |known: &Usual| known.get(&kind).copied().unwrap_or_default();
        let like = rule.share_of_usual * of(&usual).max(of(before));
        wanted.insert(kind, rule.floor_gbit_per_s.max(like));
    }
    let is_bad = |test: &Test| {
        let least = wanted.get(&test.kind()).copied().unwrap_or_default();
        test.error.is_some() || test.gbit_per_s < least || test.gbit_per_s <= 0.0
    };
    let bad: Vec<bool> = tests.iter().map(is_bad).collect();
    let faults = Suspects::new(topology, &tests, &bad).faults();
    Judgement {
        tests,
        bad,
        wanted,
        usual,
        faults,
    }
}

fn usual(tests: &[Test]) -> Usual {
    let mut rates: BTreeMap<Kind, Vec<f64>> = BTreeMap::new();
    for test in tests {
        rates.entry(test.kind()).or_default().push(test.gbit_per_s);
    }
    let enough = rates.into_iter().filter(|(_, rates)| rates.len() >= MIN_TESTS);
    enough
        .map(|(kind, mut rates)| {
            rates.sort_by(f64::total_cmp);
            (kind, rates[rates.len() - 1 - rates.len() / QUARTER])
        })
        .collect()
}

/// The tests of one part, within a leaf and across leaves. A fault above the leaves affects only the latter.
#[derive(Debug, Clone, Default)]
struct Tests {
    near: Vec<usize>,
    far: Vec<usize>,
}

struct Suspects<'a> {
    topology: &'a Topology,
    tests: &'a [Test],
    /// Indices of bad tests that no fault explains yet.
    open: BTreeSet<usize>,
    /// Indices of tests that a fault explains.
    explained: BTreeSet<usize>,
    by_part: BTreeMap<Part, Tests>,
}

impl<'a> Suspects<'a> {
    fn new(topology: &'a Topology, tests: &'a [Test], bad: &[bool]) -> Self {
        let lanes: BTreeSet<Lane> = tests.iter().map(|test| test.lane).collect();
        let mut by_part: BTreeMap<Part, Tests> = BTreeMap::new();
        for (at, test) in tests.iter().enumerate() {
            let (from, to) = (topology.leaf(test.a, test.lane), topology.leaf(test.b, test.lane));
            let is_near = from == to;
            let mut parts = BTreeSet::from([Part::End(test.a, test.lane), Part::End(test.b, test.lane)]);
            // With a single lane, the node is the same as its end.
            if lanes.len() > 1 {
                parts.extend([Part::Node(test.a), Part::Node(test.b)]);
            }
            parts.extend([from, to].into_iter().flatten().map(Part::Leaf));
            for part in parts {
                let tests = by_part.entry(part).or_default();
                if is_near { &mut tests.near } else { &mut tests.far }.push(at);
            }
        }
        let open = (0..tests.len())
            .filter(|at| bad.get(*at).is_some_and(|bad| *bad))
            .collect();
        Self {
            topology,
            tests,
            open,
            explained: BTreeSet::new(),
            by_part,
        }
    }

    fn faults(mut self) -> Vec<Fault> {
        let mut faults = Vec::new();
        while !self.open.is_empty() {
            let fault = self.most_telling();
            self.open.retain(|at| !fault.tests.contains(at));
            self.explained.extend(&fault.tests);
            faults.push(fault);
        }
        faults
    }

    /// A node or a leaf if one is consistent. If its bad tests all cross leaves, a fault above the leaves wins if it
    /// explains more.
    fn most_telling(&self) -> Fault {
        let Some(strong) = self.strong() else {
            return self.weak();
        };
        if strong.tests.iter().any(|at| self.far_ends(*at).is_empty()) {
            return strong;
        }
        let weak = self.weak();
        let is_more = weak.tests.len() > strong.tests.len() && strong.tests.iter().all(|at| weak.tests.contains(at));
        if is_more { weak } else { strong }
    }

    /// The bad tests of a part, if most of its tests are bad, both within and across leaves.
    fn consistent(&self, tests: &Tests) -> Option<Vec<usize>> {
        for kind in [&tests.near, &tests.far] {
            let bad = kind.iter().filter(|at| self.open.contains(at)).count();
            let counted = kind.iter().filter(|at| !self.explained.contains(at)).count();
            if counted > 0 && (bad as f64) < MOST * counted as f64 {
                return None;
            }
        }
        let all = tests.near.iter().chain(&tests.far);
        let mut bad: Vec<usize> = all.copied().filter(|at| self.open.contains(at)).collect();
        bad.sort_unstable();
        (!bad.is_empty()).then_some(bad)
    }

    /// The part that explains the most tests, and all parts that explain exactly the same ones.
    fn strong(&self) -> Option<Fault> {
        let found = self.by_part.iter();
        let found: Vec<(Part, Vec<usize>)> = found
            .filter_map(|(part, tests)| Some((*part, self.consistent(tests)?)))
            .collect();
        let most = found.iter().map(|(_, bad)| bad.len()).max()?;
        let tests = found.iter().find(|(_, bad)| bad.len() == most)?.1.clone();
        let mut parts: Vec<Part> = found
            .into_iter()
            .filter(|(_, bad)| *bad == tests)
            .map(|(part, _)| part)
            .collect();
        parts.extend(self.uplinks_of_all(&tests));
        parts.sort_unstable();
        Some(Fault { parts, tests })
    }

    /// The leaves with uplinks that all of these tests use.
    fn uplinks_of_all(&self, tests: &[usize]) -> Vec<Part> {
        let mut shared: Option<BTreeSet<usize>> = None;
        for at in tests {
            let ends = self.far_ends(*at);
            shared = Some(match shared {
                None => ends,
                Some(before) => before.intersection(&ends).copied().collect(),
            });
        }
        shared.unwrap_or_default().into_iter().map(Part::Uplinks).collect()
    }

    /// The two leaves of a test across leaves. Empty for a test within a leaf.
    fn far_ends(&self, at: usize) -> BTreeSet<usize> {
        let Some(test) = self.tests.get(at) else {
            return BTreeSet::new();
        };
        let leaf = |node| self.topology.leaf(node, test.lane);
        match (leaf(test.a), leaf(test.b)) {
            (Some(a), Some(b)) if a != b => BTreeSet::from([a, b]),
            _ => BTreeSet::new(),
        }
    }

    /// No node or leaf is consistent: the fault is above the leaves, or only the pair is known.
    fn weak(&self) -> Fault {
        let mut by_leaf: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        let mut far = Vec::new();
        for at in &self.open {
            let ends = self.far_ends(*at);
            if !ends.is_empty() {
                far.push(*at);
            }
            for leaf in ends {
                by_leaf.entry(leaf).or_default().push(*at);
            }
        }
        let Some(most) = by_leaf.values().map(Vec::len).max() else {
            return self.pair();
        };
        if (most as f64) < MOST * far.len() as f64 {
            return Fault {
                parts: vec![Part::Above],
                tests: far,
            };
        }
        let tests = by_leaf
            .values()
            .find(|tests| tests.len() == most)
            .cloned()
            .unwrap_or_default();
        let alike = by_leaf.into_iter().filter(|(_, other)| *other == tests);
        Fault {
            parts: alike.map(|(leaf, _)| Part::Uplinks(leaf)).collect(),
            tests,
        }
    }

    fn pair(&self) -> Fault {
        let first = self.open.first().copied().unwrap_or_default();
        let (a, b) = self.tests.get(first).map_or((0, 0), |test| (test.a, test.b));
        let ours = |at: &&usize| self.tests.get(**at).is_some_and(|test| test.peer(a) == Some(b));
        Fault {
            parts: vec![Part::Between(a, b)],
            tests: self.open.iter().filter(ours).copied().collect(),
        }
    }
}
