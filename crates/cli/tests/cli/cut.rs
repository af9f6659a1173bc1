//! A TCP relay that cuts connections: each of the first ones after a number of bytes, or all of them on request.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// The running relay.
pub struct Relay {
    pub address: SocketAddr,
    cuts: Arc<AtomicUsize>,
    cut_now: watch::Sender<()>,
    _runtime: tokio::runtime::Runtime,
}

impl Relay {
    /// Relays to `target`; the first connections end after these numbers of bytes from the client.
    pub fn start(target: SocketAddr, limits: Vec<usize>) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        let cuts = Arc::new(AtomicUsize::new(0));
        let cut_now = watch::Sender::new(());
        let (counter, signal) = (cuts.clone(), cut_now.clone());
        runtime.spawn(async move {
            let mut limits = limits.into_iter();
            while let Ok((client, _)) = listener.accept().await {
                let limit = limits.next().unwrap_or(usize::MAX);
                let (counter, mut signal) = (counter.clone(), signal.subscribe());
                tokio::spawn(async move {
                    let server = TcpStream::connect(target).await.unwrap();
                    // The first side to end drops both at once.
                    let cut = tokio::select! {
                        cut = relay(client, server, limit) => cut,
                        _ = signal.changed() => true,
                    };
                    counter.fetch_add(usize::from(cut), Ordering::SeqCst);
                });
            }
        });
        Self {
            address,
            cuts,
            cut_now,
            _runtime: runtime,
        }
    }

    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// Cuts every open connection.
    pub fn cut_all(&self) {
        self.cut_now.send_replace(());
    }

    /// The number of connections that were cut.
    pub fn cuts(&self) -> usize {
        self.cuts.load(Ordering::SeqCst)
    }
}

/// Returns true if the limit was reached.
async fn relay(client: TcpStream, server: TcpStream, mut limit: usize) -> bool {
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let up = async {
        let mut buffer = vec![0; 16 << 10];
        while let Ok(read @ 1..) = from_client.read(&mut buffer).await {
            let taken = read.min(limit);
            if to_server.write_all(&buffer[..taken]).await.is_err() {
                return false;
            }
            limit -= taken;
            if limit == 0 {
                return true;
            }
        }
        false
    };
    tokio::select! {
        cut = up => cut,
        _ = tokio::io::copy(&mut from_server, &mut to_client) => false,
    }
}
