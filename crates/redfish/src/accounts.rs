//! Accounts of a BMC: list accounts and roles, read the password policy, change both.
//!
//! A new account is made by POST. Where accounts are fixed slots, the first free slot that the profile allows is written
//! instead. A BMC that demands a new password first allows only a PATCH of that account, and names the account in its
//! refusal (DSP0266, "Password change required"); the client then reads nothing else.

use std::collections::BTreeSet;

use http::Method;
use rackwright_redfish_wire::error::RedfishError;
use rackwright_redfish_wire::etag::DEFAULT_ORDER;
use rackwright_redfish_wire::retry::Repeat;
use rackwright_redfish_wire::session::Login;
use rackwright_redfish_wire::transport::Outgoing;
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Map, Value, json};

use crate::client::BmcClient;
use crate::quirks::Profile;
use crate::resource::Resource;
use crate::settings::{BmcTarget, Settings};
use crate::views::{Account, AccountPolicy, AccountService, Role, ServiceRoot};

/// The standard role with all the rights that the client needs.
const ADMINISTRATOR: &str = "Administrator";
/// Account types of our accounts. Without them some BMCs make accounts that cannot log in by Redfish.
const ACCOUNT_TYPES: [&str; 2] = ["Redfish", "WebUI"];

impl BmcClient {
    /// The account service.
    ///
    /// # Errors
    /// [`RedfishError::NotOffered`] if the BMC has none; those of [`get`](Self::get).
    pub async fn account_service(&self) -> Result<AccountService, RedfishError> {
        let link = self.service_root().await?.account_service();
        match link {
            Some(link) => self.get(&link).await.map(AccountService::from),
            None => Err(self.no_accounts("an account service", "no accounts over Redfish")),
        }
    }

    /// The BMC's rules for passwords and for locking an account.
    ///
    /// # Errors
    /// As [`account_service`](Self::account_service).
    pub async fn account_policy(&self) -> Result<AccountPolicy, RedfishError> {
        Ok(self.account_service().await?.policy())
    }

    /// All accounts, empty slots included. An unreadable account is left out.
    ///
    /// # Errors
    /// Those of [`account_service`](Self::account_service), or a fault of the whole BMC.
    pub async fn accounts(&self) -> Result<Vec<Account>, RedfishError> {
        let Some(link) = self.account_service().await?.accounts() else {
            return Err(self.no_accounts("a list of accounts", "an account service without Accounts"));
        };
        let links = self.member_links(&link).await?;
        Ok(readable(self.get_each(&links).await)?
            .into_iter()
            .map(Account::from)
            .collect())
    }

    /// All roles. An unreadable role is left out.
    ///
    /// # Errors
    /// As [`accounts`](Self::accounts).
    pub async fn roles(&self) -> Result<Vec<Role>, RedfishError> {
        let Some(link) = self.account_service().await?.roles() else {
            return Err(self.no_accounts("a list of roles", "an account service without Roles"));
        };
        let links = self.member_links(&link).await?;
        Ok(readable(self.get_each(&links).await)?
            .into_iter()
            .map(Role::from)
            .collect())
    }

    /// The account of that name. The comparison is exact.
    ///
    /// # Errors
    /// As [`accounts`](Self::accounts).
    pub async fn account_of(&self, user: &str) -> Result<Option<Account>, RedfishError> {
        let accounts = self.accounts().await?;
        Ok(accounts
            .into_iter()
            .find(|account| account.user().as_deref() == Some(user)))
    }

    /// Makes an enabled administrator account, or sets the password of the existing account of that name. Idempotent.
    ///
    /// # Errors
    /// [`RedfishError::NotOffered`] if neither POST nor a free slot makes an account; the BMC's refusal of the
    /// password.
    pub async fn put_administrator(&self, user: &str, password: &SecretString) -> Result<(), RedfishError> {
        let service = self.account_service().await?;
        let accounts = self.accounts().await?;
        let body = new_account(user, password, &service.policy().account_types);
        if let Some(account) = accounts.iter().find(|account| account.user().as_deref() == Some(user)) {
            let body = json!({"Password": password.expose_secret(), "Enabled": true});
            return self.write_account(account.resource(), &body, password).await;
        }
        let Some(collection) = service.accounts() else {
            return Err(self.no_accounts("a list of accounts", "an account service without Accounts"));
        };
        let failure = match self.post(&collection, &body, Repeat::Never).await {
            Ok(_) => return Ok(()),
            Err(failure) => redact_password(failure, password),
        };
        // Statuses for "no such method" or "no room": accounts may be fixed slots.
        if !matches!(failure.refusal_status(), Some(400 | 403 | 404 | 405 | 409 | 501)) {
            return Err(failure);
        }
        let first = self.profile_or_default().await.first_account_slot;
        let free = accounts
            .iter()
            .filter(|account| account.user().is_none() && account.slot().is_some_and(|slot| slot >= first));
        let Some(slot) = free.min_by_key(|account| account.slot()) else {
            return Err(failure);
        };
        self.write_account(slot.resource(), &body, password).await
    }

