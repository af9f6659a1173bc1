//! The parts of an image's disk that the agent reads and changes after writing: the partition table and the seed.

pub mod crc;
pub mod fat;
pub mod gpt;
pub mod marker;
pub mod seed;

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

/// Bytes at offsets: a drive, or a partition of it.
pub trait Source {
    /// Fills the buffer completely from `offset`.
    ///
    /// # Errors
    /// The kernel's error, or `UnexpectedEof` beyond the end.
    fn fill(&self, buffer: &mut [u8], offset: u64) -> io::Result<()>;
}

impl Source for File {
    fn fill(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.read_exact_at(buffer, offset)
    }
}

/// A range of a file.
#[derive(Debug)]
pub struct Window<'a> {
    /// The drive.
    pub file: &'a File,
    /// Offset of the first byte.
    pub start: u64,
    /// Length in bytes.
    pub length: u64,
}

impl Source for Window<'_> {
    fn fill(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let end = offset
            .checked_add(buffer.len() as u64)
            .filter(|end| *end <= self.length);
        let start = self.start.checked_add(offset);
        let (Some(_), Some(start)) = (end, start) else {
            return Err(io::ErrorKind::UnexpectedEof.into());
        };
        self.file.read_exact_at(buffer, start)
    }
}

/// The `N` bytes at an offset of a buffer; zeros if they are not all inside it.
pub(crate) fn field<const N: usize>(buffer: &[u8], offset: usize) -> [u8; N] {
    let mut field = [0; N];
    if let Some(found) = buffer.get(offset..offset.saturating_add(N)) {
        field.copy_from_slice(found);
    }
    field
}

/// Little-endian u16 at an offset.
pub(crate) fn le16(buffer: &[u8], offset: usize) -> u16 {
    u16::from_le_bytes(field(buffer, offset))
}

/// Little-endian u32 at an offset.
pub(crate) fn le32(buffer: &[u8], offset: usize) -> u32 {
    u32::from_le_bytes(field(buffer, offset))
}

/// Little-endian u64 at an offset.
pub(crate) fn le64(buffer: &[u8], offset: usize) -> u64 {
    u64::from_le_bytes(field(buffer, offset))
}
