//! The process of one agent: the product's job runner, writer and exchange with other agents, with a file as its drive.
//!
//! The first line of its input is its [`Order`]; `go` begins the job, `check` compares the drive with the image, and the end
//! of the input ends the process. Each line of its output is an [`Event`].

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use prost::Message as _;
use rackwright_agent::drives::DriveFacts;
use rackwright_agent::drives::file::{FileDrive, FileDrives};
use rackwright_agent::erase::DriveEraser;
use rackwright_agent::host::{Host, KernelHost};
use rackwright_agent::jobs::control::JobControl;
use rackwright_agent::jobs::power::{Power, PowerAction};
use rackwright_agent::jobs::runner::JobRunner;
use rackwright_agent::jobs::write::FinishError;
use rackwright_agent::jobs::writer::{Credentials, ImageWriter, StoreWriter, WriteRequest, WriteSummary};
use rackwright_agent::machine::Machine;
use rackwright_agent::root::SysRoot;
use rackwright_api::v1::job_report::Result as JobResult;
use rackwright_api::v1::{Job, JobError, JobReport, JobState, WriteImageResult};
use rackwright_cli_context::error::CliError;
use secrecy::{ExposeSecret as _, SecretString};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::net::unix::pipe::Receiver;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::drive::Drive;
use super::image::Content;

/// Memory of the machine, in kB: every image here fits into a quarter of it.
const MEMORY_KB: u64 = 64 << 20;
/// Time between two comparisons of the drive with the image.
const LOOK: Duration = Duration::from_millis(500);

/// What an agent does.
#[derive(Debug, Serialize, Deserialize)]
pub struct Order {
    pub ca_pem: String,
    pub certificate_pem: String,
    pub key_pem: String,
    pub control_url: String,
    /// The message `Job`, in hexadecimal digits.
    pub job: String,
    /// A folder of its own, which does not exist yet.
    pub folder: PathBuf,
    pub content: Content,
}

impl Order {
    pub fn new(credentials: &Credentials, control_url: &str, job: &Job, (folder, content): (PathBuf, Content)) -> Self {
        Self {
            ca_pem: credentials.ca_pem.clone(),
            certificate_pem: credentials.certificate_pem.clone(),
            key_pem: credentials.key_pem.expose_secret().to_owned(),
            control_url: control_url.to_owned(),
            job: hex::encode(job.encode_to_vec()),
            folder,
            content,
        }
    }
}

/// What an agent prints.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    Ready,
    Ended(Ended),
    /// Number of chunks of the drive that are right.
    Checked(u32),
}

/// The end of a job.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Ended {
    pub seconds: f64,
    /// Why the job failed; empty if it succeeded.
    pub error: String,
    pub from_servers: u64,
    pub from_rack: u64,
    pub from_other_racks: u64,
    pub served: u64,
    /// The last step of the job, with its remarks.
    pub step: String,
}

fn print(event: &Event) -> io::Result<()> {
    use io::Write as _;
    let mut output = io::stdout().lock();
    serde_json::to_writer(&mut output, event)?;
    output.write_all(b"\n")?;
    output.flush()
}

/// Runs the process.
pub async fn run() -> Result<(), CliError> {
    serve().await.map_err(|error| CliError::io("be an agent", error))
}

async fn serve() -> io::Result<()> {
    let input = Receiver::from_owned_fd(io::stdin().as_fd().try_clone_to_owned()?)?;
    let mut input = BufReader::new(input).lines();
    let first = input.next_line().await?.unwrap_or_default();
    let order: Order = serde_json::from_str(&first)?;
    let path = order.folder.join("vda");
    fs::create_dir_all(&order.folder)?;
    let drive = Arc::new(Mutex::new(Drive::create(&path, order.content)?));
    let runner = runner(&order, path)?;
    let job = hex::decode(&order.job).map_err(io::Error::other)?;
    let job = Job::decode(&*job).map_err(io::Error::other)?;
    print(&Event::Ready)?;
    while let Some(line) = input.next_line().await? {
        match line.as_str() {
            "go" => {
                let (begun, operation) = (Instant::now(), job.operation.clone());
                runner.submit(job.clone());
                let report = tokio::select! {
                    report = ended(&runner, &operation) => report,
                    never = look(&drive) => return never,
                };
                print(&Event::Ended(end(begun, report)))?;
            }
            "check" => {
                let drive = drive.clone();
                let checked = spawn_blocking(move || lock(&drive).check()).await;
                print(&Event::Checked(checked.map_err(io::Error::other)??))?;
            }
            other => return Err(io::Error::other(format!("unknown command {other:?}"))),
        }
    }
    runner.abandon();
    Ok(())
}

