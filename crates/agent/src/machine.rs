//! The machine behind traits: the real one, or with parts replaced in tests and the simulator.

use std::sync::Arc;

use crate::drives::Drives;
use crate::drives::block::BlockDrives;
use crate::erase::{DriveEraser, Eraser};
use crate::host::{Host, KernelHost};
use crate::jobs::power::{KernelPower, Power};
use crate::jobs::writer::{ImageWriter, StoreWriter};
use crate::root::SysRoot;

/// All parts of the machine that a job can use.
#[derive(Clone)]
pub struct Machine {
    /// The kernel and its knowledge of the machine.
    pub host: Arc<dyn Host>,
    /// The machine's drives.
    pub drives: Arc<dyn Drives>,
    /// Writes images to drives.
    pub writer: Arc<dyn ImageWriter>,
    /// Erases drives.
    pub eraser: Arc<dyn Eraser>,
    /// The power switch.
    pub power: Arc<dyn Power>,
}

impl Machine {
    /// The machine of this process.
    pub fn real() -> Self {
        let root = SysRoot::real();
        Self {
            drives: Arc::new(BlockDrives::new(root.clone())),
            writer: Arc::new(StoreWriter),
            eraser: Arc::new(DriveEraser),
            power: Arc::new(KernelPower::new(&root.proc)),
            host: Arc::new(KernelHost { root }),
        }
    }
}
