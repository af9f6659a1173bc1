//! Block devices of the running kernel.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek as _, SeekFrom};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};

use rackwright_api::v1::EraseMethod;

use super::ata::Ata;
use super::nvme::Nvme;
use super::{DriveError, DriveFacts, Drives, MethodError, RawDrive, sysfs};
use crate::ioctl;
use crate::jobs::control::JobControl;
use crate::root::SysRoot;
use crate::text;

/// The machine's own drives.
#[derive(Debug)]
pub struct BlockDrives {
    root: SysRoot,
}

impl BlockDrives {
    /// Those below the given roots.
    pub fn new(root: SysRoot) -> Self {
        Self { root }
    }
}

impl Drives for BlockDrives {
    fn list(&self) -> Vec<DriveFacts> {
        sysfs::list(&self.root)
    }

    fn open(&self, facts: &DriveFacts) -> Result<Box<dyn RawDrive>, DriveError> {
        let drive = BlockDrive::open(&self.root, facts).map_err(|source| DriveError::Io {
            drive: facts.drive.name.clone(),
            source,
        })?;
        Ok(Box::new(drive))
    }
}

/// The drive's own erase commands.
#[derive(Debug)]
enum Commands {
    None,
    Nvme { drive: Nvme, shared_with: Vec<String> },
    Ata(Ata),
}

/// An open block device.
#[derive(Debug)]
pub struct BlockDrive {
    file: File,
    size_bytes: u64,
    block_bytes: u32,
    discards: bool,
    commands: Commands,
}

impl BlockDrive {
    fn open(root: &SysRoot, facts: &DriveFacts) -> io::Result<Self> {
        // O_EXCL on a block device: nobody else (a mounted file system, RAID, device mapper) uses it.
        let mut options = OpenOptions::new();
        let mut file = options
            .read(true)
            .write(true)
            .custom_flags(libc::O_DIRECT | libc::O_EXCL)
            .open(&facts.node)?;
        let size_bytes = file.seek(SeekFrom::End(0))?;
        let queue = root.sys.join("block").join(&facts.drive.name).join("queue");
        let discards = text::number::<u64>(&queue.join("discard_max_bytes")).is_some_and(|most| most > 0);
        let commands = match facts.drive.transport.as_str() {
            "nvme" => Nvme::probe(&file).map_or(Commands::None, |drive| {
                let all = sysfs::list(root);
                let others = all
                    .into_iter()
                    .filter(|o| o.controller == facts.controller && o.drive.name != facts.drive.name);
                Commands::Nvme {
                    drive,
                    shared_with: others.map(|o| o.drive.name).collect(),
                }
            }),
            "sata" => Ata::probe(&file).map_or(Commands::None, Commands::Ata),
            _ => Commands::None,
        };
        let block_bytes = facts.drive.logical_block_bytes.max(512);
        Ok(Self {
            file,
            size_bytes,
            block_bytes,
            discards,
            commands,
        })
    }
}

impl RawDrive for BlockDrive {
    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn block_bytes(&self) -> u32 {
        self.block_bytes
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.file.read_exact_at(buffer, offset)
    }

    fn write_at(&self, buffer: &[u8], offset: u64) -> io::Result<()> {
        self.file.write_all_at(buffer, offset)
    }

    fn flush(&self) -> io::Result<()> {
        self.file.sync_all()
    }

    fn discard(&self, offset: u64, length: u64) -> io::Result<()> {
        ioctl::discard(&self.file, offset, length)
    }

    fn zero_out(&self, offset: u64, length: u64) -> io::Result<()> {
        ioctl::zero_out(&self.file, offset, length)
    }

    fn methods(&self) -> Vec<EraseMethod> {
        let mut methods = match &self.commands {
            Commands::None => Vec::new(),
            Commands::Nvme { drive, .. } => drive.methods(),
            Commands::Ata(ata) => ata.methods(),
        };
        if self.discards {
            methods.push(EraseMethod::DiscardZeroed);
        }
        methods.push(EraseMethod::Overwrite);
        methods
    }

    fn execute(&self, method: EraseMethod, control: &JobControl) -> Result<(), MethodError> {
        match &self.commands {
            Commands::None => Err(MethodError::Unsupported(
                "the drive has no erase command of its own".into(),
            )),
            Commands::Nvme { drive, shared_with } => drive.execute(&self.file, method, shared_with, control),
            Commands::Ata(ata) => ata.execute(&self.file, method, control),
        }
    }

    fn reread_partitions(&self) -> io::Result<()> {
        ioctl::reread_partitions(&self.file)
    }
}
