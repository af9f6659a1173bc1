//! HTTP exchanges with one BMC: each passes the BMC's gate, and has limits on its time and on the size and depth of the
//! answer. Redirects are followed only within the BMC.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::header::{self, HeaderName, HeaderValue};
use http::{Method, StatusCode, request};
use hyper::upgrade::Upgraded;
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;
use tokio_tungstenite::tungstenite::handshake::client::generate_key;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use url::{Position, Url};

use crate::address::BmcAddress;
use crate::error::{Exchange, RedfishError};
use crate::extended::BmcMessages;
use crate::gate::{Admission, Gate};
use crate::json::{self, Refused};
use crate::retry;
use crate::sender::{Answer, Failed, Payload, SendError, Sender};
use crate::settings::TransportSettings;
use crate::tls::{self, Pin};
use crate::upload::Upload;

const MAX_REDIRECTS: usize = 3;
/// Longest life of an event stream: a day. Its reader opens the next one.
const STREAM_TIMEOUT: Duration = Duration::from_secs(24 * 3600);
/// Longest text that is kept of a body that is not JSON, in characters.
const MAX_TEXT_CHARS: usize = 20_000;
/// Longest location of a redirect in an error, in characters.
const MAX_LOCATION_CHARS: usize = 200;
/// Longest beginning of a body in an error, in characters.
const MAX_BEGINNING_CHARS: usize = 60;
/// Longest name of an encoding in an error, in characters.
const MAX_ENCODING_CHARS: usize = 40;
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
const AUTH_TOKEN: HeaderName = HeaderName::from_static("x-auth-token");

/// The proof of identity in a request.
#[derive(Debug, Clone)]
pub enum Proof {
    /// No proof: for the service root and the login itself.
    Nothing,
    /// The token of a session.
    Token(SecretString),
    /// `user:password` in base64.
    Basic(SecretString),
}

/// A request to send.
#[derive(Debug, Clone)]
pub struct Outgoing<'a> {
    pub method: Method,
    pub url: Url,
    pub body: Option<&'a Value>,
    pub if_match: Option<&'a str>,
}

/// The content of an answer's body.
#[derive(Debug, Clone)]
pub enum Body {
    Empty,
    Json(Value),
    Text(String),
}

/// An answer of any status.
#[derive(Debug)]
pub struct Reply {
    pub status: StatusCode,
    pub body: Body,
    /// Size of the body in bytes; 0 for a body without text.
    pub bytes: usize,
    pub etag: Option<String>,
    pub location: Option<String>,
    pub retry_after: Option<Duration>,
    pub token: Option<SecretString>,
    /// The URL of the answer, after redirects.
    pub url: Url,
}

/// The answer to a request for a stream or a connection.
#[derive(Debug)]
pub enum Opening<T> {
    /// The BMC opened it.
    Opened(T),
    /// The head of any other answer.
    Other(Box<Reply>),
}

impl Reply {
    /// The body, if it is JSON.
    pub fn json(&self) -> Option<&Value> {
        match &self.body {
            Body::Json(value) => Some(value),
            _ => None,
        }
    }

    /// The BMC's messages in this answer.
    pub fn messages(&self) -> BmcMessages {
        match &self.body {
            Body::Empty => BmcMessages::default(),
            Body::Json(value) => BmcMessages::from_json(value),
            Body::Text(text) => BmcMessages::from_text(text),
        }
    }
}

/// The transport to one BMC.
#[derive(Debug)]
pub struct Transport {
    pub address: BmcAddress,
    sender: Mutex<Option<Sender>>,
    pin: Arc<Pin>,
    tls: tls::Kept,
    gate: Arc<Gate>,
    settings: TransportSettings,
}

impl Transport {
    /// A transport without open connections.
    ///
    /// # Errors
    /// [`RedfishError::TlsSetup`].
    pub fn new(address: BmcAddress, pin: Arc<Pin>, settings: TransportSettings) -> Result<Self, RedfishError> {
        let gate = match &settings.gates {
            Some(gates) => gates.of(&address.to_string()),
            None => Arc::new(Gate::new(settings.max_concurrent)),
        };
        let transport = Self {
            address,
            sender: Mutex::new(None),
            pin,
            tls: tls::Kept::default(),
            gate,
            settings,
        };
        // Invalid settings are an error now, and not at the first request.
        transport.sender()?;
        Ok(transport)
    }

    /// The sender of requests with its connections; a new one after [`close_connections`](Self::close_connections).
    fn sender(&self) -> Result<Sender, RedfishError> {
        let mut sender = self.sender.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(sender) = &*sender {
            return Ok(sender.clone());
        }
        let tls = tls::Connector::new(&self.pin, &self.tls).map_err(|source| RedfishError::TlsSetup { source })?;
        Ok(sender.insert(Sender::new(tls, &self.settings)).clone())
    }

