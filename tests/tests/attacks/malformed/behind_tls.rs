//! Malformed requests on listeners behind TLS. A handshake costs as much as many requests, so connections are kept:
//! a request is framed as HTTP/1.1, and path, header and body are malformed. The last input of a connection has no frame.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rackwright_fuzz::changes::{Numbers, changed};
use rackwright_tests::member;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::{AT_ONCE, Batch};
use crate::exhaustion::plane::TEST_LIMIT;

/// Inputs on one connection.
const KEPT: usize = 64;

/// A valid request: method, path, name and value of a header, body.
pub type Good = (&'static str, &'static str, &'static str, &'static str, &'static str);

/// Requests to the web console.
pub const WEB: [Good; 8] = [
    (
        "GET",
        "/v1/nodes?page_size=10&filter=state%3Davailable",
        "Accept",
        "application/json",
        "",
    ),
    ("GET", "/v1/nodes/n1", "If-Match", "\"7\"", ""),
    ("GET", "/assets/index.js", "Range", "bytes=0-99", ""),
    (
        "GET",
        "/login?token=rw1_0123456789",
        "Cookie",
        "session=0123456789abcdef",
        "",
    ),
    ("GET", "/", "Accept-Encoding", "br, gzip;q=0.5", ""),
    (
        "POST",
        "/v1/nodes/n1:hold",
        "Content-Type",
        "application/json",
        "{\"reason\": \"x\", \"mutation\": {}}",
    ),
    (
        "POST",
        "/rackwright.v1.NodeService/GetNode",
        "Content-Type",
        "application/json",
        "{\"name\": \"nodes/n1\"}",
    ),
    (
        "POST",
        "/rackwright.v1.NodeService/ListNodes",
        "Content-Type",
        "application/proto",
        "\x08\x0a\x1a\x02ab",
    ),
];

/// Requests to the image store.
pub const STORE: [Good; 4] = [
    (
        "GET",
        "/store/v1/chunks/b3-0123456789abcdef",
        "Range",
        "bytes=0-99,200-",
        "",
    ),
    (
        "GET",
        "/store/v1/images/b3-0000000000000000000000000000000000000000000000000000000000000000",
        "If-Range",
        "\"b3-00-100\"",
        "",
    ),
    (
        "HEAD",
        "/store/v1/chunks/0000",
        "If-None-Match",
        "W/\"a\", \"b\", *",
        "",
    ),
    ("GET", "/metrics", "Accept", "text/plain;version=0.0.4", ""),
];

/// The client's side of TLS, with the certificate and key in a folder of the CLI, or without one.
pub fn client(cli: &Path, has_certificate: bool) -> Arc<ClientConfig> {
    let pem = member::authority(cli);
    let mut roots = RootCertStore::empty();
    for authority in CertificateDer::pem_slice_iter(pem.as_bytes()) {
        roots.add(authority.expect("PEM")).expect("a certificate");
    }
    let builder = ClientConfig::builder().with_root_certificates(roots);
    let mut config = if has_certificate {
        let pem = std::fs::read(cli.join("default.pem")).expect("a file of the CLI");
        let chain = CertificateDer::pem_slice_iter(&pem).collect::<Result<_, _>>();
        let key = PrivateKeyDer::from_pem_slice(&pem).expect("a key");
        builder
            .with_client_auth_cert(chain.expect("PEM"), key)
            .expect("they fit")
    } else {
        builder.with_no_client_auth()
    };
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Arc::new(config)
}

/// A changed copy of a text, as a path may contain it: further bytes are escaped.
fn path(good: &str, numbers: &mut Numbers) -> String {
    let bytes = changed(good.as_bytes(), numbers);
    let escaped = |byte: u8| match byte {
        b'!'..=b'~' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    format!("/{}", bytes.into_iter().map(escaped).collect::<String>())
}

/// The same number gives the same request: half of the bodies and headers are changed copies of valid ones, half are noise.
fn request(good: &[Good], further: &str, number: usize) -> (bool, Vec<u8>) {
    let mut numbers = Numbers::of(number as u64);
    let (method, at, header, value, body) = good[numbers.below(good.len())];
    let mut noise = |length: usize| -> Vec<u8> { (0..length).map(|_| numbers.below(256) as u8).collect() };
    let (noise_value, noise_body) = (noise(40), noise(200));
    let at = path(at, &mut numbers);
    let (value, body) = match number.is_multiple_of(2) {
        true => (
            changed(value.as_bytes(), &mut numbers),
            changed(body.as_bytes(), &mut numbers),
        ),
        false => (noise_value, noise_body),
    };
    let value = value.into_iter().filter(|byte| *byte >= b' ' && *byte != 0x7f);
    let body = if method == "POST" { body } else { Vec::new() };
    let mut request = format!("{method} {at} HTTP/1.1\r\nHost: localhost\r\n{further}{header}: ").into_bytes();
    request.extend(value);
    request.extend(format!("\r\nContent-Length: {}\r\n\r\n", body.len()).into_bytes());
    request.extend(body);
    (method == "HEAD", request)
}

/// Reads one answer. Returns whether the connection goes on.
async fn answer(stream: &mut TlsStream<TcpStream>, is_head: bool) -> std::io::Result<bool> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        if head.len() > 16 << 10 {
            return Err(std::io::Error::other("the head of an answer does not end"));
        }
        match stream.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) if head.is_empty() => return Ok(false),
            Err(error) => return Err(error),
        }
    }
    let head = String::from_utf8_lossy(&head).to_ascii_lowercase();
    assert!(!head.starts_with("http/1.1 500"), "{head}");
    let length = head
        .split_once("content-length: ")
        .and_then(|(_, rest)| rest.split('\r').next());
    let length: Option<usize> = length.and_then(|length| length.parse().ok());
    let Some(length) = length else { return Ok(false) };
    if !is_head && !head.starts_with("http/1.1 304") {
        let mut body = vec![0; length];
        stream.read_exact(&mut body).await?;
    }
    Ok(!head.contains("connection: close"))
}

