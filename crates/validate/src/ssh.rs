//! SSH to one machine with a known host key.
//!
//! Only an Ed25519 host key is negotiated, so that a machine which also has RSA and ECDSA keys shows the key from the seed.
//! Every step has a time limit and every output a size limit: the other side may be broken or hostile.

use std::borrow::Cow;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use russh::client::{self, AuthResult, Handle};
use russh::keys::{Algorithm, HashAlg, PrivateKey, PrivateKeyWithHashAlg, PublicKey, PublicKeyOrCertificate};
use russh::{AlgorithmKind, ChannelMsg, Preferred};
use secrecy::{ExposeSecret as _, SecretString};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

/// Pause between two login attempts.
const POLL: Duration = Duration::from_millis(250);
/// Limit for the TCP connection: a running machine answers at once, and one that is down must not delay the caller.
const CONNECT_LIMIT: Duration = Duration::from_secs(2);
/// From the connection to the server's first bytes.
const BANNER_LIMIT: Duration = Duration::from_secs(10);
/// Limit for key exchange and login; emulated machines take seconds.
const LOGIN_LIMIT: Duration = Duration::from_secs(30);

/// The machine, the user, the keys on both sides.
#[derive(Debug, Clone)]
pub struct SshTarget {
    /// The machine's address.
    pub address: IpAddr,
    /// Usually 22.
    pub port: u16,
    /// Usually "root".
    pub user: String,
    /// The only accepted host key: an OpenSSH public key line, Ed25519.
    pub host_key: String,
    /// The login key, in OpenSSH's private key format.
    pub private_key: SecretString,
}

/// An error over SSH.
#[derive(Debug, thiserror::Error)]
pub enum SshError {
    /// Permanent: the target itself is wrong.
    #[error("the SSH target {at} is wrong: {what}")]
    Target {
        /// Address and port.
        at: SocketAddr,
        /// Which part is wrong, and why.
        what: String,
    },
    /// Retryable: no server listens (yet).
    #[error("cannot connect to {at} for SSH")]
    Connect {
        /// Address and port.
        at: SocketAddr,
        /// The system's error.
        #[source]
        source: std::io::Error,
    },
    /// Retryable: no answer within the limit.
    #[error("{at} gave no answer within {limit_s} s while {what}")]
    Timeout {
        /// Address and port.
        at: SocketAddr,
        /// The step that timed out.
        what: &'static str,
        /// The limit in seconds.
        limit_s: u64,
    },
    /// Another machine or another system answers; it was sent nothing. Retryable while the system may still boot.
    #[error(
        "{at} presents the host key {presented}, not the expected {expected}: another system runs there, or the system \
         did not read its seed"
    )]
    HostKeyMismatch {
        /// Address and port.
        at: SocketAddr,
        /// Fingerprint of the expected key.
        expected: String,
        /// Fingerprint of the presented key, or why there is none.
        presented: String,
    },
    /// The server refuses the login key (not yet, or no longer accepted).
    #[error("{at} refuses the key for user {user}")]
    AuthRefused {
        /// Address and port.
        at: SocketAddr,
        /// User name of the login.
        user: String,
    },
    /// Retryable: the protocol broke off.
    #[error("the SSH connection to {at} broke while {what}")]
    Protocol {
        /// Address and port.
        at: SocketAddr,
        /// The step that failed.
        what: &'static str,
        /// The protocol error.
        #[source]
        source: Box<russh::Error>,
    },
    /// Permanent: the output exceeded the limit, and all of it is discarded.
    #[error("a command on {at} wrote more than {limit} bytes")]
    OutputTooLarge {
        /// Address and port.
        at: SocketAddr,
        /// The bound in bytes.
        limit: usize,
    },
    /// The command ended without an exit status: killed by a signal, or the connection ended.
    #[error("a command on {at} ended without an exit status")]
    NoStatus {
        /// Address and port.
        at: SocketAddr,
    },
    /// The caller cancelled.
    #[error("waiting for SSH on {at} was cancelled")]
    Cancelled {
        /// Address and port.
        at: SocketAddr,
    },
    /// The deadline passed; the source is the error of the last attempt.
    #[error("{at} could not be reached by SSH within {waited_s} s ({attempts} attempts)")]
    NotReachable {
        /// Address and port.
        at: SocketAddr,
        /// Time waited, in seconds.
        waited_s: u64,
        /// Number of attempts.
        attempts: u32,
        /// The last attempt's error.
        #[source]
        last: Option<Box<SshError>>,
    },
}

