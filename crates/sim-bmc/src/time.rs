//! The time in Redfish's format.

use std::time::{SystemTime, UNIX_EPOCH};

/// The current time.
#[expect(
    clippy::disallowed_methods,
    reason = "this is the clock module of simulated machines"
)]
pub fn system_time() -> SystemTime {
    SystemTime::now()
}

/// Unix time now, in seconds.
pub fn now_s() -> u64 {
    let since = system_time().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

/// Unix time in Redfish's format (RFC 3339, UTC).
pub(super) fn time(unix_s: u64) -> String {
    let (days, of_day) = (unix_s / 86_400, unix_s % 86_400);
    let (year, month, day) = date(days);
    let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// Year, month and day of a day after 1970-01-01 (Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms").
fn date(days: u64) -> (u64, u64, u64) {
    let z = days + 719_468;
    let (era, of_era) = (z / 146_097, z % 146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    (year_of_era + era * 400 + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_dates() {
        for (unix_s, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_798_761_599, "2026-12-31T23:59:59Z"),
        ] {
            assert_eq!(time(unix_s), text);
        }
    }
}
