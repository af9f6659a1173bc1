//! The [Connect protocol](https://connectrpc.com/docs/protocol) in front of gRPC services: unary calls and server streams,
//! in JSON and in binary.
//!
//! The gateway makes a gRPC request of each Connect request, and a Connect response of the gRPC response. The extensions of
//! the request stay, and the path is that of the gRPC method: the services check the caller of each form by the same code.
//! The body of a request is read only when the service behind the gateway reads it.
//!
//! The paths of a table give the same methods a REST form: `GET /v1/nodes/n1` is a call of `GetNode`. A `PUT` of raw bytes
//! is a stream of requests, and a WebSocket is a call with streams in both directions.
//!
//! JSON has the form of the [protobuf JSON mapping](https://protobuf.dev/programming-guides/json/).

mod error;
pub mod fuzzing;
mod gzip;
mod methods;
mod openapi;
mod parts;
mod request;
mod response;
mod rest;
mod websocket;

use std::convert::Infallible;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Extensions, HeaderMap, Method, Request, Response};
use tokio::sync::OnceCell;
use tonic::Status;
use tonic::body::Body;
use tower::Service;

pub use self::error::code_name;
pub use self::methods::{DescriptorError, Methods};
use self::request::{Call, Protocol, Unfit};
pub use self::rest::TableError;
use self::rest::{Form, Unrouted};
use self::websocket::Socket;

/// The path of the OpenAPI document.
const OPENAPI: &str = "/openapi.json";

/// The rights of the peer of a request, from the extensions of the request.
#[derive(Debug, Clone, Copy)]
pub struct PeerRights {
    /// The most bytes of a message to the gRPC method with this path.
    pub limit: fn(&Extensions, &str) -> usize,
    /// Whether the peer may read the OpenAPI document.
    pub reads_openapi: fn(&Extensions) -> bool,
}

/// Called for each request that the gateway refuses by itself, before a service sees it.
pub type OnRefusal = Arc<dyn Fn() + Send + Sync>;

/// gRPC services behind the gateway. gRPC requests pass unchanged.
#[derive(Clone)]
pub struct Gateway<S> {
    inner: S,
    methods: Arc<Methods>,
    openapi: Arc<OnceCell<Bytes>>,
    rights: PeerRights,
    on_refusal: OnRefusal,
}

impl<S> Gateway<S> {
    /// Puts `inner` with these methods behind the gateway.
    pub fn new(inner: S, methods: Arc<Methods>, rights: PeerRights, on_refusal: OnRefusal) -> Self {
        let openapi = Arc::default();
        Self {
            inner,
            methods,
            openapi,
            rights,
            on_refusal,
        }
    }
}

impl<S: fmt::Debug> fmt::Debug for Gateway<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gateway")
            .field("inner", &self.inner)
            .field("rights", &self.rights)
            .finish_non_exhaustive()
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
        match self.opened(request) {
            Ok(Opened::Grpc(request)) => Box::pin(self.inner.call(request)),
            Ok(Opened::Call(call, request)) => self.forward(*call, request),
            Ok(Opened::Socket(socket, request)) => {
                let (methods, answer) = (self.methods.clone(), self.inner.call(request));
                Box::pin(async move { Ok::<_, Infallible>(socket.answered(&methods, answer.await?)) })
            }
            Ok(Opened::OpenApi) => Box::pin(openapi(self.methods.clone(), self.openapi.clone())),
            Err(response) => {
                (self.on_refusal)();
                Box::pin(std::future::ready(Ok(*response)))
            }
        }
    }
}

/// A request that is not refused.
enum Opened {
    /// A gRPC request.
    Grpc(Request<Body>),
    /// A Connect or REST request, as a gRPC request.
    Call(Box<Call>, Request<Body>),
    /// A request for a WebSocket, as a gRPC request.
    Socket(Box<Socket>, Request<Body>),
    /// A request of the OpenAPI document.
    OpenApi,
}

