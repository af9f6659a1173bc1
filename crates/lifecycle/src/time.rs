//! Points and spans of time as plain numbers.

use serde::{Deserialize, Serialize};

/// Microseconds since 1970-01-01 00:00 UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(pub i64);

impl Timestamp {
    /// Later than everything that happens.
    pub const END: Self = Self(i64::MAX);

    /// The point `span_us` microseconds later.
    #[must_use]
    pub fn plus(self, span_us: i64) -> Self {
        Self(self.0.saturating_add(span_us))
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
