//! Numbers, durations and times in the form for people. All times are UTC.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use prost_types::Timestamp;

/// Reads `90s`, `30m`, `1h30m`, `7d`. Whole numbers; a unit is required.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("`{text}` is not a duration: write a duration such as 90s, 30m, 1h30m or 7d");
    let mut seconds = 0u64;
    let mut number = String::new();
    for c in text.chars() {
        if c.is_ascii_digit() {
            number.push(c);
            continue;
        }
        let unit = match c {
            's' => 1,
            'm' => 60,
            'h' => 3600,
            'd' => 86400,
            _ => return Err(wrong()),
        };
        let count: u64 = number.parse().map_err(|_| wrong())?;
        seconds = count
            .checked_mul(unit)
            .and_then(|s| seconds.checked_add(s))
            .ok_or_else(wrong)?;
        number.clear();
    }
    if text.is_empty() || !number.is_empty() {
        return Err(wrong());
    }
    Ok(Duration::from_secs(seconds))
}

/// Reads a moment: RFC 3339 (`2026-12-31T18:00:00Z`), or a duration from now (`30d`), to the second.
pub fn parse_moment(text: &str) -> Result<Timestamp, String> {
    let at = |seconds| Timestamp { seconds, nanos: 0 };
    if let Ok(time) = text.parse::<jiff::Timestamp>() {
        return Ok(at(time.as_second()));
    }
    let wrong = |_| format!("`{text}` is not a time such as 2026-12-31T18:00:00Z or a duration from now such as 30d");
    let ahead = parse_duration(text).map_err(wrong)?;
    let moment = present()
        .checked_add(ahead)
        .map_err(|_| format!("`{text}` is too far away"))?;
    Ok(at(moment.as_second()))
}

/// Reads a past moment: RFC 3339 (`2026-12-31T18:00:00Z`), or a duration before now (`2h`), to the second.
pub fn parse_past(text: &str) -> Result<Timestamp, String> {
    let at = |seconds| Timestamp { seconds, nanos: 0 };
    if let Ok(time) = text.parse::<jiff::Timestamp>() {
        return Ok(at(time.as_second()));
    }
    let wrong = |_| format!("`{text}` is not a time such as 2026-12-31T18:00:00Z or a duration before now such as 2h");
    let back = parse_duration(text).map_err(wrong)?;
    let moment = present()
        .checked_sub(back)
        .map_err(|_| format!("`{text}` is too long ago"))?;
    Ok(at(moment.as_second()))
}

/// `9.4 s`, `1m 23s`, `2h 05m`, `3d 04h`.
pub fn duration(seconds: f64) -> String {
    let seconds = seconds.max(0.0);
    if seconds < 59.95 {
        return format!("{seconds:.1} s");
    }
    let whole = seconds.round() as u64;
    match whole {
        0..3600 => format!("{}m {:02}s", whole / 60, whole % 60),
        3600..86400 => format!("{}h {:02}m", whole / 3600, whole % 3600 / 60),
        _ => format!("{}d {:02}h", whole / 86400, whole % 86400 / 3600),
    }
}

/// `12s`, `3m`, `5h`, `2d`: one unit, for tables.
pub fn age(seconds: f64) -> String {
    let whole = seconds.max(0.0) as u64;
    match whole {
        0..120 => format!("{whole}s"),
        120..7200 => format!("{}m", whole / 60),
        7200..172_800 => format!("{}h", whole / 3600),
        _ => format!("{}d", whole / 86400),
    }
}

/// Decimal units, as drives and networks are sold: `512 B`, `4.2 MB`, `1.0 TB`.
pub fn bytes(count: u64) -> String {
    const UNITS: [&str; 7] = ["B", "kB", "MB", "GB", "TB", "PB", "EB"];
    let mut value = count as f64;
    let mut unit = 0;
    while value >= 999.95 && unit + 1 < UNITS.len() {
        value /= 1000.0;
        unit += 1;
    }
    if unit == 0 {
        format!("{count} B")
    } else {
        format!("{value:.1} {}", UNITS[unit])
    }
}

/// Binary units, as memory is sold: `256 GiB`.
pub fn memory(count: u64) -> String {
    let gib = count as f64 / f64::from(1 << 30);
    if count == 0 {
        "unknown".to_owned()
    } else if gib < 10.0 {
        format!("{gib:.1} GiB")
    } else {
        format!("{gib:.0} GiB")
    }
}