impl SshError {
    /// Whether a retry may succeed while a machine boots.
    pub fn is_retryable(&self) -> bool {
        !matches!(
            self,
            Self::Target { .. } | Self::OutputTooLarge { .. } | Self::Cancelled { .. }
        )
    }
}

/// Limits of one command.
#[derive(Debug, Clone, Copy)]
pub struct RunLimits {
    /// From the request to the exit status.
    pub timeout: Duration,
    /// Most bytes of standard output and standard error together.
    pub output_max_bytes: usize,
}

/// The result of a command.
#[derive(Debug, Clone)]
pub struct Output {
    /// The exit status.
    pub status: u32,
    /// Standard output.
    pub stdout: Vec<u8>,
    /// Standard error.
    pub stderr: Vec<u8>,
}

impl Output {
    /// The last 400 characters of standard error, for an error message.
    pub fn stderr_tail(&self) -> String {
        let text = String::from_utf8_lossy(&self.stderr);
        let text: Vec<char> = text.trim().chars().filter(|c| !c.is_control() || *c == '\n').collect();
        text[text.len().saturating_sub(400)..].iter().collect()
    }
}

/// An open login.
pub struct Session {
    handle: Handle<Pinned>,
    at: SocketAddr,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("at", &self.at).finish_non_exhaustive()
    }
}

impl SshTarget {
    fn at(&self) -> SocketAddr {
        SocketAddr::new(self.address, self.port)
    }

    fn keys(&self) -> Result<(PublicKey, PrivateKey), SshError> {
        let wrong = |what: &str| SshError::Target {
            at: self.at(),
            what: what.into(),
        };
        let host =
            PublicKey::from_openssh(&self.host_key).map_err(|_| wrong("its host key is not a public key line"))?;
        if host.algorithm() != Algorithm::Ed25519 {
            return Err(wrong("its host key is not an Ed25519 key"));
        }
        // The decoder's error is discarded on purpose: it may quote the key.
        let private = russh::keys::decode_secret_key(self.private_key.expose_secret(), None)
            .map_err(|_| wrong("its private key is not an unencrypted OpenSSH key"))?;
        Ok((host, private))
    }

    /// The base64 part of the public key of the login key.
    pub(crate) fn login_key_blob(&self) -> Result<String, SshError> {
        use russh::keys::PublicKeyBase64 as _;
        Ok(self.keys()?.1.public_key().public_key_base64())
    }
}

impl Session {
    /// Connects, checks the host key, logs in.
    pub async fn connect(target: &SshTarget) -> Result<Self, SshError> {
        let at = target.at();
        let (host, private) = target.keys()?;
        let expected = host.fingerprint(HashAlg::Sha256).to_string();
        let stream = open_stream(at).await?;
        let login = login(stream, at, &target.user, host, private);
        match timeout(LOGIN_LIMIT, login).await {
            Err(_) => Err(SshError::Timeout {
                at,
                what: "logging in",
                limit_s: LOGIN_LIMIT.as_secs(),
            }),
            Ok(Err(LoginError::Refused)) => Err(SshError::AuthRefused {
                at,
                user: target.user.clone(),
            }),
            Ok(Err(LoginError::Pinned(PinnedError::OtherKey(presented)))) => Err(SshError::HostKeyMismatch {
                at,
                expected,
                presented,
            }),
            Ok(Err(LoginError::Pinned(PinnedError::Russh(source)))) => Err(protocol(at, "logging in", source)),
            Ok(Ok(handle)) => Ok(Self { handle, at }),
        }
    }

