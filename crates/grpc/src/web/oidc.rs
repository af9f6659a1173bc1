//! Logins by an OpenID Connect provider: the requests of the browser.
//!
//! | request | answer |
//! |---|---|
//! | `GET /auth/methods` | how members can log in, for the login page |
//! | `GET /auth/oidc` | sends the browser to the provider |
//! | `GET /auth/oidc/callback` | the provider sends the browser back: opens a session, or shows the login page with a code |
//!
//! The secrets of a login under way are in a sealed cookie, so that every replica can finish it, also after a restart.

use axum::extract::Query;
use rackwright_ground::clock;
use rackwright_ground::login_provider::{self, CALLBACK, LoginProvider, Pending, ProviderLogin, VALID_S};
use rackwright_identity::TokenHash;
use rackwright_oidc::{Answer, LoginError};
use rackwright_store::SessionKind;
use secrecy::ExposeSecret as _;
use tonic::codegen::http::header::{LOCATION, USER_AGENT};
use tonic::codegen::http::request::Parts;

use super::*;

const METHODS: &str = "/auth/methods";
const BEGIN: &str = "/auth/oidc";
/// The cookie of a login under way. The provider's site sends the browser back, so the cookie is not `SameSite=Strict`.
const PENDING_NAME: &str = "__Host-rackwright-oidc";
/// Longest text of the provider that is logged or recorded, in characters.
const LOGGED_MAX: usize = 200;

/// Why a login fails, as a code that the login page turns into words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Failure {
    /// The login was not begun in this browser, is too old, or was finished before.
    Again,
    /// The person has refused at the provider.
    Denied,
    /// The answer or the token of the provider is not valid.
    Invalid,
    /// The person's name belongs to another member.
    NameTaken,
    /// The person is in no group of the table.
    NoGroup,
    /// The provider gives no name that a member can have.
    NoName,
    /// The provider or the database cannot be reached, or the settings are wrong.
    Unavailable,
    /// The address has to wait after refused logins.
    Wait,
}

impl Failure {
    fn code(self) -> &'static str {
        match self {
            Self::Again => "again",
            Self::Denied => "denied",
            Self::Invalid => "invalid",
            Self::NameTaken => "name-taken",
            Self::NoGroup => "no-group",
            Self::NoName => "no-name",
            Self::Unavailable => "unavailable",
            Self::Wait => "wait",
        }
    }

    /// Why the services have refused the session.
    fn of(status: StatusCode) -> Self {
        match status {
            StatusCode::UNAUTHORIZED => Self::Again,
            StatusCode::FORBIDDEN => Self::NoGroup,
            StatusCode::CONFLICT => Self::NameTaken,
            StatusCode::BAD_REQUEST => Self::NoName,
            _ => Self::Unavailable,
        }
    }
}

/// Whether this module answers requests to a path.
pub(super) fn answers(path: &str) -> bool {
    matches!(path, METHODS | BEGIN | CALLBACK)
}

/// Answers a request to one of the paths of this module.
pub(super) async fn answer<S>(site: &Site, inner: S, request: Request<Body>) -> Result<Response<Body>, Infallible>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
{
    if request.method() != Method::GET {
        let message = "this path takes GET";
        return Ok(failure(StatusCode::METHOD_NOT_ALLOWED, "unimplemented", message));
    }
    if request.uri().path() == METHODS {
        return Ok(methods(site));
    }
    let Some(provider) = login_provider::of(&site.core) else {
        let message = "this control plane has no identity provider";
        return Ok(failure(StatusCode::NOT_FOUND, "not_found", message));
    };
    // The body is not read, and cannot be shared between threads.
    let (is_own, (head, _)) = (is_own_page(&request), request.into_parts());
    let address = address(&head);
    if site.logins.check(&address).is_err() {
        return Ok(to_login_page(Failure::Wait));
    }
    match head.uri.path() {
        // Another site must not put another member in the place of the one who is logged in.
        BEGIN if !is_own => Ok(to_login_page(Failure::Again)),
        BEGIN => Ok(begin(site, provider, &head).await.unwrap_or_else(to_login_page)),
        _ => {
            let ended = finish(site, provider, inner, (&head, &address)).await?;
            let mut response = ended.unwrap_or_else(to_login_page);
            // A login has one answer, whatever it is.
            append_cookie(&mut response, PENDING_NAME, "", 0, "Lax");
            Ok(response)
        }
    }
}

