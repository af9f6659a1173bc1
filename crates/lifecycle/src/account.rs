//! When the password of a node's BMC must change, and how a requested change ended.

use crate::chart::State;
use crate::effect::Effect;
use crate::facts::{Facts, Outcome};
use crate::node::Node;
use crate::time::Timestamp;

/// The site's rules for the passwords of its BMCs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AccountRules {
    /// The control plane owns the passwords: it changes them after the enrolment, and from time to time.
    pub is_ours: bool,
    /// Longest time between changes, in microseconds; 0: no time limit.
    pub every_us: i64,
    /// The password changes whenever the node is taken back from its customer.
    pub at_reclaim: bool,
}

/// The state of the account by which the control plane logs in to a node's BMC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Account {
    /// The site's rules.
    pub rules: AccountRules,
    /// This node's operators manage its password themselves.
    pub is_kept: bool,
    /// No password is known yet: the factory list is tried.
    pub is_unknown: bool,
    /// The account's name differs from the name that the site wants.
    pub is_other: bool,
    /// When a password of the control plane was last proven; none: the password is the one from the enrolment.
    pub changed_at: Option<Timestamp>,
    /// When an operator last requested a change.
    pub asked_at: Option<Timestamp>,
    /// A change was begun, and it is not proven which of the two passwords is valid.
    pub is_pending: bool,
    /// The BMC refuses the known password: no login is tried until an operator changes the password or requests a change.
    pub is_refused: bool,
    /// No login is made before this time, so that the BMC does not lock the account.
    pub closed_until: Option<Timestamp>,
    /// The node's place among all nodes, in thousandths: spreads the changes over time.
    pub spread: u16,
}

impl Account {
    /// When the password is due to change; none: no change is wanted.
    #[must_use]
    pub fn due(&self, node: &Node) -> Option<Timestamp> {
        if self.is_refused {
            return None;
        }
        let due = if self.is_pending || self.is_unknown {
            Some(Timestamp::default())
        } else {
            self.open_request().or_else(|| self.due_by_rule(node))
        };
        due.map(|due| self.closed_until.map_or(due, |until| until.max(due)))
    }

    /// When an operator requested a change that is not made yet.
    #[must_use]
    pub fn open_request(&self) -> Option<Timestamp> {
        self.asked_at
            .filter(|requested_at| self.changed_at.is_none_or(|changed| changed < *requested_at))
    }

    fn due_by_rule(&self, node: &Node) -> Option<Timestamp> {
        if !self.rules.is_ours || self.is_kept {
            return None;
        }
        let Some(changed) = self.changed_at.filter(|_| !self.is_other) else {
            return Some(Timestamp::default());
        };
        if node.state == State::Reclaiming && self.rules.at_reclaim && changed < node.since {
            return Some(node.since);
        }
        // Between four fifths and all of the time: passwords that changed together drift apart.
        let fifth = self.rules.every_us / 5;
        let spread = fifth / 1000 * i64::from(self.spread.min(1000));
        (self.rules.every_us > 0).then(|| changed.plus(fifth * 4 + spread))
    }
}

/// How the change requested at `asked` ended: done, or given up with the message of the last failure, after `tries`
/// failures or after one failure that a retry cannot fix. None while the change is still in progress.
#[must_use]
pub fn account_outcome(facts: &Facts, requested_at: Timestamp, tries: usize) -> Option<Result<(), String>> {
    let mut failures = 0;
    let mut ended = None;
    for attempt in facts
        .of(Effect::ChangePassword)
        .filter(|a| a.started_at >= requested_at)
    {
        match &attempt.outcome {
            Outcome::Succeeded => return Some(Ok(())),
            Outcome::Failed { message, retryable, .. } => {
                failures += 1;
                if !retryable || failures >= tries {
                    ended = Some(Err(message.clone()));
                }
            }
            Outcome::Open | Outcome::Interrupted => {}
        }
    }
    ended
}
