//! One failed group, and the search for its culprits.

use std::collections::BTreeSet;

use super::Purpose;

/// Times that a group may fail without a culprit that its tests confirm.
const MOST_CONTRADICTIONS: u8 = 3;
/// Nodes of a leaf that are tested alone if the whole leaf is suspect.
const LEAF_SAMPLE: usize = 3;

/// What is known about the nodes outside a case.
pub(super) trait Known {
    /// Whether a node passed a test.
    fn has_passed(&self, node: usize) -> bool;
    /// Whether a node is a culprit, or below a leaf that is one.
    fn is_culprit(&self, node: usize) -> bool;
}

/// A test that a case needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Want {
    /// Nodes of the case.
    pub nodes: Vec<usize>,
    /// Why.
    pub purpose: Purpose,
}

/// The result of a case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum End {
    /// The group passes without the culprits that were named.
    Explained,
    /// The group passes, without any culprit.
    Transient,
    /// The leaf of the group.
    Leaf,
    /// One of these nodes.
    OneOf(Vec<usize>),
}

/// What an outcome shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Shown {
    /// Nothing final.
    Nothing,
    /// This node is a culprit.
    Culprit(usize),
}

/// A failed group.
#[derive(Debug, Clone)]
pub(super) struct Case {
    nodes: BTreeSet<usize>,
    /// Nodes that passed a test of this case.
    cleared: BTreeSet<usize>,
    /// Tests outside this case no longer clear a node: they contradicted those inside.
    only_own: bool,
    contradictions: u8,
    /// Suspects after the last halving.
    narrowed: Option<Vec<usize>>,
    /// A node that failed alone, until the rest of the group has been tested.
    accused: Option<usize>,
    /// The rest failed too, so the accusation is tested once more.
    doubted: bool,
    has_culprit: bool,
    /// Nodes of the sample that is under way or made. `None`: the leaf is not suspect.
    sample: Option<Vec<usize>>,
    sample_done: bool,
    sample_passed: bool,
    /// The result.
    pub end: Option<End>,
}

impl Case {
    /// The case of a group. `is_leaf`: all nodes are below one leaf.
    pub fn new(nodes: &[usize], is_leaf: bool, known: &impl Known) -> Self {
        let suspects: Vec<usize> = nodes.iter().copied().filter(|node| !known.has_passed(*node)).collect();
        let whole_leaf = is_leaf && suspects.len() >= LEAF_SAMPLE && suspects.len() * 4 >= nodes.len() * 3;
        let step = (suspects.len() / LEAF_SAMPLE).max(1);
        let sample = whole_leaf.then(|| suspects.iter().copied().step_by(step).take(LEAF_SAMPLE).collect());
        Self {
            nodes: nodes.iter().copied().collect(),
            cleared: BTreeSet::new(),
            only_own: false,
            contradictions: 0,
            narrowed: None,
            accused: None,
            doubted: false,
            has_culprit: false,
            sample,
            sample_done: false,
            sample_passed: false,
            end: None,
        }
    }

    /// All nodes of the group.
    pub fn nodes(&self) -> &BTreeSet<usize> {
        &self.nodes
    }

    fn rest(&self, known: &impl Known) -> Vec<usize> {
        let is_left = |node: &usize| !known.is_culprit(*node) && self.accused != Some(*node);
        self.nodes.iter().copied().filter(is_left).collect()
    }

    fn suspects(&self, known: &impl Known) -> Vec<usize> {
        if let Some(narrowed) = &self.narrowed {
            return narrowed.clone();
        }
        let is_open = |node: &usize| !self.cleared.contains(node) && (self.only_own || !known.has_passed(*node));
        self.rest(known).into_iter().filter(is_open).collect()
    }

