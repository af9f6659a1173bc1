//! The image store over HTTPS: whole chunks, ranges, and headers that a plain caching proxy understands. Agents'
//! certificates open it: an agent gets the index of the image that its node's claim names, and any chunk as long as the
//! node has a claim. A chunk's name is the digest of its content, and only who has the index knows it. Caching proxies
//! are members that the configuration names (`store.caches`); they get everything.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::Response;
use rackwright_identity::{ClientKind, identify};
use rackwright_image::serve::{self, Body as Answer};
use rackwright_lifecycle::{Timestamp, seconds};
use rackwright_store::{Scope, StoreError};
use tokio::io::{AsyncReadExt as _, AsyncSeekExt as _};
use tokio_rustls::server::TlsStream;
use tokio_util::io::ReaderStream;

use crate::clock;
use crate::core::Core;
use crate::tls;

/// Bytes read from a file at once.
const BUFFER: usize = 256 << 10;

/// A node that was seen to have a claim counts as claimed this long: thousands of chunks cost one look.
const CLAIMED_S: i64 = 5;

/// Who is at the other end.
#[derive(Debug)]
enum Who {
    /// The agent of a node.
    Agent(String),
    /// A caching proxy of ours: a member that the configuration names.
    Cache(String),
    /// Another member.
    Member(String),
    /// Anybody else.
    Stranger,
}

/// One connection and who is at its other end.
#[derive(Debug)]
struct Peer {
    core: Arc<Core>,
    who: Who,
    /// When the node was last seen to have a claim.
    claimed_at: Mutex<Timestamp>,
}

impl Peer {
    fn new(core: Arc<Core>, who: Who) -> Arc<Self> {
        Arc::new(Self {
            core,
            who,
            claimed_at: Mutex::default(),
        })
    }

    /// Whether whoever is there may have what lies at `path`, below the store's base.
    async fn may_read(&self, path: &str) -> Result<bool, StoreError> {
        let node = match &self.who {
            Who::Agent(node) => node,
            Who::Cache(_) => return Ok(true),
            Who::Member(_) | Who::Stranger => return Ok(false),
        };
        let image = path.strip_prefix("/images/");
        let now = clock::now();
        let seen = *self.claimed_at.lock().unwrap_or_else(PoisonError::into_inner);
        if image.is_none() && seen <= now && now < seen.plus(seconds(CLAIMED_S)) {
            return Ok(true);
        }
        let claim = match self.core.store.node(&Scope::Site, node).await {
            Ok(record) => record.node.claim,
            Err(StoreError::NotFound { .. }) => None,
            Err(error) => return Err(error),
        };
        if claim.is_some() {
            *self.claimed_at.lock().unwrap_or_else(PoisonError::into_inner) = now;
        }
        Ok(claim.is_some_and(|c| image.is_none_or(|digest| digest == c.image_digest)))
    }
}

/// Who is at the other end, by its certificate.
fn who<S>(core: &Core, stream: &TlsStream<S>) -> Who {
    let leaf = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
    let Some(identity) = leaf.and_then(|leaf| identify(leaf).ok()) else {
        return Who::Stranger;
    };
    match identity.kind {
        ClientKind::Agent { .. } => Who::Agent(identity.common_name),
        ClientKind::Member if core.config.store_caches.contains(&identity.common_name) => {
            Who::Cache(identity.common_name)
        }
        ClientKind::Member => Who::Member(identity.common_name),
    }
}

/// The routes: `/store/v1/images/{digest}`, `/store/v1/chunks/{digest}`, and `/metrics` for members.
fn router(peer: Arc<Peer>) -> Router {
    Router::new()
        .route("/metrics", axum::routing::get(metrics))
        .route("/store/v1/{*path}", axum::routing::any(respond))
        .with_state(peer)
}

/// Serves until the core stops.
pub async fn run(core: Arc<Core>, listener: tokio::net::TcpListener, tls: Arc<rustls::ServerConfig>) {
    let mut connections = tls::accept(listener, tls, core.stop.clone());
    while let Some(stream) = connections.recv().await {
        let peer = Peer::new(core.clone(), who(&core, &stream));
        let service = hyper_util::service::TowerToHyperService::new(router(peer));
        let stop = core.stop.clone();
        tokio::spawn(async move {
            let io = hyper_util::rt::TokioIo::new(stream);
            let builder = hyper_util::server::conn::auto::Builder::new(hyper_util::rt::TokioExecutor::new());
            tokio::select! {
                () = stop.cancelled() => {}
                served = builder.serve_connection(io, service) => if let Err(error) = served {
                    tracing::debug!(%error, "an image connection broke");
                }
            }
        });
    }
}

