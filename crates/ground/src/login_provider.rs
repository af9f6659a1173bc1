//! The OpenID Connect provider of the settings, by which members log in.

mod device;
mod member;
mod pending;

use std::fmt::Display;
use std::path::Path;
use std::sync::atomic::{AtomicI64, Ordering};

use rackwright_oidc::{Client, LoginError};
use secrecy::SecretString;
use tokio::sync::{OnceCell, Semaphore};

pub use self::device::{DevicePending, OpenError};
pub use self::member::{LoggedIn, ProviderLogin};
pub use self::pending::{Pending, VALID_S};
use crate::clock;
use crate::config::Config;
use crate::config::web::oidc::Settings;
use crate::core::Core;
use crate::features::FeatureState;

/// The path of the web console to which the provider sends browsers back.
pub const CALLBACK: &str = "/auth/oidc/callback";
/// Most concurrent requests to the provider: for logins of browsers, and again for logins with a device code.
const EXCHANGES: usize = 16;
/// Least time between two log lines of [`LoginProvider::log`], in seconds.
const LOG_PAUSE_S: i64 = 10;

/// The OpenID Connect provider, with the limits of its use.
#[derive(Debug)]
pub struct LoginProvider {
    /// The section `web.oidc` of the settings.
    pub settings: Settings,
    /// Permits for the exchange of a browser's code at the provider, the last step of a login.
    pub exchanges: Semaphore,
    /// Permits for requests about logins with a device code. Clients without a certificate can cause these requests, so
    /// they have their own permits and do not delay browsers.
    pub device_exchanges: Semaphore,
    /// Lifetime of a login, in hours.
    pub session_hours: u32,
    redirect_url: String,
    client: OnceCell<Client>,
    /// Time of the last log line of [`LoginProvider::log`], in seconds since 1970.
    logged_s: AtomicI64,
}

struct Configured(Option<LoginProvider>);

impl FeatureState for Configured {
    fn new(config: &Config) -> Self {
        Self(LoginProvider::new(config))
    }
}

/// The provider. `None`: the settings have none.
#[must_use]
pub fn of(core: &Core) -> Option<&LoginProvider> {
    core.feature::<Configured>().0.as_ref()
}

/// Reads the files of the provider's settings.
///
/// # Errors
/// A file cannot be read, or its content is not valid.
pub async fn check_files(core: &Core) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    if let Some(provider) = of(core) {
        provider.new_client().await?;
    }
    Ok(())
}

impl LoginProvider {
    fn new(config: &Config) -> Option<Self> {
        let web = config.web.as_ref()?;
        Some(Self {
            settings: web.oidc.clone()?,
            exchanges: Semaphore::new(EXCHANGES),
            device_exchanges: Semaphore::new(EXCHANGES),
            session_hours: web.session_hours,
            redirect_url: format!("{}{CALLBACK}", web.url(&config.names)),
            client: OnceCell::new(),
            logged_s: AtomicI64::new(0),
        })
    }

    /// Logs a failure that clients without a certificate can cause, at most once in [`LOG_PAUSE_S`] seconds.
    pub fn log(&self, what: &str, error: &dyn Display) {
        let now = clock::now().0.div_euclid(1_000_000);
        let last = self.logged_s.load(Ordering::Relaxed);
        let is_due = now.saturating_sub(last) >= LOG_PAUSE_S;
        let is_ours = || {
            self.logged_s
                .compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed)
        };
        if is_due && is_ours().is_ok() {
            tracing::warn!(%error, "{what}");
        }
    }

    /// The client of the provider. Its files are read at the first login.
    ///
    /// # Errors
    /// `Setup`: a file cannot be read, or its content is not valid.
    pub async fn client(&self) -> Result<&Client, LoginError> {
        self.client.get_or_try_init(async || self.new_client().await).await
    }

    async fn new_client(&self) -> Result<Client, LoginError> {
        let of = &self.settings;
        let read = async |field: &str, path: &Path| {
            let unreadable = |error| LoginError::Setup(format!("web.oidc.{field}: {}: {error}", path.display()));
            tokio::fs::read(path).await.map_err(unreadable)
        };
        let client_secret = match &of.client_secret_file {
            None => None,
            Some(path) => {
                let text = String::from_utf8(read("client_secret_file", path).await?);
                let text = text.map_err(|_| LoginError::Setup("web.oidc.client_secret_file: is not text".into()))?;
                let text = text.trim_end_matches(['\r', '\n']);
                if text.is_empty() {
                    return Err(LoginError::Setup("web.oidc.client_secret_file: is empty".into()));
                }
                Some(SecretString::from(text.to_owned()))
            }
        };
        let authorities = match &of.ca_file {
            None => None,
            Some(path) => Some(read("ca_file", path).await?),
        };
        let client = Client::new(rackwright_oidc::Settings {
            issuer: of.issuer.clone(),
            client_id: of.client_id.clone(),
            client_secret,
            redirect_url: self.redirect_url.clone(),
            scopes: of.scopes.clone(),
            member_claim: of.member_claim.clone(),
            groups_claim: of.groups_claim.clone(),
            authorities,
            now_s: || clock::now().0.div_euclid(1_000_000),
        });
        client.map_err(|error| match (&of.ca_file, error) {
            (Some(path), LoginError::Setup(why)) => {
                LoginError::Setup(format!("web.oidc.ca_file: {}: {why}", path.display()))
            }
            (_, error) => error,
        })
    }
}
