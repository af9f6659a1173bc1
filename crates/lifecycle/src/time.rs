//! Points and spans of time as plain numbers.

use serde::{Deserialize, Serialize};

/// Microseconds since 1970-01-01 00:00 UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(pub i64);

impl Timestamp {
    /// Later than every real moment.
    pub const END: Self = Self(i64::MAX);

    /// The point `span_us` microseconds later.
    #[must_use]
    pub fn plus(self, span_us: i64) -> Self {
        Self(self.0.saturating_add(span_us))
    }

    /// The date and time to the minute, such as "2026-11-24 05:47 UTC".
    #[must_use]
    pub fn date(self) -> String {
        const DAY_S: i64 = 24 * 60 * 60;
        let since = self.0.div_euclid(1_000_000);
        let (days, second) = (since.div_euclid(DAY_S), since.rem_euclid(DAY_S));
        // Years begin in March here, so that a leap day is the last day; each era of 400 years has the same number of days.
        let days = days + 719_468;
        let (era, day_of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
        let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month = (5 * day_of_year + 2) / 153;
        let day = day_of_year - (153 * month + 2) / 5 + 1;
        let month = if month < 10 { month + 3 } else { month - 9 };
        let year = year_of_era + era * 400 + i64::from(month <= 2);
        let (hour, minute) = (second / 3_600, second / 60 % 60);
        format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02} UTC")
    }

    /// Microseconds from `earlier` to this point; negative if `earlier` is in fact later.
    #[must_use]
    pub fn since(self, earlier: Self) -> i64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// `n` seconds in microseconds.
#[must_use]
pub const fn seconds(n: i64) -> i64 {
    n * 1_000_000
}

/// `n` minutes in microseconds.
#[must_use]
pub const fn minutes(n: i64) -> i64 {
    seconds(60 * n)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates() {
        for (at_s, date) in [
            (0, "1970-01-01 00:00 UTC"),
            (-1, "1969-12-31 23:59 UTC"),
            (951_782_400, "2000-02-29 00:00 UTC"),
            (1_709_251_199, "2024-02-29 23:59 UTC"),
            (1_735_689_599, "2024-12-31 23:59 UTC"),
            (1_795_499_220, "2026-11-24 05:47 UTC"),
        ] {
            assert_eq!(Timestamp(seconds(at_s)).date(), date);
        }
    }
}
