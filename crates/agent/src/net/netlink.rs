//! The parts of rtnetlink (RFC 3549, `linux/rtnetlink.h`) that set an address and report new interfaces.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, send, socket,
};

const RTM_NEWLINK: u16 = 16;
const RTM_NEWADDR: u16 = 20;
const RTM_NEWROUTE: u16 = 24;
const NLMSG_ERROR: u16 = 2;
const REQUEST_ACK: u16 = 1 | 4;
const CREATE_REPLACE: u16 = 0x400 | 0x100;
const HEADER_BYTES: usize = 16;
/// Interface changes (`RTMGRP_LINK`).
const GROUP_LINK: u32 = 1;
const IFF_UP: u32 = 1;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
/// Skips duplicate address detection: the boot plan chose the address.
const IFA_F_NODAD: u8 = 2;
const RTA_OIF: u16 = 4;
const RTA_GATEWAY: u16 = 5;
const TABLE_MAIN: u8 = 254;
const PROTOCOL_BOOT: u8 = 3;
const TYPE_UNICAST: u8 = 1;
/// The gateway is on the link, even if it lies outside the prefix.
const RTNH_F_ONLINK: u32 = 4;
const ANSWER_TIME: Duration = Duration::from_secs(5);

/// A netlink socket.
#[derive(Debug)]
pub struct Netlink {
    socket: OwnedFd,
    sequence: u32,
}

impl Netlink {
    /// Opens a socket for requests.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn open() -> io::Result<Self> {
        Self::with_groups(0)
    }

    /// Opens a socket that receives interface changes.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn listen() -> io::Result<Self> {
        Self::with_groups(GROUP_LINK)
    }

    fn with_groups(groups: u32) -> io::Result<Self> {
        let socket = socket(
            AddressFamily::Netlink,
            SockType::Raw,
            SockFlag::SOCK_CLOEXEC,
            SockProtocol::NetlinkRoute,
        )?;
        bind(socket.as_raw_fd(), &NetlinkAddr::new(0, groups))?;
        Ok(Self { socket, sequence: 0 })
    }

    /// Waits for a change until the deadline and discards it. Returns false after a timeout.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn wait(&self, deadline: Instant) -> io::Result<bool> {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = PollTimeout::try_from(left.as_millis().min(60_000)).unwrap_or(PollTimeout::MAX);
        let mut polled = [PollFd::new(self.socket.as_fd(), PollFlags::POLLIN)];
        if poll(&mut polled, timeout)? == 0 {
            return Ok(false);
        }
        let mut buffer = vec![0; 32 << 10];
        // Lost messages (ENOBUFS) also count as a change.
        let _ = recv(self.socket.as_raw_fd(), &mut buffer, MsgFlags::MSG_DONTWAIT);
        Ok(true)
    }

    /// Sets an interface up.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn set_up(&mut self, index: u32) -> io::Result<()> {
        self.request(RTM_NEWLINK, 0, &link_up(index))
    }

    /// Adds an address to an interface.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn add_address(&mut self, index: u32, address: IpAddr, prefix: u8) -> io::Result<()> {
        self.request(RTM_NEWADDR, CREATE_REPLACE, &address_body(index, address, prefix))
    }

    /// Sets the default route.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn set_default_route(&mut self, index: u32, gateway: IpAddr) -> io::Result<()> {
        self.request(RTM_NEWROUTE, CREATE_REPLACE, &route_body(index, gateway))
    }

    fn request(&mut self, kind: u16, flags: u16, body: &[u8]) -> io::Result<()> {
        self.sequence += 1;
        let message = message(kind, REQUEST_ACK | flags, self.sequence, body);
        send(self.socket.as_raw_fd(), &message, MsgFlags::empty())?;
        let deadline = Instant::now() + ANSWER_TIME;
        let mut buffer = vec![0; 32 << 10];
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let mut polled = [PollFd::new(self.socket.as_fd(), PollFlags::POLLIN)];
            let timeout = PollTimeout::try_from(left.as_millis()).unwrap_or(PollTimeout::MAX);
            if poll(&mut polled, timeout)? == 0 {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "netlink does not answer"));
            }
            let length = recv(self.socket.as_raw_fd(), &mut buffer, MsgFlags::empty())?;
            if let Some(error) = answer(&buffer[..length], self.sequence) {
                return if error == 0 {
                    Ok(())
                } else {
                    Err(io::Error::from_raw_os_error(-error))
                };
            }
        }
    }
}

