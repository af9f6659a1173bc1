//! Access to a BMC's accounts: everything that a password change needs, so that tests can use simulated BMCs.

use async_trait::async_trait;
use rackwright_ground::text::chain;
use rackwright_redfish::{
    AccountPolicy, BmcClient, BmcHints, BmcTarget, CertificateFingerprint, LoginMethod, RedfishError, RetryPolicy,
    Settings,
};
use secrecy::SecretString;

/// Why a request to a BMC failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AccountError {
    /// The BMC was not reached: it has not even counted a login.
    Unreached(String),
    /// Unknown: the BMC may have performed the request.
    Unclear(String),
    /// The BMC refused name and password.
    Refused(String),
    /// The BMC refused the request and has not performed it.
    Denied(String),
}

impl AccountError {
    /// The reason in words.
    #[must_use]
    pub fn text(&self) -> &str {
        match self {
            Self::Unreached(text) | Self::Unclear(text) | Self::Refused(text) | Self::Denied(text) => text,
        }
    }
}

/// Data that a BMC shows without a login. They select the factory credentials.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServiceRootFacts {
    /// `Vendor`; empty: not shown.
    pub vendor: String,
    /// `Product`, or the name of the service.
    pub product: String,
}

/// A BMC before the login.
#[async_trait]
pub trait BmcAccess: Send + Sync {
    /// Reads the public data, without a login.
    async fn facts(&self) -> Result<ServiceRootFacts, AccountError>;
    /// Makes a new login, and reads a resource that requires one.
    async fn enter(&self, username: &str, password: &SecretString) -> Result<Box<dyn BmcSession>, AccountError>;
}

/// A BMC after the login.
#[async_trait]
pub trait BmcSession: Send + Sync {
    /// Whether only a password change is allowed.
    fn must_change(&self) -> bool;
    /// The fingerprint of its certificate.
    fn fingerprint(&self) -> Option<String>;
    /// Its rules for passwords and for locking accounts.
    async fn policy(&self) -> Result<AccountPolicy, AccountError>;
    /// Changes the password of the logged-in account.
    async fn set_own(&self, password: &SecretString) -> Result<(), AccountError>;
    /// Creates an administrator's account, or gives it this password.
    async fn put(&self, username: &str, password: &SecretString) -> Result<(), AccountError>;
    /// Disables an account.
    async fn disable(&self, username: &str) -> Result<(), AccountError>;
    /// Ends the session.
    async fn leave(&self);
}

/// A BMC over Redfish.
#[derive(Debug)]
pub struct Redfish {
    /// Its address; `enter` adds name and password.
    pub target: BmcTarget,
    /// Settings of the client.
    pub settings: Settings,
}

impl Redfish {
    /// A login is one request: requests that a BMC may count are never repeated.
    #[must_use]
    pub fn new(target: BmcTarget, quirks: Option<std::sync::Arc<rackwright_redfish::quirks::QuirkSet>>) -> Self {
        let settings = Settings {
            quirks,
            retry: RetryPolicy {
                retries: 1,
                ..RetryPolicy::default()
            },
            ..Settings::default()
        };
        Self { target, settings }
    }
}

struct Client {
    client: BmcClient,
    username: String,
    must_change: bool,
}

fn account_error(error: &RedfishError) -> AccountError {
    let text = chain(error);
    match error {
        RedfishError::Unauthorized { .. } => AccountError::Refused(text),
        RedfishError::Unreachable { .. }
        | RedfishError::Tls { .. }
        | RedfishError::NoSharedCipher { .. }
        | RedfishError::CertificateChanged { .. }
        | RedfishError::InvalidAddress { .. } => AccountError::Unreached(text),
        RedfishError::Status { status: 400..500, .. }
        | RedfishError::PasswordChangeRequired { .. }
        | RedfishError::NotOffered { .. }
        | RedfishError::MissingProperty { .. } => AccountError::Denied(text),
        _ => AccountError::Unclear(text),
    }
}

#[async_trait]
impl BmcAccess for Redfish {
    async fn facts(&self) -> Result<ServiceRootFacts, AccountError> {
        let root = BmcClient::root_of(&self.target, self.settings.clone()).await;
        let root = root.map_err(|error| account_error(&error))?;
        Ok(ServiceRootFacts {
            vendor: root.vendor().unwrap_or_default(),
            product: root.product().or_else(|| root.name()).unwrap_or_default(),
        })
    }

    async fn enter(&self, username: &str, password: &SecretString) -> Result<Box<dyn BmcSession>, AccountError> {
        let target = BmcTarget {
            username: username.to_owned(),
            password: password.clone(),
            ..self.target.clone()
        };
        let mut must_change = false;
        let connected = BmcClient::connect(target.clone(), self.settings.clone()).await;
        let client = match connected {
            // Some BMCs refuse the session in this case: then each request carries name and password.
            Err(RedfishError::PasswordChangeRequired { .. }) => {
                let hints = BmcHints {
                    login: LoginMethod::EachRequest,
                    ..BmcHints::default()
                };
                BmcClient::for_polling(target, self.settings.clone(), &hints)
            }
            other => other,
        };
        let client = client.map_err(|error| account_error(&error))?;
        match client.verify_login().await {
            Ok(()) => {}
            Err(RedfishError::PasswordChangeRequired { .. }) => must_change = true,
            Err(error) => {
                leave(&client).await;
                return Err(account_error(&error));
            }
        }
        Ok(Box::new(Client {
            client,
            username: username.to_owned(),
            must_change,
        }))
    }
}

async fn leave(client: &BmcClient) {
    if let Err(error) = client.close().await {
        tracing::debug!(bmc = client.address(), %error, "a BMC session could not be closed; it will time out");
    }
}

#[async_trait]
impl BmcSession for Client {
    fn must_change(&self) -> bool {
        self.must_change
    }

    fn fingerprint(&self) -> Option<String> {
        self.client
            .observed_fingerprint()
            .map(|seen: CertificateFingerprint| seen.to_string())
    }

    async fn policy(&self) -> Result<AccountPolicy, AccountError> {
        self.client
            .account_policy()
            .await
            .map_err(|error| account_error(&error))
    }

    async fn set_own(&self, password: &SecretString) -> Result<(), AccountError> {
        let set = self.client.change_own_password(&self.username, password).await;
        set.map_err(|error| account_error(&error))
    }

    async fn put(&self, username: &str, password: &SecretString) -> Result<(), AccountError> {
        let put = self.client.put_administrator(username, password).await;
        put.map_err(|error| account_error(&error))
    }

    async fn disable(&self, username: &str) -> Result<(), AccountError> {
        let found = self
            .client
            .account_of(username)
            .await
            .map_err(|error| account_error(&error))?;
        match found {
            Some(account) => self
                .client
                .disable_account(&account)
                .await
                .map_err(|error| account_error(&error)),
            None => Ok(()),
        }
    }

    async fn leave(&self) {
        leave(&self.client).await;
    }
}
