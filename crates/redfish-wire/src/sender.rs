//! HTTP/1.1 to one BMC: one time limit for each whole answer, over connections that are kept for a moment.

use std::error::Error;
use std::fmt;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Request, Response, StatusCode, request};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::upgrade::Upgraded;
use hyper_util::client::legacy;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tokio::time::{Instant, timeout_at};

use crate::link::{Connector, LinkFault};
use crate::settings::{BODY_RATE, TransportSettings};
use crate::tls;
use crate::upload::Streamed;

/// Our idle time-out: BMCs close idle connections early, so ours close first.
const IDLE: Duration = Duration::from_secs(4);

/// The body of a request.
pub(crate) enum Payload {
    Whole(Bytes),
    File(Streamed),
}

impl Payload {
    pub(crate) fn empty() -> Self {
        Self::Whole(Bytes::new())
    }
}

impl Body for Payload {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        match self.get_mut() {
            Self::Whole(bytes) if bytes.is_empty() => Poll::Ready(None),
            Self::Whole(bytes) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
            Self::File(file) => Pin::new(file).poll_frame(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(bytes) => bytes.is_empty(),
            Self::File(file) => file.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Self::File(file) => file.size_hint(),
        }
    }
}

/// The connections to one BMC. Clones share them.
#[derive(Debug, Clone)]
pub(crate) struct Sender {
    client: legacy::Client<Connector, Payload>,
}

impl Sender {
    pub(crate) fn new(tls: tls::Connector, settings: &TransportSettings) -> Self {
        let client = legacy::Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE)
            .pool_max_idle_per_host(settings.max_concurrent.clamp(1, 4))
            .build(Connector::new(tls, settings.connect_timeout));
        Self { client }
    }

    /// Sends a request and returns the head of the answer, of any status. `limit` applies to the whole answer.
    pub(crate) async fn send(
        &self,
        request: request::Builder,
        payload: Payload,
        limit: Duration,
    ) -> Result<Answer, SendError> {
        let deadline = Deadline {
            limit,
            at: Instant::now() + limit,
        };
        let mut request: Request<Payload> = request
            .body(payload)
            .map_err(|source| SendError(Cause::Request(source)))?;
        add_defaults(request.headers_mut());
        let response = deadline.run_within(self.client.request(request)).await?;
        let response = response.map_err(|source| SendError(Cause::Client(source)))?;
        Ok(Answer {
            response,
            deadline,
            body: None,
        })
    }
}

fn add_defaults(headers: &mut HeaderMap) {
    for (name, value) in [
        (header::ACCEPT, "application/json"),
        // Compression turns strong ETags into weak ones on several BMCs.
        (header::ACCEPT_ENCODING, "identity"),
        (HeaderName::from_static("odata-version"), "4.0"),
        (header::USER_AGENT, "rackwright"),
    ] {
        headers.entry(name).or_insert(HeaderValue::from_static(value));
    }
}

/// The deadline of the whole answer.
#[derive(Debug, Clone, Copy)]
struct Deadline {
    limit: Duration,
    at: Instant,
}

impl Deadline {
    /// Adds the time that this number of bytes may take.
    fn extend(&mut self, bytes: usize) {
        let more = Duration::from_secs_f64(bytes as f64 / BODY_RATE as f64);
        self.limit += more;
        self.at += more;
    }

    async fn run_within<T>(self, work: impl Future<Output = T>) -> Result<T, SendError> {
        let done = timeout_at(self.at, work).await;
        done.map_err(|_| SendError(Cause::Timeout(self.limit)))
    }
}

/// The head of an answer, and its body in pieces.
#[derive(Debug)]
pub struct Answer {
    response: Response<Incoming>,
    deadline: Deadline,
    /// The limit of the body, where it has one of its own.
    body: Option<Deadline>,
}

impl Answer {
    pub(crate) fn status(&self) -> StatusCode {
        self.response.status()
    }

    pub(crate) fn headers(&self) -> &HeaderMap {
        self.response.headers()
    }

