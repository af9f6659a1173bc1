//! What is known of the provider: its endpoints and its keys.

use std::time::Duration;

use openidconnect::core::{
    CoreAuthDisplay, CoreAuthPrompt, CoreClaimName, CoreClaimType, CoreClientAuthMethod, CoreErrorResponseType,
    CoreGenderClaim, CoreGrantType, CoreJsonWebKey, CoreJsonWebKeySet, CoreJweContentEncryptionAlgorithm,
    CoreJweKeyManagementAlgorithm, CoreJwsSigningAlgorithm, CoreResponseMode, CoreResponseType, CoreRevocableToken,
    CoreRevocationErrorResponse, CoreSubjectIdentifierType, CoreTokenIntrospectionResponse, CoreTokenType,
};
use openidconnect::{
    AdditionalClaims, AdditionalProviderMetadata, ClientId, ClientSecret, EmptyExtraTokenFields, EndpointMaybeSet,
    EndpointNotSet, EndpointSet, IdTokenFields, IssuerUrl, ProviderMetadata, RequestTokenError, StandardErrorResponse,
    StandardTokenResponse,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::Mutex;
use tokio::time::Instant;
use url::Url;

use crate::http::{Http, HttpError};
use crate::{LoginError, chain};

/// The provider's endpoints and keys are fetched again after this time.
const FRESH: Duration = Duration::from_secs(3600);
/// After a failure, the provider is not asked again within this time.
const FAILURE_PAUSE: Duration = Duration::from_secs(5);
/// The same, while endpoints and keys of an earlier answer are in use.
const REFRESH_PAUSE: Duration = Duration::from_secs(60);
/// Least time between two fetches of keys because of an unknown key.
const KEYS_PAUSE: Duration = Duration::from_secs(10);

/// Claims with other names than the standard's.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Claims {
    #[serde(flatten)]
    all: serde_json::Map<String, Value>,
}

impl AdditionalClaims for Claims {}

/// Fields of the provider's description that the library does not know.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Further {
    /// The provider names itself in each answer (RFC 9207).
    #[serde(default)]
    authorization_response_iss_parameter_supported: bool,
    /// Where logins with a device code begin (RFC 8628). Any value: only these logins need it.
    #[serde(default)]
    device_authorization_endpoint: Value,
}

impl AdditionalProviderMetadata for Further {}

pub(crate) type Metadata = ProviderMetadata<
    Further,
    CoreAuthDisplay,
    CoreClientAuthMethod,
    CoreClaimName,
    CoreClaimType,
    CoreGrantType,
    CoreJweContentEncryptionAlgorithm,
    CoreJweKeyManagementAlgorithm,
    CoreJsonWebKey,
    CoreResponseMode,
    CoreResponseType,
    CoreSubjectIdentifierType,
>;

pub(crate) type IdToken =
    openidconnect::IdToken<Claims, CoreGenderClaim, CoreJweContentEncryptionAlgorithm, CoreJwsSigningAlgorithm>;

pub(crate) type TokenAnswer = StandardTokenResponse<
    IdTokenFields<
        Claims,
        EmptyExtraTokenFields,
        CoreGenderClaim,
        CoreJweContentEncryptionAlgorithm,
        CoreJwsSigningAlgorithm,
    >,
    CoreTokenType,
>;

type ErrorAnswer = StandardErrorResponse<CoreErrorResponseType>;

/// The library's client of a provider.
pub(crate) type Protocol = openidconnect::Client<
    Claims,
    CoreAuthDisplay,
    CoreGenderClaim,
    CoreJweContentEncryptionAlgorithm,
    CoreJsonWebKey,
    CoreAuthPrompt,
    ErrorAnswer,
    TokenAnswer,
    CoreTokenIntrospectionResponse,
    CoreRevocableToken,
    CoreRevocationErrorResponse,
    EndpointSet,
    EndpointNotSet,
    EndpointNotSet,
    EndpointNotSet,
    EndpointMaybeSet,
    EndpointMaybeSet,
>;

/// The library's client. Every endpoint is reached by TLS if the provider is.
pub(crate) fn protocol(metadata: Metadata, id: ClientId, secret: Option<ClientSecret>) -> Result<Protocol, LoginError> {
    let is_plain = |url: &Url| url.scheme() != "https";
    let endpoints = [
        Some(metadata.authorization_endpoint().url()),
        metadata.token_endpoint().map(|endpoint| endpoint.url()),
        metadata.userinfo_endpoint().map(|endpoint| endpoint.url()),
        Some(metadata.jwks_uri().url()),
    ];
    let plain = endpoints.into_iter().flatten().find(|url| is_plain(url));
    if let Some(plain) = plain.filter(|_| !is_plain(metadata.issuer().url())) {
        return Err(LoginError::Unavailable(format!(
            "it names an address without TLS: {plain}"
        )));
    }
    Ok(Protocol::from_provider_metadata(metadata, id, secret))
}

