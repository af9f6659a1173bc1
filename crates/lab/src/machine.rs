//! A machine as tests and its BMC see it.

use super::actor::Command;
use super::process::cpu_seconds;
use super::qemu::{Drive, DriveBus, Hardware};
use super::{Firmware, LabError, network, nvram};
use rackwright_sim_bmc::{BootOverride, Faults, PowerState, ResetRefused, ResetType};
use secrecy::{ExposeSecret, SecretString};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};

/// Pause between readings of a log file while waiting for a text in it.
const LOG_POLL: Duration = Duration::from_millis(50);

/// An image in the virtual media drive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Media {
    /// The URL from which the BMC fetched it.
    pub url: String,
    /// The path of the fetched file.
    pub path: PathBuf,
}

/// A machine's state at one moment.
#[derive(Debug, Clone, PartialEq)]
pub struct MachineView {
    pub power: PowerState,
    pub boot: BootOverride,
    /// Counts changes of the boot override; the BMC's ETag is derived from it.
    pub boot_generation: u64,
    pub media: Option<Media>,
    /// Number of boots begun: power-ons and resets, including the guest's own.
    pub boots: u64,
    /// Why the last power-on failed, until one succeeds.
    pub fault: Option<String>,
    /// QEMU's process id (inside the namespace) while it runs.
    pub pid: Option<u32>,
    /// CPU seconds of the QEMU processes that have ended.
    pub cpu_seconds_before: f64,
    pub(crate) drives: Vec<Drive>,
}

impl MachineView {
    pub(crate) fn new(drives: Vec<Drive>) -> Self {
        Self {
            power: PowerState::Off,
            boot: BootOverride::NONE,
            boot_generation: 1,
            media: None,
            boots: 0,
            fault: None,
            pid: None,
            cpu_seconds_before: 0.0,
            drives,
        }
    }
}

/// The address and login of a machine's BMC.
#[derive(Debug, Clone)]
pub struct BmcAccess {
    /// `https://10.77.0.1:8001` and so on, without a path.
    pub url: String,
    pub user: String,
    pub password: SecretString,
    /// `sha256:` and 64 hexadecimal digits of the certificate (DER).
    pub fingerprint: String,
    pub certificate_pem: String,
}

impl BmcAccess {
    /// The password in clear, for a request.
    pub fn password(&self) -> &str {
        self.password.expose_secret()
    }
}

/// A handle on one machine of the lab: its description, its state and its fault switches.
#[derive(Debug, Clone)]
pub struct Machine {
    pub(crate) inner: Arc<Inner>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) index: usize,
    pub(crate) hardware: Hardware,
    pub(crate) bmc: BmcAccess,
    pub(crate) commands: mpsc::Sender<Command>,
    pub(crate) view: watch::Receiver<MachineView>,
    pub(crate) faults: watch::Sender<Faults>,
    pub(crate) listening: watch::Receiver<bool>,
}

impl Machine {
    /// `lab-0` and so on.
    pub fn name(&self) -> &str {
        &self.inner.hardware.name
    }

    /// MAC address of its NIC, lower case with colons.
    pub fn mac(&self) -> &str {
        &self.inner.hardware.mac
    }

    /// SMBIOS UUID, lower case; Redfish and the guest's DMI report the same.
    pub fn uuid(&self) -> &str {
        &self.inner.hardware.uuid
    }

    /// SMBIOS serial number.
    pub fn serial(&self) -> &str {
        &self.inner.hardware.serial
    }

    pub fn firmware(&self) -> Firmware {
        self.inner.hardware.firmware
    }

    /// Memory in MiB.
    pub fn memory_mb(&self) -> u64 {
        self.inner.hardware.memory_mb
    }

    /// Whether it has a TPM.
    pub fn tpm(&self) -> bool {
        self.inner.hardware.tpm
    }

    pub fn bmc(&self) -> &BmcAccess {
        &self.inner.bmc
    }

    /// The raw file behind drive `index`, or `None` if there is no such drive now.
    pub fn disk_path(&self, index: usize) -> Option<PathBuf> {
        self.inner
            .view
            .borrow()
            .drives
            .get(index)
            .map(|drive| drive.path.clone())
    }

    /// The file of its drive's detached namespace; none if the drive has none.
    pub fn detached_path(&self, index: usize) -> Option<PathBuf> {
        let view = self.inner.view.borrow();
        let drive = view.drives.get(index)?;
        (drive.bus == DriveBus::NvmeDetached).then(|| drive.detached_path())
    }

