//! Logins by an OpenID Connect provider: the authorization code flow with PKCE, and device codes.
//!
//! A login of a browser has two halves. [`Client::begin`] gives the address to which the browser goes, and
//! [`Client::finish`] turns the provider's answer into a [`Person`]. Between the two, the caller keeps [`LoginSecrets`]
//! where only the same browser can present them. A login with a device code is for a program without a browser:
//! [`Client::begin_device`] gives an address and a code for the person, and [`Client::ask_device`] asks whether the person
//! has allowed the login. The protocol is in the crate `openidconnect`; this crate bounds its HTTP, keeps the provider's
//! keys, and fixes which tokens are valid.

mod device;
mod http;
mod provider;

use openidconnect::core::{CoreAuthenticationFlow, CoreGenderClaim, CoreJwsSigningAlgorithm};
use openidconnect::{
    AccessToken, AuthType, AuthorizationCode, ClaimsVerificationError, ClientId, ClientSecret, CsrfToken,
    IdTokenVerifier, Nonce, NonceVerifier as _, OAuth2TokenResponse as _, PkceCodeChallenge, PkceCodeVerifier,
    RedirectUrl, Scope, SignatureVerificationError, TokenResponse as _, UserInfoClaims, UserInfoError,
};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::Value;

pub use self::device::{DeviceAnswer, DeviceLogin};

use self::http::Http;
use self::provider::{Claims, IdToken, Known, Protocol, Provider, TokenAnswer};

/// The clock of the provider may be this much ahead or behind, in seconds.
const CLOCK_SKEW_S: i64 = 60;
/// Longest code and state that are read from an answer, in bytes.
const PARAMETER_MAX: usize = 4096;
/// Signatures of tokens. None with a shared secret: a public key must never become one.
const SIGNATURES: [CoreJwsSigningAlgorithm; 9] = [
    CoreJwsSigningAlgorithm::RsaSsaPkcs1V15Sha256,
    CoreJwsSigningAlgorithm::RsaSsaPkcs1V15Sha384,
    CoreJwsSigningAlgorithm::RsaSsaPkcs1V15Sha512,
    CoreJwsSigningAlgorithm::RsaSsaPssSha256,
    CoreJwsSigningAlgorithm::RsaSsaPssSha384,
    CoreJwsSigningAlgorithm::RsaSsaPssSha512,
    CoreJwsSigningAlgorithm::EcdsaP256Sha256,
    CoreJwsSigningAlgorithm::EcdsaP384Sha384,
    CoreJwsSigningAlgorithm::EdDsa,
];

/// The provider, and the control plane's place at it.
#[derive(Debug)]
pub struct Settings {
    /// The provider, as it names itself in its tokens.
    pub issuer: String,
    /// The control plane's name at the provider.
    pub client_id: String,
    /// The control plane's secret at the provider. `None`: a public client.
    pub client_secret: Option<SecretString>,
    /// The address to which the provider sends browsers back.
    pub redirect_url: String,
    /// What the control plane asks for.
    pub scopes: Vec<String>,
    /// The claim with the name of a new member.
    pub member_claim: String,
    /// The claim with the groups.
    pub groups_claim: String,
    /// Authorities of the provider's certificate, in PEM. `None`: those that this host trusts.
    pub authorities: Option<Vec<u8>>,
    /// Seconds since 1970 UTC.
    pub now_s: fn() -> i64,
}

/// Why a login fails.
#[derive(Debug, thiserror::Error)]
pub enum LoginError {
    /// The settings do not lead to a provider.
    #[error("{0}")]
    Setup(String),
    /// The provider does not answer, or its answer is not understood.
    #[error("the provider gives no usable answer: {0}")]
    Unavailable(String),
    /// The answer that the browser brought, or the token behind it, is not valid.
    #[error("{0}")]
    Invalid(String),
}

/// The secrets of one login under way. Only the browser that began the login may present them.
#[derive(Debug)]
pub struct LoginSecrets {
    /// The provider returns this text with its answer.
    pub state: SecretString,
    /// The provider puts this text into its token.
    pub nonce: SecretString,
    /// The provider gives the token only to the one who knows this text (PKCE).
    pub verifier: SecretString,
}

/// What the browser brings back from the provider.
#[derive(Debug)]
pub struct Answer {
    /// The code that is exchanged for the token.
    pub code: SecretString,
    /// Must equal [`LoginSecrets::state`].
    pub state: SecretString,
    /// The issuer of the answer (RFC 9207), if it is given.
    pub issuer: Option<String>,
}

