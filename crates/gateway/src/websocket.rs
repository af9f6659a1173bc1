//! A call with streams in both directions, over a WebSocket (RFC 6455).
//!
//! The fields of the path and the query are the first message of the request. Each binary message of the client is one
//! more. A binary message to the client has the bytes of a response; a response without bytes is a text message with its
//! JSON.
//!
//! The call answers first. A refused call is an ordinary REST error, and only an accepted one makes the connection a
//! WebSocket. The end of the call closes the WebSocket with its status, and the end of the WebSocket ends the call.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::{Bytes, BytesMut};
use futures::stream::SplitSink;
use futures::{SinkExt as _, StreamExt as _};
use http::header::{
    CONNECTION, CONTENT_LENGTH, HOST, HeaderName, ORIGIN, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY,
    SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_VERSION, TRANSFER_ENCODING, UPGRADE,
};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Version};
use http_body::{Body as _, Frame};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use prost_reflect::{DynamicMessage, FieldDescriptor};
use tokio::io::AsyncWriteExt as _;
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval_at, timeout};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Error;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Message, Role, WebSocketConfig};
use tonic::body::Body;
use tonic::{Code, Status};

use crate::PeerRights;
use crate::error::http_status;
use crate::methods::Methods;
use crate::parts::part;
use crate::request::{check_headers, check_uncompressed, framed, metadata, path};
use crate::response::{next_message, remove_protocol, rest_failure};
use crate::rest::{Form, Routed, bytes_field};

/// The version of the WebSocket protocol.
pub(crate) const VERSION: &str = "13";
/// The subprotocol of consoles, the only calls in this form.
const PROTOCOL: &str = "rackwright.console.v1";
/// Most bytes of a message from the client.
const MESSAGE_MAX: usize = 64 << 10;
/// Messages of the client that wait for the service.
const QUEUE: usize = 4;
/// Bytes of a decoded `Sec-WebSocket-Key`.
const KEY: usize = 16;
/// Interval of pings to the client.
const PING_EVERY: Duration = Duration::from_secs(30);
/// A client that sends nothing for this long, not even an answer to a ping, is gone.
const SILENCE_MAX: Duration = Duration::from_secs(75);
/// Time limit for the client's close frame.
const CLOSING_MAX: Duration = Duration::from_secs(2);
/// Most bytes of the reason in a close frame.
const REASON_MAX: usize = 123;
/// The close code of a gRPC status is this number plus the status code.
const STATUS_BASE: u16 = 4000;

type Stream = WebSocketStream<TokioIo<Upgraded>>;

/// Why a request cannot open a WebSocket.
#[derive(Debug)]
pub(crate) struct Refused {
    pub(crate) http_status: StatusCode,
    pub(crate) status: Status,
}

impl From<Status> for Refused {
    fn from(status: Status) -> Self {
        let http_status = http_status(status.code());
        Self { http_status, status }
    }
}

fn needs_upgrade(message: &'static str) -> Refused {
    Refused {
        http_status: StatusCode::UPGRADE_REQUIRED,
        status: Status::failed_precondition(message),
    }
}

/// A call that waits for its answer, and for its WebSocket.
#[derive(Debug)]
pub(crate) struct Socket {
    upgrade: OnUpgrade,
    /// The headers of the answer to an accepted call.
    headers: HeaderMap,
    input: mpsc::Sender<Bytes>,
    /// The fields of bytes in the messages of both directions.
    fields: (FieldDescriptor, FieldDescriptor),
    limit: usize,
}

