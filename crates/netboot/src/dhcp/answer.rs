//! Decides on the answer to a client's message: a pure function of the message, the lookup, and the settings.

use std::net::Ipv4Addr;

use super::boot::{FirstStage, NoBoot, first_stage};
use super::request::{Kind, MessageKind, Port, Request};
use crate::config::{DhcpMode, Settings, Subnet};
use crate::directory::Lookup;

/// An answer, or the reason for none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    Answer(Answer),
    Ignore(Ignored),
}

/// Why a message gets no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Ignored {
    #[error("the machine chose the DHCP server {0}")]
    OtherServer(Ipv4Addr),
    #[error("no address is configured for this machine")]
    NoAddress,
    #[error("no subnet is configured for the machine's network")]
    NoSubnet,
    #[error("the machine's address {address} is not in its network {network}: the cabling or the address is wrong")]
    OtherSubnet { address: Ipv4Addr, network: ipnet::Ipv4Net },
    /// Releases and declines get no answer.
    #[error("no answer is due")]
    NotDue,
    #[error("DHCP is switched off")]
    Off,
    #[error("another server assigns the addresses here, and {0}")]
    NothingToAdd(NoBoot),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnswerKind {
    Offer,
    Ack,
    Nak,
    /// Offer without an address, in addition to another server's offer.
    ProxyOffer,
    /// Acknowledgement of the boot server on port 4011.
    ProxyAck,
}

/// An answer before encoding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    pub kind: AnswerKind,
    /// The assigned address; `None` in a NAK, for DHCPINFORM and as proxy.
    pub address: Option<Ipv4Addr>,
    pub hostname: Option<String>,
    pub(crate) subnet: Option<Subnet>,
    pub boot: Result<FirstStage, NoBoot>,
}

impl PartialEq for Subnet {
    fn eq(&self, other: &Self) -> bool {
        self.network == other.network
    }
}

impl Eq for Subnet {}

impl Answer {
    /// Whether this answer contains the URL of the machine's script, so that a token is needed. A plain offer contains no
    /// token.
    pub fn needs_token(&self) -> bool {
        self.is_final() && self.boot == Ok(FirstStage::Script)
    }

    /// Whether this answer sends the machine to shim and grub, which then request the node's configuration.
    pub(crate) fn starts_grub(&self) -> bool {
        self.is_final() && matches!(self.boot, Ok(FirstStage::Shim(_)))
    }

    fn is_final(&self) -> bool {
        matches!(
            self.kind,
            AnswerKind::Ack | AnswerKind::ProxyOffer | AnswerKind::ProxyAck
        )
    }
}

/// Decides on the answer. A pure and total function.
pub fn decide(request: &Request, lookup: &Lookup, settings: &Settings) -> Decision {
    let decided = match &settings.dhcp {
        DhcpMode::Server { .. } => as_server(request, lookup, settings),
        DhcpMode::Proxy => as_proxy(request, lookup, settings),
        DhcpMode::Off => Err(Ignored::Off),
    };
    decided.map_or_else(Decision::Ignore, Decision::Answer)
}

fn as_server(request: &Request, lookup: &Lookup, settings: &Settings) -> Result<Answer, Ignored> {
    if request.port == Port::BootServer || matches!(request.kind, MessageKind::Decline | MessageKind::Release) {
        return Err(Ignored::NotDue);
    }
    if let Some(server) = request.server_id
        && server != settings.server_ip
    {
        return Err(Ignored::OtherServer(server));
    }
    let place = request
        .link_selection
        .or(request.client.relay)
        .unwrap_or(settings.server_ip);
    let subnet = settings.subnet_of(place).ok_or(Ignored::NoSubnet)?;
    let (address, hostname) = match lookup {
        Lookup::Known { address, hostname, .. } => (*address, hostname.clone()),
        Lookup::Unknown { address, .. } => (*address, None),
    };
    let address = address.ok_or(Ignored::NoAddress)?;
    if !subnet.is_host(address) {
        return Err(Ignored::OtherSubnet {
            address,
            network: subnet.network,
        });
    }
    let boot = first_stage(request, lookup, settings);
    let given = |kind, address| Answer {
        kind,
        address,
        hostname,
        subnet: Some(subnet.clone()),
        boot,
    };
    match request.kind {
        MessageKind::Discover => Ok(given(AnswerKind::Offer, Some(address))),
        // The client already has an address and requests the other settings (RFC 2131, section 3.4).
        MessageKind::Inform => Ok(given(AnswerKind::Ack, None)),
        MessageKind::Request if request.client.requested.is_none_or(|requested| requested == address) => {
            Ok(given(AnswerKind::Ack, Some(address)))
        }
        MessageKind::Request => Ok(Answer {
            kind: AnswerKind::Nak,
            address: None,
            hostname: None,
            subnet: None,
            boot: Err(NoBoot::NotRequested),
        }),
        MessageKind::Decline | MessageKind::Release => Err(Ignored::NotDue),
    }
}

fn as_proxy(request: &Request, lookup: &Lookup, settings: &Settings) -> Result<Answer, Ignored> {
    let kind = match (request.port, request.kind) {
        (Port::Server, MessageKind::Discover) => AnswerKind::ProxyOffer,
        (Port::BootServer, MessageKind::Request | MessageKind::Inform) => AnswerKind::ProxyAck,
        _ => return Err(Ignored::NotDue),
    };
    if request.client.kind == Kind::Plain {
        return Err(Ignored::NothingToAdd(NoBoot::NotRequested));
    }
    // An offer without a boot file would only make firmware wait for this server.
    let boot = first_stage(request, lookup, settings).map_err(Ignored::NothingToAdd)?;
    Ok(Answer {
        kind,
        address: None,
        hostname: None,
        subnet: None,
        boot: Ok(boot),
    })
}
