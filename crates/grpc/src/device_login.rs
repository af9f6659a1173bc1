//! `AuthService`: logins with a device code at the identity provider. A program without a browser gets a certificate after
//! a person has allowed the login in any browser.
//!
//! Between the calls, the program keeps the state of its login as a sealed text, so that unknown callers cost no memory.

use std::time::Duration;

use rackwright_api::v1;
use rackwright_ground::api_error::ApiError;
use rackwright_ground::config::Config;
use rackwright_ground::core::Core;
use rackwright_ground::features::FeatureState;
use rackwright_ground::login_provider::{self, DevicePending, LoggedIn, LoginProvider, OpenError, ProviderLogin};
use rackwright_ground::{clock, text};
use rackwright_identity::{ClientKey, TokenHash};
use rackwright_lifecycle::EventKind;
use rackwright_oidc::{DeviceAnswer, DeviceLogin, LoginError, Person};
use rackwright_store::EventRow;
use rackwright_web::limits::{CallLimiter, LoginLimiter};
use secrecy::ExposeSecret as _;
use tonic::{Request, Status};

use super::auth::Auth;
use super::connection::Peer;
use super::convert;
use super::web::{self, host};

/// Limit of logins that begin at one address: in a burst, and on average in a second.
const BEGINS: (f64, f64) = (20.0, 0.2);
/// Limit of polls from one address: in a burst, and on average in a second.
const QUESTIONS: (f64, f64) = (60.0, 10.0);
/// Longest text of the provider in an error, in bytes.
const TEXT_MAX: usize = 200;

/// Limits of callers, which have no certificate yet.
struct DeviceLogins {
    refused: LoginLimiter,
    begins: CallLimiter,
    questions: CallLimiter,
}

impl FeatureState for DeviceLogins {
    fn new(_: &Config) -> Self {
        Self {
            refused: LoginLimiter::default(),
            begins: CallLimiter::new(BEGINS),
            questions: CallLimiter::new(QUESTIONS),
        }
    }
}

fn limits(core: &Core) -> &DeviceLogins {
    core.feature()
}

/// The provider, if it logs programs in.
fn provider(core: &Core) -> Result<&LoginProvider, ApiError> {
    let provider = login_provider::of(core).filter(|provider| provider.settings.device_login);
    provider.ok_or_else(|| {
        ApiError::precondition(
            "web.oidc.device_login",
            "this control plane has no logins with a device code",
            "`web.oidc.device_login: true` in the settings of rackwrightd turns them on",
        )
    })
}

/// The address of the caller, as limits count it.
fn address<T>(request: &Request<T>) -> String {
    let address = Peer::of(request).and_then(Peer::address);
    address.map_or_else(|| "an unknown address".into(), host)
}

fn busy(message: impl Into<String>) -> ApiError {
    ApiError::Busy {
        message: message.into(),
        hint: "try again later".into(),
    }
}

/// Refuses an address that has to wait after refused logins.
fn check(core: &Core, address: &str) -> Result<(), ApiError> {
    let checked = limits(core).refused.check(address);
    checked.map_err(|wait| {
        busy(format!(
            "too many logins from this address were refused; try again in {wait} s"
        ))
    })
}

/// The login has not ended yet.
fn pending(slow_down: bool) -> v1::FinishDeviceLoginResponse {
    v1::FinishDeviceLoginResponse {
        credential: None,
        slow_down,
    }
}

fn begin_again(why: &str) -> ApiError {
    ApiError::Unauthenticated(format!("{why}; begin another login"))
}

impl Auth {
    /// Begins a login at the provider.
    pub(super) async fn begin_device(
        &self,
        request: Request<v1::BeginDeviceLoginRequest>,
    ) -> Result<v1::BeginDeviceLoginResponse, ApiError> {
        let (provider, address) = (provider(&self.0)?, address(&request));
        check(&self.0, &address)?;
        if !limits(&self.0).begins.allows(&address) {
            return Err(busy("too many logins begin at this address"));
        }
        let csr_pem = request.into_inner().csr_pem;
        ClientKey::of_request(&csr_pem).map_err(|e| ApiError::invalid("csr_pem", e.to_string()))?;
        let turn = provider.device_exchanges.try_acquire();
        let _turn = turn.map_err(|_| busy("too many logins ask the identity provider at once"))?;
        let begun = match provider.client().await {
            Ok(client) => client.begin_device().await,
            Err(error) => Err(error),
        };
        let begun = begun.map_err(|error| {
            provider.log("a login with a device code cannot begin", &error);
            ApiError::precondition(
                "web.oidc",
                "the identity provider begins no login with a device code",
                "the log of rackwrightd has the reason",
            )
        })?;
        self.begun(provider, begun, csr_pem)
    }

