//! One HTTP exchange with a BMC: bounded in time, size, depth and number; redirects only within the BMC.

use std::error::Error as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Method, StatusCode};
use reqwest::{Client, RequestBuilder, Response};
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;
use tokio::sync::Semaphore;
use url::{Position, Url};

use crate::address::BmcAddress;
use crate::error::{Exchange, RedfishError};
use crate::extended::BmcMessages;
use crate::json;
use crate::settings::Settings;
use crate::tls::PinVerifier;

const MAX_REDIRECTS: usize = 3;
/// A stream of events is opened anew after so long.
const STREAM_LASTS: Duration = Duration::from_secs(24 * 3600);
/// A connection on which nothing is said is tried after so long: a stream may be silent for days.
const KEEPALIVE: Duration = Duration::from_secs(60);
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
const AUTH_TOKEN: HeaderName = HeaderName::from_static("x-auth-token");

/// How a request proves who sends it.
#[derive(Debug, Clone)]
pub(crate) enum Proof {
    /// Not at all: the service root and the login itself.
    Nothing,
    /// The token of a session.
    Token(SecretString),
    /// `user:password` in base64.
    Basic(SecretString),
}

/// A request as it goes out.
#[derive(Debug, Clone)]
pub(crate) struct Outgoing<'a> {
    pub(crate) method: Method,
    pub(crate) url: Url,
    pub(crate) body: Option<&'a Value>,
    pub(crate) if_match: Option<&'a str>,
}

/// What stood in an answer's body.
#[derive(Debug, Clone)]
pub(crate) enum Body {
    Empty,
    Json(Value),
    Text(String),
}

/// An answer, of whatever status.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) body: Body,
    pub(crate) etag: Option<String>,
    pub(crate) location: Option<String>,
    pub(crate) retry_after: Option<Duration>,
    pub(crate) token: Option<SecretString>,
    /// Where the answer came from, redirects followed.
    pub(crate) url: Url,
}

impl Reply {
    /// The body, where it is JSON.
    pub(crate) fn json(&self) -> Option<&Value> {
        match &self.body {
            Body::Json(value) => Some(value),
            _ => None,
        }
    }

    /// What the BMC says about itself in this answer.
    pub(crate) fn messages(&self) -> BmcMessages {
        match &self.body {
            Body::Empty => BmcMessages::default(),
            Body::Json(value) => BmcMessages::from_json(value),
            Body::Text(text) => BmcMessages::from_text(text),
        }
    }
}

/// The way to one BMC.
#[derive(Debug)]
pub(crate) struct Transport {
    pub(crate) address: BmcAddress,
    http: Mutex<Option<Client>>,
    pin: Arc<PinVerifier>,
    permits: Semaphore,
    settings: Settings,
}

impl Transport {
    pub(crate) fn new(address: BmcAddress, pin: Arc<PinVerifier>, settings: &Settings) -> Result<Self, RedfishError> {
        let transport = Self {
            address,
            http: Mutex::new(None),
            pin,
            permits: Semaphore::new(concurrent(settings)),
            settings: settings.clone(),
        };
        // What is wrong with the settings shows now.
        transport.http()?;
        Ok(transport)
    }

    /// The connections, made anew where [`rest`](Self::rest) dropped them.
    fn http(&self) -> Result<Client, RedfishError> {
        let mut http = self.http.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(client) = &*http {
            return Ok(client.clone());
        }
        Ok(http.insert(client(&self.pin, &self.settings)?).clone())
    }

