//! The job runner accepts jobs, checks them against the ledger, runs one at a time, and keeps reports until they are sent.
//!
//! Each job runs in its own thread. A task waits for it, enforces the deadline and records the outcome. A job that does not
//! end in time (a drive hangs in the kernel) is reported as failed, `deadline`. The job runner stays busy until its thread
//! ends, because no other job may touch the drives meanwhile.

use std::collections::BTreeSet;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rackwright_api::v1::job::Work;
use rackwright_api::v1::job_report::Result as JobResult;
use rackwright_api::v1::{CancelJob, EraseDrives, EraseDrivesResult, Job, JobError, JobReport, TpmClear};
use tokio::sync::Notify;
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use tracing::Instrument as _;

use super::control::{JobControl, StopReason};
use super::job_error;
use super::power::PowerAction;
use super::write::{self, Tools};
use super::writer::Credentials;
use crate::ledger::{self, Ledger, Verdict};
use crate::machine::Machine;
use crate::sharing::{PeerSetup, Sharing};

/// Deadline of a job without one.
const DEFAULT_DEADLINE: Duration = Duration::from_secs(24 * 3600);
/// Time between the deadline and the moment when the job runner gives up on the job.
const DEADLINE_GRACE: Duration = Duration::from_secs(60);
/// Time limit for sending the report of a power action.
const REPORT_TIMEOUT: Duration = Duration::from_secs(5);
/// Time for a sent report to leave the machine; it is not acknowledged.
const WIRE_TIME: Duration = Duration::from_millis(300);

/// Outcome of a successful job.
struct Success {
    result: Option<JobResult>,
    power_action: Option<PowerAction>,
}

/// Outcome of a failed job.
struct Failure {
    error: JobError,
    partial: Option<JobResult>,
}

impl From<JobError> for Box<Failure> {
    fn from(error: JobError) -> Self {
        Self::new(Failure { error, partial: None })
    }
}

/// Whether another job may begin after the report of this one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RunnerState {
    Free,
    Busy,
}

struct Running {
    operation: String,
    control: Arc<JobControl>,
}

struct Inner {
    ledger: Ledger,
    running: Option<Running>,
    outbox: BTreeSet<String>,
    credentials: Option<Credentials>,
}

/// The agent's jobs.
pub struct JobRunner {
    machine: Arc<Machine>,
    /// Goes on after the job of an image, until the next job.
    sharing: Arc<Sharing>,
    inner: Mutex<Inner>,
    changed: Notify,
    sent: Notify,
}

