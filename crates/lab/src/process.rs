//! A running QEMU process: started, controlled through its control socket, ended.

use super::qemu::{self, EMULATOR, Hardware, PowerOn};
use super::qmp::Qmp;
use serde_json::{Value, json};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;
use tokio::net::UnixListener;
use tokio::process::{Child, Command};

/// Time limits for QEMU to connect to its control socket, and to end on request.
const START_DEADLINE: Duration = Duration::from_secs(60);
const QUIT_DEADLINE: Duration = Duration::from_secs(10);
/// Clock ticks per second of `/proc/<pid>/stat`: fixed at 100 for user space on Linux (USER_HZ).
const TICKS_PER_SECOND: f64 = 100.0;

/// One machine's QEMU, from power-on to power-off.
#[derive(Debug)]
pub(crate) struct Running {
    child: Child,
    qmp: Qmp,
    pid: u32,
}

/// An event that the machine caused itself.
#[derive(Debug)]
pub(crate) enum ProcessEvent {
    /// It shut down or requests a reset; QEMU's `ShutdownCause` states which.
    Shutdown(String),
    /// QEMU has ended.
    Ended,
}

impl Running {
    /// Powers a machine on.
    pub(crate) async fn start(hardware: &Hardware, on: &PowerOn<'_>) -> Result<Self, String> {
        let _ = fs::remove_file(hardware.qmp_socket());
        let _ = fs::remove_file(hardware.console());
        let listener = UnixListener::bind(hardware.qmp_socket()).map_err(|error| format!("control socket: {error}"))?;
        if hardware.tpm {
            start_tpm(hardware).await?;
        }
        let text = |error: io::Error| format!("{EMULATOR}: {error}");
        let output = append(&hardware.output()).map_err(text)?;
        let mut child = Command::new(EMULATOR)
            .args(qemu::arguments(hardware, on))
            .stdin(Stdio::null())
            .stdout(output.try_clone().map_err(text)?)
            .stderr(output)
            .kill_on_drop(true)
            .spawn()
            .map_err(text)?;
        let pid = child.id().unwrap_or_default();
        let stream = tokio::select! {
            accepted = listener.accept() => accepted.map_err(text)?.0,
            status = child.wait() => return Err(format!("{EMULATOR} ended at once ({}): {}", describe(status), tail(&hardware.output()))),
            () = tokio::time::sleep(START_DEADLINE) => return Err(format!("{EMULATOR} did not start within {} s", START_DEADLINE.as_secs())),
        };
        let qmp = Qmp::open(stream)
            .await
            .map_err(|error| format!("{error}; {}", tail(&hardware.output())))?;
        Ok(Self { child, qmp, pid })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    /// CPU seconds spent by the process so far.
    pub(crate) fn cpu_seconds(&self) -> f64 {
        cpu_seconds(self.pid)
    }

    /// Waits for the next event that the machine causes itself. Cancel safe.
    pub(crate) async fn event(&mut self) -> ProcessEvent {
        tokio::select! {
            biased;
            reason = self.qmp.shut_down() => match reason {
                Some(reason) => ProcessEvent::Shutdown(reason),
                // The control socket is closed: QEMU has ended or is about to.
                None => {
                    let _ = self.child.wait().await;
                    ProcessEvent::Ended
                }
            },
            _ = self.child.wait() => ProcessEvent::Ended,
        }
    }

    /// Presses the power button: the guest decides on the effect.
    pub(crate) async fn press_power(&mut self) -> Result<(), String> {
        self.command("system_powerdown", json!({})).await
    }

    /// Stops or continues the CPU.
    pub(crate) async fn set_hang(&mut self, hang: bool) -> Result<(), String> {
        self.command(if hang { "stop" } else { "cont" }, json!({})).await
    }

    /// Inserts a medium into the drive.
    pub(crate) async fn insert(&mut self, path: &Path) -> Result<(), String> {
        let arguments =
            json!({"id": "cd0", "filename": path, "format": "raw", "read-only-mode": "read-only", "force": true});
        self.command("blockdev-change-medium", arguments).await
    }

    /// Ejects the medium from the drive.
    pub(crate) async fn eject(&mut self) -> Result<(), String> {
        self.command("eject", json!({"id": "cd0", "force": true})).await
    }

    /// Ends QEMU in an orderly way, by force if it does not react. Returns its CPU seconds.
    pub(crate) async fn quit(mut self) -> f64 {
        let spent = self.cpu_seconds();
        let _ = self.qmp.execute("quit", json!({})).await;
        if tokio::time::timeout(QUIT_DEADLINE, self.child.wait()).await.is_err() {
            let _ = self.child.kill().await;
        }
        spent
    }

    /// Cuts the power: QEMU ends at once. Returns its CPU seconds.
    pub(crate) async fn kill(mut self) -> f64 {
        let spent = self.cpu_seconds();
        let _ = self.child.kill().await;
        spent
    }

    async fn command(&mut self, command: &str, arguments: Value) -> Result<(), String> {
        self.qmp.execute(command, arguments).await.map(drop)
    }
}

/// Starts a TPM emulator and returns when it listens; the emulator ends when QEMU closes its connection.
async fn start_tpm(hardware: &Hardware) -> Result<(), String> {
    let state = hardware.dir.join("tpm");
    fs::create_dir_all(&state).map_err(|error| format!("{}: {error}", state.display()))?;
    let socket = hardware.tpm_socket();
    let _ = fs::remove_file(&socket);
    let output = append(&hardware.output()).map_err(|error| format!("swtpm: {error}"))?;
    let control = format!("type=unixio,path={}", socket.display());
    let state_arg = format!("dir={}", state.display());
    // With --daemon the first process ends when the socket is ready; the daemon continues.
    let mut child = Command::new("swtpm")
        .args([
            "socket",
            "--tpm2",
            "--terminate",
            "--daemon",
            "--tpmstate",
            &state_arg,
            "--ctrl",
            &control,
        ])
        .stdin(Stdio::null())
        .stdout(output.try_clone().map_err(|error| format!("swtpm: {error}"))?)
        .stderr(output)
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| format!("swtpm: {error}"))?;
    let status = child.wait().await;
    if status.as_ref().is_ok_and(|status| status.success()) {
        return Ok(());
    }
    Err(format!(
        "swtpm ended at once ({}): {}",
        describe(status),
        tail(&hardware.output())
    ))
}

fn append(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).open(path)
}

fn describe(status: io::Result<std::process::ExitStatus>) -> String {
    status.map_or_else(|error| error.to_string(), |status| status.to_string())
}

/// The end of a log, for an error message.
fn tail(path: &Path) -> String {
    let text = fs::read(path).unwrap_or_default();
    String::from_utf8_lossy(&text[text.len().saturating_sub(400)..])
        .trim()
        .to_owned()
}

/// User and system time of a process, from `/proc/<pid>/stat` (fields 14 and 15 of proc(5)); 0 if the process is gone.
pub(crate) fn cpu_seconds(pid: u32) -> f64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The second field is the program's name in brackets and may hold any text: count after its end.
    let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks: u64 = after_name
        .split_whitespace()
        .skip(11)
        .take(2)
        .filter_map(|field| field.parse::<u64>().ok())
        .sum();
    ticks as f64 / TICKS_PER_SECOND
}
