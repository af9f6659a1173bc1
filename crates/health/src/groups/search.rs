//! The rounds of tests, from the first groups to the conclusion.

use std::collections::{BTreeMap, BTreeSet};

use super::case::{Case, End, Known, Shown, Want};
use super::{Culprit, Element, GroupTest, Outcome, Purpose, plan};

/// Known-good nodes beside one suspect.
const PARTNERS: usize = 2;
/// Least nodes of a test.
const LEAST: usize = 2;
/// Share of failed columns above which a fault across leaves is assumed, if no row failed.
const MOST_COLUMNS: (usize, usize) = (3, 4);

/// The result of a search.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Conclusion {
    /// What is at fault, in ascending order.
    pub culprits: Vec<Culprit>,
    /// Groups that failed and passed later, without a culprit.
    pub transient: usize,
    /// Number of tests.
    pub tests: usize,
    /// Number of rounds.
    pub rounds: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Rows,
    Columns,
    RowCases,
    ColumnCases,
    Done,
}

/// What the tests have shown about the nodes.
#[derive(Debug, Clone, Default)]
struct Facts {
    leaves: Vec<Option<usize>>,
    passed: Vec<u32>,
    failed: Vec<u32>,
    crashed: BTreeSet<usize>,
    /// Elements that failed tests named, by node.
    elements: BTreeMap<usize, Vec<Element>>,
    culprits: BTreeSet<usize>,
    bad_leaves: BTreeSet<usize>,
}

impl Known for Facts {
    fn has_passed(&self, node: usize) -> bool {
        self.passed.get(node).is_some_and(|count| *count > 0)
    }

    fn is_culprit(&self, node: usize) -> bool {
        let leaf = self.leaves.get(node).copied().flatten();
        self.culprits.contains(&node) || leaf.is_some_and(|leaf| self.bad_leaves.contains(&leaf))
    }
}

/// The search for what is at fault in a cluster.
#[derive(Debug, Clone)]
pub struct Search {
    facts: Facts,
    phase: Phase,
    rows: Vec<Vec<usize>>,
    columns: Vec<Vec<usize>>,
    bad_rows: Vec<usize>,
    bad_columns: Vec<usize>,
    cases: Vec<Case>,
    /// The tests of the round under way; those of cases with the case's index and its own nodes.
    current: Vec<(GroupTest, Option<(usize, Want)>)>,
    conclusion: Conclusion,
}

impl Search {
    /// A search among nodes, given by their leaves. `None`: the leaf is unknown.
    #[must_use]
    pub fn new(leaves: &[Option<usize>]) -> Self {
        let rows = plan::rows(leaves);
        let columns = plan::columns(&rows);
        Self {
            facts: Facts {
                leaves: leaves.to_vec(),
                passed: vec![0; leaves.len()],
                failed: vec![0; leaves.len()],
                ..Facts::default()
            },
            phase: if leaves.len() < LEAST { Phase::Done } else { Phase::Rows },
            rows,
            columns,
            bad_rows: Vec::new(),
            bad_columns: Vec::new(),
            cases: Vec::new(),
            current: Vec::new(),
            conclusion: Conclusion::default(),
        }
    }

    /// The tests of the next round. No node is in two of them. Empty: the search has ended.
    pub fn next_round(&mut self) -> Vec<GroupTest> {
        loop {
            let first = |groups: &[Vec<usize>], purpose| -> Vec<(GroupTest, Option<(usize, Want)>)> {
                let test = |nodes: &Vec<usize>| GroupTest {
                    nodes: nodes.clone(),
                    purpose,
                };
                groups.iter().map(|nodes| (test(nodes), None)).collect()
            };
            self.current = match self.phase {
                Phase::Rows => first(&self.rows, Purpose::Leaf),
                Phase::Columns => first(&self.columns, Purpose::Across),
                Phase::RowCases | Phase::ColumnCases => self.case_tests(),
                Phase::Done => return Vec::new(),
            };
            if !self.current.is_empty() {
                self.conclusion.rounds += 1;
                self.conclusion.tests += self.current.len();
                return self.current.iter().map(|(test, _)| test.clone()).collect();
            }
            self.next_phase();
        }
    }

