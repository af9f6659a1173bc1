//! What a running job is steered by and reports its progress to.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rackwright_api::v1::{JobError, JobProgress};
use tokio::sync::Notify;

/// Progress is passed on at most this often.
const PROGRESS_PERIOD: Duration = Duration::from_millis(500);

const RUNNING: u8 = 0;
const CANCELLED: u8 = 1;
const LATE: u8 = 2;
const ABANDONED: u8 = 3;

/// Why a job must end early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The control plane asked for it.
    Cancelled,
    /// Its `deadline_s` has passed.
    Deadline,
    /// The agent ends.
    Abandoned,
}

impl Stop {
    /// The report's error: code `cancelled`, `deadline` or `interrupted`.
    pub fn error(self, doing: &str) -> JobError {
        let (code, why) = match self {
            Self::Cancelled => ("cancelled", "the control plane cancelled it"),
            Self::Deadline => ("deadline", "its deadline passed"),
            Self::Abandoned => ("interrupted", "the agent ended"),
        };
        JobError {
            code: code.into(),
            message: format!("{why} during: {doing}"),
            retryable: true,
        }
    }
}

/// Shared by a job's thread and the desk.
pub struct JobControl {
    stop: AtomicU8,
    flag: Arc<AtomicBool>,
    told: Notify,
    rests: Mutex<Vec<Rest>>,
    progress: Mutex<Progress>,
    changed: Box<dyn Fn() + Send + Sync>,
}

/// What is left for hardware to do by itself: how long it takes, and what is so then.
type Rest = (Duration, Box<dyn FnOnce() + Send>);

#[derive(Debug)]
struct Progress {
    shown: JobProgress,
    step_began: Instant,
    done_before: u64,
    passed_on: Option<Instant>,
}

impl std::fmt::Debug for JobControl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("JobControl")
            .field("stop", &self.stop)
            .field("progress", &self.progress)
            .finish_non_exhaustive()
    }
}

impl JobControl {
    /// `changed` is called when there is progress to pass on, at most twice a second and at each new step.
    pub fn new(changed: impl Fn() + Send + Sync + 'static) -> Self {
        let progress = Progress {
            shown: JobProgress::default(),
            step_began: Instant::now(),
            done_before: 0,
            passed_on: None,
        };
        let flag = Arc::new(AtomicBool::new(false));
        Self {
            stop: AtomicU8::new(RUNNING),
            flag,
            told: Notify::new(),
            rests: Mutex::default(),
            progress: Mutex::new(progress),
            changed: Box::new(changed),
        }
    }

    /// One that nobody listens to.
    pub fn unheard() -> Self {
        Self::new(|| {})
    }

    /// Asks the job to end; the first reason counts.
    pub fn stop(&self, why: Stop) {
        let why = match why {
            Stop::Cancelled => CANCELLED,
            Stop::Deadline => LATE,
            Stop::Abandoned => ABANDONED,
        };
        let _ = self
            .stop
            .compare_exchange(RUNNING, why, Ordering::SeqCst, Ordering::SeqCst);
        self.flag.store(true, Ordering::SeqCst);
        self.told.notify_waiters();
    }

    /// Why the job must end, if it must.
    pub fn stopped(&self) -> Option<Stop> {
        match self.stop.load(Ordering::SeqCst) {
            CANCELLED => Some(Stop::Cancelled),
            LATE => Some(Stop::Deadline),
            ABANDONED => Some(Stop::Abandoned),
            _ => None,
        }
    }

    /// To be called between two pieces of work.
    ///
    /// # Errors
    /// When the job must end.
    pub fn check(&self) -> Result<(), Stop> {
        self.stopped().map_or(Ok(()), Err)
    }

    /// Waits until the job must end.
    pub async fn stopping(&self) -> Stop {
        loop {
            let told = self.told.notified();
            tokio::pin!(told);
            told.as_mut().enable();
            if let Some(stop) = self.stopped() {
                return stop;
            }
            told.await;
        }
    }

    /// Hardware that is not through when its call returns: it takes `time` more, and then `end` is so, unless the job is
    /// stopped before. Simulated hardware occupies no thread by this; the real one takes its time within the call.
    pub fn outlasts(&self, time: Duration, end: impl FnOnce() + Send + 'static) {
        let mut rests = self.rests.lock().unwrap_or_else(PoisonError::into_inner);
        rests.push((time, Box::new(end)));
    }

    /// Waits for what outlasts its call, all of it side by side.
    ///
    /// # Errors
    /// When the job must end before.
    pub async fn rest(&self) -> Result<(), Stop> {
        let rests = std::mem::take(&mut *self.rests.lock().unwrap_or_else(PoisonError::into_inner));
        let Some(longest) = rests.iter().map(|(time, _)| *time).max() else {
            return Ok(());
        };
        tokio::select! {
            () = tokio::time::sleep(longest) => {}
            stop = self.stopping() => return Err(stop),
        }
        rests.into_iter().for_each(|(_, end)| end());
        Ok(())
    }