    /// Changes the password of the account that this client logs in with.
    ///
    /// # Errors
    /// [`RedfishError::MissingProperty`] if the account is not found; the BMC's refusal, with the new password removed.
    pub async fn change_own_password(&self, user: &str, password: &SecretString) -> Result<(), RedfishError> {
        let account = match self.account_of(user).await {
            Ok(Some(account)) => account.resource().clone(),
            Ok(None) => {
                let path = "the list of accounts".to_owned();
                return Err(self.account_not_found(path, "readable account of this user name"));
            }
            Err(failure) => match self.account_to_change(&failure).await? {
                Some(account) => account,
                None => return Err(failure),
            },
        };
        let body = json!({"Password": password.expose_secret()});
        self.write_account(&account, &body, password).await
    }

    /// Disables an account and reads the result back if the BMC reports it.
    ///
    /// # Errors
    /// The BMC's refusal, or [`RedfishError::NotApplied`].
    pub async fn disable_account(&self, account: &Account) -> Result<(), RedfishError> {
        let body = json!({"Enabled": false});
        self.write_account(account.resource(), &body, &SecretString::default())
            .await?;
        let seen = Account::from(self.get(account.path()).await?);
        if seen.is_enabled() && seen.user() == account.user() {
            return Err(RedfishError::NotApplied {
                bmc: self.address(),
                path: account.path().to_owned(),
                property: "Enabled".to_owned(),
                wanted: "false".to_owned(),
                seen: "true".to_owned(),
            });
        }
        Ok(())
    }

    /// Deletes an account, or empties its slot where accounts are fixed slots.
    ///
    /// # Errors
    /// The BMC's refusal.
    pub async fn delete_account(&self, account: &Account) -> Result<(), RedfishError> {
        match self.delete(account.path()).await {
            Ok(()) => Ok(()),
            Err(failure) if matches!(failure.status(), Some(404 | 410)) => Ok(()),
            Err(failure) if matches!(failure.refusal_status(), Some(400 | 403 | 405 | 501)) => {
                let body = json!({"UserName": "", "Enabled": false});
                let emptied = self
                    .write_account(account.resource(), &body, &SecretString::default())
                    .await;
                emptied.map_err(|_| failure)
            }
            Err(failure) => Err(failure),
        }
    }

    /// Logs in if necessary and reads a resource that needs a login: the certain proof of a password.
    ///
    /// # Errors
    /// [`RedfishError::Unauthorized`] if name and password are refused, [`RedfishError::PasswordChangeRequired`] if they
    /// are right but allow only a change of password.
    pub async fn verify_login(&self) -> Result<(), RedfishError> {
        let root = self.service_root().await?;
        let link = root
            .account_service()
            .or_else(|| root.managers())
            .or_else(|| root.systems());
        let Some(link) = link else {
            return Err(RedfishError::NotOffered {
                bmc: self.address(),
                what: "a resource that requires a login".to_owned(),
                offered: "a service root without AccountService, Managers and Systems".to_owned(),
            });
        };
        self.get(&link).await.map(drop)
    }

    /// The service root, read without credentials.
    ///
    /// # Errors
    /// Errors of the address, the network and the certificate, or an answer that is not Redfish.
    pub async fn root_of(target: &BmcTarget, settings: Settings) -> Result<ServiceRoot, RedfishError> {
        let anonymous = BmcTarget {
            username: String::new(),
            password: SecretString::default(),
            ..target.clone()
        };
        let login = Login::new(String::new(), SecretString::default());
        let client = Self::with_login(anonymous, settings, login)?;
        let root = client.get_without_proof(&client.bmc().root_path()).await?;
        Ok(ServiceRoot::from(root))
    }