    /// Runs a script by `sh -s`, fed through standard input, and waits for its end.
    pub async fn run(&self, script: &str, limits: RunLimits) -> Result<Output, SshError> {
        let deadline = Instant::now() + limits.timeout;
        match timeout_at(deadline, self.run_unlimited(script, limits.output_max_bytes)).await {
            Ok(result) => result,
            Err(_) => Err(SshError::Timeout {
                at: self.at,
                what: "running a command",
                limit_s: limits.timeout.as_secs(),
            }),
        }
    }

    /// Writes a file on the machine, in a folder that it creates with mode 700. Both names must be plain words: a shell
    /// reads them.
    pub async fn put(&self, folder: &str, file: &str, bytes: &[u8], timeout: Duration) -> Result<Output, SshError> {
        let command = format!("mkdir -m 700 -p {folder} && cat >{folder}/{file}");
        match timeout_at(Instant::now() + timeout, self.exec(&command, bytes.to_vec(), 64 * 1024)).await {
            Ok(result) => result,
            Err(_) => Err(SshError::Timeout {
                at: self.at,
                what: "sending a file",
                limit_s: timeout.as_secs(),
            }),
        }
    }

    async fn run_unlimited(&self, script: &str, output_max_bytes: usize) -> Result<Output, SshError> {
        self.exec("sh -s", script.as_bytes().to_vec(), output_max_bytes).await
    }

    async fn exec(&self, command: &str, input: Vec<u8>, output_max_bytes: usize) -> Result<Output, SshError> {
        let broke = |source| protocol(self.at, "running a command", source);
        let mut channel = self.handle.channel_open_session().await.map_err(broke)?;
        channel.exec(false, command).await.map_err(broke)?;
        channel.data_bytes(input).await.map_err(broke)?;
        channel.eof().await.map_err(broke)?;
        let (mut status, mut ended) = (None, false);
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        while !(ended && status.is_some()) {
            match channel.wait().await {
                Some(ChannelMsg::Data { data }) => stdout.extend_from_slice(&data),
                Some(ChannelMsg::ExtendedData { data, .. }) => stderr.extend_from_slice(&data),
                Some(ChannelMsg::ExitStatus { exit_status }) => status = Some(exit_status),
                Some(ChannelMsg::Eof) => ended = true,
                Some(ChannelMsg::Close) | None => break,
                Some(_) => {}
            }
            if stdout.len() + stderr.len() > output_max_bytes {
                return Err(SshError::OutputTooLarge {
                    at: self.at,
                    limit: output_max_bytes,
                });
            }
        }
        let status = status.ok_or(SshError::NoStatus { at: self.at })?;
        Ok(Output { status, stdout, stderr })
    }

    /// Whether either side has closed the session.
    pub fn is_closed(&self) -> bool {
        self.handle.is_closed()
    }

    /// Disconnects in order; dropping the session only cuts the connection.
    pub async fn close(self) {
        let bye = self.handle.disconnect(russh::Disconnect::ByApplication, "", "");
        let _ = timeout(CONNECT_LIMIT, bye).await;
    }

    pub(crate) fn at(&self) -> SocketAddr {
        self.at
    }
}

/// Tries to log in until a login succeeds, the deadline passes or the caller cancels. A wrong host key and a refused login
/// key count as "not yet": the machine may still be shutting down its former system, or reading its seed.
pub async fn wait_reachable(
    target: &SshTarget,
    deadline: Instant,
    cancel: &CancellationToken,
) -> Result<Session, SshError> {
    let at = target.at();
    target.keys()?;
    let (started, mut attempts, mut last) = (Instant::now(), 0, None);
    loop {
        attempts += 1;
        let attempt = tokio::select! {
            () = cancel.cancelled() => return Err(SshError::Cancelled { at }),
            attempt = timeout_at(deadline, Session::connect(target)) => attempt,
        };
        match attempt {
            Ok(Ok(session)) => return Ok(session),
            Ok(Err(error)) if error.is_retryable() => last = Some(Box::new(error)),
            Ok(Err(error)) => return Err(error),
            Err(_) => {}
        }
        let next = Instant::now() + POLL;
        if next >= deadline {
            return Err(SshError::NotReachable {
                at,
                waited_s: started.elapsed().as_secs(),
                attempts,
                last,
            });
        }
        tokio::select! {
            () = cancel.cancelled() => return Err(SshError::Cancelled { at }),
            () = tokio::time::sleep_until(next) => {}
        }
    }
}