    /// Closes the connections; the next request opens one.
    pub fn close_connections(&self) {
        *self.sender.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// The gate for all requests. An event stream leaves the gate when its answer has begun.
    pub fn gate(&self) -> &Gate {
        &self.gate
    }

    /// The pinned certificate.
    pub fn pin(&self) -> &Pin {
        &self.pin
    }

    /// A request by its method and URL, for errors.
    pub fn exchange(&self, method: &Method, url: &Url) -> Box<Exchange> {
        let path = url[Position::BeforePath..Position::AfterQuery].to_owned();
        Box::new(Exchange {
            bmc: self.address.to_string(),
            method: method.to_string(),
            path,
        })
    }

    /// Sends one request, follows its redirects, and returns the whole answer. An error status is also an answer.
    pub(crate) async fn send(&self, outgoing: &Outgoing<'_>, proof: &Proof) -> Result<Reply, RedfishError> {
        let mut url = outgoing.url.clone();
        for _ in 0..=MAX_REDIRECTS {
            let reply = self.send_through_gate(outgoing, &url, proof).await?;
            let is_redirect = matches!(reply.status.as_u16(), 301 | 302 | 307 | 308);
            match reply.location.as_deref() {
                // The method is kept: old Supermicro BMCs redirect the POST that opens a session.
                Some(location) if is_redirect => match self.address.resolve(Some(&url), location) {
                    Ok(next) => url = next,
                    Err(_) => {
                        return Err(RedfishError::ForeignRedirect {
                            at: self.exchange(&outgoing.method, &url),
                            location: location.chars().take(MAX_LOCATION_CHARS).collect(),
                        });
                    }
                },
                _ => return Ok(reply),
            }
        }
        Err(RedfishError::TooComplex {
            at: self.exchange(&outgoing.method, &url),
            why: format!("more than {MAX_REDIRECTS} redirects"),
        })
    }

    /// Waits for a place in the gate. Refuses a BMC with a changed certificate.
    async fn enter(&self) -> Result<Admission<'_>, RedfishError> {
        self.refuse_if_certificate_changed()?;
        let environment = &self.settings.environment;
        self.gate.pass(&self.address.to_string(), || environment.now()).await
    }

    /// Leaves the gate and reports the outcome to it. `head_arrived`: whether the head of the answer arrived.
    fn leave<T>(&self, pass: Admission<'_>, outcome: &Result<T, RedfishError>, head_arrived: bool) {
        let environment = &self.settings.environment;
        match outcome {
            Err(failure) if failure.is_no_answer(head_arrived) => {
                pass.failed(failure, environment.now(), environment.jitter());
            }
            _ => pass.answered(),
        }
    }

    /// Sends one request without following a redirect.
    async fn send_through_gate(
        &self,
        outgoing: &Outgoing<'_>,
        url: &Url,
        proof: &Proof,
    ) -> Result<Reply, RedfishError> {
        let pass = self.enter().await?;
        let mut head_arrived = false;
        let outcome = self.send_within_gate(outgoing, url, proof, &mut head_arrived).await;
        self.leave(pass, &outcome, head_arrived);
        outcome
    }

    /// Sets `head_arrived` when the head of the answer arrives.
    async fn send_within_gate(
        &self,
        outgoing: &Outgoing<'_>,
        url: &Url,
        proof: &Proof,
        head_arrived: &mut bool,
    ) -> Result<Reply, RedfishError> {
        let mut request = request_head(&outgoing.method, url, proof);
        if let Some(etag) = outgoing.if_match {
            request = request.header(header::IF_MATCH, etag);
        }
        let mut payload = Payload::empty();
        if let Some(body) = outgoing.body {
            request = request.header(header::CONTENT_TYPE, "application/json");
            payload = Payload::Whole(body.to_string().into());
        }
        let limit = self.settings.request_timeout;
        let sent = self.sender()?.send(request, payload, limit).await;
        let response = sent.map_err(|source| self.classify(&outgoing.method, url, source))?;
        *head_arrived = true;
        tracing::debug!(bmc = %self.address, method = %outgoing.method, path = url.path(),
            status = response.status().as_u16(), "redfish");
        let mut reply = self.reply_head(&response, url);
        (reply.body, reply.bytes) = self.read_body(outgoing, url, response).await?;
        if reply.etag.is_none() {
            reply.etag = reply.json().and_then(|body| json::text(body, &["@odata.etag"]));
        }
        Ok(reply)
    }

    /// Sends one file. An error status is also an answer. Redirects are not followed.
    pub(crate) async fn upload(&self, upload: &Upload, proof: &Proof) -> Result<Reply, RedfishError> {
        let pass = self.enter().await?;
        let mut head_arrived = false;
        let outcome = self.upload_within_gate(upload, proof, &mut head_arrived).await;
        self.leave(pass, &outcome, head_arrived);
        outcome
    }

