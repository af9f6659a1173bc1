//! IPv6 router advertisements, without a default route.
//!
//! iPXE waits about 16 s for IPv6 autoconfiguration on a link without advertisements (seen with iPXE of 2019). An
//! advertisement with router lifetime 0 ends the wait, and no host routes through this server (RFC 4861, section 4.2).

use std::io;
use std::net::{Ipv6Addr, SocketAddrV6};
use std::sync::Arc;
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::UdpSocket;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::service::Shared;

/// Interval of unsolicited advertisements.
const ADVERTISE_PERIOD: Duration = Duration::from_secs(10);
/// Minimum interval. Solicited advertisements are multicast (RFC 4861, MIN_DELAY_BETWEEN_RAS is 3 s; iPXE asks every
/// second).
const MIN_PERIOD: Duration = Duration::from_secs(1);
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
const ALL_ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2);
const ROUTER_SOLICITATION: u8 = 133;
const ROUTER_ADVERTISEMENT: u8 = 134;

/// An interface from `/proc/net/if_inet6`.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Link {
    index: u32,
    /// First global or unique local /64 prefix.
    prefix: Option<Ipv6Addr>,
}

/// A raw ICMPv6 socket for solicitations. Stored as Tokio's UDP socket, of which only `sendto` and `recvfrom` are used.
#[derive(Debug)]
pub(crate) struct Advertiser {
    socket: UdpSocket,
    interface: String,
    index: u32,
}

impl Advertiser {
    pub(crate) fn bind(interface: &str) -> io::Result<Self> {
        let link = link(interface)?;
        let socket = Socket::new(Domain::IPV6, Type::RAW, Some(Protocol::ICMPV6))?;
        socket.set_nonblocking(true)?;
        socket.bind_device(Some(interface.as_bytes()))?;
        socket.set_multicast_if_v6(link.index)?;
        socket.set_multicast_loop_v6(false)?;
        // Receivers drop advertisements that a router has forwarded.
        socket.set_multicast_hops_v6(255)?;
        socket.join_multicast_v6(&ALL_ROUTERS, link.index)?;
        let socket = UdpSocket::from_std(std::net::UdpSocket::from(socket))?;
        Ok(Self {
            socket,
            interface: interface.to_owned(),
            index: link.index,
        })
    }

    async fn advertise(&self) -> io::Result<()> {
        // Read on each send: the address may be added later.
        let message = advertisement(link(&self.interface)?.prefix);
        let to = SocketAddrV6::new(ALL_NODES, 0, 0, self.index);
        self.socket.send_to(&message, to).await.map(drop)
    }
}

/// Sends advertisements until cancelled.
pub(crate) async fn serve(shared: Arc<Shared>, advertiser: Advertiser, cancel: CancellationToken) {
    let mut next = Instant::now();
    let mut last: Option<Instant> = None;
    let mut buffer = [0; 1500];
    loop {
        tokio::select! {
            () = cancel.cancelled() => return,
            () = tokio::time::sleep_until(next) => {
                let now = Instant::now();
                match advertiser.advertise().await {
                    Ok(()) => {
                        shared.counters.router_advertisements_total.increment();
                        last = Some(now);
                        next = now + ADVERTISE_PERIOD;
                    }
                    Err(error) => {
                        // No link-local address yet, or the link is down: retry soon.
                        tracing::debug!(%error, "a router advertisement could not be sent");
                        next = now + MIN_PERIOD;
                    }
                }
            }
            received = advertiser.socket.recv(&mut buffer) => match received {
                Ok(length) if length >= 8 && buffer[0] == ROUTER_SOLICITATION => {
                    shared.counters.router_solicitations_total.increment();
                    let due = last.map_or_else(Instant::now, |last| last + MIN_PERIOD);
                    next = next.min(due);
                }
                Ok(_) => {}
                Err(error) => {
                    tracing::debug!(%error, "receiving router solicitations failed");
                    tokio::time::sleep(MIN_PERIOD).await;
                }
            },
        }
    }
}

/// RFC 4861, section 4.2 and 4.6.2. The kernel fills in the checksum (RFC 3542, section 3.1).
fn advertisement(prefix: Option<Ipv6Addr>) -> Vec<u8> {
    // Hop limit 64, no managed or other configuration, router lifetime 0, no reachable time, no retransmission timer.
    let mut message = vec![ROUTER_ADVERTISEMENT, 0, 0, 0, 64, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    if let Some(prefix) = prefix {
        // Type 3, length 4 × 8 bytes, /64, on-link and autonomous; valid for an hour, preferred for half an hour.
        message.extend([3, 4, 64, 0b1100_0000]);
        message.extend(3600_u32.to_be_bytes());
        message.extend(1800_u32.to_be_bytes());
        message.extend([0; 4]);
        message.extend(prefix.octets());
    }
    message
}

fn link(interface: &str) -> io::Result<Link> {
    parse_link(&std::fs::read_to_string("/proc/net/if_inet6")?, interface).ok_or_else(|| {
        let text = format!(
            "{interface} has no IPv6 address, not even a link-local address: enable IPv6 on the interface and set the \
             interface up"
        );
        io::Error::new(io::ErrorKind::AddrNotAvailable, text)
    })
}

/// Reads rows of `address index prefix-length scope flags name`, all but the name in hex (kernel, net/ipv6/addrconf.c).
fn parse_link(table: &str, interface: &str) -> Option<Link> {
    let mut found: Option<Link> = None;
    for row in table.lines() {
        let fields: Vec<_> = row.split_whitespace().collect();
        let [address, index, length, scope, _, name] = fields[..] else {
            continue;
        };
        if name != interface {
            continue;
        }
        let index = u32::from_str_radix(index, 16).ok()?;
        let link = found.get_or_insert(Link { index, prefix: None });
        if length == "40" && scope == "00" && link.prefix.is_none() {
            let address = u128::from_str_radix(address, 16).ok()?;
            link.prefix = Some(Ipv6Addr::from(address >> 64 << 64));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
00000000000000000000000000000001 01 80 10 80       lo
fe800000000000005c2dd8fffe5ab1c7 0f 40 20 80      br0
fd770000000000000000000000000001 0f 40 00 82      br0
";

    #[test]
    fn the_interface_and_its_prefix_are_found() {
        let expected = Link {
            index: 15,
            prefix: Some("fd77::".parse().unwrap()),
        };
        assert_eq!(parse_link(TABLE, "br0"), Some(expected));
        assert_eq!(parse_link(TABLE, "lo"), Some(Link { index: 1, prefix: None }));
        assert_eq!(parse_link(TABLE, "br1"), None);
    }

    #[test]
    fn an_advertisement_has_no_router_lifetime() {
        let bare = advertisement(None);
        assert_eq!(bare.len(), 16);
        assert_eq!(bare[0], 134);
        assert_eq!(bare[6..8], [0, 0]);
        let full = advertisement(Some("fd77::".parse().unwrap()));
        assert_eq!(full.len(), 48);
        assert_eq!(full[16..20], [3, 4, 64, 0xc0]);
        assert_eq!(full[32..48], "fd77::".parse::<Ipv6Addr>().unwrap().octets());
    }
}
