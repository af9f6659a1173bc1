//! What decisions about a cluster look at.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::chart::State;
use crate::chart::State as NodeState;
use crate::decide::Wait as NodeWait;
use crate::node::Node;
use crate::time::Timestamp;

/// One cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cluster {
    /// Where it is in its life.
    pub state: State,
    /// Since when.
    pub since: Timestamp,
    /// What was asked of it.
    pub wanted: Wanted,
    /// Released by itself then.
    pub lease_end: Option<Timestamp>,
    /// So many of the notices of its lease's end were given.
    pub notices: usize,
    /// What is to be on its nodes has this number. It is another one with every image, key and cloud-config.
    pub build: u32,
    /// Its nodes are being brought to that build, some at a time.
    pub rollout: Option<Rollout>,
}

/// How nodes in their customer's hands get another image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rollout {
    /// So many nodes at most are not in their customer's hands at any time; at least 1.
    pub max_unavailable: u32,
    /// The nodes of one leaf are done before those of the next are begun.
    pub by_leaf: bool,
    /// It goes on while no more nodes than these have failed with the new image.
    pub max_failures: u32,
    /// So many failed with it and have been replaced.
    #[serde(default)]
    pub failed: u32,
    /// Nodes that failed with it and are to be tried again.
    #[serde(default)]
    pub again: BTreeSet<String>,
    /// When more have failed: back to the former image by itself. Else it stops, and waits for somebody.
    pub roll_back: bool,
    /// It is on the way back.
    pub is_back: bool,
    /// Why it stopped.
    pub stopped: Option<String>,
}

/// Standing wishes. They are levels, not messages: an edge or an effect that fulfils one clears it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Wanted {
    /// Nobody shall have it any more.
    pub release: bool,
    /// Build a failed one once more.
    pub retry: bool,
    /// Replace these nodes, each with the reason.
    pub replace: BTreeMap<String, String>,
    /// Give these nodes back: they are erased first, and the cluster's until then.
    pub leave: BTreeSet<String>,
    /// The partition that is wanted is without the ports of those.
    pub is_leave_cut: bool,
}

/// A node of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// The node.
    pub node: String,
    /// How it stands.
    pub standing: Standing,
    /// The build that it has or is getting.
    pub build: u32,
    /// It joins: the cluster has never let it be handed over.
    pub is_new: bool,
    /// Another image can be written to it now.
    pub is_writable: bool,
    /// It failed before it was its customer's with what was to be on it.
    pub is_failed: bool,
    /// Nodes with the same number share a leaf, or whatever the smallest part of the fabric is.
    pub leaf: u32,
    /// What is wrong with its links to the fabric; none while its system does not run.
    pub impaired: Option<Impaired>,
}

/// A node whose link to the fabric is down, or slower than planned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Impaired {
    /// Since when that is known of the node in its present state.
    pub since: Timestamp,
    /// When the fabric was last looked at, and it was still so.
    pub seen: Timestamp,
    /// Which link, and what is the matter with it.
    pub why: String,
}

/// How a node of a cluster stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// On its way: imaged, booted, checked.
    Coming,
    /// Checked; it waits for the rest of the cluster.
    Checked,
    /// Its customer's.
    HandedOver,
    /// Not in order, and why.
    Lost(String),
    /// Being erased.
    Leaving,
    /// Not the cluster's any more.
    Freed,
}

impl Standing {
    /// Not in order, or not the cluster's any more.
    #[must_use]
    pub fn is_out(&self) -> bool {
        matches!(self, Self::Lost(_) | Self::Leaving | Self::Freed)
    }

    /// In a word.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Coming => "coming",
            Self::Checked => "checked",
            Self::HandedOver => "handed-over",
            Self::Lost(_) => "lost",
            Self::Leaving => "leaving",
            Self::Freed => "freed",
        }
    }
}

