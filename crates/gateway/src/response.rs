//! From a gRPC response to a Connect response.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use http::header::{ALLOW, CONTENT_LENGTH, CONTENT_TYPE, ETAG, SEC_WEBSOCKET_VERSION, UPGRADE};
use http::response::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use http_body::{Body as _, Frame};
use serde::Serialize;
use tonic::body::Body;
use tonic::{Code, Status};

use crate::error::{Error, RestError, http_status};
use crate::methods::{Methods, to_json, version};
use crate::request::{COMPRESSED, Call, Format, PREFIX, Protocol, Style};
use crate::rest::Unrouted;
use crate::websocket::{self, Refused};

/// The flag of the last message of a stream.
const END: u8 = 0b10;

/// The response to a REST request without a method.
pub(crate) fn unrouted(methods: &Methods, unrouted: &Unrouted, is_head: bool) -> Response<Body> {
    let mut head = Response::new(()).into_parts().0;
    let (http_status, status) = unrouted.status();
    if let Unrouted::OtherVerb(verbs) = unrouted {
        let verbs: Vec<&str> = verbs.iter().map(http::Method::as_str).collect();
        if let Ok(verbs) = HeaderValue::try_from(verbs.join(", ")) {
            head.headers.insert(ALLOW, verbs);
        }
    }
    let response = rest_failure(head, methods, &status, http_status);
    match is_head {
        true => response.map(|_| Body::empty()),
        false => response,
    }
}

/// The response to a request that is neither gRPC, nor Connect, nor REST.
pub(crate) fn unsupported(methods: &Methods, is_post: bool) -> Response<Body> {
    let (http_status, message) = match is_post {
        true => (
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "Content-Type: application/grpc, application/json, application/proto, application/connect+json or \
             application/connect+proto is needed",
        ),
        false => (
            StatusCode::METHOD_NOT_ALLOWED,
            "this path takes POST; paths below /v1/ take other verbs",
        ),
    };
    let head = Response::new(()).into_parts().0;
    rest_failure(head, methods, &Status::unimplemented(message), http_status)
}

/// The response to a Connect request with a content type that its method does not take.
pub(crate) fn other_type(methods: &Methods, message: &str) -> Response<Body> {
    let head = Response::new(()).into_parts().0;
    let status = Status::unimplemented(message);
    rest_failure(head, methods, &status, StatusCode::UNSUPPORTED_MEDIA_TYPE)
}

/// The response to a request that cannot open a WebSocket.
pub(crate) fn no_websocket(methods: &Methods, refused: &Refused) -> Response<Body> {
    let mut head = Response::new(()).into_parts().0;
    if refused.http_status == StatusCode::UPGRADE_REQUIRED {
        head.headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
        let version = HeaderValue::from_static(websocket::VERSION);
        head.headers.insert(SEC_WEBSOCKET_VERSION, version);
    }
    rest_failure(head, methods, &refused.status, refused.http_status)
}

/// The error of a REST request.
pub(crate) fn rest_refusal(methods: &Methods, status: &Status) -> Response<Body> {
    let head = Response::new(()).into_parts().0;
    rest_failure(head, methods, status, http_status(status.code()))
}

/// The response to a peer that may not read the OpenAPI document.
pub(crate) fn unknown_peer(methods: &Methods) -> Response<Body> {
    let message = "this document needs a client certificate, and the connection has none";
    rest_refusal(methods, &Status::unauthenticated(message))
}

/// A JSON document.
pub(crate) fn document(json: Bytes) -> Response<Body> {
    let mut response = Response::new(whole(json));
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, json);
    response
}

/// The response to a request that did not pass to the services.
pub(crate) fn refusal(protocol: Protocol, methods: &Methods, status: &Status) -> Response<Body> {
    let mut head = Response::new(()).into_parts().0;
    if !protocol.is_stream || protocol.style == Style::Rest {
        return failure(head, protocol, methods, status);
    }
    head.headers.insert(CONTENT_TYPE, protocol.content_type());
    Response::from_parts(head, whole(end(methods, status, &HeaderMap::new())))
}

/// The status of a call that took longer than the request allows.
pub(crate) fn late() -> Status {
    Status::deadline_exceeded("the call took longer than Connect-Timeout-Ms")
}

