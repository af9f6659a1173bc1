//! AC cycle: a vendor's action cuts all power for a moment, standby power and the BMC's power included. No property reports
//! an AC cycle; the proof is that the BMC stops answering and then returns.

use std::time::Duration;

use rackwright_redfish_wire::environment::Poll;
use rackwright_redfish_wire::error::{ErrorKind, RedfishError};
use rackwright_redfish_wire::retry::Repeat;
use serde_json::json;

use crate::client::BmcClient;
use crate::resource::Resource;
use crate::views::{Action, PowerState};

/// How long a BMC may still answer after the request. iLO and XCC wait some seconds; others power off the machine
/// first.
const STILL_ANSWERS_LIMIT: Duration = Duration::from_secs(120);
/// Most managers and chassis, together, in which the action is looked up.
const MAX_LINKS: usize = 32;

/// An AC cycle that took place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AcCycleOutcome {
    /// Name of the action that was sent, `Schema.Verb`.
    pub action: String,
    /// How long the BMC did not answer.
    pub away: Duration,
    /// The machine's power state afterwards. The firmware's policy for the return of power decides it.
    pub power: PowerState,
}

/// The action that a BMC offers for an AC cycle.
struct OfferedAction {
    /// `Schema.Verb`.
    name: String,
    action: Action,
    /// The `ResetType` in the request.
    reset_type: String,
}

impl BmcClient {
    /// Cuts the power of machine and BMC for a moment and waits until the BMC accepts a login again. The old session is lost
    /// and a new one is opened. `timeout` limits the wait for the BMC; a BMC needs one to four minutes.
    ///
    /// # Errors
    /// [`RedfishError::NotOffered`] if no profile knows an action or the BMC lacks it; the BMC's refusal;
    /// [`RedfishError::NotApplied`] if the BMC kept answering; [`RedfishError::WaitedTooLong`] if it did not return.
    pub async fn ac_cycle(&self, timeout: Duration) -> Result<AcCycleOutcome, RedfishError> {
        let offered = self.find_ac_cycle().await?;
        let body = json!({"ResetType": offered.reset_type});
        match self.post(&offered.action.target, &body, Repeat::IfRefused).await {
            Ok(_) => {}
            // The BMC may go away before it answers. The wait below finds out whether the action ran.
            Err(RedfishError::Broken { .. } | RedfishError::TimedOut { .. }) => {}
            Err(failure) => return Err(failure),
        }
        let gone_at = self.wait_unreachable(&offered.name).await?;
        let power = self.wait_reachable(timeout).await?;
        let away = self.settings().environment.now().saturating_sub(gone_at);
        Ok(AcCycleOutcome {
            action: offered.name,
            away,
            power,
        })
    }

    /// Checks that the BMC has the action that [`ac_cycle`](Self::ac_cycle) sends. Changes nothing at the BMC.
    ///
    /// # Errors
    /// [`RedfishError::NotOffered`] if the BMC has no such action; the BMC's error.
    pub async fn check_ac_cycle(&self) -> Result<(), RedfishError> {
        self.find_ac_cycle().await.map(|_| ())
    }

    /// Waits until the BMC stops answering or no longer knows the session. Returns this moment, on the clock of the
    /// client's environment. `action` is the action's name, for errors.
    async fn wait_unreachable(&self, action: &str) -> Result<Duration, RedfishError> {
        let settings = self.settings();
        let mut poll = Poll::new(
            &*settings.environment,
            settings.poll_first,
            // Shorter pauses than in other waits, so that the outage is noticed early.
            settings.poll_first * 4,
            STILL_ANSWERS_LIMIT,
        );
        let logins_before = self.logins().await;
        loop {
            let is_gone = match self.power().await {
                // A restarted BMC does not know the session, so the client has logged in again.
                Ok(_) => self.logins().await != logins_before,
                Err(failure) if failure.kind() == ErrorKind::Retryable => true,
                Err(failure) => return Err(failure),
            };
            if is_gone {
                return Ok(settings.environment.now());
            }
            if !poll.pause(None).await {
                return Err(RedfishError::NotApplied {
                    bmc: self.address(),
                    path: action.to_owned(),
                    property: "standby power".to_owned(),
                    wanted: "off for a moment".to_owned(),
                    seen: format!(
                        "on: the BMC answered and kept its session for {} s",
                        STILL_ANSWERS_LIMIT.as_secs()
                    ),
                });
            }
        }
    }

