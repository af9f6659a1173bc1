//! Control and progress of a running job.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rackwright_api::v1::{JobError, JobProgress};
use tokio::sync::Notify;

/// Minimum time between two progress reports in a step.
const REPORT_PERIOD: Duration = Duration::from_millis(500);

const RUNNING: u8 = 0;
const CANCELLED: u8 = 1;
const LATE: u8 = 2;
const ABANDONED: u8 = 3;

/// Why a job must end early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopReason {
    /// The control plane cancelled the job.
    Cancelled,
    /// The `deadline_s` of the job has passed.
    Deadline,
    /// The agent ends.
    Abandoned,
}

impl StopReason {
    /// The error for the report: code `cancelled`, `deadline` or `interrupted`.
    pub fn error(self, doing: &str) -> JobError {
        let (code, why) = match self {
            Self::Cancelled => ("cancelled", "the control plane cancelled the job"),
            Self::Deadline => ("deadline", "the job's deadline passed"),
            Self::Abandoned => ("interrupted", "the agent ended"),
        };
        JobError {
            code: code.into(),
            message: format!("{why} during: {doing}"),
            retryable: true,
        }
    }
}

/// State that a job's thread and the job runner share.
pub struct JobControl {
    stop: AtomicU8,
    flag: Arc<AtomicBool>,
    notify: Notify,
    pending: Mutex<Vec<PendingWork>>,
    progress: Mutex<Progress>,
    changed: Box<dyn Fn() + Send + Sync>,
}

/// Work that hardware completes after its call: the remaining time, and the function that applies the result.
type PendingWork = (Duration, Box<dyn FnOnce() + Send>);

