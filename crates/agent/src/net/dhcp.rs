//! A small DHCP client (RFC 2131) for boot plans without an address, such as those through GRUB.
//!
//! Uses plain UDP on an interface without an address: the client requests broadcast answers and binds the socket to the
//! NIC.

use std::ffi::OsString;
use std::io;
use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::time::{Duration, Instant};

use nix::sys::socket::{setsockopt, sockopt};

use super::NetError;
use crate::clock::{jittered, random_number};
use crate::cmdline::{Addressing, Mac, prefix_of_mask};

/// The bytes before the options (RFC 2131).
const COOKIE: [u8; 4] = [99, 130, 83, 99];
/// Offset of the options in a message.
const OPTIONS_AT: usize = 240;
/// Minimum size of a BOOTP message in bytes; some relays drop shorter ones.
const MIN_BYTES: usize = 300;
const BROADCAST_FLAG: u16 = 0x8000;
// Codes of options (RFC 2132).
const MASK: u8 = 1;
const ROUTER: u8 = 3;
const REQUESTED: u8 = 50;
const LEASE_TIME: u8 = 51;
const OVERLOAD: u8 = 52;
const MESSAGE_TYPE: u8 = 53;
const SERVER: u8 = 54;
const PARAMETERS: u8 = 55;
const VENDOR_CLASS: u8 = 60;
const CLIENT_ID: u8 = 61;
// Types of messages.
const DISCOVER: u8 = 1;
const OFFER: u8 = 2;
const REQUEST: u8 = 3;
const ACK: u8 = 5;
const NAK: u8 = 6;
/// Time limit for the first answer. It doubles with each try, up to [`MAX_WAIT`].
const FIRST_WAIT: Duration = Duration::from_millis(500);
const MAX_WAIT: Duration = Duration::from_secs(8);
/// Lease time if the server states none.
const DEFAULT_LEASE: Duration = Duration::from_secs(3600);

/// A leased address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// Address, prefix and gateway.
    pub addressing: Addressing,
    /// Address of the DHCP server.
    pub server: Ipv4Addr,
    /// Lease time: the address may be used this long without renewal.
    pub time: Duration,
}

/// An answer of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Answer {
    kind: u8,
    lease: Lease,
}

/// Asks for a lease until the deadline. `wanted` is the address of an earlier lease.
///
/// # Errors
/// [`NetError::NoLease`], or the kernel's error for the socket.
pub fn obtain(nic: &str, mac: Mac, wanted: Option<Ipv4Addr>, deadline: Instant) -> Result<Lease, NetError> {
    let begun = Instant::now();
    let socket = open(nic).map_err(NetError::io(format!("DHCP socket on {nic}")))?;
    let mut wait = FIRST_WAIT;
    while Instant::now() < deadline {
        let exchange = Exchange {
            socket: &socket,
            mac,
            id: random_number() as u32,
            begun,
        };
        let answer_time = jittered(wait);
        let offer = exchange
            .request(DISCOVER, wanted, None, OFFER, answer_time)
            .map_err(NetError::io("DHCP"))?;
        if let Some(Answer { lease, .. }) = offer {
            let IpAddr::V4(address) = lease.addressing.address else {
                continue;
            };
            let acknowledged = exchange
                .request(REQUEST, Some(address), Some(lease.server), ACK, answer_time)
                .map_err(NetError::io("DHCP"))?;
            if let Some(Answer { lease, .. }) = acknowledged {
                return Ok(lease);
            }
        }
        wait = (wait * 2).min(MAX_WAIT);
    }
    Err(NetError::NoLease {
        nic: nic.to_owned(),
        mac,
        waited: begun.elapsed(),
    })
}

fn open(nic: &str) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 68))?;
    setsockopt(&socket, sockopt::BindToDevice, &OsString::from(nic))?;
    socket.set_broadcast(true)?;
    Ok(socket)
}

/// Messages of one transaction.
struct Exchange<'a> {
    socket: &'a UdpSocket,
    mac: Mac,
    id: u32,
    begun: Instant,
}

