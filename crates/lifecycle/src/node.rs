//! A node as the decisions see it: what is, and what its users want.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::chart::State;
use crate::time::Timestamp;

/// One server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Where it is in its life.
    pub state: State,
    /// Since when.
    pub since: Timestamp,
    /// The claim generation in force. Grows with every claim and every reclaim; agents refuse older ones.
    pub generation: u64,
    /// Who has it and what is to be on it.
    pub claim: Option<Claim>,
    /// What its operators asked for.
    pub wanted: Wanted,
    /// What is known of the data on its drives.
    pub evidence: Evidence,
}

/// A node's membership of whoever it was given to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    /// The generation the claim was made with.
    pub generation: u64,
    /// Grows with every deployment under this claim, from 1.
    pub deployment: u32,
    /// Digest of the image version that is wanted.
    pub image_digest: String,
    /// The image's name as it was asked for.
    pub image_name: String,
    /// Host name of the installed system.
    pub hostname: String,
    /// Public keys of its users.
    pub ssh_authorized_keys: Vec<String>,
    /// cloud-config of its users; empty when there is none.
    pub user_data: String,
    /// Drive to write to; empty: the agent chooses.
    pub root_drive: String,
    /// Read the whole disk back after writing.
    pub verify_whole_disk: bool,
    /// Set when the claim shall end.
    pub release_requested: bool,
    /// The deployment that was handed over last; our key is off the machine since.
    pub handed_over: Option<u32>,
    /// Whom the node works for, as the caller says; empty: nobody in particular. Where there is a line, customers share.
    #[serde(default)]
    pub customer: String,
    /// The cluster that it is a node of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<Seat>,
}

/// A node's place in a cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seat {
    /// The cluster.
    pub cluster: String,
    /// When the cluster let its nodes be handed over. Until then one that has passed its own checks waits for the others.
    pub let_go: Option<Timestamp>,
    /// The build of the cluster that the node's claim was made of: which image, with which keys and user data.
    #[serde(default)]
    pub build: u32,
}

/// Standing wishes. They are levels, not messages: an edge that fulfils one clears it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Wanted {
    /// Take it out of service, with the reason.
    pub hold: Option<String>,
    /// Quarantine it, with the reason.
    pub condemn: Option<String>,
    /// Bring a held node back.
    pub resume: bool,
    /// Try a failed node again.
    pub retry: bool,
    /// Erase and let back in.
    pub readmit: bool,
    /// Inspect it again, which has settings of its firmware written.
    pub reinspect: bool,
    /// Power, while the node is at rest.
    pub power: Option<PowerRequest>,
    /// What its SKU wants of firmware, while the node is at rest: when it was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub firmware: Option<Timestamp>,
}

/// An operator's wish for the power of a node at rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PowerRequest {
    /// What is wanted.
    pub goal: PowerGoal,
    /// When it was asked for: only what was done later counts.
    pub at: Timestamp,
}

/// What can be asked of the power.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PowerGoal {
    /// On.
    On,
    /// Off.
    Off,
    /// Seen off, then on.
    Cycle,
}

/// What is known of the data on a node's drives.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Evidence {
    /// When a write was last begun.
    pub written_at: Option<Timestamp>,
    /// When the node was last inspected or proven erased.
    pub clean_at: Option<Timestamp>,
    /// Digest of the image that was written completely; none after an erase or while a write is under way.
    pub image_digest: Option<String>,
    /// The deployment that wrote it.
    pub deployment: Option<u32>,
    /// When all drives were last proven erased, as the agent reported it.
    pub erased_at: Option<Timestamp>,
    /// Serial numbers of the drives that were there when something was written, since all were last proven erased.
    pub drives: BTreeSet<String>,
}

impl Evidence {
    /// True when there is evidence newer than the last write.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        match (self.clean_at, self.written_at) {
            (Some(clean), Some(written)) => clean > written,
            (Some(_), None) => true,
            (None, _) => false,
        }
    }

    /// True when nothing was ever written or what was written has been erased since.
    #[must_use]
    pub fn is_untouched(&self) -> bool {
        match (self.written_at, self.erased_at) {
            (None, _) => true,
            (Some(written), Some(erased)) => erased > written,
            (Some(_), None) => false,
        }
    }

    /// Drives that may hold what was written and are not among those that were erased.
    #[must_use]
    pub fn missing(&self, erased: &BTreeSet<String>) -> BTreeSet<String> {
        self.drives.difference(erased).cloned().collect()
    }
}
