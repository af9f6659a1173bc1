//! Calls on files and block devices that the standard library lacks.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

// <linux/fs.h>: _IO(0x12, 127) and _IOR(0x12, 114, size_t).
const BLKZEROOUT: libc::Ioctl = 0x127f;
const BLKGETSIZE64: libc::Ioctl = 0x8008_1272_u32 as libc::Ioctl;

fn check(result: libc::c_int) -> io::Result<()> {
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Returns the size of a block device in bytes.
pub(crate) fn device_size(device: &File) -> io::Result<u64> {
    let mut size = 0u64;
    // SAFETY: BLKGETSIZE64 writes one u64 to the given place, which lives across the call.
    check(unsafe { libc::ioctl(device.as_raw_fd(), BLKGETSIZE64, &raw mut size) })?;
    Ok(size)
}

/// Zeroes a range of a block device: by Write Zeroes if the device supports it, otherwise the kernel writes zeros. Both
/// numbers must be multiples of the sector size.
pub(crate) fn zero_out(device: &File, offset: u64, len: u64) -> io::Result<()> {
    let range = [offset, len];
    // SAFETY: BLKZEROOUT reads two u64 from the given place, which lives across the call.
    check(unsafe { libc::ioctl(device.as_raw_fd(), BLKZEROOUT, range.as_ptr()) })
}

/// Zeroes a range of a regular file by releasing its blocks. The file's length stays.
pub(crate) fn punch_hole(file: &File, offset: u64, len: u64) -> io::Result<()> {
    let too_far = |_| io::Error::from(io::ErrorKind::InvalidInput);
    let offset = libc::off_t::try_from(offset).map_err(too_far)?;
    let len = libc::off_t::try_from(len).map_err(too_far)?;
    let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    // SAFETY: takes integers only.
    check(unsafe { libc::fallocate(file.as_raw_fd(), mode, offset, len) })
}

/// Asks the kernel to drop its cached pages of a file, so that later reads come from the drive. Applies to synced pages
/// only; a page that stays cached is not an error.
pub(crate) fn advise_dont_need(file: &File) {
    // SAFETY: takes integers only.
    unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
}