    /// Sends a DELETE. Idempotent.
    pub(crate) async fn delete(&self, link: &str) -> Result<(), RedfishError> {
        let outgoing = Outgoing {
            method: Method::DELETE,
            url: self.bmc().resolve(None, link)?,
            body: None,
            if_match: None,
        };
        self.call(&outgoing, Repeat::Always).await.map(drop)
    }

    /// The only account that may be changed, as the refusal names it; its content if it is readable.
    async fn account_to_change(&self, failure: &RedfishError) -> Result<Option<Resource>, RedfishError> {
        let RedfishError::PasswordChangeRequired { at, detail } = failure else {
            return Ok(None);
        };
        let Some(link) = detail.0.iter().find_map(|message| linked_account(&message.link)) else {
            let path = format!(
                "the demand for a new password in the answer to {} {}",
                at.method, at.path
            );
            return Err(self.account_not_found(path, "link to the account"));
        };
        Ok(Some(match self.get(&link).await {
            Ok(account) => account,
            Err(RedfishError::PasswordChangeRequired { .. }) => Resource::new(link, None, Value::Object(Map::new())),
            Err(other) => return Err(other),
        }))
    }

    pub(crate) async fn write_account(
        &self,
        account: &Resource,
        body: &Value,
        password: &SecretString,
    ) -> Result<(), RedfishError> {
        let profile = self.profile_or_default().await;
        // Some collections leave out the ETag that the account itself has, so the account is read first.
        let sent = self.patch_in(account, body, &profile.etag_order).await;
        sent.map(drop).map_err(|failure| redact_password(failure, password))
    }

    /// The profile, or the default one: a BMC that allows only a change of password does not report its model.
    async fn profile_or_default(&self) -> Profile {
        match self.profile().await {
            Ok(profile) => profile.clone(),
            Err(_) => Profile {
                etag_order: DEFAULT_ORDER.to_vec(),
                ..Profile::default()
            },
        }
    }

    fn no_accounts(&self, what: &str, instead: &str) -> RedfishError {
        RedfishError::NotOffered {
            bmc: self.address(),
            what: what.to_owned(),
            offered: format!("{instead}; read and change its accounts at the BMC itself"),
        }
    }

    /// Our own account is missing in `path`, which should name it.
    fn account_not_found(&self, path: String, property: &'static str) -> RedfishError {
        RedfishError::MissingProperty {
            bmc: self.address(),
            path,
            property,
            consequence: "Rackwright cannot change its password; change the password at the BMC itself",
        }
    }
}

fn new_account(user: &str, password: &SecretString, offered: &[String]) -> Value {
    let mut body = json!({
        "UserName": user, "Password": password.expose_secret(), "RoleId": ADMINISTRATOR, "Enabled": true,
    });
    let offered: BTreeSet<&str> = offered.iter().map(String::as_str).collect();
    let types: Vec<&str> = ACCOUNT_TYPES
        .into_iter()
        .filter(|kind| offered.contains(kind))
        .collect();
    if !types.is_empty() {
        body["AccountTypes"] = json!(types);
    }
    body
}

/// The account that a path on this BMC ends in.
fn linked_account(link: &str) -> Option<String> {
    let is_account = link.starts_with('/') && link.to_ascii_lowercase().contains("/accounts/") && link.len() <= 512;
    is_account.then(|| link.to_owned())
}

/// The readable resources. A fault of the whole BMC is an error.
fn readable(each: Vec<(String, Result<Resource, RedfishError>)>) -> Result<Vec<Resource>, RedfishError> {
    let mut resources = Vec::new();
    for (_, one) in each {
        match one {
            Ok(resource) => resources.push(resource),
            Err(failure) if failure.is_fatal_for_walk() => return Err(failure),
            Err(_) => {}
        }
    }
    Ok(resources)
}

/// Removes the new password from the BMC's answer: the client itself knows only the password of its own login.
fn redact_password(mut failure: RedfishError, password: &SecretString) -> RedfishError {
    if let RedfishError::Status { detail, .. }
    | RedfishError::Unauthorized { detail, .. }
    | RedfishError::PasswordChangeRequired { detail, .. } = &mut failure
    {
        detail.redact(password.expose_secret());
    }
    failure
}
