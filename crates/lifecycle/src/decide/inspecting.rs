//! Discovered and inspecting: first the machine's identity, then its inventory.

use super::{Ctx, Decision, Line, Never, Wait, take_edge, take_edge_because};
use crate::chart::Edge;
use crate::effect::Effect;
use crate::facts::Bmc;
use crate::facts::Reading;

/// An enrolment reads the BMC's identity, and the first inspection follows at once and does not read it again. Before any
/// later inspection the board may have been changed.
const JUST_ENROLLED_US: i64 = 5_000_000;

impl Ctx<'_> {
    /// The BMC's list of drives was read in this state, after the agent came: many BMCs know only the drives of a running
    /// machine. A list that was compared with the inventory of a contested boot does not count.
    pub(super) fn drives_of_bmc(&self) -> Line<()> {
        match self.uncontested(Effect::ReadDrives) {
            Some(_) => Ok(()),
            None => Err(self.attempt(Effect::ReadDrives)),
        }
    }

    pub(super) fn discovered(&self) -> Line<Never> {
        self.password()?;
        match self.facts.bmc.fresh(self.node.since) {
            Some(Bmc::Identified) => Err(take_edge(Edge::Enrolled)),
            _ => Err(self.retry_forever(Effect::Identify)),
        }
    }

    pub(super) fn inspecting(&self) -> Line<Never> {
        if !self.node.evidence.is_untouched() {
            let reason = "the node holds data that was written and not erased; `rackwright node readmit` erases it";
            return Err(take_edge_because(Edge::Failed, reason));
        }
        let is_first = self.node.evidence.clean_at.is_none();
        let not_before = self.node.since.plus(if is_first { -JUST_ENROLLED_US } else { 0 });
        if self.facts.bmc.fresh(not_before).is_none() && self.facts.succeeded(Effect::Identify).is_none() {
            return Err(self.attempt(Effect::Identify));
        }
        self.firmware_of_sku()?;
        if let Reading::Known { at, .. } = self.facts.inventory
            && at >= self.evidence_since()
        {
            self.no_second_machine()?;
            self.drives_of_bmc()?;
            self.settings_verified()?;
            self.off_since(at)?;
            // After the machine ran: at a start its firmware reports boot options and keys to the BMC.
            self.bmc_reported()?;
            return Err(take_edge(Edge::Inspected));
        }
        self.settings_before_boot()?;
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
