//! A read-only TFTP server (RFC 1350) with block size, size, timeout and window size options (RFC 2347 to 2349, 7440).
//!
//! Serves only named files: the configured first stages, grub's configuration, and the files of a boot session.

mod packet;
mod source;
mod transfer;

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::net::UdpSocket;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::directory::Stage;
use crate::service::Shared;
use crate::socket;

use packet::{ErrorCode, ReadRequest, error_packet};
use source::{Source, SourceError, find};

/// Maximum number of transfers, in total and per client address.
const MAX_TRANSFERS: usize = 1024;
const MAX_CLIENT_TRANSFERS: usize = 8;
/// Time limit of a transfer. Every first stage fits, even at 512 bytes a round trip, and so does a kernel for grub.
const TRANSFER_TIMEOUT: Duration = Duration::from_secs(600);

/// The running transfers by client address and port, so that a repeated request starts no second transfer.
#[derive(Debug, Default)]
struct ActiveTransfers(Mutex<HashMap<SocketAddrV4, ()>>);

impl ActiveTransfers {
    fn admit(&self, client: SocketAddrV4) -> Admission {
        let Ok(mut running) = self.0.lock() else {
            return Admission::Full;
        };
        if running.contains_key(&client) {
            return Admission::Repeated;
        }
        let own = running.keys().filter(|other| other.ip() == client.ip()).count();
        if running.len() >= MAX_TRANSFERS || own >= MAX_CLIENT_TRANSFERS {
            return Admission::Full;
        }
        running.insert(client, ());
        Admission::Granted
    }

    fn end(&self, client: SocketAddrV4) {
        if let Ok(mut running) = self.0.lock() {
            running.remove(&client);
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Admission {
    Granted,
    Repeated,
    Full,
}

/// Serves until cancelled. Cancelling also ends transfers in progress.
pub(crate) async fn serve(shared: Arc<Shared>, socket: UdpSocket, cancel: CancellationToken) {
    let running = Arc::new(ActiveTransfers::default());
    let mut transfers = JoinSet::new();
    let mut packet = vec![0; 2048];
    loop {
        while transfers.try_join_next().is_some() {}
        let received = tokio::select! {
            () = cancel.cancelled() => return,
            received = socket.recv_from(&mut packet) => received,
        };
        let (length, client) = match received {
            Ok((length, SocketAddr::V4(client))) => (length, client),
            Ok(_) => continue,
            Err(error) => {
                tracing::debug!(%error, "receiving TFTP requests failed");
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        let request = match ReadRequest::parse(&packet[..length]) {
            Ok(request) => request,
            Err(fault) => {
                fault.count(&shared.counters);
                if let Some(code) = fault.answer() {
                    let _ = socket.send_to(&error_packet(code, &fault.to_string()), client).await;
                }
                continue;
            }
        };
        shared.counters.tftp_requests_total.increment();
        match running.admit(client) {
            Admission::Repeated => continue,
            Admission::Full => {
                shared.counters.tftp_refused_total.increment();
                let _ = socket
                    .send_to(&error_packet(ErrorCode::Undefined, "too many transfers"), client)
                    .await;
                continue;
            }
            Admission::Granted => {}
        }
        let (shared, running) = (shared.clone(), running.clone());
        transfers.spawn(async move {
            run_one(&shared, &request, client).await;
            running.end(client);
        });
    }
}

async fn run_one(shared: &Shared, request: &ReadRequest, client: SocketAddrV4) {
    let socket = match reply_socket(shared.settings.server_ip, client).await {
        Ok(socket) => socket,
        Err(error) => {
            shared.counters.tftp_failed_total.increment();
            tracing::warn!(%client, %error, "no socket for a TFTP transfer");
            return;
        }
    };
    let remote = IpAddr::V4(*client.ip());
    let source = match find(shared, &request.path, remote).await {
        Ok(source) => source,
        Err(why) => {
            why.count(&shared.counters);
            let _ = socket.send(&error_packet(why.code(), &why.to_string())).await;
            if let SourceError::Refused { mac, .. } = &why {
                let detail = format!("TFTP {}: {why}", shorten(&request.path));
                shared.record(*mac, Stage::Refused, detail, remote);
            }
            return;
        }
    };
    transfer_and_note(shared, &socket, request, source, remote).await;
}

async fn transfer_and_note(shared: &Shared, socket: &UdpSocket, request: &ReadRequest, source: Source, remote: IpAddr) {
    let began = Instant::now();
    let Source {
        content,
        size,
        stage,
        mac,
    } = source;
    let mac = mac.or_else(|| shared.acknowledged.mac_of(remote));
    let mut progress = transfer::Progress::default();
    let running = transfer::send(socket, request, content, size, &mut progress);
    let outcome = tokio::time::timeout(TRANSFER_TIMEOUT, running)
        .await
        .unwrap_or(Err(transfer::Fault::TooSlow));
    shared.counters.tftp_bytes_total.add(progress.acknowledged);
    let seconds = began.elapsed().as_secs_f64();
    let detail = match &outcome {
        Ok(()) => {
            shared.counters.tftp_completed_total.increment();
            format!(
                "{} by TFTP: {} bytes in {seconds:.2} s, blocks of {}, window {}",
                shorten(&request.path),
                progress.acknowledged,
                progress.block_size,
                progress.window
            )
        }
        // PXE firmware requests the size and aborts, then requests the file.
        Err(transfer::Fault::ByClient { .. }) if progress.acknowledged == 0 => return,
        Err(fault) => {
            shared.counters.tftp_failed_total.increment();
            format!(
                "{} by TFTP: {fault} after {} of {size} bytes and {seconds:.2} s",
                shorten(&request.path),
                progress.acknowledged
            )
        }
    };
    shared.record(mac, stage, detail, remote);
}

/// Hides a session's name from the trace: with it and the client's address an attacker could read the files.
fn shorten(path: &str) -> &str {
    match path.strip_prefix("boot/") {
        Some(rest) => rest.rsplit('/').next().unwrap_or(rest),
        None => path,
    }
}

/// Opens a separate socket for each transfer (RFC 1350, section 4), which receives from this client only.
async fn reply_socket(server_ip: Ipv4Addr, client: SocketAddrV4) -> std::io::Result<UdpSocket> {
    let socket = socket::udp(SocketAddrV4::new(server_ip, 0))?;
    socket.connect(client).await?;
    Ok(socket)
}

/// For the fuzzer: path, block size and window of a valid request.
pub(crate) fn requested(packet: &[u8]) -> Option<(String, u16, u16)> {
    let request = packet::ReadRequest::parse(packet).ok()?;
    Some((request.path, request.block_size, request.window))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_client_cannot_take_every_transfer() {
        let running = ActiveTransfers::default();
        let client = |port| SocketAddrV4::new(Ipv4Addr::LOCALHOST, port);
        for port in 1..=8 {
            assert_eq!(running.admit(client(port)), Admission::Granted);
        }
        assert_eq!(running.admit(client(8)), Admission::Repeated);
        assert_eq!(running.admit(client(9)), Admission::Full);
        running.end(client(8));
        assert_eq!(running.admit(client(9)), Admission::Granted);
    }
}
