//! The image store over HTTPS: HTTP/1.1 with kept connections, for clients of the site.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rackwright_image::ChunkStore;
use rackwright_image::serve::{Body, Request, respond};
use tokio::fs::File;
use tokio::io::{
    AsyncBufRead, AsyncBufReadExt as _, AsyncReadExt as _, AsyncSeekExt as _, AsyncWriteExt as _, BufReader,
};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

/// Its name, for clients that check no addresses.
pub const NAME: &str = "store.example.net";
/// Path of the store.
pub const BASE: &str = "/store/v1";

/// A running store.
#[derive(Debug)]
pub struct Origin {
    pub url: String,
    chunk_bytes: Arc<AtomicU64>,
    task: JoinHandle<()>,
}

impl Drop for Origin {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Origin {
    pub fn start(listener: TcpListener, store: &ChunkStore, tls: Arc<rustls::ServerConfig>) -> io::Result<Self> {
        let url = format!("https://{}{BASE}", listener.local_addr()?);
        let chunk_bytes = Arc::<AtomicU64>::default();
        let (store, counted, acceptor) = (store.clone(), chunk_bytes.clone(), TlsAcceptor::from(tls));
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (store, counted, acceptor) = (store.clone(), counted.clone(), acceptor.clone());
                // A connection ends when its client does, also in the middle of an answer.
                tokio::spawn(async move { _ = connection(stream, &acceptor, &store, &counted).await });
            }
        });
        Ok(Self { url, chunk_bytes, task })
    }

    /// Bytes of chunks that were sent so far.
    pub fn chunk_bytes(&self) -> u64 {
        self.chunk_bytes.load(Ordering::Relaxed)
    }
}

#[derive(Default)]
struct Head {
    method: String,
    path: String,
    range: Option<String>,
    if_range: Option<String>,
}

/// Reads the head of a request. `None`: the client has gone.
async fn read_head(reader: &mut (impl AsyncBufRead + Unpin)) -> io::Result<Option<Head>> {
    let mut line = String::new();
    if reader.read_line(&mut line).await? == 0 {
        return Ok(None);
    }
    let mut words = line.split_whitespace().map(str::to_owned);
    let mut head = Head {
        method: words.next().unwrap_or_default(),
        path: words.next().unwrap_or_default(),
        ..Head::default()
    };
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).await?;
        let Some((name, value)) = line.trim_end().split_once(": ") else {
            return Ok(Some(head));
        };
        match name.to_ascii_lowercase().as_str() {
            "range" => head.range = Some(value.to_owned()),
            "if-range" => head.if_range = Some(value.to_owned()),
            _ => {}
        }
    }
}

async fn connection(
    stream: TcpStream,
    acceptor: &TlsAcceptor,
    store: &ChunkStore,
    counted: &AtomicU64,
) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut stream = BufReader::new(acceptor.accept(stream).await?);
    while let Some(head) = read_head(&mut stream).await? {
        let path = head.path.strip_prefix(BASE).unwrap_or_default();
        let request = Request {
            method: &head.method,
            path,
            range: head.range.as_deref(),
            if_range: head.if_range.as_deref(),
            if_none_match: None,
        };
        let response = respond(store, &request);
        let mut bytes = format!("HTTP/1.1 {} Answer\r\n", response.status).into_bytes();
        for (name, value) in &response.headers {
            bytes.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
        }
        bytes.extend_from_slice(b"\r\n");
        match response.body {
            Body::Empty => {}
            Body::Bytes(text) => bytes.extend_from_slice(&text),
            Body::File {
                path: file,
                offset,
                len,
            } => {
                let mut file = File::open(file).await?;
                file.seek(io::SeekFrom::Start(offset)).await?;
                file.take(len).read_to_end(&mut bytes).await?;
                if path.starts_with("/chunks/") {
                    counted.fetch_add(len, Ordering::Relaxed);
                }
            }
        }
        stream.write_all(&bytes).await?;
        stream.flush().await?;
    }
    Ok(())
}
