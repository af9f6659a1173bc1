//! Power: choose a reset type that the BMC offers, send it, and verify the result by a reading.

use std::time::Duration;

use rackwright_redfish_wire::environment::Poll;
use rackwright_redfish_wire::error::{ErrorKind, RedfishError};
use rackwright_redfish_wire::retry::{self, Repeat};
use serde_json::json;

use crate::client::BmcClient;
use crate::views::{Action, ActionInfo, PowerState, System};

/// The wanted power state of the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PowerGoal {
    /// Powered on.
    On,
    /// Powered off at once.
    Off,
    /// Powered off after an orderly shutdown of the operating system.
    GracefulOff,
    /// Restart. Several BMCs report success without a restart: prefer [`BmcClient::power_cycle`], which verifies it.
    Restart,
}

impl PowerGoal {
    /// Reset types for the goal, best first (DSP2046, `ResetType`).
    fn reset_types(self) -> &'static [&'static str] {
        match self {
            Self::On => &["On", "ForceOn"],
            Self::Off => &["ForceOff"],
            Self::GracefulOff => &["GracefulShutdown", "PushPowerButton"],
            Self::Restart => &["ForceRestart", "PowerCycle", "GracefulRestart"],
        }
    }

    /// Whether the state is the wanted one. Always false for a restart: no state proves that it took place.
    fn is_reached_in(self, state: &PowerState) -> bool {
        match self {
            Self::On => *state == PowerState::On,
            Self::Off | Self::GracefulOff => *state == PowerState::Off,
            Self::Restart => false,
        }
    }

    fn is_pending_in(self, state: &PowerState) -> bool {
        match self {
            Self::On => *state == PowerState::PoweringOn,
            Self::Off | Self::GracefulOff => *state == PowerState::PoweringOff,
            Self::Restart => false,
        }
    }

    fn describe(self) -> &'static str {
        match self {
            Self::On => "power on",
            Self::Off => "power off",
            Self::GracefulOff => "orderly power off",
            Self::Restart => "restart",
        }
    }
}

/// The result of [`BmcClient::set_power`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PowerChange {
    /// Nothing had to be sent, or the BMC reported that the state already holds and a reading confirms it.
    AlreadyThere,
    /// The BMC accepted this reset type. It takes effect later: see [`BmcClient::wait_power`].
    Accepted {
        /// The reset type that was sent.
        reset_type: String,
    },
}

impl BmcClient {
    /// Reads the power state.
    ///
    /// # Errors
    /// Those of [`system`](Self::system).
    pub async fn power(&self) -> Result<PowerState, RedfishError> {
        Ok(self.system().await?.power_state())
    }

    /// The reset types that the system offers; none if the system has no list.
    ///
    /// # Errors
    /// Those of [`system`](Self::system), and [`RedfishError::MissingProperty`] without a reset action.
    pub async fn reset_types(&self) -> Result<Option<Vec<String>>, RedfishError> {
        let system = self.system().await?;
        let action = self.reset_action(&system)?;
        self.allowed_resets(&action).await
    }

    /// Sends a reset for the goal, unless the goal is already reached, and returns once the BMC has accepted it.
    ///
    /// # Errors
    /// [`RedfishError::NotOffered`] if no reset type fits the goal; otherwise the BMC's last error.
    pub async fn set_power(&self, goal: PowerGoal) -> Result<PowerChange, RedfishError> {
        let policy = &self.settings().retry;
        let mut refusals = 0;
        let mut was_broken = false;
        loop {
            let is_reached = |system: &System| goal.is_reached_in(&system.power_state());
            let system = self.system_to_change(is_reached).await?;
            if is_reached(&system) {
                return Ok(PowerChange::AlreadyThere);
            }
            let failure = match self.reset(&system, goal).await {
                Ok(reset_type) => return Ok(PowerChange::Accepted { reset_type }),
                Err(failure) => failure,
            };
            // HPE resets reused connections. A reading shows whether the request arrived. A level goal may be sent
            // again after that reading, a restart may not.
            if matches!(failure, RedfishError::Broken { .. }) && goal != PowerGoal::Restart && !was_broken {
                was_broken = true;
                if goal.is_pending_in(&self.power().await?) {
                    return Ok(PowerChange::AlreadyThere);
                }
                continue;
            }
            let busy = failure.messages().is_some_and(|messages| messages.is_busy());
            if !busy && !matches!(failure.status(), Some(400 | 409)) {
                return Err(failure);
            }
            // "Already in that state", or too soon after the last change: the reading decides.
            let state = self.power().await?;
            if goal.is_reached_in(&state) || goal.is_pending_in(&state) {
                return Ok(PowerChange::AlreadyThere);
            }
            let may_pass = busy || failure.status() == Some(409);
            if !may_pass || refusals >= policy.busy_retries {
                return Err(failure);
            }
            let pause = retry::grow(policy.busy_first, policy.busy_cap, refusals);
            let environment = &self.settings().environment;
            environment.sleep(retry::spread(pause, environment.jitter())).await;
            refusals += 1;
        }
    }

