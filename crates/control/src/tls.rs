//! Accepts TCP connections and makes them TLS, without one slow handshake holding up the next.

use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;

/// A client that does not finish its handshake by then is dropped.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Handshakes at once.
const HANDSHAKES: usize = 512;

/// Connections whose handshake is done, until `stop`.
pub fn accept(
    listener: TcpListener,
    config: Arc<rustls::ServerConfig>,
    stop: CancellationToken,
) -> mpsc::Receiver<TlsStream<TcpStream>> {
    let (sender, receiver) = mpsc::channel(64);
    let acceptor = TlsAcceptor::from(config);
    let slots = Arc::new(Semaphore::new(HANDSHAKES));
    tokio::spawn(async move {
        loop {
            let Ok(slot) = slots.clone().acquire_owned().await else {
                return;
            };
            let accepted = tokio::select! {
                () = stop.cancelled() => return,
                accepted = listener.accept() => accepted,
            };
            let (stream, peer) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    // Out of file descriptors, most likely: give connections time to end.
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
            };
            let (acceptor, sender) = (acceptor.clone(), sender.clone());
            tokio::spawn(async move {
                let _slot = slot;
                let _ = stream.set_nodelay(true);
                match tokio::time::timeout(HANDSHAKE, acceptor.accept(stream)).await {
                    Ok(Ok(stream)) => {
                        let _ = sender.send(stream).await;
                    }
                    Ok(Err(error)) => tracing::debug!(%peer, %error, "a TLS handshake failed"),
                    Err(_) => tracing::debug!(%peer, "a TLS handshake took too long"),
                }
            });
        }
    });
    receiver
}
