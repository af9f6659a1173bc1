//! Code that needs `unsafe`: memory shared with the kernel, io_uring and ioctls. The functions for the rest of the crate
//! are safe to call.

mod buffer;
mod device;
mod ring;

pub(crate) use buffer::AlignedBuf;
pub(crate) use device::{advise_dont_need, device_size, punch_hole, zero_out};
pub(crate) use ring::{Method, WriteQueue};

/// Length and offset of a direct write are multiples of this. No common drive or file system requires more.
pub(crate) const ALIGNMENT: usize = 4096;
