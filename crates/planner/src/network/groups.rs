//! The search by groups of nodes (`rackwright_health::groups`) in the terms of this module: its nodes and leaves are those
//! of a [`Topology`], and its culprits are [`Part`]s.

use rackwright_health::groups::{Culprit, Element};

use super::{Lane, Part, Topology};

impl Topology {
    /// The leaf of each node's first adapter, for a search by groups.
    #[must_use]
    pub fn homes(&self) -> Vec<Option<usize>> {
        (0..self.len()).map(|node| self.home(node)).collect()
    }
}

/// The parts of which one is at fault. A GPU belongs to its node.
#[must_use]
pub fn parts_of(culprit: &Culprit) -> Vec<Part> {
    match culprit {
        Culprit::Node {
            node,
            element: Some(Element::Hca(hca)),
            ..
        } => vec![Part::End(*node, Lane::Hca(*hca))],
        Culprit::Node { node, .. } => vec![Part::Node(*node)],
        Culprit::Leaf(leaf) => vec![Part::Leaf(*leaf)],
        Culprit::Across => vec![Part::Above],
        Culprit::OneOf(nodes) => nodes.iter().map(|node| Part::Node(*node)).collect(),
    }
}
