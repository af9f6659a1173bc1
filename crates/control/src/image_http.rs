//! The image store over HTTPS: whole chunks, ranges, and headers that a plain caching proxy understands. Only agents'
//! certificates open it.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::Response;
use rackwright_image::serve::{self, Body as Answer};
use tokio::io::{AsyncReadExt as _, AsyncSeekExt as _};
use tokio_util::io::ReaderStream;

use crate::core::Core;
use crate::tls;

/// Bytes read from a file at once.
const BUFFER: usize = 256 << 10;

/// The routes: `/store/v1/images/{digest}` and `/store/v1/chunks/{digest}`.
pub fn router(core: Arc<Core>) -> Router {
    Router::new()
        .route("/store/v1/{*path}", axum::routing::any(respond))
        .with_state(core)
}

/// Serves until the core stops.
///
/// # Errors
/// The address cannot be listened on.
pub async fn run(core: Arc<Core>, listener: tokio::net::TcpListener, tls: Arc<rustls::ServerConfig>) {
    let app = router(core.clone());
    let mut connections = tls::accept(listener, tls, core.stop.clone());
    while let Some(stream) = connections.recv().await {
        let service = hyper_util::service::TowerToHyperService::new(app.clone());
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

async fn respond(State(core): State<Arc<Core>>, request: Request) -> Response {
    let method = request.method().as_str().to_owned();
    let path = request
        .uri()
        .path()
        .strip_prefix("/store/v1")
        .unwrap_or_default()
        .to_owned();
    let headers = request.headers().clone();
    let worker = core.clone();
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
        Ok(answer) => send(answer).await,
        Err(_) => plain(StatusCode::INTERNAL_SERVER_ERROR),
    }
}

fn value(headers: &HeaderMap, name: &header::HeaderName) -> Option<String> {
    headers.get(name).and_then(|v| v.to_str().ok()).map(str::to_owned)
}

fn plain(status: StatusCode) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
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
