//! Serves a recorded BMC: a folder of `redfish/v1/.../index.json`, as `rackwright bmc record` and DMTF's tools write it.
//! Read-only: sessions can be opened and closed with any name and password, and all other changes are refused.

use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper_util::rt::{TokioIo, TokioTimer};
use rackwright_sim_bmc::{BmcError, Identity, WAIT_LIMIT};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io::Read as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsAcceptor;

/// Most resources of a recording.
const MAX_RESOURCES: usize = 100_000;
/// Largest resource, in bytes.
const MAX_BYTES: u64 = 16 << 20;
/// Most concurrent connections; further ones are dropped.
const CONNECTIONS: usize = 32;

/// Why a recording is not served.
#[derive(Debug, thiserror::Error)]
pub enum MockupError {
    /// A file or folder cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The path of the file or folder.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// There is no service root.
    #[error("{} holds no recording: neither redfish/v1/index.json nor index.json is a resource", path.display())]
    NoRoot {
        /// The folder.
        path: PathBuf,
    },
    /// It has more resources than any BMC.
    #[error("{} holds more than {MAX_RESOURCES} resources", path.display())]
    TooMany {
        /// The folder.
        path: PathBuf,
    },
    /// The socket could not be opened.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address to listen on.
        address: SocketAddr,
        /// The cause.
        source: std::io::Error,
    },
    /// The certificate could not be made.
    #[error(transparent)]
    Tls(#[from] BmcError),
}

/// The resources of a recording, by path in lower case: links and files differ in letter case on some BMCs.
#[derive(Debug, Default)]
pub struct Tree {
    resources: BTreeMap<String, Bytes>,
    sessions: Option<String>,
}

impl Tree {
    /// Reads a folder. A file that is not JSON is left out and answers 404.
    ///
    /// # Errors
    /// [`MockupError::Read`], [`MockupError::NoRoot`], [`MockupError::TooMany`].
    pub fn read(folder: &Path) -> Result<Self, MockupError> {
        let below = folder.join("redfish").join("v1");
        let base = if below.is_dir() { below } else { folder.to_owned() };
        let mut tree = Self::default();
        let mut open = vec![base.clone()];
        while let Some(folder) = open.pop() {
            let failed = |source| MockupError::Read {
                path: folder.clone(),
                source,
            };
            for entry in std::fs::read_dir(&folder).map_err(failed)? {
                let entry = entry.map_err(failed)?;
                // Symbolic links are not followed: a recording may come from an untrusted source.
                let kind = entry.file_type().map_err(failed)?;
                if kind.is_dir() {
                    open.push(entry.path());
                } else if kind.is_file() && entry.file_name() == "index.json" {
                    tree.add(&base, &entry.path())?;
                }
            }
            if tree.resources.len() > MAX_RESOURCES {
                return Err(MockupError::TooMany { path: base });
            }
        }
        let root = tree.resources.get("/redfish/v1");
        let root: Option<Value> = root.and_then(|body| serde_json::from_slice(body).ok());
        let Some(root) = root else {
            return Err(MockupError::NoRoot {
                path: folder.to_owned(),
            });
        };
        tree.sessions = root
            .pointer("/Links/Sessions/@odata.id")
            .and_then(Value::as_str)
            .map(key);
        Ok(tree)
    }

    fn add(&mut self, base: &Path, file: &Path) -> Result<(), MockupError> {
        let failed = |source| MockupError::Read {
            path: file.to_owned(),
            source,
        };
        let mut bytes = Vec::new();
        let open = std::fs::File::open(file).map_err(failed)?;
        open.take(MAX_BYTES).read_to_end(&mut bytes).map_err(failed)?;
        let folder = file.parent().and_then(|folder| folder.strip_prefix(base).ok());
        let relative = folder
            .map(|folder| folder.to_string_lossy().into_owned())
            .unwrap_or_default();
        if serde_json::from_slice::<Value>(&bytes).is_ok() {
            self.resources
                .insert(key(&format!("/redfish/v1/{relative}")), bytes.into());
        }
        Ok(())
    }

    /// The number of resources.
    pub fn len(&self) -> usize {
        self.resources.len()
    }

    /// Whether there are no resources.
    pub fn is_empty(&self) -> bool {
        self.resources.is_empty()
    }

