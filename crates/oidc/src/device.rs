//! Logins with a device code (RFC 8628): a person allows the login of a program in a browser, on any machine.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use openidconnect::OAuth2TokenResponse as _;
use openidconnect::http::{StatusCode, Uri};
use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;
use url::Url;
use url::form_urlencoded::{Serializer, byte_serialize};

use crate::provider::{Known, TokenAnswer};
use crate::{Client, LoginError, PARAMETER_MAX, Person, chain};

const GRANT_TYPE: &str = "urn:ietf:params:oauth:grant-type:device_code";
/// The pause between two questions if the provider names none, in seconds (RFC 8628).
const INTERVAL_S: u64 = 5;
/// Longest pause between two questions, in seconds.
const INTERVAL_MAX_S: u64 = 60;
/// Longest time for a login, in seconds.
const VALID_MAX_S: u64 = 1800;
/// Longest code that a person types, in characters.
const USER_CODE_MAX: usize = 40;
/// Longest address for a person, in bytes.
const ADDRESS_MAX: usize = 1024;
/// Longest text of the provider in an error, in characters.
const TEXT_MAX: usize = 200;

/// A login that a person has to allow at the provider.
#[derive(Debug)]
pub struct DeviceLogin {
    /// The provider gives the token for this secret.
    pub device_code: SecretString,
    /// The code that the person types on the provider's page, or compares with the one there. Printable ASCII.
    pub user_code: String,
    /// The page.
    pub url: String,
    /// The page with the code filled in, if the provider has such a page.
    pub complete_url: Option<String>,
    /// The provider forgets the login after this time, in seconds.
    pub valid_s: u64,
    /// Shortest time between two requests, in seconds.
    pub interval_s: u64,
}

/// The provider's answer about a login.
#[derive(Debug, PartialEq, Eq)]
pub enum DeviceAnswer {
    /// The person has not decided yet.
    Pending,
    /// The person has not decided yet, and the pause between two requests has to be five seconds longer.
    SlowDown,
    /// The person has refused the login.
    Denied,
    /// The time for the login has ended.
    Expired,
    /// The person has allowed the login.
    Allowed(Box<Person>),
}

/// The provider's answer to the start of a login.
#[derive(Deserialize)]
struct Begun {
    device_code: SecretString,
    user_code: String,
    verification_uri: String,
    verification_uri_complete: Option<String>,
    expires_in: u64,
    interval: Option<u64>,
}

/// The provider's refusal.
#[derive(Deserialize)]
struct Refusal {
    error: String,
    #[serde(default)]
    error_description: String,
}

impl Refusal {
    /// The words of the provider, printable and short.
    fn text(&self) -> String {
        let text = match self.error_description.as_str() {
            "" => self.error.clone(),
            description => format!("{}: {description}", self.error),
        };
        text.chars().filter(|c| !c.is_control()).take(TEXT_MAX).collect()
    }
}

/// The place of a fault in an answer. The message of the error may have a part of the answer, which contains secrets.
fn place(error: &serde_json::Error) -> String {
    format!("line {}, column {}", error.line(), error.column())
}

fn unusable(text: impl Into<String>) -> LoginError {
    LoginError::Unavailable(text.into())
}

impl Client {
    /// Begins a login that a person allows in a browser of its own.
    ///
    /// # Errors
    /// `Unavailable`: the provider does not answer, or has no logins with a device code for this control plane.
    pub async fn begin_device(&self) -> Result<DeviceLogin, LoginError> {
        let known = self.provider.known().await?;
        let endpoint = known.device_endpoint().ok_or_else(|| {
            unusable("it names no device_authorization_endpoint, so it has no logins with a device code")
        })?;
        let scope = self.settings.scopes.join(" ");
        let (status, body) = self.post(&known, endpoint, &[("scope", &scope)]).await?;
        if status != StatusCode::OK {
            return Err(match serde_json::from_slice::<Refusal>(&body) {
                Ok(refusal) => unusable(format!("it refuses this control plane: {}", refusal.text())),
                Err(_) => unusable(format!("it answers the begin of a login with HTTP status {status}")),
            });
        }
        let begun: Begun = serde_json::from_slice(&body).map_err(|error| {
            let place = place(&error);
            unusable(format!("its answer to the begin of a login is not understood: {place}"))
        })?;
        self.checked(begun)
    }

