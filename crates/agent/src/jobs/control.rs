//! Control and progress of a running job.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rackwright_api::v1::{JobError, JobProgress};
use tokio::sync::Notify;

/// Minimum time between two progress reports in a step.
const PROGRESS_PERIOD: Duration = Duration::from_millis(500);

const RUNNING: u8 = 0;
const CANCELLED: u8 = 1;
const LATE: u8 = 2;
const ABANDONED: u8 = 3;

/// Why a job must end early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The control plane cancelled the job.
    Cancelled,
    /// The `deadline_s` of the job has passed.
    Deadline,
    /// The agent ends.
    Abandoned,
}

impl Stop {
    /// The error for the report: code `cancelled`, `deadline` or `interrupted`.
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

/// State shared by a job's thread and the desk.
pub struct JobControl {
    stop: AtomicU8,
    flag: Arc<AtomicBool>,
    told: Notify,
    rests: Mutex<Vec<Rest>>,
    progress: Mutex<Progress>,
    changed: Box<dyn Fn() + Send + Sync>,
}

/// Work that hardware completes after its call: the remaining time, and the function that applies the result.
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
    /// `changed` is called for new progress, at most twice a second and at each new step.
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

    /// A control without a listener.
    pub fn unheard() -> Self {
        Self::new(|| {})
    }

    /// Requests the end of the job. Only the first reason is stored.
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

    /// The reason why the job must end, if any.
    pub fn stopped(&self) -> Option<Stop> {
        match self.stop.load(Ordering::SeqCst) {
            CANCELLED => Some(Stop::Cancelled),
            LATE => Some(Stop::Deadline),
            ABANDONED => Some(Stop::Abandoned),
            _ => None,
        }
    }

    /// Call this between two pieces of work.
    ///
    /// # Errors
    /// The job must end.
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

    /// Registers work that hardware completes after its call: it takes another `time`, then `end` applies the result,
    /// unless the job is stopped before. For simulated hardware, which so occupies no thread; real hardware completes
    /// within the call.
    pub fn outlasts(&self, time: Duration, end: impl FnOnce() + Send + 'static) {
        let mut rests = self.rests.lock().unwrap_or_else(PoisonError::into_inner);
        rests.push((time, Box::new(end)));
    }

    /// Waits for all registered work at the same time.
    ///
    /// # Errors
    /// The job must end before.
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

    /// A flag that becomes true when the job must end; for libraries that accept a flag.
    pub fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.flag)
    }

    /// Starts a step of `total` bytes (0: not measured in bytes).
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

    /// Sets the progress of a job with parallel parts: text, bytes done, and total bytes. The rate covers the time since
    /// the last change of the total.
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

    /// Sets the progress of work that measures its own rate: image bytes done and in total, bytes written to the drive, and
    /// bytes per second.
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

    /// Appends a remark for people to the step's name: an irregularity that is not a failure.
    pub fn remark(&self, text: &str) {
        self.update(|shown| {
            shown.step.push_str("; ");
            shown.step.push_str(text);
        });
    }

    /// The progress for the report.
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