impl Socket {
    /// The gRPC request of a request for a WebSocket.
    ///
    /// # Errors
    /// The request cannot open a WebSocket.
    pub(crate) fn open(
        routed: Routed,
        request: Request<Body>,
        rights: PeerRights,
    ) -> Result<(Self, Request<Body>), Refused> {
        let Routed { method, form, fields } = routed;
        let output = bytes_field(&method.output());
        let (Form::WebSocket(input_field), Some(output_field)) = (form, output) else {
            return Err(Status::internal("the messages of this call have no bytes").into());
        };
        check_headers(request.headers())?;
        check_uncompressed(request.headers())?;
        let headers = handshake(&request)?;
        let (mut head, _) = request.into_parts();
        let upgrade = head.extensions.remove::<OnUpgrade>();
        let upgrade = upgrade.ok_or_else(|| Status::internal("this connection cannot become a WebSocket"))?;
        let path = path(&method);
        let limit = (rights.limit)(&head.extensions, &path).min(MESSAGE_MAX);
        let (input, messages) = mpsc::channel(QUEUE);
        let first = input.try_send(framed(&fields)?);
        first.map_err(|_| Status::internal("the first message of the call was not sent"))?;
        head.method = Method::POST;
        head.uri = path.parse().map_err(|_| Status::internal("the method has no path"))?;
        head.headers = metadata(head.headers);
        let socket = Self {
            upgrade,
            headers,
            input,
            fields: (input_field, output_field),
            limit,
        };
        Ok((socket, Request::from_parts(head, Body::new(InputBody(messages)))))
    }

    /// The answer to the request: an error, or the beginning of the WebSocket.
    pub(crate) fn answered(self, methods: &Methods, response: Response<Body>) -> Response<Body> {
        let Self {
            upgrade,
            headers,
            input,
            fields: (input_field, output_field),
            limit,
        } = self;
        let (mut head, body) = response.into_parts();
        let refused = Status::from_header_map(&head.headers);
        remove_protocol(&mut head.headers);
        if let Some(status) = refused {
            return rest_failure(head, methods, &status, http_status(status.code()));
        }
        head.status = StatusCode::SWITCHING_PROTOCOLS;
        head.headers.extend(headers);
        let output = Output {
            body,
            read: BytesMut::new(),
            field: output_field,
        };
        let config = WebSocketConfig::default()
            .max_message_size(Some(limit))
            .max_frame_size(Some(limit));
        tokio::spawn(async move {
            // Without a WebSocket, both directions of the call end here.
            let Ok(upgraded) = upgrade.await else { return };
            let stream = Stream::from_raw_socket(TokioIo::new(upgraded), Role::Server, Some(config)).await;
            carry(stream, output, (input, input_field), limit).await;
        });
        Response::from_parts(head, Body::empty())
    }
}

/// Whether a header is a list with this word.
fn has_word(headers: &HeaderMap, name: HeaderName, word: &str) -> bool {
    let values = headers
        .get_all(name)
        .into_iter()
        .filter_map(|value| value.to_str().ok());
    values
        .flat_map(|value| value.split(','))
        .any(|part| part.trim().eq_ignore_ascii_case(word))
}

/// Checks that the request opens a WebSocket, and gives the headers of the answer.
fn handshake(request: &Request<Body>) -> Result<HeaderMap, Refused> {
    let headers = request.headers();
    if request.version() != Version::HTTP_11 {
        return Err(Status::failed_precondition("this path is a WebSocket: open it with HTTP/1.1").into());
    }
    if !has_word(headers, CONNECTION, "upgrade") || !has_word(headers, UPGRADE, "websocket") {
        let message = "this path is a WebSocket: send Connection: Upgrade and Upgrade: websocket";
        return Err(needs_upgrade(message));
    }
    if headers.get(SEC_WEBSOCKET_VERSION).is_none_or(|given| given != VERSION) {
        return Err(needs_upgrade("Sec-WebSocket-Version: only version 13 is supported"));
    }
    let key = headers.get(SEC_WEBSOCKET_KEY).map(HeaderValue::as_bytes);
    let is_key = |key: &&[u8]| STANDARD.decode(key).is_ok_and(|bytes| bytes.len() == KEY);
    let key = key
        .filter(is_key)
        .ok_or_else(|| Status::invalid_argument("Sec-WebSocket-Key: 16 bytes in base64 are needed"))?;
    let has_length = headers.get(CONTENT_LENGTH).is_some_and(|length| length != "0");
    if has_length || headers.contains_key(TRANSFER_ENCODING) {
        return Err(Status::invalid_argument("this request takes no body").into());
    }
    if !is_of_own_origin(headers) {
        return Err(Status::permission_denied("pages of other sites must not call this API").into());
    }
    let mut answer = HeaderMap::new();
    answer.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    answer.insert(UPGRADE, HeaderValue::from_static("websocket"));
    let accept = HeaderValue::try_from(derive_accept_key(key));
    let accept = accept.map_err(|_| Status::internal("the key has no answer"))?;
    answer.insert(SEC_WEBSOCKET_ACCEPT, accept);
    if has_word(headers, SEC_WEBSOCKET_PROTOCOL, PROTOCOL) {
        answer.insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(PROTOCOL));
    }
    Ok(answer)
}

