//! Settings of the firmware: written before the boot that the state makes anyway, read again after the boot.
//!
//! A written setting takes effect at the next start, and a BMC reports the settings as of the last start. So the only proof
//! is a reading after a start of this state: an earlier reading is not believed, because a former owner with root may have
//! forged it. A machine with the wanted settings is started once, as without any; else it is started once more for each
//! time that the settings did not stay, and given up after the policy's number of tries.

use super::{Ctx, Decision, Line};
use crate::effect::Effect;
use crate::facts::{Attempt, Outcome};
use crate::time::Timestamp;

/// The failure code of a reading that found other settings than wanted.
pub const DIFFERS: &str = "settings-differ";

fn has_ended(attempt: &Attempt) -> bool {
    matches!(attempt.outcome, Outcome::Succeeded | Outcome::Failed { .. })
}

impl Ctx<'_> {
    /// Settings are written once before the state's first boot. The boot goes on whatever the result: the proof is the
    /// reading after it, and a setting that the BMC refuses because another change waits for a start can be written then.
    pub(super) fn settings_before_boot(&self) -> Line<()> {
        let is_booted = self.facts.of(Effect::PowerOn).next().is_some();
        if !self.facts.wants_settings || is_booted || self.facts.of(Effect::ApplySettings).any(has_ended) {
            return Ok(());
        }
        Err(Decision::Act(Effect::ApplySettings))
    }

    /// The settings are as wanted, as read after a start of this state; else the decision that leads there.
    pub(super) fn settings_verified(&self) -> Line<()> {
        if !self.facts.wants_settings || self.facts.succeeded(Effect::VerifySettings).is_some() {
            return Ok(());
        }
        let deviations = self.deviations();
        if let Some((last, message)) = deviations.last() {
            let rounds = deviations.len();
            if rounds >= self.policy.settings_tries as usize {
                let reason = format!("the firmware settings did not persist in {rounds} starts: {message}");
                return Err(self.give_up(reason));
            }
            let found = last.ended_at.unwrap_or(last.started_at);
            let written = self
                .facts
                .of(Effect::ApplySettings)
                .find(|a| a.outcome == Outcome::Succeeded && a.started_at >= found);
            // After that start the BMC may accept what it refused before: these tries have a budget of their own.
            let Some(written) = written.and_then(|a| a.ended_at) else {
                return Err(self.attempt_since(Effect::ApplySettings, found));
            };
            self.started_since(written)?;
            return Err(self.attempt_since(Effect::VerifySettings, written));
        }
        Err(self.attempt(Effect::VerifySettings))
    }

    /// Readings that found other settings than wanted, with their messages, oldest first.
    fn deviations(&self) -> Vec<(&Attempt, &str)> {
        let readings = self.facts.of(Effect::VerifySettings);
        let deviations = readings.filter_map(|attempt| match &attempt.outcome {
            Outcome::Failed { code, message, .. } if code == DIFFERS => Some((attempt, message.as_str())),
            _ => None,
        });
        deviations.collect()
    }

    /// The time of the last reading that found other settings than wanted: boots are counted from there.
    pub(super) fn last_deviation_at(&self) -> Timestamp {
        let last = self.deviations().last().and_then(|(attempt, _)| attempt.ended_at);
        last.unwrap_or_default()
    }

    /// The machine has gone through POST since; the agent of that boot is the proof.
    fn started_since(&self, since: Timestamp) -> Line<()> {
        let switched_on = self.facts.of(Effect::PowerOn).find(|a| a.started_at >= since);
        match switched_on {
            Some(on) => self.agent_booted(on.started_at, since),
            None => {
                self.off_since(since)?;
                Err(self.while_off())
            }
        }
    }
}
