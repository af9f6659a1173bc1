//! A node as the decisions see it: what is, and what its users want.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::chart::State;
use crate::names::names;
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
    /// Why this record may be older than the machine. Nothing is done to a doubted node before an operator speaks.
    pub doubt: Option<Doubt>,
}

/// A reason to believe that a node's record is older than its machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Doubt {
    /// What raised it.
    pub cause: DoubtCause,
    /// Since when.
    pub since: Timestamp,
    /// What was found, as a sentence.
    pub why: String,
    /// The highest claim generation that the machine has shown; 0 if it has shown none.
    pub generation: u64,
}

names! {
    /// What raises a doubt.
    DoubtCause {
        /// The database was restored from a backup.
        Restored = "restored",
        /// The machine knows a newer claim generation than the record.
        Generation = "generation",
    }
}

/// Added to a node's generation when a doubt ends. An older database cannot tell how many claims it has missed; agents
/// refuse every generation below the highest that they know.
const GENERATION_JUMP: u64 = 1 << 16;
/// The agent takes a generation further ahead than this for forged (`MAX_LEAD` in its `disk::marker`), and so do we.
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
    /// Its users gave cloud-config with this deployment. The text is sealed beside the node until the hand-over.
    #[serde(default)]
    pub has_user_data: bool,
    /// The same text in the clear, in rows that older versions wrote. The next start seals or drops it.
    #[serde(default, rename = "user_data", skip_serializing_if = "String::is_empty")]
    pub plain_user_data: String,
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