/// Whether the request is of a program, or of a page of this host. Each browser states the page's origin when it opens a
/// WebSocket, and opens it for pages of all sites.
fn is_of_own_origin(headers: &HeaderMap) -> bool {
    let Some(origin) = headers.get(ORIGIN) else { return true };
    let authority = origin.to_str().ok().and_then(|origin| origin.split_once("://"));
    let host = headers.get(HOST).and_then(|host| host.to_str().ok());
    host.is_some() && authority.map(|(_, authority)| authority) == host
}

/// The messages of the client, as the body of a gRPC request. The body ends with the WebSocket.
struct InputBody(mpsc::Receiver<Bytes>);

impl http_body::Body for InputBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let message = self.0.poll_recv(context);
        message.map(|message| message.map(|message| Ok(Frame::data(message))))
    }
}

/// The messages of the call's response.
struct Output {
    body: Body,
    read: BytesMut,
    field: FieldDescriptor,
}

impl Output {
    /// The next message.
    ///
    /// # Errors
    /// The status of the call, which has ended. It may be OK.
    async fn next(&mut self) -> Result<Message, Status> {
        let unfinished = || Status::unavailable("the answer ended without a status");
        loop {
            if let Some(message) = next_message(&mut self.read)? {
                return self.shown(message);
            }
            let frame = std::future::poll_fn(|context| Pin::new(&mut self.body).poll_frame(context)).await;
            match frame.ok_or_else(unfinished)??.into_data() {
                Ok(data) => self.read.extend_from_slice(&data),
                Err(frame) => {
                    let trailers = frame.into_trailers().unwrap_or_default();
                    return Err(Status::from_header_map(&trailers).unwrap_or_else(unfinished));
                }
            }
        }
    }

    fn shown(&self, message: Bytes) -> Result<Message, Status> {
        let unreadable =
            |error: &dyn std::fmt::Display| Status::internal(format!("the answer cannot be translated: {error}"));
        let message = DynamicMessage::decode(self.field.parent_message().clone(), message);
        let message = message.map_err(|error| unreadable(&error))?;
        if message.has_field(&self.field) {
            let bytes = message.get_field(&self.field).as_bytes().cloned();
            return Ok(Message::Binary(bytes.unwrap_or_default()));
        }
        let text = serde_json::to_string(&message).map_err(|error| unreadable(&error))?;
        Ok(Message::Text(text.into()))
    }
}

/// Why a WebSocket ends.
#[derive(Debug)]
enum End {
    /// This side closes it.
    Closed(CloseCode, String),
    /// This side closes it, and the client's messages cannot be read any more.
    Unreadable(CloseCode, String),
    /// The client has closed it, or the connection is broken.
    Gone,
}

impl End {
    fn of(status: &Status) -> Self {
        let code = match status.code() {
            Code::Ok => CloseCode::Normal,
            code => CloseCode::from(STATUS_BASE + u16::try_from(i32::from(code)).unwrap_or_default()),
        };
        Self::Closed(code, status.message().to_owned())
    }
}

/// Carries messages in both directions until one of them ends.
async fn carry(stream: Stream, output: Output, input: (mpsc::Sender<Bytes>, FieldDescriptor), limit: usize) {
    let (mut to, mut from) = stream.split();
    // The direction that has not ended is dropped here, and with it the call.
    let end = tokio::select! {
        end = show(&mut to, output) => end,
        end = listen(&mut from, input, limit) => end,
    };
    if let Ok(stream) = to.reunite(from) {
        // A client that does not take part is cut off.
        let _ = timeout(CLOSING_MAX, close(stream, end)).await;
    }
}

