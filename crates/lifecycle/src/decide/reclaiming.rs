//! Reclaiming, in this order: the switch ports leave the customer's network, the BMC is cleaned with the machine off, the
//! machine stays off until its memory has lost its content, a fresh boot into the agent, the BMC's list of drives is read,
//! every drive is erased with proof, firmware and settings are checked, power off, the BMC is proven clean.
//!
//! The boot must be one of this state: an earlier agent may still run a job of the ended claim, and the former owner's
//! system may pretend to be the agent. Whatever keeps a drive from being proven erased (a dead BMC too) condemns the node
//! in the end: the node must not return to the pool.

use super::{Ctx, Line, Never, take_edge};
use crate::chart::Edge;
use crate::effect::Effect;
use crate::facts::Outcome;

impl Ctx<'_> {
    pub(super) fn reclaiming(&self) -> Line<Never> {
        if let Some(erased) = self.uncontested(Effect::EraseDrives) {
            // A firmware update may have reset the settings.
            self.firmware_of_sku()?;
            self.settings_verified()?;
            self.off_since(erased.ended_at.unwrap_or(erased.started_at))?;
            self.password()?;
            self.bmc_proven()?;
            return Err(take_edge(Edge::Erased));
        }
        if let Some(last) = self.facts.failures(Effect::EraseDrives).last()
            && let Outcome::Failed {
                message,
                retryable: false,
                ..
            } = &last.outcome
        {
            return Err(self.give_up(message));
        }
        self.away_from_customer()?;
        self.bmc_cleaned_before_boot()?;
        self.settings_before_boot()?;
        self.agent_of_this_state()?;
        self.no_second_machine()?;
        self.booted_after_power_loss()?;
        self.drives_of_bmc()?;
        Err(self.attempt(Effect::EraseDrives))
    }
}
