//! A TCP relay that cuts its first connections after so many bytes, in the middle of whatever they carry.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// The running relay.
pub struct Relay {
    pub address: SocketAddr,
    cuts: Arc<AtomicUsize>,
    _runtime: tokio::runtime::Runtime,
}

impl Relay {
    /// Relays to `target`; the first connections end after these many bytes from the client.
    pub fn start(target: SocketAddr, limits: Vec<usize>) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        let cuts = Arc::new(AtomicUsize::new(0));
        let counter = cuts.clone();
        runtime.spawn(async move {
            let mut limits = limits.into_iter();
            while let Ok((client, _)) = listener.accept().await {
                let limit = limits.next();
                let counter = counter.clone();
                tokio::spawn(async move {
                    let server = TcpStream::connect(target).await.unwrap();
                    if relay(client, server, limit.unwrap_or(usize::MAX)).await {
                        counter.fetch_add(1, Ordering::SeqCst);
                    }
                });
            }
        });
        Self { address, cuts, _runtime: runtime }
    }

    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// Connections that were cut.
    pub fn cuts(&self) -> usize {
        self.cuts.load(Ordering::SeqCst)
    }
}

/// True when the limit was reached; both sides are then closed at once.
async fn relay(client: TcpStream, server: TcpStream, mut limit: usize) -> bool {
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let down = tokio::spawn(async move { tokio::io::copy(&mut from_server, &mut to_client).await });
    let mut buffer = vec![0; 16 << 10];
    while let Ok(read) = from_client.read(&mut buffer).await {
        if read == 0 {
            return false;
        }
        let taken = read.min(limit);
        if to_server.write_all(&buffer[..taken]).await.is_err() {
            return false;
        }
        limit -= taken;
        if limit == 0 {
            down.abort();
            return true;
        }
    }
    false
}
