//! Settings of consoles: what is recorded, and where SSH clients come in.

use std::net::SocketAddr;
use std::time::Duration;

use rackwright_lifecycle::State;
use rackwright_serial::DoorLimits;
use rackwright_serial::record::Bounds;
use serde::Deserialize;

/// From a connection to the SSH port to its login.
const LOGIN: Duration = Duration::from_secs(30);

/// Tokens that a connection may try: one is pasted wrongly now and then.
const TOKENS: u8 = 3;

/// When a console is recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Record {
    /// Never.
    Never,
    /// While the node is booted by us: inspected, imaged, rebooted, validated or erased.
    #[default]
    Booting,
    /// Always, also while a customer has the node.
    Always,
}

/// `console` in the settings.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// When it is recorded.
    pub record: Record,
    /// Consoles that this process records at once; further ones are not.
    pub at_once: usize,
    /// Of one node's recordings, in MiB.
    pub node_mib: u32,
    /// Older recordings are removed when the node is recorded again.
    pub keep_days: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            record: Record::default(),
            at_once: 256,
            node_mib: 16,
            keep_days: 14,
        }
    }
}

impl Settings {
    /// Adds what is wrong.
    pub fn check(&self, faults: &mut Vec<String>) {
        if !(1..=10_000).contains(&self.at_once) {
            faults.push("console.at_once: 1 to 10000".into());
        }
        if !(1..=4096).contains(&self.node_mib) {
            faults.push("console.node_mib: 1 to 4096".into());
        }
        if !(1..=3650).contains(&self.keep_days) {
            faults.push("console.keep_days: 1 to 3650".into());
        }
    }

    /// Whether a node in this state is recorded.
    #[must_use]
    pub fn records(&self, state: State) -> bool {
        match self.record {
            Record::Never => false,
            Record::Always => true,
            Record::Booting => state.starts_machine(),
        }
    }

    /// Bounds of one node's recordings.
    #[must_use]
    pub fn bounds(&self) -> Bounds {
        let bytes = u64::from(self.node_mib) << 20;
        Bounds {
            bytes,
            segment_bytes: bytes / 8,
            age_us: i64::from(self.keep_days) * 86_400 * 1_000_000,
        }
    }
}

/// `console_ssh` in the settings.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SshSettings {
    /// Where SSH clients come in.
    pub listen: SocketAddr,
    /// Connections at once.
    #[serde(default = "connections")]
    pub connections: usize,
    /// A connection ends after so many seconds without a byte in either direction.
    #[serde(default = "idle_s")]
    pub idle_s: u32,
    /// One-time tokens are taken for passwords; else keys alone open.
    #[serde(default)]
    pub tokens: bool,
}

fn connections() -> usize {
    64
}

fn idle_s() -> u32 {
    3600
}

impl SshSettings {
    /// Adds what is wrong.
    pub fn check(&self, faults: &mut Vec<String>) {
        if !(1..=4096).contains(&self.connections) {
            faults.push("console_ssh.connections: 1 to 4096".into());
        }
        if !(10..=86_400).contains(&self.idle_s) {
            faults.push("console_ssh.idle_s: 10 to 86400".into());
        }
    }

    /// Bounds of the SSH server.
    #[must_use]
    pub fn limits(&self) -> DoorLimits {
        DoorLimits {
            connections: self.connections,
            login: LOGIN,
            idle: Duration::from_secs(self.idle_s.into()),
            tokens: if self.tokens { TOKENS } else { 0 },
        }
    }
}