fn message(kind: u16, flags: u16, sequence: u32, body: &[u8]) -> Vec<u8> {
    let mut message = Vec::with_capacity(HEADER_BYTES + body.len());
    message.extend_from_slice(&((HEADER_BYTES + body.len()) as u32).to_ne_bytes());
    message.extend_from_slice(&kind.to_ne_bytes());
    message.extend_from_slice(&flags.to_ne_bytes());
    message.extend_from_slice(&sequence.to_ne_bytes());
    message.extend_from_slice(&0_u32.to_ne_bytes());
    message.extend_from_slice(body);
    message
}

/// The error number of the acknowledgement with this sequence, if it is among the messages; 0 means success.
fn answer(mut messages: &[u8], sequence: u32) -> Option<i32> {
    let u32_at = |bytes: &[u8], at: usize| {
        bytes
            .get(at..at + 4)
            .map(|b| u32::from_ne_bytes([b[0], b[1], b[2], b[3]]))
    };
    while messages.len() >= HEADER_BYTES {
        let length = u32_at(messages, 0)? as usize;
        let kind = u16::from_ne_bytes([messages[4], messages[5]]);
        if length < HEADER_BYTES || length > messages.len() {
            return None;
        }
        if kind == NLMSG_ERROR && u32_at(messages, 8) == Some(sequence) {
            return u32_at(messages, HEADER_BYTES).map(u32::cast_signed);
        }
        messages = messages.get(length.next_multiple_of(4)..)?;
    }
    None
}

fn attribute(body: &mut Vec<u8>, kind: u16, value: &[u8]) {
    body.extend_from_slice(&((4 + value.len()) as u16).to_ne_bytes());
    body.extend_from_slice(&kind.to_ne_bytes());
    body.extend_from_slice(value);
    body.resize(body.len().next_multiple_of(4), 0);
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    }
}

fn family(address: IpAddr) -> u8 {
    let family = if address.is_ipv4() {
        libc::AF_INET
    } else {
        libc::AF_INET6
    };
    family as u8
}

/// Builds the `struct ifinfomsg` that sets IFF_UP.
fn link_up(index: u32) -> Vec<u8> {
    [0, index, IFF_UP, IFF_UP]
        .into_iter()
        .flat_map(u32::to_ne_bytes)
        .collect()
}

/// Builds a `struct ifaddrmsg` and its attributes.
fn address_body(index: u32, address: IpAddr, prefix: u8) -> Vec<u8> {
    let flags = if address.is_ipv6() { IFA_F_NODAD } else { 0 };
    let mut body = vec![family(address), prefix, flags, 0];
    body.extend_from_slice(&index.to_ne_bytes());
    attribute(&mut body, IFA_LOCAL, &octets(address));
    attribute(&mut body, IFA_ADDRESS, &octets(address));
    body
}

/// Builds the `struct rtmsg` of the default route and its attributes.
fn route_body(index: u32, gateway: IpAddr) -> Vec<u8> {
    let mut body = vec![family(gateway), 0, 0, 0, TABLE_MAIN, PROTOCOL_BOOT, 0, TYPE_UNICAST];
    body.extend_from_slice(&RTNH_F_ONLINK.to_ne_bytes());
    attribute(&mut body, RTA_GATEWAY, &octets(gateway));
    attribute(&mut body, RTA_OIF, &index.to_ne_bytes());
    body
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn acknowledgements_are_found_among_other_messages() {
        let error = |sequence: u32, error: i32| message(NLMSG_ERROR, 0, sequence, &error.to_ne_bytes());
        let other = message(RTM_NEWLINK, 0, 7, &[1, 2, 3]);
        let padded = [&other[..], &[0]].concat();
        assert_eq!(answer(&[&padded[..], &error(7, -17)].concat(), 7), Some(-17));
        assert_eq!(answer(&error(7, 0), 7), Some(0));
        assert_eq!(answer(&error(6, 0), 7), None);
        assert_eq!(answer(&padded[..10], 7), None);
        assert_eq!(answer(&[0; 64], 7), None);
    }

    #[test]
    fn bodies_have_the_kernels_sizes() {
        assert_eq!(link_up(3).len(), 16);
        assert_eq!(address_body(3, "10.0.0.1".parse().unwrap(), 24).len(), 8 + 8 + 8);
        assert_eq!(address_body(3, "fd77::1".parse().unwrap(), 64).len(), 8 + 20 + 20);
        assert_eq!(route_body(3, "10.0.0.1".parse().unwrap()).len(), 12 + 8 + 8);
    }

    #[test]
    fn the_kernel_answers() {
        // Setting up a missing interface fails, either with that error or for lack of privilege, but the kernel answers.
        let error = Netlink::open().unwrap().set_up(u32::MAX >> 1).unwrap_err();
        assert!(
            [Some(libc::ENODEV), Some(libc::EPERM)].contains(&error.raw_os_error()),
            "{error}"
        );
    }
}
