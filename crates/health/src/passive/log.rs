//! The kernel's log: lines of GPUs, switches, adapters, drives, memory, processors and PCIe.
//!
//! The lines are those of the kernel's drivers (`drivers/edac`, `drivers/pci/pcie/aer.c`, `mlx5_core`, `nvme`,
//! `arch/x86/kernel/cpu/mce`) and of NVIDIA's.

use super::pcie::component_at;
use super::{Fault, Finding, State, plural, unread};
use crate::component::{Component, Kind};
use crate::errors::{ErrorCatalogue, List, Remedy, Severity};
use crate::facts::Facts;

/// A line that concerns a component.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogEvent {
    /// Kind of the component.
    pub kind: Kind,
    /// Its place in the line: a PCI address, a name, a label; empty: none.
    pub place: String,
    /// Severity for the component.
    pub severity: Severity,
    pub remedy: Remedy,
    /// The meaning, for people.
    pub meaning: String,
}

/// The event of a line. `None`: the line concerns no component.
#[must_use]
pub fn log_event(line: &str, errors: &ErrorCatalogue) -> Option<LogEvent> {
    nvidia(line, errors)
        .or_else(|| mellanox(line))
        .or_else(|| nvme(line))
        .or_else(|| memory(line))
        .or_else(|| pci(line))
        .or_else(|| processor(line))
}

/// The text between two marks.
fn between<'a>(line: &'a str, before: &str, after: &str) -> Option<&'a str> {
    let rest = line.split_once(before)?.1;
    Some(rest.split_once(after).map_or(rest, |(found, _)| found))
}

/// The first word that is a PCI address, such as `0000:5c:00.0`.
fn address(line: &str) -> Option<&str> {
    let mut words = line.split([' ', '(', ')', ',']).map(|word| word.trim_end_matches(':'));
    words.find(|word| {
        let parts: Vec<&str> = word.split([':', '.']).collect();
        let is_hex = |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_hexdigit());
        matches!(parts[..], [domain, bus, device, function]
            if domain.len() >= 4 && bus.len() == 2 && device.len() == 2 && function.len() == 1
                && parts.iter().all(|part| is_hex(part)))
    })
}

fn event(kind: Kind, place: &str, severity: Severity, remedy: Remedy, meaning: &str) -> LogEvent {
    LogEvent {
        kind,
        place: place.to_owned(),
        severity,
        remedy,
        meaning: meaning.to_owned(),
    }
}

fn nvidia(line: &str, errors: &ErrorCatalogue) -> Option<LogEvent> {
    let (list, head) = if line.contains("NVRM: Xid (") {
        (List::Xid, "NVRM: Xid (")
    } else if line.contains("SXid (") {
        (List::Sxid, "SXid (")
    } else {
        let lost = line.contains("NVRM: ") && line.contains("has fallen off the bus");
        let place = between(line, "PCI:", " ").or_else(|| address(line));
        let meaning = "the GPU fell off the bus";
        let place = place.unwrap_or_default().trim_end_matches(':');
        return lost.then(|| event(Kind::Gpu, place, Severity::Fatal, Remedy::PowerCycle, meaning));
    };
    let (place, rest) = line.split_once(head)?.1.split_once("): ")?;
    // A partition of a GPU follows its address: `0000:01:00 GPU-I:05`.
    let place = place.trim_start_matches("PCI:").split(' ').next().unwrap_or_default();
    let code: u32 = rest.split([',', ' ']).next()?.parse().ok()?;
    let states = |word: &str| rest.split([',', ' ']).any(|found| found.eq_ignore_ascii_case(word));
    let link = between(rest, "Link ", " ").or_else(|| between(rest, "link ", "("));
    let link = link.map(|link| link.trim_end_matches([':', ',']).trim_start_matches('0'));
    // The same code has lines of a fatal and of a harmless kind, and lines with details of the line before.
    let details = list == List::Sxid && (rest.contains(", Severity ") || rest.contains(", Data "));
    let known = errors.get(list, code);
    let (kind, severity, remedy, meaning) = match known {
        Some(known) => (known.kind, known.severity, known.remedy, known.meaning.as_str()),
        None if list == List::Xid => (Kind::Gpu, Severity::Degraded, Remedy::Inspect, "unknown error"),
        None if states("Fatal") => (Kind::NvSwitch, Severity::Fatal, Remedy::Reboot, "unknown fatal error"),
        None => (
            Kind::NvSwitch,
            Severity::Notice,
            Remedy::None,
            "unknown error that is not fatal",
        ),
    };
    let harmless = details || states("Nonfatal") || states("Non-fatal");
    let severity = if harmless && severity == Severity::Fatal {
        Severity::Notice
    } else {
        severity
    };
    let place = match link.filter(|_| kind == Kind::NvLink) {
        Some(link) => format!("{place} link {}", if link.is_empty() { "0" } else { link }),
        None => place.to_owned(),
    };
    Some(event(
        kind,
        &place,
        severity,
        remedy,
        &format!("{list} {code}: {meaning}"),
    ))
}

