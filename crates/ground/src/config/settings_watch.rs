//! The settings block `settings_watch`.

use serde::Deserialize;

/// Upper limit of the interval: 30 days.
const LONGEST_S: u32 = 30 * 86_400;
/// Upper limit of `at_once`: file descriptors of a process.
const AT_ONCE_MAX: usize = 256;

/// How often firmware settings are read again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Time between readings of a node at rest, in seconds; 0: no readings.
    pub interval_s: u32,
    /// Nodes read at once.
    pub at_once: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            interval_s: 6 * 3600,
            at_once: 8,
        }
    }
}

impl Settings {
    /// Adds each fault of the settings to `faults`.
    pub fn check(self, faults: &mut Vec<String>) {
        if self.interval_s > LONGEST_S {
            faults.push(format!("settings_watch.interval_s: at most {LONGEST_S}"));
        }
        if !(1..=AT_ONCE_MAX).contains(&self.at_once) {
            faults.push(format!("settings_watch.at_once: from 1 to {AT_ONCE_MAX}"));
        }
    }
}
