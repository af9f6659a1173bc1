//! NVMe drives by their own report (SMART), and memory modules by the kernel's counters (EDAC).

use super::{Fault, Finding, State, plural, unread};
use crate::component::{Component, Kind};
use crate::errors::{Remedy, Severity};
use crate::facts::{Facts, Row};

/// Bits of the critical warning (NVM Express base specification, log page 02h).
const WARNINGS: [(u8, &str); 6] = [
    (0x01, "spare blocks below the drive's threshold"),
    (0x02, "temperature beyond the drive's threshold"),
    (0x04, "degraded by media or internal errors"),
    (0x08, "read only"),
    (0x10, "the backup of volatile memory failed"),
    (0x20, "persistent memory is read only"),
];
/// More corrected errors of one module than this fail the node: this project's own limit for the time since the start.
const CORRECTED_MANY: u64 = 1000;

/// The NVMe drives.
pub(super) fn nvme(facts: &Facts) -> Finding {
    const CHECK: &str = "nvme-health";
    if let Some(unread) = unread(facts, "nvme", CHECK) {
        return unread;
    }
    let drives: Vec<&Row> = facts.rows("nvme").collect();
    if drives.is_empty() {
        return Finding::without(
            CHECK,
            State::NotApplicable("there is no NVMe drive".to_owned()),
            "0 drives",
        );
    }
    let (mut faults, mut unread) = (Vec::new(), Vec::new());
    for drive in &drives {
        let id = drive.get("serial").or(drive.get("name")).unwrap_or_default();
        let component = Component::new(Kind::Nvme, id);
        let Some(warning) = drive.number::<u8>("critical_warning") else {
            unread.push(format!("{}: {}", drive.text("name"), drive.text("smart_error")));
            continue;
        };
        let words: Vec<&str> = WARNINGS
            .iter()
            .filter(|(bit, _)| warning & bit != 0)
            .map(|(_, words)| *words)
            .collect();
        let media: u64 = drive.number("media_errors").unwrap_or_default();
        let used: u64 = drive.number("percentage_used").unwrap_or_default();
        if warning != 0 {
            let words = format!("critical warning {warning:#04x}: {}", words.join(", "));
            let hot = warning == 0x02;
            let remedy = if hot { Remedy::Inspect } else { Remedy::Replace };
            let severity = if hot { Severity::Degraded } else { Severity::Fatal };
            faults.push(Fault::new(component, severity, remedy, words));
        } else if media > 0 {
            let words = format!("{media} media errors");
            faults.push(Fault::new(component, Severity::Degraded, Remedy::Replace, words));
        } else if used >= 100 {
            let words = format!("{used} % of the rated writes are used");
            faults.push(Fault::new(component, Severity::Degraded, Remedy::Replace, words));
        }
    }
    let measured = format!("{}, {} at fault", plural(drives.len(), "drive"), faults.len());
    let threshold = "no critical warning, no media error, less than 100 % used";
    let mut finding = Finding::of(CHECK, measured, threshold, "NVM Express, SMART log", faults);
    if finding.faults.is_empty() && !unread.is_empty() {
        finding.state = State::NotProven(unread.join("; "));
    }
    finding
}

/// The memory modules.
pub(super) fn memory(facts: &Facts) -> Finding {
    const CHECK: &str = "memory-errors";
    if let Some(unread) = unread(facts, "memory", CHECK) {
        return unread;
    }
    let modules: Vec<&Row> = facts.rows("dimm").collect();
    if modules.is_empty() {
        let why = "the kernel counts no memory errors (no EDAC driver)".to_owned();
        return Finding::without(CHECK, State::NotApplicable(why), "0 memory modules");
    }
    let (mut faults, mut corrected) = (Vec::new(), 0);
    for module in &modules {
        let count = |field: &str| module.number::<u64>(field).unwrap_or_default();
        let id = module.get("label").or(module.get("name")).unwrap_or_default();
        let component = Component::new(Kind::MemoryModule, id);
        corrected += count("ce");
        if count("ue") > 0 {
            let words = format!("{} uncorrected errors", count("ue"));
            faults.push(Fault::new(component, Severity::Fatal, Remedy::Replace, words));
        } else if count("ce") > CORRECTED_MANY {
            let words = format!("{} corrected errors", count("ce"));
            faults.push(Fault::new(component, Severity::Degraded, Remedy::Replace, words));
        }
    }
    let measured = format!(
        "{}, {corrected} corrected errors",
        plural(modules.len(), "memory module")
    );
    let threshold = format!("no uncorrected error, at most {CORRECTED_MANY} corrected ones of a module");
    Finding::of(CHECK, measured, &threshold, "counters of the kernel (EDAC)", faults)
}
