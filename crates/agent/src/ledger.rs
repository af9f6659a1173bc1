//! The ledger of jobs makes destructive commands safe to repeat.
//!
//! It has one entry per operation id. The entry is written and synced before the job begins, and again when the job ends.
//! The rules ([`Ledger::consider`]) are a pure function of the entries, the job and the running operation:
//!
//! 1. A known operation id is answered with its report: running, succeeded, failed or refused. The job never runs
//!    again. A refusal is final too: the control plane may have moved on, and a late repeat must not start the job.
//! 2. A claim generation below the highest known one is refused with `stale-generation`.
//! 3. While a job runs, every other job is refused with `busy`.
//!
//! The file is a sequence of records: length (u32, little endian), the first 8 bytes of the SHA-256 of the payload, the
//! payload (a [`JobReport`] in protobuf). An incomplete or damaged last record is dropped: it was never acknowledged.
//! Damage anywhere else is an error, because a ledger with holes could run a job twice.
//!
//! A job that is running when the ledger is opened was interrupted by the end of the agent: it is marked failed,
//! `interrupted`.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use prost::Message as _;
use rackwright_api::v1::job_report::Result as JobResult;
use rackwright_api::v1::{Job, JobError, JobReport, JobState};
use thiserror::Error;

use crate::clock;

/// Maximum number of operations in one boot; further jobs are refused. A boot normally has fewer than ten.
pub const MAX_OPERATIONS: usize = 1024;
/// Longest operation id, in bytes.
pub const MAX_OPERATION_ID_BYTES: usize = 128;
/// Longest record in bytes; a report with 1000 drives is far smaller.
const MAX_RECORD_BYTES: usize = 4 << 20;
const HEADER_BYTES: usize = 12;

/// Why the ledger cannot be used. Each fault is permanent: the agent accepts no job without a ledger.
#[derive(Debug, Error)]
pub enum LedgerError {
    /// The file cannot be read or written.
    #[error("job ledger {}: {source}; the agent's state folder must be writable", path.display())]
    Io {
        /// Path of the ledger's file.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// A record before the last one is damaged.
    #[error("job ledger {}: record at byte {offset} is damaged; boot the machine again for an empty ledger", path.display())]
    Damaged {
        /// Path of the ledger's file.
        path: PathBuf,
        /// Offset of the record in bytes.
        offset: usize,
    },
}

/// Decision on a job.
#[derive(Debug)]
pub enum Verdict {
    /// The job is new and admissible.
    Begin,
    /// The operation is known; this is its report.
    Answer(Box<JobReport>),
    /// The job is new and not admissible.
    Refuse(JobError),
}

/// The jobs of this boot.
#[derive(Debug)]
pub struct Ledger {
    entries: BTreeMap<String, JobReport>,
    generation: u64,
    file: Option<(PathBuf, File)>,
}

impl Ledger {
    /// Creates a ledger without a file. It is lost when the process ends.
    pub fn in_memory() -> Self {
        Self {
            entries: BTreeMap::new(),
            generation: 0,
            file: None,
        }
    }

    /// Opens or creates the file and marks jobs that were running as failed.
    ///
    /// # Errors
    /// The file cannot be read or written, or is damaged before its last record.
    pub fn open(path: &Path) -> Result<Self, LedgerError> {
        let io = |source| LedgerError::Io {
            path: path.to_owned(),
            source,
        };
        let content = match fs::read(path) {
            Ok(content) => content,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(io(error)),
        };
        let (reports, intact_bytes) = read_records(&content).map_err(|offset| LedgerError::Damaged {
            path: path.to_owned(),
            offset,
        })?;
        let file = OpenOptions::new()
            .create(true)
            .append(true)
            .mode(0o600)
            .open(path)
            .map_err(io)?;
        file.set_len(intact_bytes as u64).map_err(io)?;
        let mut ledger = Self {
            entries: BTreeMap::new(),
            generation: 0,
            file: Some((path.to_owned(), file)),
        };
        for report in reports {
            ledger.remember(report);
        }
        let interrupted: Vec<JobReport> = ledger
            .reports()
            .filter(|report| report.state() == JobState::Running)
            .cloned()
            .collect();
        for mut report in interrupted {
            let message = "the agent ended while the job was running; the job is incomplete".to_owned();
            report.set_state(JobState::Failed);
            report.error = Some(JobError {
                code: "interrupted".into(),
                message,
                retryable: true,
            });
            report.end_time = Some(clock::timestamp());
            ledger.record(report)?;
        }
        Ok(ledger)
    }

