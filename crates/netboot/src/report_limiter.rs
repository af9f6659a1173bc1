//! Limits how often a recurring problem is reported.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// A cause is reported again only after this time.
const REPEAT_PERIOD: Duration = Duration::from_secs(60);
/// Number of causes reported within [`REPEAT_PERIOD`]. The limit keeps a flood of forged senders from filling the log.
const MAX_CAUSES: usize = 64;

/// The reported causes and the times of their reports.
#[derive(Debug)]
pub(crate) struct ReportLimiter<K>(Mutex<HashMap<K, Instant>>);

impl<K> Default for ReportLimiter<K> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Eq + Hash> ReportLimiter<K> {
    /// Whether this cause is due for a report. If so, records the report.
    pub(crate) fn is_due(&self, cause: K, now: Instant) -> bool {
        let Ok(mut reported) = self.0.lock() else { return false };
        reported.retain(|_, at| now.duration_since(*at) < REPEAT_PERIOD);
        if reported.contains_key(&cause) || reported.len() >= MAX_CAUSES {
            return false;
        }
        reported.insert(cause, now);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_is_reported_once_a_minute_and_a_flood_is_bounded() {
        let report_limiter = ReportLimiter::default();
        let now = Instant::now();
        assert!(report_limiter.is_due(0, now));
        assert!(!report_limiter.is_due(0, now + Duration::from_secs(59)));
        assert_eq!(
            (1..1000).filter(|cause| report_limiter.is_due(*cause, now)).count(),
            MAX_CAUSES - 1
        );
        assert!(report_limiter.is_due(0, now + Duration::from_secs(60)));
    }
}
