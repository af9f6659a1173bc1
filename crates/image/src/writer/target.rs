//! The target drive or file.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::{WriteError, ZeroMethod, ZeroPolicy};
use crate::direct::{self, ALIGNMENT, AlignedBuf};
use crate::index::CHUNK_SIZE;

/// Size of the disk's end that may contain the backup of an old partition table: 33 sectors of at most 4 KiB, rounded up.
const TAIL_BYTES: u64 = 1 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Block,
    /// An empty regular file; it gets the length of the image.
    FreshFile,
    File,
}

/// An open target.
#[derive(Debug)]
pub(super) struct Target {
    path: PathBuf,
    kind: Kind,
    size: u64,
    /// The target through the page cache: for unaligned ends, for flushing, and if direct I/O is not available.
    plain: File,
    /// The target past the page cache.
    direct: Option<File>,
}

impl Target {
    /// Opens a block device (exclusively: it must not be mounted) or an existing regular file. Writes nothing.
    pub(super) fn open(path: &Path) -> Result<Self, WriteError> {
        let failed = |source| not_opened(path, source);
        let found = fs::metadata(path).map_err(failed)?;
        let (exclusive, is_block) = match found.file_type() {
            kind if kind.is_block_device() => (libc::O_EXCL, true),
            kind if kind.is_file() => (0, false),
            _ => return Err(WriteError::NotADisk { path: path.to_owned() }),
        };
        let opened = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(exclusive)
            .open(path);
        let plain = opened.map_err(failed)?;
        let opened = plain.metadata().map_err(failed)?;
        let size = if is_block {
            direct::device_size(&plain).map_err(failed)?
        } else {
            opened.len()
        };
        let kind = match (is_block, size) {
            (true, _) => Kind::Block,
            (false, 0) => Kind::FreshFile,
            (false, _) => Kind::File,
        };
        let direct = open_direct(path, &opened);
        Ok(Self {
            path: path.to_owned(),
            kind,
            size,
            plain,
            direct,
        })
    }

