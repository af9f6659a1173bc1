//! A BMC with IPMI only: OpenIPMI's `ipmi_sim` (Debian package `openipmi`), a program of independent origin, in front of
//! a machine of the lab. This module joins `ipmi_sim` to the machine's chassis and to its serial port:
//!
//! ```text
//! ipmitool ── RMCP+ ── ipmi_sim ── script for a chassis request ── line over TCP ── this module ── machine
//!                          └────── TCP ── this module ── socket of the serial port, while the machine is on
//! ```

use super::machine::Machine;
use super::{BootEnabled, BootOverride, BootTarget, LabError, PowerState, ResetType, SERVER_IPV4, requirements};
use secrecy::{ExposeSecret, SecretString};
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream, UdpSocket, UnixStream};
use tokio::process::{Child, Command};
use tokio::task::JoinSet;

/// UDP port for the first machine.
const FIRST_PORT: u16 = 6230;
/// Time within which `ipmi_sim` must answer a request.
const START_DEADLINE: Duration = Duration::from_secs(20);
/// Wait for the answer to one request, before the next request.
const ANSWER_WAIT: Duration = Duration::from_millis(100);
/// Longest line of the script, in bytes.
const LINE_MAX: u64 = 256;
/// Pause between attempts to connect to a serial port that its machine has just opened.
const SERIAL_RETRY_PAUSE: Duration = Duration::from_millis(50);
/// Longest password of the user, in bytes. IPMI allows 20 bytes, but `ipmi_sim` 2.0.33 refuses logins with a password of 20.
const PASSWORD_MAX: usize = 16;
/// The file with the commands that `ipmi_sim` runs at its start.
const COMMANDS_FILE: &str = "bmc.emu";
/// Get Channel Authentication Capabilities outside a session, which a BMC answers without a login (IPMI 2.0, sections 13.6
/// and 22.13; the last byte of each half is its checksum).
const CAPABILITIES_REQUEST: [u8; 23] = [
    0x06, 0x00, 0xff, 0x07, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x09, 0x20, 0x18, 0xc8, 0x81, 0x00, 0x38, 0x8e, 0x04, 0xb5,
];

/// A running BMC. Dropping it stops the BMC; the machine keeps running.
#[derive(Debug)]
pub struct IpmiBmc {
    address: String,
    password: SecretString,
    _child: Child,
    _tasks: JoinSet<()>,
}

impl IpmiBmc {
    /// The BMC's address with the facts that a client needs: `ipmi://10.77.0.1:6230?cipher=3&firmware=uefi&mac=…`.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }

    /// The password of the user: the beginning of the password at the machine's Redfish BMC.
    #[must_use]
    pub fn password(&self) -> &str {
        self.password.expose_secret()
    }
}

impl Machine {
    /// Gives the machine a second BMC, with IPMI only and with the same user. From then on the serial port belongs
    /// to the second BMC.
    ///
    /// # Errors
    /// [`LabError::Missing`] without `ipmi_sim`, [`LabError::File`], [`LabError::Machine`] if the BMC does not start.
    pub async fn start_ipmi(&self) -> Result<IpmiBmc, LabError> {
        requirements::require_ipmi()?;
        let failed = |detail: String| self.failed_ipmi(detail);
        let dir = self.run_dir().join("ipmi");
        fs::create_dir_all(&dir).map_err(LabError::file("create", &dir))?;
        let (chassis, chassis_port) = listen().await.map_err(|e| failed(e.to_string()))?;
        let (serial, serial_port) = listen().await.map_err(|e| failed(e.to_string()))?;
        let script = write_script(&dir, chassis_port)?;
        let port = FIRST_PORT + self.inner.index as u16;
        let config = write_config(self, &dir, &script, port, serial_port)?;
        write_commands(&dir)?;
        let mut child = spawn(&dir, &config).map_err(|e| failed(e.to_string()))?;
        let mut tasks = JoinSet::new();
        tasks.spawn(serve_chassis(chassis, self.clone()));
        tasks.spawn(serve_serial(serial, self.clone()));
        tokio::select! {
            answered = wait_for_answer(port) => answered.map_err(failed)?,
            ended = child.wait() => return Err(failed(format!("ipmi_sim ended ({ended:?}); see {}", dir.display()))),
        }
        let firmware = if self.firmware().is_uefi() { "uefi" } else { "bios" };
        Ok(IpmiBmc {
            // ipmi_sim has no cipher suite 17, and does not answer the question for its cipher suites: without `cipher`,
            // ipmitool would wait for this answer at each call.
            address: format!(
                "ipmi://{SERVER_IPV4}:{port}?cipher=3&firmware={firmware}&mac={}",
                self.mac()
            ),
            password: password(self).into(),
            _child: child,
            _tasks: tasks,
        })
    }

