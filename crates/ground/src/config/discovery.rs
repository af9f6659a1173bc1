//! Rate and limits of discoveries, and the daemon's sources of addresses in the management network.

use std::net::Ipv4Addr;
use std::path::PathBuf;

use serde::Deserialize;

/// Most parallel connections: more would use up the usual 1024 file descriptors of a process.
const AT_ONCE_MAX: usize = 768;
/// Most addresses of one discovery: a /12. All its findings are in memory when they are judged.
const ADDRESSES_MAX: u64 = 1 << 20;

/// As written in the configuration file.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// New connections per second.
    pub connections_per_s: u32,
    /// Addresses that are tried in parallel.
    pub at_once: usize,
    /// BMCs that are contacted in parallel.
    pub bmcs_at_once: usize,
    /// Longest time for an address to accept a connection, in milliseconds.
    pub connect_timeout_ms: u64,
    /// Longest time for a BMC to answer, in seconds.
    pub answer_timeout_s: u64,
    /// Most addresses of one discovery.
    pub max_addresses: u64,
    /// Paths of lease files of DHCP servers on this machine.
    pub leases: Vec<PathBuf>,
    /// Sources of SSDP searches: IPv4 addresses of this machine, or names of its interfaces for IPv6. Empty: the
    /// interface that the kernel chooses for multicast.
    pub ssdp_from: Vec<String>,
    /// Time for services to answer SSDP, in seconds.
    pub ssdp_wait_s: u8,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            connections_per_s: 500,
            at_once: 256,
            bmcs_at_once: 32,
            connect_timeout_ms: 2000,
            answer_timeout_s: 10,
            max_addresses: 1 << 16,
            leases: Vec::new(),
            ssdp_from: Vec::new(),
            ssdp_wait_s: 3,
        }
    }
}

impl Settings {
    /// Adds one line to `faults` for each invalid setting.
    pub fn check(&self, faults: &mut Vec<String>) {
        let mut fault = |field: &str, what: String| faults.push(format!("discovery.{field}: {what}"));
        let bounds = [
            ("connections_per_s", u64::from(self.connections_per_s), 100_000),
            ("at_once", self.at_once as u64, AT_ONCE_MAX as u64),
            ("bmcs_at_once", self.bmcs_at_once as u64, 256),
            ("connect_timeout_ms", self.connect_timeout_ms, 30_000),
            ("answer_timeout_s", self.answer_timeout_s, 120),
            ("max_addresses", self.max_addresses, ADDRESSES_MAX),
            // The lease of 60 s is not renewed meanwhile.
            ("ssdp_wait_s", u64::from(self.ssdp_wait_s), 30),
        ];
        for (field, value, most) in bounds {
            if !(1..=most).contains(&value) {
                fault(field, format!("must be from 1 to {most}"));
            }
        }
        for path in self.leases.iter().filter(|path| !path.is_absolute()) {
            fault("leases", format!("{}: must be an absolute path", path.display()));
        }
        for from in &self.ssdp_from {
            let is_name = |b: u8| b.is_ascii_alphanumeric() || b"-_.@".contains(&b);
            let is_interface = (1..=15).contains(&from.len()) && from.bytes().all(is_name);
            if from.parse::<Ipv4Addr>().is_err() && !is_interface {
                fault(
                    "ssdp_from",
                    format!("{from:?} is neither an IPv4 address nor an interface"),
                );
            }
        }
    }
}
