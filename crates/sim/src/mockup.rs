//! Serves a recorded BMC, read-only: sessions can be opened and closed with any name and password, and all other changes are
//! refused.

use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper_util::rt::{TokioIo, TokioTimer};
use rackwright_redfish_mockup::{ReadError, key};
use rackwright_sim_bmc::{BmcError, Identity, WAIT_LIMIT};
use serde_json::json;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsAcceptor;

/// Most concurrent connections; further ones are dropped.
const CONNECTIONS: usize = 32;

/// Why a recording is not served.
#[derive(Debug, thiserror::Error)]
pub enum MockupError {
    /// The recording cannot be read.
    #[error(transparent)]
    Recording(#[from] ReadError),
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

/// The resources of a recording.
#[derive(Debug)]
pub struct Tree {
    resources: BTreeMap<String, Bytes>,
    sessions: Option<String>,
}

impl Tree {
    /// Reads a folder or a file; see [`rackwright_redfish_mockup::read`].
    ///
    /// # Errors
    /// [`MockupError::Recording`].
    pub fn read(path: &Path) -> Result<Self, MockupError> {
        let resources = rackwright_redfish_mockup::read(path)?;
        let root = resources.get("/redfish/v1");
        let sessions = root.and_then(|root| root.pointer("/Links/Sessions/@odata.id")?.as_str());
        Ok(Self {
            sessions: sessions.map(key),
            resources: resources
                .into_iter()
                .map(|(path, body)| (path, Bytes::from(body.to_string())))
                .collect(),
        })
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
