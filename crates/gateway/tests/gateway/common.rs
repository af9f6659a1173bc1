//! A scripted gRPC service, and requests to the gateway in front of it.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use bytes::{BufMut as _, Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody};
use prost::Message as _;
use rackwright_api::{DESCRIPTORS, REST, v1};
use rackwright_gateway::{Gateway, Methods, PeerRights};
use serde_json::Value;
use tokio_stream::StreamExt as _;
use tonic::body::Body;
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt as _};
use tower::{Service, ServiceExt as _};

pub const LIMIT: usize = 100;

/// A gRPC request as the service saw it.
#[derive(Debug, Clone)]
pub struct Seen {
    pub path: String,
    pub headers: HeaderMap,
    /// The message, or the error of the body.
    pub message: Result<Bytes, Status>,
}

/// A service that answers each request with these messages and this status.
#[derive(Debug, Clone)]
pub struct Scripted {
    pub messages: Vec<Bytes>,
    pub status: Status,
    /// The status comes in the headers, without a body.
    pub is_early: bool,
    /// The body of the request is not read.
    pub refuses: bool,
    /// The answer, or the end of a stream, never comes.
    pub hangs: bool,
    pub seen: Arc<Mutex<Vec<Seen>>>,
}

pub fn framed(message: &[u8]) -> Bytes {
    let mut out = BytesMut::new();
    out.put_u8(0);
    out.put_u32(u32::try_from(message.len()).expect("a short message"));
    out.put(message);
    out.freeze()
}

impl Service<Request<Body>> for Scripted {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let own = self.clone();
        Box::pin(async move {
            let (head, body) = request.into_parts();
            if own.refuses {
                return Ok(own.status.into_http());
            }
            let message = body.collect().await.map(|body| body.to_bytes());
            let status = match &message {
                Ok(_) => own.status.clone(),
                Err(status) => status.clone(),
            };
            let is_early = own.is_early || message.is_err();
            own.seen.lock().expect("no thread panicked").push(Seen {
                path: head.uri.path().to_owned(),
                headers: head.headers,
                message,
            });
            if is_early {
                return Ok(status.into_http());
            }
            let mut trailers = HeaderMap::new();
            status.add_header(&mut trailers).expect("trailers");
            trailers.insert("x-cost", HeaderValue::from_static("3"));
            // One byte at a time: messages arrive in any pieces.
            let bytes = own
                .messages
                .iter()
                .flat_map(|message| framed(message))
                .collect::<Vec<u8>>();
            let frames = bytes
                .into_iter()
                .map(|byte| Frame::data(Bytes::copy_from_slice(&[byte])));
            let frames = frames.chain((!own.hangs).then(|| Frame::trailers(trailers)));
            let frames = tokio_stream::iter(frames.map(Ok::<_, Infallible>).collect::<Vec<_>>());
            let body = match own.hangs {
                true => Body::new(StreamBody::new(frames.chain(tokio_stream::pending()))),
                false => Body::new(StreamBody::new(frames)),
            };
            let mut response = Response::new(body);
            response
                .headers_mut()
                .insert("content-type", HeaderValue::from_static("application/grpc"));
            response
                .headers_mut()
                .insert("x-served-by", HeaderValue::from_static("one"));
            Ok(response)
        })
    }
}

impl Scripted {
    pub fn new(messages: &[v1::Node], status: Status) -> Self {
        Self {
            messages: messages.iter().map(|node| node.encode_to_vec().into()).collect(),
            status,
            is_early: false,
            refuses: false,
            hangs: false,
            seen: Arc::default(),
        }
    }

    pub fn seen(&self) -> Seen {
        let seen = self.seen.lock().expect("no thread panicked");
        seen.last().cloned().expect("a request reached the service")
    }

    pub fn is_untouched(&self) -> bool {
        self.seen.lock().expect("no thread panicked").is_empty()
    }

    /// The status, the headers and the body of the answer to a `POST` request.
    pub async fn post(&self, path: &str, headers: &[(&'static str, &str)], body: impl Into<Bytes>) -> Answer {
        let mut request = Request::post(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let body = http_body_util::Full::new(body.into());
        self.send(request.body(Body::new(body)).expect("a request")).await
    }

    /// The answer to a REST request.
    pub async fn rest(
        &self,
        verb: Method,
        uri: &str,
        headers: &[(&'static str, &str)],
        body: impl AsRef<[u8]>,
    ) -> Answer {
        let mut request = Request::builder().method(verb).uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let body = http_body_util::Full::new(Bytes::copy_from_slice(body.as_ref()));
        self.send(request.body(Body::new(body)).expect("a request")).await
    }

    pub async fn send(&self, request: Request<Body>) -> Answer {
        let gateway = Gateway::new(self.clone(), methods(), rights(), Arc::new(|| {}));
        let (head, body) = gateway.oneshot(request).await.expect("no service fails").into_parts();
        let body = body.collect().await.expect("a body");
        assert!(body.trailers().is_none(), "Connect has no trailers");
        Answer {
            status: head.status,
            headers: head.headers,
            body: body.to_bytes(),
        }
    }
}

#[derive(Debug)]
pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {:?}", self.body))
    }

    /// The lines of a REST stream.
    pub fn lines(&self) -> Vec<Value> {
        let lines = self.body.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        lines.map(|line| serde_json::from_slice(line).expect("JSON")).collect()
    }

    /// The messages of a Connect stream: flags, and JSON.
    pub fn messages(&self) -> Vec<(u8, Value)> {
        let (mut rest, mut messages) = (self.body.as_ref(), Vec::new());
        while let Some((prefix, after)) = rest.split_at_checked(5) {
            let length = u32::from_be_bytes(prefix[1..].try_into().expect("four bytes")) as usize;
            messages.push((prefix[0], serde_json::from_slice(&after[..length]).expect("JSON")));
            rest = &after[length..];
        }
        assert!(rest.is_empty(), "{rest:?}");
        messages
    }
}

pub fn node(name: &str) -> v1::Node {
    v1::Node {
        name: name.to_owned(),
        ..v1::Node::default()
    }
}

pub fn not_found() -> Status {
    let details = ErrorDetails::with_resource_info("node", "nodes/n9", "", "does not exist");
    Status::with_error_details(Code::NotFound, "node n9 does not exist", details)
}

/// A peer that is known, with the limit of the tests.
pub fn rights() -> PeerRights {
    PeerRights {
        limit: |_, _| LIMIT,
        reads_openapi: |_| true,
    }
}

/// The methods of the API with their REST paths.
pub fn methods() -> Arc<Methods> {
    let methods = Methods::new(&[DESCRIPTORS]).expect("descriptors");
    Arc::new(
        methods
            .with_rest(REST, "rackwright.v1")
            .expect("the table has no fault"),
    )
}
