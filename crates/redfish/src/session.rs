//! How a client gets in and stays in: one session per BMC, renewed once when it is gone, deleted at the end; Basic
//! only where sessions are not offered or none is left.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Method;
use secrecy::{ExposeSecret, SecretString};
use serde_json::json;
use tokio::sync::Mutex;
use url::Url;

use crate::error::RedfishError;
use crate::json;
use crate::retry::Repeat;
use crate::transport::{Outgoing, Proof, Reply};
use crate::wire::Wire;

#[derive(Debug)]
enum State {
    /// Nobody has logged in yet.
    Fresh,
    Session {
        token: SecretString,
        resource: Option<Url>,
    },
    Basic,
    Closed,
}

/// The state of being logged in.
#[derive(Debug)]
pub(crate) struct Login {
    username: String,
    password: SecretString,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    state: State,
    /// Where sessions are opened; none where the BMC offers none.
    sessions: Option<Url>,
    /// Counts logins, so that ten requests that find the session gone renew it once.
    generation: u64,
    session_worked: bool,
    /// Name and password are tried with each request first.
    is_sparing: bool,
}

/// A proof and the login that it came from.
#[derive(Debug)]
pub(crate) struct Credential {
    pub(crate) proof: Proof,
    pub(crate) generation: u64,
}

enum Opened {
    Session { token: SecretString, resource: Option<Url> },
    NotOffered,
    Exhausted,
}

impl Login {
    pub(crate) fn new(username: String, password: SecretString) -> Self {
        let inner = Inner {
            state: State::Fresh,
            sessions: None,
            generation: 0,
            session_worked: false,
            is_sparing: false,
        };
        Self {
            username,
            password,
            inner: Mutex::new(inner),
        }
    }

    /// One that sends name and password with each request, and opens a session at `sessions` only where the BMC refuses
    /// that, or `needs_session` says that it will.
    pub(crate) fn sparing(username: String, password: SecretString, sessions: Url, needs_session: bool) -> Self {
        let mut login = Self::new(username, password);
        let inner = login.inner.get_mut();
        inner.sessions = Some(sessions);
        if !needs_session {
            inner.state = State::Basic;
            inner.is_sparing = true;
        }
        login
    }

    /// Whether a session is open.
    pub(crate) async fn has_session(&self) -> bool {
        matches!(self.inner.lock().await.state, State::Session { .. })
    }

    /// Says where sessions are opened.
    pub(crate) async fn offer_sessions(&self, sessions: Option<Url>) {
        self.inner.lock().await.sessions = sessions;
    }

    /// The proof for the next request; logs in if nobody has.
    pub(crate) async fn credential(&self, wire: &Wire) -> Result<Credential, RedfishError> {
        let mut inner = self.inner.lock().await;
        if matches!(inner.state, State::Fresh) {
            self.log_in(wire, &mut inner).await?;
        }
        self.current(wire, &inner)
    }

    /// A new proof after the BMC refused the one of login `generation`; none if there is nothing better.
    pub(crate) async fn renew(&self, wire: &Wire, generation: u64) -> Result<Option<Credential>, RedfishError> {
        let mut inner = self.inner.lock().await;
        if inner.generation == generation {
            let is_sparing = std::mem::take(&mut inner.is_sparing);
            match inner.state {
                State::Session { .. } => self.log_in(wire, &mut inner).await?,
                State::Basic if is_sparing => self.log_in(wire, &mut inner).await?,
                _ => return Ok(None),
            }
        }
        self.current(wire, &inner).map(Some)
    }

    /// Deletes the session, if there is one, and lets nobody in any more.
    pub(crate) async fn close(&self, wire: &Wire) -> Result<(), RedfishError> {
        let mut inner = self.inner.lock().await;
        let state = std::mem::replace(&mut inner.state, State::Closed);
        match delete_request(&state) {
            Some((outgoing, proof)) => match wire.repeat(&outgoing, &proof, Repeat::Always).await {
                Ok(_) => Ok(()),
                // Gone already.
                Err(fault) if matches!(fault.status(), Some(401 | 403 | 404 | 410)) => Ok(()),
                Err(fault) => Err(fault),
            },
            None => Ok(()),
        }
    }

    /// What must still be sent when the client is dropped without [`close`](Self::close).
    pub(crate) fn left_over(&mut self) -> Option<(Outgoing<'static>, Proof)> {
        delete_request(&self.inner.get_mut().state)
    }

