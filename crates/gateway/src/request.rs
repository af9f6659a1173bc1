//! Translates requests of Connect and REST to requests of gRPC.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, TE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request};
use http_body::Frame;
use prost_reflect::{FieldDescriptor, MessageDescriptor, MethodDescriptor};
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tonic::Status;
use tonic::body::Body;

use crate::PeerRights;
use crate::gzip;
use crate::methods::{Methods, from_json};
use crate::parts::PartsBody;
use crate::rest::{Form, Routed};

/// Bytes before a message: a byte of flags, and the length. gRPC and the streams of Connect have the same form.
pub(crate) const PREFIX: usize = 5;
/// The flag of a compressed message.
pub(crate) const COMPRESSED: u8 = 0b1;
/// Most bytes of a JSON message: its parsed form takes many times as much memory as the text.
const JSON_MAX: usize = 1 << 20;
/// Up to this many bytes of JSON are parsed at once; more are parsed on a thread for blocking work.
const SHORT_JSON: usize = 16 << 10;
/// Up to this many bytes of gzip are decompressed at once; more go to a thread for blocking work, because the message can
/// be a thousand times as long.
const SHORT_GZIP: usize = 1 << 10;
/// How many long messages of all callers are decompressed and parsed at the same time: parsed JSON takes much memory.
const PARSERS: usize = 4;
static PARSING: Semaphore = Semaphore::const_new(PARSERS);
const VERSION: HeaderName = HeaderName::from_static("connect-protocol-version");
const TIMEOUT: HeaderName = HeaderName::from_static("connect-timeout-ms");
const STREAM_ENCODING: HeaderName = HeaderName::from_static("connect-content-encoding");

/// The encoding of the messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    Json,
    Proto,
}

/// The rules for paths, errors and streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Style {
    Connect,
    Rest,
}

/// The rules for a request and its response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Protocol {
    pub(crate) style: Style,
    pub(crate) format: Format,
    pub(crate) is_stream: bool,
}

impl Protocol {
    /// A unary call of Connect with JSON.
    const JSON: Self = Self {
        style: Style::Connect,
        format: Format::Json,
        is_stream: false,
    };

    /// The protocol of a `POST` request. `None`: another protocol than Connect.
    pub(crate) fn of(headers: &HeaderMap) -> Option<Self> {
        let value = headers.get(CONTENT_TYPE)?.to_str().ok()?;
        let essence = value.split(';').next()?.trim().to_ascii_lowercase();
        let (format, is_stream) = match essence.as_str() {
            "application/json" => (Format::Json, false),
            "application/proto" => (Format::Proto, false),
            "application/connect+json" => (Format::Json, true),
            "application/connect+proto" => (Format::Proto, true),
            _ => return None,
        };
        let style = Style::Connect;
        Some(Self {
            style,
            format,
            is_stream,
        })
    }

    /// REST: JSON, and a line of JSON for each message of a stream.
    pub(crate) fn rest(is_stream: bool) -> Self {
        Self {
            style: Style::Rest,
            format: Format::Json,
            is_stream,
        }
    }

    pub(crate) fn content_type(self) -> HeaderValue {
        HeaderValue::from_static(match (self.style, self.format, self.is_stream) {
            (_, Format::Json, false) => "application/json",
            (_, Format::Proto, false) => "application/proto",
            (Style::Connect, Format::Json, true) => "application/connect+json",
            (Style::Connect, Format::Proto, true) => "application/connect+proto",
            (Style::Rest, _, true) => "application/jsonl",
        })
    }
}

/// Why a request cannot be translated to a call.
#[derive(Debug)]
pub(crate) enum Unfit {
    /// The method takes other content types, which the text names.
    ContentType(&'static str),
    /// Another reason, with the error for the caller.
    Refused(Status),
}

impl From<Status> for Unfit {
    fn from(status: Status) -> Self {
        Self::Refused(status)
    }
}

/// What the translation of a call's body and response needs.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub(crate) protocol: Protocol,
    pub(crate) method: MethodDescriptor,
    /// The end of the request's time-out.
    pub(crate) deadline: Option<Instant>,
    /// Whether the response has the header `ETag` with the version of its resource.
    pub(crate) has_tag: bool,
    /// Fields from the path and the query, encoded; they are merged into the message of the body.
    fields: Bytes,
}

