//! A serial port over the SSH server of a BMC.
//!
//! The client checks the host key and reports the key to the caller before it sends user and password. Every step has a
//! time limit.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use russh::client::AuthResult;
use russh::client::{self, Handle, KeyboardInteractiveAuthResponse, Msg};
use russh::keys::{HashAlg, PublicKeyOrCertificate};
use russh::{AlgorithmKind, ChannelStream, MethodKind};
use secrecy::{ExposeSecret as _, SecretString};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::Line;

/// Time limit of the TCP connection.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);
/// Time limit of the key exchange, and of the later login with the start of the shell. BMCs compute slowly.
const LOGIN_LIMIT: Duration = Duration::from_secs(45);
/// Time without data from the BMC after which a keepalive request is sent. The connection ends if more than
/// [`KEEPALIVE_MAX`] requests in a row get no answer.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(20);
/// Maximum number of keepalive requests in a row that may stay without an answer.
const KEEPALIVE_MAX: usize = 3;
/// Maximum number of prompt rounds in a keyboard-interactive login (RFC 4256).
const PROMPT_ROUNDS_MAX: usize = 4;

/// The address of a serial port and the login for it.
#[derive(Debug, Clone)]
pub struct SshTarget {
    /// Host name or address of the BMC, without brackets.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// User at the BMC.
    pub user: String,
    /// The user's password.
    pub password: SecretString,
    /// The pinned host key, as `SHA256:` and base64. `None`: any key is accepted and reported.
    pub host_key: Option<String>,
    /// Command lines sent after the login. Some BMCs start a command line first, and a command opens the serial port.
    pub commands: Vec<String>,
}

/// A connection to an SSH server after the key exchange. The host key is accepted, and no user is logged in yet.
pub struct SshHandshake {
    /// Host and port.
    at: String,
    handle: Handle<HostKeyCheck>,
    host_key: String,
}

/// Why a serial port could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    /// Retryable: no server listens.
    #[error("cannot connect to {at} for the console")]
    Connect {
        /// Host and port.
        at: String,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// Retryable: no answer within the limit.
    #[error("{at} gave no answer within {limit_s} s while {what}")]
    Timeout {
        /// Host and port.
        at: String,
        /// The step that was running.
        what: &'static str,
        /// The limit in seconds.
        limit_s: u64,
    },
    /// Another server may be answering. No credential was sent to it.
    #[error("{at} shows the SSH host key {shown}, not the pinned {pinned}: nothing was sent to it")]
    HostKeyChanged {
        /// Host and port.
        at: String,
        /// The pinned host key.
        pinned: String,
        /// The host key shown.
        shown: String,
    },
    /// Permanent: the BMC offers no algorithm that this client supports.
    #[error("{at} offers no supported SSH {what}; it offers {offered}")]
    NothingInCommon {
        /// Host and port.
        at: String,
        /// "host key", "cipher" and so on.
        what: String,
        /// The BMC's offer.
        offered: String,
    },
    /// Permanent until the password changes.
    #[error("{at} refuses the user {user} by SSH")]
    Refused {
        /// Host and port.
        at: String,
        /// The refused user.
        user: String,
    },
    /// Retryable: the SSH connection broke.
    #[error("the SSH connection to {at} broke while {what}")]
    Protocol {
        /// Host and port.
        at: String,
        /// The step that was running.
        what: &'static str,
        /// The cause.
        #[source]
        source: Box<russh::Error>,
    },
}

impl DialError {
    /// Whether the same call may succeed later. Errors that need an operator should be retried rarely or never.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        matches!(
            self,
            Self::Connect { .. } | Self::Timeout { .. } | Self::Protocol { .. }
        )
    }
}

/// Connects to the SSH server and checks its host key. User and password are sent only by [`SshHandshake::open`], so the
/// caller can store the host key first.
///
/// # Errors
/// Every error names host and port.
pub async fn handshake(target: &SshTarget) -> Result<SshHandshake, DialError> {
    let at = format!("{}:{}", target.host, target.port);
    let connect = TcpStream::connect((target.host.as_str(), target.port));
    let stream = match timeout(CONNECT_LIMIT, connect).await {
        Err(_) => return Err(timeout_error(&at, "connecting", CONNECT_LIMIT)),
        Ok(connected) => connected.map_err(|source| DialError::Connect { at: at.clone(), source })?,
    };
    let _ = stream.set_nodelay(true);
    let config = client::Config {
        keepalive_interval: Some(KEEPALIVE_INTERVAL),
        keepalive_max: KEEPALIVE_MAX,
        ..client::Config::default()
    };
    let shown = Arc::new(Mutex::new(String::new()));
    let check = HostKeyCheck {
        pinned: target.host_key.clone(),
        shown: Arc::clone(&shown),
    };
    let exchange = client::connect_stream(Arc::new(config), stream, check);
    let handle = match timeout(LOGIN_LIMIT, exchange).await {
        Err(_) => return Err(timeout_error(&at, "exchanging keys", LOGIN_LIMIT)),
        Ok(exchanged) => exchanged.map_err(|error| handshake_error(&at, target, error))?,
    };
    let host_key = shown.lock().unwrap_or_else(PoisonError::into_inner).clone();
    Ok(SshHandshake { at, handle, host_key })
}

fn timeout_error(at: &str, what: &'static str, limit: Duration) -> DialError {
    DialError::Timeout {
        at: at.to_owned(),
        what,
        limit_s: limit.as_secs(),
    }
}

impl SshHandshake {
    /// The host key shown, as `SHA256:` and base64.
    #[must_use]
    pub fn host_key(&self) -> &str {
        &self.host_key
    }

