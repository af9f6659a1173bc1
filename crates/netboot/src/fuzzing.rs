//! Internal parsers for the fuzzer. The servers call the same functions; no socket is involved.

use crate::tftp;

/// Returns the path, block size and window of a TFTP request; `None` if the request is refused.
pub fn tftp_request(packet: &[u8]) -> Option<(String, u16, u16)> {
    tftp::requested(packet)
}

/// Returns the sender of an ARP packet: IP address and hardware address. `None` if the packet claims no address.
pub fn arp_sender(packet: &[u8]) -> Option<(std::net::Ipv4Addr, crate::Mac)> {
    crate::arp::sender(packet)
}

/// Whether the packet comes from a DHCP server. The server reports such a packet and does not answer it.
pub fn is_of_dhcp_server(packet: &[u8]) -> bool {
    crate::dhcp::sender(packet).is_some()
}
