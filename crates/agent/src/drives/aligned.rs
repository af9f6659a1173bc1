//! Buffers with memory that direct I/O accepts.

use std::ops::{Deref, DerefMut};

/// Alignment in bytes that every drive accepts.
pub const ALIGNMENT: usize = 4096;

/// Zeroed bytes, aligned to [`ALIGNMENT`].
#[derive(Debug)]
pub struct Aligned {
    memory: Vec<u8>,
    start: usize,
    length: usize,
}

impl Aligned {
    /// Creates a buffer of `length` bytes.
    pub fn new(length: usize) -> Self {
        let memory = vec![0; length + ALIGNMENT];
        let start = memory.as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT);
        Self { memory, start, length }
    }
}

impl Deref for Aligned {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.memory[self.start..self.start + self.length]
    }
}

impl DerefMut for Aligned {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.length]
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn is_aligned() {
        for length in [1, 512, 4096, 1 << 20] {
            let buffer = super::Aligned::new(length);
            assert_eq!((buffer.as_ptr() as usize % super::ALIGNMENT, buffer.len()), (0, length));
        }
    }
}
