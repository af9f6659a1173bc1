//! The inputs of decisions about a cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};

use super::chart::State;
use crate::chart::State as NodeState;
use crate::decide::Wait as NodeWait;
use crate::ids::{ClusterId, NodeId};
use crate::node::Node;
use crate::time::Timestamp;

/// One cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cluster {
    /// The state in the chart.
    pub state: State,
    /// When the cluster entered the state.
    pub since: Timestamp,
    /// The requests for it.
    pub wanted: Wanted,
    /// The cluster is released at this time; none: the lease has no end.
    pub lease_end: Option<Timestamp>,
    /// Number of notices of the lease's end that were given.
    pub notices: usize,
    /// The number of the wanted build. Every change of the image, the keys or the cloud-config gives a new number.
    pub build: u32,
    /// The nodes are being brought to that build, some at a time.
    pub rollout: Option<Rollout>,
}

/// How nodes in use get another image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rollout {
    /// Most nodes that may be out of use at any time; at least 1.
    pub max_unavailable: u32,
    /// The nodes of one leaf are done before those of the next leaf begin.
    pub by_leaf: bool,
    /// The rollout goes on while at most this many nodes have failed with the new image.
    pub max_failures: u32,
    /// Number of nodes that failed with it and have been replaced.
    #[serde(default)]
    pub failed: u32,
    /// Nodes that failed with it and are to be tried again.
    #[serde(default)]
    pub again: BTreeSet<NodeId>,
    /// When more have failed: true returns to the former image; false stops the rollout until an operator decides.
    pub roll_back: bool,
    /// The rollout is the return to the former image.
    pub is_back: bool,
    /// Why the rollout stopped; none: it did not stop.
    pub stopped: Option<String>,
}

/// Standing requests. They are levels, not messages: an edge or an effect that fulfils a request clears it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Wanted {
    /// Release the cluster.
    pub release: bool,
    /// Build a failed cluster once more.
    pub retry: bool,
    /// Replace these nodes, each with the reason.
    pub replace: BTreeMap<NodeId, String>,
    /// Give these nodes back: they are erased first, and belong to the cluster until then.
    pub leave: BTreeSet<NodeId>,
    /// The wanted partition already excludes the ports of the leaving nodes.
    pub is_leave_cut: bool,
    /// Ports that the site gave to nodes of the cluster, by GUID: each is to be read with the cluster's key.
    pub new_ports: BTreeMap<String, NewPort>,
}

/// The place of a port that a later version of the site gave to a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewPort {
    /// The node.
    pub node: String,
    /// The site's name of the adapter.
    pub hca: String,
}

/// A node of a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// The node's id.
    pub node: NodeId,
    /// The node's progress in the cluster.
    pub standing: Standing,
    /// The build that the node has or is getting.
    pub build: u32,
    /// The node joins: the cluster has not let it be handed over yet.
    pub is_new: bool,
    /// Another image can be written to the node now.
    pub is_writable: bool,
    /// The node failed before its hand-over with the wanted build.
    pub is_failed: bool,
    /// Nodes with the same number share a leaf, or the smallest part of the fabric.
    pub leaf: u32,
    /// The fault of the node's links to the fabric; none while the node's system does not run.
    pub impaired: Option<Impaired>,
}

/// A fault of a node's link to the fabric: down, or slower than planned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Impaired {
    /// When the fault was first seen in the node's present state.
    pub since: Timestamp,
    /// When the fault was last seen.
    pub seen: Timestamp,
    /// Which link, and its fault.
    pub why: String,
}

/// The progress of a node in its cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// On its way: imaged, booted, checked.
    Coming,
    /// Checked; it waits for the rest of the cluster.
    Checked,
    /// In use by its customer.
    HandedOver,
    /// Out of order.
    Lost(Loss),
    /// Being erased.
    Leaving,
    /// No longer the cluster's.
    Freed,
}

/// Why a node is out of order: its state, and the reason of the state. The words are made where they are shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loss {
    /// Failed, quarantined, or in maintenance.
    pub state: NodeState,
    /// The reason of the state; may be empty.
    pub reason: String,
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.reason.as_str() {
            "" => write!(f, "{}", self.state),
            reason => write!(f, "{}: {reason}", self.state),
        }
    }
}

impl Standing {
    /// Out of order, or no longer the cluster's.
    #[must_use]
    pub fn is_out(&self) -> bool {
        matches!(self, Self::Lost(_) | Self::Leaving | Self::Freed)
    }

