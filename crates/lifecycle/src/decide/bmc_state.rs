//! The BMC between customers: cleaned with the machine off, before the boot into the agent, and again at the end.
//!
//! The first cleaning keeps the former customer out of the erase. Until the erase the machine may still boot the former
//! customer's system, which can put back what was removed. So the proof for the next customer is read after the machine's
//! last run.

use super::{Ctx, Decision, Line};
use crate::effect::Effect;
use crate::facts::{BmcPolicy, Outcome, Power};
use crate::time::Timestamp;

impl Ctx<'_> {
    /// The BMC was cleaned with the machine off, before the first boot that this state makes.
    pub(super) fn bmc_cleaned_before_boot(&self) -> Line<()> {
        let is_booted = self.facts.of(Effect::PowerOn).next().is_some();
        if self.facts.bmc_policy != BmcPolicy::Clean || is_booted || self.facts.succeeded(Effect::CleanBmc).is_some() {
            return Ok(());
        }
        match self.power_since(self.node.since)? {
            Power::Off => Err(self.attempt(Effect::CleanBmc)),
            Power::On | Power::Changing => Err(self.attempt(Effect::PowerOff)),
        }
    }

    /// The BMC is as wanted, as read after everything that can change it: the machine's last run, a firmware update, and a
    /// change of the password, which may have made another account.
    pub(super) fn bmc_proven(&self) -> Line<()> {
        if self.facts.bmc_policy != BmcPolicy::Clean {
            return self.bmc_reported();
        }
        let since = self.last_change_of_bmc();
        let cleaned = self.facts.of(Effect::CleanBmc);
        let is_proven = cleaned
            .rev()
            .any(|a| a.outcome == Outcome::Succeeded && a.started_at >= since);
        if is_proven {
            return Ok(());
        }
        Err(self.attempt_since(Effect::CleanBmc, since))
    }

    /// The foreign things on the BMC were read and reported once in this state. A failed reading does not hold up the node.
    pub(super) fn bmc_reported(&self) -> Line<()> {
        let has_ended = |outcome: &Outcome| matches!(outcome, Outcome::Succeeded | Outcome::Failed { .. });
        let is_read = self.facts.of(Effect::ReadBmcState).any(|a| has_ended(&a.outcome));
        if self.facts.bmc_policy == BmcPolicy::None || is_read {
            return Ok(());
        }
        Err(Decision::Act(Effect::ReadBmcState))
    }

    fn last_change_of_bmc(&self) -> Timestamp {
        let changes = |effect| {
            matches!(
                effect,
                Effect::PowerOn | Effect::PowerOff | Effect::UpdateFirmware | Effect::ChangePassword
            )
        };
        let ended = self.facts.attempts.iter().filter(|a| changes(a.effect));
        ended
            .map(|a| a.ended_at.unwrap_or(a.started_at))
            .max()
            .unwrap_or(self.node.since)
    }
}