impl Call {
    /// The gRPC request of a Connect request. Its body is translated while the service reads it.
    ///
    /// # Errors
    /// The method does not exist, streams its requests, or takes other content types; or the headers are not valid.
    pub(crate) fn new(
        methods: &Methods,
        protocol: Protocol,
        request: Request<Body>,
        rights: PeerRights,
    ) -> Result<(Self, Request<Body>), Unfit> {
        let path = request.uri().path();
        let method = methods.get(path).cloned();
        let method = method.ok_or_else(|| Status::unimplemented("this call does not exist"))?;
        if method.is_client_streaming() {
            let message = "this call streams its requests: use gRPC, or a client of this API that does";
            return Err(Unfit::Refused(Status::unimplemented(message)));
        }
        if method.is_server_streaming() != protocol.is_stream {
            let message = match protocol.is_stream {
                true => "this call has one response: send Content-Type application/json or application/proto",
                false => {
                    "this call streams its responses: send Content-Type application/connect+json or \
                     application/connect+proto"
                }
            };
            return Err(Unfit::ContentType(message));
        }
        let limit = (rights.limit)(request.extensions(), path);
        Ok(Self::of(protocol, false, method, Bytes::new(), None, request, limit)?)
    }

    /// The gRPC request of a REST request. Its body is translated while the service reads it.
    ///
    /// # Errors
    /// The headers are not valid.
    pub(crate) fn rest(
        routed: Routed,
        request: Request<Body>,
        rights: PeerRights,
    ) -> Result<(Self, Request<Body>), Status> {
        let Routed { method, form, fields } = routed;
        let is_json = Protocol::of(request.headers()).is_some_and(|given| given == Protocol::JSON);
        // A page of another site can make a browser send some other content types without asking first.
        if matches!(*request.method(), Method::POST | Method::PATCH) && !is_json {
            return Err(Status::invalid_argument("Content-Type: application/json is needed"));
        }
        let path = path(&method);
        let limit = match *request.method() {
            Method::POST | Method::PUT | Method::PATCH => (rights.limit)(request.extensions(), &path),
            _ => 0,
        };
        // The response of a call such as `:deploy` is another resource than the one of the path.
        let has_tag = matches!(*request.method(), Method::GET | Method::PATCH);
        let protocol = Protocol::rest(method.is_server_streaming());
        let (mut head, body) = request.into_parts();
        head.method = Method::POST;
        head.uri = path.parse().map_err(|_| Status::internal("the method has no path"))?;
        let request = Request::from_parts(head, body);
        let data = match form {
            Form::Bytes(data) => Some(data),
            Form::Message | Form::WebSocket(_) => None,
        };
        Self::of(protocol, has_tag, method, fields.into(), data, request, limit)
    }

    /// Both of the above. If `data` is given, the body is the raw bytes of this field.
    fn of(
        protocol: Protocol,
        has_tag: bool,
        method: MethodDescriptor,
        fields: Bytes,
        data: Option<FieldDescriptor>,
        request: Request<Body>,
        limit: usize,
    ) -> Result<(Self, Request<Body>), Status> {
        let (mut head, body) = request.into_parts();
        let headers = std::mem::take(&mut head.headers);
        check_headers(&headers)?;
        let is_compressed = is_compressed(&headers, protocol)?;
        if is_compressed && data.is_some() {
            return Err(Status::unimplemented(NOT_COMPRESSED));
        }
        let timeout = headers.get(TIMEOUT).map(milliseconds).transpose()?;
        let limit = match (&data, protocol.format) {
            (None, Format::Json) => limit.min(JSON_MAX),
            _ => limit,
        };
        head.headers = metadata(headers);
        let call = Self {
            protocol,
            method,
            has_tag,
            fields,
            deadline: timeout.and_then(|timeout| Instant::now().checked_add(Duration::from_millis(timeout))),
        };
        let body = match data {
            Some(data) => Body::new(PartsBody::new(body, data, call.fields.clone(), limit)),
            None => Body::new(RequestBody {
                body,
                call: call.clone(),
                is_compressed,
                limit,
                progress: Progress::Reading(BytesMut::new()),
            }),
        };
        Ok((call, Request::from_parts(head, body)))
    }
}

/// The path of a method's gRPC requests.
pub(crate) fn path(method: &MethodDescriptor) -> String {
    format!("/{}/{}", method.parent_service().full_name(), method.name())
}

