//! Login and session of a client: one session per BMC, renewed once when it is lost, deleted at the end. Basic
//! authentication is used only if the BMC offers no sessions or has none left, and by sparing clients
//! ([`LoginMethod`]).

use std::sync::atomic::{AtomicBool, Ordering};

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

/// How a sparing client logs in. A wrong password is sent once in any case: a BMC counts refusals and locks the account.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LoginMethod {
    /// Unknown. A session proves the password; then Basic authentication is tried with a request, as some BMCs refuse it.
    #[default]
    Unknown,
    /// Each request carries name and password. A refusal means that name or password is wrong.
    EachRequest,
    /// Name and password are accepted only for opening a session.
    Session,
}

#[derive(Debug)]
enum State {
    /// No login yet.
    Fresh,
    Session {
        token: SecretString,
        resource: Option<Url>,
    },
    Basic,
    Closed,
}

/// The login state of a client.
#[derive(Debug)]
pub struct Login {
    username: String,
    password: SecretString,
    inner: Mutex<Inner>,
    /// A request with name and password was answered.
    basic_worked: AtomicBool,
}

#[derive(Debug)]
struct Inner {
    state: State,
    /// Where sessions are opened; none if the BMC offers no sessions.
    sessions: Option<Url>,
    /// `sessions` is the standard path, not read from the BMC.
    is_guessed: bool,
    /// Counts logins, so that ten concurrent requests with a lost session renew it only once.
    generation: u64,
    session_worked: bool,
    /// Name and password are tried with a request while a session is open.
    tries_basic: bool,
}

/// A proof and the number of its login.
#[derive(Debug)]
pub struct Credential {
    pub proof: Proof,
    pub generation: u64,
}

enum Opened {
    Session { token: SecretString, resource: Option<Url> },
    NotOffered,
    Exhausted,
}

impl Login {
    pub fn new(username: String, password: SecretString) -> Self {
        let inner = Inner {
            state: State::Fresh,
            sessions: None,
            is_guessed: false,
            generation: 0,
            session_worked: false,
            tries_basic: false,
        };
        Self {
            username,
            password,
            inner: Mutex::new(inner),
            basic_worked: AtomicBool::new(false),
        }
    }

    /// A login for a sparing client that uses `login_method` and opens sessions at `sessions` if necessary.
    pub fn for_polling(username: String, password: SecretString, sessions: Url, login_method: LoginMethod) -> Self {
        let mut login = Self::new(username, password);
        let inner = login.inner.get_mut();
        inner.sessions = Some(sessions);
        inner.is_guessed = login_method == LoginMethod::Unknown;
        inner.tries_basic = login_method == LoginMethod::Unknown;
        if login_method == LoginMethod::EachRequest {
            inner.state = State::Basic;
        }
        login
    }

    /// Notes that the BMC answered a request with this proof.
    pub fn worked(&self, proof: &Proof) {
        if matches!(proof, Proof::Basic(_)) {
            self.basic_worked.store(true, Ordering::Relaxed);
        }
    }

    /// The login method that has worked.
    pub async fn login_method(&self) -> LoginMethod {
        let inner = self.inner.lock().await;
        match inner.state {
            State::Session { .. } if !inner.tries_basic => LoginMethod::Session,
            _ if self.basic_worked.load(Ordering::Relaxed) => LoginMethod::EachRequest,
            _ => LoginMethod::Unknown,
        }
    }

    /// The path of the open session, if the BMC named it.
    pub async fn session_path(&self) -> Option<String> {
        match &self.inner.lock().await.state {
            State::Session { resource, .. } => resource.as_ref().map(|url| url.path().to_owned()),
            State::Fresh | State::Basic | State::Closed => None,
        }
    }

    /// The number of logins so far.
    pub async fn logins(&self) -> u64 {
        self.inner.lock().await.generation
    }

    /// Sets where sessions are opened.
    pub async fn offer_sessions(&self, sessions: Option<Url>) {
        self.inner.lock().await.sessions = sessions;
    }

    /// The proof for the next request; logs in if there is no login yet.
    pub async fn credential(&self, wire: &Wire) -> Result<Credential, RedfishError> {
        let mut inner = self.inner.lock().await;
        if matches!(inner.state, State::Fresh) {
            self.log_in(wire, &mut inner).await?;
        }
        self.current(wire, &inner)
    }

