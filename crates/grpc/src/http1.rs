//! Connections to the web console's listener that speak HTTP/1.1.
//!
//! tonic serves HTTP/2. Its server cannot hand an HTTP/1.1 connection over to a WebSocket, and this one can.

use std::convert::Infallible;
use std::pin::pin;

use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rackwright_ground::tls::Accepted;
use rackwright_netboot::lingering::Lingering;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::body::Body;
use tonic::codegen::http::{Request, Response};
use tonic::transport::server::Connected as _;
use tower::{Service, ServiceExt as _};

use super::connection::Connection;

/// Most bytes in memory of a connection's requests that are not read yet, headers among them.
const BUFFER: usize = 64 << 10;

/// Serves connections until no more come, and all of them have ended.
pub async fn serve<S>(mut connections: mpsc::Receiver<Accepted>, service: S, stop: CancellationToken)
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send,
{
    let open = TaskTracker::new();
    while let Some(accepted) = connections.recv().await {
        open.spawn(serve_one(accepted.into(), service.clone(), stop.clone()));
    }
    open.close();
    open.wait().await;
}

async fn serve_one<S>(connection: Connection, service: S, stop: CancellationToken)
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send,
{
    let peer = connection.connect_info();
    let calls = service_fn(move |request: Request<Incoming>| {
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(peer.clone());
        service.clone().oneshot(request)
    });
    let mut server = http1::Builder::new();
    // hyper limits the time for the headers of a request only with a timer.
    server.timer(TokioTimer::new()).max_buf_size(BUFFER);
    let connection = Lingering::new(connection);
    let mut served = pin!(server.serve_connection(TokioIo::new(connection), calls).with_upgrades());
    let result = tokio::select! {
        result = served.as_mut() => result,
        () = stop.cancelled() => {
            served.as_mut().graceful_shutdown();
            served.await
        }
    };
    if let Err(error) = result {
        tracing::debug!(%error, "an HTTP/1.1 connection to the web console broke");
    }
}