/// The Connect form of a gRPC response.
pub(crate) async fn translated(call: Call, methods: Arc<Methods>, response: Response<Body>) -> Response<Body> {
    let (mut head, body) = response.into_parts();
    let early = Status::from_header_map(&head.headers);
    remove_protocol(&mut head.headers);
    let protocol = call.protocol;
    if let (Some(status), Style::Rest) = (&early, protocol.style) {
        return failure(head, protocol, &methods, status);
    }
    if protocol.is_stream {
        head.headers.insert(CONTENT_TYPE, protocol.content_type());
        head.status = StatusCode::OK;
        let body = match early {
            Some(status) => whole(end(&methods, &status, &HeaderMap::new())),
            None => Body::new(ResponseStream {
                body,
                deadline: call
                    .deadline
                    .map(|deadline| Box::pin(tokio::time::sleep_until(deadline))),
                call,
                methods,
                read: BytesMut::new(),
                is_done: false,
            }),
        };
        return Response::from_parts(head, body);
    }
    if let Some(status) = early {
        return failure(head, protocol, &methods, &status);
    }
    let (message, trailers) = match read(body).await {
        Ok(read) => read,
        Err(status) => return failure(head, protocol, &methods, &status),
    };
    let status = Status::from_header_map(&trailers).unwrap_or_else(|| Status::internal("the answer has no status"));
    for (name, value) in &trailers {
        if !is_protocol(name)
            && let Ok(name) = HeaderName::try_from(format!("trailer-{name}"))
        {
            head.headers.append(name, value.clone());
        }
    }
    if status.code() != Code::Ok {
        return failure(head, protocol, &methods, &status);
    }
    match of_one_message(&call, message) {
        Ok((message, version)) => {
            head.status = StatusCode::OK;
            head.headers.insert(CONTENT_TYPE, protocol.content_type());
            let tag = version.and_then(|version| HeaderValue::try_from(format!("\"{version}\"")).ok());
            head.headers.extend(tag.map(|tag| (ETAG, tag)));
            Response::from_parts(head, whole(message))
        }
        Err(status) => failure(head, protocol, &methods, &status),
    }
}

/// Whether a header belongs to gRPC itself.
fn is_protocol(name: &HeaderName) -> bool {
    name.as_str().starts_with("grpc-") || name == CONTENT_TYPE || name == CONTENT_LENGTH
}

pub(crate) fn remove_protocol(headers: &mut HeaderMap) {
    let names: Vec<HeaderName> = headers.keys().filter(|name| is_protocol(name)).cloned().collect();
    for name in names {
        headers.remove(name);
    }
}

/// The response of a unary call that failed. Errors are JSON, also if messages are binary.
fn failure(mut head: Parts, protocol: Protocol, methods: &Methods, status: &Status) -> Response<Body> {
    head.status = http_status(status.code());
    if protocol.style == Style::Rest {
        let http_status = head.status;
        return rest_failure(head, methods, status, http_status);
    }
    head.headers
        .insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Response::from_parts(head, whole(json(&Error::of(status, methods))))
}

pub(crate) fn rest_failure(
    mut head: Parts,
    methods: &Methods,
    status: &Status,
    http_status: StatusCode,
) -> Response<Body> {
    head.status = http_status;
    head.headers
        .insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Response::from_parts(head, whole(json(&RestError::of(status, http_status, methods))))
}

fn json(value: &impl Serialize) -> Bytes {
    // A value of strings always has a JSON form.
    serde_json::to_vec(value).unwrap_or_default().into()
}

fn whole(bytes: Bytes) -> Body {
    Body::new(Whole(Some(bytes)))
}

struct Whole(Option<Bytes>);

impl http_body::Body for Whole {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        Poll::Ready(self.0.take().map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_none()
    }

    fn size_hint(&self) -> http_body::SizeHint {
        let length = self.0.as_ref().map_or(0, |bytes| bytes.len() as u64);
        http_body::SizeHint::with_exact(length)
    }
}

/// All bytes of a gRPC body, and its trailers.
async fn read(mut body: Body) -> Result<(BytesMut, HeaderMap), Status> {
    let (mut read, mut trailers) = (BytesMut::new(), HeaderMap::new());
    while let Some(frame) = std::future::poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
        match frame?.into_data() {
            Ok(data) => read.extend_from_slice(&data),
            Err(frame) => trailers.extend(frame.into_trailers().unwrap_or_default()),
        }
    }
    Ok((read, trailers))
}

/// The only message of a unary response, in the format of the call. For REST with the version of a resource.
fn of_one_message(call: &Call, mut read: BytesMut) -> Result<(Bytes, Option<String>), Status> {
    let message = next_message(&mut read)?.ok_or_else(|| Status::internal("the answer has no message"))?;
    let version = match call.has_tag {
        true => version(call.method.output(), message.clone()),
        false => None,
    };
    Ok((formatted(call, message)?, version))
}