impl Exchange<'_> {
    /// Sends one message and waits for an answer of the wanted kind; `None` after a timeout or a refusal.
    fn request(
        &self,
        kind: u8,
        address: Option<Ipv4Addr>,
        server: Option<Ipv4Addr>,
        wanted: u8,
        wait: Duration,
    ) -> io::Result<Option<Answer>> {
        let seconds = u16::try_from(self.begun.elapsed().as_secs()).unwrap_or(u16::MAX);
        let message = message(kind, self.id, seconds, self.mac, address, server);
        self.socket.send_to(&message, (Ipv4Addr::BROADCAST, 67))?;
        let deadline = Instant::now() + wait;
        let mut buffer = [0; 2048];
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            self.socket.set_read_timeout(Some(left))?;
            match self.socket.recv(&mut buffer) {
                Ok(length) => match parse(&buffer[..length], self.id, self.mac) {
                    Some(answer) if answer.kind == wanted => return Ok(Some(answer)),
                    Some(answer) if answer.kind == NAK => return Ok(None),
                    _ => {}
                },
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                    return Ok(None);
                }
                Err(error) => return Err(error),
            }
        }
    }
}

fn message(kind: u8, id: u32, seconds: u16, mac: Mac, address: Option<Ipv4Addr>, server: Option<Ipv4Addr>) -> Vec<u8> {
    let mut message = vec![0; OPTIONS_AT];
    // Request, Ethernet, six address bytes, zero hops.
    message[..4].copy_from_slice(&[1, 1, 6, 0]);
    message[4..8].copy_from_slice(&id.to_be_bytes());
    message[8..10].copy_from_slice(&seconds.to_be_bytes());
    message[10..12].copy_from_slice(&BROADCAST_FLAG.to_be_bytes());
    message[28..34].copy_from_slice(&mac.0);
    message[236..240].copy_from_slice(&COOKIE);
    let mut option = |code: u8, value: &[u8]| {
        message.extend_from_slice(&[code, value.len() as u8]);
        message.extend_from_slice(value);
    };
    option(MESSAGE_TYPE, &[kind]);
    option(CLIENT_ID, &[&[1], &mac.0[..]].concat());
    option(VENDOR_CLASS, b"rackwright-agent");
    option(PARAMETERS, &[MASK, ROUTER, LEASE_TIME, SERVER]);
    if let Some(address) = address {
        option(REQUESTED, &address.octets());
    }
    if let Some(server) = server {
        option(SERVER, &server.octets());
    }
    message.push(255);
    message.resize(message.len().max(MIN_BYTES), 0);
    message
}

/// Parses an answer; `None` if it does not belong to this client and transaction.
fn parse(message: &[u8], id: u32, mac: Mac) -> Option<Answer> {
    let is_expected = message.first() == Some(&2)
        && message.get(4..8)? == id.to_be_bytes()
        && message.get(28..34)? == mac.0
        && message.get(236..240)? == COOKIE;
    if !is_expected {
        return None;
    }
    let address = ipv4(message.get(16..20)?)?;
    let options = options(message);
    let option = |code: u8| {
        options
            .iter()
            .find(|(found, _)| *found == code)
            .map(|(_, value)| *value)
    };
    let kind = *option(MESSAGE_TYPE)?.first()?;
    let prefix = option(MASK).and_then(ipv4).and_then(prefix_of_mask).unwrap_or(24);
    let gateway = option(ROUTER)
        .and_then(|routers| ipv4(routers.get(..4)?))
        .filter(|router| !router.is_unspecified());
    let seconds = option(LEASE_TIME).and_then(|time| Some(u32::from_be_bytes(*time.first_chunk()?)));
    let addressing = Addressing {
        address: address.into(),
        prefix,
        gateway: gateway.map(IpAddr::from),
    };
    let time = seconds.map_or(DEFAULT_LEASE, |seconds| Duration::from_secs(seconds.into()));
    let usable = kind == NAK || !(address.is_unspecified() || address.is_multicast() || address.is_broadcast());
    let server = option(SERVER).and_then(ipv4).unwrap_or(Ipv4Addr::UNSPECIFIED);
    usable.then_some(Answer {
        kind,
        lease: Lease {
            addressing,
            server,
            time,
        },
    })
}

/// All options, including those in the fields for file and server name (option overload).
fn options(message: &[u8]) -> Vec<(u8, &[u8])> {
    let mut found = Vec::new();
    collect(message.get(OPTIONS_AT..).unwrap_or_default(), &mut found);
    let overload = found
        .iter()
        .find(|(code, _)| *code == OVERLOAD)
        .and_then(|(_, value)| value.first())
        .copied()
        .unwrap_or(0);
    for (bit, range) in [(1, 108..236), (2, 44..108)] {
        if overload & bit != 0 {
            collect(message.get(range).unwrap_or_default(), &mut found);
        }
    }
    found
}