async fn respond(State(peer): State<Arc<Peer>>, request: Request) -> Response {
    let method = request.method().as_str().to_owned();
    let path = request
        .uri()
        .path()
        .strip_prefix("/store/v1")
        .unwrap_or_default()
        .to_owned();
    match peer.may_read(&path).await {
        Ok(true) => {}
        Ok(false) => return plain(StatusCode::FORBIDDEN),
        Err(error) => {
            tracing::error!(%error, "whether an agent may have an image could not be read");
            return plain(StatusCode::SERVICE_UNAVAILABLE);
        }
    }
    let headers = request.headers().clone();
    let worker = peer.core.clone();
    let answer = tokio::task::spawn_blocking(move || {
        let text = |name: header::HeaderName| value(&headers, &name);
        let (range, if_range) = (text(header::RANGE), text(header::IF_RANGE));
        let if_none_match = text(header::IF_NONE_MATCH);
        let request = serve::Request {
            method: &method,
            path: &path,
            range: range.as_deref(),
            if_range: if_range.as_deref(),
            if_none_match: if_none_match.as_deref(),
        };
        serve::respond(&worker.chunks, &request)
    })
    .await;
    match answer {
        Ok(answer) => {
            let length = match &answer.body {
                Answer::Empty => 0,
                Answer::Bytes(bytes) => bytes.len() as u64,
                Answer::File { len, .. } => *len,
            };
            peer.core.metrics.image_answered(answer.status, length);
            send(answer).await
        }
        Err(_) => plain(StatusCode::INTERNAL_SERVER_ERROR),
    }
}

/// What Prometheus asks for. Any member of the site may read it: it names no node, but it counts what customers have.
async fn metrics(State(peer): State<Arc<Peer>>) -> Response {
    let (Who::Member(name) | Who::Cache(name)) = &peer.who else {
        return plain(StatusCode::FORBIDDEN);
    };
    let told = async {
        match peer.core.store.member(name).await? {
            Some(row) if row.customer.is_empty() => crate::metrics::scrape(&peer.core).await.map(Some),
            _ => Ok(None),
        }
    };
    let told: Result<Option<String>, StoreError> = told.await;
    match told {
        Ok(Some(text)) => {
            let kind = HeaderValue::from_static(crate::metrics::CONTENT_TYPE);
            let mut response = Response::new(Body::from(text));
            response.headers_mut().insert(header::CONTENT_TYPE, kind);
            response
        }
        Ok(None) => plain(StatusCode::FORBIDDEN),
        Err(error) => {
            tracing::error!(%error, "the metrics could not be read");
            plain(StatusCode::SERVICE_UNAVAILABLE)
        }
    }
}

fn value(headers: &HeaderMap, name: &header::HeaderName) -> Option<String> {
    headers.get(name).and_then(|v| v.to_str().ok()).map(str::to_owned)
}

fn plain(status: StatusCode) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    // What one is refused, a cache must not refuse to others.
    let no_store = HeaderValue::from_static("no-store");
    response.headers_mut().insert(header::CACHE_CONTROL, no_store);
    response
}

async fn send(answer: serve::Response) -> Response {
    let body = match answer.body {
        Answer::Empty => Body::empty(),
        Answer::Bytes(bytes) => Body::from(bytes),
        Answer::File { path, offset, len } => match file_part(&path, offset, len).await {
            Ok(body) => body,
            Err(error) => {
                tracing::error!(path = %path.display(), %error, "a stored chunk cannot be read");
                return plain(StatusCode::INTERNAL_SERVER_ERROR);
            }
        },
    };
    let mut builder = Response::builder().status(answer.status);
    for (name, value) in answer.headers {
        builder = builder.header(name, value);
    }
    builder
        .body(body)
        .unwrap_or_else(|_| plain(StatusCode::INTERNAL_SERVER_ERROR))
}

async fn file_part(path: &std::path::Path, offset: u64, len: u64) -> std::io::Result<Body> {
    let mut file = tokio::fs::File::open(path).await?;
    file.seek(std::io::SeekFrom::Start(offset)).await?;
    Ok(Body::from_stream(ReaderStream::with_capacity(file.take(len), BUFFER)))
}

