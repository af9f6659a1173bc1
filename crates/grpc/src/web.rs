//! The listener of the web console: its files, logins, and the API for callers with a login.
//!
//! | request | answer |
//! |---|---|
//! | `POST /auth/login` | exchanges a login token for a session, which the browser keeps as a cookie |
//! | `POST /auth/logout` | ends the session |
//! | `GET /auth/methods`, `/auth/oidc` | logins by an OpenID Connect provider: `oidc` |
//! | the API, in all its forms | as on the listener of the API, for the member of a session or an API key |
//! | any other `GET` | a file of the web console, or its page |
//!
//! A request to the API needs a session or an API key before a byte of its body is read. Only the health check needs none.

mod oidc;
mod pages;

use std::convert::Infallible;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use rackwright_ground::api_error::ApiError;
use rackwright_ground::clock;
use rackwright_ground::config::web::Settings;
use rackwright_ground::core::Core;
use rackwright_identity::{ClientIdentity, TokenHash};
use rackwright_lifecycle::{EventKind, seconds};
use rackwright_netboot::connections::counted_address;
use rackwright_store::{EventRow, MemberRow, SessionKind, SessionRow};
use rackwright_web::limits::{CallLimiter, LoginLimiter, Lookup, NotedUses, SecretLimiter};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Value, json};
use tonic::body::Body;
use tonic::codegen::http::header::{
    AUTHORIZATION, CONTENT_TYPE, COOKIE, HOST, ORIGIN, RETRY_AFTER, SET_COOKIE, UPGRADE,
};
use tonic::codegen::http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri};
use tonic::{Code, Status};
use tower::Service;

use super::access::Refused;
use super::caller;
use super::connection::{Login, Peer};

/// The cookie of a session. Browsers accept this prefix only with `Secure`, `Path=/` and no domain.
const COOKIE_NAME: &str = "__Host-rackwright";
const LOGIN: &str = "/auth/login";
const LOGOUT: &str = "/auth/logout";
const OPEN_SESSION: &str = "/rackwright.v1.SessionService/OpenSession";
const END_SESSION: &str = "/rackwright.v1.SessionService/EndSession";
const HEALTH: &str = "/grpc.health.v1.Health/Check";
/// Beginnings of the paths of the API.
const API: &[&str] = &["/rackwright.", "/grpc.", "/v1/", "/openapi.json"];
/// Least time between two writes of a session's last use, in seconds.
const USE_S: i64 = 60;
/// Most bytes of the answer to a login.
const ANSWER_MAX: usize = 64 << 10;

/// The state of the listener.
#[derive(Debug)]
pub struct Site {
    core: Arc<Core>,
    settings: Settings,
    logins: LoginLimiter,
    calls: CallLimiter,
    secrets: SecretLimiter,
    uses: NotedUses,
}

impl Site {
    /// The web console of a control plane. `None`: the settings have none.
    pub fn new(core: &Arc<Core>) -> Option<Arc<Self>> {
        let settings = core.config.web.clone()?;
        Some(Arc::new(Self {
            core: core.clone(),
            settings,
            logins: LoginLimiter::default(),
            calls: CallLimiter::default(),
            secrets: SecretLimiter::default(),
            uses: NotedUses::default(),
        }))
    }

    /// The login of a secret from this address.
    ///
    /// # Errors
    /// The secret is of no valid session or API key, or there are too many calls of the API key, or too many unknown secrets
    /// from the address.
    async fn login(&self, (kind, secret): (SessionKind, String), address: &str) -> Result<Login, Status> {
        let remembered = remembered(kind, &secret);
        match self.secrets.lookup(&remembered, address) {
            Lookup::Ask => {}
            Lookup::Unknown => return Err(refused(kind).into()),
            Lookup::Wait => {
                let message = "too many sessions or API keys of this address are not valid; try again in a second";
                return Err(Status::resource_exhausted(message));
            }
        }
        let found = self.session(kind, &secret).await;
        match &found {
            Ok(_) => self.secrets.note_valid(&remembered),
            Err(ApiError::Unauthenticated(_)) => self.secrets.note_unknown(&remembered, address),
            Err(_) => {}
        }
        let row = found?;
        if kind == SessionKind::ApiKey && !self.calls.allows(&row.id) {
            let message = "this API key makes too many calls: at most 50 a second for long; try again in a second";
            return Err(Status::resource_exhausted(message));
        }
        self.record_use(&row);
        Ok(login_of(row)?)
    }

