//! A span for each call of this project's services, below the caller's span if the caller sends `traceparent`.

use std::pin::Pin;
use std::task::{Context, Poll};

use opentelemetry::propagation::{Extractor, TextMapPropagator as _};
use opentelemetry::trace::Status;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use tonic::Code;
use tonic::codegen::http::{HeaderMap, Request, Response};
use tower::Service;
use tracing::field::Empty;
use tracing::{Instrument as _, Span};
use tracing_opentelemetry::OpenTelemetrySpanExt as _;

use super::connection::Peer;

/// Prefix of the paths of this project's services: `/rackwright.v1.NodeService/ListNodes`.
const OURS: &str = "/rackwright.";

/// The services with a span for each call.
#[derive(Debug, Clone)]
pub struct Traced<S>(pub S);

impl<S, A, B> Service<Request<A>> for Traced<S>
where
    S: Service<Request<A>, Response = Response<B>>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, request: Request<A>) -> Self::Future {
        let span = span(&request);
        let answer = span.in_scope(|| self.0.call(request));
        let outcome_span = span.clone();
        let answer = async move {
            let answer = answer.await?;
            record_outcome(&outcome_span, answer.headers());
            Ok(answer)
        };
        Box::pin(answer.instrument(span))
    }
}

/// The call's span. Health checks and reflection have none.
fn span<A>(request: &Request<A>) -> Span {
    let path = request.uri().path();
    let Some((service, method)) = path.strip_prefix('/').and_then(|p| p.split_once('/')) else {
        return Span::none();
    };
    if !path.starts_with(OURS) {
        return Span::none();
    }
    let span = tracing::info_span!("call", otel.name = &path[1..], otel.kind = "server", caller = Empty);
    // Callers without a certificate do not choose which traces are recorded.
    if is_known(request) {
        let parent = TraceContextPropagator::new().extract(&Headers(request.headers()));
        // Fails only without telemetry.
        let _ = span.set_parent(parent);
    }
    // Attributes instead of fields, so that the log does not repeat them.
    span.set_attribute("rpc.system", "grpc");
    span.set_attribute("rpc.service", service.to_owned());
    span.set_attribute("rpc.method", method.to_owned());
    span
}

fn is_known<A>(request: &Request<A>) -> bool {
    Peer::from_extensions(request.extensions()).is_some_and(|peer| peer.certificate().is_some())
}

/// Adds the result of a call. Errors are in the headers; success follows the message.
fn record_outcome(span: &Span, headers: &HeaderMap) {
    let code = headers
        .get("grpc-status")
        .map_or(Code::Ok, |code| Code::from_bytes(code.as_bytes()));
    span.set_attribute("rpc.grpc.status_code", i64::from(code as i32));
    // Faults of the caller are not errors of this server, according to OpenTelemetry's conventions for gRPC.
    let is_ours = matches!(
        code,
        Code::Unknown
            | Code::DeadlineExceeded
            | Code::Unimplemented
            | Code::Internal
            | Code::Unavailable
            | Code::DataLoss
    );
    if is_ours {
        span.set_status(Status::error(code.description()));
    }
}

struct Headers<'a>(&'a HeaderMap);

impl Extractor for Headers<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).and_then(|value| value.to_str().ok())
    }

    fn keys(&self) -> Vec<&str> {
        self.0.keys().map(|name| name.as_str()).collect()
    }
}
