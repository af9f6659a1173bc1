//! A connection to the gRPC server, and the identity of its peer.
//!
//! The listener of the web console asks for no certificate. There, a session or an API key identifies the caller of a
//! request: [`Login`].

use std::io::{self, IoSlice};
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use rackwright_api::v1::Role;
use rackwright_ground::tls::Accepted;
use rackwright_identity::ClientIdentity;
use rackwright_lifecycle::Timestamp;
use rackwright_netboot::connections::{Handle, Slot};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::WaitForCancellationFutureOwned;
use tonic::transport::CertificateDer;
use tonic::transport::server::{Connected, TcpConnectInfo, TlsConnectInfo};
use tonic::{Extensions, Request};

/// A TLS connection with its place in the listener.
#[derive(Debug)]
pub struct Connection {
    stream: TlsStream<TcpStream>,
    slot: Slot,
    identity: Option<Arc<ClientIdentity>>,
    registered: Arc<OnceLock<Registered>>,
    /// Ends when the connection has to make room, or when the authority of its certificate is not trusted any more.
    closed: Pin<Box<WaitForCancellationFutureOwned>>,
}

/// An agent that registered on a connection without a certificate. The connection belongs to the agent until `until`.
#[derive(Debug)]
struct Registered {
    identity: ClientIdentity,
    until: Timestamp,
}

impl From<Accepted> for Connection {
    fn from(accepted: Accepted) -> Self {
        let Accepted {
            stream,
            slot,
            identity,
            ended,
        } = accepted;
        // A connection with a known peer never has to make room.
        let closed = if identity.is_none() { slot.closed() } else { ended };
        let closed = Box::pin(closed.cancelled_owned());
        Self {
            stream,
            slot,
            identity: identity.map(Arc::new),
            registered: Arc::default(),
            closed,
        }
    }
}

/// The peer of a connection; in the extensions of each request.
#[derive(Debug, Clone)]
pub struct Peer {
    tls: TlsConnectInfo<TcpConnectInfo>,
    identity: Option<Arc<ClientIdentity>>,
    place: Handle,
    registered: Arc<OnceLock<Registered>>,
}

/// The login of a request without a client certificate, in the extensions of the request. Only the listener of the web
/// console makes logins.
#[derive(Debug, Clone)]
pub struct Login {
    /// The member.
    pub identity: ClientIdentity,
    /// Id of the session or API key.
    pub session: String,
    /// The login ends at this time.
    pub until: Timestamp,
    /// The role of an API key. `None`: the login of a browser, with the member's role.
    pub role: Option<Role>,
}

impl Login {
    /// The login of a request; `None` for a request with a certificate, or from an unknown caller.
    pub fn of<T>(request: &Request<T>) -> Option<&Self> {
        request.extensions().get()
    }

    /// The resource name of the session or API key.
    pub fn name(&self) -> String {
        match self.role {
            None => format!("sessions/{}", self.session),
            Some(_) => format!("apiKeys/{}", self.session),
        }
    }
}

/// The caller of a request: from its login, its certificate, or a registration on its connection.
pub fn identity_of(extensions: &Extensions, now: Timestamp) -> Option<ClientIdentity> {
    if let Some(login) = extensions.get::<Login>() {
        return Some(login.identity.clone());
    }
    // Tests call without a connection.
    #[cfg(test)]
    if let Some(identity) = extensions.get::<ClientIdentity>() {
        return Some(identity.clone());
    }
    Peer::from_extensions(extensions)?.identity(now).cloned()
}

impl Connected for Connection {
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Peer {
        Peer {
            tls: self.stream.connect_info(),
            identity: self.identity.clone(),
            place: self.slot.handle(),
            registered: Arc::clone(&self.registered),
        }
    }
}

/// The address of a request's connection; `None` without a connection.
pub fn address_of<T>(request: &Request<T>) -> Option<IpAddr> {
    // Tests call without a connection.
    #[cfg(test)]
    if request.extensions().get::<ClientIdentity>().is_some() {
        return Some(std::net::Ipv4Addr::LOCALHOST.into());
    }
    Peer::of(request).and_then(Peer::address)
}

impl Peer {
    /// The peer of a request; `None` without a connection, as in tests.
    pub fn of<T>(request: &Request<T>) -> Option<&Self> {
        Self::from_extensions(request.extensions())
    }

    /// The peer from a request's extensions.
    pub fn from_extensions(extensions: &Extensions) -> Option<&Self> {
        extensions.get()
    }

    /// The certificate that the peer showed.
    pub fn certificate(&self) -> Option<CertificateDer<'static>> {
        self.tls.peer_certs()?.first().cloned()
    }

    /// The IP address of the peer.
    pub fn address(&self) -> Option<IpAddr> {
        Some(self.tls.get_ref().remote_addr()?.ip())
    }

    /// Registers the peer as this agent, after its token was checked, until `until`: the end of a certificate that is
    /// issued at the same time. A peer with a certificate, or with an earlier registration, keeps its identity.
    pub fn register(&self, identity: ClientIdentity, until: Timestamp) {
        if self.tls.peer_certs().is_none() {
            let _ = self.registered.set(Registered { identity, until });
            self.place.known();
        }
    }

    /// The identity from the certificate, or the agent that registered on this connection.
    pub fn identity(&self, now: Timestamp) -> Option<&ClientIdentity> {
        self.registered(now).or(self.identity.as_deref())
    }

    /// The connection's place in the listener.
    pub fn place(&self) -> &Handle {
        &self.place
    }

    /// The agent that registered on this connection.
    pub fn registered(&self, now: Timestamp) -> Option<&ClientIdentity> {
        let registered = self.registered.get()?;
        (now < registered.until).then_some(&registered.identity)
    }
}

impl AsyncRead for Connection {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let connection = self.get_mut();
        connection.check_open(cx)?;
        Pin::new(&mut connection.stream).poll_read(cx, buffer)
    }
}

impl Connection {
    /// Fails when the connection has lost its place. Writes check this too: a client that reads nothing would otherwise keep
    /// the connection for as long as it wants.
    fn check_open(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        match self.closed.as_mut().poll(cx).is_ready() {
            true => Err(io::ErrorKind::ConnectionAborted.into()),
            false => Ok(()),
        }
    }
}

impl AsyncWrite for Connection {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let connection = self.get_mut();
        connection.check_open(cx)?;
        Pin::new(&mut connection.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let connection = self.get_mut();
        connection.check_open(cx)?;
        Pin::new(&mut connection.stream).poll_write_vectored(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let connection = self.get_mut();
        connection.check_open(cx)?;
        Pin::new(&mut connection.stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}