fn mellanox(line: &str) -> Option<LogEvent> {
    if !line.contains("mlx5") {
        return None;
    }
    let has = |text: &str| line.contains(text);
    let (kind, severity, remedy, meaning) = if has("insufficient power on the PCIe slot") {
        (
            Kind::Slot,
            Severity::Degraded,
            Remedy::Inspect,
            "the slot gives the adapter too little power",
        )
    } else if has("Port module event[error]") && has("High Temperature") {
        (
            Kind::Cable,
            Severity::Degraded,
            Remedy::Inspect,
            "the transceiver is too hot",
        )
    } else if has("Port module event[error]") {
        (
            Kind::Cable,
            Severity::Degraded,
            Remedy::Inspect,
            "the transceiver or cable reports an error",
        )
    } else if has("health compromised") {
        (
            Kind::Hca,
            Severity::Fatal,
            Remedy::PowerCycle,
            "the adapter's firmware does not answer",
        )
    } else if has("unrecoverable hardware error") {
        (
            Kind::Hca,
            Severity::Fatal,
            Remedy::Replace,
            "unrecoverable error of the adapter",
        )
    } else if has("timeout. Will cause a leak") {
        (
            Kind::Hca,
            Severity::Fatal,
            Remedy::Reboot,
            "the adapter did not answer a command",
        )
    } else if has("NETDEV WATCHDOG") {
        (
            Kind::Hca,
            Severity::Degraded,
            Remedy::Inspect,
            "the adapter sends nothing",
        )
    } else {
        return None;
    };
    let place = address(line).or_else(|| between(line, "WATCHDOG: ", " "));
    Some(event(kind, place.unwrap_or_default(), severity, remedy, meaning))
}

fn nvme(line: &str) -> Option<LogEvent> {
    let has = |text: &str| line.contains(text);
    let controller = between(line, "nvme nvme", ":").map(|number| format!("nvme{number}"));
    let block =
        between(line, "dev nvme", ",").map(|name| format!("nvme{}", name.split('n').next().unwrap_or_default()));
    let (place, severity, remedy, meaning) = match (controller, block) {
        (_, Some(drive)) if has("critical medium error") => {
            (drive, Severity::Fatal, Remedy::Replace, "the drive cannot read a block")
        }
        (_, Some(drive)) if has("I/O error") => (drive, Severity::Degraded, Remedy::Inspect, "a request failed"),
        (Some(drive), _) if has("controller is down") => (
            drive,
            Severity::Fatal,
            Remedy::PowerCycle,
            "the drive's controller stopped",
        ),
        (Some(drive), _) if has("Device not ready") || has("Removing after probe failure") => {
            (drive, Severity::Fatal, Remedy::Replace, "the drive does not start")
        }
        (Some(drive), _) if has("timeout, ") => (
            drive,
            Severity::Degraded,
            Remedy::Inspect,
            "the drive did not answer a request",
        ),
        _ => return None,
    };
    Some(event(Kind::Nvme, &place, severity, remedy, meaning))
}

fn memory(line: &str) -> Option<LogEvent> {
    let rest = line.split_once("EDAC MC")?.1.split_once(": ")?.1;
    let uncorrected = rest.split(' ').any(|word| word == "UE");
    let label = between(rest, " on ", " (").unwrap_or_default();
    let (severity, remedy, meaning) = if uncorrected {
        (Severity::Fatal, Remedy::Replace, "uncorrected memory error")
    } else {
        (Severity::Notice, Remedy::None, "corrected memory error")
    };
    rest.split(' ')
        .any(|word| word == "UE" || word == "CE")
        .then(|| event(Kind::MemoryModule, label, severity, remedy, meaning))
}