/// Listens, or says which address could not be had.
///
/// # Errors
/// The address is taken or not ours.
pub async fn bind(at: SocketAddr, what: &str) -> Result<tokio::net::TcpListener, String> {
    tokio::net::TcpListener::bind(at)
        .await
        .map_err(|e| format!("{what} cannot listen on {at}: {e}"))
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use rackwright_identity::{ClientAuth, ClientIdentity, ServerCertificate, client_config, server_config};
    use rackwright_lifecycle::State as Stage;
    use rustls_pki_types::pem::PemObject as _;
    use rustls_pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName};
    use tokio::io::AsyncWriteExt as _;
    use tokio::net::{TcpListener, TcpStream};

    use super::*;
    use crate::testing;

    const HOUR: Duration = Duration::from_secs(3600);

    fn digest(digit: &str) -> String {
        format!("b3-{}", digit.repeat(64))
    }

    fn tls(core: &Core) -> Arc<rustls::ServerConfig> {
        let names = ["localhost".to_owned()];
        let issued = core
            .keys
            .authority
            .issue_server(&names, SystemTime::now(), HOUR)
            .unwrap();
        let certificate = ServerCertificate::new(issued).unwrap();
        server_config(certificate, core.keys.authority.ca_der(), ClientAuth::Required).unwrap()
    }

    /// The status line and headers that `identity` is answered with.
    async fn ask(core: &Core, at: SocketAddr, identity: ClientIdentity, path: &str) -> String {
        let key = rcgen::KeyPair::generate().unwrap();
        let csr = rcgen::CertificateParams::default().serialize_request(&key).unwrap();
        let csr = csr.pem().unwrap();
        let issued = core
            .keys
            .authority
            .issue_client(&csr, &identity, SystemTime::now(), HOUR)
            .unwrap();
        let chain = CertificateDer::pem_slice_iter(issued.chain_pem.as_bytes());
        let chain: Vec<_> = chain.collect::<Result<_, _>>().unwrap();
        let key = PrivatePkcs8KeyDer::from(key.serialize_der()).into();
        let mut config = (*client_config(core.keys.authority.ca_der(), Some((chain, key))).unwrap()).clone();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let stream = TcpStream::connect(at).await.unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
        let mut stream = connector.connect(name, stream).await.unwrap();
        let request = format!("GET /store/v1/{path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        // The server may end without a TLS goodbye.
        let _ = stream.read_to_end(&mut answer).await;
        String::from_utf8_lossy(&answer).into_owned()
    }

    #[tokio::test]
    async fn agents_read_what_their_claim_needs_and_caches_everything() {
        let core = testing::core().await;
        testing::add(&core, &testing::node("n1", Stage::Imaging, Some(&digest("1")))).await;
        testing::add(&core, &testing::node("n2", Stage::Inspecting, None)).await;
        for name in [digest("1"), digest("2")] {
            std::fs::write(core.chunks.root().join("images").join(name), "an index").unwrap();
        }
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        let serving = tokio::spawn(run(core.clone(), listener, tls(&core)));
        let (mine, other) = (format!("images/{}", digest("1")), format!("images/{}", digest("2")));
        let chunk = format!("chunks/{}", "3".repeat(64));
        for (who, path, status) in [
            (ClientIdentity::member("operator"), &mine, 403),
            (ClientIdentity::member("n1"), &mine, 403),
            (ClientIdentity::member("operator"), &chunk, 403),
            (ClientIdentity::member("cache-1"), &other, 200),
            (ClientIdentity::agent("cache-1", 0), &other, 403),
            (ClientIdentity::agent("n1", 0), &mine, 200),
            (ClientIdentity::agent("n1", 0), &other, 403),
            // Not there, but it was looked for.
            (ClientIdentity::agent("n1", 0), &chunk, 404),
            (ClientIdentity::agent("n2", 0), &mine, 403),
            (ClientIdentity::agent("n2", 0), &chunk, 403),
            (ClientIdentity::agent("forgotten", 0), &chunk, 403),
        ] {
            let who = who.unwrap();
            let answer = ask(&core, at, who.clone(), path).await;
            assert!(
                answer.starts_with(&format!("HTTP/1.1 {status} ")),
                "{who} {path}: {answer}"
            );
            let is_kept = answer.contains("cache-control: public, max-age=31536000, immutable");
            assert_eq!(is_kept, status == 200, "{who} {path}: {answer}");
        }
        serving.abort();
    }

    #[tokio::test]
    async fn an_index_is_looked_up_anew_and_chunks_are_not() {
        let core = testing::core().await;
        testing::add(&core, &testing::node("n1", Stage::Imaging, Some(&digest("1")))).await;
        let peer = Peer::new(core.clone(), Who::Agent("n1".into()));
        let (first, next) = (format!("/images/{}", digest("1")), format!("/images/{}", digest("2")));
        assert!(peer.may_read(&first).await.unwrap() && !peer.may_read(&next).await.unwrap());
        let mut tx = core.store.write().await.unwrap();
        let mut record = tx.node("n1").await.unwrap();
        record.node.claim.as_mut().unwrap().image_digest = digest("2");
        tx.save_node(&mut record, clock::now()).await.unwrap();
        tx.commit().await.unwrap();
        assert!(!peer.may_read(&first).await.unwrap() && peer.may_read(&next).await.unwrap());
        core.store.close().await;
        assert!(peer.may_read("/chunks/some").await.unwrap(), "the database was asked");
        assert!(peer.may_read(&next).await.is_err());
    }
}
