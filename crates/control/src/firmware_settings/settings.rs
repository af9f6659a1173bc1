//! How often settings of firmware are read again.

use serde::Deserialize;

/// Longest time between readings: 30 days.
const LONGEST_S: u32 = 30 * 86_400;
/// Readings at once that a process has file descriptors for.
const AT_ONCE_MAX: usize = 256;

/// As written in the configuration file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Between readings of a node at rest, in seconds; 0: none are made.
    pub interval_s: u32,
    /// Nodes that are read at once.
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
    /// Says what is wrong, a line each.
    pub(crate) fn check(self, faults: &mut Vec<String>) {
        if self.interval_s > LONGEST_S {
            faults.push(format!("settings_watch.interval_s: at most {LONGEST_S}"));
        }
        if !(1..=AT_ONCE_MAX).contains(&self.at_once) {
            faults.push(format!("settings_watch.at_once: from 1 to {AT_ONCE_MAX}"));
        }
    }
}