    /// Waits until the power state fits the goal. Polls at once, then after 250 ms, then at growing intervals.
    /// A BMC may be silent for a while within `timeout`.
    ///
    /// # Errors
    /// [`RedfishError::WaitedTooLong`] with the last state; a non-retryable error at once. Waiting for
    /// [`PowerGoal::Restart`] means waiting for on.
    pub async fn wait_power(&self, goal: PowerGoal, timeout: Duration) -> Result<(), RedfishError> {
        let settings = self.settings();
        let mut poll = Poll::new(&*settings.environment, settings.poll_first, settings.poll_cap, timeout);
        loop {
            let last = match self.power().await {
                Ok(state) => {
                    let reached = goal.is_reached_in(&state) || (goal == PowerGoal::Restart && state == PowerState::On);
                    if reached {
                        return Ok(());
                    }
                    state.to_string()
                }
                Err(failure) if failure.kind() == ErrorKind::Retryable => failure.to_string(),
                Err(failure) => return Err(failure),
            };
            if !poll.pause(None).await {
                return Err(RedfishError::WaitedTooLong {
                    bmc: self.address(),
                    what: goal.describe().to_owned(),
                    waited_s: poll.elapsed().as_secs(),
                    last,
                });
            }
        }
    }

    /// Off, verified off, on, verified on: the only restart that is certain to take place.
    ///
    /// # Errors
    /// Those of [`set_power`](Self::set_power) and [`wait_power`](Self::wait_power); `timeout` applies to each half.
    pub async fn power_cycle(&self, timeout: Duration) -> Result<(), RedfishError> {
        for goal in [PowerGoal::Off, PowerGoal::On] {
            self.set_power(goal).await?;
            self.wait_power(goal, timeout).await?;
        }
        Ok(())
    }

    fn reset_action(&self, system: &System) -> Result<Action, RedfishError> {
        system.reset().ok_or_else(|| RedfishError::MissingProperty {
            bmc: self.address(),
            path: system.path().to_owned(),
            property: "Actions.#ComputerSystem.Reset",
            consequence: "its power cannot be controlled",
        })
    }

    async fn allowed_resets(&self, action: &Action) -> Result<Option<Vec<String>>, RedfishError> {
        let inline = action.allowable("ResetType");
        if !inline.is_empty() {
            return Ok(Some(inline));
        }
        let Some(link) = &action.info else { return Ok(None) };
        match self.get(link).await {
            Ok(info) => Ok(Some(ActionInfo::from(info).allowable("ResetType")).filter(|types| !types.is_empty())),
            Err(failure) if failure.is_fatal_for_walk() => Err(failure),
            // Without a list all types are assumed, as the standard states.
            Err(_) => Ok(None),
        }
    }

    async fn reset(&self, system: &System, goal: PowerGoal) -> Result<String, RedfishError> {
        let action = self.reset_action(system)?;
        let allowed = self.allowed_resets(&action).await?;
        let avoided = &self.profile().await?.avoided_reset_types;
        let candidates = choose(goal, allowed.as_deref(), avoided);
        // For a level goal the reading decides, see set_power. A restart may be sent again only after a refusal.
        let repeat = if goal == PowerGoal::Restart {
            Repeat::IfRefused
        } else {
            Repeat::Never
        };
        let mut refusal = None;
        for reset_type in candidates {
            match self
                .post(&action.target, &json!({"ResetType": reset_type}), repeat)
                .await
            {
                Ok(_) => return Ok(reset_type),
                Err(failure) if allowed.is_none() && is_unknown_type(&failure) => refusal = Some(failure),
                Err(failure) => return Err(failure),
            }
        }
        Err(refusal.unwrap_or_else(|| RedfishError::NotOffered {
            bmc: self.address(),
            what: format!("a reset type for {}", goal.describe()),
            offered: allowed.unwrap_or_default().join(", "),
        }))
    }
}

/// Reset types to try, spelled as the BMC spells them.
pub(crate) fn choose(goal: PowerGoal, allowed: Option<&[String]>, avoided: &[String]) -> Vec<String> {
    let same = |a: &str, b: &str| a.eq_ignore_ascii_case(b);
    let wanted = goal
        .reset_types()
        .iter()
        .filter(|name| !avoided.iter().any(|bad| same(bad, name)));
    match allowed {
        None => wanted.map(|name| (*name).to_owned()).collect(),
        Some(allowed) => wanted
            .filter_map(|name| allowed.iter().find(|one| same(one, name)).cloned())
            .collect(),
    }
}

fn is_unknown_type(failure: &RedfishError) -> bool {
    const IDS: [&str; 5] = [
        "ActionParameterNotSupported",
        "ActionParameterValueNotInList",
        "ActionParameterValueFormatError",
        "PropertyValueNotInList",
        "ActionParameterUnknown",
    ];
    failure.status() == Some(501)
        || failure
            .messages()
            .is_some_and(|messages| IDS.iter().any(|id| messages.has(id)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_offered_reset_type_is_chosen() {
        let owned = |list: &[&str]| list.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let full = owned(&[
            "On",
            "ForceOff",
            "GracefulShutdown",
            "ForceRestart",
            "PowerCycle",
            "ForceOn",
        ]);
        let few = owned(&["on", "ForceOff"]);
        for (goal, allowed, avoided, expected) in [
            (PowerGoal::On, Some(&full), "", vec!["On", "ForceOn"]),
            (PowerGoal::On, Some(&few), "", vec!["on"]),
            (PowerGoal::Off, Some(&full), "", vec!["ForceOff"]),
            (PowerGoal::GracefulOff, Some(&few), "", vec![]),
            (PowerGoal::Restart, Some(&full), "ForceRestart", vec!["PowerCycle"]),
            (PowerGoal::On, None, "", vec!["On", "ForceOn"]),
        ] {
            assert_eq!(
                choose(goal, allowed.map(Vec::as_slice), &owned(&[avoided])),
                expected,
                "{goal:?} {allowed:?}"
            );
        }
    }
}
