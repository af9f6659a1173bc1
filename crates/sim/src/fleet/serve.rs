//! One socket for all BMCs: the destination address of a connection identifies the BMC.

use super::FleetError;
use super::node::Node;
use super::shared::Shared;
use axum::Router;
use rackwright_sim_bmc::{self as bmc, Bmc, CONNECTIONS, Service, WAIT_LIMIT};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::JoinSet;

/// Most connections that wait to be accepted (the kernel may have a lower limit: `net.core.somaxconn`).
const BACKLOG: u32 = 4096;
/// Pause when the process has no file descriptor left for a connection.
pub(super) const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// A machine and its BMC.
pub(super) struct Member {
    pub(super) node: Arc<Node>,
    pub(super) bmc: Arc<Bmc>,
}

/// Listens for a fleet.
///
/// # Errors
/// [`FleetError::Listen`].
pub(super) fn listen(shared: &Shared) -> Result<TcpListener, FleetError> {
    bind(shared.config.listen, shared.config.is_loopback())
}

/// Listens on an address; `loopback` excludes connections from other computers.
///
/// # Errors
/// [`FleetError::Listen`].
pub(super) fn bind(address: SocketAddrV4, loopback: bool) -> Result<TcpListener, FleetError> {
    let address = SocketAddr::V4(address);
    let failed = |source| FleetError::Listen { address, source };
    let socket = TcpSocket::new_v4().map_err(failed)?;
    socket.set_reuseaddr(true).map_err(failed)?;
    if loopback {
        // So that 0.0.0.0 does not accept connections from other computers.
        socket.bind_device(Some(b"lo")).map_err(failed)?;
    }
    socket.bind(address).map_err(failed)?;
    socket.listen(BACKLOG).map_err(failed)
}

/// The port that a socket listens on.
///
/// # Errors
/// [`FleetError::Listen`].
pub(super) fn port(listener: &TcpListener) -> Result<u16, FleetError> {
    let address = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0).into();
    let local = listener.local_addr();
    local
        .map(|local| local.port())
        .map_err(|source| FleetError::Listen { address, source })
}

/// Accepts connections until the task is aborted, and ends them with it.
pub(super) async fn run(listener: TcpListener, members: Arc<[Member]>, shared: Arc<Shared>) {
    let router = bmc::router();
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    connections.spawn(connection(stream, Arc::clone(&members), Arc::clone(&shared), router.clone()));
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection to a BMC");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn connection(stream: TcpStream, members: Arc<[Member]>, shared: Arc<Shared>, router: Router) {
    let Ok(IpAddr::V4(address)) = stream.local_addr().map(|local| local.ip()) else {
        return;
    };
    let Some(member) = shared.config.index(address).and_then(|index| members.get(index)) else {
        tracing::debug!(%address, "a connection to an address without a BMC");
        return;
    };
    if shared.config.faults.is_down(member.node.moment()) {
        return;
    }
    let Some(_place) = ConnectionSlot::take(&member.node) else {
        tracing::warn!(node = member.node.index, "too many connections to the BMC");
        return;
    };
    shared.counters.connections.fetch_add(1, Ordering::Relaxed);
    let _ = stream.set_nodelay(true);
    let service = Service::new(router, Arc::clone(&member.bmc));
    if shared.tls.is_none() {
        bmc::serve(stream, service).await;
        return;
    }
    let Ok(secured) = member.node.secured() else {
        return;
    };
    if let Ok(Ok(stream)) = tokio::time::timeout(WAIT_LIMIT, secured.acceptor.accept(stream)).await {
        bmc::serve(stream, service).await;
    }
}

/// A place among the connections of a BMC.
struct ConnectionSlot(Arc<Node>);

impl ConnectionSlot {
    fn take(node: &Arc<Node>) -> Option<Self> {
        let taken = node.connections.fetch_add(1, Ordering::Relaxed);
        let place = Self(Arc::clone(node));
        ((taken as usize) < CONNECTIONS).then_some(place)
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::Relaxed);
    }
}