/// The person that the provider has identified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Person {
    /// The provider.
    pub issuer: String,
    /// The provider's name for the person, which it never gives to another.
    pub subject: String,
    /// The name for a new member. `None`: the token has none, or an address that the provider has not verified.
    pub name: Option<String>,
    /// The person's groups, by the claim of [`Settings::groups_claim`].
    pub groups: Vec<String>,
}

/// The control plane as a client of one provider.
#[derive(Debug)]
pub struct Client {
    settings: Settings,
    redirect: RedirectUrl,
    provider: Provider,
}

impl Client {
    /// A client of the provider in the settings. Does not call the provider yet.
    ///
    /// # Errors
    /// `Setup`.
    pub fn new(settings: Settings) -> Result<Self, LoginError> {
        let redirect = RedirectUrl::new(settings.redirect_url.clone());
        let redirect = redirect.map_err(|error| LoginError::Setup(format!("{}: {error}", settings.redirect_url)))?;
        let http = Http::new(&settings.issuer, settings.authorities.as_deref())?;
        let provider = Provider::new(&settings.issuer, http)?;
        Ok(Self {
            settings,
            redirect,
            provider,
        })
    }

    fn protocol(&self, known: &Known) -> Result<Protocol, LoginError> {
        let secret = self.settings.client_secret.as_ref();
        let secret = secret.map(|secret| ClientSecret::new(secret.expose_secret().to_owned()));
        let id = ClientId::new(self.settings.client_id.clone());
        let protocol = provider::protocol(known.metadata.clone(), id, secret)?;
        let protocol = protocol.set_redirect_uri(self.redirect.clone());
        Ok(protocol.set_auth_type(if known.takes_basic() {
            AuthType::BasicAuth
        } else {
            AuthType::RequestBody
        }))
    }

    /// The address at the provider where a login begins.
    ///
    /// # Errors
    /// `Unavailable`.
    pub async fn begin(&self, secrets: &LoginSecrets) -> Result<String, LoginError> {
        let known = self.provider.known().await?;
        let protocol = self.protocol(&known)?;
        let [state, nonce, verifier] =
            [&secrets.state, &secrets.nonce, &secrets.verifier].map(|secret| secret.expose_secret().to_owned());
        let challenge = PkceCodeChallenge::from_code_verifier_sha256(&PkceCodeVerifier::new(verifier));
        // The library adds the scope `openid` itself.
        let scopes = self.settings.scopes.iter().filter(|scope| *scope != "openid");
        let request = protocol
            .authorize_url(
                CoreAuthenticationFlow::AuthorizationCode,
                move || CsrfToken::new(state),
                move || Nonce::new(nonce),
            )
            .add_scopes(scopes.map(|scope| Scope::new(scope.clone())))
            .set_pkce_challenge(challenge);
        Ok(request.url().0.to_string())
    }

    /// The person of a login, when the browser is back.
    ///
    /// # Errors
    /// `Unavailable`, or `Invalid`: the answer is of another login or of another provider, or its token is not valid.
    pub async fn finish(&self, answer: &Answer, secrets: &LoginSecrets) -> Result<Person, LoginError> {
        let invalid = |text: &str| LoginError::Invalid(text.to_owned());
        let (code, state) = (answer.code.expose_secret(), answer.state.expose_secret());
        if code.is_empty() || code.len() > PARAMETER_MAX || state != secrets.state.expose_secret() {
            return Err(invalid("the answer is not of the login that this browser began"));
        }
        let known = self.provider.known().await?;
        match &answer.issuer {
            Some(issuer) if issuer != known.metadata.issuer().as_str() => {
                return Err(invalid("the answer names another provider"));
            }
            None if known.names_itself() => return Err(invalid("the answer does not name its provider")),
            _ => {}
        }
        let protocol = self.protocol(&known)?;
        let request = protocol
            .exchange_code(AuthorizationCode::new(code.to_owned()))
            .map_err(|error| LoginError::Unavailable(error.to_string()))?
            .set_pkce_verifier(PkceCodeVerifier::new(secrets.verifier.expose_secret().to_owned()));
        let tokens = request
            .request_async(self.provider.http())
            .await
            .map_err(provider::token_error)?;
        let nonce = Nonce::new(secrets.nonce.expose_secret().to_owned());
        let claims = self.claims(known, &tokens, Some(&nonce)).await?;
        self.person(&protocol, claims, tokens.access_token()).await
    }

