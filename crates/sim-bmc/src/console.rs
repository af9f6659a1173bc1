//! The SSH server of a BMC: a login with the BMC's account reaches the machine's serial port.

use super::Host;
use russh::keys::PrivateKey;
use russh::keys::ssh_key::private::{Ed25519Keypair, KeypairData};
use russh::server::{Auth, ChannelOpenHandle, Config, Handle, Handler, Msg, Session, run_stream};
use russh::{Channel, ChannelId, MethodKind, MethodSet, SshId};
use std::borrow::Cow;
use std::net::Shutdown;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// Most concurrent connections.
const CONNECTIONS: usize = 8;
/// How often to check for the machine's serial port: it comes and goes with the emulator.
const POLL: Duration = Duration::from_millis(5);
/// Time within which a client must accept output.
const READS: Duration = Duration::from_secs(2);
/// An idle connection ends after this time; live clients send keepalives.
const WAIT_LIMIT: Duration = Duration::from_secs(600);

/// A host key that is unique to this BMC.
pub fn host_key(seed: &[u8; 32]) -> Option<PrivateKey> {
    let pair = Ed25519Keypair::from_seed(seed);
    PrivateKey::new(KeypairData::Ed25519(pair), "").ok()
}

/// The consoles of one machine.
pub struct Console {
    /// The host with the login account.
    pub host: Arc<dyn Host>,
    /// The Unix socket of the serial port, which exists while the machine is on. It accepts one client.
    pub serial: PathBuf,
    pub key: PrivateKey,
}

impl Console {
    /// Accepts connections until the task is aborted, and ends them with it.
    pub async fn run(self, listener: TcpListener) {
        let config = Arc::new(Config {
            server_id: SshId::Standard(Cow::Borrowed("SSH-2.0-rackwright_lab_bmc")),
            methods: MethodSet::from(&[MethodKind::Password][..]),
            auth_rejection_time: Duration::from_millis(200),
            auth_rejection_time_initial: Some(Duration::ZERO),
            keys: vec![self.key],
            inactivity_timeout: Some(WAIT_LIMIT),
            ..Config::default()
        });
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                accepted = listener.accept() => match accepted {
                    Ok((stream, _)) if connections.len() < CONNECTIONS && !self.host.is_down() => {
                        let handler = ClientHandler {
                            host: Arc::clone(&self.host),
                            serial: self.serial.clone(),
                            input: None,
                        };
                        connections.spawn(connection(stream, Arc::clone(&config), handler));
                    }
                    Ok(_) => {}
                    Err(error) => {
                        tracing::warn!(%error, "a console connection cannot be accepted");
                        tokio::time::sleep(POLL).await;
                    }
                },
                Some(_) = connections.join_next() => {}
            }
        }
    }
}

async fn connection(stream: TcpStream, config: Arc<Config>, handler: ClientHandler) {
    let _ = stream.set_nodelay(true);
    let Ok(guard) = stream.as_fd().try_clone_to_owned() else {
        return;
    };
    let _guard = ConnectionGuard(guard.into());
    if let Ok(session) = run_stream(config, stream, handler).await {
        let _ = session.await;
    }
}

/// Ends a connection when dropped: russh runs the connection in its own task.
struct ConnectionGuard(std::net::TcpStream);

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        let _ = self.0.shutdown(Shutdown::Both);
    }
}

/// One client.
struct ClientHandler {
    host: Arc<dyn Host>,
    serial: PathBuf,
    input: Option<mpsc::Sender<Vec<u8>>>,
}

impl Handler for ClientHandler {
    type Error = russh::Error;

    async fn auth_password(&mut self, user: &str, password: &str) -> Result<Auth, russh::Error> {
        Ok(if self.host.admits(user, password) {
            Auth::Accept
        } else {
            Auth::reject()
        })
    }

    async fn channel_open_session(
        &mut self,
        _: Channel<Msg>,
        reply: ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), russh::Error> {
        // One channel per connection. Dropping the reply refuses it.
        if self.input.is_none() {
            reply.accept().await;
        }
        Ok(())
    }

    async fn shell_request(&mut self, channel: ChannelId, session: &mut Session) -> Result<(), russh::Error> {
        if self.input.is_some() {
            return session.channel_failure(channel);
        }
        session.channel_success(channel)?;
        let (input, typed) = mpsc::channel(64);
        self.input = Some(input);
        let terminal = SshTerminal(session.handle(), channel);
        let serial = self.serial.clone();
        tokio::spawn(async move { carry(terminal, &serial, typed).await });
        Ok(())
    }

    async fn data(&mut self, _: ChannelId, data: &[u8], _: &mut Session) -> Result<(), russh::Error> {
        if let Some(input) = &self.input {
            let _ = input.send(data.to_vec()).await;
        }
        Ok(())
    }
}

/// A viewer of a serial port.
pub(super) trait Terminal: Send {
    /// Shows the machine's output; `false` if the client is gone.
    fn show(&mut self, bytes: &[u8]) -> impl Future<Output = bool> + Send;
}

struct SshTerminal(Handle, ChannelId);

impl Terminal for SshTerminal {
    async fn show(&mut self, bytes: &[u8]) -> bool {
        self.0.data(self.1, bytes.to_vec()).await.is_ok()
    }
}

/// Carries bytes between a client and the serial port, across all boots, until the client leaves.
pub(super) async fn carry(mut terminal: impl Terminal, serial: &Path, mut typed: mpsc::Receiver<Vec<u8>>) {
    loop {
        let Some(mut port) = open(serial, &mut typed).await else {
            return;
        };
        let mut buffer = vec![0; 4096];
        loop {
            tokio::select! {
                read = port.read(&mut buffer) => match read {
                    Ok(count) if count > 0 => {
                        // A machine does not wait for its viewer: a client that does not read is disconnected.
                        let shown = terminal.show(&buffer[..count]);
                        if !matches!(tokio::time::timeout(READS, shown).await, Ok(true)) {
                            return;
                        }
                    }
                    // The machine is off.
                    _ => break,
                },
                bytes = typed.recv() => {
                    let Some(bytes) = bytes else { return };
                    if port.write_all(&bytes).await.is_err() {
                        break;
                    }
                }
            }
        }
    }
}

/// Waits for the serial port. Input during the wait is discarded. None: the client left.
async fn open(serial: &Path, typed: &mut mpsc::Receiver<Vec<u8>>) -> Option<UnixStream> {
    loop {
        if let Ok(port) = UnixStream::connect(serial).await {
            return Some(port);
        }
        let pause = tokio::time::sleep(POLL);
        tokio::pin!(pause);
        loop {
            tokio::select! {
                () = &mut pause => break,
                bytes = typed.recv() => { bytes?; }
            }
        }
    }
}
