//! Records calls in the audit, and answers a call only after its record is stored.
//!
//! One layer around all services does this, so no method has to remember it, and refusals by the inner layers are
//! included. The method's name determines whether a call is recorded: all calls except plain reads. A new method is
//! recorded unless its name starts like a read.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::HttpBody;
use opentelemetry::trace::TraceContextExt as _;
use rackwright_gateway::code_name;
use rackwright_ground::audit::call::{Call, Recorded};
use rackwright_ground::clock;
use rackwright_ground::core::Core;
use rackwright_ground::text::{NAME_MAX, cut};
use rackwright_identity::ClientKind;
use tonic::body::Body;
use tonic::codegen::http::{HeaderMap, Request, Response};
use tonic::{Code, Status};
use tower::Service;
use tracing_opentelemetry::OpenTelemetrySpanExt as _;

use super::connection::{Login, Peer, identity_of};
use super::paused;

/// Prefix of the paths of this project's services.
const OURS: &str = "/rackwright.v1.";
/// Reads that are recorded: secrets, proofs, consoles, and rights of members.
const SENSITIVE: &[&str] = &[
    "AuditService/ListAudit",
    "AuditService/StreamAudit",
    "AuthService/ListMembers",
    "AuthService/ListTokens",
    "ClusterService/GetHandoverPack",
    "ConsoleService/ListConsoleBoots",
    "ConsoleService/ListSshKeys",
    "ConsoleService/ReadConsoleLog",
    "CredentialService/ListFactoryCredentials",
    "NodeService/ListEraseCertificates",
    "NodeService/ListEraseChain",
    "SessionService/ListApiKeys",
    "SessionService/ListSessions",
];
/// Calls that commit changes even if they fail, so the outcome is unknown at the commit.
const RECORDED_SEPARATELY: &[&str] = &["AgentService/Register", "ControlService/ProveDatabase"];
/// Streams of agents, which last for hours.
const AGENT_STREAMS: &[&str] = &["AgentService/ClaimChunks", "AgentService/Connect"];
/// Calls that a program repeats until something has happened: without a change, an answer is no record of its own.
const QUESTIONS: &[&str] = &["AuthService/FinishDeviceLogin"];
/// Longest message about an outcome, in bytes.
const MESSAGE_MAX: usize = 300;

/// Which outcomes of a path's calls are recorded.
fn recorded(path: &str) -> Recorded {
    let Some(call) = path.strip_prefix(OURS) else {
        return Recorded::IfRefused;
    };
    if SENSITIVE.contains(&call) || RECORDED_SEPARATELY.contains(&call) {
        return Recorded::Separately;
    }
    // An agent's stream is not a single action.
    if paused::is_read(call) || AGENT_STREAMS.contains(&call) {
        return Recorded::IfRefused;
    }
    Recorded::WithChange
}

/// The services with audited calls.
#[derive(Clone)]
pub struct Audited<S> {
    pub core: Arc<Core>,
    pub services: S,
}

impl<S> Service<Request<Body>> for Audited<S>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
    S::Future: Send + 'static,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.services.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let (call, core) = (Arc::new(describe(&self.core, &request)), self.core.clone());
        let request = match AGENT_STREAMS.contains(&call.method.as_str()) {
            true => request,
            false => request.map(|body| {
                let call = call.clone();
                Body::new(CopiedBody { body, call })
            }),
        };
        let answer = self.services.call(request);
        Box::pin(async move {
            let answer = call.clone().run(answer).await?;
            Ok(match record(&core, &call, answer.headers()).await {
                Ok(()) => answer,
                Err(status) => status.into_http(),
            })
        })
    }
}

