//! AC cycle: a vendor's action cuts all power for a moment, including standby power and the BMC. No property reports an AC
//! cycle; the proof is that the BMC stops answering and then returns.

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
const DOWN_LIMIT: Duration = Duration::from_secs(120);
/// Most resources of each kind in which the action is looked up.
const MAX_PLACES: usize = 16;

/// An AC cycle that took place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AcCycleOutcome {
    /// The action that was sent, `Schema.Verb`.
    pub action: String,
    /// How long the BMC did not answer.
    pub away: Duration,
    /// The machine's power state afterwards. The firmware's policy for the return of power decides it.
    pub power: PowerState,
}

impl BmcClient {
    /// Cuts the power of machine and BMC for a moment and waits until the BMC accepts a login again. The old session is lost
    /// and a new one is opened. `timeout` limits the wait for the BMC; a BMC needs one to four minutes.
    ///
    /// # Errors
    /// [`RedfishError::NotOffered`] if no profile knows an action or the BMC lacks it; the BMC's refusal;
    /// [`RedfishError::NotApplied`] if the BMC never went away; [`RedfishError::WaitedTooLong`] if it did not
    /// return.
    pub async fn ac_cycle(&self, timeout: Duration) -> Result<AcCycleOutcome, RedfishError> {
        let (name, action, reset_type) = self.ac_cycle_action().await?;
        let body = json!({"ResetType": reset_type});
        match self.post(&action.target, &body, Repeat::IfRefused).await {
            Ok(_) => {}
            // The BMC may go away before it answers. The wait below finds out whether the action ran.
            Err(RedfishError::Broken { .. } | RedfishError::TimedOut { .. }) => {}
            Err(failure) => return Err(failure),
        }
        let gone_at = self.wait_unreachable(&name).await?;
        let power = self.wait_reachable(timeout).await?;
        let away = self.settings().environment.now().saturating_sub(gone_at);
        Ok(AcCycleOutcome {
            action: name,
            away,
            power,
        })
    }

    /// The action that [`ac_cycle`](Self::ac_cycle) would send, as `Schema.Verb`. Sends nothing that changes the BMC.
    ///
    /// # Errors
    /// [`RedfishError::NotOffered`] if the BMC has no such action; the BMC's error.
    pub async fn ac_cycle_method(&self) -> Result<String, RedfishError> {
        self.ac_cycle_action().await.map(|(name, ..)| name)
    }

    /// Waits until the BMC stops answering or no longer knows the session, and returns the moment.
    async fn wait_unreachable(&self, name: &str) -> Result<Duration, RedfishError> {
        let settings = self.settings();
        let mut poll = Poll::new(
            &*settings.environment,
            settings.poll_first,
            settings.poll_first * 4,
            DOWN_LIMIT,
        );
        let before = self.logins().await;
        loop {
            let outcome = self.power().await;
            let is_other_session = self.logins().await != before;
            match outcome {
                Ok(_) if !is_other_session => {}
                Ok(_) => return Ok(settings.environment.now()),
                Err(failure) if failure.kind() == ErrorKind::Retryable => return Ok(settings.environment.now()),
                Err(failure) => return Err(failure),
            }
            if !poll.pause(None).await {
                return Err(RedfishError::NotApplied {
                    bmc: self.address(),
                    path: name.to_owned(),
                    property: "standby power".to_owned(),
                    wanted: "off for a moment".to_owned(),
                    seen: format!(
                        "on: the BMC answered and kept its session for {} s",
                        DOWN_LIMIT.as_secs()
                    ),
                });
            }
        }
    }

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

    async fn ac_cycle_action(&self) -> Result<(String, Action, String), RedfishError> {
        let known = self.profile().await?.ac_cycle_actions.clone();
        let system = self.system().await?;
        let mut links = self.manager_links(&system).await?;
        links.extend(system.chassis());
        links.truncate(2 * MAX_PLACES);
        let mut places: Vec<Resource> = vec![system.resource().clone()];
        for (_, outcome) in self.get_each(&links).await {
            match outcome {
                Ok(resource) => places.push(resource),
                Err(failure) if failure.is_fatal_for_walk() => return Err(failure),
                Err(_) => {}
            }
        }
        for way in &known {
            for place in &places {
                let Some(action) = Action::find(place, &way.action) else {
                    continue;
                };
                let allowed = action.allowable("ResetType");
                if allowed.is_empty() || allowed.iter().any(|one| one.eq_ignore_ascii_case(&way.reset_type)) {
                    return Ok((way.action.clone(), action, way.reset_type.clone()));
                }
            }
        }
        // The standard's own action, which few BMCs offer (DSP2046, `FullPowerCycle`).
        for place in &places {
            if let Some(action) = Action::find(place, "Chassis.Reset")
                && let Some(full) = action
                    .allowable("ResetType")
                    .into_iter()
                    .find(|one| one == "FullPowerCycle")
            {
                return Ok(("Chassis.Reset".to_owned(), action, full));
            }
        }
        let names: Vec<&str> = known.iter().map(|way| way.action.as_str()).collect();
        Err(RedfishError::NotOffered {
            bmc: self.address(),
            what: "an AC cycle".to_owned(),
            offered: match names.is_empty() {
                true => "no AC cycle action in the matching profiles".to_owned(),
                false => format!("none of the actions {}", names.join(", ")),
            },
        })
    }
}

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
