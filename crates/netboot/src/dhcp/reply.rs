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
/// Most bytes of an option: its length field is one byte.
const MAX_OPTION_BYTES: usize = 255;
/// The option of a relay agent (RFC 3046).
const RELAY_INFO: u8 = 82;
/// iPXE's encapsulated options.
const IPXE_OPTIONS: u8 = 175;
/// The end mark of a list of options.
const END: u8 = 255;
/// PXE options with one entry, PXE_DISCOVERY_CONTROL (6), and in it bit 3: the client downloads the boot file of this
/// answer, without a discovery of boot servers (PXE 2.1, table 2-1).
const SKIP_DISCOVERY: [u8; 4] = [6, 1, 0x08, END];
/// Sub-option 176 of iPXE's options, "no-pxedhcp": the client does not wait for a proxyDHCP server.
const NO_PROXY_WAIT: [u8; 3] = [176, 1, 1];

/// A message, ready to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    pub bytes: Vec<u8>,
    /// Address and port of a relay agent, of the client, or of all hosts on the link.
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

/// Encodes `answer`, the answer to `request`. `from` is the source of the request: a request on the boot server's port is
/// answered there, and a relay may request an answer to its source port.
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
        bytes.extend([RELAY_INFO, u8::try_from(info.len()).unwrap_or(0)]);
        bytes.extend_from_slice(info);
        bytes.push(END);
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
    let is_nak = answer.kind == AnswerKind::Nak;
    let client_address = if is_nak { Ipv4Addr::UNSPECIFIED } else { request.ciaddr };
    // The server of the boot file.
    let next_server = if answer.boot.is_ok() {
        settings.server_ip
    } else {
        Ipv4Addr::UNSPECIFIED
    };
    let mut message = Message::new_with_id(
        request.xid,
        client_address,
        answer.address.unwrap_or(Ipv4Addr::UNSPECIFIED),
        next_server,
        request.giaddr,
        &request.client.mac.0,
    );
    message.set_opcode(Opcode::BootReply).set_htype(HType::Eth);
    let is_relayed_nak = is_nak && request.client.relay.is_some();
    if request.broadcast || is_relayed_nak {
        message.set_flags(Flags::default().set_broadcast());
    }
    message
}

/// Adds the message type, and the ids of server and client.
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

/// Adds the settings of the client's network, and the times of its lease if it gets an address.
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

/// Adds the boot file, and the options that its firmware or iPXE needs beside it.
fn add_boot(
    message: &mut Message,
    request: &Request,
    answer: &Answer,
    stage: &FirstStage,
    token: Option<&OneTimeToken>,
    settings: &Settings,
) -> Result<(), EncodeError> {
    let is_proxy = matches!(answer.kind, AnswerKind::ProxyOffer | AnswerKind::ProxyAck);
    let file = boot_file(request, answer, stage, token, settings)?;
    if file.len() > MAX_OPTION_BYTES {
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
            if !is_proxy {
                let code = OptionCode::Unknown(IPXE_OPTIONS);
                options.insert(DhcpOption::Unknown(UnknownOption::new(code, NO_PROXY_WAIT.to_vec())));
            }
        }
        FirstStage::Tftp(_) | FirstStage::Shim(_) => {
            options.insert(DhcpOption::TFTPServerName(settings.server_ip.to_string().into_bytes()));
        }
    }
    if is_proxy && !matches!(stage, FirstStage::Http(_)) {
        options.insert(DhcpOption::ClassIdentifier(b"PXEClient".to_vec()));
        options.insert(DhcpOption::VendorExtensions(SKIP_DISCOVERY.to_vec()));
    }
    Ok(())
}

/// The name of the boot file over TFTP, or its URL.
fn boot_file(
    request: &Request,
    answer: &Answer,
    stage: &FirstStage,
    token: Option<&OneTimeToken>,
    settings: &Settings,
) -> Result<String, EncodeError> {
    let base = settings.http_base();
    Ok(match stage {
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
    })
}

/// The address and port for the reply (RFC 2131, section 4.1). A client without an address is reachable only by broadcast,
/// which needs no ARP entry.
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
    let has_address = answer.kind != AnswerKind::Nak && !request.ciaddr.is_unspecified();
    let address = if has_address {
        request.ciaddr
    } else {
        Ipv4Addr::BROADCAST
    };
    SocketAddrV4::new(address, settings.client_port())
}

/// Whether a name is safe in the host name option: 1 to 63 letters, digits, hyphens and dots.
fn is_host_name(name: &str) -> bool {
    let is_allowed = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'.';
    (1..=63).contains(&name.len()) && name.bytes().all(is_allowed)
}
