//! Whether and after which pause a failed request is sent again: a pure function of its inputs.

use std::time::Duration;

use crate::error::RedfishError;
use crate::settings::RetryPolicy;

/// Whether a request may be repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Repeat {
    /// The request is idempotent.
    Always,
    /// Only if the BMC certainly did nothing: no connection, or a refusal.
    IfRefused,
    /// Never: the caller has its own sequence of attempts.
    Never,
}

/// Counts the repetitions of a request, by cause.
#[derive(Debug, Clone, Copy, Default)]
pub struct Attempts {
    broken: u32,
    busy: u32,
    failed: u32,
}

/// The pause before the next attempt, before jitter; none means: give up.
pub(crate) fn next_pause(
    policy: &RetryPolicy,
    repeat: Repeat,
    attempts: &mut Attempts,
    failure: &RedfishError,
) -> Option<Duration> {
    if repeat == Repeat::Never {
        return None;
    }
    match failure {
        RedfishError::Unreachable { source, .. } => {
            // A silent address has already used the whole connect time-out.
            let limit = if source.is_timeout() { 0 } else { policy.retries.min(2) };
            count(&mut attempts.failed, limit).map(|n| grow(policy.first, policy.cap, n))
        }
        RedfishError::Broken { .. } if repeat == Repeat::Always => {
            // One repetition at once on a new connection: HPE resets reused ones.
            count(&mut attempts.broken, 1).map(|_| Duration::ZERO)
        }
        RedfishError::TimedOut { .. } if repeat == Repeat::Always => {
            count(&mut attempts.broken, 1).map(|n| grow(policy.first, policy.cap, n))
        }
        RedfishError::Status { detail, .. } if detail.is_session_limit() => None,
        RedfishError::Status {
            detail, retry_after, ..
        } if detail.is_busy() => count(&mut attempts.busy, policy.busy_retries).map(|n| {
            retry_after.map_or(grow(policy.busy_first, policy.busy_cap, n), |requested_pause| {
                requested_pause.min(policy.retry_after_cap)
            })
        }),
        RedfishError::Status {
            status: 429 | 503,
            retry_after: Some(requested_pause),
            ..
        } => count(&mut attempts.failed, policy.retries).map(|_| (*requested_pause).min(policy.retry_after_cap)),
        RedfishError::Status {
            status: 429 | 500 | 502..=504,
            ..
        } if repeat == Repeat::Always => {
            count(&mut attempts.failed, policy.retries).map(|n| grow(policy.first, policy.cap, n))
        }
        _ => None,
    }
}

/// The pause that `Retry-After` requests: seconds, or a date relative to the answer's own `Date`. The clocks of BMCs are
/// years off, so a date without a `Date` header is ignored.
pub(crate) fn requested_pause(retry_after: &str, date: Option<&str>) -> Option<Duration> {
    let text = retry_after.trim();
    if let Ok(seconds) = text.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let until = httpdate::parse_http_date(text).ok()?;
    let since = httpdate::parse_http_date(date?.trim()).ok()?;
    Some(until.duration_since(since).unwrap_or_default())
}

/// Spreads a pause over 50 to 150 % of itself.
pub fn spread(pause: Duration, jitter: f64) -> Duration {
    pause.mul_f64(0.5 + jitter.clamp(0.0, 1.0))
}

/// `first · 2^n`, at most `cap`.
pub fn grow(first: Duration, cap: Duration, n: u32) -> Duration {
    first.saturating_mul(1_u32.checked_shl(n).unwrap_or(u32::MAX)).min(cap)
}

fn count(used: &mut u32, limit: u32) -> Option<u32> {
    let n = *used;
    *used += 1;
    (n < limit).then_some(n)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Exchange;
    use crate::extended::{BmcMessage, BmcMessages};

    fn status(status: u16, id: &str, retry_after_s: Option<u64>) -> RedfishError {
        let at = Box::new(Exchange {
            bmc: "b".into(),
            method: "GET".into(),
            path: "/".into(),
        });
        let detail = BmcMessages(vec![BmcMessage {
            id: id.into(),
            text: String::new(),
            link: String::new(),
        }]);
        RedfishError::Status {
            at,
            status,
            detail,
            retry_after: retry_after_s.map(Duration::from_secs),
        }
    }

    fn pauses(repeat: Repeat, failure: &RedfishError) -> Vec<u64> {
        let mut attempts = Attempts::default();
        let policy = RetryPolicy::default();
        let next = || next_pause(&policy, repeat, &mut attempts, failure).map(|pause| pause.as_millis() as u64);
        std::iter::from_fn(next).take(20).collect()
    }

    #[test]
    fn repeated_requests_and_their_pauses() {
        for (repeat, failure, expected) in [
            (Repeat::Always, status(500, "", None), vec![500, 1000, 2000]),
            (Repeat::Always, status(503, "", Some(3)), vec![3000; 3]),
            (Repeat::Always, status(503, "", Some(9999)), vec![60_000; 3]),
            (Repeat::IfRefused, status(503, "", Some(3)), vec![3000; 3]),
            (Repeat::IfRefused, status(503, "", None), vec![]),
            (Repeat::IfRefused, status(500, "", None), vec![]),
            (
                Repeat::IfRefused,
                status(400, "IDRAC.2.7.SYS518", None),
                vec![5000, 10_000, 20_000, 30_000, 30_000, 30_000],
            ),
            (Repeat::Never, status(400, "IDRAC.2.7.SYS518", None), vec![]),
            (Repeat::Always, status(503, "IDRAC.2.7.RAC0218", Some(3)), vec![]),
            (Repeat::Always, status(404, "", None), vec![]),
            (Repeat::Always, status(501, "", None), vec![]),
        ] {
            assert_eq!(pauses(repeat, &failure), expected, "{failure} {repeat:?}");
        }
    }

    #[test]
    fn retry_after_is_in_seconds_or_a_date_by_the_clock_of_the_bmc() {
        let date = Some("Thu, 01 Jan 1970 00:00:10 GMT");
        for (text, date, expected) in [
            (" 7 ", None, Some(7)),
            ("Thu, 01 Jan 1970 00:00:40 GMT", date, Some(30)),
            ("Thursday, 01-Jan-70 00:00:40 GMT", date, Some(30)),
            ("Thu, 01 Jan 1970 00:00:01 GMT", date, Some(0)),
            ("Thu, 01 Jan 1970 00:00:40 GMT", None, None),
            ("Thu, 01 Jan 1970 00:00:40 GMT", Some("yesterday"), None),
            ("-1", date, None),
            ("1e9", date, None),
            ("soon", date, None),
            ("", date, None),
            ("18446744073709551615", None, Some(u64::MAX)),
        ] {
            assert_eq!(
                requested_pause(text, date),
                expected.map(Duration::from_secs),
                "{text} {date:?}"
            );
        }
    }

    #[test]
    fn pauses_are_spread_and_bounded() {
        let pause = Duration::from_secs(10);
        assert_eq!(spread(pause, 0.0), Duration::from_secs(5));
        assert_eq!(spread(pause, 1.0), Duration::from_secs(15));
        assert_eq!(grow(pause, Duration::from_secs(30), 60), Duration::from_secs(30));
    }
}
