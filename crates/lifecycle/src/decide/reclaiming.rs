//! Reclaiming: a fresh boot into the agent, every drive erased and proven so, power off.
//!
//! The boot must be newer than the state: an agent left from before may still run a job of the claim that ended. A
//! drive that cannot be erased condemns the node: it must not go back to the pool.

use super::{Ctx, Line, Never, go, go_because};
use crate::chart::Edge;
use crate::effect::Effect;
use crate::facts::Outcome;

impl Ctx<'_> {
    pub(super) fn reclaiming(&self) -> Line<Never> {
        if let Some(erased) = self.facts.succeeded(Effect::EraseDrives) {
            self.off_since(erased.ended_at.unwrap_or(erased.started_at))?;
            return Err(go(Edge::Erased));
        }
        if let Some(last) = self.facts.failures(Effect::EraseDrives).last()
            && let Outcome::Failed {
                message,
                retryable: false,
                ..
            } = &last.outcome
        {
            return Err(go_because(Edge::Condemned, message));
        }
        self.agent(self.node.since)?;
        Err(self.attempt(Effect::EraseDrives))
    }
}
