//! Parses DHCP messages of clients.
//!
//! `dhcproto`'s lazy reader reads the fields and options, after the checks of the header and the option lengths here. Its
//! typed reader panics on some malformed messages (a hardware address longer than its field; in debug builds also some
//! options of the wrong length). Its lazy reader does not notice options beyond the packet's end.

use std::fmt;
use std::net::Ipv4Addr;

use dhcproto::v4::borrowed::Message;
use dhcproto::v4::{MAGIC, OptionCode};

use crate::config::{DhcpMode, Settings};
use crate::directory::Client;
use crate::mac::Mac;

/// Fixed part of a DHCP message, with the magic cookie (RFC 2131, section 2).
const HEADER: usize = 240;
/// Longest accepted message: larger than any MTU on a boot network without jumbo frames.
const MAX_PACKET_BYTES: usize = 4096;

/// The port on which a message arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Port {
    /// Port 67.
    Server,
    /// Port 4011.
    BootServer,
}

/// Kinds of DHCP messages that clients send (option 53).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MessageKind {
    Discover,
    Request,
    Decline,
    Release,
    Inform,
}

/// Kind of the requesting program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// An operating system or a BMC: gets an address and no boot file.
    Plain,
    /// Firmware that boots by TFTP (option 60 "PXEClient").
    Pxe,
    /// Firmware that boots by HTTP (option 60 "HTTPClient").
    HttpBoot,
    /// iPXE (user class "iPXE").
    Ipxe,
}

impl Kind {
    /// True for firmware and iPXE, which look for something to boot.
    pub fn looks_for_boot(self) -> bool {
        self != Self::Plain
    }
}

/// Option 93 (RFC 4578 and the IANA registry of processor architecture types).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Architecture {
    Bios,
    UefiX64,
    UefiArm64,
    UefiHttpX64,
    UefiHttpArm64,
    /// Any other architecture, by its number.
    Other(u16),
}

impl From<u16> for Architecture {
    fn from(number: u16) -> Self {
        match number {
            0 => Self::Bios,
            // 9 is "EBC" in the registry, but many x86-64 firmwares send it.
            7 | 9 => Self::UefiX64,
            11 => Self::UefiArm64,
            16 => Self::UefiHttpX64,
            19 => Self::UefiHttpArm64,
            other => Self::Other(other),
        }
    }
}

impl fmt::Display for Architecture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bios => f.write_str("BIOS"),
            Self::UefiX64 => f.write_str("UEFI x86-64"),
            Self::UefiArm64 => f.write_str("UEFI arm64"),
            Self::UefiHttpX64 => f.write_str("UEFI HTTP x86-64"),
            Self::UefiHttpArm64 => f.write_str("UEFI HTTP arm64"),
            Self::Other(number) => write!(f, "architecture type {number}"),
        }
    }
}

/// Why a packet is not a client's DHCP message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    #[error("{0} bytes: a DHCP message has 240 to 4096")]
    Length(usize),
    #[error("operation {0} is neither request nor reply")]
    Operation(u8),
    #[error("no DHCP magic cookie")]
    Magic,
    #[error("hardware type {kind} with an address of {length} bytes: only Ethernet is served")]
    Hardware { kind: u8, length: u8 },
    #[error("the hardware address is zero or a group address")]
    HardwareAddress,
    #[error("option {code} at byte {at} runs past the end of the packet")]
    Truncated { code: u8, at: usize },
    #[error("option {code} has {length} bytes")]
    OptionLength { code: u8, length: usize },
    #[error("no message type (plain BOOTP)")]
    NoMessageType,
    #[error("message type {0} is not a client's message type")]
    MessageType(u8),
    #[error("the relay's address {0} is not a unicast address")]
    Relay(Ipv4Addr),
    /// A server's message. It may be well-formed; see [`Request::parse`].
    #[error("a message from the DHCP server {0}")]
    FromServer(Ipv4Addr),
}

/// A valid message of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    pub kind: MessageKind,
    pub port: Port,
    pub client: Client,
    pub(crate) xid: u32,
    pub(crate) broadcast: bool,
    pub(crate) ciaddr: Ipv4Addr,
    pub(crate) giaddr: Ipv4Addr,
    /// Option 54.
    pub(crate) server_id: Option<Ipv4Addr>,
    /// Option 50.
    pub(crate) requested: Option<Ipv4Addr>,
    /// Option 61, echoed (RFC 6842).
    pub(crate) client_id: Option<Vec<u8>>,
    /// Option 97, echoed (RFC 4578).
    pub(crate) machine_id: Option<Vec<u8>>,
    /// All of option 82, echoed (RFC 3046).
    pub(crate) relay_info: Option<Vec<u8>>,
    /// Option 82 sub-option 5 (RFC 3527): selects the subnet in place of giaddr.
    pub(crate) link_selection: Option<Ipv4Addr>,
    /// Option 82 sub-option 19 (RFC 8357): the relay expects answers on the source port of its message.
    pub(crate) relay_source_port: bool,
}