fn pci(line: &str) -> Option<LogEvent> {
    let has = |text: &str| line.contains(text);
    if has("pciehp: Slot(") && (has("Link Down") || has("Card not present")) {
        let slot = address(line).unwrap_or_default();
        let meaning = "the slot lost its device";
        return Some(event(Kind::Slot, slot, Severity::Fatal, Remedy::Inspect, meaning));
    }
    let severity = if has("severity=Uncorrected (Fatal)") || has("severity=Uncorrectable (Fatal)") {
        Severity::Fatal
    } else if has("severity=Uncorrected") || has("severity=Uncorrectable") {
        Severity::Degraded
    } else {
        return None;
    };
    let place = address(line).unwrap_or_default();
    Some(event(
        Kind::Slot,
        place,
        severity,
        Remedy::Inspect,
        "uncorrected PCIe error",
    ))
}

fn processor(line: &str) -> Option<LogEvent> {
    if let Some(cpu) = between(line, "[Hardware Error]: CPU ", ":").filter(|_| line.contains("Machine Check")) {
        let meaning = "machine check of the processor";
        return Some(event(Kind::Cpu, cpu, Severity::Fatal, Remedy::Inspect, meaning));
    }
    if line.contains("[Hardware Error]: event severity: fatal") {
        let meaning = "the firmware reports a fatal hardware error";
        return Some(event(
            Kind::System,
            "firmware",
            Severity::Fatal,
            Remedy::Inspect,
            meaning,
        ));
    }
    let hot = line.contains("temperature above threshold, cpu clock throttled");
    let cpu = between(line, "CPU", ":").filter(|_| hot)?;
    let meaning = "the processor is too hot and slows down";
    Some(event(Kind::Cpu, cpu, Severity::Degraded, Remedy::Inspect, meaning))
}

/// The kernel's log since the start of the system.
pub(super) fn judge(facts: &Facts, errors: &ErrorCatalogue) -> Finding {
    const CHECK: &str = "kernel-log";
    if let Some(unread) = unread(facts, "log", CHECK) {
        return unread;
    }
    let lines: Vec<&str> = facts.rows("log").map(|row| row.text("text")).collect();
    let events: Vec<(&str, LogEvent)> = lines
        .iter()
        .filter_map(|line| Some((*line, log_event(line, errors)?)))
        .collect();
    let mut faults: Vec<Fault> = Vec::new();
    for (line, event) in events.iter().filter(|(_, event)| event.severity.is_fault()) {
        let component = component(facts, event);
        let words = format!("{}; log: {line}", event.meaning);
        // One line for each component and meaning: a fault may repeat for hours.
        let same = |fault: &Fault| fault.component == component && fault.words.starts_with(&event.meaning);
        if !faults.iter().any(same) {
            faults.push(Fault::new(component, event.severity, event.remedy, words));
        }
    }
    let applications = events
        .iter()
        .filter(|(_, event)| event.severity == Severity::Application);
    let measured = format!(
        "{} about components, {} against one, {} of programs",
        plural(events.len(), "line"),
        events.iter().filter(|(_, event)| event.severity.is_fault()).count(),
        applications.count()
    );
    let source = "lists of XID and SXID errors, and messages of the kernel";
    let mut finding = Finding::of(CHECK, measured, "no line against a component", source, faults);
    if facts.row("log_cut").is_some() && finding.faults.is_empty() {
        finding.state =
            State::NotProven("the kernel's log has more lines about components than the probe reads".into());
    }
    finding
}

fn component(facts: &Facts, event: &LogEvent) -> Component {
    let nvme = facts.rows("nvme").find(|row| row.get("name") == Some(&event.place));
    match event.kind {
        Kind::Nvme => Component::new(
            Kind::Nvme,
            nvme.and_then(|row| row.get("serial")).unwrap_or(&event.place),
        ),
        Kind::NvLink => {
            let (place, link) = event.place.split_once(" link ").unwrap_or((&event.place, ""));
            let end = component_at(facts, place, Kind::NvLink);
            let link = if link.is_empty() {
                String::new()
            } else {
                format!(" link {link}")
            };
            Component::new(Kind::NvLink, format!("{}{link}", end.id))
        }
        Kind::Gpu | Kind::GpuMemory | Kind::Hca | Kind::Cable | Kind::NvSwitch if !event.place.is_empty() => {
            component_at(facts, &event.place, event.kind)
        }
        kind => Component::new(kind, event.place.clone()),
    }
}
