//! Encodes DHCP messages and chooses their destination.

use std::net::{Ipv4Addr, SocketAddrV4};

use dhcproto::v4::{DhcpOption, Encodable as _, Flags, HType, Message, MessageType, Opcode, OptionCode, UnknownOption};

use super::answer::{Answer, AnswerKind};
use super::boot::FirstStage;
use super::request::{Kind, Port, Request};
use crate::config::{Settings, Subnet};
use crate::directory::OneTimeToken;

/// Old clients and relays drop messages shorter than BOOTP's (RFC 1542, section 2.1).
const MIN_REPLY_BYTES: usize = 300;
/// Usable bytes of the header's file field: 128 bytes with its null.
const MAX_FILE_FIELD_BYTES: usize = 127;
/// PXE 2.1, table 2-1, PXE_DISCOVERY_CONTROL: no broadcast or multicast discovery, and bit 3: "download the boot file named
/// here and ask nobody else".
const SKIP_DISCOVERY: [u8; 4] = [6, 1, 0x08, 255];
/// iPXE's encapsulated options (175), sub-option 176 "no-pxedhcp": do not wait for a proxyDHCP server.
const NO_PROXY_WAIT: [u8; 3] = [176, 1, 1];

/// A message, ready to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    pub bytes: Vec<u8>,
    /// A relay agent, the client, or the broadcast address of the link.
    pub destination: SocketAddrV4,
}

/// Why a reply cannot be encoded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EncodeError {
    /// Indicates a bug: the caller ignored [`Answer::needs_token`].
    #[error("the answer needs a boot token, but there is none")]
    NoToken,
    /// The URL exceeds 255 bytes.
    #[error("the boot URL has {0} bytes; a DHCP option holds at most 255 bytes")]
    UrlTooLong(usize),
    #[error("the DHCP encoder refuses: {0}")]
    Encoder(String),
}

/// Encodes `answer` to `request`. `from` is the source of the request; it is the destination on the boot server's port, and
/// its port is used for relays that request it.
pub fn reply(
    request: &Request,
    answer: &Answer,
    token: Option<&OneTimeToken>,
    from: SocketAddrV4,
    settings: &Settings,
) -> Result<Reply, EncodeError> {
    let mut message = header(request, answer, settings);
    add_identity(&mut message, request, answer, settings);
    if let Some(subnet) = &answer.subnet {
        add_network(&mut message, subnet, answer);
    }
    if let Ok(stage) = &answer.boot {
        add_boot(&mut message, request, answer, stage, token, settings)?;
    }
    let mut bytes = message
        .to_vec()
        .map_err(|error| EncodeError::Encoder(error.to_string()))?;
    if let Some(info) = &request.relay_info {
        // The relay information follows all other options (RFC 3046, section 2.2), unchanged, before the end mark.
        bytes.pop();
        bytes.extend([82, u8::try_from(info.len()).unwrap_or(0)]);
        bytes.extend_from_slice(info);
        bytes.push(255);
    }
    if bytes.len() < MIN_REPLY_BYTES {
        bytes.resize(MIN_REPLY_BYTES, 0);
    }
    Ok(Reply {
        bytes,
        destination: destination(request, answer, from, settings),
    })
}

fn header(request: &Request, answer: &Answer, settings: &Settings) -> Message {
    let mut message = Message::new_with_id(
        request.xid,
        if answer.kind == AnswerKind::Nak {
            Ipv4Addr::UNSPECIFIED
        } else {
            request.ciaddr
        },
        answer.address.unwrap_or(Ipv4Addr::UNSPECIFIED),
        // The next server: the server of the boot file.
        if answer.boot.is_ok() {
            settings.server_ip
        } else {
            Ipv4Addr::UNSPECIFIED
        },
        request.giaddr,
        &request.client.mac.0,
    );
    message.set_opcode(Opcode::BootReply).set_htype(HType::Eth);
    let to_relay = answer.kind == AnswerKind::Nak && request.client.relay.is_some();
    if request.broadcast || to_relay {
        message.set_flags(Flags::default().set_broadcast());
    }
    message
}

fn add_identity(message: &mut Message, request: &Request, answer: &Answer, settings: &Settings) {
    let kind = match answer.kind {
        AnswerKind::Offer | AnswerKind::ProxyOffer => MessageType::Offer,
        AnswerKind::Ack | AnswerKind::ProxyAck => MessageType::Ack,
        AnswerKind::Nak => MessageType::Nak,
    };
    let options = message.opts_mut();
    options.insert(DhcpOption::MessageType(kind));
    options.insert(DhcpOption::ServerIdentifier(settings.server_ip));
    if let Some(id) = &request.client_id {
        options.insert(DhcpOption::ClientIdentifier(id.clone()));
    }
    if let Some(id) = &request.machine_id
        && request.client.kind != Kind::Plain
    {
        options.insert(DhcpOption::ClientMachineIdentifier(id.clone()));
    }
}