    /// The machine's serial output of all boots.
    pub fn serial_log_path(&self) -> PathBuf {
        self.inner.hardware.serial_log()
    }

    /// A Unix socket of the serial port, usable while the machine is on.
    pub fn console_path(&self) -> PathBuf {
        self.inner.hardware.console()
    }

    /// The text of the serial log so far.
    pub fn serial_log(&self) -> String {
        String::from_utf8_lossy(&fs::read(self.serial_log_path()).unwrap_or_default()).into_owned()
    }

    /// Its state now.
    pub fn view(&self) -> MachineView {
        self.inner.view.borrow().clone()
    }

    /// Follows its state: each change wakes the receiver.
    pub fn watch(&self) -> watch::Receiver<MachineView> {
        self.inner.view.clone()
    }

    /// CPU seconds of emulating the machine since the lab started.
    pub fn cpu_seconds(&self) -> f64 {
        let view = self.inner.view.borrow();
        view.cpu_seconds_before + view.pid.map_or(0.0, cpu_seconds)
    }

    /// Waits until the machine's state satisfies `wanted`; `what` names it in the error.
    ///
    /// # Errors
    /// [`LabError::Deadline`].
    pub async fn wait_for(
        &self,
        what: &str,
        deadline: Duration,
        wanted: impl FnMut(&MachineView) -> bool,
    ) -> Result<MachineView, LabError> {
        let mut view = self.inner.view.clone();
        match tokio::time::timeout(deadline, view.wait_for(wanted)).await {
            Ok(Ok(view)) => Ok(view.clone()),
            Ok(Err(_)) => Err(self.stopped()),
            Err(_) => Err(self.timeout_error(what, deadline, format!("it is now {:?}", self.view()))),
        }
    }

    /// Waits for a power state.
    ///
    /// # Errors
    /// [`LabError::Deadline`].
    pub async fn wait_power(&self, power: PowerState, deadline: Duration) -> Result<MachineView, LabError> {
        self.wait_for(&format!("power state {}", power.as_str()), deadline, |view| {
            view.power == power
        })
        .await
    }

    /// Waits until the serial log holds `text`.
    ///
    /// # Errors
    /// [`LabError::Deadline`], with the end of the log.
    pub async fn wait_serial(&self, text: &str, deadline: Duration) -> Result<(), LabError> {
        let found = async {
            while !self.serial_log().contains(text) {
                tokio::time::sleep(LOG_POLL).await;
            }
        };
        if tokio::time::timeout(deadline, found).await.is_ok() {
            return Ok(());
        }
        let log = self.serial_log();
        let end: String = log.chars().skip(log.chars().count().saturating_sub(1500)).collect();
        Err(self.timeout_error(
            &format!("`{text}` on the serial port"),
            deadline,
            format!("the log ends with: {end}"),
        ))
    }

    /// Requests a reset as the BMC does; returns when it is accepted.
    ///
    /// # Errors
    /// [`ResetRefused`] if a real machine's BMC would refuse.
    pub async fn reset(&self, reset: ResetType) -> Result<(), ResetRefused> {
        self.ask(|reply| Command::Reset { reset, reply })
            .await
            .unwrap_or(Err(ResetRefused::Stopped))
    }

    /// Sets the boot override as the BMC does.
    ///
    /// # Errors
    /// [`LabError::Stopped`].
    pub async fn set_boot(&self, boot: BootOverride) -> Result<(), LabError> {
        self.send_command(|reply| Command::SetBoot { boot, reply }).await
    }

    pub(crate) async fn insert_media(&self, media: Media) -> Result<(), LabError> {
        self.send_command(|reply| Command::SetMedia {
            media: Some(media),
            reply,
        })
        .await
    }

    pub(crate) async fn eject_media(&self) -> Result<(), LabError> {
        self.send_command(|reply| Command::SetMedia { media: None, reply })
            .await
    }

    /// Cuts the power at once, as a failed power supply does; returns when the machine is off. Does nothing if it is off.
    ///
    /// # Errors
    /// [`LabError::Stopped`].
    pub async fn power_cut(&self) -> Result<(), LabError> {
        self.send_command(|reply| Command::PowerCut { reply }).await
    }

    /// With `true` the machine's CPU stops: it powers on, but never boots.
    ///
    /// # Errors
    /// [`LabError::Machine`] if QEMU refuses.
    pub async fn boot_hang(&self, hang: bool) -> Result<(), LabError> {
        self.send_command(|reply| Command::SetHang { hang, reply }).await
    }

