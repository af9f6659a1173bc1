//! What decisions about a cluster look at.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::chart::State;
use crate::chart::State as NodeState;
use crate::decide::Wait as NodeWait;
use crate::node::Claim;
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
}

/// A node of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// The node.
    pub node: String,
    /// How it stands.
    pub standing: Standing,
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

/// How a node stands in the cluster `cluster`: by its state, its claim, what it waits for, and why it is where it is.
#[must_use]
pub fn standing(cluster: &str, state: NodeState, claim: Option<&Claim>, wait_why: &str, reason: &str) -> Standing {
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
        NodeState::Failed | NodeState::Quarantined | NodeState::Maintenance => {
            let because = if reason.is_empty() { "" } else { ": " };
            Standing::Lost(format!("{state}{because}{reason}"))
        }
        NodeState::Reclaiming => Standing::Leaving,
        NodeState::Active => Standing::HandedOver,
        // Once it was let go, what it waited for before says nothing.
        NodeState::Validating if !is_let_go && NodeWait::label_of(wait_why) == NodeWait::Cluster.label() => {
            Standing::Checked
        }
        _ => Standing::Coming,
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
}
