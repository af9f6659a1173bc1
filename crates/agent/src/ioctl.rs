//! The ioctl calls of block devices, NVMe, SCSI and file attributes, and one option of packet sockets. The only module of
//! the agent that may be `unsafe`.
//!
//! Numbers and structures are those of `linux/fs.h`, `linux/nvme_ioctl.h` and `scsi/sg.h`, which belong to the kernel's
//! stable interface.

#![allow(unsafe_code)]

use std::ffi::{c_int, c_ulong, c_void};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::Path;
use std::time::Duration;

const BLKRRPART: c_ulong = 0x125F;
const BLKFLSBUF: c_ulong = 0x1261;
const BLKDISCARD: c_ulong = 0x1277;
const BLKZEROOUT: c_ulong = 0x127F;
const FS_IOC_GETFLAGS: c_ulong = 0x8008_6601;
const FS_IOC_SETFLAGS: c_ulong = 0x4008_6602;
const FS_IMMUTABLE_FL: c_ulong = 0x10;
const NVME_IOCTL_ID: c_ulong = 0x4E40;
const NVME_IOCTL_ADMIN_CMD: c_ulong = 0xC048_4E41;
const NVME_IOCTL_RESCAN: c_ulong = 0x4E46;
const SG_IO: c_ulong = 0x2285;
const SG_DXFER_NONE: c_int = -1;
const SG_DXFER_TO_DEV: c_int = -2;
const SG_DXFER_FROM_DEV: c_int = -3;
const SENSE_BYTES: usize = 64;

fn outcome(result: c_int) -> io::Result<c_int> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

/// Makes the kernel read the partition table again.
///
/// # Errors
/// `EBUSY` while a partition is in use, `ENOTTY` for a file that is not a block device.
pub fn reread_partitions(drive: &File) -> io::Result<()> {
    // SAFETY: the descriptor is open for the call's duration; BLKRRPART takes no argument.
    outcome(unsafe { libc::ioctl(drive.as_raw_fd(), BLKRRPART as _) }).map(drop)
}

/// Drops the page cache of the drive.
///
/// # Errors
/// `ENOTTY` for a file that is not a block device.
pub fn drop_cache(drive: &File) -> io::Result<()> {
    // SAFETY: as above; BLKFLSBUF takes no argument.
    outcome(unsafe { libc::ioctl(drive.as_raw_fd(), BLKFLSBUF as _, 0 as c_ulong) }).map(drop)
}

/// Discards a range of bytes.
///
/// # Errors
/// `EOPNOTSUPP` if the drive does not support it.
pub fn discard(drive: &File, start: u64, length: u64) -> io::Result<()> {
    range_call(drive, BLKDISCARD, start, length)
}

/// Makes the kernel write zeros to a range of bytes, by the drive's own command if it has one.
///
/// # Errors
/// The drive's error.
pub fn zero_out(drive: &File, start: u64, length: u64) -> io::Result<()> {
    range_call(drive, BLKZEROOUT, start, length)
}

fn range_call(drive: &File, request: c_ulong, start: u64, length: u64) -> io::Result<()> {
    let range = [start, length];
    // SAFETY: BLKDISCARD and BLKZEROOUT read two u64 from the pointer, which is valid for the call.
    outcome(unsafe { libc::ioctl(drive.as_raw_fd(), request as _, range.as_ptr()) }).map(drop)
}

/// Removes the immutable flag of a file, if the file has one and the file system supports it.
pub fn clear_immutable(path: &Path) {
    let Ok(file) = File::open(path) else { return };
    let mut flags: c_ulong = 0;
    // SAFETY: FS_IOC_GETFLAGS writes at most a long to the pointer.
    if unsafe { libc::ioctl(file.as_raw_fd(), FS_IOC_GETFLAGS as _, &raw mut flags) } != 0
        || flags & FS_IMMUTABLE_FL == 0
    {
        return;
    }
    flags &= !FS_IMMUTABLE_FL;
    // SAFETY: FS_IOC_SETFLAGS reads at most a long from the pointer. A failure shows at the write that follows.
    let _ = unsafe { libc::ioctl(file.as_raw_fd(), FS_IOC_SETFLAGS as _, &raw const flags) };
}

/// `struct nvme_passthru_cmd` without the fields that [`nvme_admin`] fills in from its arguments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NvmeCommand {
    /// NVMe opcode.
    pub opcode: u8,
    /// Number of the namespace; all ones selects all namespaces.
    pub namespace: u32,
    /// Command dwords 10, 11 and 12.
    pub dwords: [u32; 3],
    /// Timeout of the command in milliseconds; 0 selects the kernel's default.
    pub timeout_ms: u32,
}

