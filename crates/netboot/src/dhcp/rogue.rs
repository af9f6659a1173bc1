//! Other DHCP servers on the boot network: detected and reported, but never disturbed.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::net::UdpSocket;
use tokio_util::sync::CancellationToken;

use super::request::sender;
use crate::config::{DhcpMode, Settings};
use crate::directory::Stage;
use crate::mac::Mac;
use crate::service::Shared;

/// Counts and reports a foreign DHCP server that sent a message or that a message names.
pub(crate) fn report_server(shared: &Shared, server: Ipv4Addr, mac: Option<Mac>, how: &str, now: Instant) {
    if !is_rogue(server, &shared.settings) {
        return;
    }
    shared.counters.rogue_dhcp_total.increment();
    if shared.rogue_reports.is_due(server, now) {
        tracing::warn!(%server, how, "another DHCP server answers on the boot network");
        let detail = format!(
            "another DHCP server, {server}, {how}: switch that server off on this network, or list it in other_servers"
        );
        shared.record(mac, Stage::RogueDhcp, detail, IpAddr::V4(server));
    }
}

fn is_rogue(server: Ipv4Addr, settings: &Settings) -> bool {
    // In proxy mode another server is expected.
    matches!(settings.dhcp, DhcpMode::Server { .. })
        && server != settings.server_ip
        && !server.is_unspecified()
        && !settings.other_servers.contains(&server)
}

/// Listens on the clients' port for the answers of other servers. Runs until cancelled.
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
                    report_server(&shared, server, mac, "answered a machine", Instant::now());
                }
            }
            Err(error) => {
                tracing::debug!(%error, "receiving DHCP answers failed");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}