/// Connects and waits for the server's first byte, so that a machine which accepts and then hangs costs little time.
async fn open_stream(at: SocketAddr) -> Result<TcpStream, SshError> {
    let stream = match timeout(CONNECT_LIMIT, TcpStream::connect(at)).await {
        Err(_) => {
            return Err(SshError::Timeout {
                at,
                what: "connecting",
                limit_s: CONNECT_LIMIT.as_secs(),
            });
        }
        Ok(result) => result.map_err(|source| SshError::Connect { at, source })?,
    };
    stream
        .set_nodelay(true)
        .map_err(|source| SshError::Connect { at, source })?;
    match timeout(BANNER_LIMIT, stream.peek(&mut [0])).await {
        Err(_) => Err(SshError::Timeout {
            at,
            what: "waiting for its greeting",
            limit_s: BANNER_LIMIT.as_secs(),
        }),
        Ok(result) => result
            .map(|_| stream)
            .map_err(|source| SshError::Connect { at, source }),
    }
}

enum LoginError {
    Refused,
    Pinned(PinnedError),
}

async fn login(
    stream: TcpStream,
    at: SocketAddr,
    user: &str,
    host: PublicKey,
    private: PrivateKey,
) -> Result<Handle<Pinned>, LoginError> {
    let config = client::Config {
        preferred: Preferred {
            key: Cow::Borrowed(&[Algorithm::Ed25519]),
            ..Preferred::DEFAULT
        },
        ..client::Config::default()
    };
    let connected = client::connect_stream(Arc::new(config), stream, Pinned { host }).await;
    let mut handle = connected.map_err(|error| match error {
        // A server without an Ed25519 host key has not read the seed with such a key.
        PinnedError::Russh(russh::Error::NoCommonAlgo {
            kind: AlgorithmKind::Key,
            theirs,
            ..
        }) => LoginError::Pinned(PinnedError::OtherKey(format!(
            "(none of Ed25519, only {})",
            theirs.join(", ")
        ))),
        other => LoginError::Pinned(other),
    })?;
    let key = PrivateKeyWithHashAlg::new(Arc::new(private), None);
    let result = handle.authenticate_publickey(user, key).await;
    match result.map_err(|e| LoginError::Pinned(PinnedError::Russh(e)))? {
        AuthResult::Success => {
            tracing::debug!(%at, user, "logged in by SSH");
            Ok(handle)
        }
        AuthResult::Failure { .. } => Err(LoginError::Refused),
    }
}

fn protocol(at: SocketAddr, what: &'static str, source: russh::Error) -> SshError {
    SshError::Protocol {
        at,
        what,
        source: Box::new(source),
    }
}

/// Accepts exactly one host key.
struct Pinned {
    host: PublicKey,
}

#[derive(Debug)]
enum PinnedError {
    OtherKey(String),
    Russh(russh::Error),
}

impl From<russh::Error> for PinnedError {
    fn from(error: russh::Error) -> Self {
        Self::Russh(error)
    }
}

impl client::Handler for Pinned {
    type Error = PinnedError;

    async fn check_server_key(&mut self, shown: &PublicKeyOrCertificate) -> Result<bool, PinnedError> {
        match shown {
            PublicKeyOrCertificate::PublicKey { key, .. } if key.key_data() == self.host.key_data() => Ok(true),
            PublicKeyOrCertificate::PublicKey { key, .. } => {
                Err(PinnedError::OtherKey(key.fingerprint(HashAlg::Sha256).to_string()))
            }
            PublicKeyOrCertificate::Certificate(_) => Err(PinnedError::OtherKey("(a certificate)".into())),
        }
    }
}