    /// The answer to the start of a login.
    fn begun(
        &self,
        provider: &LoginProvider,
        begun: DeviceLogin,
        csr_pem: String,
    ) -> Result<v1::BeginDeviceLoginResponse, ApiError> {
        let internal = |error: &dyn std::error::Error| ApiError::Internal(error.to_string());
        let pending = DevicePending::new(self.0.rng.as_ref(), clock::now(), &begun, csr_pem);
        let pending = pending.map_err(|error| internal(&error))?;
        let login = pending.seal(&self.0.keys.sealer).map_err(|error| internal(&error))?;
        Ok(v1::BeginDeviceLoginResponse {
            login,
            provider: provider.settings.name.trim().to_owned(),
            user_code: begun.user_code,
            verification_url: begun.url,
            complete_verification_url: begun.complete_url.unwrap_or_default(),
            interval: Some(prost_types::Duration {
                seconds: i64::try_from(begun.interval_s).unwrap_or(i64::MAX),
                nanos: 0,
            }),
            expire_time: convert::time(pending.until),
        })
    }

    /// Asks the provider about a login. When the person has allowed it, issues the certificate.
    pub(super) async fn finish_device(
        &self,
        request: Request<v1::FinishDeviceLoginRequest>,
    ) -> Result<v1::FinishDeviceLoginResponse, Status> {
        let (provider, address) = (provider(&self.0)?, address(&request));
        check(&self.0, &address)?;
        let login = match DevicePending::open(&self.0.keys.sealer, &request.get_ref().login, clock::now()) {
            Ok(login) => login,
            Err(OpenError::TooOld) => return Err(begin_again("the login was not allowed in time").into()),
            Err(OpenError::Unknown) => {
                self.note_refused(&address).await;
                return Err(begin_again("the login is not known to this control plane").into());
            }
        };
        // Limits the load on the provider: the program polls again later.
        let turn = provider.device_exchanges.try_acquire();
        let (Ok(_turn), true) = (turn, limits(&self.0).questions.allows(&address)) else {
            return Ok(pending(true));
        };
        let answer = match provider.client().await {
            Ok(client) => client.ask_device(&login.device_code).await,
            Err(error) => Err(error),
        };
        let ended = match answer {
            Ok(DeviceAnswer::Pending) => return Ok(pending(false)),
            Ok(DeviceAnswer::SlowDown) => return Ok(pending(true)),
            Ok(DeviceAnswer::Denied) => {
                let message = "the login was refused on the page of the identity provider";
                return Err(ApiError::Forbidden(message.into()).into());
            }
            Ok(DeviceAnswer::Expired) => return Err(begin_again("the login was not allowed in time").into()),
            Ok(DeviceAnswer::Allowed(person)) => self.certify(provider, *person, &login, &address).await,
            Err(LoginError::Invalid(why)) => Err(begin_again(&text::cut(&why, TEXT_MAX))),
            Err(error) => {
                provider.log("a login with a device code cannot end", &error);
                return Err(Status::unavailable("the identity provider gives no usable answer"));
            }
        };
        let credential = match ended {
            Ok(credential) => credential,
            Err(error) => {
                let is_refusal = !matches!(error, ApiError::Store(_) | ApiError::Internal(_));
                if is_refusal {
                    self.note_refused(&address).await;
                }
                return Err(error.into());
            }
        };
        limits(&self.0).refused.note_accepted(&address);
        Ok(v1::FinishDeviceLoginResponse {
            credential: Some(credential),
            slow_down: false,
        })
    }

    /// Issues the certificate for a person, as the person's member. The certificate is valid as long as a session in a
    /// browser.
    async fn certify(
        &self,
        provider: &LoginProvider,
        person: Person,
        pending: &DevicePending,
        address: &str,
    ) -> Result<v1::Credential, ApiError> {
        let hash = TokenHash::of(pending.secret.expose_secret()).map_err(|e| ApiError::Internal(e.to_string()))?;
        let login = ProviderLogin::of(&provider.settings, person, (hash, pending.until));
        let hours = provider.session_hours;
        let lifetime = Duration::from_secs(u64::from(hours) * 3600);
        let (mut tx, of) = login.member(&self.0).await?;
        let LoggedIn { member, epoch, rights } = of;
        let request = (pending.csr_pem.as_str(), lifetime);
        let credential = self.credential(&mut tx, request, (&member, epoch), &rights).await?;
        tx.add_event(&EventRow {
            at: clock::now(),
            kind: EventKind::SecuritySessionOpened,
            target: format!("members/{member}"),
            message: format!("{member} logged in with a device code from {address}: a certificate for {hours} h"),
            attributes: [("issuer".to_owned(), login.origin.issuer)].into(),
            ..EventRow::default()
        })
        .await?;
        self.0.commit(tx).await?;
        Ok(credential)
    }

    /// Notes a refused login.
    async fn note_refused(&self, address: &str) {
        web::note_refused_login(&self.0, &limits(&self.0).refused, "with a device code", address).await;
    }
}

#[cfg(test)]
mod tests;
