//! Faults in a cluster: collective tests of groups of nodes, which name the nodes or leaves at fault.
//!
//! 1. Groups by leaf.
//! 2. Groups across leaves, with one node of each first group. So each node is in two tests, and a healthy cluster is proven
//!    in two rounds.
//! 3. Each failed group is a case: its suspects are halved until one is left, which is confirmed with known-good nodes; the
//!    rest of the group has to pass without it. A group without suspects is tested again: if it passes, its failure was
//!    transient.
//!
//! In a round no node is in two tests.
//!
//! [`Search`] is a plain state: [`Search::next_round`] returns tests, [`Search::record`] takes their outcomes. The tests
//! themselves are outside this crate. Nodes and leaves are indices, as in the network tests of `crates/planner/src/network`,
//! which judges pairs; a fault across leaves is left to it.

mod case;
mod parts;
mod plan;
mod search;
pub mod simulation;
#[cfg(test)]
mod tests;

pub use parts::{HcaParts, NodeParts, components};
pub use plan::{columns, rows};
pub use search::{Conclusion, Search};

/// A test of nodes that work together, such as an all-reduce.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupTest {
    /// The nodes, in ascending order.
    pub nodes: Vec<usize>,
    /// Why the nodes are tested.
    pub purpose: Purpose,
}

/// Why nodes are tested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// A group of the first round, below one leaf if possible.
    Leaf,
    /// A group of the second round, across leaves.
    Across,
    /// A part of the suspects of a failed group.
    Split,
    /// One suspect with known-good nodes.
    Confirm,
    /// A failed group without its culprits, or once more.
    Rest,
}

/// The outcome of a test.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The group reached its threshold.
    Passed,
    /// The group worked, below its threshold.
    Slow(Weakest),
    /// The test did not end well: an error, a hang, a wrong result.
    Crashed(Weakest),
}

impl Outcome {
    /// Whether the group is proven.
    #[must_use]
    pub fn is_passed(&self) -> bool {
        matches!(self, Self::Passed)
    }

    /// The weakest element, if the test named one.
    #[must_use]
    pub fn weakest(&self) -> Weakest {
        match self {
            Self::Passed => None,
            Self::Slow(weakest) | Self::Crashed(weakest) => *weakest,
        }
    }
}

/// The node and the element with the lowest rate of a failed test, if the test measured elements.
pub type Weakest = Option<(usize, Element)>;

/// A part of a node that a test measures on its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Element {
    /// A GPU, by its index on the node.
    Gpu(u8),
    /// A lane: adapter, cable and leaf port, by the adapter's index in the SKU's list.
    Hca(u8),
}

/// What is at fault.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Culprit {
    /// A node. It failed with known-good nodes, and its group passed without it.
    Node {
        node: usize,
        /// Whether a test with it did not end well; otherwise it is slow.
        crashed: bool,
        /// The element that its tests named. `None`: they named none, or different ones.
        element: Option<Element>,
    },
    /// A leaf: each of several nodes below it failed with known-good nodes.
    Leaf(usize),
    /// Something above the leaves: groups below a leaf pass, groups across leaves fail. Tests of pairs name it.
    Across,
    /// One of these nodes, or their network. Tests cannot separate them, because there are no known-good nodes.
    OneOf(Vec<usize>),
}