    /// The name as shown.
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

/// The progress of a node in the cluster `cluster`, from its state, its wait, and the reason of its state.
#[must_use]
pub fn standing(cluster: &ClusterId, node: &Node, wait: &NodeWait, reason: &str) -> Standing {
    let (state, claim) = (node.state, node.claim.as_ref());
    let ours = claim.filter(|claim| {
        claim
            .cluster
            .as_ref()
            .is_some_and(|cluster_claim| cluster_claim.cluster == *cluster)
    });
    let Some(claim) = ours else { return Standing::Freed };
    let is_let_go = claim
        .cluster
        .as_ref()
        .is_some_and(|cluster_claim| cluster_claim.let_go.is_some());
    if claim.release_requested {
        return match state {
            // The node belongs to an operator now.
            NodeState::Quarantined | NodeState::Maintenance => Standing::Freed,
            _ => Standing::Leaving,
        };
    }
    match state {
        NodeState::Failed if node.wanted.retry => Standing::Coming,
        NodeState::Failed | NodeState::Quarantined | NodeState::Maintenance => Standing::Lost(Loss {
            state,
            reason: reason.to_owned(),
        }),
        NodeState::Reclaiming => Standing::Leaving,
        // Otherwise another image is wanted on it.
        NodeState::Active if claim.handed_over == Some(claim.deployment) => Standing::HandedOver,
        // After the cluster let it go, an earlier wait does not count.
        NodeState::Validating if !is_let_go && *wait == NodeWait::Cluster => Standing::Checked,
        _ => Standing::Coming,
    }
}

/// True for a node that failed before its hand-over with the wanted build. A node that an operator holds or distrusts, or
/// that broke later, does not count.
#[must_use]
pub fn has_failed(node: &Node) -> bool {
    let is_handed_over = node
        .claim
        .as_ref()
        .is_some_and(|claim| claim.handed_over == Some(claim.deployment));
    node.state == NodeState::Failed && !node.wanted.retry && !is_handed_over
}

/// A node as a member of the cluster `cluster`. Nodes with the same `leaf` share a leaf.
#[must_use]
pub fn member(cluster: &ClusterId, id: &NodeId, node: &Node, leaf: u32, wait: &NodeWait, reason: &str) -> Member {
    let cluster_claim = node.claim.as_ref().and_then(|claim| claim.cluster.as_ref());
    let cluster_claim = cluster_claim.filter(|cluster_claim| cluster_claim.cluster == *cluster);
    let standing = standing(cluster, node, wait, reason);
    Member {
        node: id.clone(),
        build: cluster_claim.map_or(0, |cluster_claim| cluster_claim.build),
        is_new: cluster_claim.is_some_and(|cluster_claim| cluster_claim.let_go.is_none()),
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

/// The state of the cluster's partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Partition {
    /// There is no fabric manager.
    None,
    /// Under way: not every port of the fabric has been read with the right keys yet.
    Pending,
    /// Under way: this number of ports has not been read without the removed key yet.
    Draining(usize),
    /// A fault, which the text names, prevents the proof.
    Faulty(String),
    /// Every port of the fabric was read and has the right keys.
    Proven,
    /// Every port that had the partition's key was read without it.
    Gone,
}

/// The state of the network tests between the checked nodes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Network {
    /// Tests are switched off.
    #[default]
    Off,
    /// No test has covered all of the checked nodes.
    Untested,
    /// A test runs; without a message until this time it counts as lost.
    Running(Timestamp),
    /// All checked nodes have passed.
    Passed,
    /// Nodes or their cables are at fault.
    Faulty {
        /// The nodes at fault, each with the reason.
        nodes: BTreeMap<NodeId, String>,
        /// The checked nodes that passed.
        passed: BTreeSet<NodeId>,
    },
    /// Another fault, or the test could not run.
    Blocked {
        /// The fault.
        fault: String,
        /// When the test is made again.
        again: Timestamp,
    },
}

/// The last search for a replacement node, which found none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Swap {
    /// When it was made.
    pub at: Timestamp,
    /// Why it found none, for people. The numbers in it change from search to search.
    pub refused: String,
    /// The node that was to be replaced.
    #[serde(default)]
    pub lost: NodeId,
    /// The kind of obstacle.
    #[serde(default)]
    pub obstacle: Obstacle,
}

impl Swap {
    /// Whether the last search was for the same node and met the same kind of obstacle.
    #[must_use]
    pub fn is_repeated_by(&self, lost: &NodeId, obstacle: Obstacle) -> bool {
        self.lost == *lost && self.obstacle == obstacle
    }
}

/// What kept a search for a replacement node from finding one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Obstacle {
    /// Stored by a version that did not store the kind.
    #[default]
    Unknown,
    /// The site does not have the lost node any more.
    Site,
    /// No free node and links keep the promises of the cluster.
    Placement,
    /// Power or cooling do not suffice.
    Budgets,
}

/// The facts about a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// The nodes of the cluster.
    pub members: Vec<Member>,
    /// The state of its partition.
    pub partition: Partition,
    /// The site has other ports for its nodes than the partition, in words for people; none: it has the same.
    pub other_ports: Option<String>,
    /// The last search for a replacement node that found none.
    pub swap: Option<Swap>,
    /// The state of the network tests between its nodes.
    pub network: Network,
}
