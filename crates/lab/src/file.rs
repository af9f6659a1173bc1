//! The description of a running lab for other programs (`RACKWRIGHT_LAB_FILE`).

use super::qemu::DriveBus;
use super::{BRIDGE, LabError, Machine, SERVER_IPV4, SERVER_IPV6};
use serde::{Deserialize, Serialize};
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// A running lab. Written as JSON; only the owner can read the file, because it holds the BMCs' passwords.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LabFile {
    /// Version of this layout: 1.
    pub format: u32,
    /// PID as seen from outside, for entering the lab by `nsenter`.
    pub pid: u32,
    /// Bridge inside the namespace.
    pub bridge: String,
    /// Our IPv4 address on it, with prefix length.
    pub ipv4: String,
    /// Our IPv6 address on it, with prefix length.
    pub ipv6: String,
    pub machines: Vec<MachineEntry>,
}

/// One machine.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct MachineEntry {
    pub name: String,
    pub bmc: BmcEntry,
    pub mac: String,
    pub uuid: String,
    pub serial: String,
    pub memory_mb: u64,
    pub uefi: bool,
    pub disks: Vec<DiskEntry>,
    pub serial_log: PathBuf,
    /// Unix socket of the serial port while the machine is on.
    pub console: PathBuf,
}

/// One machine's BMC.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct BmcEntry {
    /// URL without a path.
    pub address: String,
    pub user: String,
    pub password: String,
    /// `sha256:` and the hexadecimal digest of the certificate (DER).
    pub fingerprint: String,
}

/// One drive.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct DiskEntry {
    /// The raw file behind it.
    pub path: PathBuf,
    pub serial: String,
    /// `virtio-blk` or `nvme`.
    pub bus: String,
    pub bytes: u64,
}

impl LabFile {
    pub(crate) fn new(pid: u32, machines: &[Machine]) -> Self {
        Self {
            format: 1,
            pid,
            bridge: BRIDGE.to_owned(),
            ipv4: format!("{SERVER_IPV4}/24"),
            ipv6: format!("{SERVER_IPV6}/64"),
            machines: machines.iter().map(MachineEntry::new).collect(),
        }
    }

    /// Writes the description as JSON.
    ///
    /// # Errors
    /// [`LabError::File`].
    pub fn write(&self, path: &Path) -> Result<(), LabError> {
        let mut text = serde_json::to_vec_pretty(self).unwrap_or_default();
        text.push(b'\n');
        let file = OpenOptions::new()
            .create(true)
            .write(true)
            .truncate(true)
            .mode(0o600)
            .open(path);
        file.and_then(|mut file| file.write_all(&text))
            .map_err(LabError::file("write", path))
    }

    /// Reads a description.
    ///
    /// # Errors
    /// [`LabError::File`], also for a text that is not a description.
    pub fn read(path: &Path) -> Result<Self, LabError> {
        let text = std::fs::read(path).map_err(LabError::file("read", path))?;
        serde_json::from_slice(&text).map_err(|error| LabError::file("understand", path)(error.into()))
    }
}

impl MachineEntry {
    fn new(machine: &Machine) -> Self {
        let bmc = machine.bmc();
        let disks = machine.view().drives.into_iter().map(|drive| DiskEntry {
            path: drive.path,
            serial: drive.serial,
            bus: match drive.bus {
                DriveBus::VirtioBlk => "virtio-blk",
                DriveBus::Nvme | DriveBus::NvmeDetached => "nvme",
            }
            .to_owned(),
            bytes: drive.bytes,
        });
        Self {
            name: machine.name().to_owned(),
            bmc: BmcEntry {
                address: bmc.url.clone(),
                user: bmc.user.clone(),
                password: bmc.password().to_owned(),
                fingerprint: bmc.fingerprint.clone(),
            },
            mac: machine.mac().to_owned(),
            uuid: machine.uuid().to_owned(),
            serial: machine.serial().to_owned(),
            memory_mb: machine.memory_mb(),
            uefi: machine.firmware().is_uefi(),
            disks: disks.collect(),
            serial_log: machine.serial_log_path(),
            console: machine.console_path(),
        }
    }
}