/// How a node stands in the cluster `cluster`: by itself, by what it waits for, and by why it is where it is.
#[must_use]
pub fn standing(cluster: &str, node: &Node, wait: &NodeWait, reason: &str) -> Standing {
    let (state, claim) = (node.state, node.claim.as_ref());
    let ours = claim.filter(|claim| claim.cluster.as_ref().is_some_and(|seat| seat.cluster == cluster));
    let Some(claim) = ours else { return Standing::Freed };
    let is_let_go = claim.cluster.as_ref().is_some_and(|seat| seat.let_go.is_some());
    if claim.release_requested {
        return match state {
            // An operator's now.
            NodeState::Quarantined | NodeState::Maintenance => Standing::Freed,
            _ => Standing::Leaving,
        };
    }
    match state {
        NodeState::Failed if node.wanted.retry => Standing::Coming,
        NodeState::Failed | NodeState::Quarantined | NodeState::Maintenance => {
            let because = if reason.is_empty() { "" } else { ": " };
            Standing::Lost(format!("{state}{because}{reason}"))
        }
        NodeState::Reclaiming => Standing::Leaving,
        // Else another image is wanted on it.
        NodeState::Active if claim.handed_over == Some(claim.deployment) => Standing::HandedOver,
        // Once it was let go, what it waited for before says nothing.
        NodeState::Validating if !is_let_go && *wait == NodeWait::Cluster => Standing::Checked,
        _ => Standing::Coming,
    }
}

/// Whether a node failed, and its customer never had what was to be on it. One that an operator holds or distrusts, or that broke
/// later, has not failed with that.
#[must_use]
pub fn has_failed(node: &Node) -> bool {
    let is_theirs = node
        .claim
        .as_ref()
        .is_some_and(|claim| claim.handed_over == Some(claim.deployment));
    node.state == NodeState::Failed && !node.wanted.retry && !is_theirs
}

/// A node as a member of the cluster `cluster`. `leaf`: nodes with the same number share one.
#[must_use]
pub fn member(cluster: &str, id: &str, node: &Node, leaf: u32, wait: &NodeWait, reason: &str) -> Member {
    let seat = node.claim.as_ref().and_then(|claim| claim.cluster.as_ref());
    let seat = seat.filter(|seat| seat.cluster == cluster);
    let standing = standing(cluster, node, wait, reason);
    Member {
        node: id.to_owned(),
        build: seat.map_or(0, |seat| seat.build),
        is_new: seat.is_some_and(|seat| seat.let_go.is_none()),
        is_writable: match standing {
            Standing::HandedOver => true,
            Standing::Lost(_) => node.state == NodeState::Failed,
            _ => false,
        },
        is_failed: has_failed(node),
        standing,
        leaf,
        impaired: None,
    }
}

/// How the cluster's partition stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Partition {
    /// There is no fabric manager.
    None,
    /// Not every port has been read with what it should have, and why not, as far as is known.
    Pending(String),
    /// Every port of the fabric was read, and has what it should.
    Proven,
    /// Ports have been read without its key, every one that had it.
    Gone,
}

/// How the tests of the network between its checked nodes stand.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Network {
    /// None is made.
    #[default]
    Off,
    /// None was made with all of the nodes that are checked now.
    Untested,
    /// One runs, and is lost if it is not heard of until then.
    Running(Timestamp),
    /// All checked nodes have passed.
    Passed,
    /// These nodes are at fault, or their cables, each with the words for it.
    Faulty(BTreeMap<String, String>),
    /// Something else is at fault, or it could not be made; made again then.
    Blocked {
        /// What is in the way.
        fault: String,
        /// When.
        again: Timestamp,
    },
}

/// The last search for a node in place of another that found none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Swap {
    /// When.
    pub at: Timestamp,
    /// What is in the way.
    pub refused: String,
}

/// What is known of a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// Its nodes.
    pub members: Vec<Member>,
    /// Its partition.
    pub partition: Partition,
    /// The last search for another node that found none.
    pub swap: Option<Swap>,
    /// The network between its nodes.
    pub network: Network,
}