    /// The open session or API key with this secret.
    async fn session(&self, kind: SessionKind, secret: &str) -> Result<SessionRow, ApiError> {
        let refuse = || refused(kind);
        let hash = TokenHash::of(secret).map_err(|_| refuse())?.to_hex();
        let now = clock::now();
        let row = self.core.store.session(&hash, now).await?.ok_or_else(refuse)?;
        let is_idle = kind == SessionKind::Browser && row.used_at < self.settings.idle_since(now);
        if row.kind != kind || is_idle {
            return Err(refuse());
        }
        Ok(row)
    }

    /// The login of a browser's secret, if its session is open. None also while the database is unavailable.
    async fn open_login(&self, secret: Option<String>) -> Option<Login> {
        let row = self.session(SessionKind::Browser, &secret?).await.ok()?;
        login_of(row).ok()
    }

    /// Stores the use of a session, apart from the call.
    fn record_use(&self, row: &SessionRow) {
        let now = clock::now();
        let since = now.plus(-seconds(USE_S));
        // The first call of an API key marks the key as used.
        let is_first = row.kind == SessionKind::ApiKey && row.used_at == row.created_at;
        if row.used_at >= since && !is_first || !self.uses.is_due(&row.id) {
            return;
        }
        let since = if is_first { now } else { since };
        let (store, id) = (self.core.store.clone(), row.id.clone());
        tokio::spawn(async move {
            if let Err(error) = store.record_session_use(&id, now, since).await {
                tracing::debug!(id, %error, "the use of a session could not be stored");
            }
        });
    }

    /// Notes the session that an address has opened.
    fn note_opened(&self, secret: &SecretString, address: &str) {
        self.logins.note_accepted(address);
        let opened = remembered(SessionKind::Browser, secret.expose_secret());
        self.secrets.note_valid(&opened);
    }

    /// Notes a refused login.
    async fn note_refused(&self, address: &str) {
        note_refused_login(&self.core, &self.logins, "to the web console", address).await;
    }
}

/// Notes a refused login, and stores one event when an address has had several. `way` states which logins they are.
pub async fn note_refused_login(core: &Core, limiter: &LoginLimiter, way: &str, address: &str) {
    let Some(count) = limiter.note_refused(address) else {
        return;
    };
    let message = format!("{count} logins {way} from {address} were refused within 10 minutes");
    let event = EventRow {
        at: clock::now(),
        kind: EventKind::SecurityLoginsRefused,
        target: "web".into(),
        message,
        attributes: [("address".to_owned(), address.to_owned())].into(),
        ..EventRow::default()
    };
    let stored = async {
        let mut tx = core.store.write().await?;
        tx.add_event(&event).await?;
        core.commit(tx).await
    };
    if let Err(error) = stored.await {
        tracing::warn!(address, %error, "the event of refused logins could not be stored");
    }
}

/// The name under which a presented secret is remembered.
fn remembered(kind: SessionKind, secret: &str) -> String {
    let hash = blake3::hash(format!("{kind:?} {secret}").as_bytes());
    hash.to_hex().to_string()
}

fn refused(kind: SessionKind) -> ApiError {
    ApiError::Unauthenticated(match kind {
        SessionKind::Browser => "the session has ended; log in again".into(),
        SessionKind::ApiKey => "the API key is not valid: unknown, deleted, or too old".into(),
    })
}