fn formatted(call: &Call, message: Bytes) -> Result<Bytes, Status> {
    match call.protocol.format {
        Format::Proto => Ok(message),
        Format::Json => to_json(call.method.output(), message),
    }
}

/// Takes the next gRPC message from the read bytes. `None`: it is not there yet.
pub(crate) fn next_message(read: &mut BytesMut) -> Result<Option<Bytes>, Status> {
    let Some(prefix) = read.get(..PREFIX) else {
        return Ok(None);
    };
    if prefix[0] & COMPRESSED != 0 {
        return Err(Status::internal(
            "the answer is compressed, and the request did not allow that",
        ));
    }
    let length = u32::from_be_bytes([prefix[1], prefix[2], prefix[3], prefix[4]]);
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    if read.len() - PREFIX < length {
        return Ok(None);
    }
    read.advance(PREFIX);
    Ok(Some(read.split_to(length).freeze()))
}

fn envelope(flags: u8, message: &[u8]) -> Bytes {
    let mut out = BytesMut::with_capacity(PREFIX + message.len());
    out.put_u8(flags);
    // The messages of this API are far below 4 GiB.
    out.put_u32(u32::try_from(message.len()).unwrap_or(u32::MAX));
    out.put(message);
    out.freeze()
}

/// A line of a REST stream. JSON of this gateway has no line breaks.
fn line(message: &[u8]) -> Bytes {
    [message, b"\n"].concat().into()
}

/// The last message of a stream.
#[derive(Debug, Serialize)]
struct EndOfStream {
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Error>,
    #[serde(skip_serializing_if = "serde_json::Map::is_empty")]
    metadata: serde_json::Map<String, serde_json::Value>,
}

fn end(methods: &Methods, status: &Status, trailers: &HeaderMap) -> Bytes {
    let mut metadata = serde_json::Map::new();
    for name in trailers.keys().filter(|name| !is_protocol(name)) {
        let values = trailers.get_all(name).iter().filter_map(|value| value.to_str().ok());
        metadata.insert(name.to_string(), values.collect::<Vec<&str>>().into());
    }
    let error = (status.code() != Code::Ok).then(|| Error::of(status, methods));
    envelope(END, &json(&EndOfStream { error, metadata }))
}

/// The messages of a gRPC response, as a Connect stream.
struct ResponseStream {
    body: Body,
    call: Call,
    methods: Arc<Methods>,
    deadline: Option<Pin<Box<tokio::time::Sleep>>>,
    read: BytesMut,
    is_done: bool,
}

impl ResponseStream {
    fn ended(&mut self, status: &Status, trailers: &HeaderMap) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        self.is_done = true;
        let last = match (self.call.protocol.style, status.code()) {
            (Style::Connect, _) => end(&self.methods, status, trailers),
            (Style::Rest, Code::Ok) => return Poll::Ready(None),
            (Style::Rest, code) => line(&json(&RestError::of(status, http_status(code), &self.methods))),
        };
        Poll::Ready(Some(Ok(Frame::data(last))))
    }

    fn part(&self, message: &[u8]) -> Bytes {
        match self.call.protocol.style {
            Style::Connect => envelope(0, message),
            Style::Rest => line(message),
        }
    }
}

impl http_body::Body for ResponseStream {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if self.is_done {
            return Poll::Ready(None);
        }
        loop {
            let next = next_message(&mut self.read);
            match next.and_then(|message| message.map(|message| formatted(&self.call, message)).transpose()) {
                Ok(Some(message)) => return Poll::Ready(Some(Ok(Frame::data(self.part(&message))))),
                Ok(None) => {}
                Err(status) => return self.ended(&status, &HeaderMap::new()),
            }
            let none = HeaderMap::new();
            if let Some(deadline) = &mut self.deadline
                && deadline.as_mut().poll(context).is_ready()
            {
                return self.ended(&late(), &none);
            }
            match ready!(Pin::new(&mut self.body).poll_frame(context)) {
                None => return self.ended(&Status::unavailable("the answer ended without a status"), &none),
                Some(Err(status)) => return self.ended(&status, &none),
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => self.read.extend_from_slice(&data),
                    Err(frame) => {
                        let trailers = frame.into_trailers().unwrap_or_default();
                        let missing = || Status::unavailable("the answer ended without a status");
                        let status = Status::from_header_map(&trailers).unwrap_or_else(missing);
                        return self.ended(&status, &trailers);
                    }
                },
            }
        }
    }
}
