//! The states of rest: nothing happens until an operator or a customer requests something.

use super::{Ctx, Decision, Line, Never, Wait, take_edge};
use crate::chart::Edge;
use crate::effect::Effect;
use crate::facts::{Outcome, Power};
use crate::node::PowerGoal;
use crate::time::{Timestamp, minutes};

impl Ctx<'_> {
    pub(super) fn available(&self) -> Line<Never> {
        if self.node.claim.is_some() {
            return Err(take_edge(Edge::Claimed));
        }
        self.reinspection()?;
        self.requested_firmware()?;
        self.requested_power()?;
        self.password()?;
        self.network_at_rest()?;
        Err(self.rest(Wait::Rest))
    }

    pub(super) fn active(&self) -> Line<Never> {
        if let Some(claim) = &self.node.claim
            && self.node.evidence.deployment != Some(claim.deployment)
        {
            return Err(take_edge(Edge::Reimaged));
        }
        self.requested_firmware()?;
        self.requested_power()?;
        self.password()?;
        self.network_at_rest()?;
        Err(self.wait_for_window(self.rest(Wait::Rest)))
    }

    /// A new inspection is requested for a machine without a claim and without data.
    fn reinspection(&self) -> Line<()> {
        if self.node.wanted.reinspect && self.node.claim.is_none() && self.node.evidence.is_untouched() {
            return Err(take_edge(Edge::Reinspect));
        }
        Ok(())
    }

    pub(super) fn failed(&self) -> Line<Never> {
        self.reinspection()?;
        if self.node.wanted.retry {
            match &self.node.claim {
                // The owner's data are not overwritten: the node is checked again.
                Some(claim) if claim.handed_over == Some(claim.deployment) => return Err(take_edge(Edge::Revalidate)),
                Some(_) => return Err(take_edge(Edge::Retried)),
                None => {}
            }
            if self.node.evidence.is_untouched() {
                return Err(take_edge(Edge::Reinspect));
            }
        }
        self.requested_power()?;
        self.password()?;
        self.network_at_rest()?;
        Err(self.wait_for_window_of_begun_update(self.rest(Wait::Operator)))
    }

    pub(super) fn maintenance(&self) -> Line<Never> {
        if self.node.wanted.resume {
            if self.node.claim.is_some() {
                return Err(take_edge(Edge::Revalidate));
            }
            if self.node.evidence.is_untouched() {
                return Err(take_edge(Edge::Reinspect));
            }
        }
        self.requested_firmware()?;
        self.requested_power()?;
        self.password()?;
        self.network_at_rest()?;
        Err(self.wait_for_window(self.rest(Wait::Operator)))
    }

    pub(super) fn quarantined(&self) -> Line<Never> {
        self.requested_power()?;
        self.password()?;
        self.network_at_rest()?;
        Err(self.wait_for_window_of_begun_update(self.rest(Wait::Operator)))
    }

    fn rest(&self, why: Wait) -> Decision {
        Decision::Wait {
            why,
            until: self.now.plus(minutes(60)),
        }
    }

    /// Ok when no power change is wanted, or it is done, or it was given up; else the next step towards it.
    fn requested_power(&self) -> Line<()> {
        let Some(request) = self.node.wanted.power else {
            return Ok(());
        };
        match power_outcome(self.facts, request.goal, request.at, self.policy.tries as usize) {
            Some(_) => Ok(()),
            None => Err(self.power_step(request.goal, request.at)),
        }
    }

    fn power_step(&self, goal: PowerGoal, requested_at: Timestamp) -> Decision {
        match goal {
            PowerGoal::On => self.retry_forever(Effect::PowerOn),
            PowerGoal::Off => self.retry_forever(Effect::PowerOff),
            PowerGoal::Cycle => match self.facts.power.fresh(requested_at) {
                Some(Power::Off) => self.retry_forever(Effect::PowerOn),
                _ => self.retry_forever(Effect::PowerOff),
            },
        }
    }
}

/// How a power request made at `asked` ended: done, or given up with the message of the last failure after `tries`
/// failures. None while it is still in progress.
pub fn power_outcome(
    facts: &crate::Facts,
    goal: PowerGoal,
    requested_at: Timestamp,
    tries: usize,
) -> Option<Result<(), String>> {
    let done = |effect: Effect| {
        facts
            .of(effect)
            .any(|a| a.outcome == Outcome::Succeeded && a.started_at >= requested_at)
    };
    let finished = match goal {
        PowerGoal::On => done(Effect::PowerOn),
        PowerGoal::Off => done(Effect::PowerOff),
        PowerGoal::Cycle => done(Effect::PowerOff) && done(Effect::PowerOn),
    };
    if finished {
        return Some(Ok(()));
    }
    let failures: Vec<&String> = facts
        .attempts
        .iter()
        .filter(|a| a.started_at >= requested_at)
        .filter_map(|a| match &a.outcome {
            Outcome::Failed { message, .. } => Some(message),
            _ => None,
        })
        .collect();
    (failures.len() >= tries).then(|| Err(failures.last().map(|m| (*m).clone()).unwrap_or_default()))
}