/// The headers of the gRPC request: the metadata among the given headers, and those that gRPC needs. Headers of HTTP, of
/// WebSockets and of Connect are left out.
pub(crate) fn metadata(headers: HeaderMap) -> HeaderMap {
    let is_metadata = |name: &HeaderName| match name.as_str() {
        "accept-encoding" | "connection" | "content-encoding" | "content-length" | "content-type" | "expect"
        | "host" | "te" | "transfer-encoding" | "upgrade" => false,
        name => !name.starts_with("connect-") && !name.starts_with("sec-websocket-"),
    };
    let mut kept = HeaderMap::new();
    let mut last = None;
    // The iterator gives the name only with the first of several values.
    for (name, value) in headers {
        last = name.or(last);
        if let Some(name) = last.as_ref().filter(|name| is_metadata(name)) {
            kept.append(name.clone(), value);
        }
    }
    kept.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    kept.insert(TE, HeaderValue::from_static("trailers"));
    kept
}

/// Whether the content type is that of gRPC.
pub(crate) fn is_grpc(headers: &HeaderMap) -> bool {
    let value = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let rest = value.and_then(|value| value.strip_prefix("application/grpc"));
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['+', ';']))
}

/// The refusal of a compressed body where raw bytes or no body are expected.
const NOT_COMPRESSED: &str = "requests must not be compressed";

/// Refuses headers of gRPC, and versions of Connect other than 1.
pub(crate) fn check_headers(headers: &HeaderMap) -> Result<(), Status> {
    if let Some(name) = headers.keys().find(|name| name.as_str().starts_with("grpc-")) {
        return Err(Status::invalid_argument(format!(
            "{name}: this header is for gRPC requests"
        )));
    }
    if headers.get(VERSION).is_some_and(|version| version != "1") {
        return Err(Status::invalid_argument(
            "Connect-Protocol-Version: only version 1 is supported",
        ));
    }
    Ok(())
}

/// Whether the message of the request is compressed. For a stream: whether it may be, which its flag then decides.
fn is_compressed(headers: &HeaderMap, protocol: Protocol) -> Result<bool, Status> {
    let name = if protocol.is_stream && protocol.style == Style::Connect {
        STREAM_ENCODING
    } else {
        CONTENT_ENCODING
    };
    match headers.get(&name) {
        None => Ok(false),
        Some(encoding) if encoding == "identity" => Ok(false),
        Some(encoding) if encoding == gzip::NAME => Ok(true),
        Some(_) => Err(Status::unimplemented(format!(
            "{name}: of the compressions, only gzip is supported"
        ))),
    }
}

/// Refuses a request without a body that has a `Content-Encoding`.
pub(crate) fn check_uncompressed(headers: &HeaderMap) -> Result<(), Status> {
    match headers.get(CONTENT_ENCODING) {
        Some(encoding) if encoding != "identity" => Err(Status::unimplemented(NOT_COMPRESSED)),
        _ => Ok(()),
    }
}

fn milliseconds(value: &HeaderValue) -> Result<u64, Status> {
    let number = value.to_str().ok().and_then(|text| text.parse().ok());
    number.ok_or_else(|| Status::invalid_argument("Connect-Timeout-Ms: a number of milliseconds is expected"))
}

/// The body of the gRPC request: the message of the caller's request.
struct RequestBody {
    body: Body,
    call: Call,
    /// See [`is_compressed`].
    is_compressed: bool,
    /// Most bytes of the message.
    limit: usize,
    progress: Progress,
}

enum Progress {
    /// The bytes that have arrived.
    Reading(BytesMut),
    /// A long message is being decompressed and parsed.
    Parsing(Pin<Box<dyn Future<Output = Result<Bytes, Status>> + Send>>),
    /// The gRPC message.
    Parsed(Bytes),
    Done,
}

impl RequestBody {
    /// The error of a message with too many bytes.
    fn too_long(&self) -> Status {
        let limit = self.limit;
        match self.call.protocol.format {
            _ if limit == 0 => Status::invalid_argument("this request takes no body"),
            Format::Json if limit == JSON_MAX => Status::resource_exhausted(format!(
                "the JSON of a request has at most {limit} bytes: send less at once"
            )),
            _ => Status::resource_exhausted(format!("the message of this call has at most {limit} bytes")),
        }
    }

    /// The progress after the last byte has arrived. Short messages are decompressed and parsed at once.
    fn all_read(&self, mut read: Bytes) -> Result<Progress, Status> {
        let mut is_compressed = self.is_compressed;
        if self.call.protocol.is_stream && self.call.protocol.style == Style::Connect {
            (read, is_compressed) = only_message(read, is_compressed)?;
        }
        let gzip_limit = is_compressed.then(|| (self.limit, self.too_long()));
        let format = self.call.protocol.format;
        let message = Message {
            input: self.call.method.input(),
            format,
            fields: self.call.fields.clone(),
        };
        if is_compressed && read.len() > SHORT_GZIP || format == Format::Json && read.len() > SHORT_JSON {
            return Ok(Progress::Parsing(Box::pin(parse_in_background(
                message, read, gzip_limit,
            ))));
        }
        // A short compressed message may be long JSON.
        let read = decompressed(read, gzip_limit)?;
        match format {
            Format::Json if read.len() > SHORT_JSON => {
                Ok(Progress::Parsing(Box::pin(parse_in_background(message, read, None))))
            }
            _ => message.framed(&read).map(Progress::Parsed),
        }
    }
}

