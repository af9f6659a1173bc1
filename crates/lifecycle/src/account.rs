//! When the password of a node's BMC is to be changed, and how a wish for that has ended.

use crate::chart::State;
use crate::effect::Effect;
use crate::facts::{Facts, Outcome};
use crate::node::Node;
use crate::time::Timestamp;

/// What the site wants of the passwords of its BMCs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AccountRules {
    /// They are ours: changed after the enrolment, and from time to time.
    pub is_ours: bool,
    /// Longest time between changes, in microseconds; 0: as long as they last.
    pub every_us: i64,
    /// Changed whenever the node is taken back from whoever had it.
    pub at_reclaim: bool,
}

/// What is known of the account by which a node's BMC is entered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Account {
    /// What the site wants.
    pub rules: AccountRules,
    /// This node's operators look after its password themselves.
    pub is_kept: bool,
    /// No password is known yet: those of the factory list are tried.
    pub is_unknown: bool,
    /// The account has another name than the site wants.
    pub is_other: bool,
    /// When a password of ours was proven last; none: it is the one that the node was enrolled with.
    pub changed_at: Option<Timestamp>,
    /// When an operator asked for a change.
    pub asked_at: Option<Timestamp>,
    /// A change was begun, and which of two passwords is good is not proven.
    pub is_pending: bool,
    /// The BMC refuses what is known: nothing is tried before somebody changes that or asks.
    pub is_refused: bool,
    /// Nobody logs in before then, so that the account is not locked.
    pub closed_until: Option<Timestamp>,
    /// The node's place among all, in thousandths: so that not all are due at once.
    pub spread: u16,
}

impl Account {
    /// From when on the password is to be changed; none: nobody wants that.
    #[must_use]
    pub fn due(&self, node: &Node) -> Option<Timestamp> {
        if self.is_refused {
            return None;
        }
        let due = if self.is_pending || self.is_unknown {
            Some(Timestamp::default())
        } else {
            self.asked().or_else(|| self.due_by_rule(node))
        };
        due.map(|due| self.closed_until.map_or(due, |until| until.max(due)))
    }

    /// When an operator asked for a change that was not made since.
    #[must_use]
    pub fn asked(&self) -> Option<Timestamp> {
        self.asked_at
            .filter(|asked| self.changed_at.is_none_or(|changed| changed < *asked))
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
        // Between four fifths and all of the time, so that passwords changed together do not stay together.
        let fifth = self.rules.every_us / 5;
        let spread = fifth / 1000 * i64::from(self.spread.min(1000));
        (self.rules.every_us > 0).then(|| changed.plus(fifth * 4 + spread))
    }
}

/// How a wish of `asked` has ended: done, or given up with the last failure's words after `tries` failures or one that
/// trying again does not mend. None while it is still being worked on.
#[must_use]
pub fn account_outcome(facts: &Facts, asked: Timestamp, tries: usize) -> Option<Result<(), String>> {
    let mut failures = 0;
    let mut ended = None;
    for attempt in facts.of(Effect::ChangePassword).filter(|a| a.started_at >= asked) {
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