    fn failed_ipmi(&self, detail: String) -> LabError {
        LabError::Machine {
            machine: self.name().to_owned(),
            what: "start an IPMI BMC",
            detail,
        }
    }
}

/// Listens on a free local port; returns the port too.
async fn listen() -> std::io::Result<(TcpListener, u16)> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let port = listener.local_addr()?.port();
    Ok((listener, port))
}

/// Writes a file that only the owner can read or run.
fn write_private(path: &Path, mode: u32, text: &str) -> Result<(), LabError> {
    let _ = fs::remove_file(path);
    let file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path);
    file.and_then(|mut file| file.write_all(text.as_bytes()))
        .map_err(LabError::file("write", path))
}

/// Writes the script that `ipmi_sim` runs for a chassis request: it sends its arguments to a local port and prints the
/// answer.
fn write_script(dir: &Path, port: u16) -> Result<PathBuf, LabError> {
    let path = dir.join("chassis.sh");
    let text =
        format!("#!/bin/bash\nexec 3<>/dev/tcp/127.0.0.1/{port} || exit 1\nprintf '%s\\n' \"$*\" >&3\nexec cat <&3\n");
    write_private(&path, 0o700, &text)?;
    Ok(path)
}

/// Writes the configuration of `ipmi_sim`: IPMI on UDP `port`, the script for the chassis, and the serial port's local TCP
/// port.
fn write_config(
    machine: &Machine,
    dir: &Path,
    script: &Path,
    port: u16,
    serial_port: u16,
) -> Result<PathBuf, LabError> {
    let config = dir.join("lan.conf");
    let text = format!(
        "name \"{name}\"\nset_working_mc 0x20\n  startlan 1\n    addr {SERVER_IPV4} {port}\n    priv_limit admin\n    \
         allowed_auths_admin none md2 md5 straight\n    guid {guid}\n  endlan\n  chassis_control \"{script}\"\n  \
         sol \"tcp:127.0.0.1:{serial_port}\" 115200\n  \
         user 2 true \"{user}\" \"{password}\" admin 10 none md2 md5 straight\n",
        name = machine.name(),
        guid = guid(machine.uuid()),
        script = script.display(),
        user = machine.bmc().user,
        password = password(machine),
    );
    write_private(&config, 0o600, &text)?;
    Ok(config)
}

/// The digits of a UUID, its last byte first: in this order `ipmi_sim` sends the GUID, as IPMI requires.
fn guid(uuid: &str) -> String {
    let mut digits: Vec<char> = uuid.chars().filter(|c| *c != '-').collect();
    digits.reverse();
    digits.chunks(2).flat_map(|pair| pair.iter().rev()).collect()
}

/// Writes the commands that make a BMC with an event log and little else. Its numbers have no meaning here
/// (ipmi_sim_cmd(5)).
fn write_commands(dir: &Path) -> Result<(), LabError> {
    let commands = "mc_setbmc 0x20\nmc_add 0x20 0 no-device-sdrs 0x23 9 8 0x9f 0x1291 0xf02 persist_sdr\n\
                    sel_enable 0x20 1000 0x0a\nmc_enable 0x20\n";
    write_private(&dir.join(COMMANDS_FILE), 0o600, commands)
}

/// The beginning of the Redfish BMC's password.
fn password(machine: &Machine) -> &str {
    let whole = machine.bmc().password();
    whole.get(..PASSWORD_MAX).unwrap_or(whole)
}

fn spawn(dir: &Path, config: &Path) -> std::io::Result<Child> {
    let log = fs::File::create(dir.join("log"))?;
    Command::new("ipmi_sim")
        .arg("-c")
        .arg(config)
        .arg("-f")
        .arg(dir.join(COMMANDS_FILE))
        .arg("-s")
        .arg(dir.join("state"))
        .args(["-n", "-p"])
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .kill_on_drop(true)
        .spawn()
}

/// Sends requests to `ipmi_sim` until the first answer.
async fn wait_for_answer(port: u16) -> Result<(), String> {
    let socket = UdpSocket::bind("0.0.0.0:0").await.map_err(|e| e.to_string())?;
    let answered = async {
        socket.connect((SERVER_IPV4, port)).await?;
        let mut answer = [0; 64];
        loop {
            // An error means that the port is not open yet.
            let _ = socket.send(&CAPABILITIES_REQUEST).await;
            if let Ok(Ok(_)) = tokio::time::timeout(ANSWER_WAIT, socket.recv(&mut answer)).await {
                return Ok::<_, std::io::Error>(());
            }
        }
    };
    match tokio::time::timeout(START_DEADLINE, answered).await {
        Ok(connected) => connected.map_err(|e| e.to_string()),
        Err(_) => Err(format!("ipmi_sim did not answer within {} s", START_DEADLINE.as_secs())),
    }
}