fn login_of(row: SessionRow) -> Result<Login, ApiError> {
    let identity = ClientIdentity::member(&row.member, row.epoch).map_err(|e| ApiError::Internal(e.to_string()))?;
    let role = match row.kind {
        SessionKind::Browser => None,
        SessionKind::ApiKey => {
            let given = MemberRow {
                role: row.role,
                customer: row.customer,
            };
            let (role, _) = caller::rights_of(&given)
                .ok_or_else(|| ApiError::Internal(format!("{:?} is not a role of this version", given.role)))?;
            Some(role)
        }
    };
    Ok(Login {
        identity,
        session: row.id,
        until: row.ends_at,
        role,
    })
}

/// The secret that a request presents: an API key, else the cookie of a session.
fn presented(headers: &HeaderMap) -> Option<(SessionKind, &str)> {
    if let Some(value) = headers.get(AUTHORIZATION) {
        let (scheme, key) = value.to_str().ok()?.split_once(' ')?;
        return scheme
            .eq_ignore_ascii_case("bearer")
            .then(|| (SessionKind::ApiKey, key.trim()));
    }
    Some((SessionKind::Browser, cookie_of(headers, COOKIE_NAME)?))
}

/// The value of a cookie.
fn cookie_of<'a>(headers: &'a HeaderMap, wanted: &str) -> Option<&'a str> {
    let cookies = headers
        .get_all(COOKIE)
        .into_iter()
        .filter_map(|value| value.to_str().ok());
    let mut pairs = cookies
        .flat_map(|value| value.split(';'))
        .filter_map(|pair| pair.split_once('='));
    let (_, value) = pairs.find(|(name, _)| name.trim() == wanted)?;
    Some(value.trim())
}

/// Whether a page of this web console sends the request. Browsers say so in `Sec-Fetch-Site`, and older ones in `Origin`. A
/// read may also be typed into the address bar; a WebSocket is more than a read.
fn is_own_page(request: &Request<Body>) -> bool {
    let headers = request.headers();
    let is_read = matches!(*request.method(), Method::GET | Method::HEAD) && !headers.contains_key(UPGRADE);
    match headers.get("sec-fetch-site").map(HeaderValue::as_bytes) {
        Some(b"same-origin") => true,
        Some(b"none") => is_read,
        Some(_) => false,
        None => {
            let authority = request.uri().authority().map(|authority| authority.as_str());
            let host = authority.or_else(|| headers.get(HOST)?.to_str().ok());
            let origin = headers.get(ORIGIN).and_then(|origin| origin.to_str().ok());
            host.is_some() && origin.and_then(|origin| origin.strip_prefix("https://")) == host
        }
    }
}

/// The services behind the web console. Without a site, all requests pass.
#[derive(Debug, Clone)]
pub struct Web<S> {
    inner: S,
    site: Option<Arc<Site>>,
}

impl<S> Web<S> {
    /// Puts `inner` behind the web console.
    pub fn new(inner: S, site: Option<Arc<Site>>) -> Self {
        Self { inner, site }
    }
}

type Answer = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

impl<S> Service<Request<Body>> for Web<S>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible, Future = Answer> + Clone + Send + 'static,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Answer;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Answer {
        let Some(site) = self.site.clone() else {
            return self.inner.call(request);
        };
        // The ready service handles this request; its clone becomes ready for the next one.
        let next = self.inner.clone();
        let inner = std::mem::replace(&mut self.inner, next);
        let peer = Peer::from_extensions(request.extensions()).cloned();
        Box::pin(async move {
            // A connection is not idle while it waits for this answer.
            let _busy = peer.as_ref().map(|peer| peer.place().busy());
            let response = match request.uri().path() {
                LOGIN => log_in(&site, inner, request).await?,
                LOGOUT => log_out(&site, inner, request).await?,
                path if oidc::answers(path) => oidc::answer(&site, inner, request).await?,
                path if API.iter().any(|prefix| path.starts_with(prefix)) => call_api(&site, inner, request).await?,
                _ => pages::page(&request),
            };
            Ok(pages::secured(response))
        })
    }
}

