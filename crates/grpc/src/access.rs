//! Decides from the peer alone which calls a connection may make, before any byte of a call's body is read.
//!
//! | peer | calls |
//! |---|---|
//! | unknown: no certificate, and no registration on the connection | the open calls: at most [`OPEN_MAX`] bytes each |
//! | an agent | the open calls, `AgentService` |
//! | a member | the open calls, and all others except `AgentService` |
//!
//! A call that is in no list needs a member's certificate, so new services are closed to all other peers. Each call
//! checks the member's role itself (`caller.rs`).

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use axum::body::HttpBody;
use prometheus_client::metrics::counter::Counter;
use rackwright_ground::api_error::ApiError;
use rackwright_ground::clock;
use rackwright_identity::ClientKind;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::http::{Request, Response};
use tower::Service;

use super::connection::{Peer, identity_of};

/// Calls that need no certificate.
pub const OPEN: &[&str] = &[
    "/rackwright.v1.AgentService/Register",
    "/rackwright.v1.AuthService/RedeemToken",
    "/rackwright.v1.AuthService/BeginDeviceLogin",
    "/rackwright.v1.AuthService/FinishDeviceLogin",
    "/rackwright.v1.ControlService/ProveDatabase",
    "/rackwright.v1.SessionService/OpenSession",
    "/grpc.health.v1.Health/Check",
];
/// The service of agents.
const AGENTS: &str = "/rackwright.v1.AgentService/";
/// Prefixes of the paths of members' calls.
const MEMBERS: &[&str] = &["/rackwright.v1.", "/grpc.health.v1.", "/grpc.reflection.v1."];
/// Most bytes of an open call's body, framing included.
pub const OPEN_MAX: usize = 64 << 10;
/// Longest time for the body of an open call to arrive.
const OPEN_WITHIN: Duration = Duration::from_secs(5);
/// Time between two log lines about refused calls.
const LOG_PAUSE: Duration = Duration::from_secs(10);
/// Longest path in the log.
const PATH_MAX: usize = 128;
/// Bytes of the gRPC frame header: a flag and the length.
const FRAME: usize = 5;

/// Who may make a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Access {
    Anyone,
    Agents,
    Members,
    /// The call does not exist.
    NoSuchCall,
}

/// Whether a call needs no certificate.
pub fn is_open(path: &str) -> bool {
    OPEN.contains(&path)
}

fn access(path: &str) -> Access {
    if is_open(path) {
        Access::Anyone
    } else if path.starts_with(AGENTS) {
        Access::Agents
    } else if MEMBERS.iter().any(|prefix| path.starts_with(prefix)) {
        Access::Members
    } else {
        Access::NoSuchCall
    }
}

/// The refusal for a peer that may not make a call.
fn refusal(access: Access, peer: Option<ClientKind>) -> Option<Status> {
    let refusal = match (access, peer) {
        (Access::Anyone, _)
        | (Access::Agents, Some(ClientKind::Agent { .. }))
        | (Access::Members, Some(ClientKind::Member { .. })) => return None,
        (_, None) => {
            ApiError::Unauthenticated("this call needs a client certificate, and the connection has none".into())
        }
        (Access::Agents, Some(ClientKind::Member { .. })) => ApiError::Forbidden("only an agent may call this".into()),
        (Access::Members, Some(ClientKind::Agent { .. })) => {
            ApiError::Forbidden("this call is not open to agents".into())
        }
        (Access::NoSuchCall, Some(_)) => return Some(Status::unimplemented("this call does not exist")),
    };
    Some(refusal.into())
}

/// A refusal by a layer outside of the audit, in the extensions of the request: the check refuses the call with this
/// status, so that the refusal is counted and recorded like others.
#[derive(Debug, Clone)]
pub struct Refused(pub Status);

/// The services behind the access check.
#[derive(Debug, Clone)]
pub struct Gate<S> {
    inner: S,
    refusals: Arc<Refusals>,
}

/// Count of refused calls, and the limit of their log lines.
#[derive(Debug)]
pub struct Refusals {
    count: Counter,
    logged_at: Mutex<Option<Instant>>,
}

