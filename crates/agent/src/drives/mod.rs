//! Drives: lists them, selects one, and reads, writes and erases it.

pub mod aligned;
pub mod ata;
pub mod ata_area;
pub mod block;
pub mod excluded;
pub mod file;
pub mod hidden;
pub mod namespaces;
pub mod nvme;
pub mod sysfs;

use std::io;
use std::path::PathBuf;

use rackwright_api::v1::{Drive, EraseMethod, ExcludedDevice};
use thiserror::Error;

use self::hidden::HiddenArea;
use crate::disk::marker::{self, Marker};
use crate::jobs::control::{JobControl, StopReason};

/// A listed drive.
#[derive(Clone, Debug)]
pub struct DriveFacts {
    /// The drive as in the inventory, without its erase methods.
    pub drive: Drive,
    /// The device node, or the file in place of the drive.
    pub node: PathBuf,
    /// Drives with the same controller have the same text. Some erase commands affect all of them.
    pub controller: String,
}

/// Why a drive cannot be used.
#[derive(Debug, Error)]
pub enum DriveError {
    /// The text matches no drive, or several drives.
    #[error("{why}; drives: {present}")]
    Missing {
        /// Description of the failed search.
        why: String,
        /// All drives with their sizes and serial numbers.
        present: String,
    },
    /// The selected drives are too small.
    #[error("{why}; drives: {present}")]
    TooSmall {
        /// Description of the required size.
        why: String,
        /// All drives with their sizes and serial numbers.
        present: String,
    },
    /// The drive exists and could not be opened.
    #[error("drive {drive}: it exists and cannot be opened: {source}; check the drive and its cable, or replace it")]
    Io {
        /// Name of the drive.
        drive: String,
        /// The kernel's error.
        source: io::Error,
    },
}

/// Why an erase method failed.
#[derive(Debug, Error)]
pub enum MethodError {
    /// The drive does not offer the method, or the method would destroy other data.
    #[error("not supported: {0}")]
    Unsupported(String),
    /// The drive refused or failed.
    #[error("{0}")]
    Failed(String),
    /// The kernel's error.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The job must end.
    #[error("stopped")]
    Stopped(StopReason),
}

impl From<StopReason> for MethodError {
    fn from(stop: StopReason) -> Self {
        Self::Stopped(stop)
    }
}

/// The drives of a machine.
pub trait Drives: Send + Sync {
    /// All drives, by name. An unreadable attribute is empty; the drive is listed nevertheless.
    fn list(&self) -> Vec<DriveFacts>;

    /// Block devices and storage areas that [`Drives::list`] omits, each with its reason.
    fn excluded(&self) -> Vec<ExcludedDevice> {
        Vec::new()
    }

    /// Opens the hidden areas of all drives, so that [`Drives::list`] includes them. Returns each hidden area, opened or
    /// not.
    fn open_hidden(&self) -> Vec<HiddenArea> {
        Vec::new()
    }

    /// Opens a drive for exclusive direct reads and writes.
    ///
    /// # Errors
    /// [`DriveError::Io`]
    fn open(&self, facts: &DriveFacts) -> Result<Box<dyn RawDrive>, DriveError>;

    /// Default number of samples per drive that prove an erase.
    fn erase_samples(&self) -> u32 {
        crate::erase::DEFAULT_SAMPLES
    }

    /// The marker with the claim generation on the drive; `None` without a readable marker.
    fn marker(&self, facts: &DriveFacts) -> Option<Marker> {
        let sector_bytes = facts.drive.logical_block_bytes.max(512);
        marker::read(&facts.drive.name, &facts.node, u64::from(sector_bytes))
    }
}