    /// Takes the outcomes of the round, in the order of its tests. A test without an outcome counts as crashed.
    pub fn record(&mut self, outcomes: &[Outcome]) {
        let current = std::mem::take(&mut self.current);
        let mut sampled = BTreeSet::new();
        for (at, (test, owner)) in current.into_iter().enumerate() {
            let outcome = outcomes.get(at).cloned().unwrap_or(Outcome::Crashed(None));
            self.note(&test, &outcome, owner.as_ref());
            let passed = outcome.is_passed();
            match (owner, self.phase) {
                (Some((case, want)), _) => {
                    sampled.insert(case);
                    let shown = self.cases[case].take(&want, passed, &self.facts);
                    if let Shown::Culprit(node) = shown {
                        self.facts.culprits.insert(node);
                    }
                }
                (None, Phase::Rows) if !passed => self.bad_rows.push(at),
                (None, _) if !passed => self.bad_columns.push(at),
                (None, _) => {}
            }
        }
        for case in sampled {
            self.cases[case].end_sample();
            self.close(case);
        }
        if matches!(self.phase, Phase::Rows | Phase::Columns) {
            self.next_phase();
        }
    }

    /// What the tests have shown so far; final after [`Search::next_round`] has returned no test.
    #[must_use]
    pub fn conclusion(&self) -> Conclusion {
        let mut conclusion = self.conclusion.clone();
        let node = |node: &usize| Culprit::Node {
            node: *node,
            crashed: self.facts.crashed.contains(node),
            element: self.facts.elements.get(node).and_then(|named| agreed(named)),
        };
        conclusion.culprits.extend(self.facts.culprits.iter().map(node));
        conclusion
            .culprits
            .extend(self.facts.bad_leaves.iter().map(|leaf| Culprit::Leaf(*leaf)));
        conclusion.culprits.sort();
        conclusion.culprits.dedup();
        conclusion
    }

    /// Notes what an outcome shows about the nodes. A failed test of one suspect is not held against its partners.
    fn note(&mut self, test: &GroupTest, outcome: &Outcome, owner: Option<&(usize, Want)>) {
        let suspects = owner.map_or(&test.nodes, |(_, want)| &want.nodes);
        let counts = if outcome.is_passed() {
            &mut self.facts.passed
        } else {
            &mut self.facts.failed
        };
        for node in suspects {
            counts[*node] += 1;
        }
        if let (Outcome::Crashed(_), [node]) = (outcome, &suspects[..]) {
            self.facts.crashed.insert(*node);
        }
        if let Some((node, element)) = outcome.weakest() {
            self.facts.elements.entry(node).or_default().push(element);
        }
    }

    fn close(&mut self, case: usize) {
        match self.cases[case].end.clone() {
            None | Some(End::Explained) => {}
            Some(End::Transient) => self.conclusion.transient += 1,
            Some(End::OneOf(nodes)) => self.conclusion.culprits.push(Culprit::OneOf(nodes)),
            Some(End::Leaf) => {
                let first = self.cases[case].nodes().first().copied();
                let leaf = first.and_then(|node| self.facts.leaves.get(node).copied().flatten());
                self.facts.bad_leaves.extend(leaf);
            }
        }
    }

