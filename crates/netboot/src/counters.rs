//! Counters, named as the API shows them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// What network boot has seen since it started. Only ever grows.
        #[derive(Debug, Default)]
        pub struct Counters {
            $($(#[$doc])* pub(crate) $name: Counter,)*
        }

        impl Counters {
            /// Every counter by its name.
            pub fn snapshot(&self) -> BTreeMap<String, u64> {
                BTreeMap::from([$((stringify!($name).to_owned(), self.$name.get()),)*])
            }
        }
    };
}

/// One counter.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    pub(crate) fn one(&self) {
        self.add(1);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

counters! {
    /// DHCP messages by kind, as received.
    dhcp_discover_total,
    dhcp_request_total,
    dhcp_inform_total,
    dhcp_release_total,
    dhcp_decline_total,
    /// DHCP messages by kind, as sent.
    dhcp_offer_total,
    dhcp_ack_total,
    dhcp_nak_total,
    /// Packets that are no well-formed DHCP message; dropped.
    dhcp_malformed_total,
    /// Well-formed messages that are not for us, or that deserve no answer.
    dhcp_ignored_total,
    /// Requests that chose another server's offer.
    dhcp_other_server_total,
    /// Messages of machines that belong to no node.
    dhcp_unknown_machine_total,
    /// Dropped because too many were in work.
    dhcp_overload_total,
    /// The directory failed or took too long.
    dhcp_directory_errors_total,
    dhcp_send_errors_total,
    /// Answers given as proxyDHCP (port 67) or boot server (port 4011).
    proxy_dhcp_total,
    /// Messages of DHCP servers that are not ours.
    rogue_dhcp_total,
    /// Hosts that used this server's address, each once a minute at most.
    address_conflict_total,
    tftp_requests_total,
    tftp_completed_total,
    tftp_failed_total,
    /// Payload bytes that clients acknowledged.
    tftp_bytes_total,
    tftp_malformed_total,
    /// Writes, foreign modes, too many transfers, foreign sessions.
    tftp_refused_total,
    tftp_not_found_total,
    http_requests_total,
    /// Answers 401 to 403: tokens and sessions that do not fit.
    http_refused_total,
    http_scripts_total,
    http_bytes_total,
    /// Connections refused because their address has too many.
    http_overload_total,
    router_solicitations_total,
    router_advertisements_total,
    /// Stages that the directory could not take.
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
