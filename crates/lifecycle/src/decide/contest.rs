//! Contested boots of a node: two machines answer for one boot, or a machine does not prove that it is the node's.
//!
//! A MAC address can be copied, so no machine is believed: the session ends, the node is power-cycled, and the next boot
//! begins with nobody registered. If that boot is contested as well, the node is quarantined. An inspection ends as failed
//! instead if the machine did not prove itself, since nothing was given to the machine yet.

use super::{Ctx, Decision, Line, Wait, go_because};
use crate::chart::{Edge, State};
use crate::effect::Effect;
use crate::facts::{Attempt, Facts, Outcome, Power};
use crate::time::Timestamp;

/// The code of a job that was broken off because its boot was contested.
pub const CONTESTED: &str = "boot-contested";

/// How an open job of a contested boot ends.
pub(super) fn verdict(open: &Attempt, facts: &Facts) -> Option<Outcome> {
    let (at, what) = facts.boots.contested.as_ref()?;
    (*at >= open.started_at).then(|| Outcome::Failed {
        code: CONTESTED.into(),
        message: what.clone(),
        retryable: true,
    })
}

impl Ctx<'_> {
    /// What a contest in this state asks for: quarantine after the second one, else a power cycle.
    pub(super) fn contested(&self) -> Option<Decision> {
        let boots = &self.facts.boots;
        let (at, what) = boots.contested.as_ref().filter(|_| self.node.state.boots_agent())?;
        if boots.contests > 1 && boots.is_unproven {
            let reason = format!(
                "the machine did not prove its identity or what it runs, and again after a power cycle: {what}"
            );
            let is_new = self.node.state == State::Inspecting;
            let edge = if is_new { Edge::Failed } else { Edge::Condemned };
            return Some(go_because(edge, reason));
        }
        if boots.contests > 1 {
            let reason = format!(
                "two machines answered for its boot, and again after a power cycle: {what}. Find the second machine \
                 by the MAC address tables of the switches, take it off the boot network, then readmit the node"
            );
            return Some(go_because(Edge::Condemned, reason));
        }
        let is_cycled = self.facts.of(Effect::PowerOn).any(|a| a.started_at >= *at);
        if is_cycled || self.facts.power.fresh(*at) == Some(&Power::Off) {
            return None;
        }
        Some(self.attempt(Effect::PowerOff))
    }

    /// What an agent reported counts from here on: an earlier report may be that of the second machine.
    pub(super) fn evidence_since(&self) -> Timestamp {
        let contested = self.facts.boots.contested.as_ref().map(|(at, _)| *at);
        self.node.since.max(contested.unwrap_or_default())
    }

    /// The newest success of a job that began after the last contest.
    pub(super) fn uncontested(&self, job: Effect) -> Option<&Attempt> {
        let since = self.evidence_since();
        self.facts.succeeded(job).filter(|a| a.started_at >= since)
    }

    /// Enough time has passed since the power-on for the node's own machine to have asked for its boot. Until then an agent
    /// gets no job and its report does not count: a faster machine with a copied MAC address would be believed.
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
