//! The password of the BMC. A change that was begun ends before any other request to the BMC. A due change is made while
//! the node is at rest, enrolled or taken back.

use super::{Ctx, Decision, Line, Wait};
use crate::chart::State;
use crate::effect::Effect;
use crate::facts::Outcome;
use crate::time::minutes;

/// After a change was given up, a change that only a rule wants is tried again after this many minutes.
const RETRY_MIN: i64 = 24 * 60;

impl Ctx<'_> {
    /// Ends a change that was begun: while the valid password is unknown, the BMC cannot be used for anything else.
    pub(super) fn unfinished_change(&self) -> Option<Decision> {
        let account = &self.facts.account;
        if !account.is_pending {
            return None;
        }
        let due = account.due(self.node)?;
        if self.now < due {
            return Some(Decision::Wait {
                why: Wait::Lockout,
                until: due,
            });
        }
        Some(self.attempt_for_state(Effect::ChangePassword))
    }

    /// Ok when the password is as wanted or the change was given up for now; else the next try.
    pub(super) fn password(&self) -> Line<()> {
        let account = &self.facts.account;
        let Some(due) = account.due(self.node) else {
            return Ok(());
        };
        if self.now < due {
            // Without a known password nothing else can be done.
            return if account.is_unknown {
                Err(Decision::Wait {
                    why: Wait::Lockout,
                    until: due,
                })
            } else {
                Ok(())
            };
        }
        // The promise for a node that is taken back holds: the change succeeds, or the node is set apart.
        if self.node.state != State::Reclaiming && !account.is_unknown && self.has_given_up() {
            return Ok(());
        }
        Err(self.attempt_for_state(Effect::ChangePassword))
    }

    fn has_given_up(&self) -> bool {
        let requested_at = self.facts.account.open_request().unwrap_or_default();
        let failures = self.facts.failures(Effect::ChangePassword);
        let failures: Vec<_> = failures.into_iter().filter(|a| a.started_at >= requested_at).collect();
        let Some(last) = failures.last() else {
            return false;
        };
        let is_final = matches!(&last.outcome, Outcome::Failed { retryable: false, .. });
        let again = last.ended_at.unwrap_or(last.started_at).plus(minutes(RETRY_MIN));
        (is_final || failures.len() >= self.policy.tries as usize) && self.now < again
    }
}

#[cfg(test)]
mod tests {
    use super::super::decide;
    use super::super::tests::{T0, at, failed, node, tried};
    use super::*;
    use crate::account::{Account, AccountRules, account_outcome};
    use crate::chart::Edge;
    use crate::facts::{Facts, Power, Reading};
    use crate::node::Node;
    use crate::policy::Policy;
    use crate::time::Timestamp;

    const DAY_S: i64 = 86_400;

    fn ours() -> Account {
        Account {
            rules: AccountRules {
                is_ours: true,
                every_us: 100 * DAY_S * 1_000_000,
                at_reclaim: true,
            },
            ..Account::default()
        }
    }

    fn decided(state: State, account: Account, s: i64) -> Decision {
        let facts = Facts {
            account,
            ..Facts::default()
        };
        decide(&node(state), &facts, &Policy::default(), at(s))
    }

    const CHANGE: Decision = Decision::Act(Effect::ChangePassword);