    async fn log_in(&self, wire: &Wire, inner: &mut Inner) -> Result<(), RedfishError> {
        let opened = match inner.sessions.clone() {
            Some(url) => self.open_session(wire, url).await?,
            None => Opened::NotOffered,
        };
        let state = match opened {
            Opened::Session { token, resource } => {
                inner.session_worked = true;
                State::Session { token, resource }
            }
            Opened::NotOffered if inner.session_worked => {
                return Err(RedfishError::NotOffered {
                    bmc: wire.transport.address.to_string(),
                    what: "a new session, although one worked before".to_owned(),
                    offered: "nothing that is safe to fall back to".to_owned(),
                });
            }
            Opened::NotOffered | Opened::Exhausted => {
                let why = if matches!(opened, Opened::Exhausted) {
                    "none is left"
                } else {
                    "they are not offered"
                };
                tracing::info!(bmc = %wire.transport.address, why, "no Redfish session, using Basic authentication");
                State::Basic
            }
        };
        inner.state = state;
        inner.generation += 1;
        Ok(())
    }

    async fn open_session(&self, wire: &Wire, url: Url) -> Result<Opened, RedfishError> {
        let body = json!({"UserName": self.username, "Password": self.password.expose_secret()});
        let outgoing = Outgoing {
            method: Method::POST,
            url,
            body: Some(&body),
            if_match: None,
        };
        // A session too many times out by itself, so that this POST may be repeated.
        match wire.repeat(&outgoing, &Proof::Nothing, Repeat::Always).await {
            Ok(reply) => Ok(self.opened(wire, reply)),
            Err(fault) => match fault.status() {
                Some(404 | 405 | 501) => Ok(Opened::NotOffered),
                _ if fault.messages().is_some_and(|said| said.say_sessions_exhausted()) => Ok(Opened::Exhausted),
                Some(status @ (400 | 401 | 403)) if !matches!(fault, RedfishError::PasswordChangeRequired { .. }) => {
                    tracing::debug!(status, "login refused");
                    Err(unauthorized(wire, &outgoing, fault))
                }
                _ => Err(fault),
            },
        }
    }

    fn opened(&self, wire: &Wire, reply: Reply) -> Opened {
        let named = reply
            .location
            .clone()
            .or_else(|| reply.json().and_then(|body| json::link(body, &[])));
        let resource = named.and_then(|location| wire.transport.address.resolve_location(&location).ok());
        // Without a token there is no session, whatever the status says.
        match reply.token {
            Some(token) => Opened::Session { token, resource },
            None => Opened::NotOffered,
        }
    }

    fn current(&self, wire: &Wire, inner: &Inner) -> Result<Credential, RedfishError> {
        let proof = match &inner.state {
            State::Session { token, .. } => Proof::Token(token.clone()),
            State::Basic => {
                let pair = format!("{}:{}", self.username, self.password.expose_secret());
                Proof::Basic(SecretString::from(STANDARD.encode(pair)))
            }
            State::Fresh | State::Closed => {
                return Err(RedfishError::Closed {
                    bmc: wire.transport.address.to_string(),
                });
            }
        };
        Ok(Credential {
            proof,
            generation: inner.generation,
        })
    }
}

fn delete_request(state: &State) -> Option<(Outgoing<'static>, Proof)> {
    match state {
        State::Session {
            token,
            resource: Some(url),
        } => {
            let outgoing = Outgoing {
                method: Method::DELETE,
                url: url.clone(),
                body: None,
                if_match: None,
            };
            Some((outgoing, Proof::Token(token.clone())))
        }
        _ => None,
    }
}

/// Whether a failure says that the proof is not, or no longer, good. Some BMCs say so by 403.
pub(crate) fn is_refusal_of_proof(failure: &RedfishError) -> bool {
    match failure {
        RedfishError::Status { status: 401, .. } => true,
        RedfishError::Status {
            status: 403, detail, ..
        } => detail.has("NoValidSession"),
        _ => false,
    }
}

/// The final form of a refusal.
pub(crate) fn unauthorized(wire: &Wire, outgoing: &Outgoing<'_>, failure: RedfishError) -> RedfishError {
    let at = wire.transport.exchange(&outgoing.method, &outgoing.url);
    let status = failure.status().unwrap_or(401);
    RedfishError::Unauthorized {
        at,
        status,
        detail: failure.messages().cloned().unwrap_or_default(),
    }
}
