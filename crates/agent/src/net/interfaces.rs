//! Interfaces and their addresses from the kernel.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr, UdpSocket};

use nix::ifaddrs::getifaddrs;
use nix::sys::socket::SockaddrStorage;

use crate::cmdline::Mac;

/// Addresses and prefix lengths by interface; empty if the kernel does not list them.
pub fn addresses() -> HashMap<String, Vec<(IpAddr, u8)>> {
    let mut found: HashMap<String, Vec<(IpAddr, u8)>> = HashMap::new();
    let Ok(interfaces) = getifaddrs() else { return found };
    for interface in interfaces {
        let ip = |address: Option<SockaddrStorage>| {
            let address = address?;
            let v4 = address.as_sockaddr_in().map(|v4| IpAddr::V4(v4.ip()));
            v4.or_else(|| address.as_sockaddr_in6().map(|v6| IpAddr::V6(v6.ip())))
        };
        if let Some(address) = ip(interface.address) {
            let prefix = ip(interface.netmask).map_or(0, ones);
            found
                .entry(interface.interface_name)
                .or_default()
                .push((address, prefix));
        }
    }
    found
}

fn ones(mask: IpAddr) -> u8 {
    match mask {
        IpAddr::V4(mask) => u32::from(mask).count_ones() as u8,
        IpAddr::V6(mask) => u128::from(mask).count_ones() as u8,
    }
}

/// The local address for connections to a peer.
pub fn address_towards(peer: SocketAddr) -> Option<IpAddr> {
    let any = if peer.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let socket = UdpSocket::bind(any).ok()?;
    socket.connect(peer).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

/// The Ethernet address of the interface with this IP address.
pub fn mac_with(address: IpAddr) -> Option<Mac> {
    let name = addresses()
        .into_iter()
        .find(|(_, own)| own.iter().any(|(ip, _)| *ip == address))?
        .0;
    let links = getifaddrs().ok()?;
    links.filter(|link| link.interface_name == name).find_map(|link| {
        let link_address = *link.address.as_ref()?.as_link_addr()?;
        link_address.addr().map(Mac)
    })
}