impl Refusals {
    /// Counts refusals with `count`.
    pub fn new(count: Counter) -> Arc<Self> {
        let logged_at = Mutex::default();
        Arc::new(Self { count, logged_at })
    }

    /// Counts a refusal outside of the access check.
    pub fn count(&self) {
        self.count.inc();
    }

    /// Counts a refusal, and logs at most one per `LOG_PAUSE`.
    fn note(&self, path: &str, peer: Option<&Peer>, status: &Status) {
        self.count.inc();
        let mut logged_at = self.logged_at.lock().unwrap_or_else(PoisonError::into_inner);
        if logged_at.is_some_and(|at| at.elapsed() < LOG_PAUSE) {
            return;
        }
        *logged_at = Some(Instant::now());
        let (address, total) = (peer.and_then(Peer::address), self.count.get());
        let path: String = path.chars().take(PATH_MAX).collect();
        tracing::warn!(
            path,
            ?address,
            reason = status.message(),
            total,
            "a call was refused before it was read"
        );
    }
}

impl<S> Gate<S> {
    /// Puts `inner` behind the access check.
    pub fn new(inner: S, refusals: Arc<Refusals>) -> Self {
        Self { inner, refusals }
    }
}

impl<S> Service<Request<Body>> for Gate<S>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let access = access(request.uri().path());
        let peer = Peer::from_extensions(request.extensions());
        let refused = request.extensions().get::<Refused>().map(|refused| refused.0.clone());
        if let Some(status) = refused.or_else(|| refusal(access, kind(&request))) {
            self.refusals.note(request.uri().path(), peer, &status);
            return Box::pin(std::future::ready(Ok(status.into_http())));
        }
        if access != Access::Anyone {
            return Box::pin(self.inner.call(request));
        }
        let peer = peer.cloned();
        // The ready service handles this call; its clone becomes ready for the next one.
        let next = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, next);
        let refusals = self.refusals.clone();
        Box::pin(async move {
            let (head, body) = request.into_parts();
            let read = tokio::time::timeout(OPEN_WITHIN, read_open_body(body)).await;
            let late = |_| Status::deadline_exceeded("the call did not arrive within 5 s");
            match read.map_err(late).flatten() {
                Ok(bytes) => {
                    let _busy = peer.as_ref().map(|peer| peer.place().busy());
                    let body = Body::new(axum::body::Body::from(bytes));
                    inner.call(Request::from_parts(head, body)).await
                }
                Err(status) => {
                    refusals.note(head.uri.path(), peer.as_ref(), &status);
                    Ok(status.into_http())
                }
            }
        })
    }
}

/// The kind of the peer; `None` if it is unknown.
fn kind<B>(request: &Request<B>) -> Option<ClientKind> {
    identity_of(request.extensions(), clock::now()).map(|identity| identity.kind)
}

/// Reads the whole body of an open call, but never more than the limit, whatever length the message announces.
async fn read_open_body(mut body: Body) -> Result<Vec<u8>, Status> {
    let too_large = || Status::resource_exhausted(format!("the message of this call has at most {OPEN_MAX} bytes"));
    let mut bytes = Vec::new();
    while let Some(frame) = std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
        let Ok(data) = frame?.into_data() else { continue };
        if bytes.len() + data.len() > OPEN_MAX {
            return Err(too_large());
        }
        bytes.extend_from_slice(&data);
        if announced(&bytes).is_some_and(|length| length > OPEN_MAX - FRAME) {
            return Err(too_large());
        }
    }
    match announced(&bytes) {
        Some(length) if length > bytes.len() - FRAME => Err(Status::invalid_argument(
            "the message is shorter than its announced length",
        )),
        _ => Ok(bytes),
    }
}

