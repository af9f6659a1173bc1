//! Boot over HTTP: the node's script for its token, then kernel and ramdisk, and first stages for UEFI HTTP Boot.
//!
//! Plain HTTP on purpose: firmware supports nothing else. The agent's own traffic uses TLS and another server.

mod file;
mod script;
mod stall;

use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, Bytes, HttpBody};
use axum::extract::rejection::QueryRejection;
use axum::extract::{Extension, Path, Query, Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use hyper::body::{Frame, SizeHint};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use serde::Deserialize;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::connections::{Busy, Handle};
use crate::directory::{DirectoryError, OneTimeToken, Refusal, Stage};
use crate::mac::Mac;
use crate::service::Shared;
use crate::sessions::FileError;

use file::{serve_bytes, serve_file};
use stall::StallGuard;

/// Time limit for a request's headers.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// A connection without progress is closed after this time.
const STALL_TIMEOUT: Duration = Duration::from_secs(30);
/// Time limit for directory calls.
const DIRECTORY_TIMEOUT: Duration = Duration::from_secs(10);

/// The client's address.
#[derive(Debug, Clone, Copy)]
struct Remote(IpAddr);

/// Serves until cancelled.
pub(crate) async fn serve(shared: Arc<Shared>, listener: TcpListener, cancel: CancellationToken) {
    let app = router(shared.clone());
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let accepted = tokio::select! {
            () = cancel.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        let (stream, remote) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // For example no free descriptors; this ends as connections close.
                tracing::warn!(%error, "accepting a boot HTTP connection failed");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let slot = tokio::select! {
            () = cancel.cancelled() => return,
            slot = shared.connections.admit(remote.ip()) => slot,
        };
        let Some(slot) = slot else {
            shared.counters.http_overload_total.increment();
            continue;
        };
        let app = app.clone();
        connections.spawn(async move {
            let closed = slot.closed();
            tokio::select! {
                () = closed.cancelled() => {}
                () = connection(app, stream, remote, slot.handle()) => {}
            }
        });
    }
}

async fn connection(app: Router, stream: TcpStream, remote: SocketAddr, handle: Handle) {
    let _ = stream.set_nodelay(true);
    let io = TokioIo::new(StallGuard::new(stream, STALL_TIMEOUT));
    let app = app.layer(Extension(Remote(remote.ip())));
    let app = app.layer(axum::middleware::from_fn(move |request: Request, next: Next| {
        let busy = handle.busy();
        async move {
            next.run(request)
                .await
                .map(|body| Body::new(TrackedBody { body, _busy: busy }))
        }
    }));
    let service = TowerToHyperService::new(app);
    let served = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .max_buf_size(16 << 10)
        .max_headers(64)
        .serve_connection(io, service)
        .await;
    if let Err(error) = served {
        // Firmware often resets connections.
        tracing::debug!(%remote, %error, "a boot HTTP connection broke off");
    }
}

/// The body of an answer. The connection counts as busy until the body has been sent.
struct TrackedBody {
    body: Body,
    _busy: Busy,
}

impl HttpBody for TrackedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

fn router(shared: Arc<Shared>) -> Router {
    let not_allowed = || async { StatusCode::METHOD_NOT_ALLOWED };
    Router::new()
        // HEAD must not redeem a token.
        .route("/boot/v1/script", get(node_script).head(not_allowed))
        .route("/boot/v1/files/{session}/{name}", get(session_file))
        .route("/boot/v1/efi/{name}", get(first_stage))
        .route("/boot/v1/ca.pem", get(ca_certificate))
        .route("/firmware/v1/{digest}/{until}/{seal}/{name}", get(firmware_file))
        .route("/medium/v1/{node}/{seal}/{name}", get(medium))
        .fallback(|| async { StatusCode::NOT_FOUND })
        .with_state(shared)
}

#[derive(Deserialize)]
struct ScriptQuery {
    mac: String,
    token: String,
}

async fn node_script(
    State(shared): State<Arc<Shared>>,
    Extension(Remote(remote)): Extension<Remote>,
    query: Result<Query<ScriptQuery>, QueryRejection>,
) -> Response {
    shared.counters.http_requests_total.increment();
    let parsed = query
        .ok()
        .and_then(|Query(query)| Some((query.mac.parse::<Mac>().ok()?, OneTimeToken::new(query.token)?)));
    let Some((mac, token)) = parsed else {
        return refuse(
            &shared,
            None,
            StatusCode::BAD_REQUEST,
            "a boot script needs mac= and token=",
            remote,
        );
    };
    let redeemed = tokio::time::timeout(DIRECTORY_TIMEOUT, shared.directory.redeem(&token, mac, remote))
        .await
        .unwrap_or_else(|_| Err(Refusal::Directory(DirectoryError("no answer within 10 s".to_owned()))));
    let plan = match redeemed {
        Ok(plan) => plan,
        Err(why @ Refusal::Directory(_)) => {
            return refuse(
                &shared,
                Some(mac),
                StatusCode::SERVICE_UNAVAILABLE,
                &why.to_string(),
                remote,
            );
        }
        Err(why) => return refuse(&shared, Some(mac), StatusCode::FORBIDDEN, &why.to_string(), remote),
    };
    let session = match shared.sessions.open(mac, plan, remote, Instant::now()) {
        Ok(session) => session,
        Err(fault) => {
            tracing::error!(%mac, %fault, "a boot plan cannot be handed out");
            return refuse(
                &shared,
                Some(mac),
                StatusCode::INTERNAL_SERVER_ERROR,
                &fault.to_string(),
                remote,
            );
        }
    };
    shared.counters.http_scripts_total.increment();
    shared.record(
        Some(mac),
        Stage::Script,
        format!("iPXE script, session {}…", &session.id[..6]),
        remote,
    );
    let mut response = script::ipxe(&session, &shared.settings).into_response();
    response
        .headers_mut()
        .insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

async fn session_file(
    State(shared): State<Arc<Shared>>,
    Extension(Remote(remote)): Extension<Remote>,
    Path((session, name)): Path<(String, String)>,
    method: Method,
    headers: HeaderMap,
) -> Response {
    shared.counters.http_requests_total.increment();
    match shared.sessions.file(&session, &name, remote, Instant::now()) {
        Ok((session, file, stage)) => {
            serve_file(
                shared,
                &file.path,
                &file.name,
                (Some(session.mac), stage, remote),
                &method,
                &headers,
            )
            .await
        }
        Err(FileError::NotFound) => StatusCode::NOT_FOUND.into_response(),
        Err(FileError::Foreign(mac)) => refuse(
            &shared,
            Some(mac),
            StatusCode::FORBIDDEN,
            "this boot session belongs to another client",
            remote,
        ),
    }
}

async fn first_stage(
    State(shared): State<Arc<Shared>>,
    Extension(Remote(remote)): Extension<Remote>,
    Path(name): Path<String>,
    method: Method,
    headers: HeaderMap,
) -> Response {
    shared.counters.http_requests_total.increment();
    let Some(path) = shared.settings.first_stages.get(&name).cloned() else {
        return StatusCode::NOT_FOUND.into_response();
    };
    let mac = shared.acknowledged.mac_of(remote);
    serve_file(shared, &path, &name, (mac, Stage::Http, remote), &method, &headers).await
}

/// A firmware file for a BMC, from a URL with a seal.
async fn firmware_file(
    State(shared): State<Arc<Shared>>,
    Extension(Remote(remote)): Extension<Remote>,
    Path((digest, until_s, seal, name)): Path<(String, i64, String, String)>,
    method: Method,
    headers: HeaderMap,
) -> Response {
    shared.counters.http_requests_total.increment();
    match shared.directory.firmware(&digest, until_s, &seal) {
        Some(path) => serve_file(shared, &path, &name, (None, Stage::Http, remote), &method, &headers).await,
        None => StatusCode::NOT_FOUND.into_response(),
    }
}

/// The medium with the secret of a boot, for the node's BMC.
async fn medium(
    State(shared): State<Arc<Shared>>,
    Extension(Remote(remote)): Extension<Remote>,
    Path((node, seal, name)): Path<(String, String, String)>,
    method: Method,
    headers: HeaderMap,
) -> Response {
    shared.counters.http_requests_total.increment();
    let lookup = tokio::time::timeout(DIRECTORY_TIMEOUT, shared.directory.medium(&node, &seal, remote)).await;
    match lookup {
        Ok(Ok(Some(image))) => {
            let detail = format!("{name} of {node} by HTTP, for its BMC");
            shared.record(None, Stage::Http, detail, remote);
            let mut response = serve_bytes(image, &method, &headers);
            response
                .headers_mut()
                .insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
            response
        }
        Ok(Ok(None)) => {
            shared.counters.http_refused_total.increment();
            tracing::debug!(%remote, ?node, "refused a request for a medium: the client may not have this medium, or \
                                             the medium is not available now");
            StatusCode::NOT_FOUND.into_response()
        }
        Ok(Err(_)) | Err(_) => StatusCode::SERVICE_UNAVAILABLE.into_response(),
    }
}

async fn ca_certificate(
    State(shared): State<Arc<Shared>>,
    Extension(Remote(remote)): Extension<Remote>,
    method: Method,
) -> Response {
    shared.counters.http_requests_total.increment();
    let pem = shared.directory.ca_pem().or_else(|| shared.settings.ca_pem.clone());
    let Some(pem) = pem else {
        return StatusCode::NOT_FOUND.into_response();
    };
    if method == Method::GET {
        shared.record(
            shared.acknowledged.mac_of(remote),
            Stage::Http,
            "CA certificate by HTTP".to_owned(),
            remote,
        );
    }
    ([(header::CONTENT_TYPE, "application/x-pem-file")], pem).into_response()
}

/// Counts, records and answers a refusal.
fn refuse(shared: &Shared, mac: Option<Mac>, status: StatusCode, why: &str, remote: IpAddr) -> Response {
    shared.counters.http_refused_total.increment();
    shared.record(mac, Stage::Refused, format!("HTTP {}: {why}", status.as_u16()), remote);
    (status, format!("{why}\n")).into_response()
}