fn add_network(message: &mut Message, subnet: &Subnet, answer: &Answer) {
    let options = message.opts_mut();
    options.insert(DhcpOption::SubnetMask(subnet.network.netmask()));
    options.insert(DhcpOption::BroadcastAddr(subnet.network.broadcast()));
    if let Some(router) = subnet.router {
        options.insert(DhcpOption::Router(vec![router]));
    }
    if !subnet.dns.is_empty() {
        options.insert(DhcpOption::DomainNameServer(subnet.dns.clone()));
    }
    if let Some(name) = answer.hostname.as_ref().filter(|name| is_host_name(name)) {
        options.insert(DhcpOption::Hostname(name.clone()));
    }
    // The answer to DHCPINFORM has no times (RFC 2131, section 4.3.5).
    if answer.address.is_some() {
        options.insert(DhcpOption::AddressLeaseTime(subnet.lease_s));
        options.insert(DhcpOption::Renewal(subnet.lease_s / 2));
        options.insert(DhcpOption::Rebinding(subnet.lease_s / 8 * 7));
    }
}

fn add_boot(
    message: &mut Message,
    request: &Request,
    answer: &Answer,
    stage: &FirstStage,
    token: Option<&OneTimeToken>,
    settings: &Settings,
) -> Result<(), EncodeError> {
    let proxy = matches!(answer.kind, AnswerKind::ProxyOffer | AnswerKind::ProxyAck);
    let base = settings.http_base();
    let file = match stage {
        FirstStage::Tftp(name) | FirstStage::Shim(name) => (*name).to_owned(),
        FirstStage::Http(name) => format!("{base}/boot/v1/efi/{name}"),
        FirstStage::Script => {
            let mac = request.client.mac;
            let token = match token {
                Some(token) => format!("&token={}", token.expose()),
                None if answer.needs_token() => return Err(EncodeError::NoToken),
                None => String::new(),
            };
            format!("{base}/boot/v1/script?mac={mac}{token}")
        }
    };
    if file.len() > 255 {
        return Err(EncodeError::UrlTooLong(file.len()));
    }
    if file.len() <= MAX_FILE_FIELD_BYTES {
        message.set_fname_str(&file);
    }
    let options = message.opts_mut();
    match stage {
        FirstStage::Http(_) => {
            options.insert(DhcpOption::ClassIdentifier(b"HTTPClient".to_vec()));
            options.insert(DhcpOption::BootfileName(file.into_bytes()));
        }
        FirstStage::Script => {
            options.insert(DhcpOption::BootfileName(file.into_bytes()));
            if !proxy {
                let data = NO_PROXY_WAIT.to_vec();
                options.insert(DhcpOption::Unknown(UnknownOption::new(OptionCode::Unknown(175), data)));
            }
        }
        FirstStage::Tftp(_) | FirstStage::Shim(_) => {
            options.insert(DhcpOption::TFTPServerName(settings.server_ip.to_string().into_bytes()));
        }
    }
    if proxy && !matches!(stage, FirstStage::Http(_)) {
        options.insert(DhcpOption::ClassIdentifier(b"PXEClient".to_vec()));
        options.insert(DhcpOption::VendorExtensions(SKIP_DISCOVERY.to_vec()));
    }
    Ok(())
}

/// RFC 2131, section 4.1. A client without an address is reachable only by broadcast, which needs no ARP entry.
fn destination(request: &Request, answer: &Answer, from: SocketAddrV4, settings: &Settings) -> SocketAddrV4 {
    if request.port == Port::BootServer {
        return from;
    }
    if let Some(relay) = request.client.relay {
        let port = if request.relay_source_port {
            from.port()
        } else {
            settings.dhcp_port
        };
        return SocketAddrV4::new(relay, port);
    }
    let reachable = answer.kind != AnswerKind::Nak && !request.ciaddr.is_unspecified();
    let address = if reachable { request.ciaddr } else { Ipv4Addr::BROADCAST };
    SocketAddrV4::new(address, settings.client_port())
}

fn is_host_name(name: &str) -> bool {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'.';
    (1..=63).contains(&name.len()) && name.bytes().all(allowed)
}
