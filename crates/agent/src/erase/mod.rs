//! Erases drives. A drive without proof of its erase counts as not erased.
//!
//! For each drive, the methods that it reports as supported are tried, strongest first. Before the first method, samples
//! are read from the whole drive and canaries (blocks of random bytes) are written to some of them. So a drive that does
//! nothing and reports success is detected, even if it was blank. After each method the samples are read back and compared
//! with the result that the method must leave ([`proof`]); only then is the drive erased. A failed method is recorded in
//! `rejected_methods`, and the next method is tried. If all methods fail, the drive is not erased: the error is
//! `erase-not-proven` if a method claimed success, otherwise `erase-unsupported`.

pub mod passes;
pub mod progress;
pub mod proof;

use std::collections::BTreeMap;

use rackwright_api::v1::{DriveErase, EraseDrives, EraseDrivesResult, EraseMethod, JobError};

use crate::clock;
use crate::drives::hidden::{self, HiddenArea};
use crate::drives::{self, DriveFacts, Drives, MethodError, RawDrive, method_name};
use crate::jobs::control::{JobControl, StopReason};
use crate::jobs::job_error;
use progress::{CombinedProgress, DriveProgress};
use proof::Samples;

/// Default number of samples read back per drive of a real machine, if the job specifies none.
pub const DEFAULT_SAMPLES: u32 = 4096;
/// Maximum number of samples: their digests stay in memory.
const MAX_SAMPLES: u32 = 1 << 20;
/// Advice for the operator about a hidden area that cannot be opened.
const MANUAL_ERASE_ADVICE: &str =
    "Open the area with the drive vendor's tools, or remove and destroy the drive; then readmit the node";
/// Bytes that are zeroed at both ends of a drive after a method that leaves arbitrary bytes, so that nothing there looks
/// like a partition table.
const ENDS_BYTES: u64 = 1 << 20;

/// An erase that failed on at least one drive, with the certificate data of the erased drives.
#[derive(Debug)]
pub struct EraseFailure {
    /// The error for the report.
    pub error: JobError,
    /// The drives that were erased nevertheless.
    pub erased: Box<EraseDrivesResult>,
}

/// Erases the drives of a job. A trait, so that a simulated machine can have a lying agent.
pub trait Eraser: Send + Sync {
    /// Erases the drives.
    ///
    /// # Errors
    /// [`EraseFailure`] unless every drive is erased with proof.
    fn erase(
        &self,
        drives: &dyn Drives,
        job: &EraseDrives,
        control: &JobControl,
    ) -> Result<EraseDrivesResult, EraseFailure>;
}

/// Erases with [`erase`].
#[derive(Clone, Copy, Debug)]
pub struct DriveEraser;

impl Eraser for DriveEraser {
    fn erase(
        &self,
        drives: &dyn Drives,
        job: &EraseDrives,
        control: &JobControl,
    ) -> Result<EraseDrivesResult, EraseFailure> {
        erase(drives, job, control)
    }
}

/// Why a drive was not erased.
#[derive(Debug)]
enum DriveFailure {
    Stopped(StopReason),
    Failed {
        code: &'static str,
        message: String,
        retryable: bool,
    },
}

/// Erases the drives of a job. Drives of different controllers are erased at the same time.
///
/// # Errors
/// [`EraseFailure`] unless every drive is erased with proof.
pub fn erase(drives: &dyn Drives, job: &EraseDrives, control: &JobControl) -> Result<EraseDrivesResult, EraseFailure> {
    let early = |error| EraseFailure {
        error,
        erased: Box::default(),
    };
    control.step("hidden areas of drives", 0);
    let hidden = drives.open_hidden();
    let targets = targets(drives, job).map_err(early)?;
    if job.drives.is_empty() {
        all_have_a_drive(&hidden, &targets).map_err(early)?;
    }
    let samples = match job.samples {
        0 => drives.erase_samples(),
        wanted => wanted.min(MAX_SAMPLES),
    };
    let mut groups: BTreeMap<&str, Vec<&DriveFacts>> = BTreeMap::new();
    for facts in &targets {
        groups.entry(&facts.controller).or_default().push(facts);
    }
    let combined = CombinedProgress::new(control, targets.iter().map(|facts| facts.drive.name.as_str()));
    let outcomes: Vec<(&DriveFacts, Result<DriveErase, DriveFailure>)> = std::thread::scope(|scope| {
        let one = |facts| {
            let progress = combined.progress(facts, control);
            (facts, erase_one(drives, facts, &hidden, samples, &progress))
        };
        let threads: Vec<_> = groups
            .into_values()
            .map(|group| scope.spawn(move || group.into_iter().map(one).collect::<Vec<_>>()))
            .collect();
        // A panicked thread loses its drives' outcomes; `conclude` checks their number.
        threads
            .into_iter()
            .flat_map(|thread| thread.join().unwrap_or_default())
            .collect()
    });
    let mut done = conclude(outcomes, targets.len());
    let result = match &mut done {
        Ok(erased) => erased,
        Err(failure) => &mut failure.erased,
    };
    result.excluded = drives.excluded();
    done
}

