//! Ports for programs that a test starts.

use std::net::{TcpListener, UdpSocket};
use std::sync::atomic::{AtomicU16, Ordering};

/// Below the ports that Linux assigns to clients (`net.ipv4.ip_local_port_range`): no client gets one of them while a killed
/// server of ours is restarted.
const FIRST: u16 = 20_000;
const PAIRS: u16 = 6_000;

static NEXT: AtomicU16 = AtomicU16::new(0);

/// A port that is free for TCP and UDP on all addresses, together with the next port, on which DHCP clients listen. Each
/// call in this process returns a different pair.
///
/// # Panics
/// If no port is free.
#[must_use]
pub fn free_port() -> u16 {
    // Processes begin at different ports.
    let begin = std::process::id().wrapping_mul(97);
    let free = |port| TcpListener::bind(("0.0.0.0", port)).is_ok() && UdpSocket::bind(("0.0.0.0", port)).is_ok();
    for _ in 0..PAIRS {
        let number = begin.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed).into());
        let port = FIRST + 2 * u16::try_from(number % u32::from(PAIRS)).unwrap_or_default();
        if free(port) && free(port + 1) {
            return port;
        }
    }
    panic!("no two ports from {FIRST} on are free");
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn no_port_is_given_twice() {
        let ports: BTreeSet<u16> = (0..100).map(|_| free_port()).collect();
        assert_eq!(ports.len(), 100);
    }
}
