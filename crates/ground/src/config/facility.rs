//! Settings of power and cooling readings: intervals, and access to equipment.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use rackwright_redfish::CertificateFingerprint;
use rackwright_site::power::readings::Rules;
use secrecy::SecretString;
use serde::Deserialize;

/// Longest interval of readings: a day.
const LONGEST_S: u32 = 86_400;
/// Most parallel readings that the file descriptors and memory of a process allow.
const AT_ONCE_MAX: usize = 512;

/// As written in the configuration file.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Interval of readings of a node, in seconds.
    pub node_interval_s: u32,
    /// Interval of readings of a PDU or cooling unit, in seconds.
    pub equipment_interval_s: u32,
    /// Age at which a reading is stale, in seconds.
    pub fresh_s: u32,
    /// Nodes read in parallel.
    pub at_once: usize,
    /// Excess over the reserved power that raises an alarm, in percent.
    pub over_reservation_percent: u32,
    /// User name on PDUs and cooling units; `None`: they are not read.
    pub username: Option<String>,
    /// File with the password of that account.
    pub password_file: Option<PathBuf>,
    /// Certificates of PDUs and cooling units by name (`sha256:…`); they replace trust in the first certificate seen.
    pub certificates: BTreeMap<String, String>,
    /// Names of nodes, vertices and cooling units with alarms that hold nothing and are only reported, for example
    /// because a detector is broken.
    pub ignore: BTreeSet<String>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            node_interval_s: 300,
            equipment_interval_s: 60,
            fresh_s: 900,
            at_once: 32,
            over_reservation_percent: 5,
            username: None,
            password_file: None,
            certificates: BTreeMap::new(),
            ignore: BTreeSet::new(),
        }
    }
}

impl Settings {
    /// Adds one line to `faults` for each invalid setting.
    pub fn check(&self, faults: &mut Vec<String>) {
        let mut fault = |field: &str, what: String| faults.push(format!("facility.{field}: {what}"));
        for (field, value) in [
            ("node_interval_s", self.node_interval_s),
            ("equipment_interval_s", self.equipment_interval_s),
            ("fresh_s", self.fresh_s),
        ] {
            if !(1..=LONGEST_S).contains(&value) {
                fault(field, format!("must be from 1 to {LONGEST_S}"));
            }
        }
        if self.fresh_s <= self.node_interval_s.max(self.equipment_interval_s) {
            fault(
                "fresh_s",
                "must be longer than both intervals, or every reading is too old".into(),
            );
        }
        if !(1..=AT_ONCE_MAX).contains(&self.at_once) {
            fault("at_once", format!("must be from 1 to {AT_ONCE_MAX}"));
        }
        if self.over_reservation_percent > 100 {
            fault("over_reservation_percent", "must be at most 100".into());
        }
        if self.username.is_some() != self.password_file.is_some() {
            fault(
                "username",
                "needs password_file, and password_file needs username: set both or none".into(),
            );
        }
        for (name, text) in &self.certificates {
            if text.parse::<CertificateFingerprint>().is_err() {
                fault(
                    "certificates",
                    format!("{name}: {text:?} is not \"sha256:\" and 64 hex digits"),
                );
            }
        }
    }

    /// Rules for the judgement of readings.
    #[must_use]
    pub fn rules(&self) -> Rules {
        Rules {
            fresh_us: rackwright_lifecycle::seconds(i64::from(self.fresh_s)),
            over_reservation: f64::from(self.over_reservation_percent) / 100.0,
            ..Rules::default()
        }
    }

    /// The account on PDUs and cooling units. The file is read each time, so an operator changes the password by
    /// changing the file.
    #[expect(clippy::disallowed_methods, reason = "called at the start")]
    pub fn account(&self) -> Result<Option<(String, SecretString)>, String> {
        let (Some(username), Some(path)) = (&self.username, &self.password_file) else {
            return Ok(None);
        };
        let text = std::fs::read_to_string(path)
            .map_err(|e| format!("facility.password_file: {} cannot be read: {e}", path.display()))?;
        let password = text.trim_end_matches(['\r', '\n']);
        if password.is_empty() {
            return Err(format!("facility.password_file: {} is empty", path.display()));
        }
        Ok(Some((username.clone(), SecretString::from(password.to_owned()))))
    }
}
