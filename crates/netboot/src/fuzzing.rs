//! What the fuzzer reaches of the insides: the functions that the servers themselves call, without a socket.

use crate::tftp;

/// The file that a TFTP request asks for, with block size and window; none where the request is refused.
pub fn tftp_request(packet: &[u8]) -> Option<(String, u16, u16)> {
    tftp::requested(packet)
}

/// The sender of an ARP packet, address and hardware address; none where the packet claims no address.
pub fn arp_sender(packet: &[u8]) -> Option<(std::net::Ipv4Addr, crate::Mac)> {
    crate::arp::sender(packet)
}

/// Whether the packet is a DHCP server's message: such a packet is reported and gets no answer.
pub fn is_of_dhcp_server(packet: &[u8]) -> bool {
    crate::dhcp::sender(packet).is_some()
}