/// The secret of a request to the API.
///
/// # Errors
/// The request has no secret, or another site has sent it.
fn checked(request: &Request<Body>) -> Result<(SessionKind, String), ApiError> {
    let Some((kind, secret)) = presented(request.headers()) else {
        return Err(ApiError::Unauthenticated(
            "log in to the web console, or send an API key".into(),
        ));
    };
    if kind == SessionKind::Browser && !is_own_page(request) {
        return Err(ApiError::Forbidden(
            "only pages of this web console may send this request".into(),
        ));
    }
    Ok((kind, secret.to_owned()))
}

async fn call_api<S>(site: &Site, mut inner: S, mut request: Request<Body>) -> Result<Response<Body>, Infallible>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
{
    if request.uri().path() == HEALTH {
        return inner.call(request).await;
    }
    let peer = Peer::from_extensions(request.extensions()).cloned();
    let address = peer.as_ref().and_then(Peer::address).map(host).unwrap_or_default();
    // Not awaited together with the request: its body cannot be shared between threads.
    let login = match checked(&request) {
        Ok(secret) => site.login(secret, &address).await,
        Err(error) => Err(error.into()),
    };
    let is_limited = login
        .as_ref()
        .is_err_and(|status| status.code() == Code::ResourceExhausted);
    match login {
        Ok(login) => {
            if let Some(peer) = peer {
                peer.place().known();
            }
            request.extensions_mut().insert(login);
        }
        // Refused inside of the audit, in the form of the request.
        Err(status) => {
            if let Some(peer) = peer.filter(|_| status.code() == Code::Unauthenticated) {
                peer.place().unknown();
            }
            request.extensions_mut().insert(Refused(status));
        }
    }
    let mut response = inner.call(request).await?;
    if is_limited {
        response
            .headers_mut()
            .insert(RETRY_AFTER, HeaderValue::from_static("1"));
    }
    Ok(response)
}

/// The answer of a page's own request: no content, or an error as in the API.
fn failure(code: StatusCode, name: &str, message: &str) -> Response<Body> {
    let body = json!({"code": name, "message": message}).to_string();
    let mut response = Response::new(Body::new(axum::body::Body::from(body)));
    *response.status_mut() = code;
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// Refuses a request to a path below `/auth/` that is not a `POST` of the console's own page.
fn check_own_post(request: &Request<Body>) -> Result<(), Box<Response<Body>>> {
    if request.method() != Method::POST {
        let message = "this path takes POST";
        return Err(Box::new(failure(
            StatusCode::METHOD_NOT_ALLOWED,
            "unimplemented",
            message,
        )));
    }
    if !is_own_page(request) {
        let message = "only pages of this web console may send this request";
        return Err(Box::new(failure(StatusCode::FORBIDDEN, "permission_denied", message)));
    }
    Ok(())
}

/// The host of an address, for the limit of refused logins: a host has all addresses of an IPv6 /64 network.
pub(super) fn host(address: IpAddr) -> String {
    match counted_address(address) {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(network) => format!("{network}/64"),
    }
}

async fn log_in<S>(site: &Site, mut inner: S, mut request: Request<Body>) -> Result<Response<Body>, Infallible>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
{
    if let Err(refused) = check_own_post(&request) {
        return Ok(*refused);
    }
    let peer = Peer::from_extensions(request.extensions());
    let address = peer.and_then(Peer::address).map(host);
    let address = address.unwrap_or_else(|| "an unknown address".into());
    if let Err(wait) = site.logins.check(&address) {
        let message = format!("too many logins from this address were refused; try again in {wait} s");
        let mut response = failure(StatusCode::TOO_MANY_REQUESTS, "resource_exhausted", &message);
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(wait));
        return Ok(response);
    }
    // A browser that was logged in gets the new session in place of its own.
    let former = match presented(request.headers()) {
        Some((SessionKind::Browser, secret)) => Some(secret.to_owned()),
        _ => None,
    };
    *request.uri_mut() = Uri::from_static(OPEN_SESSION);
    // In any other form, the answer would not have the status and content that are read here.
    let json = HeaderValue::from_static("application/json");
    request.headers_mut().insert(CONTENT_TYPE, json);
    let peer = Peer::from_extensions(request.extensions()).cloned();
    let response = inner.call(request).await?;
    if response.status() != StatusCode::OK {
        if response.status() == StatusCode::UNAUTHORIZED {
            site.note_refused(&address).await;
        }
        return Ok(response);
    }
    let Some(secret) = secret_of(response).await else {
        let message = "the session has no secret";
        return Ok(failure(StatusCode::INTERNAL_SERVER_ERROR, "internal", message));
    };
    site.note_opened(&secret, &address);
    if let Some(login) = site.open_login(former).await {
        let ended = inner.call(ending(login, peer)).await?;
        tracing::debug!(status = %ended.status(), "the browser's former session was ended");
    }
    let age = i64::from(site.settings.session_hours) * 3600;
    Ok(with_cookie(StatusCode::NO_CONTENT, secret.expose_secret(), age))
}

