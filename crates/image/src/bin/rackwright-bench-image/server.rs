//! A plain file server for all methods under test: threads, kept connections, sendfile. The library answers for its own
//! objects; the other files are served by their names. Ends with its standard input, so it never outlives its parent.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;

use rackwright_image::ChunkStore;
use rackwright_image::serve::{Body, Request, Response, respond};

use crate::Failure;
use crate::arguments::Arguments;

struct Shared {
    store: ChunkStore,
    files: PathBuf,
}

/// Prints the base URL and serves.
pub(crate) fn serve(arguments: &Arguments) -> Result<(), Failure> {
    let store = ChunkStore::open(arguments.path("--store")?)?;
    let shared = Arc::new(Shared {
        store,
        files: arguments.path("--files")?,
    });
    let listener = TcpListener::bind("127.0.0.1:0")?;
    println!("http://{}", listener.local_addr()?);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let shared = Arc::clone(&shared);
            // A client that disconnects early is not an error.
            thread::spawn(move || shared.connection(stream));
        }
    });
    io::copy(&mut io::stdin(), &mut io::sink())?;
    Ok(())
}

impl Shared {
    fn connection(&self, stream: TcpStream) -> io::Result<()> {
        stream.set_nodelay(true)?;
        let mut reader = BufReader::new(stream);
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line)? == 0 {
                return Ok(());
            }
            let mut words = line.split_whitespace();
            let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
            let mut range = None;
            loop {
                let mut header = String::new();
                reader.read_line(&mut header)?;
                match header.trim_end().split_once(": ") {
                    Some((name, value)) if name.eq_ignore_ascii_case("range") => range = Some(value.to_owned()),
                    Some(_) => {}
                    None => break,
                }
            }
            let request = Request {
                method,
                path,
                range: range.as_deref(),
                ..Request::default()
            };
            let response = match path.strip_prefix("/files/").filter(|name| !name.contains('/')) {
                Some(name) => self.file(name, method),
                None => respond(&self.store, &request),
            };
            send(response, reader.get_mut())?;
        }
    }

    fn file(&self, name: &str, method: &str) -> Response {
        let path = self.files.join(name);
        let Ok(metadata) = path.metadata() else {
            let headers = vec![("content-length", "0".to_owned())];
            return Response {
                status: 404,
                headers,
                body: Body::Empty,
            };
        };
        let headers = vec![("content-length", metadata.len().to_string())];
        let body = match method {
            "GET" => Body::File {
                path,
                offset: 0,
                len: metadata.len(),
            },
            _ => Body::Empty,
        };
        Response {
            status: 200,
            headers,
            body,
        }
    }
}

fn send(response: Response, stream: &mut TcpStream) -> io::Result<()> {
    let mut head = format!("HTTP/1.1 {} OK\r\n", response.status);
    for (name, value) in &response.headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str("\r\n");
    stream.write_all(head.as_bytes())?;
    match response.body {
        Body::Empty => Ok(()),
        Body::Bytes(bytes) => stream.write_all(&bytes),
        Body::File { path, offset, len } => {
            let mut file = File::open(path)?;
            file.seek(SeekFrom::Start(offset))?;
            // The standard library uses sendfile here.
            io::copy(&mut file.take(len), stream).map(|_| ())
        }
    }
}