/// Refuses a hidden area that could not be opened on a drive that is not listed: no erase reaches that area.
fn all_have_a_drive(hidden: &[HiddenArea], targets: &[DriveFacts]) -> Result<(), JobError> {
    let has_drive = |area: &&HiddenArea| targets.iter().any(|facts| area.controllers.contains(&facts.controller));
    let lost = hidden.iter().filter(|area| area.closed.is_some() && !has_drive(area));
    let lost: Vec<String> = lost.map(HiddenArea::failure).collect();
    if lost.is_empty() {
        return Ok(());
    }
    let message = format!("{}. {MANUAL_ERASE_ADVICE}", lost.join("; "));
    Err(job_error("erase-unsupported", message, true))
}

fn targets(drives: &dyn Drives, job: &EraseDrives) -> Result<Vec<DriveFacts>, JobError> {
    let present = drives.list();
    let missing = |error: drives::DriveError| job_error("disk-missing", error.to_string(), true);
    if job.drives.is_empty() {
        let fixed: Vec<DriveFacts> = present.iter().filter(|f| !f.drive.read_only).cloned().collect();
        let message = || format!("no writable drive; drives: {}", drives::describe(&present));
        return if fixed.is_empty() {
            Err(job_error("disk-missing", message(), true))
        } else {
            Ok(fixed)
        };
    }
    let mut targets: Vec<DriveFacts> = Vec::new();
    for wanted in &job.drives {
        let facts = drives::find(&present, wanted).map_err(missing)?;
        if !targets.iter().any(|other| other.drive.name == facts.drive.name) {
            targets.push(facts.clone());
        }
    }
    Ok(targets)
}

