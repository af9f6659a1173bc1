//! The [Connect protocol](https://connectrpc.com/docs/protocol) in front of gRPC services: unary calls and server streams,
//! in JSON and in binary.
//!
//! The gateway makes a gRPC request of each Connect request, and a Connect response of the gRPC response. Path, metadata and
//! the extensions of the request stay, so the services behind the gateway check the caller of both protocols by the same
//! code. The body of a request is read only when the service behind the gateway reads it.
//!
//! The paths of a table give the same methods a REST form: `GET /v1/nodes/n1` is a call of `GetNode`.
//!
//! JSON has the form of the [protobuf JSON mapping](https://protobuf.dev/programming-guides/json/).

mod error;
mod methods;
mod openapi;
mod request;
mod response;
mod rest;

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Extensions, Method, Request, Response};
use tonic::Status;
use tonic::body::Body;
use tower::Service;

pub use self::methods::{DescriptorError, Methods};
use self::request::{Call, Protocol};
pub use self::rest::TableError;
use self::rest::Unrouted;

/// The path of the OpenAPI document.
const OPENAPI: &str = "/openapi.json";

/// The rights of the peer of a request, from the extensions of the request.
#[derive(Debug, Clone, Copy)]
pub struct PeerRights {
    /// The most bytes of a request's message.
    pub limit: fn(&Extensions) -> usize,
    /// Whether the peer may read the OpenAPI document.
    pub is_known: fn(&Extensions) -> bool,
}

/// gRPC services behind the gateway. Requests of other protocols pass unchanged.
#[derive(Debug, Clone)]
pub struct Gateway<S> {
    inner: S,
    methods: Arc<Methods>,
    openapi: Arc<OnceLock<Bytes>>,
    rights: PeerRights,
}

impl<S> Gateway<S> {
    /// Puts `inner` with these methods behind the gateway.
    pub fn new(inner: S, methods: Arc<Methods>, rights: PeerRights) -> Self {
        let openapi = Arc::default();
        Self {
            inner,
            methods,
            openapi,
            rights,
        }
    }
}

impl<S> Service<Request<Body>> for Gateway<S>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
    S::Future: Send + 'static,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let limit = (self.rights.limit)(request.extensions());
        let methods = self.methods.clone();
        let uri = request.uri();
        if uri.path() == OPENAPI && request.method() == Method::GET {
            return match (self.rights.is_known)(request.extensions()) {
                true => Box::pin(openapi(methods, self.openapi.clone())),
                false => Box::pin(std::future::ready(Ok(response::unknown_peer(&methods)))),
            };
        }
        if uri.path().starts_with(rest::ROOT) {
            let found = methods
                .routes()
                .find(request.method(), uri.path(), uri.query(), request.headers());
            let call = found.and_then(|routed| Call::rest(routed, request, limit).map_err(Unrouted::Status));
            return match call {
                Ok((call, request)) => self.forward(call, request),
                Err(unrouted) => Box::pin(std::future::ready(Ok(response::unrouted(&methods, &unrouted)))),
            };
        }
        let protocol = match request.method() {
            &Method::POST => Protocol::of(request.headers()),
            _ => None,
        };
        let Some(protocol) = protocol else {
            return Box::pin(self.inner.call(request));
        };
        match Call::new(&methods, protocol, request, limit) {
            Ok((call, request)) => self.forward(call, request),
            Err(status) => Box::pin(std::future::ready(Ok(response::refusal(protocol, &methods, &status)))),
        }
    }
}

impl<S> Gateway<S>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
    S::Future: Send + 'static,
{
    /// Calls the services, and translates their response.
    fn forward(&mut self, call: Call, request: Request<Body>) -> <Self as Service<Request<Body>>>::Future {
        let (protocol, deadline) = (call.protocol, call.deadline);
        let (methods, known) = (self.methods.clone(), self.methods.clone());
        let answer = self.inner.call(request);
        let translated = async move { Ok(response::translated(call, methods, answer.await?).await) };
        let Some(deadline) = deadline else {
            return Box::pin(translated);
        };
        Box::pin(async move {
            let in_time = tokio::time::timeout_at(deadline, translated).await;
            in_time.unwrap_or_else(|_| Ok(response::refusal(protocol, &known, &response::late())))
        })
    }
}

/// The OpenAPI document, which is made for its first reader.
async fn openapi(methods: Arc<Methods>, made: Arc<OnceLock<Bytes>>) -> Result<Response<Body>, Infallible> {
    if let Some(document) = made.get() {
        return Ok(response::document(document.clone()));
    }
    let source = methods.clone();
    let result = tokio::task::spawn_blocking(move || source.openapi()).await;
    let internal = |error: &dyn std::fmt::Display| {
        let status = Status::internal(format!("the OpenAPI document cannot be made: {error}"));
        Ok(response::rest_refusal(&methods, &status))
    };
    match result {
        Ok(Ok(Some(document))) => {
            let document = made.get_or_init(|| document.to_string().into());
            Ok(response::document(document.clone()))
        }
        Ok(Ok(None)) => Ok(response::rest_refusal(
            &methods,
            &Status::not_found("there is no OpenAPI document"),
        )),
        Ok(Err(error)) => internal(&error),
        Err(error) => internal(&error),
    }
}