    /// Replaces drive `index` by a blank one of `bytes`.
    ///
    /// # Errors
    /// [`LabError::MachineIsOn`]; [`LabError::Config`] if there is no such drive.
    pub async fn swap_disk(&self, index: usize, bytes: u64) -> Result<(), LabError> {
        self.send_command(|reply| Command::SwapDisk { index, bytes, reply })
            .await
    }

    /// Removes drive `index` permanently; later drives move up.
    ///
    /// # Errors
    /// [`LabError::MachineIsOn`]; [`LabError::Config`] if there is no such drive.
    pub async fn remove_disk(&self, index: usize) -> Result<(), LabError> {
        self.send_command(|reply| Command::RemoveDisk { index, reply }).await
    }

    /// Makes drive `index` fail every write to its 512-byte sector `sector` from the next power-on.
    ///
    /// # Errors
    /// [`LabError::MachineIsOn`]; [`LabError::Config`] if there is no such drive.
    pub async fn break_disk(&self, index: usize, sector: u64) -> Result<(), LabError> {
        self.send_command(|reply| Command::BreakDisk { index, sector, reply })
            .await
    }

    /// The names of the boot entries in its UEFI firmware; none with BIOS.
    ///
    /// # Errors
    /// [`LabError::File`] if the variable store cannot be read.
    pub fn boot_entries(&self) -> Result<Vec<String>, LabError> {
        if !self.firmware().is_uefi() {
            return Ok(Vec::new());
        }
        let vars = self.inner.hardware.vars();
        nvram::boot_entries(&vars).map_err(LabError::file("read", &vars))
    }

    /// The names of all variables in its UEFI firmware; none with BIOS.
    ///
    /// # Errors
    /// [`LabError::File`] if the variable store cannot be read.
    pub fn uefi_variables(&self) -> Result<Vec<String>, LabError> {
        if !self.firmware().is_uefi() {
            return Ok(Vec::new());
        }
        let vars = self.inner.hardware.vars();
        nvram::variables(&vars).map_err(LabError::file("read", &vars))
    }

    /// With `true` the machine's network cable is unplugged.
    ///
    /// # Errors
    /// [`LabError::Command`] if `ip` fails.
    pub fn network_cut(&self, cut: bool) -> Result<(), LabError> {
        network::set_tap(self.inner.index, if cut { "down" } else { "up" })
    }

    /// With `true` the BMC drops all connections and refuses new ones; returns when this has taken effect.
    ///
    /// # Errors
    /// [`LabError::Stopped`].
    pub async fn bmc_dead(&self, dead: bool) -> Result<(), LabError> {
        self.inner.faults.send_modify(|faults| faults.dead = dead);
        let mut listening = self.inner.listening.clone();
        listening
            .wait_for(|listening| *listening != dead)
            .await
            .map(drop)
            .map_err(|_| self.stopped())
    }

    /// With `true` the BMC accepts connections and requests but answers none until it is `false` again.
    pub fn bmc_silent(&self, silent: bool) {
        self.inner.faults.send_modify(|faults| faults.silent = silent);
    }

    /// Delays each answer of the BMC.
    pub fn bmc_slow(&self, delay: Duration) {
        self.inner.faults.send_modify(|faults| faults.delay = delay);
    }

    pub(crate) fn run_dir(&self) -> &Path {
        &self.inner.hardware.run_dir
    }

    async fn ask<T>(&self, command: impl FnOnce(oneshot::Sender<T>) -> Command) -> Option<T> {
        let (reply, answer) = oneshot::channel();
        self.inner.commands.send(command(reply)).await.ok()?;
        answer.await.ok()
    }

    async fn send_command(
        &self,
        command: impl FnOnce(oneshot::Sender<Result<(), LabError>>) -> Command,
    ) -> Result<(), LabError> {
        self.ask(command).await.unwrap_or_else(|| Err(self.stopped()))
    }

    fn stopped(&self) -> LabError {
        LabError::Stopped {
            machine: self.name().to_owned(),
        }
    }

    fn timeout_error(&self, what: &str, deadline: Duration, seen: String) -> LabError {
        let machine = self.name().to_owned();
        LabError::Deadline {
            machine,
            what: what.to_owned(),
            deadline_s: deadline.as_secs(),
            seen,
        }
    }
}