    /// Sets `head_arrived` when the head of the answer arrives.
    async fn upload_within_gate(
        &self,
        upload: &Upload,
        proof: &Proof,
        head_arrived: &mut bool,
    ) -> Result<Reply, RedfishError> {
        let body = upload.open().await.map_err(|source| RedfishError::FirmwareFile {
            path: upload.path(),
            source,
        })?;
        let outgoing = Outgoing {
            method: upload.method.clone(),
            url: upload.url.clone(),
            body: None,
            if_match: upload.if_match.as_deref(),
        };
        let mut request =
            request_head(&outgoing.method, &outgoing.url, proof).header(header::CONTENT_TYPE, &upload.content_type);
        if let Some(etag) = outgoing.if_match {
            request = request.header(header::IF_MATCH, etag);
        }
        let sent = self.sender()?.send(request, Payload::File(body), upload.limit()).await;
        let response = sent.map_err(|source| self.classify(&outgoing.method, &outgoing.url, source))?;
        *head_arrived = true;
        let mut reply = self.reply_head(&response, &outgoing.url);
        (reply.body, reply.bytes) = self.read_body(&outgoing, &outgoing.url, response).await?;
        Ok(reply)
    }

    /// Requests an event stream after `last_id`; returns the head of any other answer. The head must arrive within the time
    /// limit of a request; the stream may last a day.
    pub async fn stream(
        &self,
        url: &Url,
        proof: &Proof,
        last_id: Option<&str>,
    ) -> Result<Opening<Answer>, RedfishError> {
        let pass = self.enter().await?;
        let outcome = self.stream_within_gate(url, proof, last_id).await;
        self.leave(pass, &outcome, false);
        outcome
    }