    /// The next tests. Empty: the case has ended.
    pub fn wants(&mut self, known: &impl Known) -> Vec<Want> {
        if self.end.is_some() {
            return Vec::new();
        }
        let one = |nodes: Vec<usize>, purpose| vec![Want { nodes, purpose }];
        if let Some(sample) = self.sample.as_ref().filter(|_| !self.sample_done) {
            let alone = |node: &usize| Want {
                nodes: vec![*node],
                purpose: Purpose::Confirm,
            };
            return sample.iter().map(alone).collect();
        }
        let rest = self.rest(known);
        if let Some(accused) = self.accused {
            return if self.doubted || rest.is_empty() {
                one(vec![accused], Purpose::Confirm)
            } else {
                one(rest, Purpose::Rest)
            };
        }
        let suspects = self.suspects(known);
        match suspects.len() {
            0 if rest.is_empty() => {
                self.end = Some(End::Explained);
                Vec::new()
            }
            0 => one(rest, Purpose::Rest),
            1 => one(suspects, Purpose::Confirm),
            count => one(suspects[..count / 2].to_vec(), Purpose::Split),
        }
    }

    /// Ends the case if there are no known-good nodes for its next test.
    pub fn give_up(&mut self, known: &impl Known) {
        let mut nodes = self.suspects(known);
        if nodes.is_empty() {
            nodes = self.rest(known);
        }
        nodes.extend(self.accused);
        nodes.sort_unstable();
        nodes.dedup();
        self.end = Some(End::OneOf(nodes));
    }

    /// Takes the outcome of one of the tests.
    pub fn take(&mut self, want: &Want, passed: bool, known: &impl Known) -> Shown {
        if passed {
            self.cleared.extend(&want.nodes);
        }
        if self.sample.is_some() && !self.sample_done {
            self.sample_passed |= passed;
            return Shown::Nothing;
        }
        match want.purpose {
            Purpose::Rest => self.take_rest(passed, known),
            Purpose::Confirm => self.take_single(&want.nodes, passed),
            Purpose::Split | Purpose::Leaf | Purpose::Across => {
                let suspects = self.suspects(known);
                if passed {
                    let left = suspects.into_iter().filter(|node| !want.nodes.contains(node)).collect();
                    self.narrowed = Some(left);
                } else if let [node] = want.nodes[..] {
                    self.accused = Some(node);
                    self.narrowed = None;
                } else {
                    self.narrowed = Some(want.nodes.clone());
                }
                Shown::Nothing
            }
        }
    }

    /// Ends the sample of a leaf, after all its outcomes were taken.
    pub fn end_sample(&mut self) {
        if self.sample.is_some() && !self.sample_done {
            self.sample_done = true;
            if !self.sample_passed {
                self.end = Some(End::Leaf);
            }
        }
    }

    fn take_rest(&mut self, passed: bool, known: &impl Known) -> Shown {
        match (passed, self.accused) {
            (true, Some(accused)) => {
                self.accused = None;
                self.has_culprit = true;
                self.end = Some(End::Explained);
                Shown::Culprit(accused)
            }
            (true, None) => {
                self.end = Some(if self.has_culprit {
                    End::Explained
                } else {
                    End::Transient
                });
                Shown::Nothing
            }
            (false, Some(_)) => {
                self.doubted = true;
                Shown::Nothing
            }
            (false, None) => {
                self.only_own = true;
                self.cleared.clear();
                self.contradictions += 1;
                if self.contradictions > MOST_CONTRADICTIONS {
                    self.give_up(known);
                }
                Shown::Nothing
            }
        }
    }

    fn take_single(&mut self, nodes: &[usize], passed: bool) -> Shown {
        let node = nodes.first().copied();
        self.narrowed = None;
        match (passed, self.accused.take()) {
            (true, _) => {
                self.doubted = false;
                Shown::Nothing
            }
            (false, None) => {
                self.accused = node;
                Shown::Nothing
            }
            // The second failure alone.
            (false, Some(accused)) => {
                self.doubted = false;
                self.has_culprit = true;
                Shown::Culprit(accused)
            }
        }
    }
}
