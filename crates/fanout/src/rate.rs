//! How fast messages of one sender are taken.

use crate::units::{Moment, Span};

/// A limit of messages in the long run, and of messages that may come at once after a pause.
#[derive(Debug, Clone)]
pub struct MessageRate {
    each: Span,
    at_once: u64,
    /// When the messages so far are paid for.
    paid: Moment,
}

impl MessageRate {
    /// A limit of `per_second` messages in the long run, of which `at_once` may come at the same time.
    #[must_use]
    pub const fn new(per_second: u64, at_once: u64) -> Self {
        let per_second = if per_second == 0 { 1 } else { per_second };
        Self {
            each: Span::micros(1_000_000 / per_second),
            at_once: if at_once == 0 { 1 } else { at_once },
            paid: Moment::micros(0),
        }
    }

    /// A message came. Returns how long it waits.
    pub fn take(&mut self, now: Moment) -> Span {
        let from = self.paid.max(now);
        self.paid = from.plus(self.each);
        let free = self.each.times(self.at_once - 1);
        from.since(now.plus(free))
    }
}
