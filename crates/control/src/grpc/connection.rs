//! A connection to the gRPC server, and who is at the other end of it.

use std::io::{self, IoSlice};
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use rackwright_identity::ClientIdentity;
use rackwright_lifecycle::Timestamp;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;
use tonic::transport::CertificateDer;
use tonic::transport::server::{Connected, TcpConnectInfo, TlsConnectInfo};
use tonic::{Extensions, Request};

/// A connection.
#[derive(Debug)]
pub struct Connection {
    stream: TlsStream<TcpStream>,
    registered: Arc<OnceLock<Registered>>,
}

/// An agent that registered on a connection without a certificate: the connection is its own until then.
#[derive(Debug)]
struct Registered {
    identity: ClientIdentity,
    until: Timestamp,
}

impl From<TlsStream<TcpStream>> for Connection {
    fn from(stream: TlsStream<TcpStream>) -> Self {
        let registered = Arc::default();
        Self { stream, registered }
    }
}

/// Who is at the other end; in the extensions of each request.
#[derive(Debug, Clone)]
pub struct Peer {
    tls: TlsConnectInfo<TcpConnectInfo>,
    registered: Arc<OnceLock<Registered>>,
}

impl Connected for Connection {
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Peer {
        Peer {
            tls: self.stream.connect_info(),
            registered: Arc::clone(&self.registered),
        }
    }
}

impl Peer {
    /// The peer of a request; none where it came over no connection, as in tests.
    pub fn of<T>(request: &Request<T>) -> Option<&Self> {
        Self::among(request.extensions())
    }

    /// The same, by a request's extensions.
    pub fn among(extensions: &Extensions) -> Option<&Self> {
        extensions.get()
    }

    /// The certificate that it showed.
    pub fn certificate(&self) -> Option<CertificateDer<'static>> {
        self.tls.peer_certs()?.first().cloned()
    }

    /// Its address.
    pub fn address(&self) -> Option<IpAddr> {
        Some(self.tls.get_ref().remote_addr()?.ip())
    }

    /// Whoever comes on this connection has shown by its token to be this agent, which holds until a certificate of the same
    /// moment would end. Who showed a certificate, or registered on it before, stays who it is.
    pub fn register(&self, identity: ClientIdentity, until: Timestamp) {
        if self.tls.peer_certs().is_none() {
            let _ = self.registered.set(Registered { identity, until });
        }
    }

    /// The agent that registered on this connection.
    pub fn registered(&self, now: Timestamp) -> Option<&ClientIdentity> {
        let registered = self.registered.get()?;
        (now < registered.until).then_some(&registered.identity)
    }
}

impl AsyncRead for Connection {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write_vectored(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}
