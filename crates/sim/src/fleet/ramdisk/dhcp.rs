//! DHCP of firmware and iPXE, through a relay agent: all machines of a fleet share one socket, and the transaction number
//! assigns answers to machines.
//!
//! The relay requests answers on its source port (RFC 8357), so that it can run beside the server on one computer.

use super::BootError;
use crate::fleet::FleetError;
use crate::fleet::faults::Lost;
use nix::sys::socket::{setsockopt, sockopt};
use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::net::UdpSocket;
use tokio::sync::oneshot;

/// iPXE's time-outs before it repeats a request, one per attempt.
const WAITS_S: [u64; 5] = [1, 2, 4, 8, 16];
/// A fleet that powers on together gets its answers within the same second.
const RECEIVE_BYTES: usize = 4 << 20;
/// Fixed part of a DHCP message, with the magic cookie (RFC 2131, section 2).
const HEADER: usize = 240;
const MAGIC: [u8; 4] = [99, 130, 83, 99];
const BOOT_REQUEST: u8 = 1;
const BOOT_REPLY: u8 = 2;

/// Message types (RFC 2132, section 9.6).
const DISCOVER: u8 = 1;
const OFFER: u8 = 2;
const REQUEST: u8 = 3;
const ACK: u8 = 5;

/// Option codes (RFC 2132; 77: RFC 3004; 82: RFC 3046; 93, 97: RFC 4578).
mod option {
    pub(super) const REQUESTED_ADDRESS: u8 = 50;
    pub(super) const MESSAGE_TYPE: u8 = 53;
    pub(super) const SERVER: u8 = 54;
    pub(super) const CLASS: u8 = 60;
    pub(super) const BOOT_FILE: u8 = 67;
    pub(super) const USER_CLASS: u8 = 77;
    pub(super) const RELAY: u8 = 82;
    pub(super) const ARCHITECTURE: u8 = 93;
    pub(super) const MACHINE_ID: u8 = 97;
    pub(super) const END: u8 = 255;
}

/// A machine's lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Lease {
    pub(super) address: Ipv4Addr,
    /// A file by TFTP, or the URL of a file or boot script; `None` if the machine is to boot from its drive.
    pub(super) boot_file: Option<String>,
    /// The TFTP server of the file.
    pub(super) next_server: Ipv4Addr,
}

/// The requesting program; its classes and architecture state what it can load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Program {
    /// UEFI firmware on x86-64 that loads by TFTP.
    Pxe,
    /// The same firmware, loading by HTTP.
    HttpBoot,
    /// iPXE, which loads a script by HTTP.
    Ipxe,
}

impl Program {
    /// Vendor class and number of the architecture (RFC 4578).
    fn kind(self) -> (&'static [u8], u16) {
        match self {
            Self::Pxe | Self::Ipxe => (b"PXEClient:Arch:00007:UNDI:003010", 7),
            Self::HttpBoot => (b"HTTPClient:Arch:00016:UNDI:003010", 16),
        }
    }
}

/// The requesting machine.
#[derive(Debug, Clone, Copy)]
pub(super) struct Client {
    pub(super) mac: [u8; 6],
    /// SMBIOS UUID, in the order in which it is written.
    pub(super) uuid: [u8; 16],
    pub(super) program: Program,
}

/// Called for each message: the lost part of the exchange.
pub(super) type Loss<'a> = &'a (dyn Fn() -> Option<Lost> + Sync);

/// The fleet's relay agent.
#[derive(Debug)]
pub(super) struct Relay {
    socket: UdpSocket,
    server: SocketAddrV4,
    address: Ipv4Addr,
    last: AtomicU32,
    waiting: Mutex<HashMap<u32, oneshot::Sender<Vec<u8>>>>,
}

impl Relay {
    /// A relay with this address for a server.
    ///
    /// # Errors
    /// [`FleetError::Listen`].
    pub(super) async fn bind(address: Ipv4Addr, server: SocketAddrV4) -> Result<Self, FleetError> {
        let place = SocketAddrV4::new(address, 0);
        let failed = |source| FleetError::Listen {
            address: SocketAddr::V4(place),
            source,
        };
        let socket = UdpSocket::bind(place).await.map_err(failed)?;
        setsockopt(&socket, sockopt::RcvBuf, &RECEIVE_BYTES).map_err(|errno| failed(errno.into()))?;
        Ok(Self {
            socket,
            server,
            address,
            last: AtomicU32::new(0),
            waiting: Mutex::default(),
        })
    }

