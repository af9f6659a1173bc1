//! The machine the agent works on, behind traits: the real one, or parts of it replaced in tests and the simulator.

use std::sync::Arc;

use crate::drives::Drives;
use crate::drives::block::BlockDrives;
use crate::efi::vars::EfiVars;
use crate::jobs::power::{KernelPower, Power};
use crate::jobs::writer::{ImageWriter, StoreWriter};
use crate::root::SysRoot;

/// Everything a job can touch.
#[derive(Clone)]
pub struct Machine {
    /// The kernel's file systems.
    pub root: SysRoot,
    /// The drives.
    pub drives: Arc<dyn Drives>,
    /// Who writes images.
    pub writer: Arc<dyn ImageWriter>,
    /// The power switch.
    pub power: Arc<dyn Power>,
}

impl Machine {
    /// The machine that this process runs on.
    pub fn real() -> Self {
        let root = SysRoot::real();
        Self {
            drives: Arc::new(BlockDrives::new(root.clone())),
            writer: Arc::new(StoreWriter),
            power: Arc::new(KernelPower::new(&root.proc)),
            root,
        }
    }

    /// The boot variables; `None` on machines that did not boot by UEFI.
    pub fn efivars(&self) -> Option<EfiVars> {
        self.root.is_uefi().then(|| EfiVars::new(self.root.efivars()))
    }
}