    /// All entries, by operation id.
    pub fn reports(&self) -> impl Iterator<Item = &JobReport> {
        self.entries.values()
    }

    /// The entry of an operation, if any.
    pub fn report(&self, operation: &str) -> Option<&JobReport> {
        self.entries.get(operation)
    }

    /// The highest claim generation known from entries, the control plane or a drive.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Raises the known generation to `generation`, which the control plane or a drive reported.
    pub fn raise_generation(&mut self, generation: u64) {
        self.generation = self.generation.max(generation);
    }

    /// Applies the rules in this module's documentation. `running` is the currently running operation.
    pub fn consider(&self, job: &Job, running: Option<&str>) -> Verdict {
        if let Some(report) = self.entries.get(&job.operation) {
            return Verdict::Answer(Box::new(report.clone()));
        }
        let refuse = |code: &str, message: String, retryable| {
            Verdict::Refuse(JobError {
                code: code.into(),
                message,
                retryable,
            })
        };
        if job.operation.is_empty() || job.operation.len() > MAX_OPERATION_ID_BYTES {
            let message = format!(
                "operation id must have 1 to {MAX_OPERATION_ID_BYTES} bytes, not {}",
                job.operation.len()
            );
            return refuse("invalid-job", message, false);
        }
        if job.claim_generation < self.generation {
            let message = format!(
                "claim generation {} is older than this machine's generation {}",
                job.claim_generation, self.generation
            );
            return refuse("stale-generation", message, false);
        }
        if let Some(running) = running {
            return refuse(
                "busy",
                format!("operation {running} is running; the agent runs one job at a time"),
                true,
            );
        }
        if job.work.is_none() {
            return refuse(
                "invalid-job",
                "the job contains no work that this agent knows".into(),
                false,
            );
        }
        if self.entries.len() >= MAX_OPERATIONS {
            return refuse(
                "ledger-full",
                format!(
                    "the ledger is full: {MAX_OPERATIONS} operations since the machine booted; boot the machine again"
                ),
                false,
            );
        }
        Verdict::Begin
    }

    /// Writes an entry to the file and syncs the file. From then on the entry survives the end of the process.
    ///
    /// # Errors
    /// The file cannot be written. The entry is then not in the ledger, and the job must not begin.
    pub fn record(&mut self, report: JobReport) -> Result<(), LedgerError> {
        if let Some((path, file)) = &mut self.file {
            let written = file.write_all(&encode(&report)).and_then(|()| file.sync_data());
            written.map_err(|source| LedgerError::Io {
                path: path.clone(),
                source,
            })?;
        }
        self.remember(report);
        Ok(())
    }

    /// Keeps an entry in memory only, until the process ends.
    pub fn keep_in_memory(&mut self, report: JobReport) {
        self.remember(report);
    }

