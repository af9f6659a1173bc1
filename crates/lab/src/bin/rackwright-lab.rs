//! Real machines to try Rackwright on: QEMU with Redfish BMCs in a network namespace of their own.

use clap::{Args, Parser, Subcommand};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rackwright_lab::{
    self as lab, Consoles, DiskKind, Entered, Firmware, Lab, LabConfig, LabError, Namespace, NetworkRom, Reentry,
    ResetType,
};
use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{ExitCode, ExitStatus};
use std::time::Duration;
use tokio::process::Command;
use tokio::signal::unix::{SignalKind, signal};

/// How long a command may take to end after SIGTERM.
const TERM_DEADLINE: Duration = Duration::from_secs(10);

#[derive(Parser)]
#[command(version, about)]
struct Cli {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Starts a lab and runs a command in it; the lab ends with the command.
    ///
    /// The command finds the machines described in the JSON file that RACKWRIGHT_LAB_FILE names. Without a command the
    /// description is printed and the lab stays until SIGTERM or Ctrl-C.
    Up(Up),
    /// Reports the requirements that this machine lacks for a lab, and how to install them.
    Doctor,
}

#[derive(Args)]
struct Up {
    /// Number of machines
    #[arg(long, default_value_t = 1)]
    machines: usize,
    /// Firmware of the machines
    #[arg(long, value_enum, default_value = "uefi")]
    firmware: Firmware,
    /// How the drives are attached
    #[arg(long, value_enum, default_value = "virtio-blk")]
    disk: DiskKind,
    /// Size of each drive in GiB (sparse)
    #[arg(long, default_value_t = 4)]
    disk_gib: u64,
    /// Memory of each machine in MiB
    #[arg(long, default_value_t = 512)]
    memory_mib: u64,
    /// Network boot code of UEFI machines
    #[arg(long, value_enum, default_value = "firmware")]
    network_rom: NetworkRom,
    /// Gives each machine a TPM 2.0
    #[arg(long)]
    tpm: bool,
    /// How the BMCs offer the serial ports
    #[arg(long, value_enum, default_value = "ssh")]
    consoles: Consoles,
    /// Keeps drives, firmware variables and serial logs in this folder (made anew at each start)
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Switches the machines on at the start
    #[arg(long)]
    power_on: bool,
    /// The command to run, with its arguments
    #[arg(last = true)]
    command: Vec<OsString>,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let filter = tracing_subscriber::EnvFilter::try_from_default_env().unwrap_or_else(|_| "warn".into());
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .init();
    let result = match cli.action {
        Action::Doctor => return doctor(),
        Action::Up(up) => enter(up),
    };
    result.unwrap_or_else(|error| {
        eprintln!("rackwright-lab: {error}");
        ExitCode::FAILURE
    })
}

fn doctor() -> ExitCode {
    let mut fit = true;
    for check in lab::examine() {
        match check.result {
            Ok(detail) => println!("ok       {}: {detail}", check.what),
            Err(fault) => {
                let word = if check.required { "MISSING " } else { "optional" };
                println!("{word} {}: {}; {}", check.what, fault.why, fault.remedy);
                fit &= !check.required;
            }
        }
    }
    if fit { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn enter(up: Up) -> Result<ExitCode, LabError> {
    let namespace = match lab::enter(Reentry::SameArguments)? {
        Entered::Outside(outcome) => return Ok(exit_code(outcome.status)),
        Entered::Inside(namespace) => namespace,
    };
    lab::install_crypto();
    let failed = |source| LabError::File {
        what: "start the async runtime of",
        path: "rackwright-lab".into(),
        source,
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(failed)?;
    runtime.block_on(inside(up, namespace))
}

async fn inside(up: Up, namespace: Namespace) -> Result<ExitCode, LabError> {
    let config = LabConfig {
        machines: up.machines,
        firmware: up.firmware,
        disk_kind: up.disk,
        disk_bytes: up.disk_gib << 30,
        memory_mb: up.memory_mib,
        network_rom: up.network_rom,
        tpm: up.tpm,
        dir: up.dir,
        consoles: up.consoles,
        ..LabConfig::default()
    };
    let lab = Lab::start(&namespace, config).await?;
    let path = namespace.state_dir().join("lab.json");
    lab.file().write(&path)?;
    if up.power_on {
        for machine in lab.machines() {
            let refused = |error: lab::ResetRefused| LabError::Machine {
                machine: machine.name().to_owned(),
                what: "switch it on",
                detail: error.to_string(),
            };
            machine.reset(ResetType::On).await.map_err(refused)?;
            machine
                .wait_power(lab::PowerState::On, Duration::from_secs(120))
                .await?;
        }
    }
    let code = match up.command.split_first() {
        Some((program, arguments)) => run(program, arguments, &path).await?,
        None => stay(&lab, &namespace).await?,
    };
    lab.stop().await?;
    Ok(code)
}

/// Runs the command to its end, or ends it at SIGTERM or SIGHUP. The terminal sends Ctrl-C to the command, which handles it.
async fn run(program: &OsString, arguments: &[OsString], file: &std::path::Path) -> Result<ExitCode, LabError> {
    let failed = |error: std::io::Error| LabError::Command {
        command: program.display().to_string(),
        detail: error.to_string(),
    };
    let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
    let mut hang_up = signal(SignalKind::hangup()).map_err(failed)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env("RACKWRIGHT_LAB_FILE", file)
        .kill_on_drop(true);
    Namespace::forget(&mut command);
    let mut child = command.spawn().map_err(failed)?;
    loop {
        tokio::select! {
            status = child.wait() => return Ok(exit_code(status.map_err(failed)?)),
            _ = interrupt.recv() => {}
            _ = terminate.recv() => break,
            _ = hang_up.recv() => break,
        }
    }
    if let Some(pid) = child.id() {
        let _ = kill(Pid::from_raw(pid.cast_signed()), Signal::SIGTERM);
    }
    match tokio::time::timeout(TERM_DEADLINE, child.wait()).await {
        Ok(status) => Ok(exit_code(status.map_err(failed)?)),
        Err(_) => Ok(ExitCode::from(128 + Signal::SIGKILL as u8)),
    }
}

async fn stay(lab: &Lab, namespace: &Namespace) -> Result<ExitCode, LabError> {
    let failed = |error: std::io::Error| LabError::Command {
        command: "sigaction".into(),
        detail: error.to_string(),
    };
    let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
    let mut hang_up = signal(SignalKind::hangup()).map_err(failed)?;
    let text = serde_json::to_string_pretty(&lab.file()).unwrap_or_default();
    println!("{text}");
    let pid = namespace.pid();
    let user = if nix::unistd::geteuid().is_root() && !in_user_namespace() {
        ""
    } else {
        " --user --preserve-credentials"
    };
    eprintln!("Enter the lab:  nsenter --target {pid}{user} --net --pid --mount");
    eprintln!("End it:         Ctrl-C, or SIGTERM to this process");
    tokio::select! {
        _ = terminate.recv() => {}
        _ = hang_up.recv() => {}
        _ = tokio::signal::ctrl_c() => {}
    }
    Ok(ExitCode::SUCCESS)
}

/// Whether root here is root only in a user namespace (user_namespaces(7): the initial map covers all ids).
fn in_user_namespace() -> bool {
    let map = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    map.split_whitespace().nth(2) != Some("4294967295")
}

fn exit_code(status: ExitStatus) -> ExitCode {
    let code = status
        .code()
        .or_else(|| status.signal().map(|signal| 128 + signal))
        .unwrap_or(1);
    ExitCode::from(u8::try_from(code).unwrap_or(1))
}
