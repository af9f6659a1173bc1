//! Accepts TCP connections and makes them TLS. A slow handshake does not delay the next. A peer without a certificate takes
//! a place among the listener's unknown connections.

use std::sync::Arc;
use std::time::Duration;

use rackwright_identity::{ClientIdentity, identify};
use rackwright_netboot::connections::{Connections, Slot};
use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;

use crate::core::Core;

/// Time between two checks for idle connections.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// A silent peer is asked after a minute, and is gone after four questions without an answer, 15 s apart.
const KEEPALIVE: TcpKeepalive = TcpKeepalive::new()
    .with_time(Duration::from_secs(60))
    .with_interval(Duration::from_secs(15))
    .with_retries(4);

/// A connection after its handshake.
#[derive(Debug)]
pub struct Accepted {
    pub stream: TlsStream<TcpStream>,
    /// Its place among the listener's connections. Keep it as long as the stream.
    pub slot: Slot,
    /// The peer in the certificate. `None`: the peer sent no certificate, or one that names neither a member nor an agent.
    pub identity: Option<ClientIdentity>,
    /// Cancelled when the authority of its certificate is no longer trusted.
    pub ended: CancellationToken,
}

/// Connections after their handshake, until the core stops.
pub fn accept(
    core: &Arc<Core>,
    listener: TcpListener,
    config: Arc<rustls::ServerConfig>,
    connections: Arc<Connections>,
) -> mpsc::Receiver<Accepted> {
    let (core, limits, stop) = (core.clone(), &core.config.connections, core.stop.clone());
    let (sender, receiver) = mpsc::channel(64);
    let acceptor = TlsAcceptor::from(config);
    let (handshake, idle) = (
        Duration::from_secs(limits.handshake_s),
        Duration::from_secs(limits.idle_s),
    );
    let closing = close_idle(connections.clone(), idle.max(handshake), stop.clone());
    let accepting = async move {
        loop {
            let accepted = tokio::select! {
                () = stop.cancelled() => return,
                accepted = listener.accept() => accepted,
            };
            let (stream, peer) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    // Most likely out of file descriptors: give connections time to end.
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
            };
            let slot = tokio::select! {
                () = stop.cancelled() => return,
                slot = connections.admit(peer.ip()) => slot,
            };
            let Some(slot) = slot else { continue };
            let (core, acceptor, sender) = (core.clone(), acceptor.clone(), sender.clone());
            tokio::spawn(async move {
                let _ = stream.set_nodelay(true);
                // A peer that vanished without a word is noticed, also on a connection that waits for its next byte.
                let _ = SockRef::from(&stream).set_tcp_keepalive(&KEEPALIVE);
                let closed = slot.closed();
                let connected = tokio::select! {
                    () = closed.cancelled() => return,
                    connected = tokio::time::timeout(handshake, acceptor.accept(stream)) => connected,
                };
                match connected {
                    Ok(Ok(stream)) => {
                        let leaf = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
                        let identity = leaf.and_then(|leaf| identify(leaf).ok());
                        let end_of = |leaf| core.authority_changes.end_of(&core.keys.authority, leaf);
                        let ended = leaf.map_or_else(CancellationToken::new, |leaf| end_of(leaf));
                        match identity {
                            Some(_) => slot.handle().known(),
                            None => slot.handle().opened(),
                        }
                        let accepted = Accepted {
                            stream,
                            slot,
                            identity,
                            ended,
                        };
                        let _ = sender.send(accepted).await;
                    }
                    Ok(Err(error)) => tracing::debug!(%peer, %error, "a TLS handshake failed"),
                    Err(_) => tracing::debug!(%peer, "a TLS handshake took too long"),
                }
            });
        }
    };
    // One task: if either panics, the receiver ends, and with it the part of the daemon that serves the connections.
    tokio::spawn(async move { tokio::join!(closing, accepting) });
    receiver
}

async fn close_idle(connections: Arc<Connections>, limit: Duration, stop: CancellationToken) {
    let mut looks = tokio::time::interval(POLL_INTERVAL);
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            _ = looks.tick() => connections.close_idle(limit),
        }
    }
}