impl Request {
    /// Parses a packet. A server's message gives [`Malformed::FromServer`], so that the caller can report the server.
    pub fn parse(packet: &[u8], port: Port, settings: &Settings) -> Result<Self, Malformed> {
        let (message, options) = read(packet)?;
        if packet[0] == 2 {
            return Err(Malformed::FromServer(options.server_id.unwrap_or(message.siaddr())));
        }
        let mac = hardware_address(&message)?;
        let giaddr = message.giaddr();
        if giaddr.is_broadcast() || giaddr.is_multicast() || giaddr.is_loopback() && !settings.server_ip.is_loopback() {
            return Err(Malformed::Relay(giaddr));
        }
        let relay = (!giaddr.is_unspecified()).then_some(giaddr);
        let kind = options.message_kind()?;
        let ciaddr = message.ciaddr();
        let wanted_address = options.requested.or((!ciaddr.is_unspecified()).then_some(ciaddr));
        let link_selection = options.relay_option_address(5);
        let relay_source_port = options.relay_option(19).is_some();
        let subnet = match &settings.dhcp {
            DhcpMode::Server { .. } => settings.subnet_of(link_selection.or(relay).unwrap_or(settings.server_ip)),
            DhcpMode::Proxy | DhcpMode::Off => None,
        };
        let client = Client {
            mac,
            kind: options.client_kind(),
            architecture: options.architecture.map(Architecture::from),
            system_uuid: options.machine_id.as_deref().and_then(system_uuid),
            relay,
            circuit_id: options.relay_option(1),
            remote_id: options.relay_option(2),
            user_class: options.user_class.as_deref().map(printable),
            hostname: options.hostname.as_deref().map(printable),
            subnet: subnet.map(|subnet| subnet.network),
            requested: wanted_address,
        };
        Ok(Self {
            kind,
            port,
            client,
            xid: message.xid(),
            broadcast: message.flags().broadcast(),
            ciaddr,
            giaddr,
            server_id: options.server_id,
            requested: options.requested,
            client_id: options.client_id,
            machine_id: options.machine_id,
            relay_info: options.relay_info,
            link_selection,
            relay_source_port,
        })
    }
}

/// If `packet` is a well-formed message of a server, returns the server and the client that it answers.
pub(crate) fn sender(packet: &[u8]) -> Option<(Ipv4Addr, Option<Mac>)> {
    let (message, options) = read(packet).ok()?;
    let server = options.server_id.unwrap_or(message.siaddr());
    (packet[0] == 2).then(|| (server, hardware_address(&message).ok()))
}

fn read(packet: &[u8]) -> Result<(Message<'_>, Options), Malformed> {
    if !(HEADER..=MAX_PACKET_BYTES).contains(&packet.len()) {
        return Err(Malformed::Length(packet.len()));
    }
    if !matches!(packet[0], 1 | 2) {
        return Err(Malformed::Operation(packet[0]));
    }
    if packet[236..HEADER] != MAGIC {
        return Err(Malformed::Magic);
    }
    check_options(packet)?;
    let message = Message::new(packet).map_err(|_| Malformed::Length(packet.len()))?;
    let options = Options::read(&message)?;
    Ok((message, options))
}

/// Checks that every option ends within the packet. A missing end mark is accepted, as in all servers.
fn check_options(packet: &[u8]) -> Result<(), Malformed> {
    let mut at = HEADER;
    while let Some(&code) = packet.get(at) {
        match code {
            0 => at += 1,
            255 => return Ok(()),
            _ => {
                let length = packet.get(at + 1).ok_or(Malformed::Truncated { code, at })?;
                let end = at + 2 + usize::from(*length);
                if end > packet.len() {
                    return Err(Malformed::Truncated { code, at });
                }
                at = end;
            }
        }
    }
    Ok(())
}

fn hardware_address(message: &Message<'_>) -> Result<Mac, Malformed> {
    let kind = u8::from(message.htype());
    if kind != 1 || message.hlen() != 6 {
        return Err(Malformed::Hardware {
            kind,
            length: message.hlen(),
        });
    }
    let bytes: [u8; 6] = message.chaddr().try_into().map_err(|_| Malformed::HardwareAddress)?;
    if bytes == [0; 6] || bytes[0] & 1 == 1 {
        return Err(Malformed::HardwareAddress);
    }
    Ok(Mac(bytes))
}

#[derive(Default)]
struct Options {
    message_type: Option<u8>,
    requested: Option<Ipv4Addr>,
    server_id: Option<Ipv4Addr>,
    vendor_class: Option<Vec<u8>>,
    client_id: Option<Vec<u8>>,
    user_class: Option<Vec<u8>>,
    hostname: Option<Vec<u8>>,
    relay_info: Option<Vec<u8>>,
    architecture: Option<u16>,
    machine_id: Option<Vec<u8>>,
}

