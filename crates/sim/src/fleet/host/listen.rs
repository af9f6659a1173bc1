//! One socket for all installed systems: the destination address of a connection identifies the machine.
//!
//! A machine without a running system is silent, like one without power: a client waits for [`SILENCE`], or for the
//! system that comes up meanwhile. An immediate refusal would only make the client return sooner.

use super::session::Login;
use super::traffic::Neighbours;
use super::{Hosts, Running};
use crate::fleet::serve::{ACCEPT_PAUSE, Member, bind};
use crate::fleet::{FleetConfig, FleetError};
use russh::keys::{Algorithm, PrivateKey};
use russh::server::{Config, run_stream};
use russh::{MethodKind, MethodSet, Preferred, SshId, cipher, compression, kex, mac};
use secrecy::ExposeSecret as _;
use std::borrow::Cow;
use std::net::{Shutdown, SocketAddrV4};
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// Time without an answer before the connection is closed, on the clock of the simulated machines. A real client waits
/// about as long for a machine without power.
const SILENCE: Duration = Duration::from_secs(2);
/// How long a connection may be idle. A probe may take long.
const WAIT_LIMIT: Duration = Duration::from_secs(300);

/// Listens for the systems of a fleet.
///
/// # Errors
/// [`FleetError::Listen`].
pub(in crate::fleet) fn listen(config: &FleetConfig, address: SocketAddrV4) -> Result<TcpListener, FleetError> {
    bind(address, config.hosts.addr().is_loopback())
}

/// Accepts connections until the task is aborted, and ends them with it.
pub(in crate::fleet) async fn run(listener: TcpListener, members: Arc<[Member]>, hosts: Arc<Hosts>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    connections.spawn(connection(stream, Arc::clone(&members), Arc::clone(&hosts)));
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection to an installed system");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

/// Serves a client when a system answers at the destination, and hangs up when that system ends.
async fn connection(stream: TcpStream, members: Arc<[Member]>, hosts: Arc<Hosts>) {
    let Ok(local) = stream.local_addr() else { return };
    let Some(client) = hosts.admit(local.ip()) else {
        tracing::warn!(address = %local.ip(), "too many SSH connections to an address");
        return;
    };
    let Ok(running) = tokio::time::timeout(hosts.clock.lasts(SILENCE), client.wait_for_system()).await else {
        // A reset, as from a machine without a listener.
        let _ = stream.set_zero_linger();
        return;
    };
    let Some(member) = members.get(running.system.node) else {
        return;
    };
    let Some(config) = config(&running) else {
        tracing::warn!(address = %local.ip(), "the seed has no Ed25519 host key: no SSH server starts");
        return;
    };
    let login = Login::new(
        Arc::clone(&member.node),
        Arc::clone(&running),
        Neighbours::new(&hosts, &members),
    );
    tokio::select! {
        // Boxed, so that a connection that only waits is small.
        () = Box::pin(serve(stream, config, login)) => {}
        () = client.wait_for_end(&running) => {}
    }
}

/// Only Ed25519 and Curve25519: cheap on both sides. `None` if the host key is of another kind.
fn config(running: &Running) -> Option<Config> {
    let key = PrivateKey::from_openssh(running.system.installed.ssh_host_private_key.expose_secret()).ok()?;
    (key.algorithm() == Algorithm::Ed25519).then(|| Config {
        server_id: SshId::Standard(Cow::Borrowed("SSH-2.0-rackwright_sim")),
        methods: MethodSet::from(&[MethodKind::PublicKey][..]),
        // Russh delays refused clients by a second, as a defence against guessing.
        auth_rejection_time: Duration::ZERO,
        keys: vec![key],
        preferred: Preferred {
            kex: Cow::Borrowed(&[
                kex::CURVE25519,
                kex::CURVE25519_PRE_RFC_8731,
                kex::EXTENSION_OPENSSH_STRICT_KEX_AS_SERVER,
            ]),
            key: Cow::Borrowed(&[Algorithm::Ed25519]),
            host_key_certificates: Cow::Borrowed(&[]),
            cipher: Cow::Borrowed(&[cipher::CHACHA20_POLY1305, cipher::AES_256_GCM]),
            mac: Cow::Borrowed(&[mac::HMAC_SHA256_ETM]),
            compression: Cow::Borrowed(&[compression::NONE]),
        },
        max_auth_attempts: 6,
        inactivity_timeout: Some(WAIT_LIMIT),
        ..Config::default()
    })
}

async fn serve(stream: TcpStream, config: Config, login: Login) {
    let _ = stream.set_nodelay(true);
    let Ok(guard) = stream.as_fd().try_clone_to_owned() else {
        return;
    };
    let _guard = ConnectionGuard(guard.into());
    // A client that breaks off is not an error here.
    if let Ok(session) = run_stream(Arc::new(config), stream, login).await {
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
