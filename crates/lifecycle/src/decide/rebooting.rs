//! Rebooting: from the agent into the installed system.
//!
//! The machine is seen off, set to its own boot order, switched on, and waited for. A host that does not come up is
//! switched off and on again until the boots are spent.

use super::{Ctx, Line, Never, take_edge, take_edge_because};
use crate::chart::Edge;
use crate::effect::{BootTarget, Effect, Network};
use crate::facts::Outcome;
use crate::time::Timestamp;

impl Ctx<'_> {
    pub(super) fn rebooting(&self) -> Line<Never> {
        if self.facts.succeeded(Effect::AwaitHost).is_some() {
            return Err(take_edge(Edge::HostUp));
        }
        let failures = self.facts.failures(Effect::AwaitHost);
        if failures.len() >= self.policy.boots as usize {
            let message = self.facts.last_failure().unwrap_or_default();
            let reason = format!(
                "the installed system did not answer after {} boots: {message}",
                failures.len()
            );
            return Err(take_edge_because(Edge::Failed, reason));
        }
        let begin = failures.last().and_then(|a| a.ended_at).unwrap_or(self.node.since);
        let switched_on = self
            .facts
            .of(Effect::PowerOn)
            .any(|a| a.outcome == Outcome::Succeeded && a.started_at >= begin);
        self.in_network(Network::Provisioning, Timestamp::default())?;
        if switched_on {
            return Err(crate::Decision::Act(Effect::AwaitHost));
        }
        self.off_since(begin)?;
        if self.facts.boot_target.fresh(begin) != Some(&BootTarget::Disk) {
            return Err(self.attempt(Effect::SetBoot(BootTarget::Disk)));
        }
        Err(self.attempt(Effect::PowerOn))
    }
}