/// An open drive. Buffers must be [`aligned`]; offsets and lengths must be multiples of the block size.
pub trait RawDrive: Send + Sync {
    fn size_bytes(&self) -> u64;
    /// Same as `Drive.native_bytes`.
    fn native_bytes(&self) -> u64 {
        0
    }
    /// Logical block size in bytes.
    fn block_bytes(&self) -> u32;
    /// Fills the buffer from the medium, past the kernel's cache.
    ///
    /// # Errors
    /// The kernel's error.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()>;
    /// Writes the whole buffer.
    ///
    /// # Errors
    /// The kernel's error.
    fn write_at(&self, buffer: &[u8], offset: u64) -> io::Result<()>;
    /// Waits until all written data is on the medium.
    ///
    /// # Errors
    /// The kernel's error.
    fn flush(&self) -> io::Result<()>;
    /// Discards a range.
    ///
    /// # Errors
    /// `EOPNOTSUPP` if the drive does not support it.
    fn discard(&self, offset: u64, length: u64) -> io::Result<()>;
    /// Zeroes a range, by the drive's own command if it has one.
    ///
    /// # Errors
    /// The kernel's error.
    fn zero_out(&self, offset: u64, length: u64) -> io::Result<()>;
    /// Erase methods that the drive reports as supported, strongest first. Overwriting is always the last.
    fn methods(&self) -> Vec<EraseMethod>;
    /// Runs one of the drive's own erase commands to its end; not for discard and overwrite.
    ///
    /// # Errors
    /// [`MethodError`]
    fn execute(&self, method: EraseMethod, control: &JobControl) -> Result<(), MethodError>;
    /// Makes the kernel read the partition table again.
    ///
    /// # Errors
    /// The kernel's error.
    fn reread_partitions(&self) -> io::Result<()>;
}

/// Short name of a method, for messages.
pub fn method_name(method: EraseMethod) -> &'static str {
    match method {
        EraseMethod::Unspecified => "unspecified",
        EraseMethod::NvmeSanitizeCrypto => "nvme sanitize crypto",
        EraseMethod::NvmeSanitizeBlock => "nvme sanitize block",
        EraseMethod::NvmeFormatCrypto => "nvme format crypto",
        EraseMethod::NvmeFormatUserData => "nvme format user-data",
        EraseMethod::AtaSecureEraseEnhanced => "ata secure erase enhanced",
        EraseMethod::AtaSecureErase => "ata secure erase",
        EraseMethod::DiscardZeroed => "discard, zeroed",
        EraseMethod::Overwrite => "overwrite",
    }
}

/// A list of the drives in one line, for error messages.
pub fn describe(drives: &[DriveFacts]) -> String {
    if drives.is_empty() {
        return "none".to_owned();
    }
    let one = |facts: &DriveFacts| {
        let Drive {
            name,
            serial_number,
            size_bytes,
            removable,
            read_only,
            ..
        } = &facts.drive;
        let serial = if serial_number.is_empty() {
            "no serial"
        } else {
            serial_number
        };
        let removable = if *removable { ", removable" } else { "" };
        let read_only = if *read_only { ", read-only" } else { "" };
        format!("{name} ({serial}, {size_bytes} bytes{removable}{read_only})")
    };
    drives.iter().take(64).map(one).collect::<Vec<_>>().join(", ")
}

/// Whether a text from the control plane names this drive.
fn has_identifier(facts: &DriveFacts, wanted: &str) -> bool {
    let drive = &facts.drive;
    let bare = |text: &str| text.strip_prefix("/dev/").unwrap_or(text).to_owned();
    let matches = |identifier: &str| !identifier.is_empty() && bare(identifier) == bare(wanted);
    [&drive.name, &drive.serial_number, &drive.stable_id, &drive.wwn]
        .into_iter()
        .any(|identifier| matches(identifier))
}

/// The one drive that the text names.
///
/// # Errors
/// [`DriveError::Missing`] if no drive or several drives match.
pub fn find<'a>(drives: &'a [DriveFacts], wanted: &str) -> Result<&'a DriveFacts, DriveError> {
    let mut matching = drives.iter().filter(|facts| has_identifier(facts, wanted));
    let missing = |why: String| DriveError::Missing {
        why,
        present: describe(drives),
    };
    let first = matching
        .next()
        .ok_or_else(|| missing(format!("no drive has the name, serial number or id {wanted:?}")))?;
    let others = matching.count();
    if others > 0 {
        return Err(missing(format!(
            "{} drives have the name, serial number or id {wanted:?}",
            others + 1
        )));
    }
    Ok(first)
}

