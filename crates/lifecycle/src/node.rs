//! A node as the decisions see it: its state, and the requests of its users.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::chart::State;
use crate::ids::{ClusterId, CustomerId};
use crate::names::names;
use crate::time::Timestamp;

/// One server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// The state in the chart.
    pub state: State,
    /// When the node entered the state.
    pub since: Timestamp,
    /// The claim generation in force. It grows with every claim and every reclaim; agents refuse older generations.
    pub generation: u64,
    /// The node's holder and the image that it wants; none: the node is free.
    pub claim: Option<Claim>,
    /// The requests of its operators.
    pub wanted: Wanted,
    /// The evidence about the data on its drives.
    pub evidence: Evidence,
    /// Why this record may be older than the machine. A doubted node is left alone until an operator decides.
    pub doubt: Option<Doubt>,
}

/// A reason to believe that a node's record is older than its machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Doubt {
    /// The event that raised the doubt.
    pub cause: DoubtCause,
    /// When the doubt was raised.
    pub since: Timestamp,
    /// The finding, as a sentence.
    pub why: String,
    /// The highest claim generation that the machine has shown; 0: it has shown none.
    pub generation: u64,
}

names! {
    /// The events that raise a doubt about the record of a node.
    DoubtCause {
        /// The database was restored from a backup.
        Restored = "restored",
        /// The machine has shown a newer claim generation than the record has.
        Generation = "generation",
    }
}

/// Added to a node's generation when a doubt ends. An older database has missed an unknown number of claims; agents refuse
/// every generation below the highest that they know.
const GENERATION_JUMP: u64 = 1 << 16;
/// A generation further ahead than this is taken for forged, by the agent (`MAX_LEAD` in its `disk::marker`) and here.
const GENERATION_LEAD: u64 = 1 << 20;

impl Node {
    /// Ends the doubt. The node's generation is then above every generation that its machine may know.
    pub fn believe(&mut self) {
        if let Some(doubt) = self.doubt.take() {
            let shown = doubt.generation.min(self.generation.saturating_add(GENERATION_LEAD));
            self.generation = self.generation.max(shown).saturating_add(GENERATION_JUMP);
        }
    }
}

/// The terms under which a node was given to its holder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    /// The generation with which the claim was made.
    pub generation: u64,
    /// Grows with every deployment under this claim, from 1.
    pub deployment: u32,
    /// Digest of the wanted image version.
    pub image_digest: String,
    /// The image's name as requested.
    pub image_name: String,
    /// Host name of the installed system.
    pub hostname: String,
    /// SSH public keys of the users of the installed system.
    pub ssh_authorized_keys: Vec<String>,
    /// The users gave cloud-config with this deployment. The text is stored sealed beside the node until the hand-over.
    #[serde(default)]
    pub has_user_data: bool,
    /// The cloud-config in the clear, in rows that older versions wrote. The next start seals or drops it.
    #[serde(default, rename = "user_data", skip_serializing_if = "String::is_empty")]
    pub plain_user_data: String,
    /// The drive to write to; empty: the agent chooses.
    pub root_drive: String,
    /// Read the whole disk back after writing.
    pub verify_whole_disk: bool,
    /// The claim is to end.
    pub release_requested: bool,
    /// The deployment that was handed over last; since then the provisioning key is off the machine.
    pub handed_over: Option<u32>,
    /// The customer that the node works for, as the caller gave it; empty: none. Customers take turns in a line.
    #[serde(default)]
    pub customer: CustomerId,
    /// The node's place in its cluster; none: the node was deployed alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<ClusterClaim>,
}

/// A node's place in a cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterClaim {
    pub cluster: ClusterId,
    /// When the cluster let its nodes be handed over. Until then a node that has passed its own checks waits for the
    /// others.
    pub let_go: Option<Timestamp>,
    /// The build of the cluster that the claim was made from: image, keys and user data.
    #[serde(default)]
    pub build: u32,
}

/// Standing requests. They are levels, not messages: an edge that fulfils a request clears it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Wanted {
    /// Take the node out of service, with the reason.
    pub hold: Option<String>,
    /// Quarantine the node, with the reason.
    pub condemn: Option<String>,
    /// Bring a held node back.
    pub resume: bool,
    /// Try a failed node again.
    pub retry: bool,
    /// Erase the node and return it to the pool.
    pub readmit: bool,
    /// Inspect the node again, which writes the wanted settings of its firmware.
    pub reinspect: bool,
    /// A power change, while the node is at rest.
    pub power: Option<PowerRequest>,
    /// When a firmware update to the SKU's versions was requested, for a node at rest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub firmware: Option<Timestamp>,
}

/// An operator's power request for a node at rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PowerRequest {
    /// The wanted power.
    pub goal: PowerGoal,
    /// When it was requested: only later effects count.
    pub at: Timestamp,
}

/// The power states that can be requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PowerGoal {
    On,
    Off,
    /// Seen off, then switched on.
    Cycle,
}

/// The evidence about the data on a node's drives.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Evidence {
    /// When a write was last begun.
    pub written_at: Option<Timestamp>,
    /// When the node was last inspected or proven erased.
    pub clean_at: Option<Timestamp>,
    /// Digest of the image that was written completely; none after an erase or while a write is under way.
    pub image_digest: Option<String>,
    /// The deployment that wrote this image.
    pub deployment: Option<u32>,
    /// When the agent last reported all drives as proven erased.
    pub erased_at: Option<Timestamp>,
    /// Serial numbers of the drives that were present at a write since the last proven erase of all drives.
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

    /// True when nothing was ever written, or everything written has been erased since.
    #[must_use]
    pub fn is_untouched(&self) -> bool {
        match (self.written_at, self.erased_at) {
            (None, _) => true,
            (Some(written), Some(erased)) => erased > written,
            (Some(_), None) => false,
        }
    }

    /// Drives that may hold written data and are not among the erased ones.
    #[must_use]
    pub fn missing(&self, erased: &BTreeSet<String>) -> BTreeSet<String> {
        self.drives.difference(erased).cloned().collect()
    }
}
