//! When a machine in use may be disturbed.

use serde::{Deserialize, Serialize};

use crate::time::Timestamp;

const SECOND: i64 = 1_000_000;
const MINUTE: i64 = 60 * SECOND;
const DAY: i64 = 24 * 60 * MINUTE;
const WEEK: i64 = 7 * DAY;
/// 1 January 1970 was a Thursday: the first Monday began this much later.
const FIRST_MONDAY: i64 = 4 * DAY;

/// A span that recurs each week, in UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Weekly {
    /// Day of the week; 0 is Monday.
    pub day: u8,
    /// Minutes after midnight.
    pub start_min: u16,
    /// Duration in minutes; it may go beyond midnight.
    pub minutes: u16,
}

/// A span of time, `[from, to)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Span {
    /// First moment.
    pub from: Timestamp,
    /// First moment after the span.
    pub to: Timestamp,
}

/// When a machine may be disturbed. Empty: never.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MaintenanceWindow {
    /// Each week.
    pub weekly: Vec<Weekly>,
    /// Spans that do not recur.
    pub once: Vec<Span>,
}

impl Weekly {
    /// The spans of this week and of the week before, which may still be open.
    fn around(self, now: Timestamp) -> [Span; 2] {
        let week = (now.0 - FIRST_MONDAY).div_euclid(WEEK);
        [week - 1, week].map(|week| self.of_week(week))
    }

    fn of_week(self, week: i64) -> Span {
        let from = FIRST_MONDAY + week * WEEK + i64::from(self.day) * DAY + i64::from(self.start_min) * MINUTE;
        Span {
            from: Timestamp(from),
            to: Timestamp(from + i64::from(self.minutes) * MINUTE),
        }
    }
}

impl MaintenanceWindow {
    /// The end of the open span, if a span is open at `now`.
    #[must_use]
    pub fn open_until(&self, now: Timestamp) -> Option<Timestamp> {
        let weekly = self.weekly.iter().flat_map(|one| one.around(now));
        let all = weekly.chain(self.once.iter().copied());
        all.filter(|span| span.from <= now && now < span.to)
            .map(|span| span.to)
            .max()
    }

    /// When the next span opens, after `now`.
    #[must_use]
    pub fn opens_after(&self, now: Timestamp) -> Option<Timestamp> {
        let week = (now.0 - FIRST_MONDAY).div_euclid(WEEK);
        let weekly = self
            .weekly
            .iter()
            .flat_map(|one| [one.of_week(week).from, one.of_week(week + 1).from]);
        let once = self.once.iter().map(|span| span.from);
        weekly.chain(once).filter(|from| *from > now).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sunday 22 November 2026, 23:30 UTC.
    const SUNDAY: Timestamp = Timestamp(1_795_390_200 * SECOND);

    #[test]
    fn a_week_has_its_days() {
        let window = MaintenanceWindow {
            weekly: vec![Weekly {
                day: 6,
                start_min: 23 * 60,
                minutes: 120,
            }],
            once: Vec::new(),
        };
        assert_eq!(window.open_until(SUNDAY), Some(SUNDAY.plus(90 * MINUTE)));
        let monday = SUNDAY.plus(60 * MINUTE);
        assert_eq!(
            window.open_until(monday),
            Some(SUNDAY.plus(90 * MINUTE)),
            "beyond midnight"
        );
        assert_eq!(window.open_until(SUNDAY.plus(90 * MINUTE)), None);
        assert_eq!(window.opens_after(SUNDAY), Some(SUNDAY.plus(WEEK - 30 * MINUTE)));
        assert_eq!(
            window.opens_after(SUNDAY.plus(-31 * MINUTE)),
            Some(SUNDAY.plus(-30 * MINUTE))
        );
    }

    #[test]
    fn once_is_once_and_none_is_never() {
        let span = Span {
            from: SUNDAY,
            to: SUNDAY.plus(MINUTE),
        };
        let window = MaintenanceWindow {
            weekly: Vec::new(),
            once: vec![span],
        };
        assert_eq!(window.opens_after(SUNDAY.plus(-1)), Some(SUNDAY));
        assert_eq!(window.open_until(SUNDAY), Some(span.to));
        assert_eq!((window.open_until(span.to), window.opens_after(SUNDAY)), (None, None));
        let never = MaintenanceWindow::default();
        assert_eq!((never.open_until(SUNDAY), never.opens_after(SUNDAY)), (None, None));
    }
}