    /// Refuses a target that is too small. Sets the length of a fresh file.
    pub(super) fn fit(&mut self, needed: u64) -> Result<(), WriteError> {
        if self.kind == Kind::FreshFile {
            self.plain
                .set_len(needed)
                .map_err(|source| self.write_error(0, source))?;
            self.size = needed;
        }
        if self.size < needed {
            return Err(WriteError::DiskTooSmall {
                path: self.path.clone(),
                size: self.size,
                needed,
            });
        }
        Ok(())
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn is_direct(&self) -> bool {
        self.direct.is_some()
    }

    /// The file for reads and writes of whole blocks.
    pub(super) fn blocks(&self) -> &File {
        self.direct.as_ref().unwrap_or(&self.plain)
    }

    pub(super) fn plain(&self) -> &File {
        &self.plain
    }

    /// Number of the `len` bytes from a chunk's start that can go through [`Self::blocks`]; the rest goes through
    /// [`Self::plain`].
    pub(super) fn block_part(&self, len: usize) -> usize {
        if self.is_direct() { len - len % ALIGNMENT } else { len }
    }

    pub(super) fn write_error(&self, offset: u64, source: io::Error) -> WriteError {
        WriteError::Write {
            path: self.path.clone(),
            offset,
            source,
        }
    }

    pub(super) fn read_error(&self, offset: u64, source: io::Error) -> WriteError {
        WriteError::Read {
            path: self.path.clone(),
            offset,
            source,
        }
    }

    /// Waits until all written data is on the medium.
    pub(super) fn flush(&self) -> Result<(), WriteError> {
        self.plain.sync_all().map_err(|source| WriteError::Flush {
            path: self.path.clone(),
            source,
        })
    }

    /// Overwrites the parts that made the old content bootable: the place of the first chunk, and the disk's last MiB as
    /// far as it lies beyond the image. The first chunk is written last, so an unfinished disk has no partition table.
    pub(super) fn wipe_ends(&self, logical_size: u64) -> Result<(), WriteError> {
        if self.kind == Kind::FreshFile {
            return Ok(());
        }
        let tail = self.size.saturating_sub(TAIL_BYTES).max(logical_size);
        self.write_zeros(tail, self.size - tail)?;
        self.wipe_start(logical_size)
    }

    /// Overwrites the place of the first chunk.
    pub(super) fn wipe_start(&self, logical_size: u64) -> Result<(), WriteError> {
        self.write_zeros(0, logical_size.min(CHUNK_SIZE as u64))?;
        self.flush()
    }

    /// Writes zeros through the page cache.
    pub(super) fn write_zeros(&self, offset: u64, len: u64) -> Result<(), WriteError> {
        let zeros = vec![0; len.min(TAIL_BYTES) as usize];
        let mut done = 0;
        while done < len {
            let count = (len - done).min(TAIL_BYTES);
            let written = self.plain.write_all_at(&zeros[..count as usize], offset + done);
            written.map_err(|source| self.write_error(offset + done, source))?;
            done += count;
        }
        Ok(())
    }

    /// How zero chunks are written to this target under `policy`.
    pub(super) fn zero_method(&self, policy: ZeroPolicy) -> ZeroMethod {
        match (policy, self.kind) {
            (ZeroPolicy::WriteAll, _) => ZeroMethod::Written,
            (ZeroPolicy::Auto, Kind::FreshFile) => ZeroMethod::FreshFile,
            (ZeroPolicy::Auto, Kind::File) => ZeroMethod::PunchedHoles,
            (ZeroPolicy::Auto, Kind::Block) if self.offers_write_zeroes() => ZeroMethod::WriteZeroes,
            (ZeroPolicy::Auto, Kind::Block) => ZeroMethod::Written,
        }
    }

    /// Whether the drive itself offers Write Zeroes. Discard does not count: the content of discarded blocks depends on the
    /// drive, and Linux no longer reports it (`discard_zeroes_data` is always 0 since 4.12).
    fn offers_write_zeroes(&self) -> bool {
        let Ok(metadata) = self.plain.metadata() else {
            return false;
        };
        let (major, minor) = (libc::major(metadata.rdev()), libc::minor(metadata.rdev()));
        let folder = format!("/sys/dev/block/{major}:{minor}");
        // A partition does not have its own queue.
        ["queue", "../queue"].into_iter().any(|queue| {
            let text = fs::read_to_string(format!("{folder}/{queue}/write_zeroes_max_bytes"));
            text.is_ok_and(|text| text.trim().parse::<u64>().is_ok_and(|bytes| bytes > 0))
        })
    }

    /// Zeroes a range without writing zeros. After an error the content of the range is unknown.
    pub(super) fn zero(&self, method: ZeroMethod, offset: u64, len: u64) -> io::Result<()> {
        match method {
            ZeroMethod::FreshFile | ZeroMethod::NoZeros => Ok(()),
            ZeroMethod::PunchedHoles => direct::punch_hole(&self.plain, offset, len),
            ZeroMethod::WriteZeroes => direct::zero_out(&self.plain, offset, len),
            ZeroMethod::Written => Err(io::ErrorKind::Unsupported.into()),
        }
    }
}

/// Opens a second descriptor with O_DIRECT, if the file system or drive supports it.
fn open_direct(path: &Path, expected: &Metadata) -> Option<File> {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_DIRECT)
        .open(path)
        .ok()?;
    let found = file.metadata().ok()?;
    let identity = |m: &Metadata| (m.dev(), m.ino(), m.rdev());
    if identity(&found) != identity(expected) {
        return None;
    }
    // Some file systems accept the flag and then refuse reads.
    let mut probe = AlignedBuf::new(ALIGNMENT).ok()?;
    file.read_at(&mut probe, 0).ok()?;
    Some(file)
}

/// Why a target is not open: it is in use, it is missing, or it exists and cannot be opened.
fn not_opened(path: &Path, source: io::Error) -> WriteError {
    let path = path.to_owned();
    match source.raw_os_error() {
        Some(libc::EBUSY) => WriteError::DiskBusy { path },
        Some(libc::ENOENT | libc::ENOTDIR | libc::ENXIO | libc::ENODEV | libc::ENOMEDIUM) => {
            WriteError::DiskMissing { path, source }
        }
        _ => WriteError::DiskNotOpened { path, source },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drive_that_exists_and_cannot_be_opened_is_not_missing() {
        for (error, code) in [
            (libc::ENOENT, "disk-missing"),
            (libc::ENOMEDIUM, "disk-missing"),
            (libc::EBUSY, "disk-busy"),
            (libc::EIO, "disk-open-failed"),
            (libc::EACCES, "disk-open-failed"),
            (libc::EROFS, "disk-open-failed"),
        ] {
            let error = not_opened(Path::new("/dev/sda"), io::Error::from_raw_os_error(error));
            assert_eq!(error.code(), code, "{error}");
            assert!(error.to_string().contains("/dev/sda"), "{error}");
        }
    }
}
