//! The machine the agent works on, behind traits: the real one, or parts of it replaced in tests and the simulator.

use std::sync::Arc;

use crate::drives::Drives;
use crate::drives::block::BlockDrives;
use crate::erase::{DriveEraser, Eraser};
use crate::host::{Host, KernelHost};
use crate::jobs::power::{KernelPower, Power};
use crate::jobs::writer::{ImageWriter, StoreWriter};
use crate::root::SysRoot;

/// Everything a job can touch.
#[derive(Clone)]
pub struct Machine {
    /// The kernel and what it knows of the machine.
    pub host: Arc<dyn Host>,
    /// The drives.
    pub drives: Arc<dyn Drives>,
    /// Who writes images.
    pub writer: Arc<dyn ImageWriter>,
    /// Erases drives.
    pub eraser: Arc<dyn Eraser>,
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
            eraser: Arc::new(DriveEraser),
            power: Arc::new(KernelPower::new(&root.proc)),
            host: Arc::new(KernelHost(root)),
        }
    }
}
