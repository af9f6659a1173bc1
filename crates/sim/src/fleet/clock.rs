//! The fleet's time, and the single timer that wakes the next machine that is due.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// The machines' time: milliseconds since the fleet started, faster or slower than real time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Clock {
    start: Instant,
    speed: f64,
}

impl Clock {
    pub(super) fn new(speed: f64) -> Self {
        Self {
            start: Instant::now(),
            speed,
        }
    }

    pub(super) fn now_ms(self) -> u64 {
        (self.start.elapsed().as_secs_f64() * self.speed * 1000.0) as u64
    }

    /// Real time until a moment of the machines' time.
    pub(super) fn until(self, due_ms: u64) -> Duration {
        self.lasts(Duration::from_millis(due_ms.saturating_sub(self.now_ms())))
    }

    /// Real duration of a span of the machines' time.
    pub(super) fn lasts(self, span: Duration) -> Duration {
        span.div_f64(self.speed)
    }
}

/// The due times of machines. A machine may have several entries; an unnecessary wake-up does no harm.
#[derive(Debug, Default)]
pub(super) struct Timers {
    due: Mutex<BinaryHeap<Reverse<(u64, u32)>>>,
    sooner: Notify,
}

impl Timers {
    fn due(&self) -> MutexGuard<'_, BinaryHeap<Reverse<(u64, u32)>>> {
        self.due.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes machine `node` at `due_ms`.
    pub(super) fn set(&self, due_ms: u64, node: u32) {
        let mut due = self.due();
        let first = due.peek().is_none_or(|Reverse((first_ms, _))| due_ms < *first_ms);
        due.push(Reverse((due_ms, node)));
        drop(due);
        if first {
            self.sooner.notify_one();
        }
    }

    /// Waits until a machine is due.
    pub(super) async fn next(&self, clock: Clock) -> u32 {
        loop {
            let first = self.due().peek().map(|Reverse((due_ms, _))| *due_ms);
            match first {
                Some(due_ms) if due_ms <= clock.now_ms() => {
                    if let Some(Reverse((_, node))) = self.due().pop() {
                        return node;
                    }
                }
                // One more millisecond, so that rounding does not repeatedly wake too early.
                Some(due_ms) => tokio::select! {
                    () = tokio::time::sleep(clock.until(due_ms) + Duration::from_millis(1)) => {}
                    () = self.sooner.notified() => {}
                },
                None => self.sooner.notified().await,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[tokio::test(start_paused = true)]
    async fn the_earliest_timer_comes_first_in_any_order() {
        let (timers, clock) = (Arc::new(Timers::default()), Clock::new(10.0));
        let start = Instant::now();
        for (due_ms, node) in [(30_000, 3), (10_000, 1), (20_000, 2)] {
            timers.set(due_ms, node);
        }
        let set_later = {
            let timers = Arc::clone(&timers);
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_millis(100)).await;
                timers.set(2000, 0);
            })
        };
        for (node, at_s) in [(0, 0.2), (1, 1.0), (2, 2.0), (3, 3.0)] {
            assert_eq!(timers.next(clock).await, node);
            let late = start.elapsed().as_secs_f64() - at_s;
            assert!((0.0..0.01).contains(&late), "machine {node} is {late} s late");
        }
        set_later.await.unwrap();
    }
}
