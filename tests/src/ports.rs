//! Ports for what a test starts.

use std::net::{TcpListener, UdpSocket};
use std::sync::atomic::{AtomicU16, Ordering};

/// Below the ports that Linux gives to clients by itself (`net.ipv4.ip_local_port_range`): nobody is given one of them while
/// a server of ours that was killed is started again.
const FIRST: u16 = 20_000;
const PAIRS: u16 = 6_000;

static NEXT: AtomicU16 = AtomicU16::new(0);

/// A port that is free for TCP and for UDP on all addresses, and so is the next one: DHCP clients listen there. This process
/// was given neither before.
///
/// # Panics
/// None is free.
#[must_use]
pub fn free_port() -> u16 {
    // Processes begin at different places.
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
