//! The SMART log of an NVMe drive, by the kernel's call for admin commands (`linux/nvme_ioctl.h`).

#![allow(unsafe_code)]

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;

/// Size of the log page.
pub(crate) const PAGE_BYTES: usize = 512;
const NVME_IOCTL_ADMIN_CMD: libc::c_ulong = 0xC048_4E41;
const GET_LOG_PAGE: u8 = 0x02;
/// The page "SMART / health information", of all namespaces.
const SMART: u32 = 0x02;
const ALL_NAMESPACES: u32 = u32::MAX;
const TIMEOUT_MS: u32 = 5000;

/// `struct nvme_passthru_cmd`
#[repr(C)]
struct Passthru {
    opcode: u8,
    flags: u8,
    reserved: u16,
    namespace: u32,
    dword2: u32,
    dword3: u32,
    metadata: u64,
    address: u64,
    metadata_length: u32,
    data_length: u32,
    dwords: [u32; 6],
    timeout_ms: u32,
    result: u32,
}

const _: () = assert!(size_of::<Passthru>() == 72);

/// The log page of a controller. A plain file has the page as its content: a fixture.
pub(crate) fn log_page(path: &Path) -> io::Result<[u8; PAGE_BYTES]> {
    let mut page = [0; PAGE_BYTES];
    let mut file = File::open(path)?;
    if !file.metadata()?.file_type().is_char_device() {
        file.read_exact(&mut page)?;
        return Ok(page);
    }
    let words = PAGE_BYTES as u32 / 4 - 1;
    let mut command = Passthru {
        opcode: GET_LOG_PAGE,
        flags: 0,
        reserved: 0,
        namespace: ALL_NAMESPACES,
        dword2: 0,
        dword3: 0,
        metadata: 0,
        address: page.as_mut_ptr() as u64,
        metadata_length: 0,
        data_length: PAGE_BYTES as u32,
        dwords: [words << 16 | SMART, 0, 0, 0, 0, 0],
        timeout_ms: TIMEOUT_MS,
        result: 0,
    };
    // SAFETY: the structure has the kernel's layout (72 bytes, checked above); address and length describe `page`, which
    // lives and stays in place until the call returns.
    let status = unsafe { libc::ioctl(file.as_raw_fd(), NVME_IOCTL_ADMIN_CMD as _, &raw mut command) };
    match status {
        0 => Ok(page),
        ..0 => Err(io::Error::last_os_error()),
        status => Err(io::Error::other(format!(
            "the drive answers with the status {status:#x}"
        ))),
    }
}
