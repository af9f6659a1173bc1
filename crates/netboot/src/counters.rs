//! Counters with their names in the API.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// Events of network boot since its start. Counters only grow.
        #[derive(Debug, Default)]
        pub struct Counters {
            $($(#[$doc])* pub(crate) $name: Counter,)*
        }

        impl Counters {
            /// Returns all counters by name.
            pub fn snapshot(&self) -> BTreeMap<String, u64> {
                BTreeMap::from([$((stringify!($name).to_owned(), self.$name.get()),)*])
            }
        }
    };
}

#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    pub(crate) fn increment(&self) {
        self.add(1);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

counters! {
    /// Received DHCP messages by kind.
    dhcp_discover_total,
    dhcp_request_total,
    dhcp_inform_total,
    dhcp_release_total,
    dhcp_decline_total,
    /// Sent DHCP messages by kind.
    dhcp_offer_total,
    dhcp_ack_total,
    dhcp_nak_total,
    /// Dropped packets that are not well-formed DHCP messages.
    dhcp_malformed_total,
    /// Well-formed messages for other servers, or without a due answer.
    dhcp_ignored_total,
    /// Requests that selected the offer of another server.
    dhcp_other_server_total,
    /// Messages from machines that belong to no node.
    dhcp_unknown_machine_total,
    /// Messages dropped because too many were in progress, in total or of one hardware address.
    dhcp_overload_total,
    /// Messages without an answer because the directory failed or took too long.
    dhcp_directory_errors_total,
    dhcp_send_errors_total,
    /// Answers as proxyDHCP (port 67) or boot server (port 4011).
    proxy_dhcp_total,
    /// Messages from foreign DHCP servers.
    rogue_dhcp_total,
    /// Sightings of hosts that use this server's address, at most one a minute per host.
    address_conflict_total,
    tftp_requests_total,
    tftp_completed_total,
    tftp_failed_total,
    /// Payload bytes that clients acknowledged.
    tftp_bytes_total,
    tftp_malformed_total,
    /// Refused requests: writes, unsupported modes, too many transfers, sessions of other clients.
    tftp_refused_total,
    tftp_not_found_total,
    http_requests_total,
    /// Refused requests for scripts, session files and media: invalid tokens, sessions of other clients, directory
    /// failures.
    http_refused_total,
    http_scripts_total,
    http_bytes_total,
    /// Connections refused because their address has too many.
    http_overload_total,
    router_solicitations_total,
    router_advertisements_total,
    /// Stages that the directory dropped.
    stages_dropped_total,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_snapshot_has_every_counter_by_name() {
        let counters = Counters::default();
        counters.tftp_bytes_total.add(7);
        let snapshot = counters.snapshot();
        assert_eq!(snapshot["tftp_bytes_total"], 7);
        assert_eq!(snapshot["dhcp_malformed_total"], 0);
        assert!(snapshot.keys().all(|name| name.ends_with("_total")));
    }
}