impl Options {
    /// Keeps the first option of each kind.
    fn read(message: &Message<'_>) -> Result<Self, Malformed> {
        let mut options = Self::default();
        for option in message.opts() {
            let data = option.data();
            let wrong = Malformed::OptionLength {
                code: option.code().into(),
                length: data.len(),
            };
            match option.code() {
                OptionCode::MessageType => set(&mut options.message_type, fixed::<1>(data).ok_or(wrong)?[0]),
                OptionCode::RequestedIpAddress => set(&mut options.requested, fixed::<4>(data).ok_or(wrong)?.into()),
                OptionCode::ServerIdentifier => set(&mut options.server_id, fixed::<4>(data).ok_or(wrong)?.into()),
                OptionCode::ClassIdentifier => set(&mut options.vendor_class, data.to_vec()),
                OptionCode::ClientIdentifier => set(&mut options.client_id, short(data).ok_or(wrong)?),
                OptionCode::UserClass => set(&mut options.user_class, data.to_vec()),
                OptionCode::Hostname => set(&mut options.hostname, data.to_vec()),
                OptionCode::RelayAgentInformation => set(&mut options.relay_info, short(data).ok_or(wrong)?),
                OptionCode::ClientSystemArchitecture => {
                    // A list; the first entry is the present architecture.
                    let first = data.get(..2).and_then(fixed::<2>).ok_or(wrong)?;
                    set(&mut options.architecture, u16::from_be_bytes(first));
                }
                OptionCode::ClientMachineIdentifier => set(&mut options.machine_id, short(data).ok_or(wrong)?),
                _ => {}
            }
        }
        Ok(options)
    }

    fn message_kind(&self) -> Result<MessageKind, Malformed> {
        match self.message_type.ok_or(Malformed::NoMessageType)? {
            1 => Ok(MessageKind::Discover),
            3 => Ok(MessageKind::Request),
            4 => Ok(MessageKind::Decline),
            7 => Ok(MessageKind::Release),
            8 => Ok(MessageKind::Inform),
            other => Err(Malformed::MessageType(other)),
        }
    }

    fn client_kind(&self) -> Kind {
        let class = self.vendor_class.as_deref().unwrap_or_default();
        // iPXE sends the plain word; RFC 3004 requires a length byte before it.
        if matches!(self.user_class.as_deref(), Some(b"iPXE" | b"\x04iPXE")) {
            Kind::Ipxe
        } else if class.starts_with(b"HTTPClient") {
            Kind::HttpBoot
        } else if class.starts_with(b"PXEClient") {
            Kind::Pxe
        } else {
            Kind::Plain
        }
    }

    /// Returns a sub-option of option 82. A sub-option beyond the end hides itself and all later ones.
    fn relay_option(&self, wanted: u8) -> Option<Vec<u8>> {
        let mut rest = self.relay_info.as_deref()?;
        while let [code, length, tail @ ..] = rest {
            let (data, next) = tail.split_at_checked(usize::from(*length))?;
            if *code == wanted {
                return Some(data.to_vec());
            }
            rest = next;
        }
        None
    }

    fn relay_option_address(&self, wanted: u8) -> Option<Ipv4Addr> {
        self.relay_option(wanted)
            .and_then(|data| fixed::<4>(&data))
            .map(Ipv4Addr::from)
    }
}

fn set<T>(slot: &mut Option<T>, value: T) {
    if slot.is_none() {
        *slot = Some(value);
    }
}

fn fixed<const N: usize>(data: &[u8]) -> Option<[u8; N]> {
    data.try_into().ok()
}

/// Echoed data must fit into one option again.
fn short(data: &[u8]) -> Option<Vec<u8>> {
    (data.len() <= 255).then(|| data.to_vec())
}

/// Converts text from the network for people: printable ASCII, at most 64 characters.
fn printable(bytes: &[u8]) -> String {
    let shown = |b: &u8| {
        if b.is_ascii_graphic() || *b == b' ' {
            char::from(*b)
        } else {
            '.'
        }
    };
    let bytes = match bytes {
        // RFC 3004: starts with a length byte.
        [length, rest @ ..] if usize::from(*length) == rest.len() && *length < 0x20 => rest,
        _ => bytes,
    };
    bytes.iter().take(64).map(shown).collect()
}

/// Type 0 and 16 bytes in SMBIOS order: the first three fields little-endian (SMBIOS 2.6, section 7.2.1).
fn system_uuid(option: &[u8]) -> Option<String> {
    let [0, bytes @ ..] = option else { return None };
    let b: [u8; 16] = bytes.try_into().ok()?;
    if b == [0; 16] || b == [255; 16] {
        return None;
    }
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let first = hex(&[b[3], b[2], b[1], b[0]]);
    Some(format!(
        "{first}-{}-{}-{}-{}",
        hex(&[b[5], b[4]]),
        hex(&[b[7], b[6]]),
        hex(&b[8..10]),
        hex(&b[10..])
    ))
}
