//! The connection to a BMC: TCP, with TLS that checks the pinned certificate, or plain.

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use http::uri::Scheme;
use hyper_util::client::legacy::connect::{Connected, Connection, HttpConnector};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tower_service::Service;

use crate::sender::Failed;
use crate::tls::{self, TlsFault};

/// Idle time before the first TCP keepalive probe: an event stream may be silent for days.
const KEEPALIVE: Duration = Duration::from_secs(60);
/// Pause between further probes, and their number.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);
const KEEPALIVE_TRIES: u32 = 3;
/// Unacknowledged data breaks the connection after this time.
const UNACKNOWLEDGED: Duration = Duration::from_secs(30);

/// Why a connection could not be opened.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LinkFault {
    #[error(transparent)]
    Tcp(Box<dyn Error + Send + Sync>),
    #[error(transparent)]
    Tls(TlsFault),
    #[error("no connection within {} s", .0.as_secs_f64())]
    Timeout(Duration),
}

impl LinkFault {
    pub(crate) fn how(&self) -> Failed {
        match self {
            Self::Tls(TlsFault::Refused(_)) => Failed::Tls,
            Self::Tls(TlsFault::NoSharedCipher(_)) => Failed::NoSharedCipher,
            Self::Tcp(_) | Self::Tls(TlsFault::Broken(_)) | Self::Timeout(_) => Failed::Unreachable,
        }
    }

    /// Whether a time limit was exceeded, here or for TLS in the kernel. TCP's own time-out is in the chain of causes.
    pub(crate) fn is_timeout(&self) -> bool {
        match self {
            Self::Timeout(_) => true,
            Self::Tls(TlsFault::Broken(fault)) => fault.kind() == io::ErrorKind::TimedOut,
            Self::Tcp(_) | Self::Tls(_) => false,
        }
    }
}

/// Opens connections; TCP and TLS share one time limit.
#[derive(Clone)]
pub(crate) struct Connector {
    tcp: HttpConnector,
    tls: tls::Connector,
    limit: Duration,
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connector").finish_non_exhaustive()
    }
}

impl Connector {
    pub(crate) fn new(tls: tls::Connector, limit: Duration) -> Self {
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        // The limit is divided among the addresses of a name, so that one silent address does not use up all of it.
        tcp.set_connect_timeout(Some(limit));
        tcp.set_keepalive(Some(KEEPALIVE));
        tcp.set_keepalive_interval(Some(KEEPALIVE_INTERVAL));
        tcp.set_keepalive_retries(Some(KEEPALIVE_TRIES));
        tcp.set_tcp_user_timeout(Some(UNACKNOWLEDGED));
        Self { tcp, tls, limit }
    }

    async fn open(mut self, uri: Uri) -> Result<TokioIo<Link>, LinkFault> {
        let tcp = self.tcp.call(uri.clone()).await;
        let tcp = tcp.map_err(|fault| LinkFault::Tcp(fault.into()))?.into_inner();
        if uri.scheme() != Some(&Scheme::HTTPS) {
            return Ok(TokioIo::new(Link::Plain(tcp)));
        }
        // A URI holds an IPv6 address in brackets.
        let host = uri.host().unwrap_or_default();
        let host = host
            .strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'))
            .unwrap_or(host);
        let stream = self.tls.connect(host, tcp).await.map_err(LinkFault::Tls)?;
        Ok(TokioIo::new(Link::Tls(Box::new(stream))))
    }
}

impl Service<Uri> for Connector {
    type Response = TokioIo<Link>;
    type Error = LinkFault;
    type Future = Pin<Box<dyn Future<Output = Result<TokioIo<Link>, LinkFault>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), LinkFault>> {
        self.tcp
            .poll_ready(context)
            .map_err(|fault| LinkFault::Tcp(fault.into()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let (connector, limit) = (self.clone(), self.limit);
        Box::pin(async move {
            let opened = tokio::time::timeout(limit, connector.open(uri)).await;
            opened.unwrap_or(Err(LinkFault::Timeout(limit)))
        })
    }
}

/// An open connection.
pub(crate) enum Link {
    Plain(TcpStream),
    Tls(Box<tls::Stream>),
}

impl Connection for Link {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl AsyncRead for Link {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(context, into),
            Self::Tls(stream) => Pin::new(stream).poll_read(context, into),
        }
    }
}

impl AsyncWrite for Link {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(context, bytes),
            Self::Tls(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write_vectored(context, pieces),
            Self::Tls(stream) => Pin::new(stream).poll_write_vectored(context, pieces),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Plain(stream) => stream.is_write_vectored(),
            Self::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(context),
            Self::Tls(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}
