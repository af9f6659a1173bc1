//! Progress and speed of a write.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::work::Counters;

/// Time between two reports.
pub(super) const REPORT_PERIOD: Duration = Duration::from_millis(200);
/// Period over which the rate is measured.
const WINDOW: Duration = Duration::from_secs(3);

/// Step of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Claims the drive and removes the old content.
    Preparing,
    /// Fetches and writes chunks.
    Writing,
    /// Waits until all data is on the medium.
    Flushing,
    /// Reads the whole disk back.
    Verifying,
    /// The image is written.
    Done,
}

impl Step {
    /// Name of the step, for people and programs.
    pub const fn name(self) -> &'static str {
        match self {
            Step::Preparing => "preparing",
            Step::Writing => "writing",
            Step::Flushing => "flushing",
            Step::Verifying => "verifying",
            Step::Done => "done",
        }
    }
}

/// Progress of a write.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Progress {
    /// Current step.
    pub step: Step,
    /// Bytes of the image handled in this step: sent to the drive, or read back.
    pub logical_bytes: u64,
    /// Size of the image in bytes.
    pub logical_bytes_total: u64,
    /// Bytes fetched so far, index and repeated parts included.
    pub fetched_bytes: u64,
    /// Bytes written to the drive.
    pub written_bytes: u64,
    /// Bytes of the image per second, over the last three seconds.
    pub bytes_per_second: u64,
}

pub(super) struct Reporter<'a> {
    report: &'a dyn Fn(Progress),
    counters: &'a Counters,
    total: u64,
    step: Step,
    recent: VecDeque<(Instant, u64)>,
}

impl<'a> Reporter<'a> {
    pub(super) fn new(report: &'a dyn Fn(Progress), counters: &'a Counters, total: u64) -> Self {
        let mut reporter = Self {
            report,
            counters,
            total,
            step: Step::Preparing,
            recent: VecDeque::new(),
        };
        reporter.report();
        reporter
    }

    pub(super) fn step(&mut self, step: Step) {
        self.step = step;
        self.recent.clear();
        self.report();
    }

    pub(super) fn report(&mut self) {
        let counter = if self.step == Step::Verifying {
            &self.counters.verified
        } else {
            &self.counters.logical
        };
        // If samples after the drive's zeroing are not zero, the zeros are written again and counted twice.
        let logical_bytes = counter.load(Ordering::Relaxed).min(self.total);
        let bytes_per_second = self.rate(Instant::now(), logical_bytes);
        (self.report)(Progress {
            step: self.step,
            logical_bytes,
            logical_bytes_total: self.total,
            fetched_bytes: self.counters.traffic.fetched.load(Ordering::Relaxed),
            written_bytes: self.counters.written.load(Ordering::Relaxed),
            bytes_per_second,
        });
    }

    fn rate(&mut self, now: Instant, bytes: u64) -> u64 {
        self.recent.push_back((now, bytes));
        while self.recent.len() > 2 && now - self.recent[1].0 >= WINDOW {
            self.recent.pop_front();
        }
        let (since, before) = self.recent[0];
        let seconds = (now - since).as_secs_f64();
        if seconds > 0.0 {
            (bytes.saturating_sub(before) as f64 / seconds) as u64
        } else {
            0
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_covers_the_last_seconds() {
        let counters = Counters::default();
        let mut reporter = Reporter::new(&|_| {}, &counters, 1 << 40);
        reporter.recent.clear();
        let start = Instant::now();
        let at = |s: u64| start + Duration::from_secs(s);
        assert_eq!(reporter.rate(at(0), 0), 0);
        assert_eq!(reporter.rate(at(1), 1000), 1000);
        for second in 2..10 {
            reporter.rate(at(second), 1000 + (second - 1) * 100);
        }
        assert_eq!(reporter.rate(at(10), 1900), 100);
    }
}