/// The secret of a session that was opened.
async fn secret_of(response: Response<Body>) -> Option<SecretString> {
    let bytes = axum::body::to_bytes(axum::body::Body::new(response.into_body()), ANSWER_MAX).await;
    let opened: Value = serde_json::from_slice(&bytes.ok()?).ok()?;
    Some(opened["secret"].as_str()?.to_owned().into())
}

/// The call that ends the session of a login.
fn ending(login: Login, peer: Option<Peer>) -> Request<Body> {
    let key = format!("end-{}", login.session);
    let body = json!({"name": login.name(), "mutation": {"idempotencyKey": key}}).to_string();
    let mut request = Request::new(Body::new(axum::body::Body::from(body)));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = Uri::from_static(END_SESSION);
    let json = HeaderValue::from_static("application/json");
    request.headers_mut().insert(CONTENT_TYPE, json);
    request.extensions_mut().insert(login);
    if let Some(peer) = peer {
        request.extensions_mut().insert(peer);
    }
    request
}

async fn log_out<S>(site: &Site, mut inner: S, request: Request<Body>) -> Result<Response<Body>, Infallible>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
{
    if let Err(refused) = check_own_post(&request) {
        return Ok(*refused);
    }
    let gone = with_cookie(StatusCode::NO_CONTENT, "", 0);
    let Some((SessionKind::Browser, secret)) = presented(request.headers()) else {
        return Ok(gone);
    };
    let (secret, peer) = (secret.to_owned(), Peer::from_extensions(request.extensions()).cloned());
    let Some(login) = site.open_login(Some(secret)).await else {
        return Ok(gone);
    };
    let response = inner.call(ending(login, peer)).await?;
    Ok(match response.status() {
        StatusCode::OK => gone,
        _ => response,
    })
}

/// An answer that sets the session's cookie. No secret and no age: the browser removes the cookie.
fn with_cookie(code: StatusCode, secret: &str, age: i64) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = code;
    append_cookie(&mut response, COOKIE_NAME, secret, age, "Strict");
    response
}

/// Sets a cookie. No age: the browser removes the cookie.
fn append_cookie(response: &mut Response<Body>, name: &str, value: &str, age_s: i64, same_site: &str) {
    let cookie = format!("{name}={value}; Path=/; Max-Age={age_s}; Secure; HttpOnly; SameSite={same_site}");
    if let Ok(mut cookie) = HeaderValue::try_from(cookie) {
        cookie.set_sensitive(true);
        response.headers_mut().append(SET_COOKIE, cookie);
    }
}

#[cfg(test)]
mod own_page_tests;
#[cfg(test)]
mod tests;
