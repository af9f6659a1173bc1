//! The image store over HTTPS: whole chunks, ranges, and headers that a plain caching proxy understands. An agent that
//! registered in the present boot of a node being imaged gets the index of the image in the node's claim, and any chunk. A
//! chunk's name is the digest of its content, so only a holder of the index knows it. Caching proxies are members that the
//! configuration names (`store.caches`); they get everything. A connection ends with the rights of its member or its agent,
//! also in the middle of an answer.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::Response;
use rackwright_api::v1::Role;
use rackwright_ground::api_error::ApiError;
use rackwright_ground::clock;
use rackwright_ground::core::Core;
use rackwright_ground::rights::{self, Grant};
use rackwright_ground::rights::{Caller, end_of};
use rackwright_ground::tls::{self, Accepted};
use rackwright_identity::{ClientIdentity, ClientKind};
use rackwright_image::serve::{self, Body as Answer};
use rackwright_lifecycle::{NodeId, Timestamp, seconds};
use rackwright_nodes::agent_boot;
use rackwright_store::{AgentSession, StoreError};
use rustls::pki_types::CertificateDer;
use tokio::io::{AsyncReadExt as _, AsyncSeekExt as _};
use tokio_util::io::ReaderStream;

/// Bytes read from a file at once.
const BUFFER: usize = 256 << 10;

/// Concurrent requests on a connection.
const REQUESTS: u32 = 64;
/// Largest request headers, in bytes.
const HEADERS: u32 = 16 << 10;
/// Most bytes that a connection buffers before it reads them.
const HEADERS_MAX: usize = 64 << 10;

/// How long a verified right of an agent to an image stays valid without another read: thousands of chunks cost one read of
/// the database.
const ALLOWED_S: i64 = 5;
/// Time between two looks at the right of an agent with an open connection. A change by this process is seen at once.
const LOOK: Duration = Duration::from_secs(4);

/// The peer of a connection.
#[derive(Debug)]
enum PeerKind {
    /// The agent of a node, with the claim generation and the boot that its certificate names.
    Agent(NodeId, AgentSession),
    /// A caching proxy: a member that the configuration names.
    Cache(Holder),
    /// Another member.
    Member(Holder),
    /// No certificate, or one that does not name a known kind of peer.
    Stranger,
}

/// The member in a certificate.
#[derive(Debug)]
struct Holder {
    name: String,
    epoch: u64,
    /// Ends the connection together with the member's rights.
    grant: Grant,
}

/// One connection and its peer.
#[derive(Debug)]
struct Peer {
    core: Arc<Core>,
    peer_kind: PeerKind,
    /// When the agent's right to an image was last verified.
    allowed_at: Mutex<Timestamp>,
}

impl Peer {
    fn new(core: Arc<Core>, peer_kind: PeerKind) -> Arc<Self> {
        Arc::new(Self {
            core,
            peer_kind,
            allowed_at: Mutex::default(),
        })
    }

    /// The member's present record. `None`: the member is gone, or the certificate is of another epoch.
    async fn caller(&self, holder: &Holder) -> Result<Option<Caller>, StoreError> {
        match rights::admit(&self.core, &holder.name, holder.epoch, &holder.grant).await {
            Ok(caller) => Ok(Some(caller)),
            Err(ApiError::Store(error)) => Err(error),
            Err(_) => Ok(None),
        }
    }

    /// The grant of the connection; agents and strangers have none.
    fn grant(&self) -> Option<&Grant> {
        match &self.peer_kind {
            PeerKind::Cache(holder) | PeerKind::Member(holder) => Some(&holder.grant),
            PeerKind::Agent(..) | PeerKind::Stranger => None,
        }
    }

    /// Waits until an agent that could read an image no longer may: its claim, its state or its boot is over. Other peers
    /// wait for ever. This looks again when this process ends a session of the agent, and after each `pause`: another process
    /// stores its changes without a word here, and an agent's stream may be broken at that moment.
    async fn lost_right(&self, pause: Duration) {
        let PeerKind::Agent(node, of) = &self.peer_kind else {
            return std::future::pending().await;
        };
        loop {
            let end = self.core.agents.next_end(node);
            tokio::select! {
                () = end.cancelled() => {}
                () = tokio::time::sleep(pause) => {}
            }
            let allowed_at = || self.allowed_at.lock().unwrap_or_else(PoisonError::into_inner);
            if *allowed_at() == Timestamp::default() {
                continue;
            }
            let now = clock::now();
            match agent_boot::readable_image(&self.core.store, node, of).await {
                Ok(Some(_)) => *allowed_at() = now,
                Ok(None) => return,
                // Requests are refused as long as the database cannot be read.
                Err(error) => tracing::warn!(node = node.as_str(), %error, "the right of an agent cannot be read"),
            }
        }
    }