    /// Waits until the BMC accepts a login and reports the machine's power state, and returns this state.
    async fn wait_reachable(&self, timeout: Duration) -> Result<PowerState, RedfishError> {
        let settings = self.settings();
        let mut poll = Poll::new(&*settings.environment, settings.poll_first, settings.poll_cap, timeout);
        loop {
            let last = match self.power().await {
                Ok(power) => return Ok(power),
                // A starting BMC refuses logins and lacks resources for a while.
                Err(failure) if is_startup_error(&failure) => failure.to_string(),
                Err(failure) => return Err(failure),
            };
            if !poll.pause(None).await {
                return Err(RedfishError::WaitedTooLong {
                    bmc: self.address(),
                    what: "the return of the BMC after an AC cycle".to_owned(),
                    waited_s: poll.elapsed().as_secs(),
                    last,
                });
            }
        }
    }

    /// The first action of the profile that the BMC offers, else the standard's own action.
    async fn find_ac_cycle(&self) -> Result<OfferedAction, RedfishError> {
        let known = self.profile().await?.ac_cycle_actions.clone();
        let resources = self.resources_with_actions().await?;
        for candidate in &known {
            for resource in &resources {
                let Some(action) = Action::find(resource, &candidate.action) else {
                    continue;
                };
                let allowed = action.allowable("ResetType");
                let is_allowed = |value: &String| value.eq_ignore_ascii_case(&candidate.reset_type);
                if allowed.is_empty() || allowed.iter().any(is_allowed) {
                    return Ok(OfferedAction {
                        name: candidate.action.clone(),
                        action,
                        reset_type: candidate.reset_type.clone(),
                    });
                }
            }
        }
        // The standard's own action, which few BMCs offer (DSP2046, `FullPowerCycle`).
        for resource in &resources {
            let Some(action) = Action::find(resource, "Chassis.Reset") else {
                continue;
            };
            let mut allowed = action.allowable("ResetType").into_iter();
            if let Some(reset_type) = allowed.find(|value| value == "FullPowerCycle") {
                return Ok(OfferedAction {
                    name: "Chassis.Reset".to_owned(),
                    action,
                    reset_type,
                });
            }
        }
        let names: Vec<&str> = known.iter().map(|candidate| candidate.action.as_str()).collect();
        Err(RedfishError::NotOffered {
            bmc: self.address(),
            what: "an AC cycle".to_owned(),
            offered: match names.is_empty() {
                true => "no AC cycle action in the matching profiles".to_owned(),
                false => format!("none of the actions {}", names.join(", ")),
            },
        })
    }

    /// The resources in which vendors place the action: the system, its managers and its chassis. A manager or chassis that
    /// cannot be read is left out.
    async fn resources_with_actions(&self) -> Result<Vec<Resource>, RedfishError> {
        let system = self.system().await?;
        let mut links = self.manager_links(&system).await?;
        links.extend(system.chassis());
        links.truncate(MAX_LINKS);
        let mut resources: Vec<Resource> = vec![system.resource().clone()];
        for (_, outcome) in self.get_each(&links).await {
            match outcome {
                Ok(resource) => resources.push(resource),
                Err(failure) if failure.is_fatal_for_walk() => return Err(failure),
                Err(_) => {}
            }
        }
        Ok(resources)
    }
}

/// Whether a BMC that starts may answer with this error for a while.
fn is_startup_error(failure: &RedfishError) -> bool {
    failure.kind() == ErrorKind::Retryable
        || matches!(failure.status(), Some(401 | 403 | 404))
        || matches!(
            failure,
            RedfishError::NotJson { .. }
                | RedfishError::Tls { .. }
                | RedfishError::NoSharedCipher { .. }
                | RedfishError::NotOffered { .. }
        )
}
