//! Activation of new firmware.

use rackwright_redfish_wire::error::RedfishError;
use rackwright_redfish_wire::retry::Repeat;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::client::BmcClient;
use crate::views::{Action, ActionInfo};

/// The step after an update that makes the new version run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Activation {
    /// None: the BMC does everything itself.
    None,
    /// The BMC restarts.
    BmcReset,
    /// The machine is powered off and on.
    HostReset,
    /// All power is cut, standby power included.
    AcCycle,
}

impl BmcClient {
    /// Restarts the BMC itself; the machine keeps running. The BMC does not answer for minutes afterwards.
    ///
    /// # Errors
    /// [`RedfishError::NotOffered`] if the manager has no reset; the BMC's error.
    pub async fn reset_bmc(&self) -> Result<(), RedfishError> {
        let manager = self.manager().await?;
        let Some(action) = Action::find(manager.resource(), "Manager.Reset") else {
            return Err(RedfishError::NotOffered {
                bmc: self.address(),
                what: "a restart of the BMC".to_owned(),
                offered: "no Manager.Reset".to_owned(),
            });
        };
        let mut allowed = action.allowable("ResetType");
        if let (true, Some(info)) = (allowed.is_empty(), &action.info)
            && let Ok(info) = self.get(info).await
        {
            allowed = ActionInfo::from(info).allowable("ResetType");
        }
        let wanted = ["GracefulRestart", "ForceRestart"];
        let kind = wanted
            .into_iter()
            .find(|kind| allowed.iter().any(|one| one == kind))
            .unwrap_or("GracefulRestart");
        self.post(&action.target, &json!({"ResetType": kind}), Repeat::IfRefused)
            .await
            .map(drop)
    }
}