    fn remember(&mut self, report: JobReport) {
        self.generation = self.generation.max(report.claim_generation);
        self.entries.insert(report.operation.clone(), report);
    }
}

/// The report of a job that starts now.
pub fn begun_report(job: &Job) -> JobReport {
    JobReport {
        operation: job.operation.clone(),
        claim_generation: job.claim_generation,
        state: JobState::Running.into(),
        start_time: Some(clock::timestamp()),
        ..JobReport::default()
    }
}

/// The report of a refused job.
pub fn refused_report(job: &Job, error: JobError) -> JobReport {
    let now = clock::timestamp();
    JobReport {
        state: JobState::Refused.into(),
        error: Some(error),
        end_time: Some(now),
        ..begun_report(job)
    }
}

/// The report of a job that succeeded or failed.
pub fn ended_report(begun: JobReport, outcome: Result<Option<JobResult>, JobError>) -> JobReport {
    let end_time = Some(clock::timestamp());
    match outcome {
        Ok(result) => JobReport {
            state: JobState::Succeeded.into(),
            result,
            end_time,
            ..begun
        },
        Err(error) => JobReport {
            state: JobState::Failed.into(),
            error: Some(error),
            end_time,
            ..begun
        },
    }
}

fn checksum(payload: &[u8]) -> [u8; 8] {
    let digest = ring::digest::digest(&ring::digest::SHA256, payload);
    let mut checksum = [0; 8];
    checksum.copy_from_slice(&digest.as_ref()[..8]);
    checksum
}

fn encode(report: &JobReport) -> Vec<u8> {
    let payload = report.encode_to_vec();
    let mut record = Vec::with_capacity(HEADER_BYTES + payload.len());
    record.extend_from_slice(&(payload.len() as u32).to_le_bytes());
    record.extend_from_slice(&checksum(&payload));
    record.extend_from_slice(&payload);
    record
}

/// Returns the reports and the length of the intact records, or the offset of a damaged record.
fn read_records(content: &[u8]) -> Result<(Vec<JobReport>, usize), usize> {
    let mut reports = Vec::new();
    let mut offset = 0;
    while let Some((length, rest)) = content[offset..].split_first_chunk::<4>() {
        let length = u32::from_le_bytes(*length) as usize;
        let Some((expected, rest)) = rest.split_first_chunk::<8>() else {
            break;
        };
        if length > MAX_RECORD_BYTES {
            return Err(offset);
        }
        let Some(payload) = rest.get(..length) else { break };
        let is_last = rest.len() == length;
        match JobReport::decode(payload) {
            Ok(report) if checksum(payload) == *expected => reports.push(report),
            _ if is_last => break,
            _ => return Err(offset),
        }
        offset += HEADER_BYTES + length;
    }
    Ok((reports, offset))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rackwright_api::v1::job::Work;
    use rackwright_api::v1::{EraseDrives, JobState};

    use super::*;

    fn job(operation: &str, claim_generation: u64) -> Job {
        let work = Some(Work::EraseDrives(EraseDrives::default()));
        Job {
            operation: operation.into(),
            claim_generation,
            deadline_s: 60,
            work,
        }
    }

    fn code(verdict: &Verdict) -> &str {
        match verdict {
            Verdict::Begin => "begin",
            Verdict::Answer(report) => report.state().as_str_name(),
            Verdict::Refuse(error) => &error.code,
        }
    }

    #[test]
    fn rules() {
        let mut ledger = Ledger::in_memory();
        ledger.raise_generation(5);
        let done = ended_report(begun_report(&job("done", 5)), Ok(None));
        ledger.record(begun_report(&job("run", 5))).unwrap();
        ledger.record(done).unwrap();
        ledger
            .record(refused_report(&job("no", 5), JobError::default()))
            .unwrap();
        let without_work = Job {
            work: None,
            ..job("workless", 5)
        };
        let table = [
            (job("new", 5), None, "begin"),
            (job("new", 6), None, "begin"),
            (job("new", 4), None, "stale-generation"),
            (job("new", 4), Some("run"), "stale-generation"),
            (job("new", 5), Some("run"), "busy"),
            (job("run", 5), Some("run"), "JOB_STATE_RUNNING"),
            (job("done", 5), None, "JOB_STATE_SUCCEEDED"),
            (job("done", 4), Some("run"), "JOB_STATE_SUCCEEDED"),
            (job("no", 5), None, "JOB_STATE_REFUSED"),
            (job("", 5), None, "invalid-job"),
            (job(&"x".repeat(129), 5), None, "invalid-job"),
            (without_work, None, "invalid-job"),
        ];
        for (job, running, expected) in table {
            assert_eq!(
                code(&ledger.consider(&job, running)),
                expected,
                "{job:?} while {running:?}"
            );
        }
    }

    #[test]
    fn a_restart_keeps_all_entries_and_fails_the_running_job() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ledger");
        let mut ledger = Ledger::open(&path).unwrap();
        ledger.record(begun_report(&job("a", 3))).unwrap();
        ledger
            .record(ended_report(begun_report(&job("a", 3)), Ok(None)))
            .unwrap();
        ledger.record(begun_report(&job("b", 7))).unwrap();
        drop(ledger);
        let ledger = Ledger::open(&path).unwrap();
        assert_eq!(ledger.generation(), 7);
        assert_eq!(ledger.report("a").unwrap().state(), JobState::Succeeded);
        let interrupted = ledger.report("b").unwrap();
        assert_eq!(interrupted.state(), JobState::Failed);
        let error = interrupted.error.as_ref().unwrap();
        assert_eq!((error.code.as_str(), error.retryable), ("interrupted", true));
        assert_eq!(
            code(&ledger.consider(&job("b", 7), None)),
            "JOB_STATE_FAILED",
            "never run again"
        );
    }