    fn answer(&self, method: &Method, path: &str) -> Response<Full<Bytes>> {
        let path = key(path);
        let is_session = |sessions: &String| {
            path.strip_prefix(sessions.as_str())
                .is_some_and(|rest| rest.starts_with('/'))
        };
        match *method {
            Method::GET | Method::HEAD => match self.resources.get(&path) {
                Some(body) => reply(StatusCode::OK, body.clone()),
                None => fault(
                    StatusCode::NOT_FOUND,
                    "Base.1.13.ResourceMissingAtURI",
                    "it was not recorded",
                ),
            },
            Method::POST if self.sessions.as_ref() == Some(&path) => {
                let mut response = reply(StatusCode::CREATED, json!({"Id": "1", "Name": "Session"}).to_string());
                let headers = response.headers_mut();
                headers.insert("x-auth-token", HeaderValue::from_static("recorded"));
                if let Ok(location) = HeaderValue::from_str(&format!("{path}/1")) {
                    headers.insert(header::LOCATION, location);
                }
                response
            }
            Method::DELETE if self.sessions.as_ref().is_some_and(is_session) => {
                let mut response = reply(StatusCode::NO_CONTENT, Bytes::new());
                response.headers_mut().remove(header::CONTENT_TYPE);
                response
            }
            _ => fault(
                StatusCode::METHOD_NOT_ALLOWED,
                "Base.1.13.OperationNotAllowed",
                "a recording cannot be changed",
            ),
        }
    }
}

fn key(path: &str) -> String {
    path.trim_end_matches('/').to_lowercase()
}

fn reply(status: StatusCode, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}

fn fault(status: StatusCode, id: &str, words: &str) -> Response<Full<Bytes>> {
    let info = json!([{"MessageId": id, "Message": words}]);
    let body = json!({"error": {"code": id, "message": words, "@Message.ExtendedInfo": info}});
    reply(status, body.to_string())
}

/// A recorded BMC, listening until it is dropped.
#[derive(Debug)]
pub struct Mockup {
    url: String,
    fingerprint: Option<String>,
    accepting: JoinHandle<()>,
}

impl Mockup {
    /// Listens on an address, with a certificate made for it unless `tls` is false.
    ///
    /// # Errors
    /// [`MockupError::Listen`] and [`MockupError::Tls`].
    pub async fn start(tree: Tree, address: SocketAddr, tls: bool) -> Result<Self, MockupError> {
        let failed = |source| MockupError::Listen { address, source };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let local = listener.local_addr().map_err(failed)?;
        let name = match local.ip() {
            IpAddr::V4(address) => address,
            IpAddr::V6(_) => Ipv4Addr::LOCALHOST,
        };
        let (scheme, fingerprint, acceptor) = if tls {
            let identity = Identity::new("mockup", name)?;
            let fingerprint = identity.fingerprint.clone();
            ("https", Some(fingerprint), Some(identity.acceptor("mockup")?))
        } else {
            ("http", None, None)
        };
        let accepting = tokio::spawn(accept(listener, acceptor, Arc::new(tree)));
        Ok(Self {
            url: format!("{scheme}://{local}"),
            fingerprint,
            accepting,
        })
    }

    /// The service's URL.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// `sha256:` and the digest of its certificate; none over plain HTTP.
    pub fn fingerprint(&self) -> Option<&str> {
        self.fingerprint.as_deref()
    }

    /// Stops listening. After the return its address is free; after a mere drop the address becomes free a little later.
    pub async fn stop(mut self) {
        self.accepting.abort();
        let _ = (&mut self.accepting).await;
    }
}

impl Drop for Mockup {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(listener: TcpListener, tls: Option<TlsAcceptor>, tree: Arc<Tree>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) if connections.len() < CONNECTIONS => {
                    connections.spawn(connection(stream, tls.clone(), Arc::clone(&tree)));
                }
                Ok(_) => tracing::warn!("too many connections to the recorded BMC"),
                Err(error) => tracing::warn!(%error, "connection to the recorded BMC lost"),
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn connection(stream: TcpStream, tls: Option<TlsAcceptor>, tree: Arc<Tree>) {
    let _ = stream.set_nodelay(true);
    match tls {
        None => serve(stream, tree).await,
        Some(tls) => {
            if let Ok(Ok(stream)) = tokio::time::timeout(WAIT_LIMIT, tls.accept(stream)).await {
                serve(stream, tree).await;
            }
        }
    }
}

async fn serve(stream: impl AsyncRead + AsyncWrite + Unpin, tree: Arc<Tree>) {
    let service = hyper::service::service_fn(move |request: Request<Incoming>| {
        let response = tree.answer(request.method(), request.uri().path());
        async move { Ok::<_, Infallible>(response) }
    });
    let served = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(WAIT_LIMIT)
        .serve_connection(TokioIo::new(stream), service)
        .await;
    if let Err(error) = served {
        tracing::debug!(%error, "connection to the recorded BMC ended");
    }
}