/// What turns the bytes of a message into a gRPC message.
struct Message {
    input: MessageDescriptor,
    format: Format,
    /// See [`Call`].
    fields: Bytes,
}

impl Message {
    /// The gRPC message of these bytes, which are not compressed.
    fn framed(&self, read: &[u8]) -> Result<Bytes, Status> {
        match self.format {
            Format::Proto => framed(read),
            Format::Json => framed(&from_json(self.input.clone(), read, &self.fields)?),
        }
    }
}

/// Decompresses a message if `gzip_limit` is given: the limit of its length, and the error of a longer message.
fn decompressed(read: Bytes, gzip_limit: Option<(usize, Status)>) -> Result<Bytes, Status> {
    match gzip_limit {
        None => Ok(read),
        Some((limit, too_long)) => gzip::decompressed(&read, limit).map_err(|fault| fault.status(too_long)),
    }
}

/// Decompresses and parses a long message on a thread for blocking work. Waits while [`PARSERS`] others are parsed.
async fn parse_in_background(
    message: Message,
    read: Bytes,
    gzip_limit: Option<(usize, Status)>,
) -> Result<Bytes, Status> {
    let place = PARSING.acquire().await;
    let place = place.map_err(|_| Status::internal("no long message is read any more"))?;
    // The thread cannot be stopped, so it keeps its place until its end, even if the caller is gone.
    let parsing = tokio::task::spawn_blocking(move || {
        let framed = decompressed(read, gzip_limit).and_then(|read| message.framed(&read));
        drop(place);
        framed
    });
    let failed = |error| Status::internal(format!("the message of the request was not read: {error}"));
    parsing.await.map_err(failed)?
}

/// A message with the prefix that it has in the body of a gRPC request.
pub(crate) fn framed(message: &[u8]) -> Result<Bytes, Status> {
    let length = u32::try_from(message.len()).map_err(|_| Status::resource_exhausted("the message is too long"))?;
    let mut framed = BytesMut::with_capacity(PREFIX + message.len());
    framed.put_u8(0);
    framed.put_u32(length);
    framed.put(message);
    Ok(framed.freeze())
}

/// The only message in the body of a stream, without its prefix, and whether it is compressed.
///
/// # Errors
/// The body is not exactly one message, or the message is compressed and `may_be_compressed` is false.
fn only_message(mut read: Bytes, may_be_compressed: bool) -> Result<(Bytes, bool), Status> {
    let short = || Status::invalid_argument("the request ends before its message does");
    if read.len() < PREFIX {
        return Err(short());
    }
    let flags = read.get_u8();
    let length = usize::try_from(read.get_u32()).unwrap_or(usize::MAX);
    let is_compressed = flags & COMPRESSED != 0;
    if is_compressed && !may_be_compressed {
        return Err(Status::invalid_argument(
            "the message is compressed, and the header Connect-Content-Encoding does not say how",
        ));
    }
    match read.len().cmp(&length) {
        std::cmp::Ordering::Less => Err(short()),
        std::cmp::Ordering::Equal => Ok((read, is_compressed)),
        std::cmp::Ordering::Greater => Err(Status::unimplemented("this call takes one message")),
    }
}

impl http_body::Body for RequestBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let this = &mut *self;
        let message = loop {
            match &mut this.progress {
                Progress::Done => return Poll::Ready(None),
                Progress::Parsing(parsing) => break ready!(parsing.as_mut().poll(context)),
                Progress::Parsed(message) => break Ok(std::mem::take(message)),
                Progress::Reading(read) => match ready!(Pin::new(&mut this.body).poll_frame(context)?) {
                    None => {
                        let read = std::mem::take(read).freeze();
                        match this.all_read(read) {
                            Ok(next) => this.progress = next,
                            Err(status) => break Err(status),
                        }
                    }
                    Some(frame) => {
                        let Ok(data) = frame.into_data() else { continue };
                        if read.len() + data.len() > this.limit {
                            break Err(this.too_long());
                        }
                        read.extend_from_slice(&data);
                    }
                },
            }
        };
        this.progress = Progress::Done;
        Poll::Ready(Some(message.map(Frame::data)))
    }
}