    /// Logs in and opens the serial port.
    ///
    /// # Errors
    /// Every error names host and port.
    pub async fn open(self, target: &SshTarget) -> Result<Line, DialError> {
        let at = self.at.clone();
        let opened = timeout(LOGIN_LIMIT, self.open_shell(target)).await;
        opened.unwrap_or_else(|_| Err(timeout_error(&at, "logging in", LOGIN_LIMIT)))
    }

    async fn open_shell(mut self, target: &SshTarget) -> Result<Line, DialError> {
        let at = self.at;
        let broke = |what| {
            let at = at.clone();
            move |source| DialError::Protocol {
                at,
                what,
                source: Box::new(source),
            }
        };
        let is_logged_in = authenticate(&mut self.handle, target)
            .await
            .map_err(broke("logging in"))?;
        if !is_logged_in {
            let user = target.user.clone();
            return Err(DialError::Refused { at, user });
        }
        let opening = "opening a shell";
        let channel = self.handle.channel_open_session().await.map_err(broke(opening))?;
        let pty = channel.request_pty(false, "vt100", 80, 24, 0, 0, &[]).await;
        pty.map_err(broke(opening))?;
        channel.request_shell(false).await.map_err(broke(opening))?;
        let mut line = SshLine {
            stream: channel.into_stream(),
            _handle: self.handle,
        };
        for command in &target.commands {
            let typed = async {
                line.write_all(command.as_bytes()).await?;
                line.write_all(b"\r").await?;
                line.flush().await
            };
            let typed = typed.await.map_err(russh::Error::IO);
            typed.map_err(broke("entering the console"))?;
        }
        Ok(Box::new(line))
    }
}

fn handshake_error(at: &str, target: &SshTarget, error: HandshakeError) -> DialError {
    let at = at.to_owned();
    match error {
        HandshakeError::WrongHostKey(shown) => match target.host_key.clone() {
            Some(pinned) => DialError::HostKeyChanged { at, pinned, shown },
            None => DialError::NothingInCommon {
                at,
                what: "host key".to_owned(),
                offered: shown,
            },
        },
        HandshakeError::Russh(russh::Error::NoCommonAlgo { kind, theirs, .. }) => DialError::NothingInCommon {
            at,
            what: match kind {
                AlgorithmKind::Key => "host key".to_owned(),
                other => format!("{other:?}").to_ascii_lowercase(),
            },
            offered: theirs.join(", "),
        },
        HandshakeError::Russh(source) => DialError::Protocol {
            at,
            what: "exchanging keys",
            source: Box::new(source),
        },
    }
}

/// Logs in by the method `password`. If the server does not offer this method but `keyboard-interactive`, the client answers
/// its prompts: with the password if the input is hidden, else with the user. Returns false if the login is refused.
async fn authenticate(handle: &mut Handle<HostKeyCheck>, target: &SshTarget) -> Result<bool, russh::Error> {
    let password = target.password.expose_secret();
    match handle.authenticate_password(&target.user, password).await? {
        AuthResult::Success => return Ok(true),
        // The client tries a password once, and only by a method that the server offers: BMCs lock accounts after some
        // refused logins. A server that offers `password` has refused the password itself.
        AuthResult::Failure { remaining_methods, .. }
            if remaining_methods.contains(&MethodKind::Password)
                || !remaining_methods.contains(&MethodKind::KeyboardInteractive) =>
        {
            return Ok(false);
        }
        AuthResult::Failure { .. } => {}
    }
    let mut reply = handle
        .authenticate_keyboard_interactive_start(&target.user, None::<String>)
        .await?;
    for _ in 0..PROMPT_ROUNDS_MAX {
        match reply {
            KeyboardInteractiveAuthResponse::Success => return Ok(true),
            KeyboardInteractiveAuthResponse::Failure { .. } => return Ok(false),
            KeyboardInteractiveAuthResponse::InfoRequest { prompts, .. } => {
                let responses = prompts.iter().map(|prompt| match prompt.echo {
                    true => target.user.clone(),
                    false => password.to_owned(),
                });
                let responses = responses.collect();
                reply = handle.authenticate_keyboard_interactive_respond(responses).await?;
            }
        }
    }
    Ok(false)
}

/// Accepts the pinned host key, or any key if none is pinned, and stores the accepted key in `shown`.
struct HostKeyCheck {
    pinned: Option<String>,
    shown: Arc<Mutex<String>>,
}

#[derive(Debug)]
enum HandshakeError {
    /// The host key shown: not the pinned one, or a certificate.
    WrongHostKey(String),
    Russh(russh::Error),
}

impl From<russh::Error> for HandshakeError {
    fn from(error: russh::Error) -> Self {
        Self::Russh(error)
    }
}

impl client::Handler for HostKeyCheck {
    type Error = HandshakeError;

    async fn check_server_key(&mut self, shown: &PublicKeyOrCertificate) -> Result<bool, HandshakeError> {
        let shown = match shown {
            PublicKeyOrCertificate::PublicKey { key, .. } => key.fingerprint(HashAlg::Sha256).to_string(),
            PublicKeyOrCertificate::Certificate(_) => {
                return Err(HandshakeError::WrongHostKey("a host certificate".into()));
            }
        };
        if self.pinned.as_ref().is_some_and(|pinned| *pinned != shown) {
            return Err(HandshakeError::WrongHostKey(shown));
        }
        *self.shown.lock().unwrap_or_else(PoisonError::into_inner) = shown;
        Ok(true)
    }
}

/// Both directions of a shell. The handle of the connection is kept as long as the stream.
struct SshLine {
    stream: ChannelStream<Msg>,
    _handle: Handle<HostKeyCheck>,
}

impl AsyncRead for SshLine {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for SshLine {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}
