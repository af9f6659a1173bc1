//! A small HTTP(S) server for the tests: shares no code with the client and can misbehave in every way.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::{SinkExt as _, StreamExt as _};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};
use tokio_rustls::TlsAcceptor;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::{
    self,
    protocol::{Message, Role},
};

#[derive(Debug, Clone)]
pub struct Request {
    pub method: String,
    /// Path and query.
    pub path: String,
    pub headers: BTreeMap<String, String>,
    pub body: Value,
    /// The body as received.
    pub raw: Vec<u8>,
}

impl Request {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }

    pub fn is(&self, method: &str, path: &str) -> bool {
        self.method == method && self.path.trim_end_matches('/') == path.trim_end_matches('/')
    }
}

#[derive(Debug, Clone)]
pub enum Answer {
    Full {
        status: u16,
        headers: Vec<(String, String)>,
        body: Vec<u8>,
    },
    /// These bytes unchanged, then the end of the connection.
    Raw(Vec<u8>),
    /// These bytes repeatedly, with a pause in between, until the client disconnects.
    Drip(Vec<u8>, Duration),
    /// A body that arrives in this many pieces, with a pause before each piece; it is complete at the end.
    Pieces(Vec<u8>, u32, Duration),
    /// A WebSocket with this accept key that sends a greeting and a ping, echoes messages, and ends on `quit`.
    WebSocket(String),
    /// The end of the connection without an answer.
    Hangup,
}

impl Answer {
    pub fn status(status: u16) -> Self {
        Self::Full {
            status,
            headers: Vec::new(),
            body: Vec::new(),
        }
    }

    pub fn json(status: u16, body: &Value) -> Self {
        Self::text(status, &body.to_string()).with("Content-Type", "application/json")
    }

    pub fn text(status: u16, body: &str) -> Self {
        Self::Full {
            status,
            headers: Vec::new(),
            body: body.as_bytes().to_vec(),
        }
    }

    /// An error body with one message.
    pub fn error(status: u16, id: &str, text: &str) -> Self {
        let info = serde_json::json!([{"MessageId": id, "Message": text}]);
        Self::json(status, &serde_json::json!({"error": {"@Message.ExtendedInfo": info}}))
    }

    pub fn with(mut self, name: &str, value: &str) -> Self {
        if let Self::Full { headers, .. } = &mut self {
            headers.push((name.to_owned(), value.to_owned()));
        }
        self
    }
}

pub type Handler = Arc<dyn Fn(&Request) -> Answer + Send + Sync>;

#[derive(Default)]
struct Shared {
    requests: Mutex<Vec<Request>>,
    at_once: AtomicUsize,
    most_at_once: AtomicUsize,
    connections: AtomicUsize,
}

pub struct Server {
    pub address: SocketAddr,
    scheme: &'static str,
    shared: Arc<Shared>,
    accepting: AbortHandle,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl Server {
    /// Starts a server that answers after `delay`, over TLS if given.
    pub async fn start(tls: Option<Arc<Mutex<TlsAcceptor>>>, delay: Duration, handler: Handler) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared::default());
        let scheme = if tls.is_some() { "https" } else { "http" };
        let for_task = Arc::clone(&shared);
        let accepting = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                for_task.connections.fetch_add(1, Ordering::SeqCst);
                let (handler, shared) = (Arc::clone(&handler), Arc::clone(&for_task));
                let acceptor = tls.as_ref().map(|tls| tls.lock().unwrap().clone());
                connections.spawn(async move { connection(stream, acceptor, delay, &handler, &shared).await });
            }
        });
        Self {
            address,
            scheme,
            shared,
            accepting: accepting.abort_handle(),
        }
    }

    pub fn url(&self) -> String {
        format!("{}://{}", self.scheme, self.address)
    }

    pub fn requests(&self) -> Vec<Request> {
        self.shared.requests.lock().unwrap().clone()
    }

    pub fn count(&self, method: &str, path: &str) -> usize {
        self.requests()
            .iter()
            .filter(|request| request.is(method, path))
            .count()
    }

    pub fn most_at_once(&self) -> usize {
        self.shared.most_at_once.load(Ordering::SeqCst)
    }

    pub fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::SeqCst)
    }
}

async fn connection(
    stream: TcpStream,
    acceptor: Option<TlsAcceptor>,
    delay: Duration,
    handler: &Handler,
    shared: &Shared,
) {
    match acceptor {
        None => serve(stream, delay, handler, shared).await,
        Some(acceptor) => {
            if let Ok(stream) = acceptor.accept(stream).await {
                serve(stream, delay, handler, shared).await;
            }
        }
    }
}

