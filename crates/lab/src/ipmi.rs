//! A BMC with IPMI only: OpenIPMI's `ipmi_sim` (Debian package `openipmi`), a program of independent origin, in front of
//! a machine of the lab.
//!
//! ```text
//! ipmitool ── RMCP+ ── ipmi_sim ── runs a script for each thing it wants of the chassis ── line over TCP ── this ── machine
//!                          └────── TCP ────── this ────── the serial port's socket, while the machine is on
//! ```

use super::machine::Machine;
use super::{BootEnabled, BootOverride, BootTarget, LabError, PowerState, ResetType, SERVER_IPV4, doctor};
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
/// Time within which `ipmi_sim` must listen.
const START_DEADLINE: Duration = Duration::from_secs(20);
/// Pause between checks whether it listens.
const ASK_EVERY: Duration = Duration::from_millis(100);
/// Longest line of the script.
const LINE_MAX: u64 = 256;
/// Pause between attempts to connect to a serial port that its machine has just opened.
const SERIAL_EVERY: Duration = Duration::from_millis(50);
/// Get Channel Authentication Capabilities outside a session, which a BMC answers without a login (IPMI 2.0, sections 13.6
/// and 22.13; the last byte of each half is its checksum).
const ANYBODY_THERE: [u8; 23] = [
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
    /// `ipmi://10.77.0.1:6230?cipher=3&mac=…`, with all necessary facts of the machine.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }

    /// The password of its user `admin`: the beginning of the Redfish BMC's password.
    #[must_use]
    pub fn password(&self) -> &str {
        self.password.expose_secret()
    }
}

impl Machine {
    /// Gives the machine a second BMC, with IPMI only, with the same user. From then on the serial port belongs
    /// to the second BMC.
    ///
    /// # Errors
    /// [`LabError::Missing`], [`LabError::File`], [`LabError::Machine`] if it does not start.
    pub async fn start_ipmi(&self) -> Result<IpmiBmc, LabError> {
        doctor::require_ipmi()?;
        let failed = |detail: String| self.failed_ipmi(detail);
        let dir = self.run_dir().join("ipmi");
        fs::create_dir_all(&dir).map_err(LabError::file("create", &dir))?;
        let chassis = TcpListener::bind("127.0.0.1:0")
            .await
            .map_err(|e| failed(e.to_string()))?;
        let serial = TcpListener::bind("127.0.0.1:0")
            .await
            .map_err(|e| failed(e.to_string()))?;
        let port_of = |one: &TcpListener| one.local_addr().map(|a| a.port()).map_err(|e| failed(e.to_string()));
        let script = write_script(&dir, port_of(&chassis)?)?;
        let port = FIRST_PORT + self.inner.index as u16;
        let config = write_config(self, &dir, &script, port, port_of(&serial)?)?;
        let mut child = spawn(&dir, &config).map_err(|e| failed(e.to_string()))?;
        let mut tasks = JoinSet::new();
        tasks.spawn(serve_chassis(chassis, self.clone()));
        tasks.spawn(serve_serial(serial, self.clone()));
        tokio::select! {
            up = wait_for_it(port) => up.map_err(failed)?,
            ended = child.wait() => return Err(failed(format!("ipmi_sim ended ({ended:?}); see {}", dir.display()))),
        }
        let firmware = if self.firmware().is_uefi() { "uefi" } else { "bios" };
        Ok(IpmiBmc {
            // It has no cipher suite 17 and does not answer questions about cipher suites: ipmitool would wait for that each
            // time.
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

/// Writes a file that only the owner can read or run.
fn write(path: &Path, mode: u32, text: &str) -> Result<(), LabError> {
    let _ = fs::remove_file(path);
    let file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path);
    file.and_then(|mut file| file.write_all(text.as_bytes()))
        .map_err(LabError::file("write", path))
}

/// The script that `ipmi_sim` runs: it forwards its arguments and prints the answer.
fn write_script(dir: &Path, port: u16) -> Result<PathBuf, LabError> {
    let path = dir.join("chassis.sh");
    let text =
        format!("#!/bin/bash\nexec 3<>/dev/tcp/127.0.0.1/{port} || exit 1\nprintf '%s\\n' \"$*\" >&3\nexec cat <&3\n");
    write(&path, 0o700, &text)?;
    Ok(path)
}

fn write_config(machine: &Machine, dir: &Path, script: &Path, port: u16, serial: u16) -> Result<PathBuf, LabError> {
    let (user, password) = (&machine.bmc().user, password(machine));
    // ipmi_sim sends it from its last byte to its first, as IPMI requires.
    let mut digits: Vec<char> = machine.uuid().chars().filter(|c| *c != '-').collect();
    digits.reverse();
    let guid: String = digits.chunks(2).flat_map(|pair| pair.iter().rev()).collect();
    let config = dir.join("lan.conf");
    let text = format!(
        "name \"{name}\"\nset_working_mc 0x20\n  startlan 1\n    addr {SERVER_IPV4} {port}\n    priv_limit admin\n    \
         allowed_auths_admin none md2 md5 straight\n    guid {guid}\n  endlan\n  chassis_control \"{script}\"\n  \
         sol \"tcp:127.0.0.1:{serial}\" 115200\n  user 2 true \"{user}\" \"{password}\" admin 10 none md2 md5 straight\n",
        name = machine.name(),
        script = script.display(),
    );
    write(&config, 0o600, &text)?;
    // A BMC with an event log and little else; the numbers do not matter (ipmi_sim_cmd(5)).
    let commands = "mc_setbmc 0x20\nmc_add 0x20 0 no-device-sdrs 0x23 9 8 0x9f 0x1291 0xf02 persist_sdr\n\
                    sel_enable 0x20 1000 0x0a\nmc_enable 0x20\n";
    write(&dir.join("bmc.emu"), 0o600, commands)?;
    Ok(config)
}

/// IPMI allows passwords of up to 20 bytes, but `ipmi_sim` 2.0.33 refuses logins with one of 20.
fn password(machine: &Machine) -> &str {
    let whole = machine.bmc().password();
    whole.get(..16).unwrap_or(whole)
}

fn spawn(dir: &Path, config: &Path) -> std::io::Result<Child> {
    let log = fs::File::create(dir.join("log"))?;
    Command::new("ipmi_sim")
        .arg("-c")
        .arg(config)
        .arg("-f")
        .arg(dir.join("bmc.emu"))
        .arg("-s")
        .arg(dir.join("state"))
        .args(["-n", "-p"])
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .kill_on_drop(true)
        .spawn()
}

/// Sends requests until it answers.
async fn wait_for_it(port: u16) -> Result<(), String> {
    let socket = UdpSocket::bind("0.0.0.0:0").await.map_err(|e| e.to_string())?;
    let ask = async {
        socket.connect((SERVER_IPV4, port)).await?;
        let mut answer = [0; 64];
        loop {
            // Refused while the port is closed, which is not an answer.
            let _ = socket.send(&ANYBODY_THERE).await;
            if let Ok(Ok(_)) = tokio::time::timeout(ASK_EVERY, socket.recv(&mut answer)).await {
                return Ok::<_, std::io::Error>(());
            }
        }
    };
    match tokio::time::timeout(START_DEADLINE, ask).await {
        Ok(up) => up.map_err(|e| e.to_string()),
        Err(_) => Err(format!("ipmi_sim did not answer within {} s", START_DEADLINE.as_secs())),
    }
}

async fn serve_chassis(listener: TcpListener, machine: Machine) {
    // ipmi_sim sends one request at a time.
    while let Ok((stream, _)) = listener.accept().await {
        let mut stream = BufReader::new(stream);
        let mut line = String::new();
        if (&mut stream).take(LINE_MAX).read_line(&mut line).await.is_err() {
            continue;
        }
        let answer = obey(&machine, line.trim()).await;
        // A client that does not wait for the answer has ended.
        let _ = stream.write_all(answer.as_bytes()).await;
    }
}

/// Carries out the words of a line in turn and returns the answers.
async fn obey(machine: &Machine, line: &str) -> String {
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
            ("set", Some(name)) => set(machine, name, words.next().unwrap_or_default()).await,
            _ => {}
        }
    }
    answer
}

fn boot_word(boot: BootOverride) -> &'static str {
    match boot.effective() {
        None => "none",
        Some(BootTarget::Pxe | BootTarget::UefiHttp) => "pxe",
        Some(BootTarget::Hdd) => "default",
        Some(BootTarget::Cd) => "cdrom",
    }
}