/// The address of the browser.
fn address(head: &Parts) -> String {
    let peer = Peer::from_extensions(&head.extensions);
    let address = peer.and_then(Peer::address);
    address.map_or_else(|| "an unknown address".into(), host)
}

fn methods(site: &Site) -> Response<Body> {
    let name = login_provider::of(&site.core).map(|provider| provider.settings.name.trim());
    let body = json!({"oidc": name.map(|name| json!({"name": name}))}).to_string();
    let mut response = Response::new(Body::new(axum::body::Body::from(body)));
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, json);
    response
}

/// An answer that sends the browser to another address.
fn redirect(to: &str) -> Option<Response<Body>> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SEE_OTHER;
    response.headers_mut().insert(LOCATION, HeaderValue::try_from(to).ok()?);
    Some(response)
}

fn to_login_page(failure: Failure) -> Response<Body> {
    redirect(&format!("/login?failure={}", failure.code())).unwrap_or_default()
}

/// Sends the browser to the provider.
async fn begin(site: &Site, provider: &LoginProvider, head: &Parts) -> Result<Response<Body>, Failure> {
    let former = match presented(&head.headers) {
        Some((SessionKind::Browser, secret)) => Some(secret.to_owned().into()),
        _ => None,
    };
    let unavailable = |error: &dyn std::fmt::Display| {
        provider.log("a login by the identity provider cannot begin", error);
        Failure::Unavailable
    };
    let pending = Pending::new(site.core.rng.as_ref(), clock::now(), former).map_err(|error| unavailable(&error))?;
    let client = provider.client().await.map_err(|error| unavailable(&error))?;
    let url = client
        .begin(&pending.secrets)
        .await
        .map_err(|error| unavailable(&error))?;
    let sealed = pending
        .seal(&site.core.keys.sealer)
        .map_err(|error| unavailable(&error))?;
    let mut response = redirect(&url).ok_or(Failure::Unavailable)?;
    append_cookie(&mut response, PENDING_NAME, &sealed, VALID_S, "Lax");
    Ok(response)
}

/// The provider's answer, in the query of the URL to which it returns the browser.
#[derive(Debug)]
enum Returned {
    Answer(Answer),
    /// The provider's name for its failure.
    Error(String),
}

impl Returned {
    /// `None`: the query has no valid form, or is not the answer to this login.
    fn read(uri: &Uri, pending: &Pending) -> Option<Self> {
        let Query(fields) = Query::<Vec<(String, String)>>::try_from_uri(uri).ok()?;
        let one = |name: &str| {
            let mut values = fields.iter().filter(|(field, _)| field == name);
            let value = values.next().map(|(_, value)| value.clone());
            values.next().is_none().then_some(value)
        };
        let state = one("state")??;
        let expected = TokenHash::of(pending.secrets.state.expose_secret()).ok()?;
        if !expected.matches(&state) {
            return None;
        }
        if let Some(error) = one("error")? {
            return Some(Self::Error(error));
        }
        Some(Self::Answer(Answer {
            code: one("code")??.into(),
            state: state.into(),
            issuer: one("iss")?,
        }))
    }
}

