//! Discovered and inspecting: who it is, then what it holds.

use super::{Ctx, Decision, Line, Never, Wait, go, go_because};
use crate::chart::Edge;
use crate::effect::Effect;
use crate::facts::Bmc;
use crate::facts::Reading;

/// A BMC that said who it is so shortly before the state began is not asked again: an enrolment asks just before.
const ASKED_BEFORE_US: i64 = 60_000_000;

impl Ctx<'_> {
    pub(super) fn discovered(&self) -> Line<Never> {
        match self.facts.bmc.fresh(self.node.since) {
            Some(Bmc::Identified) => Err(go(Edge::Enrolled)),
            _ => Err(self.persist(Effect::Identify)),
        }
    }

    pub(super) fn inspecting(&self) -> Line<Never> {
        if !self.node.evidence.is_untouched() {
            let reason = "the node holds data that was written and not erased; `rackwright node readmit` erases it";
            return Err(go_because(Edge::Failed, reason));
        }
        let lately = self.node.since.plus(-ASKED_BEFORE_US);
        if self.facts.bmc.fresh(lately).is_none() && self.facts.succeeded(Effect::Identify).is_none() {
            return Err(self.attempt(Effect::Identify));
        }
        if let Reading::Known { at, .. } = self.facts.inventory
            && at >= self.node.since
        {
            self.off_since(at)?;
            return Err(go(Edge::Inspected));
        }
        self.agent_of_this_state()?;
        let until = self
            .policy
            .state_deadline(self.node.state, self.node.since)
            .unwrap_or(self.now);
        Err(Decision::Wait {
            why: Wait::Inventory,
            until,
        })
    }
}