    /// Whether the peer may read `path`, which lies below the store's base.
    async fn may_read(&self, path: &str) -> Result<bool, StoreError> {
        let (node, of) = match &self.peer_kind {
            PeerKind::Agent(node, of) => (node, of),
            PeerKind::Cache(holder) => {
                let caller = self.caller(holder).await?;
                return Ok(caller.is_some_and(|caller| caller.role != Role::Auditor));
            }
            PeerKind::Member(_) | PeerKind::Stranger => return Ok(false),
        };
        let image = path.strip_prefix("/images/");
        let now = clock::now();
        let seen = *self.allowed_at.lock().unwrap_or_else(PoisonError::into_inner);
        if image.is_none() && seen <= now && now < seen.plus(seconds(ALLOWED_S)) {
            return Ok(true);
        }
        let readable = agent_boot::readable_image(&self.core.store, node, of).await?;
        if readable.is_some() {
            *self.allowed_at.lock().unwrap_or_else(PoisonError::into_inner) = now;
        }
        Ok(readable.is_some_and(|readable| image.is_none_or(|digest| digest == readable)))
    }
}

/// The peer that a certificate stands for.
fn peer_kind(core: &Core, identity: Option<ClientIdentity>, leaf: Option<&CertificateDer<'_>>) -> PeerKind {
    let Some(identity) = identity else {
        return PeerKind::Stranger;
    };
    let epoch = match identity.kind {
        ClientKind::Agent { claim_generation, boot } => {
            let generation = claim_generation;
            return PeerKind::Agent(NodeId::stored(identity.common_name), AgentSession { generation, boot });
        }
        ClientKind::Member { epoch } => epoch,
    };
    let name = identity.common_name;
    let is_cache = core.config.store_caches.contains(&name);
    let grant = core.rights.open(&name, epoch, leaf.and_then(|leaf| end_of(leaf)));
    let holder = Holder { name, epoch, grant };
    match is_cache {
        true => PeerKind::Cache(holder),
        false => PeerKind::Member(holder),
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
    let mut connections = tls::accept(&core, listener, tls, core.listeners.images.clone());
    while let Some(Accepted {
        stream,
        slot,
        identity,
        ended: authority,
    }) = connections.recv().await
    {
        let leaf = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
        let peer = Peer::new(core.clone(), peer_kind(&core, identity, leaf));
        let ended = peer.grant().map(Grant::ended);
        let reader = Arc::clone(&peer);
        let service = hyper_util::service::TowerToHyperService::new(router(peer));
        let stop = core.stop.clone();
        tokio::spawn(async move {
            let ended = async {
                match ended {
                    Some(ended) => ended.await,
                    None => std::future::pending().await,
                }
            };
            let io = hyper_util::rt::TokioIo::new(stream);
            let mut builder = hyper_util::server::conn::auto::Builder::new(hyper_util::rt::TokioExecutor::new());
            builder.http1().max_buf_size(HEADERS_MAX);
            builder
                .http2()
                .max_concurrent_streams(REQUESTS)
                .max_header_list_size(HEADERS);
            let closed = slot.closed();
            tokio::select! {
                () = stop.cancelled() => {}
                () = closed.cancelled() => {}
                () = authority.cancelled() => tracing::info!("a connection to the image store with a certificate of the former authority is closed"),
                // Also in the middle of an answer: a cache does not take half an answer for the whole.
                end = ended => tracing::info!(%end, "the connection of a member to the image store is closed"),
                () = reader.lost_right(LOOK) => tracing::info!(peer = ?reader.peer_kind, "an agent may no longer read: its connection is closed"),
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
            tracing::error!(%error, "the permission of an agent to read an image could not be checked");
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

/// The metrics for Prometheus. Operators and viewers may read them: they name no node, but they count what customers have.
async fn metrics(State(peer): State<Arc<Peer>>) -> Response {
    let (PeerKind::Member(holder) | PeerKind::Cache(holder)) = &peer.peer_kind else {
        return plain(StatusCode::FORBIDDEN);
    };
    let scraped = async {
        match peer.caller(holder).await? {
            Some(caller) if caller.scope == rackwright_store::Scope::Site && caller.role != Role::Auditor => {
                rackwright_ground::metrics::scrape(&peer.core).await.map(Some)
            }
            _ => Ok(None),
        }
    };
    let scraped: Result<Option<String>, StoreError> = scraped.await;
    match scraped {
        Ok(Some(text)) => {
            let kind = HeaderValue::from_static(rackwright_ground::metrics::CONTENT_TYPE);
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
    // A cache must not serve one peer's refusal to others.
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

/// Listens on an address. The error names the address.
///
/// # Errors
/// The address is in use, or not an address of this host.
pub async fn bind(at: SocketAddr, what: &str) -> Result<tokio::net::TcpListener, String> {
    tokio::net::TcpListener::bind(at)
        .await
        .map_err(|e| format!("{what} cannot listen on {at}: {e}"))
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use rackwright_ground::testing;
    use rackwright_identity::{ClientAuth, ClientIdentity, ClientKey, ServerCertificate, client_config, server_config};
    use rackwright_lifecycle::State as Stage;
    use rackwright_nodes::agent_session::admit_agent;
    use rackwright_nodes::attestation::TpmEvidence;
    use rackwright_store::MemberRow;
    use rustls_pki_types::pem::PemObject as _;
    use rustls_pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName};
    use tokio::io::AsyncWriteExt as _;
    use tokio::net::{TcpListener, TcpStream};
    use tokio_util::sync::CancellationToken;

    use super::*;

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
        server_config(certificate, core.keys.authority.client_trust(), ClientAuth::Required).unwrap()
    }

    /// A connection of `identity`.
    async fn open(
        core: &Core,
        at: SocketAddr,
        identity: &ClientIdentity,
    ) -> tokio_rustls::client::TlsStream<TcpStream> {
        let key = rcgen::KeyPair::generate().unwrap();
        let csr = rcgen::CertificateParams::default().serialize_request(&key).unwrap();
        let client_key = ClientKey::of_request(&csr.pem().unwrap()).unwrap();
        let issued = core
            .keys
            .authority
            .issue_client(&client_key, identity, SystemTime::now(), HOUR)
            .unwrap();
        let chain = CertificateDer::pem_slice_iter(issued.chain_pem.as_bytes());
        let chain: Vec<_> = chain.collect::<Result<_, _>>().unwrap();
        let key = PrivatePkcs8KeyDer::from(key.serialize_der()).into();
        let mut config = (*client_config(&core.keys.authority.ca_der(), Some((chain, key))).unwrap()).clone();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let stream = TcpStream::connect(at).await.unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
        connector.connect(name, stream).await.unwrap()
    }

    /// The status line and headers of the answer to `identity`.
    async fn ask(core: &Core, at: SocketAddr, identity: ClientIdentity, path: &str) -> String {
        let mut stream = open(core, at, &identity).await;
        let request = format!("GET /store/v1/{path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        // The server may end without a TLS close message.
        let _ = stream.read_to_end(&mut answer).await;
        String::from_utf8_lossy(&answer).into_owned()
    }

    async fn join(core: &Core, name: &str, epoch: u64) {
        let viewer = MemberRow {
            role: "viewer".into(),
            customer: "".into(),
        };
        let mut tx = core.store.write().await.unwrap();
        tx.put_member(name, &viewer, epoch, clock::now()).await.unwrap();
        core.commit(tx).await.unwrap();
    }

    #[tokio::test]
    async fn agents_read_the_image_of_their_claim_and_caches_read_everything() {
        let core = testing::core().await;
        testing::add(&core, &testing::node("n1", Stage::Imaging, Some(&digest("1")))).await;
        testing::add(&core, &testing::node("n2", Stage::Inspecting, None)).await;
        join(&core, "operator", 5).await;
        join(&core, "cache-1", 5).await;
        let booted = testing::booted(&core, "n1", "b1").await;
        let inspected = testing::booted(&core, "n2", "b1").await;
        for name in [digest("1"), digest("2")] {
            std::fs::write(core.chunks.root().join("images").join(name), "an index").unwrap();
        }
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        let serving = tokio::spawn(run(core.clone(), listener, tls(&core)));
        let (mine, other) = (format!("images/{}", digest("1")), format!("images/{}", digest("2")));
        let chunk = format!("chunks/{}", "3".repeat(64));
        for (identity, path, status) in [
            (ClientIdentity::member("operator", 5), &mine, 403),
            (ClientIdentity::member("n1", 5), &mine, 403),
            (ClientIdentity::member("operator", 5), &chunk, 403),
            (ClientIdentity::member("cache-1", 5), &other, 200),
            // A former member of the same name, and a certificate from before epochs.
            (ClientIdentity::member("cache-1", 4), &other, 403),
            (ClientIdentity::member("cache-1", 0), &other, 403),
            (ClientIdentity::agent("cache-1", 0), &other, 403),
            (ClientIdentity::agent_of_boot("n1", 0, &booted.boot), &mine, 200),
            (ClientIdentity::agent_of_boot("n1", 0, &booted.boot), &other, 403),
            // Missing, but the store did look for it.
            (ClientIdentity::agent_of_boot("n1", 0, &booted.boot), &chunk, 404),
            // Another boot, another claim, and a certificate that names no boot.
            (ClientIdentity::agent_of_boot("n1", 0, &inspected.boot), &mine, 403),
            (ClientIdentity::agent_of_boot("n1", 1, &booted.boot), &mine, 403),
            (ClientIdentity::agent("n1", 0), &chunk, 403),
            (ClientIdentity::agent_of_boot("n2", 0, &inspected.boot), &mine, 403),
            (ClientIdentity::agent_of_boot("n2", 0, &inspected.boot), &chunk, 403),
            (ClientIdentity::agent("forgotten", 0), &chunk, 403),
        ] {
            let identity = identity.unwrap();
            let answer = ask(&core, at, identity.clone(), path).await;
            assert!(
                answer.starts_with(&format!("HTTP/1.1 {status} ")),
                "{identity} {path}: {answer}"
            );
            let is_kept = answer.contains("cache-control: public, max-age=31536000, immutable");
            assert_eq!(is_kept, status == 200, "{identity} {path}: {answer}");
        }
        serving.abort();
    }

    #[tokio::test]
    async fn an_open_connection_of_a_cache_ends_with_its_member() {
        let core = testing::core().await;
        join(&core, "cache-1", 5).await;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        let serving = tokio::spawn(run(core.clone(), listener, tls(&core)));
        let ending = tokio::spawn(rights::run(Arc::clone(&core)));
        let cache = ClientIdentity::member("cache-1", 5).unwrap();
        let mut stream = open(&core, at, &cache).await;
        let chunk = format!(
            "GET /store/v1/chunks/{} HTTP/1.1\r\nHost: localhost\r\n\r\n",
            "3".repeat(64)
        );
        stream.write_all(chunk.as_bytes()).await.unwrap();
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer, b"HTTP/1.1 404");
        let mut tx = core.store.write().await.unwrap();
        tx.delete_member("cache-1").await.unwrap();
        core.commit(tx).await.unwrap();
        let mut rest = Vec::new();
        let ended = tokio::time::timeout(Duration::from_secs(1), stream.read_to_end(&mut rest)).await;
        assert!(ended.is_ok(), "the connection goes on");
        serving.abort();
        ending.abort();
    }

    /// Begins the session of a node's agent.
    async fn connect(core: &Core, node: &str, of: AgentSession) {
        let agent = rackwright_nodes::testing::arriving_agent(node, of, "b1");
        let (sender, end) = (tokio::sync::mpsc::channel(1).0, CancellationToken::new());
        let shown = TpmEvidence::Nothing(String::new());
        let admitted = admit_agent(core, &agent, &shown, sender, end).await;
        assert!(matches!(admitted, Ok(Ok(_))));
    }

    /// Changes a node as another claim does. Only `is_ours` changes are announced in this process.
    async fn change_claim(core: &Core, node: &'static str, is_ours: bool) {
        let mut tx = core.store.write().await.unwrap();
        let mut record = tx.node(&node.into()).await.unwrap();
        record.node.generation += 1;
        tx.save_node(&mut record, clock::now()).await.unwrap();
        match is_ours {
            true => core.commit(tx).await.unwrap(),
            false => tx.commit().await.unwrap(),
        }
    }

    #[tokio::test]
    async fn an_open_connection_of_an_agent_ends_with_its_claim_also_in_the_middle_of_an_answer() {
        const LONG: u64 = 32 << 20;
        let core = testing::core().await;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        let serving = tokio::spawn(run(core.clone(), listener, tls(&core)));
        let index = core.chunks.root().join("images").join(digest("1"));
        std::fs::File::create(index).unwrap().set_len(LONG).unwrap();
        let request = format!(
            "GET /store/v1/images/{} HTTP/1.1\r\nHost: localhost\r\n\r\n",
            digest("1")
        );
        let mut streams = Vec::new();
        for node in ["n1", "n2"] {
            testing::add(&core, &testing::node(node, Stage::Imaging, Some(&digest("1")))).await;
            let booted = testing::booted(&core, node, "b1").await;
            let identity = ClientIdentity::agent_of_boot(node, 0, &booted.boot).unwrap();
            connect(&core, node, booted).await;
            let mut stream = open(&core, at, &identity).await;
            stream.write_all(request.as_bytes()).await.unwrap();
            let mut answer = [0; 12];
            stream.read_exact(&mut answer).await.unwrap();
            assert_eq!(&answer, b"HTTP/1.1 200");
            streams.push(stream);
        }
        change_claim(&core, "n1", true).await;
        let [mut ended, other] = streams.try_into().unwrap_or_else(|_| panic!("two streams"));
        let (mut buffer, mut length) = (vec![0; 1 << 20], 0);
        let at_once = async {
            while let Ok(count @ 1..) = ended.read(&mut buffer).await {
                length += count as u64;
            }
        };
        let ended = tokio::time::timeout(Duration::from_secs(1), at_once).await;
        assert!(ended.is_ok() && length < LONG, "the answer goes on: {length} bytes");
        let mut whole = Vec::new();
        let mut other = other.take(LONG);
        other.read_to_end(&mut whole).await.unwrap();
        assert_eq!(whole.len() as u64, LONG, "the other node is still being imaged");
        serving.abort();
    }

    #[tokio::test]
    async fn a_change_of_another_process_ends_a_connection_at_the_next_look() {
        let core = testing::core().await;
        testing::add(&core, &testing::node("n1", Stage::Imaging, Some(&digest("1")))).await;
        let booted = testing::booted(&core, "n1", "b1").await;
        let peer = Peer::new(core.clone(), PeerKind::Agent("n1".into(), booted));
        let pause = Duration::from_millis(1);
        let waiting = Arc::clone(&peer);
        let lost = tokio::spawn(async move { waiting.lost_right(pause).await });
        assert!(peer.may_read(&format!("/images/{}", digest("1"))).await.unwrap());
        let first = *peer.allowed_at.lock().unwrap();
        while *peer.allowed_at.lock().unwrap() == first {
            tokio::task::yield_now().await;
        }
        assert!(!lost.is_finished(), "the right is read again and holds");
        change_claim(&core, "n1", false).await;
        lost.await.unwrap();
        assert!(!peer.may_read(&format!("/images/{}", digest("1"))).await.unwrap());
    }

    #[tokio::test]
    async fn only_index_requests_are_checked_again() {
        let core = testing::core().await;
        testing::add(&core, &testing::node("n1", Stage::Imaging, Some(&digest("1")))).await;
        let booted = testing::booted(&core, "n1", "b1").await;
        let peer = Peer::new(core.clone(), PeerKind::Agent("n1".into(), booted));
        let (first, next) = (format!("/images/{}", digest("1")), format!("/images/{}", digest("2")));
        assert!(peer.may_read(&first).await.unwrap() && !peer.may_read(&next).await.unwrap());
        let mut tx = core.store.write().await.unwrap();
        let mut record = tx.node(&"n1".into()).await.unwrap();
        record.node.claim.as_mut().unwrap().image_digest = digest("2");
        tx.save_node(&mut record, clock::now()).await.unwrap();
        tx.commit().await.unwrap();
        assert!(!peer.may_read(&first).await.unwrap() && peer.may_read(&next).await.unwrap());
        core.store.close().await;
        assert!(peer.may_read("/chunks/some").await.unwrap(), "the database was queried");
        assert!(peer.may_read(&next).await.is_err());
    }
}