/// The length that the first message announces.
fn announced(bytes: &[u8]) -> Option<usize> {
    let length = bytes.get(1..FRAME)?.try_into().ok()?;
    usize::try_from(u32::from_be_bytes(length)).ok()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use prost::Message as _;
    use prost_types::FileDescriptorSet;
    use rackwright_api::DESCRIPTORS;
    use rackwright_ground::testing;
    use rackwright_identity::ClientIdentity;
    use tonic::Code;
    use tower::ServiceExt as _;

    use super::*;

    /// The paths of all calls.
    fn paths() -> Vec<String> {
        let mut paths = Vec::new();
        for set in [DESCRIPTORS, tonic_health::pb::FILE_DESCRIPTOR_SET] {
            let set = FileDescriptorSet::decode(set).unwrap();
            for file in set.file.iter().filter(|file| !file.package().starts_with("google.")) {
                for service in &file.service {
                    let path = |m: &str| format!("/{}.{}/{m}", file.package(), service.name());
                    paths.extend(service.method.iter().map(|m| path(m.name())));
                }
            }
        }
        paths.push("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo".to_owned());
        paths.push("/rackwright.v1.NewService/NewCall".to_owned());
        paths
    }

    /// A body that fails the test on the first read.
    struct Unread;

    impl tokio_stream::Stream for Unread {
        type Item = Result<axum::body::Bytes, Infallible>;

        fn poll_next(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
            panic!("the body is read")
        }
    }

    fn unread() -> Body {
        Body::new(axum::body::Body::from_stream(Unread))
    }

    async fn call(
        core: &std::sync::Arc<rackwright_ground::core::Core>,
        who: Option<ClientIdentity>,
        path: &str,
        body: Body,
    ) -> Status {
        let gate = Gate::new(super::super::routes(core), Refusals::new(Counter::default()));
        let mut request = Request::post(path)
            .header("content-type", "application/grpc")
            .body(body)
            .unwrap();
        if let Some(who) = who {
            request.extensions_mut().insert(who);
        }
        let response = gate.oneshot(request).await.unwrap();
        Status::from_header_map(response.headers()).unwrap_or_else(|| Status::ok(""))
    }

    #[tokio::test]
    async fn without_a_certificate_no_call_but_the_open_ones_is_read() {
        let core = testing::core().await;
        let paths = paths();
        let all: BTreeSet<&str> = paths.iter().map(String::as_str).collect();
        assert!(OPEN.iter().all(|path| all.contains(path)), "{OPEN:?} {all:?}");
        assert!(all.len() > 80, "{all:?}");
        for path in paths.iter().filter(|path| !OPEN.contains(&path.as_str())) {
            let status = call(&core, None, path, unread()).await;
            assert_eq!(status.code(), Code::Unauthenticated, "{path}: {status:?}");
        }
        let status = call(&core, None, "/nobody.Knows/This", unread()).await;
        assert_eq!(status.code(), Code::Unauthenticated);
    }

    #[tokio::test]
    async fn agents_and_members_have_their_own_calls() {
        let core = testing::core().await;
        let (agent, member) = (
            ClientIdentity::agent("n1", 0).unwrap(),
            ClientIdentity::member("ann", 1).unwrap(),
        );
        for path in paths().iter().filter(|path| !OPEN.contains(&path.as_str())) {
            let other = if path.starts_with(AGENTS) { &member } else { &agent };
            let status = call(&core, Some(other.clone()), path, unread()).await;
            assert_eq!(status.code(), Code::PermissionDenied, "{path}: {status:?}");
        }
        let status = call(&core, Some(member), "/nobody.Knows/This", unread()).await;
        assert_eq!(status.code(), Code::Unimplemented);
    }

    #[tokio::test]
    async fn an_open_call_is_read_as_far_as_it_may_be_long() {
        let core = testing::core().await;
        let message = |announced: u32, length: usize| {
            let mut bytes = vec![0];
            bytes.extend(announced.to_be_bytes());
            bytes.resize(FRAME + length, 0);
            Body::new(axum::body::Body::from(bytes))
        };
        for path in &OPEN[..2] {
            for (announced, length, code) in [
                (256 << 20, 0, Code::ResourceExhausted),
                (65_535, 65_535, Code::ResourceExhausted),
                (1, 65_535, Code::ResourceExhausted),
                (9, 8, Code::InvalidArgument),
            ] {
                let status = call(&core, None, path, message(announced, length)).await;
                assert_eq!(status.code(), code, "{path} {announced} {length}: {status:?}");
            }
            let status = call(&core, None, path, message(0, 0)).await;
            let is_read = matches!(status.code(), Code::Unauthenticated | Code::InvalidArgument);
            assert!(
                is_read && !status.message().contains("certificate, and"),
                "{path}: {status:?}"
            );
        }
    }
}
