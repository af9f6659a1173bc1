//! The SSH server for OpenSSH clients: `ssh NODE@HOST` opens the console of that node, and nothing else.
//!
//! The user name selects the node. A key, or a one-time token in place of a password, identifies the client. The server
//! offers no other channels, no forwarding, no files, and no commands except the two words that select the [`Entry`].
//! The number of connections, the time until the login and the idle time are bounded.

use std::borrow::Cow;
use std::net::{Shutdown, SocketAddr};
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use russh::keys::{HashAlg, PrivateKey, PublicKey};
use russh::server::{
    Auth, ChannelOpenHandle, Config, Handle, Handler, Msg, PublicKeyOffer, Session, VerifiedPublicKey, run_stream,
};
use russh::{Channel, ChannelId, MethodKind, MethodSet, SshId};
use secrecy::{ExposeSecret as _, SecretString};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// The pause after a failed accept, for example when the process has no free file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How a client enters a console.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entry {
    ReadOnly,
    /// Write, if no other client writes.
    Write,
    /// Write, and take over from another writer.
    TakeOver,
}

/// A message to a client at a console.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConsoleOutput {
    /// Output of the machine.
    Data(Vec<u8>),
    /// A sentence from the control plane.
    Notice(String),
    /// The session ended, with the reason.
    End(String),
}

/// The channels of an admitted client.
#[derive(Debug)]
pub struct ConsoleChannels {
    /// The client's input. A closed channel means that the client has left.
    pub input: mpsc::Sender<Vec<u8>>,
    /// The output for the client, to the end of the session.
    pub output: mpsc::Receiver<ConsoleOutput>,
}

/// The credential that admitted a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LoginProof {
    /// The fingerprint of the client's key.
    Key(String),
    /// The member that [`Authorizer::redeem`] returned for the client's token.
    Member(String),
}

/// Decides which clients may enter. Fingerprints identify keys: `SHA256:` and base64.
#[async_trait]
pub trait Authorizer: Send + Sync + 'static {
    /// Whether the key is registered. Called before and after the check of its signature.
    async fn is_registered(&self, key: &str) -> bool;

    /// Uses up a token for the console of a node. Returns the member for `enter`, or `None` if the token is unknown or
    /// invalid.
    async fn redeem(&self, node: &str, token: &str) -> Option<String>;

    /// Admits a client to the console of a node, or returns the reason for the refusal as a sentence.
    async fn enter(
        &self,
        node: &str,
        proof: &LoginProof,
        entry: Entry,
        from: SocketAddr,
    ) -> Result<ConsoleChannels, String>;
}

/// Limits of the SSH server.
#[derive(Debug, Clone, Copy)]
pub struct ServerLimits {
    /// Maximum number of simultaneous connections.
    pub connections: usize,
    /// Time limit from the connection to the login.
    pub login: Duration,
    /// Time limit without a byte in either direction.
    pub idle: Duration,
    /// Number of tokens that a connection may try. With 0, the server does not offer passwords.
    pub tokens: u8,
}

/// The SSH server.
pub struct ConsoleServer {
    config: Arc<Config>,
    limits: ServerLimits,
    authorizer: Arc<dyn Authorizer>,
}

impl ConsoleServer {
    /// Creates the server with its host key in OpenSSH's private key format.
    ///
    /// # Errors
    /// The key is not an OpenSSH key. The error is a sentence.
    pub fn new(host_key: &SecretString, limits: ServerLimits, authorizer: Arc<dyn Authorizer>) -> Result<Self, String> {
        // The decoder's error is omitted because it may quote the key.
        let key = PrivateKey::from_openssh(host_key.expose_secret())
            .map_err(|_| "the console's SSH host key is not in OpenSSH format".to_owned())?;
        let config = Config {
            server_id: SshId::Standard(Cow::Borrowed("SSH-2.0-rackwright_console")),
            methods: methods(limits.tokens),
            auth_rejection_time: Duration::from_secs(1),
            auth_rejection_time_initial: Some(Duration::ZERO),
            keys: vec![key],
            max_auth_attempts: 10,
            inactivity_timeout: Some(limits.idle),
            ..Config::default()
        };
        Ok(Self {
            config: Arc::new(config),
            limits,
            authorizer,
        })
    }

