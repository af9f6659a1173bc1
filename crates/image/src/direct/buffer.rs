//! Page-aligned memory, in huge pages if the kernel provides them.

use std::io;
use std::ops::{Deref, DerefMut};
use std::ptr::{self, NonNull};

/// Zeroed anonymous memory in its own mapping, aligned to a page as direct I/O requires.
#[derive(Debug)]
pub(crate) struct AlignedBuf {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping belongs to this value alone, and no thread-local state hangs on it.
unsafe impl Send for AlignedBuf {}
// SAFETY: through a shared reference it can only be read.
unsafe impl Sync for AlignedBuf {}

impl AlignedBuf {
    /// Maps `len` bytes. `len` must not be 0.
    pub(crate) fn new(len: usize) -> io::Result<Self> {
        // SAFETY: a new private anonymous mapping touches no existing memory; the result is checked.
        let start = unsafe {
            libc::mmap(
                ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast::<u8>()).ok_or_else(|| io::Error::other("mmap returned null"))?;
        // SAFETY: the range is the mapping just made. Advice may be refused; that costs only speed.
        unsafe { libc::madvise(start.as_ptr().cast(), len, libc::MADV_HUGEPAGE) };
        Ok(Self { start, len })
    }
}

impl Deref for AlignedBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `start` maps `len` initialised (zeroed) bytes until drop; `&self` keeps writers out.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above; `&mut self` makes this the only reference.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl Drop for AlignedBuf {
    fn drop(&mut self) {
        // SAFETY: unmaps exactly what `new` mapped; nothing can refer to it any more. Cannot fail for such a range.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_aligned_zeroed_and_writable() {
        let mut buffer = AlignedBuf::new(10_000).unwrap();
        assert_eq!(buffer.as_ptr() as usize % super::super::ALIGNMENT, 0);
        assert!(crate::digest::is_zero(&buffer));
        buffer[9_999] = 7;
        assert_eq!((buffer.len(), buffer[9_999]), (10_000, 7));
    }
}
