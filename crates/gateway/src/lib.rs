//! The [Connect protocol](https://connectrpc.com/docs/protocol) in front of gRPC services: unary calls and server streams,
//! in JSON and in binary.
//!
//! The gateway makes a gRPC request of each Connect request, and a Connect response of the gRPC response. Path, metadata and
//! the extensions of the request stay, so the services behind the gateway check the caller of both protocols by the same
//! code. The body of a request is read only when the service behind the gateway reads it.
//!
//! JSON has the form of the [protobuf JSON mapping](https://protobuf.dev/programming-guides/json/).

mod error;
mod methods;
mod request;
mod response;

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Extensions, Method, Request, Response};
use tonic::body::Body;
use tower::Service;

pub use self::methods::{DescriptorError, Methods};
use self::request::{Call, Protocol};

/// The limit of a request's message in bytes, from the extensions of the request.
pub type RequestLimit = fn(&Extensions) -> usize;

/// gRPC services behind the gateway. Requests of other protocols pass unchanged.
#[derive(Debug, Clone)]
pub struct Gateway<S> {
    inner: S,
    methods: Arc<Methods>,
    limit: RequestLimit,
}

impl<S> Gateway<S> {
    /// Puts `inner` with these methods behind the gateway.
    pub fn new(inner: S, methods: Arc<Methods>, limit: RequestLimit) -> Self {
        Self { inner, methods, limit }
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
        let protocol = match request.method() {
            &Method::POST => Protocol::of(request.headers()),
            _ => None,
        };
        let Some(protocol) = protocol else {
            return Box::pin(self.inner.call(request));
        };
        let limit = (self.limit)(request.extensions());
        let methods = self.methods.clone();
        match Call::new(&methods, protocol, request, limit) {
            Ok((call, request)) => {
                let answer = self.inner.call(request);
                Box::pin(async move {
                    let (deadline, known) = (call.deadline, methods.clone());
                    let translated = async move { Ok(response::translated(call, methods, answer.await?).await) };
                    let Some(deadline) = deadline else {
                        return translated.await;
                    };
                    let in_time = tokio::time::timeout_at(deadline, translated).await;
                    in_time.unwrap_or_else(|_| Ok(response::refusal(protocol, &known, &response::late())))
                })
            }
            Err(status) => Box::pin(std::future::ready(Ok(response::refusal(protocol, &methods, &status)))),
        }
    }
}
