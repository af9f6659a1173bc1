//! Drives that are plain files, for tests and the simulator. They discard by punching holes and have no erase commands.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;

use nix::fcntl::{FallocateFlags, fallocate};
use rackwright_api::v1::{Drive, EraseMethod};

use super::{DriveError, DriveFacts, Drives, MethodError, RawDrive};
use crate::jobs::control::JobControl;

/// A drive that is a file.
#[derive(Clone, Debug)]
pub struct FileDrive {
    /// Name of the drive, in the kernel's style.
    pub name: String,
    pub serial_number: String,
    /// Path of the file. Its length is the size of the drive.
    pub path: PathBuf,
}

/// The drives of a machine as files.
#[derive(Clone, Debug, Default)]
pub struct FileDrives {
    /// Sorted by name.
    pub drives: Vec<FileDrive>,
}

impl Drives for FileDrives {
    fn list(&self) -> Vec<DriveFacts> {
        let facts = |file: &FileDrive| {
            let drive = Drive {
                name: file.name.clone(),
                model: "file".into(),
                serial_number: file.serial_number.clone(),
                size_bytes: std::fs::metadata(&file.path).map(|meta| meta.len()).unwrap_or(0),
                logical_block_bytes: 512,
                physical_block_bytes: 4096,
                transport: "other".into(),
                ..Drive::default()
            };
            DriveFacts {
                drive,
                node: file.path.clone(),
                controller: file.name.clone(),
            }
        };
        self.drives.iter().map(facts).collect()
    }

    fn open(&self, facts: &DriveFacts) -> Result<Box<dyn RawDrive>, DriveError> {
        let opened = OpenOptions::new().read(true).write(true).open(&facts.node);
        let file = opened.map_err(|source| DriveError::Io {
            drive: facts.drive.name.clone(),
            source,
        })?;
        Ok(Box::new(OpenFile {
            file,
            size_bytes: facts.drive.size_bytes,
        }))
    }
}

#[derive(Debug)]
struct OpenFile {
    file: File,
    size_bytes: u64,
}

impl RawDrive for OpenFile {
    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn block_bytes(&self) -> u32 {
        512
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
        let range = |value: u64| i64::try_from(value).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput));
        let flags = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
        Ok(fallocate(&self.file, flags, range(offset)?, range(length)?)?)
    }

    fn zero_out(&self, offset: u64, length: u64) -> io::Result<()> {
        self.discard(offset, length)
    }

    fn methods(&self) -> Vec<EraseMethod> {
        vec![EraseMethod::DiscardZeroed, EraseMethod::Overwrite]
    }

    fn execute(&self, _: EraseMethod, _: &JobControl) -> Result<(), MethodError> {
        Err(MethodError::Unsupported("a file has no erase command".into()))
    }

    fn reread_partitions(&self) -> io::Result<()> {
        Ok(())
    }
}