fn conclude(
    outcomes: Vec<(&DriveFacts, Result<DriveErase, DriveFailure>)>,
    expected: usize,
) -> Result<EraseDrivesResult, EraseFailure> {
    let mut erased = EraseDrivesResult::default();
    let mut worst: Option<(u8, &'static str)> = None;
    let (mut messages, mut retryable, mut stop) = (Vec::new(), true, None);
    let lost = expected - outcomes.len();
    for (facts, outcome) in outcomes {
        match outcome {
            Ok(drive) => erased.drives.push(drive),
            Err(DriveFailure::Stopped(why)) => stop = Some(why),
            Err(DriveFailure::Failed {
                code,
                message,
                retryable: may_retry,
            }) => {
                let rank = if code == "erase-not-proven" { 2 } else { 1 };
                worst = worst.max(Some((rank, code)));
                retryable &= may_retry;
                messages.push(format!(
                    "drive {} ({}): {message}",
                    facts.drive.name, facts.drive.serial_number
                ));
            }
        }
    }
    erased.drives.sort_by(|a, b| a.drive_name.cmp(&b.drive_name));
    let error = match (worst, stop) {
        (Some((_, code)), _) => job_error(code, messages.join("; "), retryable),
        (None, Some(stop)) => stop.error("erasing drives"),
        (None, None) if lost > 0 => job_error(
            "erase-not-proven",
            format!("the erase of {lost} drives ended without an outcome"),
            true,
        ),
        (None, None) => return Ok(erased),
    };
    Err(EraseFailure {
        error,
        erased: Box::new(erased),
    })
}

fn erase_one(
    drives: &dyn Drives,
    facts: &DriveFacts,
    hidden: &[HiddenArea],
    samples: u32,
    progress: &DriveProgress<'_>,
) -> Result<DriveErase, DriveFailure> {
    let start_time = Some(clock::timestamp());
    let hidden = hidden::of_controller(hidden, &facts.controller);
    let failed = |code, message: String| DriveFailure::Failed {
        code,
        message,
        retryable: true,
    };
    let raw = drives
        .open(facts)
        .map_err(|error| failed("disk-open-failed", error.to_string()))?;
    progress.step("samples before", 0);
    let mut before = Samples::take(&*raw, samples, progress).map_err(|error| match error {
        MethodError::Stopped(stop) => DriveFailure::Stopped(stop),
        other => failed("erase-not-proven", format!("reading samples before the erase: {other}")),
    })?;
    before.plant_canaries(&*raw);
    let mut rejected = Vec::new();
    let mut claimed = false;
    for method in raw.methods() {
        if let Some(missed) = hidden.iter().find(|area| area.is_missed_by(method)) {
            rejected.push(format!(
                "{}: the method does not reach the {}",
                method_name(method),
                missed.what
            ));
            continue;
        }
        progress.step(method_name(method), raw.size_bytes());
        let performed = passes::perform(&*raw, method, progress);
        if let Err(error) = performed {
            let MethodError::Stopped(stop) = error else {
                rejected.push(format!("{}: {error}", method_name(method)));
                continue;
            };
            return Err(DriveFailure::Stopped(stop));
        }
        progress.step(format!("samples after {}", method_name(method)), 0);
        match before
            .prove(&*raw, method, progress)
            .and_then(|()| finish(&*raw, method))
        {
            Ok(()) => {
                let (samples, sample_bytes) = before.counts();
                return Ok(certificate(
                    facts,
                    &*raw,
                    EraseDetails {
                        method,
                        samples,
                        sample_bytes,
                        start_time,
                        rejected_methods: rejected,
                        hidden_areas: hidden.iter().map(|area| area.evidence(method)).collect(),
                    },
                ));
            }
            Err(MethodError::Stopped(stop)) => return Err(DriveFailure::Stopped(stop)),
            Err(error) => {
                claimed = true;
                rejected.push(format!(
                    "{}: the drive reported success, but {error}",
                    method_name(method)
                ));
            }
        }
    }
    Err(not_erased(claimed, &hidden, &rejected))
}

/// The failure of a drive without a further method.
fn not_erased(claimed: bool, hidden: &[&HiddenArea], rejected: &[String]) -> DriveFailure {
    let code = if claimed {
        "erase-not-proven"
    } else {
        "erase-unsupported"
    };
    // The operator's actions come first, because long messages are cut.
    let closed: Vec<String> = hidden
        .iter()
        .filter(|area| area.closed.is_some())
        .map(|area| format!("{}. {MANUAL_ERASE_ADVICE}. ", area.failure()))
        .collect();
    DriveFailure::Failed {
        code,
        message: closed.concat() + &rejected.join("; "),
        retryable: false,
    }
}

/// Final steps after the proof: zeroes both ends if arbitrary bytes are left, checks for partition tables, and rereads the
/// table.
fn finish(raw: &dyn RawDrive, method: EraseMethod) -> Result<(), MethodError> {
    if proof::expected_residue(method) == proof::Residue::Changed {
        let size = raw.size_bytes();
        let ends = ENDS_BYTES.min(size);
        for offset in [0, size - ends] {
            passes::write_zeros(raw, offset, ends)?;
        }
        raw.flush()?;
    }
    proof::no_partition_table(raw)?;
    // Nothing of the drive is in use. If the kernel refuses nevertheless, the next boot reads the blank drive.
    let _ = raw.reread_partitions();
    Ok(())
}

/// Details of a completed erase.
struct EraseDetails {
    method: EraseMethod,
    samples: u64,
    sample_bytes: u64,
    start_time: Option<prost_types::Timestamp>,
    rejected_methods: Vec<String>,
    hidden_areas: Vec<String>,
}

fn certificate(facts: &DriveFacts, raw: &dyn RawDrive, done: EraseDetails) -> DriveErase {
    DriveErase {
        drive_name: facts.drive.name.clone(),
        model: facts.drive.model.clone(),
        serial_number: facts.drive.serial_number.clone(),
        size_bytes: raw.size_bytes(),
        method: done.method.into(),
        samples: done.samples,
        sample_bytes: done.sample_bytes,
        start_time: done.start_time,
        end_time: Some(clock::timestamp()),
        rejected_methods: done.rejected_methods,
        native_bytes: raw.native_bytes(),
        hidden_areas: done.hidden_areas,
    }
}

#[cfg(test)]
mod tests;