/// The current time.
#[expect(clippy::disallowed_methods, reason = "this is the CLI's clock")]
pub fn system_time() -> SystemTime {
    SystemTime::now()
}

/// The same, for sums with a duration.
fn present() -> jiff::Timestamp {
    jiff::Timestamp::try_from(system_time()).unwrap_or(jiff::Timestamp::UNIX_EPOCH)
}

/// Seconds since the epoch, now.
pub fn now() -> f64 {
    system_time()
        .duration_since(UNIX_EPOCH)
        .map_or(0.0, |d| d.as_secs_f64())
}

/// Seconds since the epoch.
pub fn seconds(time: &Timestamp) -> f64 {
    time.seconds as f64 + f64::from(time.nanos) / 1e9
}

/// Seconds from `time` until `now`, negative if `time` is in the future.
pub fn since(time: &Timestamp, now: f64) -> f64 {
    now - seconds(time)
}

/// Seconds between two moments, if both are known.
pub fn between(start: Option<&Timestamp>, end: Option<&Timestamp>) -> Option<f64> {
    Some(seconds(end?) - seconds(start?))
}

/// RFC 3339 to the second: `2026-01-02T03:04:05Z`. An impossible time is shown as `-`.
pub fn stamp(time: &Timestamp) -> String {
    match jiff::Timestamp::new(time.seconds, 0) {
        Ok(time) => time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        Err(_) => "-".to_owned(),
    }
}

/// The stamp of a number of seconds since the epoch.
pub fn stamp_seconds(seconds: f64) -> String {
    stamp(&Timestamp {
        seconds: seconds as i64,
        nanos: 0,
    })
}

/// A `google.protobuf.Duration` in seconds.
pub fn proto_seconds(duration: &prost_types::Duration) -> f64 {
    duration.seconds as f64 + f64::from(duration.nanos) / 1e9
}

/// A `google.protobuf.Duration` of whole milliseconds.
pub fn proto_duration(duration: Duration) -> prost_types::Duration {
    prost_types::Duration {
        seconds: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        nanos: duration.subsec_millis() as i32 * 1_000_000,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read() {
        assert_eq!(parse_duration("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(parse_duration("1h30m"), Ok(Duration::from_secs(5400)));
        assert_eq!(parse_duration("7d"), Ok(Duration::from_secs(604_800)));
        for wrong in [
            "",
            "5",
            "h",
            "1w",
            "1.5h",
            "-1s",
            "99999999999999999999s",
            "9999999999999999d",
        ] {
            assert!(parse_duration(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn moments_are_read() {
        let moment = |text| parse_moment(text).map(|time| stamp(&time));
        assert_eq!(moment("2026-01-02T03:04:05Z"), Ok("2026-01-02T03:04:05Z".to_owned()));
        assert_eq!(
            moment("2026-01-02T03:04:05.9+01:00"),
            Ok("2026-01-02T02:04:05Z".to_owned())
        );
        let ahead = seconds(&parse_moment("2h").unwrap()) - now();
        assert!((7198.0..=7200.0).contains(&ahead), "{ahead}");
        for wrong in ["", "tomorrow", "2026-01-02", "2026-13-02T03:04:05Z", "99999999d"] {
            assert!(parse_moment(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn durations_are_shown() {
        assert_eq!(duration(0.04), "0.0 s");
        assert_eq!(duration(59.94), "59.9 s");
        assert_eq!(duration(59.96), "1m 00s");
        assert_eq!(duration(83.2), "1m 23s");
        assert_eq!(duration(7500.0), "2h 05m");
        assert_eq!(duration(273_600.0), "3d 04h");
        assert_eq!(age(119.0), "119s");
        assert_eq!(age(190.0), "3m");
        assert_eq!(age(-3.0), "0s");
    }

    #[test]
    fn sizes_are_shown() {
        assert_eq!(bytes(0), "0 B");
        assert_eq!(bytes(999), "999 B");
        assert_eq!(bytes(999_960), "1.0 MB");
        assert_eq!(bytes(u64::MAX), "18.4 EB");
        assert_eq!(memory(4 << 30), "4.0 GiB");
        assert_eq!(memory(2048 << 30), "2048 GiB");
    }

    #[test]
    fn times_are_shown_in_utc() {
        assert_eq!(
            stamp(&Timestamp {
                seconds: 1_767_323_045,
                nanos: 999_999_999
            }),
            "2026-01-02T03:04:05Z"
        );
        assert_eq!(
            stamp(&Timestamp {
                seconds: i64::MAX,
                nanos: 0
            }),
            "-"
        );
    }
}