/// Sends the messages of the response, and pings.
async fn show(to: &mut SplitSink<Stream, Message>, mut output: Output) -> End {
    let mut pings = interval_at(Instant::now() + PING_EVERY, PING_EVERY);
    pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let next = tokio::select! {
            next = output.next() => next,
            _ = pings.tick() => Ok(Message::Ping(Bytes::new())),
        };
        match next {
            Ok(message) => {
                if to.send(message).await.is_err() {
                    return End::Gone;
                }
            }
            Err(status) => return End::of(&status),
        }
    }
}

/// Passes the messages of the client on. While the service takes none, none is read.
async fn listen(
    from: &mut (impl futures::Stream<Item = Result<Message, Error>> + Unpin),
    (input, field): (mpsc::Sender<Bytes>, FieldDescriptor),
    limit: usize,
) -> End {
    loop {
        let Ok(Some(read)) = timeout(SILENCE_MAX, from.next()).await else {
            return End::Gone;
        };
        let typed = match read {
            Ok(Message::Binary(typed)) => typed,
            Ok(Message::Text(_)) => return End::Closed(CloseCode::Unsupported, "send binary messages".to_owned()),
            Ok(Message::Close(_)) => return End::Gone,
            // Answers to pings. The library answers the client's pings.
            Ok(_) => continue,
            Err(Error::Capacity(_)) => {
                return End::Unreadable(CloseCode::Size, format!("a message has at most {limit} bytes"));
            }
            Err(Error::Protocol(fault)) => return End::Unreadable(CloseCode::Protocol, fault.to_string()),
            Err(_) => return End::Gone,
        };
        match part(&field, &[], typed) {
            // A call that takes no more messages may still have output.
            Ok(message) => drop(input.send(message).await),
            Err(status) => return End::of(&status),
        }
    }
}

/// The gRPC messages of a client that sends these bytes after the handshake, and then nothing: for the fuzzer.
pub(crate) async fn heard(bytes: &[u8], field: FieldDescriptor) -> Vec<Bytes> {
    let config = WebSocketConfig::default()
        .max_message_size(Some(MESSAGE_MAX))
        .max_frame_size(Some(MESSAGE_MAX));
    let connection = tokio::io::join(std::io::Cursor::new(bytes.to_vec()), tokio::io::sink());
    let mut stream = WebSocketStream::from_raw_socket(connection, Role::Server, Some(config)).await;
    // A frame has at least two bytes.
    let (input, mut messages) = mpsc::channel(bytes.len() + 1);
    listen(&mut stream, (input, field), MESSAGE_MAX).await;
    let mut heard = Vec::new();
    while let Ok(message) = messages.try_recv() {
        heard.push(message);
    }
    heard
}

/// Sends the close frame, and waits for the client's.
async fn close(mut stream: Stream, end: End) {
    let (frame, is_readable) = match end {
        End::Closed(code, reason) => (Some((code, reason)), true),
        End::Unreadable(code, reason) => (Some((code, reason)), false),
        End::Gone => (None, true),
    };
    if let Some((code, reason)) = frame {
        let reason = cut(&reason).into();
        let frame = Message::Close(Some(CloseFrame { code, reason }));
        if stream.send(frame).await.is_err() {
            return;
        }
    }
    // Answers a close frame of the client, too.
    while let Some(Ok(_)) = stream.next().await {}
    if !is_readable {
        // Unread bytes at the end of a connection reset it. The client might then lose the close frame.
        let _ = tokio::io::copy(stream.get_mut(), &mut tokio::io::sink()).await;
    }
    let _ = stream.get_mut().shutdown().await;
}

/// The beginning of a text that fits a close frame.
fn cut(text: &str) -> &str {
    let mut end = text.len().min(REASON_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}