    #[test]
    fn a_record_cut_short_is_dropped_and_damage_before_the_end_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ledger");
        let mut ledger = Ledger::open(&path).unwrap();
        ledger
            .record(ended_report(begun_report(&job("a", 1)), Ok(None)))
            .unwrap();
        let first = fs::metadata(&path).unwrap().len() as usize;
        ledger
            .record(ended_report(begun_report(&job("b", 1)), Ok(None)))
            .unwrap();
        drop(ledger);
        let whole = fs::read(&path).unwrap();
        for cut in first..whole.len() {
            fs::write(&path, &whole[..cut]).unwrap();
            let ledger = Ledger::open(&path).unwrap();
            assert!(
                ledger.report("a").is_some() && ledger.report("b").is_none(),
                "cut at {cut}"
            );
            assert_eq!(fs::metadata(&path).unwrap().len() as usize, first);
        }
        let mut damaged = whole;
        damaged[HEADER_BYTES + 2] ^= 1;
        fs::write(&path, &damaged).unwrap();
        assert!(matches!(
            Ledger::open(&path),
            Err(LedgerError::Damaged { offset: 0, .. })
        ));
    }

    #[test]
    fn a_full_ledger_refuses() {
        let mut ledger = Ledger::in_memory();
        for index in 0..MAX_OPERATIONS {
            ledger
                .record(ended_report(begun_report(&job(&index.to_string(), 1)), Ok(None)))
                .unwrap();
        }
        assert_eq!(code(&ledger.consider(&job("one more", 1), None)), "ledger-full");
        assert_eq!(code(&ledger.consider(&job("7", 1), None)), "JOB_STATE_SUCCEEDED");
    }

    proptest! {
        /// For any sequence of jobs and restarts: no operation begins twice, no operation begins with a generation below an
        /// earlier one, and no two operations run at once.
        #[test]
        fn no_job_runs_twice_stale_or_in_parallel(steps in proptest::collection::vec((0_u8..6, 0_u64..5, 0_u8..4), 1..60)) {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("ledger");
            let mut ledger = Ledger::open(&path).unwrap();
            let mut running: Option<String> = None;
            let mut begun_ids = std::collections::BTreeSet::new();
            let mut highest = 0;
            for (id, generation, action) in steps {
                match action {
                    0 => {
                        ledger = Ledger::open(&path).unwrap();
                        running = None;
                    }
                    1 => if let Some(operation) = running.take() {
                        let report = ledger.report(&operation).unwrap().clone();
                        ledger.record(ended_report(report, Ok(None))).unwrap();
                    },
                    _ => {
                        let job = job(&format!("op{id}"), generation);
                        match ledger.consider(&job, running.as_deref()) {
                            Verdict::Begin => {
                                prop_assert!(begun_ids.insert(job.operation.clone()), "{} began twice", job.operation);
                                prop_assert!(running.is_none() && generation >= highest);
                                ledger.record(begun_report(&job)).unwrap();
                                running = Some(job.operation);
                                highest = generation;
                            }
                            Verdict::Refuse(error) => {
                                if error.code == "busy" {
                                    highest = highest.max(generation);
                                }
                                ledger.record(refused_report(&job, error)).unwrap();
                            }
                            Verdict::Answer(report) => prop_assert_eq!(report.operation, job.operation),
                        }
                    }
                }
            }
        }
    }
}