#[derive(Debug)]
struct Progress {
    reported: JobProgress,
    step_began: Instant,
    done_before: u64,
    reported_at: Option<Instant>,
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
            reported: JobProgress::default(),
            step_began: Instant::now(),
            done_before: 0,
            reported_at: None,
        };
        let flag = Arc::new(AtomicBool::new(false));
        Self {
            stop: AtomicU8::new(RUNNING),
            flag,
            notify: Notify::new(),
            pending: Mutex::default(),
            progress: Mutex::new(progress),
            changed: Box::new(changed),
        }
    }

    /// A control without a listener.
    pub fn without_listener() -> Self {
        Self::new(|| {})
    }

    /// Requests the end of the job. Only the first reason is stored.
    pub fn stop(&self, why: StopReason) {
        let why = match why {
            StopReason::Cancelled => CANCELLED,
            StopReason::Deadline => LATE,
            StopReason::Abandoned => ABANDONED,
        };
        let _ = self
            .stop
            .compare_exchange(RUNNING, why, Ordering::SeqCst, Ordering::SeqCst);
        self.flag.store(true, Ordering::SeqCst);
        self.notify.notify_waiters();
    }

    /// The reason why the job must end, if any.
    pub fn stopped(&self) -> Option<StopReason> {
        match self.stop.load(Ordering::SeqCst) {
            CANCELLED => Some(StopReason::Cancelled),
            LATE => Some(StopReason::Deadline),
            ABANDONED => Some(StopReason::Abandoned),
            _ => None,
        }
    }

    /// Call this between two pieces of work.
    ///
    /// # Errors
    /// The job must end.
    pub fn check(&self) -> Result<(), StopReason> {
        self.stopped().map_or(Ok(()), Err)
    }

    /// Waits until the job must end.
    pub async fn wait_for_stop(&self) -> StopReason {
        loop {
            let notify = self.notify.notified();
            tokio::pin!(notify);
            notify.as_mut().enable();
            if let Some(stop) = self.stopped() {
                return stop;
            }
            notify.await;
        }
    }

    /// Registers work that hardware completes after its call: it takes another `time`, then `end` applies the result,
    /// unless the job is stopped before. For simulated hardware, which so occupies no thread; real hardware completes
    /// within the call.
    pub fn complete_later(&self, time: Duration, end: impl FnOnce() + Send + 'static) {
        let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        pending.push((time, Box::new(end)));
    }

    /// Waits for all registered work at the same time.
    ///
    /// # Errors
    /// The job must end before.
    pub async fn settle(&self) -> Result<(), StopReason> {
        let pending = std::mem::take(&mut *self.pending.lock().unwrap_or_else(PoisonError::into_inner));
        let Some(longest) = pending.iter().map(|(time, _)| *time).max() else {
            return Ok(());
        };
        tokio::select! {
            () = tokio::time::sleep(longest) => {}
            stop = self.wait_for_stop() => return Err(stop),
        }
        pending.into_iter().for_each(|(_, end)| end());
        Ok(())
    }

    /// A flag that becomes true when the job must end; for libraries that accept a flag.
    pub fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.flag)
    }

    /// Starts a step of `total` bytes (0: not measured in bytes).
    pub fn step(&self, name: impl Into<String>, total: u64) {
        let mut progress = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
        progress.reported = JobProgress {
            step: name.into(),
            logical_bytes_total: total,
            ..JobProgress::default()
        };
        progress.step_began = Instant::now();
        progress.reported_at = Some(Instant::now());
        drop(progress);
        (self.changed)();
    }

    /// Sets the progress of a job with parallel parts: text, bytes done, and total bytes. The rate covers the time since
    /// the last change of the total.
    pub fn report_total(&self, step: String, done: u64, total: u64) {
        let mut progress = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
        if progress.reported.logical_bytes_total != total {
            progress.step_began = Instant::now();
            progress.done_before = done;
        }
        let elapsed_ms = progress.step_began.elapsed().as_millis().max(1);
        let rate = u128::from(done.saturating_sub(progress.done_before)) * 1000 / elapsed_ms;
        drop(progress);
        self.update(|reported| {
            reported.bytes_per_second = u64::try_from(rate).unwrap_or(u64::MAX);
            reported.step = step;
            reported.logical_bytes = done;
            reported.real_bytes = done;
            reported.logical_bytes_total = total;
        });
    }

    /// Sets the progress of work that measures its own rate: image bytes done and in total, bytes written to the drive, and
    /// bytes per second.
    pub fn report_measured(&self, step: String, (logical, total): (u64, u64), real: u64, rate: u64) {
        self.update(|reported| {
            *reported = JobProgress {
                step,
                logical_bytes: logical,
                logical_bytes_total: total,
                real_bytes: real,
                bytes_per_second: rate,
            };
        });
    }

    /// Appends a remark for people to the step's name: an irregularity that is not a failure.
    pub fn add_remark(&self, text: &str) {
        self.update(|reported| {
            reported.step.push_str("; ");
            reported.step.push_str(text);
        });
    }

    /// The progress for the report.
    pub fn progress(&self) -> JobProgress {
        self.progress
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .reported
            .clone()
    }

    fn update(&self, change: impl FnOnce(&mut JobProgress)) {
        let mut progress = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut progress.reported);
        if progress.reported_at.is_some_and(|at| at.elapsed() < REPORT_PERIOD) {
            return;
        }
        progress.reported_at = Some(Instant::now());
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
        let control = JobControl::without_listener();
        assert_eq!(control.check(), Ok(()));
        control.stop(StopReason::Deadline);
        control.stop(StopReason::Cancelled);
        assert_eq!(control.check(), Err(StopReason::Deadline));
        assert!(control.flag().load(Ordering::SeqCst));
    }

    #[tokio::test(start_paused = true)]
    async fn pending_work_completes_unless_stopped() {
        for stopped in [false, true] {
            let (control, ended) = (JobControl::without_listener(), Arc::new(AtomicUsize::new(0)));
            for seconds in [3, 20] {
                let ended = Arc::clone(&ended);
                let end = move || _ = ended.fetch_add(1, Ordering::SeqCst);
                control.complete_later(Duration::from_secs(seconds), end);
            }
            let begun = tokio::time::Instant::now();
            let (settle, ()) = tokio::join!(control.settle(), async {
                tokio::time::sleep(Duration::from_secs(5)).await;
                if stopped {
                    control.stop(StopReason::Abandoned);
                }
            });
            let (expected, seconds, count) = if stopped {
                (Err(StopReason::Abandoned), 5, 0)
            } else {
                (Ok(()), 20, 2)
            };
            assert_eq!((settle, begun.elapsed().as_secs()), (expected, seconds));
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
            control.report_total("write".into(), 10, 1000);
        }
        control.step("verify", 0);
        assert!(calls.load(Ordering::SeqCst) < 10);
        assert_eq!(control.progress().step, "verify");
        control.report_measured("write".into(), (7, 9), 3, 5);
        control.add_remark("and more");
        let reported = control.progress();
        assert_eq!(
            (reported.logical_bytes, reported.real_bytes, reported.step.as_str()),
            (7, 3, "write; and more")
        );
    }
}