    #[test]
    fn a_password_is_changed_after_the_enrolment_and_before_its_time_is_over() {
        let changed = |s| Account {
            changed_at: Some(at(s)),
            ..ours()
        };
        assert_eq!(decided(State::Discovered, ours(), 1), CHANGE);
        assert_eq!(
            decided(State::Discovered, Account::default(), 1),
            Decision::Act(Effect::Identify)
        );
        assert_eq!(
            decided(State::Discovered, changed(0), 1),
            Decision::Act(Effect::Identify)
        );
        for state in [
            State::Available,
            State::Active,
            State::Failed,
            State::Maintenance,
            State::Quarantined,
        ] {
            assert_eq!(decided(state, ours(), 1), CHANGE, "{state}");
            assert!(
                matches!(decided(state, changed(0), 79 * DAY_S), Decision::Wait { .. }),
                "{state}"
            );
            assert_eq!(decided(state, changed(0), 80 * DAY_S), CHANGE, "{state}");
        }
        let late = Account {
            spread: 1000,
            ..changed(0)
        };
        assert!(matches!(
            decided(State::Active, late, 99 * DAY_S),
            Decision::Wait { .. }
        ));
        assert_eq!(decided(State::Active, late, 100 * DAY_S), CHANGE);
        let kept = Account {
            is_kept: true,
            ..ours()
        };
        assert!(matches!(decided(State::Active, kept, 1), Decision::Wait { .. }));
        let requested = Account {
            is_kept: true,
            asked_at: Some(at(5)),
            ..changed(0)
        };
        assert_eq!(decided(State::Active, requested, 6), CHANGE);
        let other = Account {
            is_other: true,
            ..changed(0)
        };
        assert_eq!(decided(State::Active, other, 6), CHANGE);
    }

    #[test]
    fn a_begun_change_precedes_everything() {
        let pending = Account {
            is_pending: true,
            ..Account::default()
        };
        for state in [
            State::Inspecting,
            State::Imaging,
            State::Rebooting,
            State::Validating,
            State::Reclaiming,
        ] {
            assert_eq!(decided(state, pending, 1), CHANGE, "{state}");
        }
        let closed = Account {
            closed_until: Some(at(60)),
            ..pending
        };
        let wait = Decision::Wait {
            why: Wait::Lockout,
            until: at(60),
        };
        assert_eq!(decided(State::Imaging, closed, 59), wait);
        assert_eq!(decided(State::Imaging, closed, 60), CHANGE);
        let refused = Account {
            is_refused: true,
            ..pending
        };
        assert_ne!(decided(State::Imaging, refused, 1), CHANGE);
    }

    #[test]
    fn a_node_is_returned_with_another_password_or_quarantined() {
        let reclaimed = |attempts: Vec<crate::facts::Attempt>, changed| {
            let mut all = vec![tried(Effect::EraseDrives, 1, 2, Outcome::Succeeded)];
            all.extend(attempts);
            let facts = Facts {
                power: Reading::Known {
                    value: Power::Off,
                    at: at(3),
                },
                account: Account {
                    changed_at: Some(at(changed)),
                    ..ours()
                },
                attempts: all,
                ..Facts::default()
            };
            let node = Node {
                since: T0,
                ..node(State::Reclaiming)
            };
            decide(&node, &facts, &Policy::default(), at(10))
        };
        let edge = |decision: &Decision| match decision {
            Decision::Move { edge, .. } => Some(*edge),
            _ => None,
        };
        assert_eq!(reclaimed(Vec::new(), -10), CHANGE);
        assert_eq!(edge(&reclaimed(Vec::new(), 4)), Some(Edge::Erased));
        let denied = tried(Effect::ChangePassword, 4, 5, failed("no such method", false));
        assert_eq!(edge(&reclaimed(vec![denied], -10)), Some(Edge::Condemned));
    }

    #[test]
    fn an_unmet_password_rule_blocks_no_node() {
        let denied = |s| tried(Effect::ChangePassword, s, s + 1, failed("no accounts", false));
        let facts = Facts {
            account: ours(),
            attempts: vec![denied(1)],
            ..Facts::default()
        };
        let decide_at = |s| decide(&node(State::Discovered), &facts, &Policy::default(), at(s));
        assert_eq!(decide_at(3), Decision::Act(Effect::Identify));
        assert_eq!(decide_at(2 * DAY_S), CHANGE);
        assert_eq!(
            account_outcome(&facts, Timestamp::default(), 4),
            Some(Err("no accounts".into()))
        );
        assert_eq!(account_outcome(&facts, at(2), 4), None);
    }
}