    async fn stream_within_gate(
        &self,
        url: &Url,
        proof: &Proof,
        last_id: Option<&str>,
    ) -> Result<Opening<Answer>, RedfishError> {
        let mut request = request_head(&Method::GET, url, proof).header(header::ACCEPT, "text/event-stream");
        if let Some(id) = last_id {
            request = request.header(LAST_EVENT_ID, id);
        }
        let sender = self.sender()?;
        let sent = sender.send(request, Payload::empty(), STREAM_TIMEOUT);
        let response = tokio::time::timeout(self.settings.request_timeout, sent).await;
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
            return Ok(Opening::Opened(response));
        }
        Ok(Opening::Other(Box::new(self.reply_head(&response, url))))
    }

    /// Requests a WebSocket (RFC 6455, 4.1); returns the head of any other answer.
    pub(crate) async fn web_socket(&self, url: &Url, proof: &Proof) -> Result<Opening<Upgraded>, RedfishError> {
        let pass = self.enter().await?;
        let outcome = self.web_socket_within_gate(url, proof).await;
        self.leave(pass, &outcome, false);
        outcome
    }

    async fn web_socket_within_gate(&self, url: &Url, proof: &Proof) -> Result<Opening<Upgraded>, RedfishError> {
        let failed = |source| self.classify(&Method::GET, url, source);
        let key = generate_key();
        let request = request_head(&Method::GET, url, proof)
            .header(header::CONNECTION, "Upgrade")
            .header(header::UPGRADE, "websocket")
            // The version in RFC 6455, 4.1.
            .header(header::SEC_WEBSOCKET_VERSION, "13")
            .header(header::SEC_WEBSOCKET_KEY, &key);
        let sender = self.sender()?;
        let sent = sender.send(request, Payload::empty(), self.settings.request_timeout);
        let response = sent.await.map_err(failed)?;
        let accepted = response.headers().get(header::SEC_WEBSOCKET_ACCEPT);
        let is_accepted = accepted.is_some_and(|value| value == &derive_accept_key(key.as_bytes()));
        if response.status() == StatusCode::SWITCHING_PROTOCOLS && is_accepted {
            return Ok(Opening::Opened(response.upgraded().await.map_err(failed)?));
        }
        Ok(Opening::Other(Box::new(self.reply_head(&response, url))))
    }

    /// The reply with the head of a response, and without its body.
    fn reply_head(&self, response: &Answer, url: &Url) -> Reply {
        let value = |name: HeaderName| response.headers().get(name).and_then(|value| value.to_str().ok());
        let retry_after = value(header::RETRY_AFTER).and_then(|text| retry::requested_pause(text, value(header::DATE)));
        Reply {
            status: response.status(),
            body: Body::Empty,
            bytes: 0,
            etag: value(header::ETAG).map(str::to_owned),
            location: value(header::LOCATION).map(str::to_owned),
            retry_after,
            token: value(AUTH_TOKEN)
                .filter(|token| !token.is_empty())
                .map(SecretString::from),
            url: url.clone(),
        }
    }

    /// Reads and parses the body of a response. Returns it with its size in bytes.
    async fn read_body(
        &self,
        outgoing: &Outgoing<'_>,
        url: &Url,
        mut response: Answer,
    ) -> Result<(Body, usize), RedfishError> {
        let at = || self.exchange(&outgoing.method, url);
        let limit_bytes = self.settings.limits.body_bytes;
        if response.length().is_some_and(|length| length > limit_bytes as u64) {
            return Err(RedfishError::BodyTooLarge { at: at(), limit_bytes });
        }
        let is_success = response.status().is_success();
        if let Some(encoding) = unrequested_encoding(&response) {
            if !is_success {
                return Ok((Body::Empty, 0));
            }
            return Err(RedfishError::NotJson {
                at: at(),
                why: format!("it has the encoding {encoding:?}, which was not requested"),
                beginning: String::new(),
            });
        }
        let mut bytes = Vec::new();
        response.limit_body(self.settings.body_timeout);
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
        // Some BMCs send names in Latin-1; one odd letter must not invalidate the whole answer.
        let text = String::from_utf8_lossy(&bytes);
        let text = text.trim_start_matches('\u{feff}').trim();
        if text.is_empty() {
            return Ok((Body::Empty, 0));
        }
        let body = self.parse_body(outgoing, url, is_success, text)?;
        Ok((body, bytes.len()))
    }

    /// Parses the text of a body that is not empty. Only a successful GET must have JSON: errors are often XHTML pages, and
    /// some actions answer a plain "OK".
    fn parse_body(
        &self,
        outgoing: &Outgoing<'_>,
        url: &Url,
        is_success: bool,
        text: &str,
    ) -> Result<Body, RedfishError> {
        let at = || self.exchange(&outgoing.method, url);
        let must_be_json = outgoing.method == Method::GET && is_success;
        match json::parse(text, &self.settings.limits) {
            Ok(value) => Ok(Body::Json(value)),
            Err(Refused::TooCostly(why)) => Err(RedfishError::TooComplex { at: at(), why }),
            Err(Refused::NotJson(why)) if must_be_json => Err(RedfishError::NotJson {
                at: at(),
                why,
                beginning: beginning(text),
            }),
            Err(Refused::NotJson(_)) => Ok(Body::Text(text.chars().take(MAX_TEXT_CHARS).collect())),
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

    /// The error for a failed send. A changed certificate explains any failure.
    fn classify(&self, method: &Method, url: &Url, source: SendError) -> RedfishError {
        if let Err(changed) = self.refuse_if_certificate_changed() {
            return changed;
        }
        let at = self.exchange(method, url);
        match source.how() {
            Failed::Unreachable => RedfishError::Unreachable { at, source },
            Failed::Tls => RedfishError::Tls { at, source },
            Failed::NoSharedCipher => RedfishError::NoSharedCipher { at, source },
            Failed::TimedOut => RedfishError::TimedOut {
                at,
                limit_s: source.limit().unwrap_or(self.settings.request_timeout).as_secs(),
            },
            Failed::Broken => RedfishError::Broken { at, source },
        }
    }
}

/// The head of a request, with its proof of identity.
fn request_head(method: &Method, url: &Url, proof: &Proof) -> request::Builder {
    let request = request::Builder::new().method(method).uri(url.as_str());
    match proof {
        Proof::Nothing => request,
        Proof::Token(token) => request.header(AUTH_TOKEN, secret_header(token.expose_secret())),
        Proof::Basic(pair) => {
            let value = secret_header(&format!("Basic {}", pair.expose_secret()));
            request.header(header::AUTHORIZATION, value)
        }
    }
}

/// The encoding of an answer that has one. None was requested, and an answer is never decompressed here.
fn unrequested_encoding(response: &Answer) -> Option<String> {
    let value = response.headers().get(header::CONTENT_ENCODING)?;
    let name: String = String::from_utf8_lossy(value.as_bytes())
        .trim()
        .chars()
        .take(MAX_ENCODING_CHARS)
        .collect();
    (!name.is_empty() && !name.eq_ignore_ascii_case("identity")).then_some(name)
}

/// The value of a header that logs must not show.
fn secret_header(text: &str) -> HeaderValue {
    // Tokens and base64 are ASCII. A BMC with any other token gets an empty one back, which it refuses.
    let mut value = HeaderValue::from_str(text).unwrap_or_else(|_| HeaderValue::from_static(""));
    value.set_sensitive(true);
    value
}

/// The beginning of a body, for an error.
fn beginning(text: &str) -> String {
    text.chars()
        .filter(|c| !c.is_control())
        .take(MAX_BEGINNING_CHARS)
        .collect()
}