    /// Serves clients until the task ends. The connections end with the task.
    pub async fn run(self, listener: TcpListener) {
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                accepted = listener.accept() => match accepted {
                    Ok((stream, from)) if connections.len() < self.limits.connections => {
                        let (config, authorizer) = (Arc::clone(&self.config), Arc::clone(&self.authorizer));
                        connections.spawn(connection(stream, from, config, authorizer, self.limits));
                    }
                    Ok((_, from)) => tracing::warn!(%from, "too many connections to the console's SSH port"),
                    Err(error) => {
                        tracing::warn!(%error, "cannot accept a connection to the console's SSH port");
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                },
                Some(_) = connections.join_next() => {}
            }
        }
    }
}

/// The login methods for a client with this many tokens left.
fn methods(tokens: u8) -> MethodSet {
    match tokens {
        0 => MethodSet::from(&[MethodKind::PublicKey][..]),
        _ => MethodSet::from(&[MethodKind::PublicKey, MethodKind::Password][..]),
    }
}

async fn connection(
    stream: TcpStream,
    from: SocketAddr,
    config: Arc<Config>,
    authorizer: Arc<dyn Authorizer>,
    limits: ServerLimits,
) {
    let _ = stream.set_nodelay(true);
    let Ok(guard) = stream.as_fd().try_clone_to_owned() else {
        return;
    };
    let _guard = ConnectionGuard(guard.into());
    let is_logged_in = Arc::new(AtomicBool::new(false));
    let handler = ClientHandler {
        authorizer,
        from,
        is_logged_in: Arc::clone(&is_logged_in),
        tokens: limits.tokens,
        proof: None,
        node: String::new(),
        channel: None,
        input: None,
    };
    let served = async {
        // A client that disconnects early is not an error of the server.
        if let Ok(session) = run_stream(config, stream, handler).await {
            let _ = session.await;
        }
    };
    tokio::pin!(served);
    let late = tokio::time::timeout(limits.login, &mut served).await.is_err();
    if late && is_logged_in.load(Ordering::Relaxed) {
        served.await;
    }
}

/// Ends a connection when dropped, because russh runs the connection in its own task.
struct ConnectionGuard(std::net::TcpStream);

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        let _ = self.0.shutdown(Shutdown::Both);
    }
}

/// The SHA-256 fingerprint of a public key in OpenSSH's notation.
#[must_use]
pub fn fingerprint(key: &PublicKey) -> String {
    key.fingerprint(HashAlg::Sha256).to_string()
}

/// The fingerprint and the text (without the comment) of a public key line, as in `id_ed25519.pub`.
///
/// # Errors
/// The line is not a public key, or its kind is not supported. The error is a sentence.
pub fn public_key(line: &str) -> Result<(String, String), String> {
    let line = line.trim();
    if line.len() > 16 * 1024 || line.contains(['\n', '\r']) {
        return Err("must be one line of a public key file, such as id_ed25519.pub".into());
    }
    let mut key = PublicKey::from_openssh(line).map_err(|_| {
        "is not a public key in OpenSSH format: give one line of a file such as id_ed25519.pub".to_owned()
    })?;
    let kind = key.algorithm().as_str().to_owned();
    if !(kind.contains("ed25519") || kind.starts_with("ecdsa-")) {
        return Err(format!(
            "keys of type {kind} are not supported: make a key with `ssh-keygen -t ed25519`"
        ));
    }
    key.set_comment("");
    let text = key.to_openssh().map_err(|_| "the key cannot be encoded".to_owned())?;
    Ok((fingerprint(&key), text.trim().to_owned()))
}

/// The state of one client's connection.
struct ClientHandler {
    authorizer: Arc<dyn Authorizer>,
    from: SocketAddr,
    is_logged_in: Arc<AtomicBool>,
    /// Number of tokens left.
    tokens: u8,
    proof: Option<LoginProof>,
    node: String,
    channel: Option<ChannelId>,
    input: Option<mpsc::Sender<Vec<u8>>>,
}

impl ClientHandler {
    async fn check_key(&self, key: &PublicKey) -> Auth {
        if self.authorizer.is_registered(&fingerprint(key)).await {
            Auth::Accept
        } else {
            Auth::reject()
        }
    }

    async fn begin(&mut self, channel: ChannelId, entry: Entry, session: &mut Session) -> Result<(), russh::Error> {
        if self.channel != Some(channel) || self.input.is_some() {
            return session.channel_failure(channel);
        }
        let Some(proof) = &self.proof else {
            return session.channel_failure(channel);
        };
        session.channel_success(channel)?;
        match self.authorizer.enter(&self.node, proof, entry, self.from).await {
            Ok(guest) => {
                self.input = Some(guest.input);
                tokio::spawn(show(session.handle(), channel, guest.output));
                Ok(())
            }
            Err(why) => {
                session.extended_data(channel, 1, format!("rackwright: {why}\r\n"))?;
                session.exit_status_request(channel, 1)?;
                session.eof(channel)?;
                session.close(channel)
            }
        }
    }
}