    /// A new proof after the BMC refused the proof of login `generation`; none if there is no better one.
    pub async fn renew(&self, wire: &Wire, generation: u64) -> Result<Option<Credential>, RedfishError> {
        let mut inner = self.inner.lock().await;
        if inner.generation == generation {
            self.basic_worked.store(false, Ordering::Relaxed);
            let tried_basic = std::mem::take(&mut inner.tries_basic);
            match inner.state {
                // The open session has proved that name and password are right.
                State::Session { .. } if tried_basic => inner.generation += 1,
                State::Session { .. } => self.log_in(wire, &mut inner).await?,
                _ => return Ok(None),
            }
        }
        self.current(wire, &inner).map(Some)
    }

    /// Deletes the session, if there is one, and refuses all later logins.
    pub async fn close(&self, wire: &Wire) -> Result<(), RedfishError> {
        let mut inner = self.inner.lock().await;
        let state = std::mem::replace(&mut inner.state, State::Closed);
        match delete_request(&state) {
            Some((outgoing, proof)) => match wire.repeat(&outgoing, &proof, Repeat::Always).await {
                Ok(_) => Ok(()),
                // The session no longer exists.
                Err(fault) if matches!(fault.status(), Some(401 | 403 | 404 | 410)) => Ok(()),
                Err(fault) => Err(fault),
            },
            None => Ok(()),
        }
    }

    /// The request that remains to be sent when the client is dropped without [`close`](Self::close).
    pub fn session_to_delete(&mut self) -> Option<(Outgoing<'static>, Proof)> {
        delete_request(&self.inner.get_mut().state)
    }

    async fn log_in(&self, wire: &Wire, inner: &mut Inner) -> Result<(), RedfishError> {
        let opened = match inner.sessions.clone() {
            Some(url) => match self.open_session(wire, url).await {
                // Some BMCs refuse an unauthenticated request before they report that the resource does not exist.
                Err(RedfishError::Unauthorized { .. }) if inner.is_guessed && !offers_sessions(wire).await => {
                    Opened::NotOffered
                }
                opened => opened?,
            },
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
                    what: "a new session, although an earlier session worked".to_owned(),
                    offered: "no safe alternative".to_owned(),
                });
            }
            Opened::NotOffered | Opened::Exhausted => {
                let why = if matches!(opened, Opened::Exhausted) {
                    "no session is left"
                } else {
                    "the BMC does not offer sessions"
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
        // A surplus session times out, so this POST may be repeated.
        match wire.repeat(&outgoing, &Proof::Nothing, Repeat::Always).await {
            Ok(reply) => Ok(self.opened(wire, reply)),
            Err(fault) => match fault.status() {
                Some(404 | 405 | 501) => Ok(Opened::NotOffered),
                _ if fault.messages().is_some_and(|messages| messages.is_session_limit()) => Ok(Opened::Exhausted),
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
        // Without a token there is no session, even with a good status.
        match reply.token {
            Some(token) => Opened::Session { token, resource },
            None => Opened::NotOffered,
        }
    }

    fn current(&self, wire: &Wire, inner: &Inner) -> Result<Credential, RedfishError> {
        let proof = match &inner.state {
            State::Session { token, .. } if !inner.tries_basic => Proof::Token(token.clone()),
            State::Session { .. } | State::Basic => {
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

/// Whether a failure means that the proof is invalid or expired. Some BMCs use 403 for that.
pub fn is_refusal_of_proof(failure: &RedfishError) -> bool {
    match failure {
        RedfishError::Status { status: 401, .. } => true,
        RedfishError::Status {
            status: 403, detail, ..
        } => detail.has("NoValidSession"),
        _ => false,
    }
}

/// Whether the BMC's open root links sessions. An unreadable root counts as yes.
async fn offers_sessions(wire: &Wire) -> bool {
    let address = &wire.transport.address;
    let Ok(url) = address.resolve(None, &address.root_path()) else {
        return true;
    };
    let outgoing = Outgoing {
        method: Method::GET,
        url,
        body: None,
        if_match: None,
    };
    let root = wire.repeat(&outgoing, &Proof::Nothing, Repeat::Always).await;
    let root = root.ok().and_then(|reply| reply.json().cloned());
    root.is_none_or(|root| {
        json::link(&root, &["Links", "Sessions"]).is_some() || json::link(&root, &["SessionService"]).is_some()
    })
}

/// The error for a final refusal of the login.
pub fn unauthorized(wire: &Wire, outgoing: &Outgoing<'_>, failure: RedfishError) -> RedfishError {
    let at = wire.transport.exchange(&outgoing.method, &outgoing.url);
    let status = failure.status().unwrap_or(401);
    RedfishError::Unauthorized {
        at,
        status,
        detail: failure.messages().cloned().unwrap_or_default(),
    }
}