async fn serve(mut stream: impl AsyncRead + AsyncWrite + Unpin, delay: Duration, handler: &Handler, shared: &Shared) {
    let mut buffer = Vec::new();
    while let Some(request) = read_request(&mut stream, &mut buffer).await {
        let now = shared.at_once.fetch_add(1, Ordering::SeqCst) + 1;
        shared.most_at_once.fetch_max(now, Ordering::SeqCst);
        shared.requests.lock().unwrap().push(request.clone());
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        let answer = handler(&request);
        shared.at_once.fetch_sub(1, Ordering::SeqCst);
        if !write_answer(&mut stream, answer).await {
            break;
        }
    }
    let _ = stream.shutdown().await;
}

async fn read_request(stream: &mut (impl AsyncRead + Unpin), buffer: &mut Vec<u8>) -> Option<Request> {
    let end = loop {
        if buffer.first() == Some(&0x16) {
            // A TLS handshake at a plain port: answered in plain text, as servers do.
            buffer.clear();
            let (method, path) = ("TLS".to_owned(), String::new());
            return Some(Request {
                method,
                path,
                headers: BTreeMap::new(),
                body: Value::Null,
                raw: Vec::new(),
            });
        }
        if let Some(end) = buffer.windows(4).position(|four| four == b"\r\n\r\n") {
            break end;
        }
        read_more(stream, buffer).await?;
    };
    let head = String::from_utf8(buffer[..end].to_vec()).ok()?;
    let mut lines = head.split("\r\n");
    let mut first = lines.next()?.split(' ');
    let (method, path) = (first.next()?.to_owned(), first.next()?.to_owned());
    let headers: BTreeMap<String, String> = lines
        .filter_map(|line| line.split_once(": "))
        .map(|(k, v)| (k.to_ascii_lowercase(), v.to_owned()))
        .collect();
    let length: usize = headers.get("content-length").map_or(0, |text| text.parse().unwrap());
    while buffer.len() < end + 4 + length {
        read_more(stream, buffer).await?;
    }
    let raw = buffer[end + 4..end + 4 + length].to_vec();
    let body = serde_json::from_slice(&raw).unwrap_or(Value::Null);
    buffer.drain(..end + 4 + length);
    Some(Request {
        method,
        path,
        headers,
        body,
        raw,
    })
}

async fn read_more(stream: &mut (impl AsyncRead + Unpin), buffer: &mut Vec<u8>) -> Option<()> {
    let mut chunk = [0; 4096];
    match stream.read(&mut chunk).await {
        Ok(n) if n > 0 => {
            buffer.extend_from_slice(&chunk[..n]);
            Some(())
        }
        _ => None,
    }
}

/// Returns whether the connection stays open.
async fn write_answer(stream: &mut (impl AsyncRead + AsyncWrite + Unpin), answer: Answer) -> bool {
    match answer {
        Answer::Full { status, headers, body } => {
            let mut head = format!("HTTP/1.1 {status} Scripted\r\n");
            for (name, value) in headers {
                head.push_str(&format!("{name}: {value}\r\n"));
            }
            if status != 204 {
                head.push_str(&format!("Content-Length: {}\r\n", body.len()));
            }
            head.push_str("\r\n");
            let mut bytes = head.into_bytes();
            bytes.extend_from_slice(&body);
            stream.write_all(&bytes).await.is_ok() && stream.flush().await.is_ok()
        }
        Answer::Raw(bytes) => {
            let _ = stream.write_all(&bytes).await;
            let _ = stream.flush().await;
            false
        }
        Answer::Drip(bytes, pause) => {
            while stream.write_all(&bytes).await.is_ok() && stream.flush().await.is_ok() {
                tokio::time::sleep(pause).await;
            }
            false
        }
        Answer::Pieces(body, count, pause) => {
            let head = format!(
                "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
                body.len()
            );
            let mut sent = stream.write_all(head.as_bytes()).await.is_ok();
            for piece in body.chunks(body.len().div_ceil(count as usize).max(1)) {
                tokio::time::sleep(pause).await;
                sent = sent && stream.write_all(piece).await.is_ok() && stream.flush().await.is_ok();
            }
            sent
        }
        Answer::WebSocket(accept) => {
            let head = format!(
                "HTTP/1.1 101 Switching\r\nConnection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: {accept}\r\n\r\n"
            );
            let _ = stream.write_all(head.as_bytes()).await;
            let _ = echo(stream).await;
            false
        }
        Answer::Hangup => false,
    }
}

async fn echo(stream: &mut (impl AsyncRead + AsyncWrite + Unpin)) -> Result<(), tungstenite::Error> {
    let mut socket = WebSocketStream::from_raw_socket(stream, Role::Server, None).await;
    socket.send(Message::binary(b"login: ".to_vec())).await?;
    socket.send(Message::Ping(b"there?".to_vec().into())).await?;
    while let Some(message) = socket.next().await {
        match message? {
            Message::Binary(bytes) if &bytes[..] == b"quit" => socket.close(None).await?,
            Message::Binary(bytes) => socket.send(Message::binary(bytes)).await?,
            Message::Pong(_) => socket.send(Message::text("(pong)")).await?,
            _ => {}
        }
    }
    Ok(())
}