    fn next_phase(&mut self) {
        self.phase = match self.phase {
            Phase::Rows => Phase::Columns,
            Phase::Columns => {
                let (part, whole) = MOST_COLUMNS;
                let most = self.bad_columns.len() * whole >= self.columns.len() * part;
                if self.bad_rows.is_empty() && self.bad_columns.len() > 2 && most {
                    self.conclusion.culprits.push(Culprit::Across);
                    Phase::Done
                } else {
                    let rows = self.bad_rows.iter().map(|row| &self.rows[*row]);
                    self.cases = rows.map(|row| self.case(row)).collect();
                    Phase::RowCases
                }
            }
            Phase::RowCases => {
                let columns = self.bad_columns.iter().map(|column| &self.columns[*column]);
                let is_open = |column: &&Vec<usize>| {
                    let explained = column.iter().any(|node| self.facts.is_culprit(*node));
                    let unknown = |node: &usize| !self.facts.has_passed(*node) && !self.facts.is_culprit(*node);
                    !explained || column.iter().any(unknown)
                };
                self.cases = columns.filter(is_open).map(|column| self.case(column)).collect();
                Phase::ColumnCases
            }
            Phase::ColumnCases | Phase::Done => Phase::Done,
        };
    }

    fn case(&self, nodes: &[usize]) -> Case {
        let leaf = |node: usize| self.facts.leaves.get(node).copied().flatten();
        let is_leaf = nodes.first().is_some_and(|first| {
            let first = leaf(*first);
            first.is_some() && nodes.iter().all(|node| leaf(*node) == first)
        });
        Case::new(nodes, is_leaf, &self.facts)
    }

    /// One test, or one sample, for each open case.
    fn case_tests(&mut self) -> Vec<(GroupTest, Option<(usize, Want)>)> {
        let mut wants = Vec::new();
        for at in 0..self.cases.len() {
            let found = self.cases[at].wants(&self.facts);
            wants.extend(found.into_iter().map(|want| (at, want)));
        }
        let mut busy: BTreeSet<usize> = wants.iter().flat_map(|(_, want)| want.nodes.clone()).collect();
        let mut tests = Vec::new();
        for (at, want) in wants {
            if self.cases[at].end.is_some() {
                continue;
            }
            let needed = match want.purpose {
                Purpose::Confirm => PARTNERS,
                _ => LEAST.saturating_sub(want.nodes.len()),
            };
            let partners = self.partners(&want.nodes, needed, &busy);
            if want.nodes.len() + partners.len() < LEAST {
                self.cases[at].give_up(&self.facts);
                self.close(at);
                continue;
            }
            busy.extend(&partners);
            let mut nodes = [want.nodes.clone(), partners].concat();
            nodes.sort_unstable();
            let test = GroupTest {
                nodes,
                purpose: want.purpose,
            };
            tests.push((test, Some((at, want))));
        }
        tests
    }

    /// Known-good nodes that are free in this round: never failed first, then of another leaf.
    fn partners(&self, suspects: &[usize], count: usize, busy: &BTreeSet<usize>) -> Vec<usize> {
        let leaf = |node: usize| self.facts.leaves.get(node).copied().flatten();
        let home = suspects.first().and_then(|node| leaf(*node));
        let all = self.facts.leaves.len();
        // Other partners each time: what a partner does must not decide twice.
        let start = self.conclusion.tests * 7;
        let turned = (0..all).map(|at| (at + start) % all.max(1));
        let is_good = |node: &usize| {
            self.facts.has_passed(*node)
                && !self.facts.is_culprit(*node)
                && !busy.contains(node)
                && !suspects.contains(node)
                && !self
                    .cases
                    .iter()
                    .any(|case| case.end.is_none() && case.nodes().contains(node))
        };
        let mut good: Vec<usize> = turned.filter(is_good).collect();
        good.sort_by_key(|node| (self.facts.failed[*node], leaf(*node) == home));
        good.truncate(count);
        good
    }
}

/// The element that most of the tests named; at least two thirds of them.
fn agreed(named: &[Element]) -> Option<Element> {
    let mut counts: BTreeMap<Element, usize> = BTreeMap::new();
    for element in named {
        *counts.entry(*element).or_default() += 1;
    }
    let (element, count) = counts.into_iter().max_by_key(|(_, count)| *count)?;
    (count * 3 >= named.len() * 2).then_some(element)
}