/// The failed exchange of a code, as the provider explains it.
pub(crate) fn token_error(error: RequestTokenError<HttpError, ErrorAnswer>) -> LoginError {
    match error {
        RequestTokenError::ServerResponse(answer) => match answer.error() {
            CoreErrorResponseType::InvalidGrant | CoreErrorResponseType::InvalidRequest => {
                LoginError::Invalid(format!("the provider refuses the code: {answer}"))
            }
            // The fault is not the browser's.
            _ => LoginError::Unavailable(format!("it refuses this control plane: {answer}")),
        },
        // The message would contain the answer, which may contain tokens. Some providers answer a wrong code so.
        RequestTokenError::Parse(error, _) => {
            LoginError::Invalid(format!("the provider's answer to the code is not understood: {error}"))
        }
        other => LoginError::Unavailable(chain(&other)),
    }
}

/// Endpoints and keys, as they were fetched.
#[derive(Debug, Clone)]
pub(crate) struct Known {
    pub(crate) metadata: Metadata,
    fresh_until: Instant,
}

impl Known {
    /// Whether the provider names itself in each answer.
    pub(crate) fn names_itself(&self) -> bool {
        let further = self.metadata.additional_metadata();
        further.authorization_response_iss_parameter_supported
    }

    /// The address where logins with a device code begin. `None`: the provider has none.
    pub(crate) fn device_endpoint(&self) -> Option<&str> {
        self.metadata
            .additional_metadata()
            .device_authorization_endpoint
            .as_str()
    }

    /// Whether the control plane shows its secret in a header, and not in the form.
    pub(crate) fn takes_basic(&self) -> bool {
        let methods = self.metadata.token_endpoint_auth_methods_supported();
        let basic = CoreClientAuthMethod::ClientSecretBasic;
        // Without a list, the method is the basic one.
        methods.is_none_or(|methods| methods.is_empty() || methods.contains(&basic))
    }
}

#[derive(Debug)]
enum Cached {
    Nothing,
    Known(Box<Known>),
    Failed(Instant, String),
}

/// The connection to the provider, with what was last fetched from it.
#[derive(Debug)]
pub(crate) struct Provider {
    issuer: IssuerUrl,
    http: Http,
    cached: Mutex<Cached>,
    keys: Mutex<Option<KeysFetch>>,
}

/// The last fetch of keys because of an unknown key.
#[derive(Debug)]
struct KeysFetch {
    at: Instant,
    /// Why it failed.
    failure: Option<String>,
}

impl KeysFetch {
    fn is_recent(&self) -> bool {
        let pause = match self.failure {
            None => KEYS_PAUSE,
            Some(_) => FAILURE_PAUSE,
        };
        self.at.elapsed() < pause
    }
}

impl Provider {
    pub(crate) fn new(issuer: &str, http: Http) -> Result<Self, LoginError> {
        let issuer = IssuerUrl::new(issuer.to_owned());
        Ok(Self {
            issuer: issuer.map_err(|error| LoginError::Setup(format!("the issuer is not a URL: {error}")))?,
            http,
            cached: Mutex::new(Cached::Nothing),
            keys: Mutex::new(None),
        })
    }

    pub(crate) fn http(&self) -> &Http {
        &self.http
    }

    /// Endpoints and keys; fetched if they are missing or old.
    pub(crate) async fn known(&self) -> Result<Known, LoginError> {
        let mut cached = self.cached.lock().await;
        match &*cached {
            Cached::Known(known) if Instant::now() < known.fresh_until => return Ok(Known::clone(known)),
            Cached::Failed(at, why) if at.elapsed() < FAILURE_PAUSE => {
                return Err(LoginError::Unavailable(why.clone()));
            }
            _ => {}
        }
        match Metadata::discover_async(self.issuer.clone(), &self.http).await {
            Ok(metadata) => {
                let known = Known {
                    metadata,
                    fresh_until: Instant::now() + FRESH,
                };
                *cached = Cached::Known(Box::new(known.clone()));
                Ok(known)
            }
            Err(error) => {
                let why = chain(&error);
                // What was known stays valid while the provider is unavailable.
                if let Cached::Known(known) = &mut *cached {
                    known.fresh_until = Instant::now() + REFRESH_PAUSE;
                    let issuer = self.issuer.as_str();
                    tracing::warn!(issuer, why, "the provider's description could not be fetched again");
                    return Ok(Known::clone(known));
                }
                *cached = Cached::Failed(Instant::now(), why.clone());
                Err(LoginError::Unavailable(why))
            }
        }
    }

    /// As [`Provider::known`], with keys that were fetched now. Concurrent callers share one fetch and its result, and so do
    /// callers of the next seconds.
    pub(crate) async fn newer_keys(&self) -> Result<Known, LoginError> {
        let mut last = self.keys.lock().await;
        if last.as_ref().is_none_or(|last| !last.is_recent()) {
            let known = self.known().await?;
            *last = Some(KeysFetch {
                failure: self.fetch_keys(&known).await.err(),
                at: Instant::now(),
            });
        }
        if let Some(why) = last.as_ref().and_then(|last| last.failure.clone()) {
            return Err(LoginError::Unavailable(why));
        }
        drop(last);
        self.known().await
    }

    /// Fetches the keys for all later calls.
    async fn fetch_keys(&self, known: &Known) -> Result<(), String> {
        let keys = CoreJsonWebKeySet::fetch_async(known.metadata.jwks_uri(), &self.http).await;
        let keys = keys.map_err(|error| chain(&error))?;
        if let Cached::Known(known) = &mut *self.cached.lock().await {
            known.metadata = known.metadata.clone().set_jwks(keys);
        }
        Ok(())
    }
}
