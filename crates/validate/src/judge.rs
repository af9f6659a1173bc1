//! The verdicts: compares readings with the inventory, the image and the profile. Pure.

mod parts;
mod rates;
mod system;

use rackwright_api::v1::{Check, Inventory, Verdict};

use crate::probe::ClockSpan;
use crate::profile::Profile;
use crate::readings::Readings;

/// The ids of all checks, in the order of a report.
pub const CHECKS: &[&str] = &[
    "boot-id-changed",
    "image-marker",
    "hostname",
    "os",
    "kernel",
    "cpu-count",
    "memory",
    "drives",
    "nics",
    "pci-devices",
    "clock-offset",
    "disk-read-rate",
    "systemd-state",
];

/// The expected machine.
#[derive(Debug, Clone, PartialEq)]
pub struct Expected {
    /// The parts, as the agent reported them.
    pub inventory: Inventory,
    /// The boot id of the ramdisk (or of the former system); `None`: unknown.
    pub former_boot_id: Option<String>,
    /// Digest of the written image version.
    pub image_digest: String,
    pub claim_generation: u64,
    /// The host name from the seed.
    pub hostname: String,
    /// The image's statements about its system.
    pub image_patterns: ImagePatterns,
}

/// An image's statements about its system: patterns, which hold beside those of the profile. `None`: no statement.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ImagePatterns {
    /// Pattern of the OS's ID.
    pub os_id: Option<String>,
    /// Pattern of the OS's VERSION_ID.
    pub os_version_id: Option<String>,
    /// Pattern of the kernel's release.
    pub kernel: Option<String>,
}

/// Runs every check, in the order of [`CHECKS`]; a check that the profile skips is reported as skipped.
pub fn judge(profile: &Profile, expected: &Expected, readings: &Readings, clock: &ClockSpan) -> Vec<Check> {
    CHECKS
        .iter()
        .map(|id| {
            if profile.skip.iter().any(|skipped| skipped == id) {
                return Finding::not_applicable("", "", "the profile skips this check").check(id, &of_profile(profile));
            }
            judge_one(id, profile, expected, readings, clock)
        })
        .collect()
}

/// Whether the checks accept a machine: at least one passed, and none failed.
pub fn passed(checks: &[Check]) -> bool {
    let with = |verdict: Verdict| checks.iter().any(|check| check.verdict == verdict as i32);
    with(Verdict::Pass) && !with(Verdict::Fail) && !with(Verdict::Unspecified)
}

fn judge_one(id: &str, profile: &Profile, expected: &Expected, readings: &Readings, clock: &ClockSpan) -> Check {
    let inventory = &expected.inventory;
    let of_profile = of_profile(profile);
    match id {
        "boot-id-changed" => boot_id(expected, readings).check(id, "the ramdisk's boot id"),
        "image-marker" => image_marker(expected, readings).check(id, "the image written, and the claim"),
        "hostname" => hostname(expected, readings).check(id, "the seed"),
        "os" => system::os(profile, &expected.image_patterns, readings),
        "kernel" => system::kernel(profile, &expected.image_patterns, readings),
        "cpu-count" => parts::cpu_count(inventory, readings).check(id, "inventory"),
        "memory" => {
            let source = format!("inventory, {of_profile}");
            parts::memory(profile.memory_tolerance_percent, inventory, readings).check(id, &source)
        }
        "drives" => parts::drives(profile.unexpected_drives, inventory, readings).check(id, "inventory"),
        "nics" => parts::nics(profile.unexpected_nics, inventory, readings).check(id, "inventory"),
        "pci-devices" => parts::pci_devices(profile.unexpected_pci_devices, inventory, readings).check(id, "inventory"),
        "clock-offset" => rates::clock_offset(profile.clock_offset_max_ms, readings, clock).check(id, &of_profile),
        "disk-read-rate" => rates::disk_read(profile.disk_read_min_mb_per_s, readings).check(id, &of_profile),
        "systemd-state" => rates::systemd(profile, readings).check(id, &of_profile),
        // A check in the list without a judge must never pass.
        _ => Finding::fail("", "", "this check is not implemented").check(id, &of_profile),
    }
}

fn of_profile(profile: &Profile) -> String {
    format!("profile {}", profile.name)
}

/// A check without its id and source.
struct Finding {
    verdict: Verdict,
    measured: String,
    threshold: String,
    detail: String,
}

impl Finding {
    fn new(verdict: Verdict, measured: impl Into<String>, threshold: impl Into<String>, detail: String) -> Self {
        Self {
            verdict,
            measured: measured.into(),
            threshold: threshold.into(),
            detail,
        }
    }

    fn pass(measured: impl Into<String>, threshold: impl Into<String>) -> Self {
        Self::new(Verdict::Pass, measured, threshold, String::new())
    }

    fn fail(measured: impl Into<String>, threshold: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(Verdict::Fail, measured, threshold, detail.into())
    }

    fn not_applicable(measured: impl Into<String>, threshold: impl Into<String>, why: impl Into<String>) -> Self {
        Self::new(Verdict::NotApplicable, measured, threshold, why.into())
    }

    fn check(self, id: &str, source: &str) -> Check {
        Check {
            id: id.into(),
            verdict: self.verdict as i32,
            measured: self.measured,
            threshold: self.threshold,
            source: source.into(),
            detail: self.detail,
        }
    }
}

fn boot_id(expected: &Expected, readings: &Readings) -> Finding {
    let now = readings.boot_id.as_str();
    let Some(former) = expected.former_boot_id.as_deref().filter(|id| !id.is_empty()) else {
        return Finding::not_applicable(now, "", "the boot id before the reboot is unknown");
    };
    let threshold = format!("not {former}");
    if now.is_empty() {
        Finding::fail(
            "unreadable",
            threshold,
            "the machine has no /proc/sys/kernel/random/boot_id",
        )
    } else if now.eq_ignore_ascii_case(former) {
        Finding::fail(
            now,
            threshold,
            "the machine has not rebooted: the former system still runs",
        )
    } else {
        Finding::pass(now, threshold)
    }
}

fn image_marker(expected: &Expected, readings: &Readings) -> Finding {
    let marker = &readings.image;
    let threshold = format!("{}, generation {}", expected.image_digest, expected.claim_generation);
    let generation = marker
        .generation
        .map_or("none".to_owned(), |generation| generation.to_string());
    let digest = if marker.digest.is_empty() {
        "no digest"
    } else {
        &marker.digest
    };
    let measured = format!("{digest}, generation {generation}");
    if marker.digest == expected.image_digest && marker.generation == Some(expected.claim_generation) {
        Finding::pass(measured, threshold)
    } else if marker.digest.is_empty() {
        Finding::fail(
            measured,
            threshold,
            "/etc/rackwright/image is missing: the image did not read its seed",
        )
    } else {
        Finding::fail(
            measured,
            threshold,
            "the machine booted another installation than the image just written",
        )
    }
}

fn hostname(expected: &Expected, readings: &Readings) -> Finding {
    let (wanted, found) = (expected.hostname.as_str(), readings.hostname.as_str());
    let short = wanted.split('.').next().unwrap_or(wanted);
    if found.eq_ignore_ascii_case(wanted) || found.eq_ignore_ascii_case(short) {
        Finding::pass(found, wanted)
    } else {
        Finding::fail(found, wanted, "the image did not take its host name from the seed")
    }
}

#[cfg(test)]
mod tests;