    /// Checks what a person will see, and limits times.
    fn checked(&self, begun: Begun) -> Result<DeviceLogin, LoginError> {
        let length = begun.device_code.expose_secret().len();
        if !(1..=PARAMETER_MAX).contains(&length) {
            return Err(unusable(format!("its device code has {length} bytes")));
        }
        let is_shown = |c: char| c.is_ascii_graphic() || c == ' ';
        let length = begun.user_code.chars().count();
        if !(1..=USER_CODE_MAX).contains(&length) || !begun.user_code.chars().all(is_shown) {
            return Err(unusable(
                "its code for the person is not a short text of ASCII characters",
            ));
        }
        if begun.expires_in == 0 {
            return Err(unusable("it gives the person no time for the login"));
        }
        Ok(DeviceLogin {
            url: self.address("verification_uri", &begun.verification_uri)?,
            complete_url: match &begun.verification_uri_complete {
                None => None,
                Some(text) => Some(self.address("verification_uri_complete", text)?),
            },
            device_code: begun.device_code,
            user_code: begun.user_code,
            valid_s: begun.expires_in.min(VALID_MAX_S),
            interval_s: begun.interval.unwrap_or(INTERVAL_S).clamp(1, INTERVAL_MAX_S),
        })
    }

    /// An address that a person opens: with TLS, or on this host if the provider is there without TLS.
    fn address(&self, field: &str, text: &str) -> Result<String, LoginError> {
        let fault = |why: &str| unusable(format!("its {field} {why}"));
        if text.len() > ADDRESS_MAX {
            return Err(fault("is too long"));
        }
        // The parser replaces characters that have no place in an address.
        let url = Url::parse(text).map_err(|_| fault("is not a URL"))?.to_string();
        let uri: Uri = url.parse().map_err(|_| fault("is not a URL"))?;
        match self.provider.http().may_ask(&uri) {
            true => Ok(url),
            false => Err(fault("has no TLS")),
        }
    }

    /// Asks the provider once whether the person has allowed a login.
    ///
    /// # Errors
    /// `Unavailable`, or `Invalid`: the provider does not know the device code (any more), or its token is not valid.
    pub async fn ask_device(&self, device_code: &SecretString) -> Result<DeviceAnswer, LoginError> {
        let known = self.provider.known().await?;
        let protocol = self.protocol(&known)?;
        let endpoint = known.metadata.token_endpoint().map(|endpoint| endpoint.to_string());
        let endpoint = endpoint.ok_or_else(|| unusable("it names no token_endpoint"))?;
        let fields = [("grant_type", GRANT_TYPE), ("device_code", device_code.expose_secret())];
        let (status, body) = self.post(&known, &endpoint, &fields).await?;
        if status != StatusCode::OK {
            return refused(status, &body);
        }
        let tokens: TokenAnswer = serde_json::from_slice(&body).map_err(|error| {
            let place = place(&error);
            LoginError::Invalid(format!("the provider's tokens are not understood: {place}"))
        })?;
        let claims = self.claims(known, &tokens, None).await?;
        let person = self.person(&protocol, claims, tokens.access_token()).await?;
        Ok(DeviceAnswer::Allowed(Box::new(person)))
    }

    /// Sends a form as this control plane.
    async fn post(
        &self,
        known: &Known,
        endpoint: &str,
        fields: &[(&str, &str)],
    ) -> Result<(StatusCode, Vec<u8>), LoginError> {
        let (authorization, form) = self.form(known, fields);
        let http = self.provider.http();
        let answer = http.post(endpoint, authorization.as_deref(), form).await;
        let answer = answer.map_err(|error| unusable(chain(&error)))?;
        Ok((answer.status(), answer.into_body()))
    }

    /// The header with name and secret of this control plane, if the provider takes one, and the form.
    fn form(&self, known: &Known, fields: &[(&str, &str)]) -> (Option<String>, String) {
        let id = self.settings.client_id.as_str();
        let mut form = Serializer::new(String::new());
        form.extend_pairs(fields);
        match &self.settings.client_secret {
            Some(secret) if known.takes_basic() => {
                let coded = |text: &str| byte_serialize(text.as_bytes()).collect::<String>();
                let pair = format!("{}:{}", coded(id), coded(secret.expose_secret()));
                let header = format!("Basic {}", STANDARD.encode(pair));
                (Some(header), form.finish())
            }
            secret => {
                form.append_pair("client_id", id);
                if let Some(secret) = secret {
                    form.append_pair("client_secret", secret.expose_secret());
                }
                (None, form.finish())
            }
        }
    }
}

/// The answer without a token.
fn refused(status: StatusCode, body: &[u8]) -> Result<DeviceAnswer, LoginError> {
    let Ok(refusal) = serde_json::from_slice::<Refusal>(body) else {
        return Err(unusable(format!("it answers a device code with HTTP status {status}")));
    };
    match refusal.error.as_str() {
        "authorization_pending" => Ok(DeviceAnswer::Pending),
        "slow_down" => Ok(DeviceAnswer::SlowDown),
        "access_denied" => Ok(DeviceAnswer::Denied),
        "expired_token" => Ok(DeviceAnswer::Expired),
        "invalid_grant" | "invalid_request" => Err(LoginError::Invalid(format!(
            "the provider refuses the device code: {}",
            refusal.text()
        ))),
        // The fault is not the caller's.
        _ => Err(unusable(format!("it refuses this control plane: {}", refusal.text()))),
    }
}