/// The facts about a call before it runs.
fn describe<B>(core: &Core, request: &Request<B>) -> Call {
    let path = request.uri().path();
    let method = path
        .strip_prefix(OURS)
        .or_else(|| path.strip_prefix('/'))
        .unwrap_or(path);
    let mut call = Call::new(core.new_id(), cut(method, NAME_MAX), recorded(path));
    let agent = request
        .headers()
        .get("user-agent")
        .and_then(|agent| agent.to_str().ok());
    call.client = cut(&client(request.extensions().get(), agent.unwrap_or_default()), NAME_MAX);
    let peer = Peer::from_extensions(request.extensions());
    let address = peer.and_then(Peer::address);
    call.address = address
        .map(|address| address.to_canonical().to_string())
        .unwrap_or_default();
    let context = tracing::Span::current().context();
    let trace = context.span().span_context().trace_id();
    if trace != opentelemetry::trace::TraceId::INVALID {
        call.trace = trace.to_string();
    }
    if let Some(identity) = identity_of(request.extensions(), clock::now()) {
        let (kind, epoch) = match identity.kind {
            ClientKind::Member { epoch } => ("members", Some(epoch)),
            ClientKind::Agent { .. } => ("agents", None),
        };
        call.set_caller(format!("{kind}/{}", identity.common_name), epoch);
    }
    call
}

/// The client's own name for itself. A session or API key stands before it: `via apiKeys/ID curl/8.5.0`.
fn client(login: Option<&Login>, agent: &str) -> String {
    match login {
        Some(login) => format!("via {} {agent}", login.name()).trim_end().to_owned(),
        // Only a login has this form.
        None if agent.starts_with("via ") => format!("?{agent}"),
        None => agent.to_owned(),
    }
}

/// Stores the record of a call at its end or at the start of its answer, if the record is not stored yet.
async fn record(core: &Core, call: &Call, headers: &HeaderMap) -> Result<(), Status> {
    let status = Status::from_header_map(headers).unwrap_or_else(|| Status::ok(""));
    let code = status.code();
    let is_refused = matches!(code, Code::PermissionDenied | Code::Unauthenticated);
    let is_done = code == Code::Ok && (call.is_written() || QUESTIONS.contains(&call.method.as_str()));
    if is_done || (call.recorded == Recorded::IfRefused && !is_refused) {
        return Ok(());
    }
    if !has_own_record(core, call, code) {
        return Ok(());
    }
    let mut record = call.record(code_name(code), &cut(status.message(), MESSAGE_MAX));
    if call.is_written() {
        record.message = format!("after the call was recorded as OK: {}", record.message);
    }
    core.audit(record).await.map_err(|error| {
        tracing::error!(method = call.method, %error, "the audit record of a call could not be stored");
        let what = match (call.recorded, code) {
            (Recorded::WithChange, Code::Ok) => "the call was carried out, but its record could not be stored",
            _ => "the call was not answered, because its record could not be stored",
        };
        Status::unavailable(format!("{what}: the audit accepts no records now; try again"))
    })
}

/// Whether the call gets a record of its own; other calls are only counted.
fn has_own_record(core: &Core, call: &Call, code: Code) -> bool {
    let (budget, caller) = (&core.audit.budget, call.caller());
    // A machine of no node can choose its name, so its address counts.
    if caller.starts_with("agents/unknown.") {
        return budget.allows("", &call.address);
    }
    if code != Code::Ok || caller.is_empty() {
        return budget.allows(&caller, &call.address);
    }
    let is_read = call.recorded == Recorded::Separately && caller.starts_with("members/");
    !is_read || budget.allows_read(&caller)
}

/// The body of a request; the call keeps its beginning.
struct CopiedBody {
    body: Body,
    call: Arc<Call>,
}

impl HttpBody for CopiedBody {
    type Data = axum::body::Bytes;
    type Error = Status;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<hyper::body::Frame<Self::Data>, Status>>> {
        let this = self.get_mut();
        let frame = Pin::new(&mut this.body).poll_frame(context);
        if let Poll::Ready(Some(Ok(frame))) = &frame
            && let Some(data) = frame.data_ref()
        {
            this.call.keep_request(data);
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> hyper::body::SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests;