impl<S> Gateway<S>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
    S::Future: Send + 'static,
{
    /// The form of a request.
    ///
    /// # Errors
    /// The response to a request that does not pass to the services.
    fn opened(&self, request: Request<Body>) -> Result<Opened, Box<Response<Body>>> {
        let (methods, rights) = (&self.methods, self.rights);
        if is_of_another_site(request.headers()) {
            let status = Status::permission_denied("pages of other sites must not call this API");
            return Err(Box::new(response::rest_refusal(methods, &status)));
        }
        let uri = request.uri();
        if uri.path() == OPENAPI && request.method() == Method::GET {
            return match (rights.reads_openapi)(request.extensions()) {
                true => Ok(Opened::OpenApi),
                false => Err(Box::new(response::unknown_peer(methods))),
            };
        }
        if uri.path().starts_with(rest::ROOT) {
            return self.routed(request);
        }
        // Before a browser sends one of these content types to another site, it asks that site for permission.
        let is_post = request.method() == Method::POST;
        match Protocol::of(request.headers()).filter(|_| is_post) {
            Some(protocol) => match Call::new(methods, protocol, request, rights) {
                Ok((call, request)) => Ok(Opened::Call(Box::new(call), request)),
                Err(Unfit::Refused(status)) => Err(Box::new(response::refusal(protocol, methods, &status))),
                Err(Unfit::ContentType(message)) => Err(Box::new(response::other_type(methods, message))),
            },
            None if is_post && request::is_grpc(request.headers()) => Ok(Opened::Grpc(request)),
            None => Err(Box::new(response::unsupported(methods, is_post))),
        }
    }

    /// The call of a REST request.
    fn routed(&self, request: Request<Body>) -> Result<Opened, Box<Response<Body>>> {
        let (methods, rights, uri) = (&self.methods, self.rights, request.uri());
        let found = methods
            .routes()
            .find(request.method(), uri.path(), uri.query(), request.headers());
        let is_head = request.method() == Method::HEAD;
        let refuse = |unrouted: &Unrouted| Box::new(response::unrouted(methods, unrouted, is_head));
        let routed = found.map_err(|unrouted| refuse(&unrouted))?;
        if let Form::WebSocket(_) = routed.form {
            return match Socket::open(routed, request, rights) {
                Ok((socket, request)) => Ok(Opened::Socket(Box::new(socket), request)),
                Err(refused) => Err(Box::new(response::no_websocket(methods, &refused))),
            };
        }
        match Call::rest(routed, request, rights) {
            Ok((call, request)) => Ok(Opened::Call(Box::new(call), request)),
            Err(status) => Err(refuse(&Unrouted::Status(status))),
        }
    }

    /// Calls the services, and translates their response.
    fn forward(&mut self, call: Call, request: Request<Body>) -> <Self as Service<Request<Body>>>::Future {
        let (protocol, deadline) = (call.protocol, call.deadline);
        let methods = self.methods.clone();
        let late = response::refusal(protocol, &methods, &response::late());
        let answer = self.inner.call(request);
        let translated = async move { Ok(response::translated(call, methods, answer.await?).await) };
        let Some(deadline) = deadline else {
            return Box::pin(translated);
        };
        Box::pin(async move {
            let in_time = tokio::time::timeout_at(deadline, translated).await;
            in_time.unwrap_or(Ok(late))
        })
    }
}

/// Whether a browser sends the request for a page of another site (<https://www.w3.org/TR/fetch-metadata/>).
fn is_of_another_site(headers: &HeaderMap) -> bool {
    let site = headers.get("sec-fetch-site");
    site.is_some_and(|site| site != "same-origin" && site != "none")
}

/// The OpenAPI document, which is made for its first reader.
async fn openapi(methods: Arc<Methods>, made: Arc<OnceCell<Bytes>>) -> Result<Response<Body>, Infallible> {
    let make = async || {
        let source = methods.clone();
        let document = tokio::task::spawn_blocking(move || source.openapi()).await;
        let failed =
            |error: &dyn std::fmt::Display| Status::internal(format!("the OpenAPI document cannot be made: {error}"));
        let document = document
            .map_err(|error| failed(&error))?
            .map_err(|error| failed(&error))?;
        let document = document.ok_or_else(|| Status::not_found("there is no OpenAPI document"))?;
        Ok::<Bytes, Status>(document.to_string().into())
    };
    Ok(match made.get_or_try_init(make).await {
        Ok(document) => response::document(document.clone()),
        Err(status) => response::rest_refusal(&methods, &status),
    })
}