#[repr(C)]
struct NvmePassthru {
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

/// Sends an admin command. The drive fills `data`. Returns the NVMe status; 0 is success.
///
/// # Errors
/// The kernel's error if the command did not reach the drive.
pub fn nvme_admin(drive: &File, command: &NvmeCommand, data: &mut [u8]) -> io::Result<u16> {
    let [a, b, c] = command.dwords;
    let mut passthru = NvmePassthru {
        opcode: command.opcode,
        flags: 0,
        reserved: 0,
        namespace: command.namespace,
        dword2: 0,
        dword3: 0,
        metadata: 0,
        address: if data.is_empty() { 0 } else { data.as_mut_ptr() as u64 },
        metadata_length: 0,
        data_length: data.len() as u32,
        dwords: [a, b, c, 0, 0, 0],
        timeout_ms: command.timeout_ms,
        result: 0,
    };
    // SAFETY: the structure has the kernel's layout (72 bytes, checked in a test); address and length describe `data`,
    // which lives and stays in place until the call returns.
    let status = outcome(unsafe { libc::ioctl(drive.as_raw_fd(), NVME_IOCTL_ADMIN_CMD as _, &raw mut passthru) })?;
    Ok(u16::try_from(status).unwrap_or(u16::MAX))
}

/// Returns the namespace's number.
///
/// # Errors
/// `ENOTTY` for a file that is not an NVMe namespace.
pub fn nvme_namespace(drive: &File) -> io::Result<u32> {
    // SAFETY: NVME_IOCTL_ID takes no argument and returns the number.
    outcome(unsafe { libc::ioctl(drive.as_raw_fd(), NVME_IOCTL_ID as _) }).map(c_int::cast_unsigned)
}

/// Makes the kernel scan the namespaces of an NVMe controller again. `controller` is its character device.
///
/// # Errors
/// `ENOTTY` for a file that is not an NVMe controller.
pub fn nvme_rescan(controller: &File) -> io::Result<()> {
    // SAFETY: NVME_IOCTL_RESCAN takes no argument.
    outcome(unsafe { libc::ioctl(controller.as_raw_fd(), NVME_IOCTL_RESCAN as _) }).map(drop)
}

/// Direction and buffer of a SCSI command's data.
#[derive(Debug)]
pub enum ScsiData<'a> {
    /// No data.
    None,
    /// From the drive.
    In(&'a mut [u8]),
    /// To the drive.
    Out(&'a [u8]),
}

#[repr(C)]
struct SgIoHdr {
    interface_id: c_int,
    direction: c_int,
    command_length: u8,
    sense_length: u8,
    iovec_count: u16,
    data_length: u32,
    data: *mut c_void,
    command: *mut u8,
    sense: *mut u8,
    timeout_ms: u32,
    flags: u32,
    pack_id: c_int,
    user: *mut c_void,
    status: u8,
    masked_status: u8,
    message_status: u8,
    sense_written: u8,
    host_status: u16,
    driver_status: u16,
    residual: c_int,
    duration: u32,
    info: u32,
}

/// Sends a SCSI command of 16 bytes.
///
/// # Errors
/// The kernel's error, or the status and sense key of the drive.
pub fn scsi(drive: &File, command: &[u8; 16], data: ScsiData<'_>, timeout: Duration) -> io::Result<()> {
    let answer = exchange(drive, command, data, timeout)?;
    if answer.is_good { Ok(()) } else { Err(answer.failure()) }
}

/// Sends an ATA command without data by ATA PASS-THROUGH (16) with the CK_COND bit set. Returns the ATA Status Return
/// descriptor of the sense data (SAT-4, 12.2.2.7).
///
/// # Errors
/// The kernel's error, the status of the drive, or that the descriptor is missing.
pub fn ata_registers(drive: &File, command: &[u8; 16], timeout: Duration) -> io::Result<[u8; 14]> {
    let answer = exchange(drive, command, ScsiData::None, timeout)?;
    let (head, descriptor) = (&answer.sense[..8], &answer.sense[8..22]);
    let is_there = head[0] & 0x7F == 0x72 && descriptor[..2] == [0x09, 0x0C];
    let mut registers = [0; 14];
    registers.copy_from_slice(descriptor);
    // Bits DF and ERR of the status.
    match (is_there, registers[13] & 0x21) {
        (true, 0) => Ok(registers),
        (true, _) => Err(io::Error::other(format!(
            "the drive refused: status {:#04x}, error {:#04x}",
            registers[13], registers[3]
        ))),
        (false, _) if answer.is_good => Err(io::Error::other("the controller returns no registers of the drive")),
        (false, _) => Err(answer.failure()),
    }
}

/// The end of a SCSI command.
struct Answer {
    is_good: bool,
    status: (u8, u16, u16),
    sense: [u8; SENSE_BYTES],
}

impl Answer {
    fn failure(&self) -> io::Error {
        let sense = &self.sense;
        let key = if sense[0] & 0x7F >= 0x72 { sense[1] } else { sense[2] } & 0x0F;
        let (status, host, driver) = self.status;
        io::Error::other(format!(
            "status {status:#04x}, host {host:#06x}, driver {driver:#06x}, sense key {key}"
        ))
    }
}

fn exchange(drive: &File, command: &[u8; 16], data: ScsiData<'_>, timeout: Duration) -> io::Result<Answer> {
    let mut command = *command;
    let mut sense = [0_u8; SENSE_BYTES];
    let (direction, pointer, length) = match data {
        ScsiData::None => (SG_DXFER_NONE, std::ptr::null_mut(), 0),
        ScsiData::In(buffer) => (SG_DXFER_FROM_DEV, buffer.as_mut_ptr().cast::<c_void>(), buffer.len()),
        // In this direction the kernel only reads the buffer.
        ScsiData::Out(buffer) => (
            SG_DXFER_TO_DEV,
            buffer.as_ptr().cast_mut().cast::<c_void>(),
            buffer.len(),
        ),
    };
    let mut header = SgIoHdr {
        interface_id: c_int::from(b'S'),
        direction,
        command_length: command.len() as u8,
        sense_length: SENSE_BYTES as u8,
        iovec_count: 0,
        data_length: length as u32,
        data: pointer,
        command: command.as_mut_ptr(),
        sense: sense.as_mut_ptr(),
        timeout_ms: u32::try_from(timeout.as_millis()).unwrap_or(u32::MAX),
        flags: 0,
        pack_id: 0,
        user: std::ptr::null_mut(),
        status: 0,
        masked_status: 0,
        message_status: 0,
        sense_written: 0,
        host_status: 0,
        driver_status: 0,
        residual: 0,
        duration: 0,
        info: 0,
    };
    // SAFETY: the structure has the kernel's layout (88 bytes on 64-bit machines, checked in a test); command, sense and
    // data buffers outlive the call, and their lengths are given.
    outcome(unsafe { libc::ioctl(drive.as_raw_fd(), SG_IO as _, &raw mut header) })?;
    Ok(Answer {
        is_good: header.status == 0 && header.host_status == 0 && header.driver_status & 0x0F == 0,
        status: (header.status, header.host_status, header.driver_status),
        sense,
    })
}

/// Subscribes a packet socket to a group of Ethernet addresses on the interface with this number, while the socket is open.
///
/// # Errors
/// `ENODEV` if the interface does not exist; `EINVAL` for a socket that is not a packet socket.
pub fn join_packet_group(socket: &OwnedFd, interface: u32, group: [u8; 6]) -> io::Result<()> {
    let mut request = libc::packet_mreq {
        mr_ifindex: c_int::try_from(interface).map_err(io::Error::other)?,
        mr_type: libc::PACKET_MR_MULTICAST as _,
        mr_alen: 6,
        mr_address: [0; 8],
    };
    for (place, octet) in request.mr_address.iter_mut().zip(group) {
        *place = octet;
    }
    // SAFETY: the descriptor is open for the call's duration; the kernel reads a `packet_mreq` of the given size.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_PACKET,
            libc::PACKET_ADD_MEMBERSHIP,
            (&raw const request).cast(),
            size_of::<libc::packet_mreq>() as libc::socklen_t,
        )
    };
    outcome(result).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structures_have_the_kernels_sizes() {
        assert_eq!(size_of::<NvmePassthru>(), 72);
        #[cfg(target_pointer_width = "64")]
        assert_eq!(size_of::<SgIoHdr>(), 88);
    }

    #[test]
    fn calls_on_a_plain_file_fail_cleanly() {
        let file = tempfile::tempfile().unwrap();
        assert!(reread_partitions(&file).is_err());
        assert!(drop_cache(&file).is_err());
        assert!(discard(&file, 0, 4096).is_err());
        assert!(nvme_namespace(&file).is_err());
        assert!(nvme_admin(&file, &NvmeCommand::default(), &mut [0; 512]).is_err());
        assert!(nvme_rescan(&file).is_err());
        let other = file.try_clone().unwrap().into();
        assert!(join_packet_group(&other, 1, [1, 0x80, 0xc2, 0, 0, 0x0e]).is_err());
        assert!(ata_registers(&file, &[0; 16], Duration::from_secs(1)).is_err());
        assert!(scsi(&file, &[0; 16], ScsiData::None, Duration::from_secs(1)).is_err());
    }
}
