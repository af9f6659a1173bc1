//! Block devices of the running kernel.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek as _, SeekFrom};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::PathBuf;

use rackwright_api::v1::{EraseMethod, ExcludedDevice};

use super::ata::Ata;
use super::hidden::HiddenArea;
use super::nvme::Nvme;
use super::{DriveError, DriveFacts, Drives, MethodError, RawDrive, ata_area, excluded, hidden, namespaces, sysfs};
use crate::ioctl;
use crate::jobs::control::JobControl;
use crate::root::SysRoot;
use crate::text;

/// The drives of this machine.
#[derive(Debug)]
pub struct BlockDrives {
    root: SysRoot,
}

impl BlockDrives {
    /// The drives below the given roots.
    pub fn new(root: SysRoot) -> Self {
        Self { root }
    }
}

impl Drives for BlockDrives {
    fn list(&self) -> Vec<DriveFacts> {
        sysfs::list(&self.root)
    }

    fn excluded(&self) -> Vec<ExcludedDevice> {
        excluded::list(&self.root)
    }

    fn open_hidden(&self) -> Vec<HiddenArea> {
        let mut hidden = namespaces::open_all(&self.root);
        let listed = sysfs::list(&self.root);
        let sata = listed.iter().filter(|facts| facts.drive.transport == "sata");
        hidden.extend(sata.flat_map(|facts| open_areas(&self.root, facts)));
        hidden
    }

    fn open(&self, facts: &DriveFacts) -> Result<Box<dyn RawDrive>, DriveError> {
        let drive = BlockDrive::open(&self.root, facts).map_err(|source| DriveError::Io {
            drive: facts.drive.name.clone(),
            source,
        })?;
        Ok(Box::new(drive))
    }
}

/// Opens the hidden areas of an ATA drive. If its size has changed, makes the kernel detect the drive again.
fn open_areas(root: &SysRoot, facts: &DriveFacts) -> Vec<HiddenArea> {
    let opened = File::open(&facts.node).and_then(|file| ata_area::open(&file));
    // A device that does not answer as ATA has no such areas: a SAS drive, or a volume that claims to be ATA.
    let Ok((areas, is_changed)) = opened else {
        return Vec::new();
    };
    let found = if is_changed { rescan_device(root, facts) } else { Ok(()) };
    let hidden = areas.into_iter().map(|area| HiddenArea {
        drive: format!(
            "drive {} (serial number {})",
            facts.drive.name, facts.drive.serial_number
        ),
        controllers: vec![facts.controller.clone()],
        what: area.what,
        closed: area.closed.or_else(|| found.clone().err()),
        reached_by: area.reached_by,
    });
    hidden.collect()
}

/// Makes the kernel detect the drive again, because it reads the size of a drive only then.
fn rescan_device(root: &SysRoot, facts: &DriveFacts) -> Result<(), String> {
    let device = root.sys.join("block").join(&facts.drive.name).join("device");
    let path = hidden::canonical_path(&device);
    let host = path
        .split('/')
        .find(|part| part.strip_prefix("host").is_some_and(|n| n.parse::<u32>().is_ok()));
    let failed = |error: String| format!("the area was opened, but the kernel did not detect the drive again: {error}");
    let host = host.ok_or_else(|| failed("the drive's host adapter is unknown".into()))?;
    let scan = root.sys.join("class/scsi_host").join(host).join("scan");
    std::fs::write(device.join("delete"), "1").map_err(|error| failed(error.to_string()))?;
    std::fs::write(scan, "- - -").map_err(|error| failed(error.to_string()))?;
    let is_shown = || {
        let listed = sysfs::list(root);
        let same = |other: &&DriveFacts| other.drive.serial_number == facts.drive.serial_number;
        listed
            .iter()
            .filter(same)
            .any(|other| other.drive.size_bytes > facts.drive.size_bytes)
    };
    if hidden::wait_until_shown(is_shown) {
        Ok(())
    } else {
        Err(failed("the drive's size did not grow".into()))
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
    native_bytes: u64,
    discards: bool,
    commands: Commands,
    /// Makes a boot area read-only again when dropped.
    _boot_area: Option<BootArea>,
}

/// A boot area of an eMMC that is writable while this value exists.
#[derive(Debug)]
struct BootArea(PathBuf);

impl BootArea {
    fn open(root: &SysRoot, name: &str) -> io::Result<Option<Self>> {
        let switch = sysfs::force_ro(root, name);
        if !sysfs::is_boot_area(name) || !switch.exists() {
            return Ok(None);
        }
        std::fs::write(&switch, "0")?;
        Ok(Some(Self(switch)))
    }
}

impl Drop for BootArea {
    fn drop(&mut self) {
        // A failure has no effect after the next boot: the area is then read-only in any case.
        let _ = std::fs::write(&self.0, "1");
    }
}

impl BlockDrive {
    fn open(root: &SysRoot, facts: &DriveFacts) -> io::Result<Self> {
        let boot_area = BootArea::open(root, &facts.drive.name)?;
        // O_EXCL on a block device: it has no other user (a mounted file system, RAID, device mapper).
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
        let native_bytes = match &commands {
            Commands::None => 0,
            Commands::Nvme { .. } => namespaces::total_bytes(&file),
            Commands::Ata(_) => ata_area::native_bytes(&file),
        };
        let block_bytes = facts.drive.logical_block_bytes.max(512);
        Ok(Self {
            file,
            size_bytes,
            block_bytes,
            native_bytes,
            discards,
            commands,
            _boot_area: boot_area,
        })
    }
}

impl RawDrive for BlockDrive {
    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn native_bytes(&self) -> u64 {
        self.native_bytes
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
