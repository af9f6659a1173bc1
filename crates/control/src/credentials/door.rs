//! The way into a BMC's accounts: what a change of password needs of it, so that it can be tried on BMCs that are not there.

use async_trait::async_trait;
use rackwright_redfish::{
    AccountPolicy, BmcClient, BmcTarget, CertificateFingerprint, LoginWay, RedfishError, RetryPolicy, Settings,
    Shortcut,
};
use secrecy::SecretString;

/// Why something was not done at a BMC.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Knock {
    /// It was not reached: it has not even counted a login.
    Unreached(String),
    /// Nobody knows: it may have done what it was asked.
    Unclear(String),
    /// Name and password are refused.
    Refused(String),
    /// It says no to what it was asked, and has not done it.
    Denied(String),
}

impl Knock {
    /// In words.
    #[must_use]
    pub fn text(&self) -> &str {
        match self {
            Self::Unreached(text) | Self::Unclear(text) | Self::Refused(text) | Self::Denied(text) => text,
        }
    }
}

/// What a BMC tells everybody about itself, by which factory credentials are chosen.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServiceRootFacts {
    /// `Vendor`; empty where it is not told.
    pub vendor: String,
    /// `Product`, or the service's name.
    pub product: String,
}

/// A BMC from outside.
#[async_trait]
pub trait Door: Send + Sync {
    /// What it tells everybody. No login is made.
    async fn facts(&self) -> Result<ServiceRootFacts, Knock>;
    /// Logs in anew, and reads something that only who is logged in may read.
    async fn enter(&self, username: &str, password: &SecretString) -> Result<Box<dyn Inside>, Knock>;
}

/// A BMC from inside.
#[async_trait]
pub trait Inside: Send + Sync {
    /// Nothing is allowed but a change of password.
    fn must_change(&self) -> bool;
    /// The certificate that it showed.
    fn fingerprint(&self) -> Option<String>;
    /// What it asks of passwords, and when it locks accounts.
    async fn policy(&self) -> Result<AccountPolicy, Knock>;
    /// Changes the password of the account that is logged in.
    async fn set_own(&self, password: &SecretString) -> Result<(), Knock>;
    /// Makes an administrator's account, or gives it this password.
    async fn put(&self, username: &str, password: &SecretString) -> Result<(), Knock>;
    /// Forbids an account to log in.
    async fn disable(&self, username: &str) -> Result<(), Knock>;
    /// Ends the session.
    async fn leave(&self);
}

/// A BMC by Redfish.
#[derive(Debug)]
pub struct Redfish {
    /// Where it is; name and password are put in by `enter`.
    pub target: BmcTarget,
    /// How it is talked to.
    pub settings: Settings,
}

impl Redfish {
    /// One login is one request: nothing is repeated that a BMC may count.
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

fn knock(error: &RedfishError) -> Knock {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        text.push_str(&format!(": {cause}"));
        source = cause.source();
    }
    match error {
        RedfishError::Unauthorized { .. } => Knock::Refused(text),
        RedfishError::Unreachable { .. }
        | RedfishError::Tls { .. }
        | RedfishError::NoSharedCipher { .. }
        | RedfishError::CertificateChanged { .. }
        | RedfishError::InvalidAddress { .. } => Knock::Unreached(text),
        RedfishError::Status { status: 400..500, .. }
        | RedfishError::PasswordChangeRequired { .. }
        | RedfishError::NotOffered { .. }
        | RedfishError::MissingProperty { .. } => Knock::Denied(text),
        _ => Knock::Unclear(text),
    }
}

#[async_trait]
impl Door for Redfish {
    async fn facts(&self) -> Result<ServiceRootFacts, Knock> {
        let root = BmcClient::root_of(&self.target, self.settings.clone()).await;
        let root = root.map_err(|error| knock(&error))?;
        Ok(ServiceRootFacts {
            vendor: root.vendor().unwrap_or_default(),
            product: root.product().or_else(|| root.name()).unwrap_or_default(),
        })
    }

    async fn enter(&self, username: &str, password: &SecretString) -> Result<Box<dyn Inside>, Knock> {
        let target = BmcTarget {
            username: username.to_owned(),
            password: password.clone(),
            ..self.target.clone()
        };
        let mut must_change = false;
        let connected = BmcClient::connect(target.clone(), self.settings.clone()).await;
        let client = match connected {
            // Some refuse the session already: name and password then go with each request.
            Err(RedfishError::PasswordChangeRequired { .. }) => {
                let shortcut = Shortcut {
                    login: LoginWay::EachRequest,
                    ..Shortcut::default()
                };
                BmcClient::sparing(target, self.settings.clone(), &shortcut)
            }
            other => other,
        };
        let client = client.map_err(|error| knock(&error))?;
        match client.prove_login().await {
            Ok(()) => {}
            Err(RedfishError::PasswordChangeRequired { .. }) => must_change = true,
            Err(error) => {
                leave(&client).await;
                return Err(knock(&error));
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
impl Inside for Client {
    fn must_change(&self) -> bool {
        self.must_change
    }

    fn fingerprint(&self) -> Option<String> {
        self.client
            .observed_fingerprint()
            .map(|seen: CertificateFingerprint| seen.to_string())
    }

    async fn policy(&self) -> Result<AccountPolicy, Knock> {
        self.client.account_policy().await.map_err(|error| knock(&error))
    }

    async fn set_own(&self, password: &SecretString) -> Result<(), Knock> {
        let set = self.client.change_own_password(&self.username, password).await;
        set.map_err(|error| knock(&error))
    }

    async fn put(&self, username: &str, password: &SecretString) -> Result<(), Knock> {
        let put = self.client.put_administrator(username, password).await;
        put.map_err(|error| knock(&error))
    }

    async fn disable(&self, username: &str) -> Result<(), Knock> {
        let found = self.client.account_of(username).await.map_err(|error| knock(&error))?;
        match found {
            Some(account) => self
                .client
                .disable_account(&account)
                .await
                .map_err(|error| knock(&error)),
            None => Ok(()),
        }
    }

    async fn leave(&self) {
        leave(&self.client).await;
    }
}