async fn set(machine: &Machine, name: &str, value: &str) {
    let reset = match (name, value) {
        ("power", "1") => ResetType::On,
        ("power", "0") => ResetType::ForceOff,
        ("reset", _) => ResetType::ForceRestart,
        ("shutdown", _) => ResetType::GracefulShutdown,
        ("boot", device) => {
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
            return;
        }
        _ => return,
    };
    // IPMI has no error for a request that does not fit the power state: the client reads the power state.
    if let Err(refused) = machine.reset(reset).await {
        tracing::debug!(machine = machine.name(), ?refused, "a reset was refused");
    }
}

async fn serve_serial(listener: TcpListener, machine: Machine) {
    while let Ok((mut stream, _)) = listener.accept().await {
        // Ends when ipmi_sim closes the connection; ipmi_sim reconnects by itself.
        while let Ok(true) = join_serial(&mut stream, &machine).await {}
    }
}

/// Joins the serial port while the machine is on; false when the other side has closed.
async fn join_serial(stream: &mut TcpStream, machine: &Machine) -> std::io::Result<bool> {
    let mut view = machine.watch();
    if view.wait_for(|view| view.pid.is_some()).await.is_err() {
        return Ok(false);
    }
    let Ok(port) = UnixStream::connect(machine.console_path()).await else {
        tokio::time::sleep(SERIAL_EVERY).await;
        return Ok(true);
    };
    let (mut from, mut to) = stream.split();
    let (mut port_from, mut port_to) = port.into_split();
    tokio::select! {
        typed = tokio::io::copy(&mut from, &mut port_to) => typed.map(|_| false),
        printed = tokio::io::copy(&mut port_from, &mut to) => printed.map(|_| true),
    }
}