/// Sends messages to a client until the session ends.
async fn show(handle: Handle, channel: ChannelId, mut output: mpsc::Receiver<ConsoleOutput>) {
    let mut status = 0;
    while let Some(message) = output.recv().await {
        let sent = match message {
            ConsoleOutput::Data(bytes) => handle.data(channel, bytes).await.is_ok(),
            ConsoleOutput::Notice(text) => note(&handle, channel, &text).await,
            ConsoleOutput::End(text) => {
                status = 1;
                note(&handle, channel, &text).await;
                false
            }
        };
        if !sent {
            break;
        }
    }
    let _ = handle.exit_status_request(channel, status).await;
    let _ = handle.eof(channel).await;
    let _ = handle.close(channel).await;
}

async fn note(handle: &Handle, channel: ChannelId, text: &str) -> bool {
    let text = format!("\r\n[rackwright: {text}]\r\n");
    handle.extended_data(channel, 1, text.into_bytes()).await.is_ok()
}

impl Handler for ClientHandler {
    type Error = russh::Error;

    /// Skips the signature check for keys that are not registered.
    async fn auth_publickey_offered(&mut self, _: &str, offer: PublicKeyOffer<'_>) -> Result<Auth, russh::Error> {
        Ok(self.check_key(offer.public_key).await)
    }

    async fn auth_publickey(&mut self, user: &str, key: VerifiedPublicKey<'_>) -> Result<Auth, russh::Error> {
        self.proof = Some(LoginProof::Key(fingerprint(key.public_key)));
        user.clone_into(&mut self.node);
        Ok(self.check_key(key.public_key).await)
    }

    /// Accepts a token in place of a password. A valid token is used up.
    async fn auth_password(&mut self, user: &str, token: &str) -> Result<Auth, russh::Error> {
        let Some(left) = self.tokens.checked_sub(1) else {
            return Ok(Auth::reject());
        };
        self.tokens = left;
        if let Some(member) = self.authorizer.redeem(user, token).await {
            self.proof = Some(LoginProof::Member(member));
            user.clone_into(&mut self.node);
            return Ok(Auth::Accept);
        }
        Ok(Auth::Reject {
            proceed_with_methods: Some(methods(left)),
            partial_success: false,
        })
    }

    async fn auth_succeeded(&mut self, _: &mut Session) -> Result<(), russh::Error> {
        self.is_logged_in.store(true, Ordering::Relaxed);
        Ok(())
    }

    async fn channel_open_session(
        &mut self,
        channel: Channel<Msg>,
        reply: ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), russh::Error> {
        // One channel per connection. Dropping `reply` refuses the channel.
        if self.channel.is_none() {
            self.channel = Some(channel.id());
            reply.accept().await;
        }
        Ok(())
    }

    async fn shell_request(&mut self, channel: ChannelId, session: &mut Session) -> Result<(), russh::Error> {
        self.begin(channel, Entry::Write, session).await
    }

    async fn exec_request(
        &mut self,
        channel: ChannelId,
        words: &[u8],
        session: &mut Session,
    ) -> Result<(), russh::Error> {
        match words.trim_ascii() {
            b"read-only" => self.begin(channel, Entry::ReadOnly, session).await,
            b"take-over" => self.begin(channel, Entry::TakeOver, session).await,
            _ => {
                session.channel_success(channel)?;
                let text = "rackwright: this is a serial console and runs no commands; give no command, `read-only` or \
                            `take-over`\r\n";
                session.extended_data(channel, 1, text)?;
                session.exit_status_request(channel, 127)?;
                session.eof(channel)?;
                session.close(channel)
            }
        }
    }

    async fn subsystem_request(
        &mut self,
        channel: ChannelId,
        _: &str,
        session: &mut Session,
    ) -> Result<(), russh::Error> {
        session.channel_failure(channel)
    }

    async fn data(&mut self, channel: ChannelId, data: &[u8], _: &mut Session) -> Result<(), russh::Error> {
        if self.channel == Some(channel)
            && let Some(input) = &self.input
        {
            // A client that types faster than the serial port waits here.
            let _ = input.send(data.to_vec()).await;
        }
        Ok(())
    }

    async fn channel_eof(&mut self, _: ChannelId, _: &mut Session) -> Result<(), russh::Error> {
        self.input = None;
        Ok(())
    }

    async fn channel_close(&mut self, _: ChannelId, _: &mut Session) -> Result<(), russh::Error> {
        self.input = None;
        Ok(())
    }
}
