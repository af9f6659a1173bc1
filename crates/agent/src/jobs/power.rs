//! Switching the machine off, and resetting it.

use std::fs;
use std::io;
use std::path::PathBuf;

use nix::sys::reboot::{RebootMode, reboot};
use rackwright_api::v1::RebootWay;

/// What the machine does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PowerAction {
    /// Start anew through the firmware.
    Reset,
    /// Switch off.
    PowerOff,
}

impl PowerAction {
    /// The action of a job; `None` for ways that this agent does not know.
    ///
    /// There is no kexec: the installed system's kernel lies in a file system of the image, which the agent does not
    /// read, and what was handed over should have been started by the firmware once. Agents answer ways that they do
    /// not know with `unsupported`.
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
    /// Acts; on a real machine it does not return unless everything failed.
    ///
    /// # Errors
    /// What the kernel said last.
    fn perform(&self, action: PowerAction) -> io::Result<()>;
}

/// The running kernel's.
#[derive(Debug)]
pub struct KernelPower {
    sysrq: PathBuf,
}

impl KernelPower {
    /// `proc`: where procfs is mounted.
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
        // The other way into the same kernel, for what it is worth.
        fs::write(&self.sysrq, key).map_err(|_| error.into())
    }
}
