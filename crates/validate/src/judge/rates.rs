//! Checks of measurements: the clock, the root drive, the service manager.

use std::time::SystemTime;

use rackwright_pattern::fits;

use super::Finding;
use crate::probe::ClockSpan;
use crate::profile::Profile;
use crate::readings::Readings;

/// The machine read its clock at some moment between `sent` and `received`, and the true value lies within the reading's
/// resolution: so the offset lies in an interval. The end of the interval nearest to zero is judged; an interval wider than
/// the threshold proves nothing and fails.
pub(super) fn clock_offset(max_ms: u64, readings: &Readings, span: &ClockSpan) -> Finding {
    let threshold = format!("at most ± {max_ms} ms");
    let Some(reading) = readings.clock else {
        return Finding::fail("unreadable", threshold, "the machine's date command printed no time");
    };
    let latest = reading.time + reading.resolution;
    let (lowest_ms, highest_ms) = (between_ms(span.received, reading.time), between_ms(span.sent, latest));
    let (middle_ms, half_ms) = (lowest_ms.midpoint(highest_ms), (highest_ms - lowest_ms) / 2.0);
    let measured = format!("{middle_ms:+.0} ms ± {half_ms:.0} ms");
    let max_ms = max_ms as f64;
    let nearest_ms = if lowest_ms > 0.0 {
        lowest_ms
    } else {
        highest_ms.min(0.0)
    };
    if nearest_ms.abs() > max_ms {
        let side = if nearest_ms > 0.0 { "ahead of" } else { "behind" };
        Finding::fail(
            measured,
            threshold,
            format!("the machine's clock is {side} the control plane's clock"),
        )
    } else if half_ms > max_ms {
        Finding::fail(
            measured,
            threshold,
            "the machine answered too slowly to measure its clock",
        )
    } else {
        Finding::pass(measured, threshold)
    }
}

pub(super) fn disk_read(min_mb_per_s: f64, readings: &Readings) -> Finding {
    let threshold = format!("at least {min_mb_per_s} MB/s");
    let Some(read) = &readings.disk_read else {
        let why = if readings.disk_read_error.is_empty() {
            "the root file system is on no readable drive"
        } else {
            &readings.disk_read_error
        };
        return Finding::fail("not measured", threshold, why);
    };
    let rate = read.mb_per_s();
    let measured = format!(
        "{rate:.0} MB/s ({} MiB of {} in {:.2} s, {})",
        read.bytes >> 20,
        read.name,
        read.duration.as_secs_f64(),
        read.method
    );
    if rate >= min_mb_per_s {
        Finding::pass(measured, threshold)
    } else {
        Finding::fail(
            measured,
            threshold,
            format!("the root drive {} reads too slowly", read.name),
        )
    }
}

pub(super) fn systemd(profile: &Profile, readings: &Readings) -> Finding {
    let state = readings.systemd_state.as_str();
    let threshold = profile.systemd_states.join(" or ");
    if state.is_empty() {
        return Finding::fail(
            "unreadable",
            threshold,
            "the machine reports no state of its service manager",
        );
    }
    if profile.systemd_states.iter().any(|allowed| allowed == state) {
        return Finding::pass(state, threshold);
    }
    let ignored = |unit: &&String| profile.ignored_failed_units.iter().any(|pattern| fits(pattern, unit));
    let (known, failed): (Vec<&String>, Vec<&String>) = readings.failed_units.iter().partition(ignored);
    if state == "degraded" && failed.is_empty() && !known.is_empty() {
        let mut finding = Finding::pass(state, threshold);
        finding.detail = format!("failed, and ignored by the profile: {}", list(&known));
        return finding;
    }
    let detail = match state {
        "starting" | "initializing" => format!("systemd is still starting after {} s", profile.systemd_wait_s),
        "degraded" if !failed.is_empty() => format!("failed units: {}", list(&failed)),
        "degraded" => "systemd is degraded and names no failed unit".into(),
        other => format!("systemd is {other}"),
    };
    Finding::fail(state, threshold, detail)
}

fn list(units: &[&String]) -> String {
    units.iter().map(|unit| unit.as_str()).collect::<Vec<_>>().join(", ")
}

/// Milliseconds from `from` to `to`; negative if `to` is earlier.
fn between_ms(from: SystemTime, to: SystemTime) -> f64 {
    match to.duration_since(from) {
        Ok(later) => later.as_secs_f64() * 1e3,
        Err(earlier) => -earlier.duration().as_secs_f64() * 1e3,
    }
}
