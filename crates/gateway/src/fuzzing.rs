//! The entry points of the fuzzer: a request of each form, without a network.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response};
use http_body::{Body as _, Frame};
use prost_reflect::DynamicMessage;
use tokio::runtime::{Builder, Runtime};
use tonic::Status;
use tonic::body::Body;
use tower::{Service as _, service_fn};

use crate::rest::Form;
use crate::{Gateway, Methods, PeerRights, websocket};

/// Most bytes of a message.
const LIMIT: usize = 1 << 20;
/// Longest work for one request.
const TIME_MAX: Duration = Duration::from_secs(10);
/// Bytes of a body that arrive together.
const PIECE: usize = 100;

type Answering = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

/// The result of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// The HTTP status of the answer.
    pub status: u16,
    /// The answer.
    pub body: Vec<u8>,
    /// The gRPC path and body that the service has read. `None`: no service was called, or the body has a fault.
    pub read: Option<(String, Vec<u8>)>,
}

/// Sends a request through the gateway to a service that reads it and answers with an empty message.
///
/// `input` is written as in HTTP/1.1: verb and target in the first line, headers, an empty line, the body. `None`: that is
/// no request.
///
/// # Errors
/// The work on the request does not end in ten seconds, or there is no runtime for it.
pub fn answered(methods: &Arc<Methods>, input: &[u8]) -> Result<Option<Outcome>, String> {
    let Some(request) = request(input) else { return Ok(None) };
    let seen = Arc::new(Mutex::new(None));
    let service = {
        let seen = seen.clone();
        service_fn(move |request: Request<Body>| -> Answering {
            let seen = seen.clone();
            Box::pin(async move {
                let path = request.uri().path().to_owned();
                let (status, message) = match collected(request.into_body()).await {
                    Ok(body) => {
                        *seen.lock().unwrap_or_else(PoisonError::into_inner) = Some((path, body));
                        (Status::ok(""), Some(Frame::data(Bytes::from_static(&[0; 5]))))
                    }
                    Err(status) => (status, None),
                };
                let code = HeaderValue::from(i32::from(status.code()));
                let trailers = HeaderMap::from_iter([(HeaderName::from_static("grpc-status"), code)]);
                let frames: Vec<Frame<Bytes>> = message.into_iter().chain([Frame::trailers(trailers)]).collect();
                Ok(Response::new(Body::new(Frames(frames.into_iter()))))
            })
        })
    };
    let rights = PeerRights {
        limit: |_, _| LIMIT,
        reads_openapi: |_| true,
    };
    let mut gateway = Gateway::new(service, methods.clone(), rights, Arc::new(|| {}));
    let answering = async move {
        let Ok(response) = gateway.call(request).await;
        let status = response.status().as_u16();
        let body = collected(response.into_body()).await;
        (status, body.unwrap_or_default())
    };
    let late = |_| "the answer takes too long".to_owned();
    let in_time = async { tokio::time::timeout(TIME_MAX, answering).await };
    let (status, body) = runtime()?.block_on(in_time).map_err(late)?;
    let read = seen.lock().unwrap_or_else(PoisonError::into_inner).take();
    Ok(Some(Outcome { status, body, read }))
}

/// The gRPC messages of a client of the WebSocket at the first such path, which sends these bytes after the handshake.
///
/// # Errors
/// The table has no WebSocket, the reading does not end in ten seconds, or there is no runtime for it.
pub fn heard(methods: &Methods, bytes: &[u8]) -> Result<(String, Vec<Bytes>), String> {
    let socket = methods.routes().all().find_map(|route| match &route.form {
        Form::WebSocket(field) => Some((route.method.clone(), field.clone())),
        _ => None,
    });
    let (method, field) = socket.ok_or("the table has no WebSocket")?;
    let reading = async { tokio::time::timeout(TIME_MAX, websocket::heard(bytes, field)).await };
    let heard = runtime()?.block_on(reading);
    let heard = heard.map_err(|_| "the reading takes too long".to_owned())?;
    Ok((crate::request::path(&method), heard))
}

/// Whether these bytes are gRPC messages of requests to this path, which follow one another. `None`: they are not even
/// framed as messages.
#[must_use]
pub fn are_requests(methods: &Methods, path: &str, mut bytes: &[u8]) -> Option<bool> {
    let input = methods.get(path)?.input();
    let mut are = true;
    while let Some(([flags, length @ ..], rest)) = bytes.split_first_chunk::<5>() {
        let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
        let (message, rest) = rest.split_at_checked(length).filter(|_| *flags == 0)?;
        are &= DynamicMessage::decode(input.clone(), message).is_ok();
        bytes = rest;
    }
    bytes.is_empty().then_some(are)
}

fn runtime() -> Result<Runtime, String> {
    let runtime = Builder::new_current_thread().enable_time().build();
    runtime.map_err(|error| error.to_string())
}

fn request(input: &[u8]) -> Option<Request<Body>> {
    let mut rest = input;
    let mut line = || {
        let end = rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
        let (line, after) = rest.split_at(end);
        rest = after.get(1..).unwrap_or_default();
        line.trim_ascii()
    };
    let mut words = line().split(|byte| *byte == b' ');
    let (verb, target) = (words.next()?, words.next()?);
    let mut request = Request::builder().method(verb).uri(target);
    loop {
        let header = line();
        if header.is_empty() {
            break;
        }
        let colon = header.iter().position(|byte| *byte == b':')?;
        let name = HeaderName::from_bytes(&header[..colon]).ok()?;
        request = request.header(name, HeaderValue::from_bytes(header[colon + 1..].trim_ascii()).ok()?);
    }
    // In pieces, as it arrives from a network.
    let pieces = rest
        .chunks(PIECE)
        .map(|piece| Frame::data(Bytes::copy_from_slice(piece)));
    let pieces: Vec<Frame<Bytes>> = pieces.collect();
    request.body(Body::new(Frames(pieces.into_iter()))).ok()
}

/// A body with these frames.
struct Frames(std::vec::IntoIter<Frame<Bytes>>);

impl http_body::Body for Frames {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        Poll::Ready(self.0.next().map(Ok))
    }
}

async fn collected(mut body: Body) -> Result<Vec<u8>, Status> {
    let mut all = Vec::new();
    while let Some(frame) = std::future::poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
        if let Ok(data) = frame?.into_data() {
            all.extend_from_slice(&data);
        }
    }
    Ok(all)
}