impl JobRunner {
    /// Creates a job runner with an open ledger.
    pub fn new(machine: Arc<Machine>, ledger: Ledger) -> Arc<Self> {
        let inner = Inner {
            ledger,
            running: None,
            outbox: BTreeSet::new(),
            credentials: None,
        };
        Arc::new(Self {
            machine,
            sharing: Arc::default(),
            inner: Mutex::new(inner),
            changed: Notify::new(),
            sent: Notify::new(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the agent serves to other agents.
    pub fn sharing(&self) -> &Arc<Sharing> {
        &self.sharing
    }

    /// Sets the credentials of jobs from now on.
    pub fn set_credentials(&self, credentials: Credentials) {
        self.sharing.set_credentials(credentials.clone());
        self.lock().credentials = Some(credentials);
    }

    /// Raises the known claim generation.
    pub fn raise_generation(&self, generation: u64) {
        self.lock().ledger.raise_generation(generation);
    }

    /// All reports and the highest generation, for the first message of a stream. They include the reports waiting to be
    /// sent.
    pub fn snapshot(&self) -> (Vec<JobReport>, u64) {
        let mut inner = self.lock();
        inner.outbox.clear();
        let reports = inner
            .ledger
            .reports()
            .map(|report| inner.with_progress(report))
            .collect();
        (reports, inner.ledger.generation())
    }

    /// Waits until there are reports to send.
    pub async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Takes the reports that changed since the last call.
    pub fn take(&self) -> Vec<JobReport> {
        let mut inner = self.lock();
        let unsent = std::mem::take(&mut inner.outbox);
        unsent
            .iter()
            .filter_map(|id| inner.ledger.report(id).map(|report| inner.with_progress(report)))
            .collect()
    }

    /// Notifies waiters that the taken reports are sent.
    pub fn sent(&self) {
        self.sent.notify_waiters();
    }

    /// Handles a job: starts it, refuses it, or reports its earlier outcome. The result is among the reports.
    pub fn submit(self: &Arc<Self>, job: Job) {
        let mut inner = self.lock();
        let running = inner.running.as_ref().map(|running| running.operation.clone());
        let operation = job.operation.clone();
        match inner.ledger.consider(&job, running.as_deref()) {
            Verdict::Answer(_) => {}
            Verdict::Refuse(error) => {
                tracing::warn!(operation, code = error.code, "job refused: {}", error.message);
                inner.record_report(ledger::refused_report(&job, error));
            }
            Verdict::Begin => match inner.ledger.record(ledger::begun_report(&job)) {
                Ok(()) => self.begin(&mut inner, job),
                Err(error) => inner.record_report(ledger::refused_report(
                    &job,
                    job_error("ledger-failed", error.to_string(), false),
                )),
            },
        }
        inner.outbox.insert(operation);
        drop(inner);
        self.changed.notify_one();
    }

    /// Requests the end of a running job.
    pub fn cancel(&self, cancel: &CancelJob) {
        let inner = self.lock();
        if let Some(running) = inner
            .running
            .as_ref()
            .filter(|running| running.operation == cancel.operation)
        {
            tracing::info!(operation = cancel.operation, "job cancelled");
            running.control.stop(StopReason::Cancelled);
        }
    }

    /// Stops the running job and ends what is served to other agents, because there is no agent left to report it.
    pub fn abandon(&self) {
        self.sharing.end();
        if let Some(running) = &self.lock().running {
            running.control.stop(StopReason::Abandoned);
        }
    }

    fn begin(self: &Arc<Self>, inner: &mut Inner, job: Job) {
        let operation = job.operation.clone();
        self.sharing.end();
        tracing::info!(operation, generation = job.claim_generation, "job begins");
        let (runner, id) = (Arc::downgrade(self), operation.clone());
        let control = Arc::new(JobControl::new(move || {
            let Some(runner) = runner.upgrade() else { return };
            runner.lock().outbox.insert(id.clone());
            runner.changed.notify_one();
        }));
        inner.running = Some(Running {
            operation: operation.clone(),
            control: Arc::clone(&control),
        });
        let credentials = inner.credentials.clone();
        tokio::spawn(Arc::clone(self).supervise(job, credentials, control).in_current_span());
    }

    /// Runs the job in a thread until it ends or the job runner gives up.
    async fn supervise(self: Arc<Self>, job: Job, credentials: Option<Credentials>, control: Arc<JobControl>) {
        let operation = job.operation.clone();
        let deadline = if job.deadline_s == 0 {
            DEFAULT_DEADLINE
        } else {
            Duration::from_secs(job.deadline_s.into())
        };
        let (machine, sharing) = (Arc::clone(&self.machine), Arc::clone(&self.sharing));
        let mut work = Box::pin(work(machine, sharing, job, credentials, Arc::clone(&control)));
        let mut ending = timeout(deadline, &mut work).await;
        if ending.is_err() {
            control.stop(StopReason::Deadline);
            ending = timeout(DEADLINE_GRACE, &mut work).await;
        }
        if let Ok(outcome) = ending {
            return self.finish(&operation, &control, outcome).await;
        }
        self.sharing.end();
        let mut error = StopReason::Deadline.error(&control.progress().step);
        error
            .message
            .push_str("; the job does not end, a drive may hang: power the machine off");
        self.record_outcome(&operation, &control, Err(error.into()), RunnerState::Busy);
        let _ = work.await;
        self.lock().running = None;
    }

    async fn finish(self: Arc<Self>, operation: &str, control: &JobControl, outcome: Result<Success, Box<Failure>>) {
        let power_action = outcome.as_ref().ok().and_then(|done| done.power_action);
        if outcome.is_ok() && power_action.is_none() {
            self.sharing.linger();
        } else {
            self.sharing.end();
        }
        let Some(action) = power_action else {
            return self.record_outcome(operation, control, outcome, RunnerState::Free);
        };
        // The machine is about to go down; no other job begins.
        self.record_outcome(operation, control, outcome, RunnerState::Busy);
        // The machine goes down even if the report is not sent in time.
        let _ = timeout(REPORT_TIMEOUT, self.wait_until_sent(operation)).await;
        tokio::time::sleep(WIRE_TIME).await;
        tracing::info!(?action, "the machine goes down");
        let machine = Arc::clone(&self.machine);
        let result = spawn_blocking(move || machine.power.perform(action)).await;
        if let Err(error) = result.unwrap_or_else(|panic| Err(io::Error::other(panic))) {
            tracing::error!("power action failed: {error}");
            self.lock().running = None;
        }
    }

    /// Waits until the report of an operation is sent.
    async fn wait_until_sent(&self, operation: &str) {
        loop {
            let sent = self.sent.notified();
            tokio::pin!(sent);
            sent.as_mut().enable();
            if !self.lock().outbox.contains(operation) {
                return;
            }
            sent.await;
        }
    }

    /// Records the outcome and queues its report. The job runner becomes free at the moment when the report becomes visible.
    fn record_outcome(
        &self,
        operation: &str,
        control: &JobControl,
        outcome: Result<Success, Box<Failure>>,
        after: RunnerState,
    ) {
        let mut inner = self.lock();
        let begun_report = inner.ledger.report(operation).cloned().unwrap_or_default();
        let begun_report = JobReport {
            operation: operation.to_owned(),
            progress: Some(control.progress()),
            ..begun_report
        };
        let report = match outcome {
            Ok(done) => ledger::ended_report(begun_report, Ok(done.result)),
            Err(failed) => JobReport {
                result: failed.partial,
                ..ledger::ended_report(begun_report, Err(failed.error))
            },
        };
        let (state, error) = (report.state(), report.error.clone().unwrap_or_default());
        tracing::info!(
            operation,
            state = state.as_str_name(),
            code = error.code,
            "job ended: {}",
            error.message
        );
        inner.record_report(report);
        if after == RunnerState::Free {
            inner.running = None;
        }
        inner.outbox.insert(operation.to_owned());
        drop(inner);
        self.changed.notify_one();
    }
}

impl Inner {
    /// Records a report. If the file fails, keeps it in memory, because the job has ended in any case.
    fn record_report(&mut self, report: JobReport) {
        if let Err(error) = self.ledger.record(report.clone()) {
            tracing::error!("{error}");
            self.ledger.keep_in_memory(report);
        }
    }

    fn with_progress(&self, report: &JobReport) -> JobReport {
        let mut report = report.clone();
        let is_running = report.state() == rackwright_api::v1::JobState::Running;
        if let Some(running) = self
            .running
            .as_ref()
            .filter(|running| is_running && running.operation == report.operation)
        {
            report.progress = Some(running.control.progress());
        }
        report
    }
}

/// Does the work in a thread, then waits for hardware that continues by itself.
async fn work(
    machine: Arc<Machine>,
    sharing: Arc<Sharing>,
    job: Job,
    credentials: Option<Credentials>,
    control: Arc<JobControl>,
) -> Result<Success, Box<Failure>> {
    let job_control = Arc::clone(&control);
    let done = spawn_blocking(move || perform(&machine, sharing, &job, credentials, &job_control)).await;
    let done = done.unwrap_or_else(|_| {
        let error = job_error(
            "internal",
            "the job's thread panicked; the console shows the place",
            true,
        );
        Err(error.into())
    })?;
    let settled = control.settle().await;
    settled.map_err(|stop| stop.error(&control.progress().step))?;
    Ok(done)
}

fn perform(
    machine: &Machine,
    sharing: Arc<Sharing>,
    job: &Job,
    credentials: Option<Credentials>,
    control: &JobControl,
) -> Result<Success, Box<Failure>> {
    let done = |result| {
        Ok(Success {
            result: Some(result),
            power_action: None,
        })
    };
    match &job.work {
        Some(Work::WriteImage(work)) => {
            let credentials =
                credentials.ok_or_else(|| job_error("internal", "the agent has no certificate yet", true))?;
            let tools = Tools {
                drives: &*machine.drives,
                writer: &*machine.writer,
                efivars: machine.host.efivars(),
                peers: work.peers.clone().map(|peers| PeerSetup {
                    peers,
                    operation: job.operation.clone(),
                    host: Arc::clone(&machine.host),
                    sharing,
                }),
            };
            let summary = write::write(&tools, work, job.claim_generation, credentials, control)?;
            done(JobResult::WriteImage(summary))
        }
        Some(Work::EraseDrives(work)) => done(JobResult::EraseDrives(erase(machine, work, control)?)),
        Some(Work::Reboot(work)) => match PowerAction::of(work.way()) {
            Some(action) => Ok(Success {
                result: None,
                power_action: Some(action),
            }),
            None => {
                let message = format!("{} is not offered by this agent; use a reset", work.way().as_str_name());
                Err(job_error("unsupported", message, false).into())
            }
        },
        None => Err(job_error("invalid-job", "the job contains no work", false).into()),
    }
}

/// Erases the drives, clears the TPM, and removes the agent's boot entries and the UEFI variables of the former system, as
/// far as the job requests it and the machine has them. If one of them fails, the job fails; its report names the erased
/// drives.
fn erase(machine: &Machine, work: &EraseDrives, control: &JobControl) -> Result<EraseDrivesResult, Box<Failure>> {
    let failed = |error, erased| {
        let partial = Some(JobResult::EraseDrives(erased));
        Box::new(Failure { error, partial })
    };
    let erased = machine.eraser.erase(&*machine.drives, work, control);
    let mut erased = erased.map_err(|f| failed(f.error, *f.erased))?;
    control.step("erased", 0);
    if work.clear_tpm {
        match machine.host.clear_tpm() {
            Ok(true) => erased.set_tpm(TpmClear::Cleared),
            Ok(false) => erased.set_tpm(TpmClear::NoTpm),
            Err(why) => {
                let message = format!(
                    "the drives are erased, but the TPM was not cleared and may still hold data of the former system: \
                     {why}. Clear the TPM in the firmware's settings, then readmit the node"
                );
                return Err(failed(job_error("tpm-not-cleared", message, false), erased));
            }
        }
    }
    let Some(efivars) = machine.host.efivars() else {
        return Ok(erased);
    };
    if work.clear_boot_entries {
        match efivars.remove_entries() {
            Ok(removed) => control.add_remark(&format!("{} boot entries removed", removed.len())),
            Err(error) => {
                let message = format!("the drives are erased, but boot entries could not be removed: {error}");
                return Err(failed(job_error("boot-entries", message, true), erased));
            }
        }
    }
    if let Some(recorded) = &work.recorded_uefi_variables {
        match efivars.remove_foreign(recorded) {
            Ok(new) => erased.new_uefi_variables = Some(new),
            Err(error) => {
                let message = format!(
                    "the drives are erased, but a UEFI variable that the former system added could not be removed: {error}. \
                     Restore the defaults in the firmware's settings, then readmit the node"
                );
                return Err(failed(job_error("uefi-variables", message, true), erased));
            }
        }
    }
    Ok(erased)
}
