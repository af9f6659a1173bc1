//! Sockets with the options that boot protocols need, and errors with advice.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};

use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::{TcpListener, UdpSocket};

/// Whether other programs may listen on the same port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sharing {
    Exclusive,
    /// Broadcasts reach all programs on the port.
    Shared,
}

/// Opens a UDP socket for DHCP: broadcasts are allowed; bound to `interface` if there is one.
pub(crate) fn dhcp(port: u16, interface: Option<&str>, sharing: Sharing) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_nonblocking(true)?;
    socket.set_broadcast(true)?;
    socket.set_reuse_address(sharing == Sharing::Shared)?;
    // A rack that powers on sends its first packets within the same second.
    socket.set_recv_buffer_size(4 << 20)?;
    if let Some(interface) = interface {
        socket.bind_device(Some(interface.as_bytes()))?;
    }
    socket.bind(&SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)).into())?;
    UdpSocket::from_std(socket.into())
}

/// Opens a UDP socket on one address.
pub(crate) fn udp(address: SocketAddrV4) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_nonblocking(true)?;
    socket.bind(&SocketAddr::V4(address).into())?;
    UdpSocket::from_std(socket.into())
}

/// Opens a TCP listener on one address. A restart does not wait for old connections to time out.
pub(crate) fn tcp(address: SocketAddrV4) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    socket.set_reuse_address(true)?;
    socket.bind(&SocketAddr::V4(address).into())?;
    socket.listen(1024)?;
    TcpListener::from_std(socket.into())
}

/// Advice for the operator after a failed bind.
pub(crate) fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            "ports below 1024 need CAP_NET_BIND_SERVICE; router advertisements and a named interface need CAP_NET_RAW: \
             start as root, or by the systemd unit that grants these capabilities"
        }
        io::ErrorKind::AddrInUse => {
            "another program listens there: stop that program (`ss -lupn` and `ss -ltpn` show it), or use proxy mode \
             beside a DHCP server"
        }
        io::ErrorKind::AddrNotAvailable => "no interface of this machine has this address: correct `server_ip`",
        _ if error.raw_os_error() == Some(19) => "no interface has this name: correct `interface`",
        _ => "see the system's message",
    }
}