    /// Closes the connections; the next request opens one.
    pub(crate) fn rest(&self) {
        *self.http.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    pub(crate) fn pin(&self) -> &PinVerifier {
        &self.pin
    }

    pub(crate) fn exchange(&self, method: &Method, url: &Url) -> Box<Exchange> {
        let path = url[Position::BeforePath..Position::AfterQuery].to_owned();
        Box::new(Exchange {
            bmc: self.address.to_string(),
            method: method.to_string(),
            path,
        })
    }

    /// Sends one request and takes the whole answer; a status that says no is still an answer.
    pub(crate) async fn send(&self, outgoing: &Outgoing<'_>, proof: &Proof) -> Result<Reply, RedfishError> {
        let mut url = outgoing.url.clone();
        for _ in 0..=MAX_REDIRECTS {
            let reply = self.send_once(outgoing, &url, proof).await?;
            let redirect = matches!(reply.status.as_u16(), 301 | 302 | 307 | 308);
            match reply.location.as_deref() {
                // The method is kept: old Supermicro BMCs redirect the POST that opens a session.
                Some(location) if redirect => url = self.address.resolve(Some(&url), location)?,
                _ => return Ok(reply),
            }
        }
        Err(RedfishError::TooComplex {
            at: self.exchange(&outgoing.method, &url),
            why: format!("more than {MAX_REDIRECTS} redirects"),
        })
    }

    async fn send_once(&self, outgoing: &Outgoing<'_>, url: &Url, proof: &Proof) -> Result<Reply, RedfishError> {
        self.refuse_if_certificate_changed()?;
        // The semaphore is never closed; should it be, the request simply goes out unlimited.
        let _permit = self.permits.acquire().await.ok();
        let failed = |source: reqwest::Error| self.classify(&outgoing.method, url, source);
        let mut request = prove(self.http()?.request(outgoing.method.clone(), url.clone()), proof);
        if let Some(etag) = outgoing.if_match {
            request = request.header(header::IF_MATCH, etag);
        }
        if let Some(body) = outgoing.body {
            request = request.json(body);
        }
        let response = request.send().await.map_err(failed)?;
        tracing::debug!(bmc = %self.address, method = %outgoing.method, path = url.path(),
            status = response.status().as_u16(), "redfish");
        let mut reply = self.head(&response, url);
        reply.body = self.read_body(outgoing, url, response).await?;
        if reply.etag.is_none() {
            reply.etag = reply.json().and_then(|body| json::text(body, &["@odata.etag"]));
        }
        Ok(reply)
    }

    /// Asks for a stream of events behind `last_id`; answers the head of what comes where that is none. The answer has begun
    /// within the time of a request; a stream may last a day.
    pub(crate) async fn stream(
        &self,
        url: &Url,
        proof: &Proof,
        last_id: Option<&str>,
    ) -> Result<Result<Response, Reply>, RedfishError> {
        self.refuse_if_certificate_changed()?;
        let mut request = prove(self.http()?.get(url.clone()), proof)
            .header(header::ACCEPT, "text/event-stream")
            .timeout(STREAM_LASTS);
        if let Some(id) = last_id {
            request = request.header(LAST_EVENT_ID, id);
        }
        let response = tokio::time::timeout(self.settings.request_timeout, request.send()).await;
        let response = response
            .map_err(|_| RedfishError::TimedOut {
                at: self.exchange(&Method::GET, url),
                limit_s: self.settings.request_timeout.as_secs(),
            })?
            .map_err(|source| self.classify(&Method::GET, url, source))?;
        let kind = response.headers().get(header::CONTENT_TYPE);
        let is_stream = kind
            .and_then(|kind| kind.to_str().ok())
            .is_some_and(|kind| kind.trim_start().to_ascii_lowercase().starts_with("text/event-stream"));
        if response.status() == StatusCode::OK && is_stream {
            return Ok(Ok(response));
        }
        Ok(Err(self.head(&response, url)))
    }

    fn head(&self, response: &reqwest::Response, url: &Url) -> Reply {
        let value = |name: HeaderName| response.headers().get(name).and_then(|value| value.to_str().ok());
        // Only seconds: the date form depends on the BMC's clock, which is often wrong.
        let retry_after = value(header::RETRY_AFTER)
            .and_then(|text| text.trim().parse().ok())
            .map(Duration::from_secs);
        Reply {
            status: response.status(),
            body: Body::Empty,
            etag: value(header::ETAG).map(str::to_owned),
            location: value(header::LOCATION).map(str::to_owned),
            retry_after,
            token: value(AUTH_TOKEN)
                .filter(|token| !token.is_empty())
                .map(SecretString::from),
            url: url.clone(),
        }
    }

    async fn read_body(
        &self,
        outgoing: &Outgoing<'_>,
        url: &Url,
        mut response: reqwest::Response,
    ) -> Result<Body, RedfishError> {
        let at = || self.exchange(&outgoing.method, url);
        let limit_bytes = self.settings.limits.body_bytes;
        if response
            .content_length()
            .is_some_and(|length| length > limit_bytes as u64)
        {
            return Err(RedfishError::BodyTooLarge { at: at(), limit_bytes });
        }
        let mut bytes = Vec::new();
        while let Some(chunk) = response
            .chunk()
            .await
            .map_err(|source| self.classify(&outgoing.method, url, source))?
        {
            if bytes.len() + chunk.len() > limit_bytes {
                return Err(RedfishError::BodyTooLarge { at: at(), limit_bytes });
            }
            bytes.extend_from_slice(&chunk);
        }
        // Names in Latin-1 occur; one odd letter must not cost the whole answer.
        let text = String::from_utf8_lossy(&bytes);
        let text = text.trim_start_matches('\u{feff}').trim();
        if text.is_empty() {
            return Ok(Body::Empty);
        }
        let parsed = json::check_cost(text, self.settings.limits.depth.min(127), self.settings.limits.values)
            .map_err(|why| RedfishError::TooComplex { at: at(), why })
            .and_then(|()| {
                serde_json::from_str(text).map_err(|fault| RedfishError::NotJson {
                    at: at(),
                    why: fault.to_string(),
                    beginning: beginning(text),
                })
            });
        match parsed {
            Ok(value) => Ok(Body::Json(value)),
            // Pages of XHTML are common for errors, and some actions answer a plain "OK".
            Err(RedfishError::NotJson { .. }) if outgoing.method != Method::GET || !response_is_good(&response) => {
                Ok(Body::Text(text.chars().take(20_000).collect()))
            }
            Err(fault) => Err(fault),
        }
    }

    fn refuse_if_certificate_changed(&self) -> Result<(), RedfishError> {
        match self.pin.mismatch() {
            Some((expected, seen)) => Err(RedfishError::CertificateChanged {
                bmc: self.address.to_string(),
                expected,
                seen,
            }),
            None => Ok(()),
        }
    }

    fn classify(&self, method: &Method, url: &Url, source: reqwest::Error) -> RedfishError {
        if let Err(changed) = self.refuse_if_certificate_changed() {
            return changed;
        }
        let at = self.exchange(method, url);
        let source = source.without_url();
        if source.is_connect() {
            if is_tls(&source) {
                RedfishError::Tls { at, source }
            } else {
                RedfishError::Unreachable { at, source }
            }
        } else if source.is_timeout() {
            RedfishError::TimedOut {
                at,
                limit_s: self.settings.request_timeout.as_secs(),
            }
        } else {
            RedfishError::Broken { at, source }
        }
    }
}

/// At most so many requests at once.
fn concurrent(settings: &Settings) -> usize {
    settings.max_concurrent.clamp(1, 4)
}

fn client(pin: &Arc<PinVerifier>, settings: &Settings) -> Result<Client, RedfishError> {
    let tls = pin
        .client_config()
        .map_err(|source| RedfishError::TlsSetup { source })?;
    let mut headers = HeaderMap::new();
    headers.insert(header::ACCEPT, HeaderValue::from_static("application/json"));
    // Compression turns strong ETags into weak ones on several BMCs.
    headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    headers.insert(
        HeaderName::from_static("odata-version"),
        HeaderValue::from_static("4.0"),
    );
    Client::builder()
        .tls_backend_preconfigured(tls)
        .no_proxy()
        .http1_only()
        .redirect(reqwest::redirect::Policy::none())
        .referer(false)
        .user_agent("rackwright")
        .default_headers(headers)
        .connect_timeout(settings.connect_timeout)
        .tcp_keepalive(KEEPALIVE)
        .timeout(settings.request_timeout)
        // BMCs close idle connections early; ours are gone before that.
        .pool_idle_timeout(Duration::from_secs(4))
        .pool_max_idle_per_host(concurrent(settings))
        .build()
        .map_err(|source| RedfishError::ClientSetup { source })
}

fn prove(request: RequestBuilder, proof: &Proof) -> RequestBuilder {
    match proof {
        Proof::Nothing => request,
        Proof::Token(token) => request.header(AUTH_TOKEN, secret_header(token.expose_secret())),
        Proof::Basic(pair) => {
            let value = secret_header(&format!("Basic {}", pair.expose_secret()));
            request.header(header::AUTHORIZATION, value)
        }
    }
}

fn response_is_good(response: &reqwest::Response) -> bool {
    response.status().is_success()
}

fn secret_header(text: &str) -> HeaderValue {
    // Tokens and base64 are ASCII. A BMC that hands out another token gets an empty one back, which it refuses.
    let mut value = HeaderValue::from_str(text).unwrap_or_else(|_| HeaderValue::from_static(""));
    value.set_sensitive(true);
    value
}

/// Whether rustls stands somewhere in the chain of causes. An `io::Error` does not name the error within it as its
/// source, and they are nested here, so that each must be opened.
fn is_tls(error: &reqwest::Error) -> bool {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = error.source();
    while let Some(inner) = cause {
        if inner.is::<rustls::Error>() {
            return true;
        }
        cause = match inner.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref) {
            Some(hidden) => Some(hidden),
            None => inner.source(),
        };
    }
    false
}

fn beginning(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(60).collect()
}
