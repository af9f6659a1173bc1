//! InfiniBand ports: state, rate and error counters.

use super::{Fault, Finding, State, plural, unread};
use crate::component::{Component, Kind};
use crate::errors::{Remedy, Severity};
use crate::facts::{Facts, Row};

/// Counters since the driver's start, the most that is healthy, and whether the limit grows with the hours of uptime.
/// NVSentinel's monitor of adapters uses these limits as rates; a link goes down once while a fabric starts.
const COUNTERS: [(&str, u64, bool, Severity); 5] = [
    ("symbol_error", 120, true, Severity::Degraded),
    ("link_error_recovery", 5, true, Severity::Degraded),
    ("link_downed", 1, false, Severity::Degraded),
    ("excessive_buffer_overrun_errors", 0, false, Severity::Degraded),
    ("local_link_integrity_errors", 0, false, Severity::Degraded),
];

fn is_active(port: &Row) -> bool {
    port.text("state").ends_with("ACTIVE")
}

/// `400 Gb/sec (4X NDR)` as 400.
fn rate(port: &Row) -> Option<f64> {
    port.get("rate")?.split(' ').next()?.parse().ok()
}

/// Whether two ports belong to adapters of one type, so that their rates are comparable.
fn alike(a: &Row, b: &Row) -> bool {
    a.get("link_layer") == b.get("link_layer") && a.get("board") == b.get("board")
}

/// The ports.
pub(super) fn judge(facts: &Facts) -> Finding {
    const CHECK: &str = "infiniband-ports";
    if let Some(unread) = unread(facts, "infiniband", CHECK) {
        return unread;
    }
    let ports: Vec<&Row> = facts
        .rows("port")
        .filter(|port| port.get("link_layer") == Some("InfiniBand"))
        .collect();
    let active = ports.iter().filter(|port| is_active(port)).count();
    if ports.is_empty() {
        return Finding::without(
            CHECK,
            State::NotApplicable("there is no InfiniBand port".to_owned()),
            "0 ports",
        );
    }
    let uptime_s: f64 = facts
        .row("host")
        .and_then(|host| host.number("uptime_s"))
        .unwrap_or_default();
    let hours = (uptime_s / 3600.0).max(1.0);
    let faults: Vec<Fault> = ports
        .iter()
        .filter_map(|port| port_fault(port, &ports, hours))
        .collect();
    let rates: Vec<&str> = ports.iter().filter_map(|port| port.get("rate")).collect();
    let measured = format!(
        "{active} of {} active, {}",
        plural(ports.len(), "port"),
        rates.join(", ")
    );
    let threshold = "ports of like adapters active at the same rate, few errors";
    let source = "ports of the same node, limits of NVSentinel";
    let mut finding = Finding::of(CHECK, measured, threshold, source, faults);
    if finding.faults.is_empty() && active == 0 {
        let why = "no port is active: there is no subnet manager, or no cable";
        finding.state = State::NotProven(why.to_owned());
    }
    finding
}

/// The fault of a port. Its cable is named by the port's GUID.
fn port_fault(port: &Row, all: &[&Row], hours: f64) -> Option<Fault> {
    let id = port.get("guid").or(port.get("device")).unwrap_or_default();
    let cable = |severity, words: String| {
        let component = Component::new(Kind::Cable, id);
        Some(Fault::new(component, severity, Remedy::Inspect, words))
    };
    let place = format!("{} port {}", port.text("device"), port.text("port"));
    let peers = || all.iter().filter(|peer| alike(port, peer) && is_active(peer));
    if !is_active(port) {
        // A port without a working like port may be unused on purpose.
        peers().next()?;
        let words = format!("{place} is {}, {}", port.text("state"), port.text("phys_state"));
        let is_linked = port.text("phys_state").ends_with("LinkUp");
        return if is_linked {
            let component = Component::new(Kind::Hca, id);
            Some(Fault::new(component, Severity::Fatal, Remedy::Inspect, words))
        } else {
            cable(Severity::Fatal, words)
        };
    }
    let most = peers().filter_map(|peer| rate(peer)).fold(0.0, f64::max);
    if rate(port).is_some_and(|rate| rate < most) {
        let words = format!("{place} runs at {}, like ports at {most} Gb/sec", port.text("rate"));
        return cable(Severity::Degraded, words);
    }
    COUNTERS.iter().find_map(|(counter, limit, grows, severity)| {
        let count: u64 = port.number(counter)?;
        let most = if *grows { (*limit as f64 * hours) as u64 } else { *limit };
        (count > most).then(|| {
            cable(
                *severity,
                format!("{place} counts {count} {counter}, at most {most} are healthy"),
            )
        })?
    })
}
