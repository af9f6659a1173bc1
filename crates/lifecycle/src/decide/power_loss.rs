//! Memory between customers: memory keeps its content through a restart, and loses it without power.
//!
//! Before each boot into the agent that may erase, the machine is switched off, and its BMC is read again after the
//! policy's least time. Both readings report off, and nothing has switched the machine in between.

use super::agent_boot::changes_power;
use super::{Ctx, Decision, Line, Wait};
use crate::chart::State;
use crate::effect::Effect;
use crate::facts::{Attempt, Outcome};
use crate::time::Timestamp;

/// A time without power, as the BMC reported it at both ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PowerLoss {
    /// The machine was seen off before this moment.
    pub from: Timestamp,
    /// The machine was seen off after this moment.
    pub to: Timestamp,
}

/// The time without power before the last power-on of these attempts.
#[must_use]
pub fn power_loss(attempts: &[Attempt]) -> Option<PowerLoss> {
    let on = attempts.iter().rposition(|a| a.effect == Effect::PowerOn)?;
    proven(&attempts[..on])
}

/// The time without power at the end of these attempts.
fn proven(attempts: &[Attempt]) -> Option<PowerLoss> {
    let is_proof = |a: &Attempt| a.effect == Effect::ProvePowerOff && a.outcome == Outcome::Succeeded;
    let last = attempts.iter().rposition(|a| is_proof(a) || changes_power(a.effect))?;
    let proof = attempts.get(last).filter(|a| is_proof(a))?;
    let off = attempts[..last].iter().rfind(|a| changes_power(a.effect))?;
    let is_off = off.effect == Effect::PowerOff && off.outcome == Outcome::Succeeded;
    let from = off.ended_at.filter(|_| is_off)?;
    Some(PowerLoss {
        from,
        to: proof.started_at,
    })
}

impl Ctx<'_> {
    /// The machine is off and its memory has lost its content; else the decision that leads there.
    pub(super) fn memory_lost(&self) -> Line<()> {
        let attempts = &self.facts.attempts;
        let is_needed = self.node.state == State::Reclaiming && self.uncontested(Effect::EraseDrives).is_none();
        if !is_needed || proven(attempts).is_some() {
            return Ok(());
        }
        let last = attempts.iter().rfind(|a| changes_power(a.effect));
        let off = last.filter(|a| a.effect == Effect::PowerOff && a.outcome == Outcome::Succeeded);
        let Some(off) = off else {
            // The machine was off already, for an unknown time.
            return Err(self.attempt(Effect::PowerOff));
        };
        let until = off.ended_at.unwrap_or(off.started_at).plus(self.policy.power_off_us());
        if self.now < until {
            let why = Wait::PowerLoss;
            return Err(Decision::Wait { why, until });
        }
        Err(self.attempt(Effect::ProvePowerOff))
    }

    /// The agent's boot came after such a time without power. A boot that an older version of this program made has none.
    pub(super) fn booted_after_power_loss(&self) -> Line<()> {
        if power_loss(&self.facts.attempts).is_some() {
            return Ok(());
        }
        Err(self.attempt(Effect::PowerOff))
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{at, claimed, decide_at, failed, known, tried};
    use super::*;
    use crate::effect::BootTarget;
    use crate::facts::{Facts, Power};

    fn off(attempts: Vec<Attempt>) -> Facts {
        Facts {
            power: known(Power::Off, 100),
            boot_target: known(BootTarget::Network, 100),
            attempts,
            ..Facts::default()
        }
    }

    #[test]
    fn a_machine_is_off_for_the_least_time_before_it_boots_into_the_agent() {
        let node = claimed(State::Reclaiming);
        let mut facts = off(Vec::new());
        // Off, for an unknown time.
        assert_eq!(decide_at(&node, &facts, 101), Decision::Act(Effect::PowerOff));
        facts
            .attempts
            .push(tried(Effect::PowerOff, 101, 102, Outcome::Succeeded));
        let waits = decide_at(&node, &facts, 103);
        assert!(
            matches!(waits, Decision::Wait { why: Wait::PowerLoss, until } if until == at(112)),
            "{waits:?}"
        );
        assert_eq!(decide_at(&node, &facts, 112), Decision::Act(Effect::ProvePowerOff));
        let mut again = facts.clone();
        again
            .attempts
            .push(tried(Effect::ProvePowerOff, 112, 113, failed("it is on again", true)));
        again.power = known(Power::On, 113);
        assert_eq!(decide_at(&node, &again, 120), Decision::Act(Effect::PowerOff));
        facts
            .attempts
            .push(tried(Effect::ProvePowerOff, 112, 113, Outcome::Succeeded));
        assert_eq!(decide_at(&node, &facts, 114), Decision::Act(Effect::PowerOn));
        // Required before each boot: the former customer's system may have run meanwhile.
        facts
            .attempts
            .push(tried(Effect::PowerOn, 114, 115, Outcome::Succeeded));
        facts
            .attempts
            .push(tried(Effect::PowerOff, 900, 901, Outcome::Succeeded));
        facts.power = known(Power::Off, 901);
        facts.boot_target = known(BootTarget::Network, 902);
        let waits = decide_at(&node, &facts, 903);
        assert!(
            matches!(
                waits,
                Decision::Wait {
                    why: Wait::PowerLoss,
                    ..
                }
            ),
            "{waits:?}"
        );
        // The other states do not give the machine to another customer.
        assert_eq!(
            decide_at(&claimed(State::Imaging), &off(Vec::new()), 101),
            Decision::Act(Effect::PowerOn)
        );
    }

    #[test]
    fn only_two_readings_without_a_switch_between_them_are_a_proof() {
        let ok = Outcome::Succeeded;
        let off = || tried(Effect::PowerOff, 1, 2, ok.clone());
        let on = || tried(Effect::PowerOn, 20, 21, ok.clone());
        let proof = |outcome| tried(Effect::ProvePowerOff, 14, 15, outcome);
        let whole = [
            off(),
            tried(Effect::CleanBmc, 3, 4, ok.clone()),
            proof(ok.clone()),
            on(),
        ];
        let loss = PowerLoss {
            from: at(2),
            to: at(14),
        };
        assert_eq!(power_loss(&whole), Some(loss));
        let none = [
            vec![proof(ok.clone()), on()],
            vec![off(), on()],
            vec![off(), proof(failed("on", true)), on()],
            vec![off(), on(), proof(ok.clone()), on()],
            vec![off(), proof(ok.clone()), on(), on()],
            vec![
                off(),
                tried(Effect::UpdateFirmware, 3, 4, ok.clone()),
                proof(ok.clone()),
                on(),
            ],
            vec![
                tried(Effect::PowerOff, 1, 2, failed("stuck", true)),
                proof(ok.clone()),
                on(),
            ],
            vec![off(), proof(ok.clone())],
        ];
        for attempts in none {
            assert_eq!(power_loss(&attempts), None, "{attempts:?}");
        }
    }

    #[test]
    fn an_agent_that_booted_without_a_power_loss_erases_nothing() {
        let mut facts = off(vec![tried(Effect::PowerOn, 1, 2, Outcome::Succeeded)]);
        facts.power = known(Power::On, 2);
        facts.agent = known(
            crate::facts::Agent::Present {
                boot_id: "b".into(),
                booted_at: at(3),
            },
            3,
        );
        let node = claimed(State::Reclaiming);
        assert_eq!(decide_at(&node, &facts, 4), Decision::Act(Effect::PowerOff));
    }
}