/// Answers the lines of the script.
async fn serve_chassis(listener: TcpListener, machine: Machine) {
    // ipmi_sim sends one request at a time.
    while let Ok((stream, _)) = listener.accept().await {
        let mut stream = BufReader::new(stream);
        let mut line = String::new();
        if (&mut stream).take(LINE_MAX).read_line(&mut line).await.is_err() {
            continue;
        }
        let answer = run_line(&machine, line.trim()).await;
        // An error means that the script has ended, and needs no answer.
        let _ = stream.write_all(answer.as_bytes()).await;
    }
}

/// Runs the requests of a line in order: `get NAME` and `set NAME VALUE`. Returns the answers to `get`, one a line.
async fn run_line(machine: &Machine, line: &str) -> String {
    let mut words = line.split_whitespace();
    let mut answer = String::new();
    while let Some(word) = words.next() {
        match (word, words.next()) {
            ("get", Some("power")) => {
                let is_on = machine.view().power != PowerState::Off;
                answer += &format!("power:{}\n", u8::from(is_on));
            }
            ("get", Some("boot")) => answer += &format!("boot:{}\n", boot_word(machine.view().boot)),
            ("get", Some(other)) => answer += &format!("{other}:0\n"),
            ("set", Some(name)) => set_chassis(machine, name, words.next().unwrap_or_default()).await,
            _ => {}
        }
    }
    answer
}

/// The name of the boot device, as `ipmi_sim` expects it.
fn boot_word(boot: BootOverride) -> &'static str {
    match boot.effective() {
        None => "none",
        Some(BootTarget::Pxe | BootTarget::UefiHttp) => "pxe",
        Some(BootTarget::Hdd) => "default",
        Some(BootTarget::Cd) => "cdrom",
    }
}

async fn set_chassis(machine: &Machine, name: &str, value: &str) {
    let reset = match (name, value) {
        ("power", "1") => ResetType::On,
        ("power", "0") => ResetType::ForceOff,
        ("reset", _) => ResetType::ForceRestart,
        ("shutdown", _) => ResetType::GracefulShutdown,
        ("boot", device) => return set_boot(machine, device).await,
        _ => return,
    };
    // IPMI has no error for a request that does not fit the power state: the client reads the power state.
    if let Err(refused) = machine.reset(reset).await {
        tracing::debug!(machine = machine.name(), ?refused, "a reset was refused");
    }
}

/// Sets the device of the next boot; any other word than a known device removes the override.
async fn set_boot(machine: &Machine, device: &str) {
    let target = match device {
        "pxe" => Some(BootTarget::Pxe),
        "default" => Some(BootTarget::Hdd),
        "cdrom" => Some(BootTarget::Cd),
        _ => None,
    };
    let boot = target.map_or(BootOverride::NONE, |target| BootOverride {
        target: Some(target),
        enabled: BootEnabled::Once,
    });
    if let Err(error) = machine.set_boot(boot).await {
        tracing::warn!(machine = machine.name(), %error, "the boot device was not set");
    }
}

/// Joins each connection of `ipmi_sim` to the machine's serial port.
async fn serve_serial(listener: TcpListener, machine: Machine) {
    while let Ok((mut stream, _)) = listener.accept().await {
        // Until ipmi_sim closes the connection; it connects again by itself.
        while let Ok(true) = join_serial(&mut stream, &machine).await {}
    }
}

/// Waits until the machine is on, and joins the connection to the serial port until one of them ends. Returns false when no
/// other join follows: `ipmi_sim` has closed the connection, or the machine is gone.
async fn join_serial(stream: &mut TcpStream, machine: &Machine) -> std::io::Result<bool> {
    let mut view = machine.watch();
    if view.wait_for(|view| view.pid.is_some()).await.is_err() {
        return Ok(false);
    }
    let Ok(port) = UnixStream::connect(machine.console_path()).await else {
        tokio::time::sleep(SERIAL_RETRY_PAUSE).await;
        return Ok(true);
    };
    let (mut input, mut output) = stream.split();
    let (mut port_output, mut port_input) = port.into_split();
    tokio::select! {
        typed = tokio::io::copy(&mut input, &mut port_input) => typed.map(|_| false),
        printed = tokio::io::copy(&mut port_output, &mut output) => printed.map(|_| true),
    }
}
