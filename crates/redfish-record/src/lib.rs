//! Records a BMC as a tree of JSON for sharing: walked within limits, and scrubbed of everything that identifies the
//! machine or its site or is secret.

mod accounts;
mod scrub;
mod shapes;
mod walk;

use std::collections::BTreeMap;
use std::time::Duration;

use rackwright_redfish::InventoryGap;
use serde_json::Value;

pub use scrub::Scrubber;

/// Limits of a recording.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordLimits {
    /// Most resources; a DGX H100 has about 10,000.
    pub resources: usize,
    /// Most links from the root to a resource.
    pub depth: usize,
    /// Most bytes of JSON together.
    pub bytes: usize,
    /// Most members of a log that are fetched.
    pub log_entries: usize,
    /// Longest time; resources read until then are kept.
    pub time: Duration,
}

impl Default for RecordLimits {
    fn default() -> Self {
        Self {
            resources: 20_000,
            depth: 24,
            bytes: 256 << 20,
            log_entries: 16,
            time: Duration::from_secs(3600),
        }
    }
}

/// A recorded BMC.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Recording {
    /// Resources by path, without a slash at the end.
    pub resources: BTreeMap<String, Value>,
    /// Resources that could not be read.
    pub gaps: Vec<InventoryGap>,
    /// Why the walk ended early; none if it is complete.
    pub cut: Option<String>,
}

impl Recording {
    /// The recording with all private values replaced; see [`Scrubber`].
    ///
    /// `known` are values to replace everywhere: the password, the BMC's host name. `user` is the login name: it is replaced
    /// where it is a segment of a path, and in properties that name users.
    pub fn scrubbed(self, known: &[String], user: &str) -> Self {
        let mut scrubber = Scrubber::new(known, user);
        for body in self.resources.values() {
            scrubber.learn(body);
        }
        // Also in collections that are recognised as collections of accounts only now.
        self.resources.keys().for_each(|path| scrubber.learn_path(path));
        self.gaps.iter().for_each(|gap| scrubber.learn_path(&gap.path));
        let mut resources = BTreeMap::new();
        for (path, body) in self.resources {
            let body = scrubber.scrub(body);
            resources.insert(scrubber.text(&path), body);
        }
        let gaps = self.gaps.into_iter().map(|gap| InventoryGap {
            path: scrubber.text(&gap.path),
            why: scrubber.text(&gap.why),
        });
        Self {
            gaps: gaps.collect(),
            resources,
            cut: self.cut.map(|why| scrubber.text(&why)),
        }
    }

    /// Each resource with the folder in which it is stored as `index.json`, as in DMTF's mockups. Paths that could
    /// lead out of the folder are left out.
    pub fn folders(&self) -> impl Iterator<Item = (&str, &Value)> {
        let safe = |path: &str| {
            let segments = || path.trim_start_matches('/').split('/');
            path.len() <= 1024
                && segments().all(|segment| {
                    !matches!(segment, "" | "." | "..")
                        && segment.len() <= 200
                        && !segment.contains(['\\', '\0', '?', '*', '"', '<', '>', '|'])
                })
        };
        let all = self.resources.iter().filter(move |(path, _)| safe(path));
        all.map(|(path, body)| (path.trim_start_matches('/'), body))
    }
}