    /// Becomes true when the job must end; for libraries that take a flag.
    pub fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.flag)
    }

    /// Begins a step of `total` bytes (0: not measured in bytes).
    pub fn step(&self, name: impl Into<String>, total: u64) {
        let mut progress = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
        progress.shown = JobProgress {
            step: name.into(),
            logical_bytes_total: total,
            ..JobProgress::default()
        };
        progress.step_began = Instant::now();
        progress.passed_on = Some(Instant::now());
        drop(progress);
        (self.changed)();
    }

    /// The state of a job whose parts go on side by side: text, and bytes done and in all. The rate is taken over the time
    /// since the total last changed.
    pub fn overall(&self, step: String, done: u64, total: u64) {
        let mut progress = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
        if progress.shown.logical_bytes_total != total {
            progress.step_began = Instant::now();
            progress.done_before = done;
        }
        let elapsed_ms = progress.step_began.elapsed().as_millis().max(1);
        let rate = u128::from(done.saturating_sub(progress.done_before)) * 1000 / elapsed_ms;
        drop(progress);
        self.update(|shown| {
            shown.bytes_per_second = u64::try_from(rate).unwrap_or(u64::MAX);
            shown.step = step;
            shown.logical_bytes = done;
            shown.real_bytes = done;
            shown.logical_bytes_total = total;
        });
    }

    /// The state of work that measures its own rate: bytes done and in all as they count for the reader, bytes as they
    /// went to the drive, and bytes a second.
    pub fn measured(&self, step: String, (logical, total): (u64, u64), real: u64, rate: u64) {
        self.update(|shown| {
            *shown = JobProgress {
                step,
                logical_bytes: logical,
                logical_bytes_total: total,
                real_bytes: real,
                bytes_per_second: rate,
            };
        });
    }

    /// Words for people at the end of the step's name: what did not go as it should and is no failure.
    pub fn remark(&self, text: &str) {
        self.update(|shown| {
            shown.step.push_str("; ");
            shown.step.push_str(text);
        });
    }

    /// The progress as the report carries it.
    pub fn progress(&self) -> JobProgress {
        self.progress
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .shown
            .clone()
    }

    fn update(&self, change: impl FnOnce(&mut JobProgress)) {
        let mut progress = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut progress.shown);
        if progress.passed_on.is_some_and(|at| at.elapsed() < PROGRESS_PERIOD) {
            return;
        }
        progress.passed_on = Some(Instant::now());
        drop(progress);
        (self.changed)();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[test]
    fn the_first_reason_to_stop_counts() {
        let control = JobControl::unheard();
        assert_eq!(control.check(), Ok(()));
        control.stop(Stop::Deadline);
        control.stop(Stop::Cancelled);
        assert_eq!(control.check(), Err(Stop::Deadline));
        assert!(control.flag().load(Ordering::SeqCst));
    }

    #[tokio::test(start_paused = true)]
    async fn what_outlasts_its_call_ends_in_time_or_not_at_all() {
        for stopped in [false, true] {
            let (control, ended) = (JobControl::unheard(), Arc::new(AtomicUsize::new(0)));
            for seconds in [3, 20] {
                let ended = Arc::clone(&ended);
                let end = move || _ = ended.fetch_add(1, Ordering::SeqCst);
                control.outlasts(Duration::from_secs(seconds), end);
            }
            let begun = tokio::time::Instant::now();
            let (rest, ()) = tokio::join!(control.rest(), async {
                tokio::time::sleep(Duration::from_secs(5)).await;
                if stopped {
                    control.stop(Stop::Abandoned);
                }
            });
            let (expected, seconds, count) = if stopped {
                (Err(Stop::Abandoned), 5, 0)
            } else {
                (Ok(()), 20, 2)
            };
            assert_eq!((rest, begun.elapsed().as_secs()), (expected, seconds));
            assert_eq!(ended.load(Ordering::SeqCst), count);
        }
    }

    #[test]
    fn progress_is_passed_on_seldom_and_steps_at_once() {
        let calls = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&calls);
        let control = JobControl::new(move || {
            counted.fetch_add(1, Ordering::SeqCst);
        });
        control.step("write", 1000);
        for _ in 0..100 {
            control.overall("write".into(), 10, 1000);
        }
        control.step("verify", 0);
        assert!(calls.load(Ordering::SeqCst) < 10);
        assert_eq!(control.progress().step, "verify");
        control.measured("write".into(), (7, 9), 3, 5);
        control.remark("and more");
        let shown = control.progress();
        assert_eq!(
            (shown.logical_bytes, shown.real_bytes, shown.step.as_str()),
            (7, 3, "write; and more")
        );
    }
}
