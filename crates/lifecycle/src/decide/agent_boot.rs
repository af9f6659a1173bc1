//! Getting the agent to run on a machine, from any power state.
//!
//! The machine may be off, on with any system, half-way through a boot of the control plane, or stuck in its firmware. If
//! the running system is not the agent, the machine is switched off, and seen off, before the boot target is set: the
//! target is good for one boot only, and an unseen reset may have used it up.

use super::{Ctx, Decision, Line, Wait};
use crate::chart::State;
use crate::effect::{BootTarget, Effect, Network};
use crate::facts::{Agent, Attempt, Outcome, Power, Reading};
use crate::time::Timestamp;

/// The power-on that began the boot from which the agent may come now, by its index among the attempts of the present
/// state.
///
/// The control plane made the power-on in this state, it succeeded or is under way, nothing has switched the machine since,
/// and the power is not known to be off. None: a boot request or an agent comes from something other than the machine that
/// was switched on.
pub fn expected_boot<'a, I>(state: State, attempts: I, power: &Reading<Power>) -> Option<usize>
where
    I: DoubleEndedIterator<Item = &'a Attempt> + ExactSizeIterator,
{
    if !state.boots_agent() || power.last() == Some(&Power::Off) {
        return None;
    }
    let (index, last) = attempts
        .enumerate()
        .rfind(|(_, attempt)| changes_power(attempt.effect))?;
    let is_boot = last.effect == Effect::PowerOn && matches!(last.outcome, Outcome::Succeeded | Outcome::Open);
    is_boot.then_some(index)
}

/// Whether the effect may change the power.
pub(super) fn changes_power(effect: Effect) -> bool {
    matches!(effect, Effect::PowerOn | Effect::PowerOff | Effect::UpdateFirmware)
}

