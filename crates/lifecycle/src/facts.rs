//! What is known of a machine, and how surely.

use serde::{Deserialize, Serialize};

use crate::account::Account;
use crate::effect::{BootTarget, Effect, Network};
use crate::time::Timestamp;

/// Something read from the world.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reading<T> {
    /// Nobody has ever looked.
    #[default]
    Never,
    /// It was known, or is being changed: nobody can say since then.
    Unknown {
        /// Since when.
        since: Timestamp,
    },
    /// It was seen.
    Known {
        /// What was seen.
        value: T,
        /// When.
        at: Timestamp,
    },
}

impl<T> Reading<T> {
    /// The value, if it was seen at or after `oldest`.
    pub fn fresh(&self, oldest: Timestamp) -> Option<&T> {
        match self {
            Self::Known { value, at } if *at >= oldest => Some(value),
            _ => None,
        }
    }

    /// The value, however old.
    pub fn last(&self) -> Option<&T> {
        match self {
            Self::Known { value, .. } => Some(value),
            _ => None,
        }
    }
}

/// Power as the BMC tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Power {
    /// On.
    On,
    /// Off.
    Off,
    /// Between the two.
    Changing,
}

/// Whether the BMC answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Bmc {
    /// It does, and it has told who it is.
    Identified,
    /// It does not, and why.
    Unreachable(String),
}

/// Our agent on the machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Agent {
    /// Connected.
    Present {
        /// The kernel's boot id.
        boot_id: String,
        /// When this boot first connected.
        booted_at: Timestamp,
    },
    /// Not connected.
    Absent,
}

/// How an attempt ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// Under way.
    Open,
    /// Done and verified.
    Succeeded,
    /// Not done.
    Failed {
        /// A stable word for the kind of failure.
        code: String,
        /// A sentence for the operator.
        message: String,
        /// The same again may help.
        retryable: bool,
    },
    /// We ended before it did; whether it was done is not known.
    Interrupted,
}

/// One try of one effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempt {
    /// What was tried.
    pub effect: Effect,
    /// When it was written down.
    pub started_at: Timestamp,
    /// When it ended; none while open.
    pub ended_at: Option<Timestamp>,
    /// It counts as failed after this moment.
    pub deadline: Timestamp,
    /// How it ended.
    pub outcome: Outcome,
    /// The boot of the agent it was given to, for what the agent does.
    pub boot_id: Option<String>,
}

/// What bears on updates of firmware.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FirmwareFacts {
    /// The node's SKU wants versions of some, and updates are made on the way into the pool. Told where it matters only.
    pub wanted: bool,
    /// An update was begun and its end is not known: the machine may be in the middle of a flash.
    pub under_way: bool,
    /// Until when the maintenance window of whoever has the node is open, if it is.
    pub open_until: Option<Timestamp>,
    /// When it opens next.
    pub opens_at: Option<Timestamp>,
}

/// What the control plane saw of the boots into the agent, beside the agent's connection.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BootFacts {
    /// How often a boot was contested since the node entered its state: two machines answered for it, or the machine did not
    /// prove which one it is.
    pub contests: u32,
    /// The last of these contests: when, and what was seen, as a sentence for people.
    pub contested: Option<(Timestamp, String)>,
    /// In the last of these contests the machine did not prove which one it is. Else two machines answered.
    pub is_unproven: bool,
    /// Microseconds from power-on to registration in the last boot that was not contested; 0 where there was none.
    pub usual_us: i64,
}

/// What the site wants done about foreign things on BMCs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BmcCare {
    /// Nothing is read.
    #[default]
    None,
    /// They are read and told.
    Report,
    /// They are also removed between customers, and a node whose BMC keeps them goes to quarantine.
    Clean,
}

/// Everything `decide` may know.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Facts {
    /// The BMC.
    pub bmc: Reading<Bmc>,
    /// Power.
    pub power: Reading<Power>,
    /// What we set the machine to boot from, as read back. Unknown once it may have been used up.
    pub boot_target: Reading<BootTarget>,
    /// The agent.
    pub agent: Reading<Agent>,
    /// Its boots.
    pub boots: BootFacts,
    /// The agent's inventory; what matters here is when it came.
    pub inventory: Reading<()>,
    /// Settings of the firmware are wanted of this machine.
    pub wants_settings: bool,
    /// What is wanted of its BMC between customers.
    pub bmc_care: BmcCare,
    /// Attempts since the present state was entered, oldest first.
    pub attempts: Vec<Attempt>,
    /// The control plane sets the node's switch ports.
    pub manages_ports: bool,
    /// The network in which all of the node's switch ports were read. Unknown since a port was read elsewhere.
    pub network: Reading<Network>,
    /// The site holds nodes whose cables are elsewhere, and in its present boot the agent heard of one: which, in words.
    pub miscabled: Option<String>,
    /// What is wanted of its firmware, and when.
    pub firmware: FirmwareFacts,
    /// Microseconds since then in line for what others had: they do not count for the state's deadline.
    pub in_line_us: i64,
    /// The account by which the BMC is entered.
    pub account: Account,
}

impl Facts {
    /// The attempt under way.
    #[must_use]
    pub fn open(&self) -> Option<&Attempt> {
        self.attempts.iter().find(|a| a.outcome == Outcome::Open)
    }

    /// Attempts of `effect`, oldest first.
    pub fn of(&self, effect: Effect) -> impl DoubleEndedIterator<Item = &Attempt> {
        self.attempts.iter().filter(move |a| a.effect == effect)
    }

    /// The newest successful attempt of `effect`.
    #[must_use]
    pub fn succeeded(&self, effect: Effect) -> Option<&Attempt> {
        self.of(effect).rfind(|a| a.outcome == Outcome::Succeeded)
    }

    /// Failures of `effect` since its last success, oldest first. An interruption is ours and does not count.
    #[must_use]
    pub fn failures(&self, effect: Effect) -> Vec<&Attempt> {
        let mut failures: Vec<_> = self
            .of(effect)
            .rev()
            .take_while(|a| a.outcome != Outcome::Succeeded)
            .filter(|a| matches!(a.outcome, Outcome::Failed { .. }))
            .collect();
        failures.reverse();
        failures
    }

    /// The newest failure of anything, in words.
    #[must_use]
    pub fn last_failure(&self) -> Option<&str> {
        self.attempts.iter().rev().find_map(|a| match &a.outcome {
            Outcome::Failed { message, .. } => Some(message.as_str()),
            _ => None,
        })
    }
}
