//! The agent's clock and its corrections.
//!
//! The clock is set again from the control plane's answer to the registration: times in reports must match the control
//! plane's clock, and that answer arrives over TLS from a server with a pinned CA.
//!
//! With a flat battery a machine starts in the past, and no certificate of the control plane is valid yet. The control
//! plane's CA certificate is pinned by its hash, so its validity is trusted. A clock outside that validity is certainly
//! wrong and is set to the time in the boot server's HTTP answer, if that time is inside the validity.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher as _, Hasher as _};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use prost_types::Timestamp;
use x509_parser::prelude::{FromDer as _, X509Certificate};

/// The current time as a protobuf timestamp.
#[expect(clippy::disallowed_methods, reason = "this is the agent's clock module")]
pub fn timestamp() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp {
        seconds: since.as_secs().try_into().unwrap_or(i64::MAX),
        nanos: since.subsec_nanos().cast_signed(),
    }
}

/// A certificate's validity in Unix seconds; `None` if the DER is not a certificate.
pub fn validity(der: &[u8]) -> Option<(i64, i64)> {
    let (_, certificate) = X509Certificate::from_der(der).ok()?;
    let validity = certificate.validity();
    Some((validity.not_before.timestamp(), validity.not_after.timestamp()))
}

/// The Unix time to set the clock to: the server's `Date` header, if `now` is outside `valid` and the header is inside.
pub fn correction(now: i64, valid: (i64, i64), date_header: Option<&str>) -> Option<i64> {
    let inside = |time: i64| valid.0 <= time && time <= valid.1;
    if inside(now) {
        return None;
    }
    date_header.and_then(parse_http_date).filter(|time| inside(*time))
}

/// Tolerated difference from the control plane's clock in seconds.
const DRIFT_S: i64 = 2;

/// The Unix time to set the clock to, if `now` differs from the `Date` header of a control plane's answer by more than 2 s.
pub fn adjustment(now: i64, date_header: Option<&str>) -> Option<i64> {
    let time = date_header.and_then(parse_http_date)?;
    (time.abs_diff(now) > DRIFT_S.unsigned_abs()).then_some(time)
}

/// Current time in Unix seconds.
pub fn unix_s() -> i64 {
    timestamp().seconds
}

/// Parses an IMF-fixdate of RFC 9110, 5.6.7, such as `Sun, 06 Nov 1994 08:49:37 GMT`, to Unix seconds.
fn parse_http_date(text: &str) -> Option<i64> {
    const MONTHS: [&str; 12] = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ];
    let (_, rest) = text.trim().split_once(", ")?;
    let mut parts = rest.split(' ');
    let day: i64 = parts.next()?.parse().ok()?;
    let month = parts.next()?;
    let month = MONTHS.iter().position(|m| *m == month)? as i64 + 1;
    let year: i64 = parts.next()?.parse().ok()?;
    let mut time = parts.next()?.split(':').map(|part| part.parse::<i64>().ok());
    let (hour, minute, second) = (time.next()??, time.next()??, time.next()??);
    let is_plausible = (1970..10_000).contains(&year)
        && (1..=31).contains(&day)
        && (0..24).contains(&hour)
        && (0..60).contains(&minute)
        && (0..=60).contains(&second);
    if !is_plausible || parts.next() != Some("GMT") {
        return None;
    }
    Some(days_from_civil(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second)
}

/// Days from 1970-01-01 to a date of the proleptic Gregorian calendar.
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

/// A random duration between half of `longest` and `longest`, different for each machine and each attempt.
pub fn jittered(longest: Duration) -> Duration {
    let share = f64::from(random_number() as u8) / 255.0;
    longest.mul_f64(0.5 + share / 2.0)
}

/// A number that differs between calls and machines; not for cryptography. It is available at once, unlike the kernel's
/// secure randomness: machines without a hardware source wait seconds for that after power-on.
pub fn random_number() -> u64 {
    RandomState::new().build_hasher().finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn http_dates() {
        assert_eq!(parse_http_date("Sun, 06 Nov 1994 08:49:37 GMT"), Some(784_111_777));
        assert_eq!(parse_http_date("Thu, 01 Jan 1970 00:00:00 GMT"), Some(0));
        assert_eq!(parse_http_date("Thu, 29 Feb 2024 12:00:00 GMT"), Some(1_709_208_000));
        for wrong in [
            "",
            "yesterday",
            "Sun, 06 Nov 1994 08:49:37",
            "Sun, 99 Nov 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 8 GMT",
        ] {
            assert_eq!(parse_http_date(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn the_clock_is_only_moved_into_the_validity_of_the_pinned_certificate() {
        let valid = (784_000_000, 785_000_000);
        let date = Some("Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(correction(0, valid, date), Some(784_111_777));
        assert_eq!(correction(784_500_000, valid, date), None, "a plausible clock stays");
        assert_eq!(correction(0, (0, 1), date), None, "0 is inside");
        assert_eq!(correction(5, (0, 1), date), None, "the header is outside");
        assert_eq!(correction(0, valid, None), None);
    }

    #[test]
    fn the_clock_follows_the_control_planes() {
        let date = Some("Sun, 06 Nov 1994 08:49:37 GMT");
        for (now, wanted) in [
            (784_111_777, None),
            (784_111_775, None),
            (784_111_774, Some(784_111_777)),
            (0, Some(784_111_777)),
            (i64::MAX, Some(784_111_777)),
        ] {
            assert_eq!(adjustment(now, date), wanted, "{now}");
        }
        assert_eq!(adjustment(0, None), None);
        assert_eq!(adjustment(0, Some("yesterday")), None);
    }

    #[test]
    fn jitter_stays_in_its_bounds() {
        for _ in 0..200 {
            let drawn = jittered(Duration::from_secs(2));
            assert!(drawn >= Duration::from_secs(1) && drawn <= Duration::from_secs(2));
        }
    }
}