impl Ctx<'_> {
    /// The agent is connected, from a boot of this state: the machine was seen off in this state, and the control plane has
    /// switched it on since. The system that ran before does not count: it may be another's, and may lie about what it is.
    pub(super) fn agent_of_this_state(&self) -> Line<()> {
        let booted_since = self.boot().map_or(Timestamp::END, |a| a.started_at);
        self.agent_booted(booted_since, self.node.since)
    }

    /// The power-on that began the boot from which the agent may come now.
    pub(super) fn boot(&self) -> Option<&Attempt> {
        let attempts = &self.facts.attempts;
        expected_boot(self.node.state, attempts.iter(), &self.facts.power).map(|index| &attempts[index])
    }

    pub(super) fn agent_booted(&self, booted_since: Timestamp, power_since: Timestamp) -> Line<()> {
        match &self.facts.agent {
            Reading::Known {
                value: Agent::Present { booted_at, .. },
                ..
            } if *booted_at >= booted_since => {
                return Ok(());
            }
            Reading::Unknown { since }
                if booted_since < Timestamp::END && self.now < since.plus(self.policy.agent_grace_us()) =>
            {
                let until = since.plus(self.policy.agent_grace_us());
                return Err(Decision::Wait {
                    why: Wait::AgentReturn,
                    until,
                });
            }
            _ => {}
        }
        if self.was_left_off(power_since) {
            return Err(self.while_off());
        }
        Err(match self.power_since(power_since)? {
            Power::On => self.while_on(),
            Power::Off | Power::Changing => self.while_off(),
        })
    }

    /// The machine was off when it was last seen, shortly before `since`, no later fact contradicts that, and its boot
    /// target is still to be set: the power is read back together with the target.
    fn was_left_off(&self, since: Timestamp) -> bool {
        let oldest = self.now.plus(-self.policy.power_age_us());
        let is_off =
            matches!(&self.facts.power, Reading::Known { value: Power::Off, at } if *at >= oldest && *at < since);
        let is_silent = !matches!(self.facts.agent.last(), Some(Agent::Present { .. }));
        is_off && is_silent && !self.facts.manages_ports && self.facts.boot_target.fresh(self.node.since).is_none()
    }

    /// The number of boots meant to bring the agent. The boots before a reading that found wrong firmware settings did
    /// bring it, and are not counted.
    fn boots(&self) -> usize {
        let round = self.last_deviation_at();
        self.facts
            .of(Effect::PowerOn)
            .filter(|a| a.outcome == Outcome::Succeeded && a.started_at >= round)
            .count()
    }

    fn while_on(&self) -> Decision {
        let Some(on) = self.boot().and_then(|a| a.ended_at) else {
            return self.attempt(Effect::PowerOff);
        };
        let deadline = on.plus(self.policy.agent_boot_us());
        if self.now < deadline {
            let reread = match &self.facts.power {
                Reading::Known { at, .. } => at.plus(self.policy.power_age_us()),
                _ => deadline,
            };
            return Decision::Wait {
                why: Wait::AgentBoot,
                until: deadline.min(reread),
            };
        }
        if let Some(decision) = self.boots_exhausted() {
            return decision;
        }
        self.attempt(Effect::PowerOff)
    }

    pub(super) fn while_off(&self) -> Decision {
        if let Some(decision) = self.boots_exhausted() {
            return decision;
        }
        if let Err(decision) = self.in_network(Network::Provisioning, self.node.since) {
            return decision;
        }
        match self.facts.boot_target.fresh(self.node.since) {
            Some(BootTarget::Network) => match self.memory_lost() {
                Ok(()) => self.attempt(Effect::PowerOn),
                Err(first) => first,
            },
            _ => self.attempt(Effect::SetBoot(BootTarget::Network)),
        }
    }

    fn boots_exhausted(&self) -> Option<Decision> {
        let boots = self.boots();
        (boots >= self.policy.boots as usize).then(|| {
            let wait_s = self.policy.agent_boot_s;
            self.give_up(format!(
                "the machine was switched on {boots} times, but its agent did not report within {wait_s} s; \
                 `rackwright boot trace` shows how far the boot got"
            ))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{at, claimed, decide_at, known};
    use super::*;
    use crate::facts::{Bmc, Facts};

    #[test]
    fn the_power_of_a_machine_that_was_left_off_is_read_with_its_boot_target() {
        let mut facts = Facts {
            power: known(Power::Off, -1),
            bmc: known(Bmc::Identified, 1),
            ..Facts::default()
        };
        let imaging = claimed(State::Imaging);
        let set = Decision::Act(Effect::SetBoot(BootTarget::Network));
        assert_eq!(decide_at(&imaging, &facts, 6), set);
        // The power is read back with the target: off.
        facts.boot_target = known(BootTarget::Network, 7);
        let mut off = facts.clone();
        off.power = known(Power::Off, 7);
        assert_eq!(decide_at(&imaging, &off, 8), Decision::Act(Effect::PowerOn));
        // The BMC did not report the power with the target.
        assert_eq!(decide_at(&imaging, &facts, 8), Decision::Act(Effect::ObservePower));
        // The machine was switched on by hand: the target may be used up.
        let mut on = facts.clone();
        on.power = known(Power::On, 7);
        on.boot_target = Reading::Unknown { since: at(6) };
        assert_eq!(decide_at(&imaging, &on, 8), Decision::Act(Effect::PowerOff));
        on.power = known(Power::Off, 9);
        assert_eq!(decide_at(&imaging, &on, 10), set);
        // Where switch ports are moved, the power is read before them; a reading that is too old does not count.
        facts.boot_target = Reading::Unknown { since: at(0) };
        let managed = Facts {
            manages_ports: true,
            ..facts.clone()
        };
        assert_eq!(decide_at(&imaging, &managed, 6), Decision::Act(Effect::ObservePower));
        let old = Facts {
            power: known(Power::Off, -100_000),
            ..facts
        };
        assert_eq!(decide_at(&imaging, &old, 6), Decision::Act(Effect::ObservePower));
    }
}
