//! The fleet's time, and the one timer that wakes whichever machine is due next.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Time as the machines have it: milliseconds since the fleet started, faster or slower than the world's.
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

    /// How long the world has to wait for a moment of the machines.
    pub(super) fn until(self, due_ms: u64) -> Duration {
        self.lasts(Duration::from_millis(due_ms.saturating_sub(self.now_ms())))
    }

    /// How long a span of the machines lasts in the world.
    pub(super) fn lasts(self, span: Duration) -> Duration {
        span.div_f64(self.speed)
    }
}

/// Who is due when. A machine may be in it more than once: one that is woken without need goes on sleeping.
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
                // A millisecond more, so that rounding never wakes too early again and again.
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
    async fn the_next_one_comes_first_in_whatever_order_they_were_set() {
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
