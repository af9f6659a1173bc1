//! ARP on the boot network (RFC 826): detects another host that uses this server's address.
//!
//! A host that answers ARP for the server's address receives the packets that machines send to the control plane. TLS and
//! signed boot programs protect against such a host; this watch reports it.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::AsRawFd as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::ifaddrs::getifaddrs;
use nix::sys::socket::{LinkAddr, bind};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::UdpSocket;
use tokio_util::sync::CancellationToken;

use crate::directory::Stage;
use crate::mac::Mac;
use crate::service::Shared;

/// The protocol number of ARP in Ethernet frames.
const ETHERTYPE_ARP: u16 = 0x0806;
/// First bytes of a packet: Ethernet, IPv4, and the lengths of their addresses.
const ETHERNET_AND_IPV4: [u8; 6] = [0, 1, 8, 0, 6, 4];
const LENGTH: usize = 28;

/// Returns the sender that an ARP packet states: IP address and hardware address. `None` if the packet is not ARP for
/// Ethernet and IPv4, or claims no address.
pub(crate) fn sender(packet: &[u8]) -> Option<(Ipv4Addr, Mac)> {
    let packet: &[u8; LENGTH] = packet.first_chunk()?;
    if !packet.starts_with(&ETHERNET_AND_IPV4) {
        return None;
    }
    let [.., a, b, c, d] = packet.first_chunk::<18>()?;
    let address = Ipv4Addr::new(*a, *b, *c, *d);
    let mac = packet[8..].first_chunk().copied()?;
    (!address.is_unspecified()).then_some((address, Mac(mac)))
}

/// Receives the ARP packets of one interface. Stored as Tokio's UDP socket, of which only `recv` is used.
#[derive(Debug)]
pub(crate) struct Listener(UdpSocket);

impl Listener {
    pub(crate) fn bind(interface: &str) -> io::Result<Self> {
        let link = getifaddrs()?
            .filter(|entry| entry.interface_name == interface)
            .find_map(|entry| entry.address.and_then(|address| address.as_link_addr().copied()));
        let link: LinkAddr = link.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
        let arp = Protocol::from(i32::from(ETHERTYPE_ARP.to_be()));
        let socket = Socket::new(Domain::PACKET, Type::DGRAM, Some(arp))?;
        socket.set_nonblocking(true)?;
        bind(socket.as_raw_fd(), &link)?;
        let socket = UdpSocket::from_std(std::net::UdpSocket::from(socket))?;
        // Until it was bound, the socket received the packets of every interface.
        while socket.try_recv(&mut [0; LENGTH]).is_ok() {}
        Ok(Self(socket))
    }
}

/// The hardware addresses of this computer.
fn own_macs() -> io::Result<Vec<Mac>> {
    let own = |address: nix::ifaddrs::InterfaceAddress| address.address?.as_link_addr()?.addr().map(Mac);
    Ok(getifaddrs()?.filter_map(own).collect())
}

/// Reports hosts that use the server's address. Runs until cancelled.
pub(crate) async fn watch(shared: Arc<Shared>, listener: Listener, cancel: CancellationToken) {
    let mut packet = [0; 128];
    loop {
        let received = tokio::select! {
            () = cancel.cancelled() => return,
            received = listener.0.recv(&mut packet) => received,
        };
        let length = match received {
            Ok(length) => length,
            Err(error) => {
                // The interface is down, temporarily or for good.
                tracing::debug!(%error, "receiving ARP failed");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let Some((address, mac)) = sender(&packet[..length]) else {
            continue;
        };
        if address != shared.settings.server_ip {
            continue;
        }
        if !shared.conflict_reports.is_due(mac, Instant::now()) || own_macs().is_ok_and(|own| own.contains(&mac)) {
            continue;
        }
        shared.counters.address_conflict_total.increment();
        tracing::warn!(%address, %mac, "another host uses the address of this server");
        let detail = format!(
            "the host {mac} uses this server's address {address}: find the switch port of {mac}, then change the \
             host's address or disconnect the host"
        );
        shared.record(Some(mac), Stage::AddressConflict, detail, IpAddr::V4(address));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn senders_are_read_and_other_packets_are_none() {
        let mut packet = [0; LENGTH];
        packet[..6].copy_from_slice(&ETHERNET_AND_IPV4);
        packet[7] = 2;
        packet[8..14].copy_from_slice(&[2, 0, 0, 0, 0, 9]);
        packet[14..18].copy_from_slice(&[10, 0, 0, 1]);
        let expected = (Ipv4Addr::new(10, 0, 0, 1), Mac([2, 0, 0, 0, 0, 9]));
        assert_eq!(sender(&packet), Some(expected));
        assert_eq!(
            sender(&[&packet[..], &[0; 18]].concat()),
            Some(expected),
            "padded to a frame"
        );
        assert_eq!(sender(&packet[..27]), None);
        // A probe (RFC 5227) does not claim an address yet.
        packet[14..18].fill(0);
        assert_eq!(sender(&packet), None);
        packet[3] = 6;
        assert_eq!(sender(&packet), None);
    }
}
