//! Free ports for programs that a benchmark or a test starts.
//!
//! A program that takes its port as an argument listens some time after the port was chosen. Two rules keep the port free
//! until then:
//!
//! - The ports are below those that Linux gives to clients and to listeners on port 0 (`net.ipv4.ip_local_port_range`,
//!   32768 and higher by default).
//! - A port belongs to one process until that process ends. The process holds an abstract Unix socket with the port's
//!   number in its name: the kernel gives each name to one socket of a network namespace, and frees the name at the end of
//!   the process.

use std::io;
use std::net::{TcpListener, UdpSocket};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

const FIRST: u16 = 20_000;
const PAIRS: u16 = 6_000;

static NEXT: AtomicU32 = AtomicU32::new(0);
/// Held until the end of the process.
static CLAIMS: Mutex<Vec<UnixDatagram>> = Mutex::new(Vec::new());

/// A port that is free for TCP and UDP on all addresses, together with the next port, on which DHCP clients listen. No other
/// call in any process of this computer returns one of the two before this process ends.
///
/// # Errors
/// If all ports are in use, or sockets cannot be opened.
pub fn free_port() -> io::Result<u16> {
    // Processes begin at different ports, so that a search is short.
    let begin = std::process::id().wrapping_mul(97);
    for _ in 0..PAIRS {
        let number = begin.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
        let pair = u16::try_from(number % u32::from(PAIRS)).unwrap_or_default();
        let port = FIRST + 2 * pair;
        let Some(claim) = claim(port)? else { continue };
        if is_free(port)? && is_free(port + 1)? {
            CLAIMS.lock().unwrap_or_else(PoisonError::into_inner).push(claim);
            return Ok(port);
        }
    }
    let last = FIRST + 2 * PAIRS - 1;
    Err(io::Error::new(
        io::ErrorKind::AddrInUse,
        format!("all ports from {FIRST} to {last} are in use: end programs that listen on them"),
    ))
}

/// The right to use this port and the next one; `None` if a process has it.
fn claim(port: u16) -> io::Result<Option<UnixDatagram>> {
    let name = SocketAddr::from_abstract_name(format!("rackwright-free-port-{port}"))?;
    unless_in_use(UnixDatagram::bind_addr(&name))
}

/// Whether no program uses the port at any address.
fn is_free(port: u16) -> io::Result<bool> {
    let tcp = unless_in_use(TcpListener::bind(("0.0.0.0", port)))?;
    let udp = unless_in_use(UdpSocket::bind(("0.0.0.0", port)))?;
    Ok(tcp.is_some() && udp.is_some())
}

fn unless_in_use<T>(bound: io::Result<T>) -> io::Result<Option<T>> {
    match bound {
        Ok(socket) => Ok(Some(socket)),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn no_port_is_given_twice() {
        let ports: BTreeSet<u16> = (0..100).map(|_| free_port().unwrap()).collect();
        assert_eq!(ports.len(), 100);
    }

    /// Names of abstract sockets are the kernel's: a second claim fails in every process as it does here.
    #[test]
    fn a_port_has_one_owner_until_its_end() {
        let port = free_port().unwrap();
        assert!(claim(port).unwrap().is_none(), "it is claimed");
        // Two runs of this test at once have different numbers.
        let far = FIRST + 2 * PAIRS + (std::process::id() % 30_000) as u16;
        let first = claim(far).unwrap().unwrap();
        assert!(claim(far).unwrap().is_none());
        drop(first);
        assert!(claim(far).unwrap().is_some());
    }

    #[test]
    fn a_port_that_a_program_uses_at_one_address_is_not_free() {
        let port = free_port().unwrap();
        assert!(is_free(port).unwrap());
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).unwrap();
        assert!(!is_free(port).unwrap());
        drop(listener);
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, port)).unwrap();
        assert!(!is_free(port).unwrap());
        drop(socket);
        assert!(is_free(port).unwrap());
    }
}
