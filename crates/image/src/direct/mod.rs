//! What needs `unsafe`: memory shared with the kernel, io_uring and ioctls. Everything offered to the rest of the crate
//! is safe to call.

mod buffer;
mod device;
mod ring;

pub(crate) use buffer::AlignedBuf;
pub(crate) use device::{advise_dont_need, device_size, punch_hole, zero_out};
pub(crate) use ring::{Method, WriteQueue};

/// Length and place of a direct write are multiples of this; no common drive or file system asks for more.
pub(crate) const ALIGNMENT: usize = 4096;
