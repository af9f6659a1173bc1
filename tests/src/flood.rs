//! Clients that use up the connections and the memory of a listener.

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;
use tonic::Status;
use tonic::transport::Channel;
use tower::ServiceExt as _;

/// Time between two bytes of a slow socket.
const BYTE: Duration = Duration::from_millis(500);
/// Pause until a closed socket is opened again.
const AGAIN: Duration = Duration::from_secs(5);
/// Bytes per write of a large message.
const PIECE: usize = 64 << 10;

/// Raises this process's limit of open sockets to the maximum.
///
/// # Panics
/// If the limit cannot be raised.
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
    /// Holds `sockets` open against a listener, from these addresses of the host.
    ///
    /// # Panics
    /// If no socket can be opened.
    pub async fn start(target: SocketAddrV4, sockets: usize, from: &[Ipv4Addr], speed: Speed) -> Self {
        let opened = Arc::new(AtomicUsize::new(0));
        let mut tasks = JoinSet::new();
        for n in 0..sockets {
            tasks.spawn(hold(target, from[n % from.len()], speed, opened.clone()));
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
    #[must_use]
    pub fn opened(&self) -> usize {
        self.opened.load(Ordering::Relaxed)
    }
}

async fn hold(target: SocketAddrV4, from: Ipv4Addr, speed: Speed, opened: Arc<AtomicUsize>) {
    loop {
        if let Ok(stream) = connect(target, from).await {
            opened.fetch_add(1, Ordering::Relaxed);
            hold_one(stream, speed).await;
        }
        tokio::time::sleep(AGAIN).await;
    }
}

async fn connect(target: SocketAddrV4, from: Ipv4Addr) -> std::io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(SocketAddr::from((from, 0)))?;
    socket.connect(SocketAddr::V4(target)).await
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

/// Makes a call with a message that announces `length` bytes; `sent` of them are sent as the server accepts them, and
/// then the call stays unfinished. Returns the status, and the number of bytes that the connection accepted.
///
/// # Panics
/// If a message of 4 GiB or more is announced.
pub async fn announced(channel: &Channel, path: &str, length: u64, sent: u64) -> (Status, u64) {
    let taken = Arc::new(AtomicU64::new(0));
    let counted = taken.clone();
    let head = std::iter::once({
        let mut head = vec![0];
        head.extend(u32::try_from(length).expect("a message has a length").to_be_bytes());
        Bytes::from(head)
    });
    let piece = Bytes::from(vec![0; PIECE]);
    let pieces = (0..sent.div_ceil(PIECE as u64)).map(move |n| {
        let left = sent - n * PIECE as u64;
        piece.slice(..PIECE.min(usize::try_from(left).unwrap_or(PIECE)))
    });
    let frames = head.chain(pieces).map(move |bytes| {
        counted.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        Ok::<_, Infallible>(Frame::data(bytes))
    });
    let unfinished = tokio_stream::StreamExt::chain(tokio_stream::iter(frames), tokio_stream::pending());
    let request = http::Request::post(format!("https://control.invalid{path}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(tonic::body::Body::new(StreamBody::new(unfinished)))
        .expect("it is a request");
    let answered = async {
        let broken = |e: &dyn std::fmt::Display| Status::unknown(e.to_string());
        let response = channel.clone().oneshot(request).await.map_err(|e| broken(&e))?;
        if let Some(status) = Status::from_header_map(response.headers()) {
            return Ok(status);
        }
        // The status is after the messages.
        let body = response.into_body().collect().await.map_err(|e| broken(&e))?;
        let status = body.trailers().and_then(Status::from_header_map);
        Ok(status.unwrap_or_else(|| Status::ok("")))
    };
    let answered = tokio::time::timeout(Duration::from_secs(60), answered).await;
    let status = match answered {
        Ok(Ok(status) | Err(status)) => status,
        Err(_) => Status::ok("no answer"),
    };
    (status, taken.load(Ordering::Relaxed))
}