fn collect<'a>(mut rest: &'a [u8], found: &mut Vec<(u8, &'a [u8])>) {
    while let Some((&code, after)) = rest.split_first() {
        if code == 255 {
            return;
        }
        if code == 0 {
            rest = after;
            continue;
        }
        let Some((&length, after)) = after.split_first() else {
            return;
        };
        let Some(value) = after.get(..usize::from(length)) else {
            return;
        };
        found.push((code, value));
        rest = &after[usize::from(length)..];
    }
}

fn ipv4(bytes: &[u8]) -> Option<Ipv4Addr> {
    bytes.first_chunk::<4>().map(|octets| Ipv4Addr::from(*octets))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const CLIENT_MAC: Mac = Mac([0x52, 0x54, 0, 1, 2, 3]);

    fn answer(kind: u8, id: u32, mac: Mac) -> Vec<u8> {
        let mut answer = message(kind, id, 0, mac, None, Some(Ipv4Addr::new(10, 0, 0, 1)));
        answer[0] = 2;
        answer[16..20].copy_from_slice(&[10, 0, 0, 7]);
        let end = answer.iter().rposition(|byte| *byte == 255).unwrap();
        answer.truncate(end);
        answer.extend_from_slice(&[
            MASK, 4, 255, 255, 254, 0, ROUTER, 8, 10, 0, 0, 1, 10, 0, 0, 2, LEASE_TIME, 4, 0, 0, 0, 120, 255,
        ]);
        answer
    }

    #[test]
    fn answers_are_read() {
        let parsed = parse(&answer(ACK, 9, CLIENT_MAC), 9, CLIENT_MAC).unwrap();
        assert_eq!((parsed.kind, parsed.lease.time), (ACK, Duration::from_secs(120)));
        let Addressing {
            address,
            prefix,
            gateway,
        } = parsed.lease.addressing;
        assert_eq!((address.to_string().as_str(), prefix), ("10.0.0.7", 23));
        assert_eq!(gateway.unwrap().to_string(), "10.0.0.1");
        assert_eq!(parsed.lease.server, Ipv4Addr::new(10, 0, 0, 1));
    }

    #[test]
    fn answers_to_other_clients_are_ignored() {
        assert_eq!(parse(&answer(ACK, 9, CLIENT_MAC), 8, CLIENT_MAC), None);
        assert_eq!(parse(&answer(ACK, 9, Mac([9; 6])), 9, CLIENT_MAC), None);
        assert_eq!(
            parse(&message(DISCOVER, 9, 0, CLIENT_MAC, None, None), 9, CLIENT_MAC),
            None,
            "a request"
        );
        let mut without_address = answer(ACK, 9, CLIENT_MAC);
        without_address[16..20].fill(0);
        assert_eq!(parse(&without_address, 9, CLIENT_MAC), None);
    }

    #[test]
    fn overloaded_fields_are_read() {
        let mut packed = answer(OFFER, 9, CLIENT_MAC);
        packed.truncate(OPTIONS_AT);
        packed.extend_from_slice(&[OVERLOAD, 1, 3, 255]);
        packed[108..112].copy_from_slice(&[MESSAGE_TYPE, 1, OFFER, 255]);
        packed[44..51].copy_from_slice(&[MASK, 4, 255, 0, 0, 0, 255]);
        let parsed = parse(&packed, 9, CLIENT_MAC).unwrap();
        assert_eq!((parsed.kind, parsed.lease.addressing.prefix), (OFFER, 8));
    }

    proptest! {
        #[test]
        fn any_answer_is_survived(mut bytes in proptest::collection::vec(any::<u8>(), 0..600), cut in 0_usize..600) {
            let mut answer = answer(OFFER, 9, CLIENT_MAC);
            for (at, byte) in bytes.drain(..).enumerate().filter(|(at, _)| *at >= OPTIONS_AT) {
                if at < answer.len() { answer[at] = byte } else { answer.push(byte) }
            }
            answer.truncate(cut);
            let _ = parse(&answer, 9, CLIENT_MAC);
        }
    }
}
