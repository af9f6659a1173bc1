//! The facts about a machine, and how certain each one is.

use serde::{Deserialize, Serialize};

use crate::account::Account;
use crate::effect::{BootTarget, Effect, Network};
use crate::time::Timestamp;

/// A value read from the machine or its surroundings.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reading<T> {
    /// Never read.
    #[default]
    Never,
    /// Unknown since a moment: the value was known before, or is being changed.
    Unknown {
        /// The start of the uncertainty.
        since: Timestamp,
    },
    /// Read.
    Known {
        value: T,
        /// When it was read.
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

/// Power as the BMC reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Power {
    On,
    Off,
    /// Between the two.
    Changing,
}

/// Whether the BMC answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Bmc {
    /// It answers, and it has given its identity.
    Identified,
    /// It does not answer, with the reason.
    Unreachable(String),
}

/// The state of the control plane's agent on the machine.
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
        /// A stable word for the kind of failure, for programs.
        code: String,
        /// A sentence for the operator.
        message: String,
        /// A retry of the same may help.
        retryable: bool,
    },
    /// The control plane stopped before the effect ended; whether the effect happened is unknown.
    Interrupted,
}

/// One try of one effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempt {
    /// The effect that was tried.
    pub effect: Effect,
    /// When the attempt was stored, before it began.
    pub started_at: Timestamp,
    /// When it ended; none while open.
    pub ended_at: Option<Timestamp>,
    /// An attempt still open after this moment counts as failed.
    pub deadline: Timestamp,
    /// How it ended.
    pub outcome: Outcome,
    /// The boot of the agent that got the job, for work of the agent.
    pub boot_id: Option<String>,
}

/// The facts that decide about firmware updates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FirmwareFacts {
    /// The node's SKU wants firmware versions, and updates are made on the way into the pool. Set only where it matters.
    pub wanted: bool,
    /// An update was begun and its end is unknown: the machine may be in the middle of a flash.
    pub under_way: bool,
    /// The end of the open maintenance window of the node's holder; none: no window is open.
    pub open_until: Option<Timestamp>,
    /// When the maintenance window opens next.
    pub opens_at: Option<Timestamp>,
}

/// The control plane's observations of the boots into the agent, beside the agent's connection.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BootFacts {
    /// Contested boots since the node entered its state: two machines answered for the boot, or the machine did not prove
    /// its identity.
    pub contests: u32,
    /// The last contest: when, and what was seen, as a sentence for people.
    pub contested: Option<(Timestamp, String)>,
    /// In the last contest the machine did not prove its identity. Else two machines answered.
    pub is_unproven: bool,
    /// Microseconds from power-on to registration in the last uncontested boot; 0: there was none.
    pub usual_us: i64,
}

/// The site's policy for foreign things on BMCs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BmcPolicy {
    /// The BMC is not searched for foreign things.
    #[default]
    None,
    /// Foreign things are read and reported.
    Report,
    /// Foreign things are also removed between customers, and if the BMC keeps them, the node goes to quarantine.
    Clean,
}

/// Everything that `decide` may know.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Facts {
    /// Whether the BMC answers, as last read.
    pub bmc: Reading<Bmc>,
    /// The power, as the BMC last reported it.
    pub power: Reading<Power>,
    /// The boot target that the control plane set, as read back. Unknown once a boot may have used it up.
    pub boot_target: Reading<BootTarget>,
    /// Whether the agent is connected.
    pub agent: Reading<Agent>,
    /// The boots into the agent.
    pub boots: BootFacts,
    /// When the agent reported its inventory; the content does not matter here.
    pub inventory: Reading<()>,
    /// The SKU wants settings of this machine's firmware.
    pub wants_settings: bool,
    /// The site's policy for this node's BMC between customers.
    pub bmc_policy: BmcPolicy,
    /// Attempts since the present state was entered, oldest first.
    pub attempts: Vec<Attempt>,
    /// The control plane sets the node's switch ports.
    pub manages_ports: bool,
    /// The network in which all of the node's switch ports were read. Unknown since a port was read in another network.
    pub network: Reading<Network>,
    /// A miscabled card, in words: the site holds back nodes with wrong cables, and the agent of the present boot found
    /// one.
    pub miscabled: Option<String>,
    /// The firmware updates that are wanted, and when.
    pub firmware: FirmwareFacts,
    /// Microseconds of this state spent waiting in line for a shared resource: they do not count against the state's
    /// deadline.
    pub in_line_us: i64,
    /// The account by which the control plane logs in to the BMC.
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

    /// Failures of `effect` since its last success, oldest first. An interruption is the control plane's own doing and does
    /// not count.
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

    /// The message of the newest failure of any effect.
    #[must_use]
    pub fn last_failure(&self) -> Option<&str> {
        self.attempts.iter().rev().find_map(|a| match &a.outcome {
            Outcome::Failed { message, .. } => Some(message.as_str()),
            _ => None,
        })
    }
}
