//! Contested boots of a node: two machines answer for one boot, or a machine does not prove that it is the node's.
//!
//! A MAC address can be copied, so neither machine is believed: the session ends, the node is power-cycled, and the next
//! boot begins with no agent registered. If that boot is contested as well, the node is quarantined. An inspection ends as
//! failed instead if the machine did not prove itself, because the machine has received nothing yet.

use super::{Ctx, Decision, Line, Wait, take_edge_because};
use crate::chart::{Edge, State};
use crate::effect::Effect;
use crate::facts::{Attempt, Facts, Outcome, Power};
use crate::time::Timestamp;

/// The failure code of a job that was broken off because its boot was contested.
pub const CONTESTED: &str = "boot-contested";

/// The outcome that closes an open job of a contested boot; None: no contest since the job began.
pub(super) fn verdict(open: &Attempt, facts: &Facts) -> Option<Outcome> {
    let (at, what) = facts.boots.contested.as_ref()?;
    (*at >= open.started_at).then(|| Outcome::Failed {
        code: CONTESTED.into(),
        message: what.clone(),
        retryable: true,
    })
}

impl Ctx<'_> {
    /// The decision after a contest in this state: first a power cycle, after the second contest quarantine (for an unproven
    /// machine in inspection: failed). None: nothing to do about it.
    pub(super) fn contested(&self) -> Option<Decision> {
        let boots = &self.facts.boots;
        let (at, what) = boots.contested.as_ref().filter(|_| self.node.state.boots_agent())?;
        if boots.contests > 1 && boots.is_unproven {
            let reason =
                format!("the machine did not prove its identity or its software, even after a power cycle: {what}");
            let is_new = self.node.state == State::Inspecting;
            let edge = if is_new { Edge::Failed } else { Edge::Condemned };
            return Some(take_edge_because(edge, reason));
        }
        if boots.contests > 1 {
            let reason = format!(
                "two machines answered for the node's boot, and again after a power cycle: {what}. Find the second \
                 machine by the MAC address tables of the switches, disconnect it from the boot network, then readmit \
                 the node"
            );
            return Some(take_edge_because(Edge::Condemned, reason));
        }
        let is_cycled = self.facts.of(Effect::PowerOn).any(|a| a.started_at >= *at);
        if is_cycled || self.facts.power.fresh(*at) == Some(&Power::Off) {
            return None;
        }
        Some(self.attempt(Effect::PowerOff))
    }

    /// The time from which an agent's reports count: an earlier report may come from the second machine.
    pub(super) fn evidence_since(&self) -> Timestamp {
        let contested = self.facts.boots.contested.as_ref().map(|(at, _)| *at);
        self.node.since.max(contested.unwrap_or_default())
    }

    /// The newest success of a job that began after the last contest.
    pub(super) fn uncontested(&self, job: Effect) -> Option<&Attempt> {
        let since = self.evidence_since();
        self.facts.succeeded(job).filter(|a| a.started_at >= since)
    }

    /// Enough time has passed since the power-on for the node's own machine to have requested its boot. Until then the
    /// agent gets no job and its report does not count: else a faster machine with a copied MAC address would be believed.
    pub(super) fn no_second_machine(&self) -> Line<()> {
        let Some(boot) = self.boot() else { return Ok(()) };
        let quiet_us = self.policy.agent_quiet_us(self.facts.boots.usual_us);
        let until = boot.started_at.plus(quiet_us);
        if self.now < until {
            let why = Wait::SecondMachine;
            return Err(Decision::Wait { why, until });
        }
        Ok(())
    }
}
