//! The configuration of a lab.

use super::LabError;
use std::path::PathBuf;
use std::time::Duration;

/// The firmware that every machine of a lab runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Firmware {
    /// OVMF; its network boot is PXE over IPv4 unless a boot override asks for HTTP.
    Uefi,
    /// OVMF with Secure Boot enforced and Microsoft's keys enrolled, as Debian's signed shim needs.
    #[value(name = "secure-boot")]
    UefiSecureBoot,
    /// OVMF that boots from the network only by UEFI HTTP Boot over IPv4.
    #[value(name = "uefi-http")]
    UefiHttp,
    /// SeaBIOS with QEMU's iPXE option ROM.
    Bios,
}

impl Firmware {
    /// Whether the machine boots by UEFI.
    pub fn is_uefi(self) -> bool {
        self != Self::Bios
    }
}

/// How the machines' drives are attached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum DiskKind {
    /// One virtio-blk drive (`/dev/vda`).
    VirtioBlk,
    /// One NVMe drive (`/dev/nvme0n1`).
    Nvme,
    /// One NVMe drive with a second namespace of the same size, which is detached.
    NvmeDetached,
    /// A virtio-blk drive and an NVMe drive, both of `disk_bytes`.
    Both,
}

/// How the BMCs offer the serial ports of their machines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Consoles {
    /// By an SSH server each.
    Ssh,
    /// By a WebSocket of their web servers.
    #[value(name = "websocket")]
    WebSocket,
}

/// Which network boot code the UEFI machines run. BIOS machines always use QEMU's iPXE ROM.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum NetworkRom {
    /// OVMF's own PXE and HTTP clients (the NIC has no option ROM).
    Firmware,
    /// QEMU's iPXE option ROM, faster by about 4 s.
    Ipxe,
}

/// A lab to start. `LabConfig::default()` is one UEFI machine.
#[derive(Debug, Clone)]
pub struct LabConfig {
    /// Number of machines, 1 to 64.
    pub machines: usize,
    /// Firmware of all machines.
    pub firmware: Firmware,
    /// How drives are attached.
    pub disk_kind: DiskKind,
    /// Size of each drive in bytes, a multiple of 512. Drives are sparse files.
    pub disk_bytes: u64,
    /// Memory of each machine in MiB.
    pub memory_mb: u64,
    /// Network boot code of UEFI machines.
    pub network_rom: NetworkRom,
    /// Gives each machine a TPM 2.0 (needs `swtpm`).
    pub tpm: bool,
    /// Folder for disks, firmware variables and serial logs, which is kept. Without it they are in the lab's own
    /// folder, which is removed at the end.
    pub dir: Option<PathBuf>,
    /// Concurrent sessions of a BMC; the next one gets 503.
    pub bmc_sessions: usize,
    /// Time until an unused BMC session expires.
    pub bmc_session_timeout: Duration,
    /// Largest virtual media image that a BMC accepts, in bytes.
    pub media_bytes: u64,
    /// How the BMCs offer the serial ports.
    pub consoles: Consoles,
}

impl Default for LabConfig {
    fn default() -> Self {
        Self {
            machines: 1,
            firmware: Firmware::Uefi,
            disk_kind: DiskKind::VirtioBlk,
            disk_bytes: 4 << 30,
            memory_mb: 512,
            network_rom: NetworkRom::Firmware,
            tpm: false,
            dir: None,
            bmc_sessions: 8,
            bmc_session_timeout: Duration::from_secs(300),
            media_bytes: 4 << 30,
            consoles: Consoles::Ssh,
        }
    }
}

impl LabConfig {
    pub(crate) fn check(&self) -> Result<(), LabError> {
        let fault = |field, detail: &str| {
            Err(LabError::Config {
                field,
                detail: detail.to_owned(),
            })
        };
        if !(1..=64).contains(&self.machines) {
            return fault("machines", "must be 1 to 64");
        }
        if self.disk_bytes == 0 || !self.disk_bytes.is_multiple_of(512) {
            return fault("disk_bytes", "must be a positive multiple of 512");
        }
        if self.memory_mb < 128 {
            return fault("memory_mb", "must be at least 128 MiB");
        }
        if self.bmc_sessions == 0 {
            return fault("bmc_sessions", "must be at least 1");
        }
        Ok(())
    }
}