/// Ends a login: opens a session for the person that the provider names.
async fn finish<S>(
    site: &Site,
    provider: &LoginProvider,
    mut inner: S,
    (head, address): (&Parts, &str),
) -> Result<Result<Response<Body>, Failure>, Infallible>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
{
    let (pending, login) = match identified(site, provider, (head, address)).await {
        Ok(found) => found,
        Err(Refusal { failure, why: None }) => return Ok(Err(failure)),
        Err(Refusal {
            failure,
            why: Some(why),
        }) => {
            // Refused inside of the audit, as a login with a wrong token.
            let refused = Refused(Status::unauthenticated(why));
            inner.call(opening(head, refused)).await?;
            site.note_refused(address).await;
            return Ok(Err(failure));
        }
    };
    let response = inner.call(opening(head, login)).await?;
    let status = response.status();
    if status != StatusCode::OK {
        let failure = Failure::of(status);
        if failure != Failure::Unavailable {
            site.note_refused(address).await;
        }
        return Ok(Err(failure));
    }
    let Some(secret) = secret_of(response).await else {
        return Ok(Err(Failure::Unavailable));
    };
    site.note_opened(&secret, address);
    let former = pending.former.map(|secret| secret.expose_secret().to_owned());
    if let Some(login) = site.open_login(former).await {
        let ended = inner
            .call(ending(login, Peer::from_extensions(&head.extensions).cloned()))
            .await?;
        tracing::debug!(status = %ended.status(), "the browser's former session was ended");
    }
    let mut response = redirect("/").unwrap_or_default();
    let age = i64::from(site.settings.session_hours) * 3600;
    append_cookie(&mut response, COOKIE_NAME, secret.expose_secret(), age, "Strict");
    Ok(Ok(response))
}

/// A text of the provider, as it is recorded.
fn cut(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(LOGGED_MAX).collect()
}

/// A refused login. With `why`, it is recorded and counted.
struct Refusal {
    failure: Failure,
    why: Option<String>,
}

impl From<Failure> for Refusal {
    fn from(failure: Failure) -> Self {
        Self { failure, why: None }
    }
}

/// This browser's login under way, and the person that the provider names.
async fn identified(
    site: &Site,
    provider: &LoginProvider,
    (head, address): (&Parts, &str),
) -> Result<(Pending, ProviderLogin), Refusal> {
    let sealed = cookie_of(&head.headers, PENDING_NAME).ok_or(Failure::Again)?;
    let pending = Pending::open(&site.core.keys.sealer, sealed, clock::now()).ok_or(Failure::Again)?;
    let answer = match Returned::read(&head.uri, &pending).ok_or(Failure::Again)? {
        Returned::Answer(answer) => answer,
        Returned::Error(error) if error == "access_denied" => return Err(Failure::Denied.into()),
        Returned::Error(error) => {
            return Err(Refusal {
                failure: Failure::Unavailable,
                why: Some(format!("the identity provider refuses the login: {}", cut(&error))),
            });
        }
    };
    let exchange = provider.exchanges.acquire().await;
    let _exchange = exchange.map_err(|_| Failure::Unavailable)?;
    // Others of this address may have been refused meanwhile.
    if site.logins.check(address).is_err() {
        return Err(Failure::Wait.into());
    }
    let person = match provider.client().await {
        Ok(client) => client.finish(&answer, &pending.secrets).await,
        Err(error) => Err(error),
    };
    let person = person.map_err(|error| match error {
        LoginError::Invalid(why) => Refusal {
            failure: Failure::Invalid,
            why: Some(cut(&why)),
        },
        error => {
            provider.log("a login by the identity provider cannot end", &error);
            Failure::Unavailable.into()
        }
    })?;
    let login = TokenHash::of(pending.secrets.state.expose_secret()).map_err(|_| Failure::Again)?;
    let login = ProviderLogin::of(&provider.settings, person, (login, pending.until));
    Ok((pending, login))
}

/// The call that opens a session for the browser of a request, with what the services have to know about the login.
fn opening<T: Clone + Send + Sync + 'static>(head: &Parts, login: T) -> Request<Body> {
    let mut request = Request::new(Body::new(axum::body::Body::from("{}")));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = Uri::from_static(OPEN_SESSION);
    let headers = request.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if let Some(agent) = head.headers.get(USER_AGENT) {
        headers.insert(USER_AGENT, agent.clone());
    }
    let extensions = request.extensions_mut();
    if let Some(peer) = Peer::from_extensions(&head.extensions) {
        extensions.insert(peer.clone());
    }
    extensions.insert(login);
    request
}

#[cfg(test)]
mod tests;
