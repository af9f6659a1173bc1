//! Other DHCP servers on the boot network: noticed and reported, never fought.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::net::UdpSocket;
use tokio_util::sync::CancellationToken;

use super::request::sender;
use crate::config::{DhcpMode, Settings};
use crate::directory::Stage;
use crate::mac::Mac;
use crate::service::Shared;

/// A server is reported again after this long.
const AGAIN: Duration = Duration::from_secs(60);
/// More servers than this at once are counted but not told apart.
const MOST: usize = 64;

/// Which servers were reported, and when.
#[derive(Debug, Default)]
pub(crate) struct RogueWatch(Mutex<HashMap<Ipv4Addr, Instant>>);

impl RogueWatch {
    /// Whether `server` is due for a report.
    fn is_due(&self, server: Ipv4Addr, now: Instant) -> bool {
        let Ok(mut reported) = self.0.lock() else { return false };
        reported.retain(|_, at| now.duration_since(*at) < AGAIN);
        if reported.contains_key(&server) || reported.len() >= MOST {
            return false;
        }
        reported.insert(server, now);
        true
    }
}

/// Counts and reports a message of, or a reference to, another DHCP server.
pub(crate) fn note_server(shared: &Shared, server: Ipv4Addr, mac: Option<Mac>, how: &str, now: Instant) {
    if !is_rogue(server, &shared.settings) {
        return;
    }
    shared.counters.rogue_dhcp_total.one();
    if shared.rogues.is_due(server, now) {
        tracing::warn!(%server, how, "another DHCP server answers on the boot network");
        let detail = format!("another DHCP server, {server}, {how}: switch it off here, or list it in other_servers");
        shared.record(mac, Stage::RogueDhcp, detail, IpAddr::V4(server));
    }
}

fn is_rogue(server: Ipv4Addr, settings: &Settings) -> bool {
    // In proxy mode another server is what we expect.
    matches!(settings.dhcp, DhcpMode::Server { .. })
        && server != settings.server_ip
        && !server.is_unspecified()
        && !settings.other_servers.contains(&server)
}

/// Listens where clients do, for the answers of other servers. Runs until cancelled.
pub(crate) async fn listen_for_offers(shared: Arc<Shared>, socket: UdpSocket, cancel: CancellationToken) {
    let mut packet = vec![0; 4096];
    loop {
        let received = tokio::select! {
            () = cancel.cancelled() => return,
            received = socket.recv(&mut packet) => received,
        };
        match received {
            Ok(length) => {
                if let Some((server, mac)) = sender(&packet[..length]) {
                    note_server(&shared, server, mac, "answered a machine", Instant::now());
                }
            }
            Err(error) => {
                tracing::debug!(%error, "receiving DHCP answers failed");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_reported_once_a_minute() {
        let watch = RogueWatch::default();
        let now = Instant::now();
        let server = Ipv4Addr::new(10, 0, 0, 9);
        assert!(watch.is_due(server, now));
        assert!(!watch.is_due(server, now + Duration::from_secs(59)));
        assert!(watch.is_due(server, now + Duration::from_secs(60)));
    }
}
