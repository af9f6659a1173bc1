//! Intervals and limits of the watch over nodes at rest.

use serde::Deserialize;

/// Longest interval of looks: a day.
const LONGEST_S: u32 = 86_400;
/// Most parallel looks that the file descriptors and memory of a process allow.
const AT_ONCE_MAX: usize = 1024;
/// Most streams that the file descriptors and memory of a process allow.
const STREAMS_MAX: usize = 20_000;

/// As written in the configuration file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Interval of looks at a node, in seconds.
    pub interval_s: u32,
    /// First pause after a change or a failure, in seconds. It doubles with each look, up to the interval.
    pub recheck_s: u32,
    /// Interval of looks at a node with a BMC that sends events, in seconds.
    pub streamed_s: u32,
    /// Most open event streams; 0: none.
    pub streams: usize,
    /// Looks in parallel.
    pub at_once: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            interval_s: 300,
            recheck_s: 60,
            streamed_s: 3600,
            streams: 1000,
            at_once: 64,
        }
    }
}

impl Settings {
    /// Adds one line to `faults` for each invalid setting.
    pub fn check(self, faults: &mut Vec<String>) {
        let mut fault = |field: &str, what: String| faults.push(format!("power_watch.{field}: {what}"));
        for (field, value) in [
            ("interval_s", self.interval_s),
            ("recheck_s", self.recheck_s),
            ("streamed_s", self.streamed_s),
        ] {
            if !(1..=LONGEST_S).contains(&value) {
                fault(field, format!("must be from 1 to {LONGEST_S}"));
            }
        }
        if self.recheck_s > self.interval_s {
            fault("recheck_s", "must not be longer than interval_s".into());
        }
        if self.streamed_s < self.interval_s {
            fault("streamed_s", "must not be shorter than interval_s".into());
        }
        if self.streams > STREAMS_MAX {
            fault("streams", format!("must be at most {STREAMS_MAX}"));
        }
        if !(1..=AT_ONCE_MAX).contains(&self.at_once) {
            fault("at_once", format!("must be from 1 to {AT_ONCE_MAX}"));
        }
    }
}
