//! Thresholds as data.
//!
//! A profile is a YAML file (`profiles/default.yaml` is embedded and explains each field). Unknown fields are refused,
//! and every fault is reported with its line.

use std::fmt;

use rackwright_yaml::{Quote, Spanned};
use serde::Deserialize;

use crate::hardware::hardware_checks;
use crate::judge::CHECKS;

const DEFAULT: &str = include_str!("../profiles/default.yaml");
const FILE_MAX_BYTES: usize = 64 * 1024;

/// The checked thresholds of a profile.
#[derive(Debug, Clone, PartialEq)]
pub struct Profile {
    /// Its name in reports.
    pub name: String,
    /// For people.
    pub description: String,
    /// Largest deviation of MemTotal from the inventory, either way, in percent.
    pub memory_tolerance_percent: f64,
    /// Largest offset of the machine's clock, either way, in milliseconds.
    pub clock_offset_max_ms: u64,
    /// Least rate of sequential reads from the root drive, in 10^6 bytes a second.
    pub disk_read_min_mb_per_s: f64,
    /// First sample of the root drive, in MiB.
    pub disk_read_sample_mib: u32,
    /// Longest wait for systemd to finish booting, in seconds.
    pub systemd_wait_s: u32,
    /// States of `systemctl is-system-running` that pass; "none" for another init.
    pub systemd_states: Vec<String>,
    /// Patterns of failed units that are ignored.
    pub ignored_failed_units: Vec<String>,
    /// Verdict on drives that are not in the inventory.
    pub unexpected_drives: Unexpected,
    /// Verdict on network interfaces that are not in the inventory.
    pub unexpected_nics: Unexpected,
    /// Verdict on PCI devices that are not in the inventory.
    pub unexpected_pci_devices: Unexpected,
    /// Pattern of the OS's ID; none: any.
    pub os_id: Option<String>,
    /// Pattern of the OS's VERSION_ID; none: any.
    pub os_version_id: Option<String>,
    /// Pattern of the kernel's release; none: any.
    pub kernel: Option<String>,
    /// Verdict on hardware that could not be read, such as GPUs without the library of their driver.
    pub unproven: Unexpected,
    /// Verdict on settings that GPUs and adapters need for their rated speed.
    pub readiness: Unexpected,
    /// Ids of skipped checks.
    pub skip: Vec<String>,
    /// Least rate of each test between two nodes of a cluster, in its slower direction; 0: no limit.
    pub network_min_gbit_per_s: f64,
    /// The same as a share of the cluster's usual rate, 0 to 1; 0: no limit.
    pub network_min_share: f64,
}

/// The verdict on what a profile may fail or only report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Unexpected {
    /// The check fails.
    Fail,
    /// It is only reported.
    Allow,
}

/// One fault of a profile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// Line from 1; 0: the fault has no line.
    pub line: u64,
    /// The fault and its remedy.
    pub message: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line > 0 {
            write!(f, "line {}: {}", self.line, self.message)
        } else {
            f.write_str(&self.message)
        }
    }
}

/// All faults of a profile. Permanent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProfileError {
    /// The file's name.
    pub file: String,
    /// At least one.
    pub faults: Vec<Fault>,
}

