//! Roots of the kernel's file systems: the real ones, or a fixture tree in tests and in the simulator.

use std::path::{Path, PathBuf};

/// The roots of all machine files that the agent reads and writes.
#[derive(Clone, Debug)]
pub struct SysRoot {
    pub proc: PathBuf,
    pub sys: PathBuf,
    pub dev: PathBuf,
    /// `/run/rackwright`: the ledger and the agent's identity. Only the agent can read it; a reboot clears it.
    pub state: PathBuf,
}

impl SysRoot {
    /// The real roots.
    pub fn real() -> Self {
        Self {
            proc: "/proc".into(),
            sys: "/sys".into(),
            dev: "/dev".into(),
            state: "/run/rackwright".into(),
        }
    }

    /// The same tree under another folder.
    pub fn below(folder: &Path) -> Self {
        let join = |part: &str| folder.join(part);
        Self {
            proc: join("proc"),
            sys: join("sys"),
            dev: join("dev"),
            state: join("run/rackwright"),
        }
    }

    /// Mount point of efivarfs on machines that booted by UEFI.
    pub fn efivars(&self) -> PathBuf {
        self.sys.join("firmware/efi/efivars")
    }

    /// The firmware's event log, in the kernel's securityfs.
    pub fn event_log(&self) -> PathBuf {
        self.sys.join("kernel/security/tpm0/binary_bios_measurements")
    }

    /// Whether UEFI firmware started the kernel.
    pub fn is_uefi(&self) -> bool {
        self.sys.join("firmware/efi").is_dir()
    }

    /// `/proc/sys/kernel/random/boot_id`, or empty.
    pub fn boot_id(&self) -> String {
        crate::text::or_empty(&self.proc.join("sys/kernel/random/boot_id"))
    }

    /// Seconds since the start of the kernel; 0 if `/proc/uptime` cannot be read.
    pub fn uptime_s(&self) -> f64 {
        let text = crate::text::or_empty(&self.proc.join("uptime"));
        text.split(' ')
            .next()
            .and_then(|first| first.parse().ok())
            .unwrap_or(0.0)
    }
}
