//! Switches the machine off or resets it.

use std::fs;
use std::io;
use std::path::PathBuf;

use nix::sys::reboot::{RebootMode, reboot};
use rackwright_api::v1::RebootWay;

/// Next power state of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PowerAction {
    /// Restart through the firmware.
    Reset,
    /// Switch off.
    PowerOff,
}

impl PowerAction {
    /// The action of a job; `None` for a way that this agent does not know.
    ///
    /// There is no kexec: the installed system's kernel lies in a file system of the image that the agent does not read,
    /// and the firmware should have started a delivered system once. Agents answer an unknown way with `unsupported`.
    pub fn of(way: RebootWay) -> Option<Self> {
        match way {
            RebootWay::Reset => Some(Self::Reset),
            RebootWay::PowerOff => Some(Self::PowerOff),
            RebootWay::Unspecified => None,
        }
    }
}

/// The machine's power switch.
pub trait Power: Send + Sync {
    /// Performs the action. On a real machine it returns only if all methods failed.
    ///
    /// # Errors
    /// The kernel's last error.
    fn perform(&self, action: PowerAction) -> io::Result<()>;
}

/// The power switch of the running kernel.
#[derive(Debug)]
pub struct KernelPower {
    sysrq: PathBuf,
}

impl KernelPower {
    /// `proc` is the mount point of procfs.
    pub fn new(proc: &std::path::Path) -> Self {
        Self {
            sysrq: proc.join("sysrq-trigger"),
        }
    }
}

impl Power for KernelPower {
    fn perform(&self, action: PowerAction) -> io::Result<()> {
        nix::unistd::sync();
        let (mode, key) = match action {
            PowerAction::Reset => (RebootMode::RB_AUTOBOOT, "b"),
            PowerAction::PowerOff => (RebootMode::RB_POWER_OFF, "o"),
        };
        let Err(error) = reboot(mode);
        // A second method through the same kernel.
        fs::write(&self.sysrq, key).map_err(|_| error.into())
    }
}
