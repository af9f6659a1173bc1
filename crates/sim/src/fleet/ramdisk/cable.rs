//! A machine's cable, for connection faults: a TCP relay between its agent and the agent's servers.
//!
//! The relay listens on the server's own address, so that the server's certificate is valid. Connections to a server on
//! another computer bypass the relay, with a warning.

use crate::fleet::node::Node;
use http::Uri;
use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// Bytes in transit in one direction of a connection.
const BUFFER: usize = 16 << 10;

/// The purpose of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Carries {
    /// The agent's stream.
    Stream,
    Images,
}

/// The cable during one boot.
pub(super) struct Cable {
    node: Arc<Node>,
    number: u32,
    /// The source address of the machine's connections.
    from: Ipv4Addr,
    /// The relay's port for each server.
    ports: Mutex<BTreeMap<SocketAddrV4, u16>>,
    /// The end of the current silence.
    silent_until: Mutex<Option<Instant>>,
}

impl Cable {
    pub(super) fn new(node: Arc<Node>, number: u32, from: Ipv4Addr) -> Self {
        Self {
            node,
            number,
            from,
            ports: Mutex::default(),
            silent_until: Mutex::default(),
        }
    }

    /// A URL that reaches the server of `url` through the cable.
    pub(super) fn through(self: Arc<Self>, url: &str, carries: Carries, runtime: &Handle) -> String {
        let Some((server, rest)) = place(url) else {
            tracing::warn!("{url} has no numeric IPv4 address with a port: its connections have no faults");
            return url.to_owned();
        };
        match self.port_towards(server, carries, runtime) {
            Ok(port) => format!("https://{}:{port}{rest}", server.ip()),
            Err(error) => {
                tracing::warn!(%error, "{} is not an address of this computer: its connections have no faults", server.ip());
                url.to_owned()
            }
        }
    }

    fn port_towards(self: Arc<Self>, server: SocketAddrV4, carries: Carries, runtime: &Handle) -> io::Result<u16> {
        let cable = Arc::clone(&self);
        let mut ports = self.ports.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(port) = ports.get(&server) {
            return Ok(*port);
        }
        let listener = std::net::TcpListener::bind((*server.ip(), 0))?;
        listener.set_nonblocking(true)?;
        let port = listener.local_addr()?.port();
        let _runtime = runtime.enter();
        let listener = TcpListener::from_std(listener)?;
        ports.insert(server, port);
        runtime.spawn(async move {
            tokio::select! {
                () = cable.serve(listener, server, carries) => {}
                () = cable.node.left(cable.number) => {}
            }
        });
        Ok(port)
    }

    /// Stops all traffic for a while; connections stay open.
    pub(super) fn go_silent(&self, time: Duration) {
        *self.silent_until.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now() + time);
    }

    /// Waits for the end of a silence.
    async fn passes(&self) {
        loop {
            let until = *self.silent_until.lock().unwrap_or_else(PoisonError::into_inner);
            match until {
                Some(until) if until > Instant::now() => tokio::time::sleep_until(until).await,
                _ => return,
            }
        }
    }

    async fn serve(self: &Arc<Self>, listener: TcpListener, server: SocketAddrV4, carries: Carries) {
        let mut connections = JoinSet::new();
        loop {
            while connections.try_join_next().is_some() {}
            let machine_side = match listener.accept().await {
                Ok((machine_side, _)) => machine_side,
                Err(error) => return tracing::warn!(%error, "a machine's cable accepts no more connections"),
            };
            let faults = &self.node.shared.config.faults;
            let most = match carries {
                Carries::Images => faults.image_cut(self.node.moment()),
                Carries::Stream => None,
            };
            let cable = Arc::clone(self);
            connections.spawn(async move {
                if let Err(error) = cable.relay(machine_side, server, most.unwrap_or(u64::MAX)).await {
                    tracing::debug!(%error, "a connection over a machine's cable broke");
                }
            });
        }
    }

    /// Relays one connection until either side ends it, or the server has sent `most` bytes.
    async fn relay(&self, mut machine_side: TcpStream, server: SocketAddrV4, most: u64) -> io::Result<()> {
        self.passes().await;
        let socket = TcpSocket::new_v4()?;
        socket.bind(SocketAddr::from((self.from, 0)))?;
        let mut far = socket.connect(SocketAddr::V4(server)).await?;
        machine_side.set_nodelay(true)?;
        far.set_nodelay(true)?;
        let ((machine_in, machine_out), (server_in, server_out)) = (machine_side.split(), far.split());
        tokio::select! {
            up = self.pass(machine_in, server_out, u64::MAX) => up,
            down = self.pass(server_in, machine_out, most) => down,
        }
    }

    async fn pass(&self, mut from: ReadHalf<'_>, mut to: WriteHalf<'_>, most: u64) -> io::Result<()> {
        let mut left = most;
        let mut buffer = vec![0; BUFFER];
        while left > 0 {
            let count = from.read(&mut buffer).await?;
            if count == 0 {
                break;
            }
            self.passes().await;
            let count = usize::try_from(left).map_or(count, |left| count.min(left));
            to.write_all(&buffer[..count]).await?;
            left -= count as u64;
        }
        Ok(())
    }
}

/// The server of an HTTPS URL, and the rest of the URL.
fn place(url: &str) -> Option<(SocketAddrV4, &str)> {
    let uri: Uri = url.parse().ok()?;
    let server = SocketAddrV4::new(uri.host()?.parse().ok()?, uri.port_u16()?);
    let rest = url.strip_prefix("https://")?;
    let rest = rest.find('/').map_or("", |begin| &rest[begin..]);
    Some((server, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_server_is_taken_out_of_a_url() {
        let server = "127.0.0.1:7443".parse().unwrap();
        assert_eq!(place("https://127.0.0.1:7443/store/v1"), Some((server, "/store/v1")));
        assert_eq!(place("https://127.0.0.1:7443"), Some((server, "")));
        for other in [
            "https://control:7443",
            "http://127.0.0.1:7443",
            "https://127.0.0.1",
            "7443",
        ] {
            assert_eq!(place(other), None, "{other}");
        }
    }
}