fn lock(drive: &Mutex<Drive>) -> std::sync::MutexGuard<'_, Drive> {
    drive.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Compares what was written, again and again. Returns only with an error.
async fn look(drive: &Arc<Mutex<Drive>>) -> io::Result<()> {
    let mut ticks = interval(LOOK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let drive = drive.clone();
        let looked = spawn_blocking(move || lock(&drive).look()).await;
        looked.map_err(io::Error::other)??;
    }
}

async fn ended(runner: &JobRunner, operation: &str) -> JobReport {
    loop {
        let (reports, _) = runner.snapshot();
        let report = reports.into_iter().find(|report| report.operation == operation);
        if let Some(report) = report.filter(|report| report.state() != JobState::Running) {
            return report;
        }
        runner.changed().await;
    }
}

fn end(begun: Instant, report: JobReport) -> Ended {
    let error = match report.state() {
        JobState::Succeeded => String::new(),
        state => format!("{}: {:?}", state.as_str_name(), report.error),
    };
    let result = match report.result {
        Some(JobResult::WriteImage(result)) => result,
        _ => WriteImageResult::default(),
    };
    Ended {
        seconds: begun.elapsed().as_secs_f64(),
        error,
        from_servers: result.chunks_from_servers,
        from_rack: result.chunks_from_rack,
        from_other_racks: result.chunks_from_other_racks,
        served: result.chunks_served,
        step: report.progress.unwrap_or_default().step,
    }
}

fn runner(order: &Order, path: PathBuf) -> io::Result<Arc<JobRunner>> {
    let proc = order.folder.join("proc");
    fs::create_dir_all(&proc)?;
    fs::write(proc.join("meminfo"), format!("MemAvailable: {MEMORY_KB} kB\n"))?;
    let host: Arc<dyn Host> = Arc::new(KernelHost {
        root: SysRoot::below(&order.folder),
    });
    let drives = FileDrives {
        drives: vec![FileDrive {
            name: "vda".into(),
            serial_number: "S1".into(),
            path,
        }],
    };
    let machine = Machine {
        drives: Arc::new(drives),
        writer: Arc::new(NoTable),
        eraser: Arc::new(DriveEraser),
        power: Arc::new(NoPower),
        host: host.clone(),
    };
    let runner = JobRunner::new(Arc::new(machine), host.ledger().map_err(io::Error::other)?);
    runner.set_credentials(Credentials {
        ca_pem: order.ca_pem.clone(),
        certificate_pem: order.certificate_pem.clone(),
        key_pem: SecretString::from(order.key_pem.clone()),
    });
    runner.sharing().set_servers(vec![order.control_url.clone()]);
    Ok(runner)
}

/// The writer of the product, without the partition table and the seed: noise has none.
struct NoTable;

impl ImageWriter for NoTable {
    fn logical_bytes(&self, request: &WriteRequest, control: &JobControl) -> Result<u64, JobError> {
        StoreWriter.logical_bytes(request, control)
    }

    fn write(&self, request: &WriteRequest, drive: &Path, control: &JobControl) -> Result<WriteSummary, JobError> {
        StoreWriter.write(request, drive, control)
    }

    fn finish(&self, _: &DriveFacts, _: &BTreeMap<String, Vec<u8>>) -> Result<(), FinishError> {
        Ok(())
    }
}

struct NoPower;

impl Power for NoPower {
    fn perform(&self, _: PowerAction) -> io::Result<()> {
        Ok(())
    }
}
