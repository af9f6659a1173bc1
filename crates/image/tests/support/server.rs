//! A server over a store that misbehaves on request.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use rackwright_image::ChunkStore;
use rackwright_image::serve::{Body, Request, Response, respond};

/// The server's change to an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    None,
    /// Closes the connection after this many bytes of the body.
    CutAfter(u64),
    /// Flips a bit of the last byte.
    Corrupt,
    /// Answers with this status and no content.
    Status(u16),
    /// Sends the headers and half the body, then stalls.
    Stall,
    /// States and sends more bytes than the store has.
    TooLong,
}

/// Decides by the path and the request's number (from 0) for that path.
pub type Plan = dyn Fn(&str, usize) -> Fault + Send + Sync;

pub struct Server {
    pub address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    store: ChunkStore,
    plan: Box<Plan>,
    tls: Option<Arc<rustls::ServerConfig>>,
    requests: Mutex<Vec<(String, Option<String>)>>,
    connections: AtomicUsize,
    stop: AtomicBool,
}

trait Stream: Read + Write {
    fn cut(&self);
}

impl Stream for TcpStream {
    fn cut(&self) {
        let _ = self.shutdown(Shutdown::Both);
    }
}

impl Stream for rustls::StreamOwned<rustls::ServerConnection, TcpStream> {
    fn cut(&self) {
        let _ = self.sock.shutdown(Shutdown::Both);
    }
}

impl Server {
    pub fn start(store: &ChunkStore, plan: impl Fn(&str, usize) -> Fault + Send + Sync + 'static) -> Self {
        Self::start_with(store, Box::new(plan), None)
    }

    pub fn start_with(store: &ChunkStore, plan: Box<Plan>, tls: Option<Arc<rustls::ServerConfig>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            store: store.clone(),
            plan,
            tls,
            requests: Mutex::default(),
            connections: AtomicUsize::new(0),
            stop: AtomicBool::new(false),
        });
        let accepting = Arc::clone(&shared);
        thread::spawn(move || {
            for stream in listener.incoming() {
                if accepting.stop.load(Ordering::Relaxed) {
                    return;
                }
                let shared = Arc::clone(&accepting);
                thread::spawn(move || shared.connection(stream.unwrap()));
            }
        });
        Self { address, shared }
    }

    pub fn url(&self) -> String {
        let scheme = if self.shared.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{}/store/v1", self.address)
    }

    /// Paths and `Range` headers requested so far.
    pub fn requests(&self) -> Vec<(String, Option<String>)> {
        self.shared.requests.lock().unwrap().clone()
    }

    pub fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::Relaxed)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(self.address);
    }
}

#[derive(Default)]
struct Head {
    method: String,
    path: String,
    range: Option<String>,
    if_range: Option<String>,
}

fn read_head(reader: &mut dyn BufRead) -> io::Result<Option<Head>> {
    let mut line = String::new();
    if reader.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let mut words = line.split_whitespace();
    let mut next = || words.next().unwrap_or_default().to_owned();
    let mut head = Head {
        method: next(),
        path: next(),
        ..Head::default()
    };
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
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

impl Shared {
    fn connection(&self, stream: TcpStream) {
        self.connections.fetch_add(1, Ordering::Relaxed);
        let stream: Box<dyn Stream> = match &self.tls {
            None => Box::new(stream),
            Some(config) => {
                let connection = rustls::ServerConnection::new(Arc::clone(config)).unwrap();
                Box::new(rustls::StreamOwned::new(connection, stream))
            }
        };
        // Errors of the connection do not matter here.
        let _ = self.serve(&mut BufReader::new(stream));
    }

    fn serve(&self, reader: &mut BufReader<Box<dyn Stream>>) -> io::Result<()> {
        while let Some(head) = read_head(reader)? {
            let path = head.path.strip_prefix("/store/v1").unwrap_or_default().to_owned();
            let number = {
                let mut requests = self.requests.lock().unwrap();
                let number = requests.iter().filter(|(seen, _)| *seen == path).count();
                requests.push((path.clone(), head.range.clone()));
                number
            };
            let request = Request {
                method: &head.method,
                path: &path,
                range: head.range.as_deref(),
                if_range: head.if_range.as_deref(),
                if_none_match: None,
            };
            let response = respond(&self.store, &request);
            if !answer(&response, (self.plan)(&path, number), reader.get_mut().as_mut())? {
                reader.get_ref().cut();
                return Ok(());
            }
        }
        Ok(())
    }
}

/// Returns whether the connection stays open.
fn answer(response: &Response, fault: Fault, stream: &mut dyn Stream) -> io::Result<bool> {
    if let Fault::Status(status) = fault {
        write!(stream, "HTTP/1.1 {status} Harm\r\ncontent-length: 0\r\n\r\n")?;
        stream.flush()?;
        return Ok(true);
    }
    let mut body = match &response.body {
        Body::Empty => Vec::new(),
        Body::Bytes(bytes) => bytes.clone(),
        Body::File { path, offset, len } => {
            let mut bytes = vec![0; *len as usize];
            File::open(path)?.read_exact_at(&mut bytes, *offset)?;
            bytes
        }
    };
    match fault {
        Fault::Corrupt => *body.last_mut().unwrap() ^= 0x10,
        Fault::TooLong => {
            // Not by `resize`, which goes byte by byte in a development build and takes longer than the client waits.
            let mut long = vec![7; 400 << 20];
            long[..body.len()].copy_from_slice(&body);
            body = long;
        }
        _ => {}
    }
    write!(stream, "HTTP/1.1 {} Answer\r\n", response.status)?;
    for (name, value) in &response.headers {
        if *name != "content-length" {
            write!(stream, "{name}: {value}\r\n")?;
        }
    }
    write!(stream, "content-length: {}\r\n\r\n", body.len())?;
    let (part, stays) = match fault {
        Fault::CutAfter(count) => (body.len().min(count as usize), false),
        Fault::Stall => (body.len() / 2, false),
        _ => (body.len(), true),
    };
    stream.write_all(&body[..part])?;
    stream.flush()?;
    if fault == Fault::Stall {
        // Longer than the client's time limit, which the test sets to a fraction of this.
        thread::sleep(Duration::from_secs(20));
    }
    Ok(stays)
}
