//! Removes foreign items from a BMC.

use rackwright_redfish_wire::error::RedfishError;
use secrecy::SecretString;
use serde_json::json;

use super::{AccountRemoval, Remedy, StateItem};
use crate::boot::{BootTarget, Persistence};
use crate::client::BmcClient;
use crate::views::{Account, VirtualMedia};

/// Statuses that mean that a BMC does not support a method.
const FALL_BACK: [u16; 6] = [400, 403, 404, 405, 409, 501];

impl BmcClient {
    /// Removes one item. Only a later reading shows whether it is gone.
    ///
    /// # Errors
    /// The BMC's refusal, or [`RedfishError::NotOffered`] if no method is known.
    pub async fn remove_foreign(&self, item: &StateItem) -> Result<(), RedfishError> {
        match &item.remedy {
            Remedy::Account => self.remove_account(item).await,
            Remedy::Delete => gone(self.delete(&item.path).await),
            Remedy::Write(body) => {
                let resource = self.get(&item.path).await?;
                self.patch(&resource, body).await.map(drop)
            }
            Remedy::Eject => {
                let slot = VirtualMedia::from(self.get(&item.path).await?);
                self.eject_media(&slot).await.map(drop)
            }
            Remedy::ClearBoot => self
                .set_boot(BootTarget::None, Persistence::Disabled, None)
                .await
                .map(drop),
            Remedy::None => Err(RedfishError::NotOffered {
                bmc: self.address(),
                what: format!("removing {}", item.path),
                offered: "no known way; remove it at the BMC itself".to_owned(),
            }),
        }
    }

    /// Tries the profile's methods until the account can no longer log in.
    async fn remove_account(&self, item: &StateItem) -> Result<(), RedfishError> {
        let mut refusal = None;
        for method in &self.profile().await?.account_removal {
            match self.remove_account_by(*method, item).await {
                Ok(()) if self.is_removed(item).await? => return Ok(()),
                // The BMC accepted the request and did nothing: the next method may work.
                Ok(()) => {}
                Err(failure)
                    if failure
                        .refusal_status()
                        .is_some_and(|status| FALL_BACK.contains(&status)) =>
                {
                    refusal.get_or_insert(failure);
                }
                Err(failure) => return Err(failure),
            }
        }
        refusal.map_or(Ok(()), Err)
    }

    async fn remove_account_by(&self, method: AccountRemoval, item: &StateItem) -> Result<(), RedfishError> {
        let body = match method {
            AccountRemoval::Delete => return self.delete(&item.path).await,
            AccountRemoval::Blank => json!({"UserName": "", "Enabled": false}),
            AccountRemoval::Disable => json!({"Enabled": false}),
        };
        let account = self.get(&item.path).await?;
        self.write_account(&account, &body, &SecretString::default()).await
    }

    /// Whether the account is gone, or its slot is disabled or belongs to another account.
    async fn is_removed(&self, item: &StateItem) -> Result<bool, RedfishError> {
        match self.get(&item.path).await {
            Ok(resource) => {
                let account = Account::from(resource);
                Ok(account.user().unwrap_or_default() != item.name || !account.is_enabled())
            }
            Err(failure) if matches!(failure.status(), Some(404 | 410)) => Ok(true),
            Err(failure) => Err(failure),
        }
    }
}

/// An item that is already gone counts as removed.
fn gone(outcome: Result<(), RedfishError>) -> Result<(), RedfishError> {
    match outcome {
        Err(failure) if matches!(failure.status(), Some(404 | 410)) => Ok(()),
        other => other,
    }
}