impl fmt::Display for ProfileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the validation profile {} is refused", self.file)?;
        for fault in &self.faults {
            write!(f, "; {fault}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ProfileError {}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawProfile {
    name: Spanned<String>,
    #[serde(default)]
    description: String,
    memory_tolerance_percent: Spanned<f64>,
    clock_offset_max_ms: Spanned<u64>,
    disk_read_min_mb_per_s: Spanned<f64>,
    disk_read_sample_mib: Spanned<u32>,
    systemd_wait_s: Spanned<u32>,
    systemd_states: Spanned<Vec<String>>,
    #[serde(default)]
    ignored_failed_units: Vec<String>,
    unexpected: RawUnexpected,
    os_id: Option<String>,
    os_version_id: Option<String>,
    kernel: Option<String>,
    unproven: Option<Unexpected>,
    readiness: Option<Unexpected>,
    #[serde(default)]
    skip: Vec<Spanned<String>>,
    network_min_gbit_per_s: Option<Spanned<f64>>,
    network_min_share: Option<Spanned<f64>>,
}

/// Default of the profile: below half of the usual rate is more than noise.
const NETWORK_SHARE: f64 = 0.5;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawUnexpected {
    drives: Unexpected,
    nics: Unexpected,
    pci_devices: Unexpected,
}

impl Profile {
    /// The embedded profile.
    pub fn embedded_default() -> Result<Self, ProfileError> {
        Self::parse("default.yaml", DEFAULT)
    }

    /// Reads a profile; `file` is only for messages.
    pub fn parse(file: &str, yaml: &str) -> Result<Self, ProfileError> {
        let refuse = |faults| ProfileError {
            file: file.into(),
            faults,
        };
        if yaml.len() > FILE_MAX_BYTES {
            return Err(refuse(vec![Fault {
                line: 0,
                message: "it is larger than 64 KiB".into(),
            }]));
        }
        let wire: RawProfile = rackwright_yaml::read(yaml, Quote::Nothing).map_err(|error| {
            refuse(vec![Fault {
                line: error.line(),
                message: error.quoting(yaml),
            }])
        })?;
        let faults = wire.faults();
        if faults.is_empty() {
            Ok(wire.into_profile())
        } else {
            Err(refuse(faults))
        }
    }
}

impl RawProfile {
    fn faults(&self) -> Vec<Fault> {
        let mut faults = Vec::new();
        let mut need = |fine: bool, line: u64, message: &str| {
            if !fine {
                faults.push(Fault {
                    line,
                    message: message.into(),
                });
            }
        };
        let name = &self.name.value;
        let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        need(
            (1..=64).contains(&name.len()) && name.chars().all(plain),
            self.name.referenced.line(),
            "name must be 1 to 64 of a-z A-Z 0-9 . _ -",
        );
        need(
            (0.0..=100.0).contains(&self.memory_tolerance_percent.value),
            self.memory_tolerance_percent.referenced.line(),
            "memory_tolerance_percent must lie between 0 and 100",
        );
        need(
            (1..=3_600_000).contains(&self.clock_offset_max_ms.value),
            self.clock_offset_max_ms.referenced.line(),
            "clock_offset_max_ms must lie between 1 and 3600000",
        );
        need(
            (0.0..=1e6).contains(&self.disk_read_min_mb_per_s.value),
            self.disk_read_min_mb_per_s.referenced.line(),
            "disk_read_min_mb_per_s must lie between 0 and 1000000",
        );
        need(
            (1..=1024).contains(&self.disk_read_sample_mib.value),
            self.disk_read_sample_mib.referenced.line(),
            "disk_read_sample_mib must lie between 1 and 1024",
        );
        need(
            (1..=3600).contains(&self.systemd_wait_s.value),
            self.systemd_wait_s.referenced.line(),
            "systemd_wait_s must lie between 1 and 3600",
        );
        need(
            !self.systemd_states.value.is_empty(),
            self.systemd_states.referenced.line(),
            "systemd_states must name at least one state (to switch the check off, skip systemd-state)",
        );
        if let Some(floor) = &self.network_min_gbit_per_s {
            let message = "network_min_gbit_per_s must lie between 0 and 100000";
            need((0.0..=1e5).contains(&floor.value), floor.referenced.line(), message);
        }
        if let Some(share) = &self.network_min_share {
            let message = "network_min_share must lie between 0 and 1";
            need((0.0..=1.0).contains(&share.value), share.referenced.line(), message);
        }
        for id in &self.skip {
            let known: Vec<&str> = CHECKS.iter().copied().chain(hardware_checks()).collect();
            let message = format!("there is no check {:?}; checks are {}", id.value, known.join(", "));
            need(known.contains(&id.value.as_str()), id.referenced.line(), &message);
        }
        faults
    }

    fn into_profile(self) -> Profile {
        Profile {
            name: self.name.value,
            description: self.description,
            memory_tolerance_percent: self.memory_tolerance_percent.value,
            clock_offset_max_ms: self.clock_offset_max_ms.value,
            disk_read_min_mb_per_s: self.disk_read_min_mb_per_s.value,
            disk_read_sample_mib: self.disk_read_sample_mib.value,
            systemd_wait_s: self.systemd_wait_s.value,
            systemd_states: self.systemd_states.value,
            ignored_failed_units: self.ignored_failed_units,
            unexpected_drives: self.unexpected.drives,
            unexpected_nics: self.unexpected.nics,
            unexpected_pci_devices: self.unexpected.pci_devices,
            os_id: self.os_id,
            os_version_id: self.os_version_id,
            kernel: self.kernel,
            unproven: self.unproven.unwrap_or(Unexpected::Allow),
            readiness: self.readiness.unwrap_or(Unexpected::Allow),
            skip: self.skip.into_iter().map(|id| id.value).collect(),
            network_min_gbit_per_s: self.network_min_gbit_per_s.map_or(0.0, |floor| floor.value),
            network_min_share: self.network_min_share.map_or(NETWORK_SHARE, |share| share.value),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(yaml: &str) -> Vec<Fault> {
        Profile::parse("x.yaml", yaml).unwrap_err().faults
    }

    #[test]
    fn the_embedded_profile_is_sound() {
        let profile = Profile::embedded_default().unwrap();
        assert_eq!(profile.name, "default");
        assert_eq!(profile.unexpected_nics, Unexpected::Allow);
        assert!(profile.skip.is_empty());
    }

    #[test]
    fn every_fault_is_reported_with_its_line() {
        let yaml = DEFAULT
            .replace("memory_tolerance_percent: 1", "memory_tolerance_percent: 500")
            .replace("disk_read_sample_mib: 16", "disk_read_sample_mib: 0")
            .replace("network_min_share: 0.5", "network_min_share: 50")
            .replace("skip: []", "skip: [memory, memroy]");
        let line = |text: &str| yaml.lines().position(|l| l.starts_with(text)).unwrap() as u64 + 1;
        let faults = faults(&yaml);
        let lines: Vec<u64> = faults.iter().map(|f| f.line).collect();
        assert_eq!(
            lines,
            [
                line("memory_tolerance"),
                line("disk_read_sample"),
                line("network_min_share"),
                line("skip:")
            ],
            "{faults:?}"
        );
        assert!(faults[3].message.contains("memroy") && faults[3].message.contains("disk-read-rate"));
    }

    #[test]
    fn unknown_fields_types_and_duplicates_are_refused_with_their_line() {
        for (from, to, names) in [
            (
                "clock_offset_max_ms: 2500",
                "clock_offset_max_ms: 2500\nclock_ofset: 1",
                "clock_ofset",
            ),
            ("clock_offset_max_ms: 2500", "clock_offset_max_ms: soon", "soon"),
            ("  nics: allow", "  nics: maybe", "maybe"),
            ("skip: []", "skip: []\nname: twice", "name"),
        ] {
            let yaml = DEFAULT.replace(from, to);
            assert_ne!(yaml, DEFAULT);
            let faults = faults(&yaml);
            assert_eq!(faults.len(), 1);
            assert!(faults[0].line > 0, "{faults:?}");
            assert!(faults[0].message.contains(names), "{faults:?}");
        }
        let without = DEFAULT.replace("systemd_wait_s: 180\n", "");
        assert!(faults(&without)[0].message.contains("systemd_wait_s"));
        assert!(!faults("").is_empty());
        assert!(!faults(&"#".repeat(FILE_MAX_BYTES + 1)).is_empty());
    }
}