    /// Length of the body in bytes; none if it is not known in advance.
    pub(crate) fn length(&self) -> Option<u64> {
        self.response.body().size_hint().exact()
    }

    /// The connection, after the BMC has agreed to switch protocols.
    pub(crate) async fn upgraded(self) -> Result<Upgraded, SendError> {
        let upgraded = self.deadline.run_within(hyper::upgrade::on(self.response)).await?;
        upgraded.map_err(|source| SendError(Cause::Body(source)))
    }

    /// Limits the time of the body from now on; each [`BODY_RATE`] bytes that arrive add a second. The limit of the whole
    /// answer stays.
    pub(crate) fn limit_body(&mut self, limit: Duration) {
        self.body = Some(Deadline {
            limit,
            at: Instant::now() + limit,
        });
    }

    /// The next piece of the body; none at its end.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, SendError> {
        loop {
            let limit = self
                .body
                .filter(|body| body.at < self.deadline.at)
                .unwrap_or(self.deadline);
            let body = self.response.body_mut();
            let next = std::future::poll_fn(|context| Pin::new(&mut *body).poll_frame(context));
            match limit.run_within(next).await? {
                None => return Ok(None),
                Some(Err(source)) => return Err(SendError(Cause::Body(source))),
                // A frame without data is a trailer.
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        if let Some(body) = &mut self.body {
                            body.extend(data.len());
                        }
                        return Ok(Some(data));
                    }
                }
            }
        }
    }
}

/// A failure below HTTP status codes, with its chain of causes.
#[derive(Debug)]
pub struct SendError(Cause);

#[derive(Debug)]
enum Cause {
    /// The request cannot be written as HTTP.
    Request(http::Error),
    /// No connection, or the connection broke before the head of the answer.
    Client(legacy::Error),
    /// The connection broke in the body.
    Body(hyper::Error),
    /// The time limit of the whole answer, given here, is over.
    Timeout(Duration),
}

/// The stage at which an exchange failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Failed {
    Unreachable,
    Tls,
    NoSharedCipher,
    TimedOut,
    Broken,
}

impl SendError {
    pub(crate) fn how(&self) -> Failed {
        if let Cause::Client(client) = &self.0
            && let Some(fault) = client.source().and_then(|cause| cause.downcast_ref::<LinkFault>())
        {
            return fault.how();
        }
        if self.is_timeout() {
            Failed::TimedOut
        } else {
            Failed::Broken
        }
    }

    /// Whether a time limit was exceeded, here or in the kernel.
    pub(crate) fn is_timeout(&self) -> bool {
        let mut cause: Option<&(dyn Error + 'static)> = Some(self);
        while let Some(inner) = cause {
            let kernel = inner.downcast_ref::<io::Error>();
            let ours = inner.downcast_ref::<LinkFault>();
            if kernel.is_some_and(|fault| fault.kind() == io::ErrorKind::TimedOut)
                || ours.is_some_and(LinkFault::is_timeout)
            {
                return true;
            }
            cause = inner.source();
        }
        matches!(self.0, Cause::Timeout(_))
    }

    /// The time limit, if it was our own limit that was exceeded.
    pub(crate) fn limit(&self) -> Option<Duration> {
        match self.0 {
            Cause::Timeout(limit) => Some(limit),
            _ => None,
        }
    }

    /// The first informative cause: the HTTP library's own error names only its place.
    fn shown_error(&self) -> Option<&(dyn Error + 'static)> {
        match &self.0 {
            Cause::Request(fault) => Some(fault),
            Cause::Client(fault) => Some(fault.source().unwrap_or(fault)),
            Cause::Body(fault) => Some(fault),
            Cause::Timeout(_) => None,
        }
    }
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.shown_error() {
            Some(cause) => write!(f, "{cause}"),
            None => f.write_str("the time limit of the whole answer was reached"),
        }
    }
}

impl Error for SendError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.shown_error()?.source()
    }
}