/// One connection: inputs until the server ends it, or until [`KEPT`]. Counts the inputs that had an end.
async fn connection(listener: &Listener, from: Ipv4Addr, batch: &Batch) -> std::io::Result<()> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(SocketAddr::from((from, 0)))?;
    let stream = socket
        .connect(SocketAddr::from((Ipv4Addr::LOCALHOST, listener.port)))
        .await?;
    stream.set_nodelay(true)?;
    let name = ServerName::try_from("127.0.0.1").map_err(std::io::Error::other)?;
    let mut stream = TlsConnector::from(listener.tls.clone()).connect(name, stream).await?;
    for _ in 1..KEPT {
        let Some(number) = batch.next() else { return Ok(()) };
        let (is_head, request) = request(listener.good, &listener.further, number);
        stream.write_all(&request).await?;
        let goes_on = answer(&mut stream, is_head).await?;
        batch.taken.fetch_add(1, Ordering::Relaxed);
        if !goes_on {
            return Ok(());
        }
    }
    let Some(number) = batch.next() else { return Ok(()) };
    let (_, whole) = request(listener.good, &listener.further, number);
    stream
        .write_all(&changed(&whole, &mut Numbers::of(number as u64)))
        .await?;
    stream.shutdown().await?;
    let mut rest = Vec::new();
    // A server that closes without reading everything resets the connection, which also counts as an answer.
    let _ = stream.take(64 << 10).read_to_end(&mut rest).await;
    batch.taken.fetch_add(1, Ordering::Relaxed);
    Ok(())
}

/// A listener, and what its clients send.
pub struct Listener {
    pub port: u16,
    pub tls: Arc<ClientConfig>,
    pub good: &'static [Good],
    /// Further lines of each request's head.
    pub further: String,
}

/// Sends malformed requests. Returns the number that the server answered, or whose connection it ended in order.
pub async fn requests(listener: Listener, count: usize) -> usize {
    let (listener, batch) = (Arc::new(listener), Arc::new(Batch::new(count)));
    let mut tasks = JoinSet::new();
    for task in 0..AT_ONCE {
        let (listener, batch) = (listener.clone(), batch.clone());
        tasks.spawn(async move {
            let from = Ipv4Addr::new(127, 252, task as u8, 1);
            while batch.is_open() {
                let ended = timeout(TEST_LIMIT, connection(&listener, from, &batch)).await;
                // A reset is an end, too; the inputs of this connection that had no answer are not counted.
                let _ = ended.expect("the server answers, or ends the connection");
            }
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended.expect("no panic");
    }
    batch.taken.load(Ordering::Relaxed)
}