    /// The claims of a valid token. Keys that are not known are fetched once more. Without a nonce, the token may have any.
    async fn claims(&self, known: Known, tokens: &TokenAnswer, nonce: Option<&Nonce>) -> Result<Value, LoginError> {
        let token = tokens.id_token();
        let token = token.ok_or_else(|| LoginError::Invalid("the provider's answer has no identity token".into()))?;
        let unknown_key = |error: &ClaimsVerificationError| {
            let missing = SignatureVerificationError::NoMatchingKey;
            matches!(error, ClaimsVerificationError::SignatureVerification(found) if *found == missing)
        };
        let verified = match self.verified(&known, token, nonce) {
            Err(error) if unknown_key(&error) => {
                let newer = self.provider.newer_keys().await?;
                self.verified(&newer, token, nonce)
            }
            other => other,
        };
        verified.map_err(|error| LoginError::Invalid(format!("the identity token is not valid: {}", chain(&error))))
    }

    fn verified(
        &self,
        known: &Known,
        token: &IdToken,
        nonce: Option<&Nonce>,
    ) -> Result<Value, ClaimsVerificationError> {
        let now_s = self.settings.now_s;
        let client = ClientId::new(self.settings.client_id.clone());
        let (issuer, keys) = (known.metadata.issuer().clone(), known.metadata.jwks().clone());
        // As of a client without a secret: no signature with a shared secret is valid.
        let verifier = IdTokenVerifier::new_public_client(client, issuer, keys)
            .set_allowed_algs(SIGNATURES)
            .set_time_fn(move || time(now_s() - CLOCK_SKEW_S))
            .set_issue_time_verifier_fn(move |at| match at > time(now_s() + CLOCK_SKEW_S) {
                true => Err("it was issued in the future".into()),
                false => Ok(()),
            });
        let check = |found: Option<&Nonce>| nonce.map_or(Ok(()), |nonce| nonce.verify(found));
        let claims = token.claims(&verifier, check)?;
        serde_json::to_value(claims).map_err(|error| ClaimsVerificationError::Other(error.to_string()))
    }

    /// The person of valid claims. Claims that the token leaves out are fetched from the provider.
    async fn person(&self, protocol: &Protocol, claims: Value, access: &AccessToken) -> Result<Person, LoginError> {
        let text = |claims: &Value, name: &str| claims[name].as_str().map(str::to_owned);
        let (issuer, subject) = (text(&claims, "iss"), text(&claims, "sub"));
        let (Some(issuer), Some(subject)) = (issuer, subject.filter(|subject| !subject.is_empty())) else {
            return Err(LoginError::Invalid("the identity token names no person".into()));
        };
        let (member, groups) = (&self.settings.member_claim, &self.settings.groups_claim);
        let is_missing = claims[member].is_null() || claims[groups].is_null();
        let further = match protocol.user_info(
            access.clone(),
            Some(openidconnect::SubjectIdentifier::new(subject.clone())),
        ) {
            Ok(request) if is_missing => {
                let answer: Result<UserInfoClaims<Claims, CoreGenderClaim>, _> =
                    request.request_async(self.provider.http()).await;
                let answer = answer.map_err(|error| match error {
                    UserInfoError::ClaimsVerification(error) => LoginError::Invalid(chain(&error)),
                    error => LoginError::Unavailable(chain(&error)),
                })?;
                serde_json::to_value(answer).map_err(|error| LoginError::Unavailable(error.to_string()))?
            }
            _ => Value::Null,
        };
        let of = |name: &str| match &claims[name] {
            Value::Null => (&further[name], &further),
            found => (found, &claims),
        };
        let (name, beside) = of(member);
        let is_unverified = member == "email" && beside["email_verified"] == Value::Bool(false);
        Ok(Person {
            issuer,
            subject,
            name: name.as_str().filter(|_| !is_unverified).map(str::to_owned),
            groups: texts(of(groups).0),
        })
    }
}

/// The texts of a claim: of a list, or a single one.
fn texts(claim: &Value) -> Vec<String> {
    let of_one = |one: &Value| one.as_str().map(str::to_owned);
    match claim {
        Value::Array(all) => all.iter().filter_map(of_one).collect(),
        one => of_one(one).into_iter().collect(),
    }
}

fn time(seconds: i64) -> chrono::DateTime<chrono::Utc> {
    chrono::DateTime::from_timestamp(seconds, 0).unwrap_or_default()
}

/// An error with its causes.
fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}
