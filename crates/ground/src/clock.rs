//! The only module that reads the clock and makes ids.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rackwright_identity::Rng;
use rackwright_lifecycle::Timestamp;

/// Now, in microseconds since 1970 UTC.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "this is the daemon's clock module")]
pub fn now() -> Timestamp {
    if let Some(now) = simulated::get() {
        return now;
    }
    timestamp(SystemTime::now())
}

/// Converts a timestamp to the standard library's type.
#[must_use]
pub fn system_time(at: Timestamp) -> SystemTime {
    UNIX_EPOCH + Duration::from_micros(u64::try_from(at.0).unwrap_or(0))
}

/// Converts a time of the standard library. A time before 1970 becomes zero.
#[must_use]
pub fn timestamp(at: SystemTime) -> Timestamp {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
}

/// The first and the last second of a `google.protobuf.Timestamp`: the years 1 and 9999. JSON has no form for other times.
const MESSAGE_TIMES: (i64, i64) = (-62_135_596_800, 253_402_300_799);

/// Converts a timestamp for a message. `None` before 1970; a time after the year 9999 becomes its last second.
#[must_use]
pub fn to_proto(at: Timestamp) -> Option<prost_types::Timestamp> {
    let nanos = i32::try_from(at.0.rem_euclid(1_000_000) * 1000).unwrap_or(0);
    let seconds = at.0.div_euclid(1_000_000);
    (at.0 > 0).then(|| prost_types::Timestamp {
        nanos,
        ..seconds_to_proto(seconds)
    })
}

/// Converts seconds since 1970 for a message. A time before the year 1 or after the year 9999 becomes the nearest second of
/// these years: a BMC may send any time.
#[must_use]
pub fn seconds_to_proto(seconds: i64) -> prost_types::Timestamp {
    let (first, last) = MESSAGE_TIMES;
    prost_types::Timestamp {
        seconds: seconds.clamp(first, last),
        nanos: 0,
    }
}

/// Converts a time from a message. A missing time becomes zero (1970); a time out of range saturates.
#[must_use]
pub fn of_proto(time: Option<&prost_types::Timestamp>) -> Timestamp {
    time.map(|t| {
        Timestamp(
            t.seconds
                .saturating_mul(1_000_000)
                .saturating_add(i64::from(t.nanos) / 1000),
        )
    })
    .unwrap_or_default()
}

/// A new id, ordered by time (UUID version 7, RFC 9562).
///
/// # Panics
/// The operating system has no random bytes: the daemon cannot go on then.
#[must_use]
#[allow(clippy::expect_used)]
pub fn new_id(rng: &dyn Rng) -> String {
    let mut random = [0; 10];
    rng.fill(&mut random).expect("the operating system gives random bytes");
    let micros = u64::try_from(now().0).unwrap_or(0);
    let (millis, rest) = (micros / 1000, micros % 1000);
    // The fraction of the millisecond goes into the first 12 bits after it, so that ids of one process sort by creation
    // time (RFC 9562, 6.2, method 3).
    let [.., high, low] = (rest * 4096 / 1000).to_be_bytes();
    (random[0], random[1]) = (high, low);
    uuid::Builder::from_unix_timestamp_millis(millis, &random)
        .into_uuid()
        .to_string()
}

/// The clock of a test that sets its own time, for its thread. The daemon sets no time here, and [`now`] reads the system's
/// clock.
pub mod simulated {
    use std::cell::Cell;

    use rackwright_lifecycle::Timestamp;

    thread_local! {
        static NOW: Cell<Option<Timestamp>> = const { Cell::new(None) };
    }

    pub(super) fn get() -> Option<Timestamp> {
        NOW.get()
    }

    /// Sets the clock of this thread to `now`.
    pub fn set(now: Timestamp) {
        NOW.set(Some(now));
    }
}

#[cfg(test)]
mod tests {
    use super::{of_proto, seconds_to_proto, to_proto};
    use rackwright_lifecycle::Timestamp;

    #[test]
    fn every_time_has_a_form_in_json() {
        for seconds in [i64::MIN, -62_135_596_801, 253_402_300_800, i64::MAX] {
            let shown = seconds_to_proto(seconds).to_string();
            let nearest = if seconds < 0 {
                "0001-01-01T00:00:00Z"
            } else {
                "9999-12-31T23:59:59Z"
            };
            assert_eq!(shown, nearest, "{seconds}");
        }
        let late = to_proto(Timestamp(i64::MAX)).expect("a time");
        assert_eq!(late.seconds, 253_402_300_799);
        let now = Timestamp(1_790_000_000_123_456);
        assert_eq!(of_proto(to_proto(now).as_ref()), now);
        assert_eq!(to_proto(Timestamp(0)), None);
    }
}
