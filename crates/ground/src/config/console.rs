//! Settings of consoles: recording, and the address for SSH clients.

use std::net::SocketAddr;
use std::time::Duration;

use rackwright_lifecycle::State;
use rackwright_serial::ServerLimits;
use rackwright_serial::record::Bounds;
use serde::Deserialize;

/// Longest time from a connection to the SSH port to its login.
const LOGIN: Duration = Duration::from_secs(30);

/// Tokens that one connection may try, because a token is sometimes pasted wrongly.
const TOKENS: u8 = 3;

/// When consoles are recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Record {
    Never,
    /// While Rackwright boots the node: inspection, imaging, reboot, validation or erasure.
    #[default]
    Booting,
    /// Always, also while a customer holds the node.
    Always,
}

/// The `console` section of the settings.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// When consoles are recorded.
    pub record: Record,
    /// Most consoles that this process records in parallel. Further consoles are not recorded.
    pub at_once: usize,
    /// Most space for one node's recordings, in MiB.
    pub node_mib: u32,
    /// Age in days after which recordings are removed.
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
    /// Adds one line to `faults` for each invalid setting.
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

    /// Limits of one node's recordings.
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

/// The `console_ssh` section of the settings.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SshSettings {
    /// Address on which SSH clients connect.
    pub listen: SocketAddr,
    /// Most parallel connections.
    #[serde(default = "connections")]
    pub connections: usize,
    /// Seconds without a byte in either direction after which a connection ends.
    #[serde(default = "idle_s")]
    pub idle_s: u32,
    /// Whether one-time tokens are accepted as passwords; otherwise only keys are.
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
    /// Adds one line to `faults` for each invalid setting.
    pub fn check(&self, faults: &mut Vec<String>) {
        if !(1..=4096).contains(&self.connections) {
            faults.push("console_ssh.connections: 1 to 4096".into());
        }
        if !(10..=86_400).contains(&self.idle_s) {
            faults.push("console_ssh.idle_s: 10 to 86400".into());
        }
    }

    /// Limits of the SSH server.
    #[must_use]
    pub fn limits(&self) -> ServerLimits {
        ServerLimits {
            connections: self.connections,
            login: LOGIN,
            idle: Duration::from_secs(self.idle_s.into()),
            tokens: if self.tokens { TOKENS } else { 0 },
        }
    }
}

/// Adds one line to `faults` for each invalid setting.
pub fn check(console: Option<&Settings>, ssh: Option<&SshSettings>, faults: &mut Vec<String>) {
    console.inspect(|console| console.check(faults));
    ssh.inspect(|ssh| ssh.check(faults));
}
