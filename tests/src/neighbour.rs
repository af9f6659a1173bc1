//! A separate host on the lab's bridge that requests addresses like machines behind a relay.

use std::net::{Ipv4Addr, UdpSocket};
use std::time::Duration;

use rackwright_lab::SERVER_IPV4;

use crate::bridge_host::BridgeHost;

/// The host's address, which is the relay's address in its messages.
pub const HOST: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 2);

/// A machine's DHCP lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// The leased address.
    pub address: Ipv4Addr,
    /// The URL of its boot script.
    pub script: String,
}

/// Runs `work` on a host with the address [`HOST`] on the lab's bridge.
///
/// # Panics
/// If the host cannot be made, or the work panics.
pub fn on_the_bridge<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    BridgeHost::with_address(HOST).call(work)
}

/// A MAC address as bytes.
///
/// # Panics
/// If the text is not a MAC address.
#[must_use]
pub fn mac_bytes(mac: &str) -> [u8; 6] {
    let bytes: Vec<u8> = mac
        .split(':')
        .map(|byte| u8::from_str_radix(byte, 16).expect("hex"))
        .collect();
    bytes.try_into().expect("six bytes")
}

/// A DHCP message of iPXE on `mac` through the relay, which is this host.
fn ipxe_message(kind: u8, mac: [u8; 6], options: &[u8]) -> Vec<u8> {
    let mut packet = vec![1, 1, 6, 1, 0xde, 0xad, 0xbe, 0xef, 0, 0, 0, 0];
    packet.extend([0; 12]);
    packet.extend(HOST.octets());
    packet.extend(mac);
    packet.extend([0; 10 + 64 + 128]);
    packet.extend([99, 130, 83, 99, 53, 1, kind, 93, 2, 0, 0, 77, 4]);
    packet.extend(b"iPXE");
    packet.extend([60, 9]);
    packet.extend(b"PXEClient");
    packet.extend(options);
    packet.push(255);
    packet
}

/// Requests an address and a script for `mac`, on the host.
///
/// # Panics
/// If no answer comes, or an answer without a script.
#[must_use]
pub fn lease(mac: [u8; 6]) -> Lease {
    let socket = UdpSocket::bind((HOST, 67)).expect("the port is free");
    let limit = Duration::from_secs(10);
    socket.set_read_timeout(Some(limit)).expect("a time-out can be set");
    let exchange = |message: Vec<u8>| {
        socket
            .send_to(&message, (SERVER_IPV4, 67))
            .expect("the request is sent");
        let mut answer = vec![0; 1500];
        let length = socket.recv(&mut answer).expect("an answer comes");
        answer.truncate(length);
        answer
    };
    let offer = exchange(ipxe_message(1, mac, &[]));
    let address: [u8; 4] = offer[16..20].try_into().expect("four bytes");
    let mut taken = vec![50, 4];
    taken.extend(address);
    taken.extend([54, 4]);
    taken.extend(SERVER_IPV4.octets());
    let answer = exchange(ipxe_message(3, mac, &taken));
    let text = String::from_utf8_lossy(&answer).into_owned();
    let at = text.find("http://").expect("the answer names a script");
    Lease {
        address: address.into(),
        script: text[at..].chars().take_while(char::is_ascii_graphic).collect(),
    }
}
