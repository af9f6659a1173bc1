//! The loop that receives messages, queries the directory, and sends answers.

use std::net::{IpAddr, SocketAddr, SocketAddrV4};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::net::UdpSocket;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::answer::{Answer, AnswerKind, Decision, Ignored, decide};
use super::boot::NoBoot;
use super::pending::Pending;
use super::reply::reply;
use super::request::{Malformed, MessageKind, Port, Request};
use super::rogue::report_server;
use crate::directory::{Binding, DirectoryError, Lookup, OneTimeToken, Stage};
use crate::service::Shared;

/// Time limit for each directory call.
const DIRECTORY_TIMEOUT: Duration = Duration::from_secs(2);

/// Serves one port. Runs until cancelled.
pub(crate) async fn serve(shared: Arc<Shared>, socket: UdpSocket, port: Port, cancel: CancellationToken) {
    let socket = Arc::new(socket);
    let pending = Arc::new(Pending::default());
    let mut work = JoinSet::new();
    let mut packet = vec![0; 4097];
    loop {
        while work.try_join_next().is_some() {}
        let received = tokio::select! {
            () = cancel.cancelled() => return,
            received = socket.recv_from(&mut packet) => received,
        };
        let (length, from) = match received {
            Ok((length, SocketAddr::V4(from))) => (length, from),
            Ok(_) => continue,
            Err(error) => {
                tracing::warn!(%error, "receiving DHCP messages failed");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let Some(request) = parse_request(&shared, &packet[..length], port) else {
            continue;
        };
        let Some(permit) = pending.admit(request.client.mac) else {
            shared.counters.dhcp_overload_total.increment();
            continue;
        };
        let (shared, socket) = (shared.clone(), socket.clone());
        work.spawn(async move {
            handle(&shared, &socket, &request, from).await;
            drop(permit);
        });
    }
}

/// Parses and counts a packet.
fn parse_request(shared: &Shared, packet: &[u8], port: Port) -> Option<Request> {
    let counters = &shared.counters;
    match Request::parse(packet, port, &shared.settings) {
        Ok(request) => {
            match request.kind {
                MessageKind::Discover => counters.dhcp_discover_total.increment(),
                MessageKind::Request => counters.dhcp_request_total.increment(),
                MessageKind::Inform => counters.dhcp_inform_total.increment(),
                MessageKind::Release => counters.dhcp_release_total.increment(),
                MessageKind::Decline => counters.dhcp_decline_total.increment(),
            }
            Some(request)
        }
        Err(Malformed::FromServer(server)) => {
            report_server(shared, server, None, "sent an answer to this server", Instant::now());
            None
        }
        Err(fault) => {
            counters.dhcp_malformed_total.increment();
            tracing::debug!(%fault, "dropped a malformed DHCP packet");
            None
        }
    }
}

async fn handle(shared: &Shared, socket: &UdpSocket, request: &Request, from: SocketAddrV4) {
    let mac = request.client.mac;
    let remote = IpAddr::V4(*from.ip());
    if request.kind == MessageKind::Decline {
        let address = request
            .requested
            .map_or_else(|| "its address".to_owned(), |address| address.to_string());
        let detail = format!("{mac} reports that another machine on the link uses {address}");
        shared.record(Some(mac), Stage::DhcpDecline, detail, remote);
    }
    let lookup = match with_timeout(shared.directory.lookup(&request.client)).await {
        Ok(lookup) => lookup,
        Err(error) => return report_directory_error(shared, request, &error),
    };
    if matches!(lookup, Lookup::Unknown { .. }) {
        shared.counters.dhcp_unknown_machine_total.increment();
    }
    let answer = match decide(request, &lookup, &shared.settings) {
        Decision::Answer(answer) => answer,
        Decision::Ignore(why) => return report_ignored(shared, request, &lookup, &why, remote),
    };
    let token = match mint(shared, request, &answer).await {
        Ok(token) => token,
        Err(error) => return report_directory_error(shared, request, &error),
    };
    let reply = match reply(request, &answer, token.as_ref(), from, &shared.settings) {
        Ok(reply) => reply,
        Err(error) => {
            tracing::error!(%mac, %error, "the DHCP reply could not be encoded");
            return shared.record(Some(mac), Stage::Refused, error.to_string(), remote);
        }
    };
    // Recorded first: the client may continue over TFTP before `send_to` returns.
    if answer.kind == AnswerKind::Ack
        && let Some(address) = answer.address
    {
        shared.acknowledged.note(address, mac);
    }
    if answer.starts_grub() {
        let address = answer.address.or(request.client.requested);
        shared.grub.expect(Binding { mac, address }, Instant::now());
    }
    match socket.send_to(&reply.bytes, reply.destination).await {
        Ok(_) => report_answer(shared, request, &lookup, &answer, remote),
        Err(error) => {
            shared.counters.dhcp_send_errors_total.increment();
            tracing::warn!(%mac, destination = %reply.destination, %error, "a DHCP reply could not be sent");
        }
    }
}

async fn mint(shared: &Shared, request: &Request, answer: &Answer) -> Result<Option<OneTimeToken>, DirectoryError> {
    if !answer.needs_token() {
        return Ok(None);
    }
    // As proxy, only a message on the boot server's port contains the client's address.
    let client_address = (!request.ciaddr.is_unspecified()).then_some(request.ciaddr);
    let binding = Binding {
        mac: request.client.mac,
        address: answer.address.or(client_address),
    };
    with_timeout(shared.directory.mint(&binding)).await.map(Some)
}

async fn with_timeout<T>(answer: impl Future<Output = Result<T, DirectoryError>>) -> Result<T, DirectoryError> {
    tokio::time::timeout(DIRECTORY_TIMEOUT, answer)
        .await
        .unwrap_or_else(|_| {
            Err(DirectoryError(format!(
                "no answer within {} s",
                DIRECTORY_TIMEOUT.as_secs()
            )))
        })
}

fn report_directory_error(shared: &Shared, request: &Request, error: &DirectoryError) {
    shared.counters.dhcp_directory_errors_total.increment();
    tracing::warn!(mac = %request.client.mac, %error, "a DHCP message was not answered");
}

fn report_answer(shared: &Shared, request: &Request, lookup: &Lookup, answer: &Answer, remote: IpAddr) {
    let counters = &shared.counters;
    let stage = match answer.kind {
        AnswerKind::Offer => Stage::DhcpDiscover,
        AnswerKind::Ack | AnswerKind::Nak => Stage::DhcpRequest,
        AnswerKind::ProxyOffer | AnswerKind::ProxyAck => Stage::ProxyDhcp,
    };
    match answer.kind {
        AnswerKind::Offer => counters.dhcp_offer_total.increment(),
        AnswerKind::Ack => counters.dhcp_ack_total.increment(),
        AnswerKind::Nak => counters.dhcp_nak_total.increment(),
        AnswerKind::ProxyOffer | AnswerKind::ProxyAck => counters.proxy_dhcp_total.increment(),
    }
    let detail = answer_text(request, lookup, answer);
    shared.record(Some(request.client.mac), stage, detail, remote);
}

/// The answer in words: "PXE firmware UEFI x86-64: given 10.77.0.10 and snponly.efi by TFTP".
pub(super) fn answer_text(request: &Request, lookup: &Lookup, answer: &Answer) -> String {
    let mut parts: Vec<String> = answer.address.iter().map(ToString::to_string).collect();
    parts.extend(answer.boot.as_ref().ok().map(ToString::to_string));
    if parts.is_empty() {
        parts.push("settings without an address".to_owned());
    }
    let given = parts.join(" and ");
    let done = match (answer.kind, request.client.requested) {
        (AnswerKind::Offer, _) => format!("offered {given}"),
        (AnswerKind::Ack, _) => format!("given {given}"),
        (AnswerKind::Nak, Some(address)) => format!("refused the requested address {address}"),
        (AnswerKind::Nak, None) => "refused the requested address".to_owned(),
        (AnswerKind::ProxyOffer | AnswerKind::ProxyAck, _) => format!("pointed to {given}"),
    };
    let mut text = format!("{}: {done}", describe(request, lookup));
    if let Err(why) = &answer.boot
        && *why != NoBoot::NotRequested
    {
        text.push_str(&format!(", no boot file: {why}"));
    }
    text
}

fn report_ignored(shared: &Shared, request: &Request, lookup: &Lookup, why: &Ignored, remote: IpAddr) {
    shared.counters.dhcp_ignored_total.increment();
    let mac = Some(request.client.mac);
    match why {
        Ignored::OtherServer(server) => {
            shared.counters.dhcp_other_server_total.increment();
            report_server(shared, *server, mac, "was chosen by a machine", Instant::now());
        }
        Ignored::NotDue | Ignored::Off | Ignored::NothingToAdd(NoBoot::NotRequested) => {}
        Ignored::NoAddress | Ignored::NoSubnet | Ignored::OtherSubnet { .. } | Ignored::NothingToAdd(_) => {
            let stage = if request.kind == MessageKind::Discover {
                Stage::DhcpDiscover
            } else {
                Stage::DhcpRequest
            };
            let detail = format!("{}: not answered: {why}", describe(request, lookup));
            shared.record(mac, stage, detail, remote);
        }
    }
}

/// A short description of the client: "UEFI x86-64 firmware, through relay 10.1.0.1, unknown machine".
fn describe(request: &Request, lookup: &Lookup) -> String {
    use super::request::Kind;
    let client = &request.client;
    let architecture = client
        .architecture
        .map(|architecture| format!(" {architecture}"))
        .unwrap_or_default();
    let mut text = match client.kind {
        Kind::Plain => "DHCP client".to_owned(),
        Kind::Pxe => format!("PXE firmware{architecture}"),
        Kind::HttpBoot => format!("HTTP firmware{architecture}"),
        Kind::Ipxe => format!("iPXE{architecture}"),
    };
    if let Some(relay) = client.relay {
        text.push_str(&format!(", through relay {relay}"));
    }
    if matches!(lookup, Lookup::Unknown { .. }) {
        text.push_str(", unknown machine");
    }
    text
}