    fn waiting(&self) -> MutexGuard<'_, HashMap<u32, oneshot::Sender<Vec<u8>>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Delivers answers to the waiting requests. Runs until the task is aborted.
    pub(super) async fn run(&self) {
        let mut packet = vec![0; 4096];
        loop {
            match self.socket.recv_from(&mut packet).await {
                Ok((length, from)) if from == SocketAddr::V4(self.server) => {
                    let answer = &packet[..length];
                    let waiting = transaction(answer).and_then(|number| self.waiting().remove(&number));
                    if let Some(waiting) = waiting {
                        // The waiting request may have timed out.
                        let _ = waiting.send(answer.to_vec());
                    }
                }
                Ok((_, from)) => tracing::debug!(%from, "a DHCP answer of another server"),
                // ICMP reports an absent server; the requests are repeated.
                Err(error) => tracing::debug!(%error, "no DHCP answer"),
            }
        }
    }

    /// Discovers the server and requests an address and a boot script.
    ///
    /// # Errors
    /// [`BootError::NoAnswer`]
    pub(super) async fn lease(&self, client: Client, loss: Loss<'_>) -> Result<Lease, BootError> {
        let offer = self.exchange(client, DISCOVER, None, loss).await?;
        let acknowledged = self.exchange(client, REQUEST, Some(&offer), loss).await?;
        Ok(Lease {
            address: acknowledged.address,
            boot_file: acknowledged.boot_file,
            next_server: acknowledged.next_server,
        })
    }

    async fn exchange(
        &self,
        client: Client,
        kind: u8,
        offer: Option<&Answer>,
        loss: Loss<'_>,
    ) -> Result<Answer, BootError> {
        let wanted = if kind == DISCOVER { OFFER } else { ACK };
        for wait_s in WAITS_S {
            let number = self.last.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
            let (sender, receiver) = oneshot::channel();
            let lost = loss();
            let lost_request = match lost {
                Some(_) => Some(sender),
                None => self.waiting().insert(number, sender),
            };
            if lost != Some(Lost::Request) {
                let message = message(client, kind, number, self.address, offer);
                if let Err(error) = self.socket.send_to(&message, self.server).await {
                    tracing::debug!(%error, "a DHCP message was not sent");
                }
            }
            let answer = tokio::time::timeout(Duration::from_secs(wait_s), receiver).await;
            drop(lost_request);
            self.waiting().remove(&number);
            let answer = answer.ok().and_then(Result::ok);
            if let Some(answer) = answer.and_then(|bytes| Answer::read(&bytes, client.mac))
                && answer.kind == wanted
            {
                return Ok(answer);
            }
        }
        Err(BootError::NoAnswer { server: self.server })
    }
}

/// A client's message with the relay's fields.
fn message(client: Client, kind: u8, number: u32, relay: Ipv4Addr, offer: Option<&Answer>) -> Vec<u8> {
    let mut bytes = vec![0; HEADER];
    // Ethernet, one relay.
    bytes[..4].copy_from_slice(&[BOOT_REQUEST, 1, 6, 1]);
    bytes[4..8].copy_from_slice(&number.to_be_bytes());
    bytes[24..28].copy_from_slice(&relay.octets());
    bytes[28..34].copy_from_slice(&client.mac);
    bytes[236..HEADER].copy_from_slice(&MAGIC);
    let mut add = |code: u8, data: &[u8]| {
        bytes.extend([code, u8::try_from(data.len()).unwrap_or(0)]);
        bytes.extend_from_slice(data);
    };
    add(option::MESSAGE_TYPE, &[kind]);
    if let Some(offer) = offer {
        add(option::REQUESTED_ADDRESS, &offer.address.octets());
        add(option::SERVER, &offer.server.octets());
    }
    let (class, architecture) = client.program.kind();
    add(option::CLASS, class);
    if client.program == Program::Ipxe {
        add(option::USER_CLASS, b"iPXE");
    }
    add(option::ARCHITECTURE, &architecture.to_be_bytes());
    add(option::MACHINE_ID, &machine_id(client.uuid));
    // Sub-option 19, empty: answer to the source port of this message.
    add(option::RELAY, &[19, 0]);
    bytes.push(option::END);
    bytes
}

/// Type 0 and the UUID in SMBIOS order: its first three fields are little-endian.
fn machine_id(uuid: [u8; 16]) -> [u8; 17] {
    let mut id = [0; 17];
    id[1..].copy_from_slice(&uuid);
    id[1..5].reverse();
    id[5..7].reverse();
    id[7..9].reverse();
    id
}

fn transaction(answer: &[u8]) -> Option<u32> {
    let is_answer = answer.len() >= HEADER && answer[0] == BOOT_REPLY && answer[236..HEADER] == MAGIC;
    let number = answer.get(4..8)?.try_into().ok()?;
    is_answer.then(|| u32::from_be_bytes(number))
}

/// A server's message.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Answer {
    kind: u8,
    address: Ipv4Addr,
    server: Ipv4Addr,
    next_server: Ipv4Addr,
    boot_file: Option<String>,
}

