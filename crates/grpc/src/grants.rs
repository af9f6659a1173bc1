//! Ends the calls of members when their rights end: waiting calls, incoming streams and outgoing streams.
//!
//! One layer around all services does this, so no method has to remember it.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use hyper::body::{Body, Frame};
use rackwright_ground::core::Core;
use rackwright_ground::rights::end_of;
use rackwright_ground::rights::{End, Grant};
use rackwright_identity::{ClientKind, identify};
use tonic::Status;
use tonic::codegen::Bytes;
use tonic::codegen::http::{HeaderMap, HeaderValue, Request, Response};
use tower::Service;

use super::connection::{Login, Peer};

/// Header in answers to members: the hashes of the authorities that clients have to trust.
const AUTHORITIES: &str = "rackwright-authorities";

/// The services; each call of a member runs under a grant.
#[derive(Debug, Clone)]
pub struct Granted<S> {
    inner: S,
    core: Arc<Core>,
}

impl<S> Granted<S> {
    /// Wraps the services.
    pub fn new(inner: S, core: Arc<Core>) -> Self {
        Self { inner, core }
    }

    /// The grant of a member's call; `None` for agents and for callers without a certificate.
    fn grant<A>(&self, request: &mut Request<A>) -> Option<Grant> {
        if let Some(Login {
            identity,
            session,
            until,
            ..
        }) = request.extensions().get()
        {
            let ClientKind::Member { epoch } = identity.kind else {
                return None;
            };
            let grant = self
                .core
                .rights
                .open_session(&identity.common_name, epoch, session, *until);
            request.extensions_mut().insert(grant.clone());
            return Some(grant);
        }
        // Tests call without a connection.
        #[cfg(test)]
        if let Some(identity) = request.extensions().get::<rackwright_identity::ClientIdentity>()
            && let ClientKind::Member { epoch } = identity.kind
        {
            let grant = self.core.rights.open(&identity.common_name, epoch, None);
            request.extensions_mut().insert(grant.clone());
            return Some(grant);
        }
        let leaf = Peer::from_extensions(request.extensions()).and_then(Peer::certificate)?;
        let identity = identify(&leaf).ok()?;
        let ClientKind::Member { epoch } = identity.kind else {
            return None;
        };
        let grant = self.core.rights.open(&identity.common_name, epoch, end_of(&leaf));
        request.extensions_mut().insert(grant.clone());
        Some(grant)
    }
}

/// Lets a call finish even if it ends the caller's own rights.
pub fn detach<T>(request: &tonic::Request<T>) {
    if let Some(grant) = request.extensions().get::<Grant>() {
        grant.detach();
    }
}

impl<S, A, B> Service<Request<A>> for Granted<S>
where
    S: Service<Request<A>, Response = Response<B>>,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
    B: Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Response = Response<tonic::body::Body>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<A>) -> Self::Future {
        let grant = self.grant(&mut request);
        let (core, answer) = (self.core.clone(), self.inner.call(request));
        Box::pin(async move {
            let Some(grant) = grant else {
                return Ok(answer.await?.map(tonic::body::Body::new));
            };
            let answer = tokio::select! {
                biased;
                end = grant.ended() => return Ok(Status::from(end).into_http()),
                answer = answer => answer?,
            };
            let mut answer = answer;
            // A client with another list renews its certificate and receives the present list.
            if let Ok(authorities) = HeaderValue::from_str(&core.keys.authority.announced().join(",")) {
                answer.headers_mut().insert(AUTHORITIES, authorities);
            }
            let ended = Box::pin(grant.ended());
            Ok(answer.map(|body| {
                tonic::body::Body::new(GrantedBody {
                    body: Some(body),
                    ended,
                    _grant: grant,
                })
            }))
        })
    }
}

/// The body of an answer. When the grant ends, the body ends with the status that states the reason.
struct GrantedBody<B> {
    body: Option<B>,
    ended: Pin<Box<dyn Future<Output = End> + Send>>,
    _grant: Grant,
}

impl<B: Body<Data = Bytes> + Unpin> Body for GrantedBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let this = self.get_mut();
        let Some(body) = &mut this.body else {
            return Poll::Ready(None);
        };
        if let Poll::Ready(end) = this.ended.as_mut().poll(context) {
            // Dropped now, so that the source of the stream ends too.
            this.body = None;
            let mut trailers = HeaderMap::new();
            if let Err(error) = Status::from(end).add_header(&mut trailers) {
                tracing::error!(%error, "the status that ends a call cannot be encoded");
            }
            return Poll::Ready(Some(Ok(Frame::trailers(trailers))));
        }
        let frame = ready!(Pin::new(body).poll_frame(context));
        if frame.is_none() {
            this.body = None;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Body::is_end_stream)
    }
}

#[cfg(test)]
mod tests;
