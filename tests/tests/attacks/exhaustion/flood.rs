//! Sockets that are held open against a listener.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;

/// Time between two bytes of a slow socket.
const BYTE: Duration = Duration::from_millis(500);
/// Pause until a closed socket is opened again.
const AGAIN: Duration = Duration::from_secs(5);

/// Raises this process's limit of open sockets to the maximum.
pub fn raise_open_files() {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).expect("the limit can be read");
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).expect("the limit can be raised");
}

/// The data that a socket sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Speed {
    /// Nothing.
    Silent,
    /// The beginning of a request that never ends, byte by byte.
    Slow(&'static [u8]),
}

/// The beginning of a request by HTTP.
pub const HTTP: &[u8] = b"GET /";
/// The head of a TLS record of 16 KiB, and the beginning of a `ClientHello` in it.
pub const TLS: &[u8] = b"\x16\x03\x01\x40\x00\x01\x00\x3f\xfc\x03\x03";

/// Sockets that are reopened whenever they are closed. Dropping this ends them.
#[derive(Debug)]
pub struct Flood {
    opened: Arc<AtomicUsize>,
    _sockets: JoinSet<()>,
}

impl Flood {
    /// Holds `sockets` open against a port of this computer, from `addresses` addresses.
    pub async fn start(port: u16, sockets: usize, addresses: u8, speed: Speed) -> Self {
        let opened = Arc::new(AtomicUsize::new(0));
        let mut tasks = JoinSet::new();
        for n in 0..sockets {
            let from = Ipv4Addr::new(127, 250, 0, 1 + (n % usize::from(addresses)) as u8);
            tasks.spawn(hold(port, from, speed, opened.clone()));
        }
        let first = async {
            while opened.load(Ordering::Relaxed) < sockets.min(64) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let first = tokio::time::timeout(Duration::from_secs(30), first).await;
        first.expect("sockets can be opened");
        Self {
            opened,
            _sockets: tasks,
        }
    }

    /// The number of sockets opened so far.
    pub fn opened(&self) -> usize {
        self.opened.load(Ordering::Relaxed)
    }
}

async fn hold(port: u16, from: Ipv4Addr, speed: Speed, opened: Arc<AtomicUsize>) {
    loop {
        if let Ok(stream) = connect(port, from).await {
            opened.fetch_add(1, Ordering::Relaxed);
            hold_one(stream, speed).await;
        }
        tokio::time::sleep(AGAIN).await;
    }
}

async fn connect(port: u16, from: Ipv4Addr) -> std::io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(SocketAddr::from((from, 0)))?;
    socket.connect(SocketAddr::from((Ipv4Addr::LOCALHOST, port))).await
}

/// Keeps a socket until the other end closes it.
async fn hold_one(mut stream: TcpStream, speed: Speed) {
    let mut buffer = [0; 64];
    match speed {
        Speed::Silent => {
            let _ = stream.read(&mut buffer).await;
        }
        Speed::Slow(head) => {
            let endless = head.iter().chain(std::iter::repeat(&b'a'));
            for byte in endless {
                tokio::select! {
                    _ = stream.read(&mut buffer) => return,
                    () = tokio::time::sleep(BYTE) => {}
                }
                if stream.write_all(&[*byte]).await.is_err() {
                    return;
                }
            }
        }
    }
}