impl Answer {
    /// Reads an answer to a machine; `None` if it is for another machine or is cut short.
    fn read(bytes: &[u8], mac: [u8; 6]) -> Option<Self> {
        transaction(bytes)?;
        if bytes[28..34] != mac {
            return None;
        }
        let address = |at: usize| <[u8; 4]>::try_from(&bytes[at..at + 4]).map(Ipv4Addr::from);
        // The field for the file's name; a longer name is in option 67.
        let file = bytes[108..236]
            .split(|byte| *byte == 0)
            .next()
            .filter(|name| !name.is_empty());
        let mut answer = Self {
            kind: 0,
            address: address(16).ok()?,
            server: Ipv4Addr::UNSPECIFIED,
            next_server: address(20).ok()?,
            boot_file: file.and_then(|name| String::from_utf8(name.to_vec()).ok()),
        };
        let mut rest = &bytes[HEADER..];
        while let [code, tail @ ..] = rest {
            match *code {
                0 => rest = tail,
                option::END => break,
                code => {
                    let (length, tail) = tail.split_first()?;
                    let (data, next) = tail.split_at_checked(usize::from(*length))?;
                    answer.take(code, data)?;
                    rest = next;
                }
            }
        }
        Some(answer)
    }

    fn take(&mut self, code: u8, data: &[u8]) -> Option<()> {
        match code {
            option::MESSAGE_TYPE => self.kind = *data.first()?,
            option::SERVER => self.server = <[u8; 4]>::try_from(data).ok()?.into(),
            option::BOOT_FILE => self.boot_file = Some(String::from_utf8(data.to_vec()).ok()?),
            _ => {}
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLIENT: Client = Client {
        mac: [2, 0, 0x57, 0, 0, 7],
        uuid: [0xaa, 0xbb, 0xcc, 0xdd, 0, 1, 2, 3, 0x80, 0, 0, 0, 0, 0, 0, 7],
        program: Program::Ipxe,
    };

    fn answer(kind: u8, options: &[u8]) -> Vec<u8> {
        let mut bytes = message(CLIENT, kind, 7, Ipv4Addr::LOCALHOST, None);
        bytes.truncate(HEADER);
        bytes[0] = BOOT_REPLY;
        bytes[16..24].copy_from_slice(&[127, 128, 0, 9, 127, 0, 0, 2]);
        bytes.extend([option::MESSAGE_TYPE, 1, kind, option::SERVER, 4, 127, 0, 0, 1]);
        bytes.extend_from_slice(options);
        bytes
    }

    #[test]
    fn answers_are_read_and_foreign_or_truncated_ones_are_not() {
        let whole = answer(ACK, &[0, option::BOOT_FILE, 2, b'h', b'i', option::END]);
        let read = Answer::read(&whole, CLIENT.mac).unwrap();
        let expected = Answer {
            kind: ACK,
            address: [127, 128, 0, 9].into(),
            server: [127, 0, 0, 1].into(),
            next_server: [127, 0, 0, 2].into(),
            boot_file: Some("hi".to_owned()),
        };
        let mut by_field = answer(ACK, &[option::END]);
        by_field[108..119].copy_from_slice(b"snponly.efi");
        let file = Answer::read(&by_field, CLIENT.mac).unwrap().boot_file;
        assert_eq!(file.as_deref(), Some("snponly.efi"));
        assert_eq!((read, transaction(&whole)), (expected, Some(7)));
        assert_eq!(Answer::read(&whole, [2, 0, 0x57, 0, 0, 8]), None);
        for length in (0..whole.len() - 1).filter(|length| *length != whole.len() - 5) {
            let read = Answer::read(&whole[..length], CLIENT.mac);
            assert!(read.is_none_or(|read| read.boot_file.is_none()), "{length}");
        }
        assert_eq!(
            transaction(&message(CLIENT, ACK, 7, Ipv4Addr::LOCALHOST, None)),
            None,
            "a request"
        );
    }

    #[test]
    fn the_uuid_is_in_the_order_of_smbios() {
        let id = machine_id(CLIENT.uuid);
        assert_eq!(id[..9], [0, 0xdd, 0xcc, 0xbb, 0xaa, 1, 0, 3, 2]);
        assert_eq!(id[9..], CLIENT.uuid[8..]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_without_an_answer_repeats_and_gives_up() {
        let silent = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let SocketAddr::V4(server) = silent.local_addr().unwrap() else {
            panic!("an IPv4 socket")
        };
        let relay = Relay::bind(Ipv4Addr::LOCALHOST, server).await.unwrap();
        let begun = tokio::time::Instant::now();
        assert!(matches!(
            relay.lease(CLIENT, &|| None).await,
            Err(BootError::NoAnswer { .. })
        ));
        assert_eq!(begun.elapsed().as_secs(), WAITS_S.iter().sum::<u64>());
        assert!(relay.waiting().is_empty());
    }
}