/// The drive for an image: the named one, or else the smallest of at least `needed_bytes` that is neither removable,
/// read-only nor an eMMC boot area (of equal ones the first by name).
///
/// # Errors
/// [`DriveError::Missing`], [`DriveError::TooSmall`].
pub fn choose<'a>(drives: &'a [DriveFacts], wanted: &str, needed_bytes: u64) -> Result<&'a DriveFacts, DriveError> {
    let too_small = |why| DriveError::TooSmall {
        why,
        present: describe(drives),
    };
    if !wanted.is_empty() {
        let drive = find(drives, wanted)?;
        if drive.drive.size_bytes < needed_bytes {
            return Err(too_small(format!(
                "drive {} is smaller than the {needed_bytes} bytes the image and its seed need",
                drive.drive.name
            )));
        }
        return Ok(drive);
    }
    let fixed: Vec<&DriveFacts> = drives
        .iter()
        .filter(|facts| !facts.drive.removable && !facts.drive.read_only && !sysfs::is_boot_area(&facts.drive.name))
        .collect();
    if fixed.is_empty() {
        let why = "no fixed, writable drive".to_owned();
        return Err(DriveError::Missing {
            why,
            present: describe(drives),
        });
    }
    let fitting = fixed.into_iter().filter(|facts| facts.drive.size_bytes >= needed_bytes);
    let smallest = fitting.min_by_key(|facts| (facts.drive.size_bytes, facts.drive.name.clone()));
    smallest.ok_or_else(|| {
        too_small(format!(
            "no drive has the {needed_bytes} bytes the image and its seed need"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drive(name: &str, serial: &str, size_bytes: u64, removable: bool) -> DriveFacts {
        let stable_id = format!("/dev/disk/by-id/nvme-{serial}");
        let drive = Drive {
            name: name.into(),
            serial_number: serial.into(),
            size_bytes,
            removable,
            stable_id,
            ..Drive::default()
        };
        DriveFacts {
            drive,
            node: format!("/dev/{name}").into(),
            controller: name.into(),
        }
    }

    #[test]
    fn a_drive_is_chosen_by_name_or_size() {
        let drives = [
            drive("nvme0n1", "S1", 4000, false),
            drive("nvme1n1", "S2", 1000, false),
            drive("nvme2n1", "S3", 1000, false),
            drive("sda", "USB", 500, true),
            drive("sdb", "S1", 9000, false),
        ];
        let name = |wanted: &str, needed| {
            choose(&drives, wanted, needed)
                .map(|d| d.drive.name.clone())
                .map_err(|e| e.to_string())
        };
        assert_eq!(name("", 400).unwrap(), "nvme1n1", "smallest fixed one, first by name");
        assert_eq!(name("", 1001).unwrap(), "nvme0n1");
        assert_eq!(name("nvme2n1", 10).unwrap(), "nvme2n1");
        assert_eq!(name("/dev/nvme2n1", 10).unwrap(), "nvme2n1");
        assert_eq!(name("S2", 10).unwrap(), "nvme1n1");
        assert_eq!(name("/dev/disk/by-id/nvme-S3", 10).unwrap(), "nvme2n1");
        assert_eq!(name("sda", 10).unwrap(), "sda", "removable when named");
        for (wanted, needed, what) in [
            ("S1", 10, "2 drives have"),
            ("vda", 10, "no drive has the name"),
            ("nvme1n1", 2000, "smaller than the 2000 bytes"),
            ("", 10_000, "no drive has the 10000 bytes"),
        ] {
            let error = name(wanted, needed).unwrap_err();
            assert!(
                error.contains(what) && error.contains("nvme0n1 (S1, 4000 bytes)"),
                "{error}"
            );
        }
        assert!(matches!(choose(&drives, "S1", 1), Err(DriveError::Missing { .. })));
        assert!(matches!(choose(&drives, "", 10_000), Err(DriveError::TooSmall { .. })));
        assert!(
            matches!(choose(&drives[3..4], "", 1), Err(DriveError::Missing { .. })),
            "only a removable one"
        );
        assert!(matches!(choose(&[], "", 1), Err(DriveError::Missing { .. })));
    }
}
