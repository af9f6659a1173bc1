//! The drive of an agent: a sparse file in memory. 64 such drives do not fit into the memory of a small computer, so this
//! module compares each chunk with the image as soon as it is written, and then gives the memory of its zeros back. The
//! content of the file does not change: a hole reads as zeros.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, fallocate};
use nix::unistd::{Whence, lseek};
use rackwright_image::CHUNK_SIZE;

use super::image::Content;

/// Room behind the image, as the agent wants it.
const ROOM: u64 = 64 << 20;
/// Bytes that are read at once.
const PIECE: usize = 256 << 10;

#[derive(Debug)]
pub struct Drive {
    file: File,
    content: Content,
    /// Chunks that were compared and are right.
    right: Vec<bool>,
    piece: Vec<u8>,
}

/// What a chunk of the drive contains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Found {
    Right,
    Zeros,
    /// It is being written, or is wrong.
    Other,
}

impl Drive {
    pub fn create(path: &Path, content: Content) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(path)?;
        file.set_len(content.bytes() + ROOM)?;
        Ok(Self {
            file,
            content,
            right: vec![false; content.chunks as usize],
            piece: vec![0; PIECE],
        })
    }

    /// Compares the chunks that are written now. Returns the number of chunks that are right so far.
    pub fn look(&mut self) -> io::Result<u32> {
        for chunk in 0..self.content.chunks {
            if !self.right[chunk as usize] && self.is_written(chunk)? {
                self.compare(chunk)?;
            }
        }
        Ok(self.right.iter().map(|right| u32::from(*right)).sum())
    }

    /// Compares every chunk. Returns the number of chunks that are right.
    pub fn check(&mut self) -> io::Result<u32> {
        self.right.fill(false);
        for chunk in 0..self.content.chunks {
            self.compare(chunk)?;
        }
        Ok(self.right.iter().map(|right| u32::from(*right)).sum())
    }

    /// Whether the whole chunk has memory.
    fn is_written(&self, chunk: u32) -> io::Result<bool> {
        let begin = offset(chunk);
        let hole = lseek(&self.file, begin, Whence::SeekHole)?;
        Ok(hole >= begin + CHUNK_SIZE as i64)
    }

    fn compare(&mut self, chunk: u32) -> io::Result<()> {
        let found = self.found(chunk)?;
        self.right[chunk as usize] = found == Found::Right;
        let noise = match found {
            Found::Right => i64::from(self.content.noise),
            Found::Zeros => 0,
            Found::Other => return Ok(()),
        };
        let flags = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
        Ok(fallocate(
            &self.file,
            flags,
            offset(chunk) + noise,
            CHUNK_SIZE as i64 - noise,
        )?)
    }

    fn found(&mut self, chunk: u32) -> io::Result<Found> {
        let begin = offset(chunk);
        let mut noise = vec![0; self.content.noise as usize];
        self.file.read_exact_at(&mut noise, begin.cast_unsigned())?;
        let (mut at, end) = (begin + noise.len() as i64, begin + CHUNK_SIZE as i64);
        // A hole is not read: its bytes are zeros.
        while let Some(data) = self.data_from(at)?.filter(|data| *data < end) {
            let length = usize::try_from(end - data).unwrap_or(PIECE).min(PIECE);
            let piece = &mut self.piece[..length];
            self.file.read_exact_at(piece, data.cast_unsigned())?;
            if !is_zero(piece) {
                return Ok(Found::Other);
            }
            at = data + length as i64;
        }
        if noise == self.content.noise_of(chunk) {
            Ok(Found::Right)
        } else if is_zero(&noise) {
            Ok(Found::Zeros)
        } else {
            Ok(Found::Other)
        }
    }

    /// The first byte with memory, from this one on.
    fn data_from(&self, offset: i64) -> io::Result<Option<i64>> {
        match lseek(&self.file, offset, Whence::SeekData) {
            Ok(data) => Ok(Some(data)),
            Err(Errno::ENXIO) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

fn offset(chunk: u32) -> i64 {
    i64::from(chunk) * CHUNK_SIZE as i64
}

fn is_zero(bytes: &[u8]) -> bool {
    const ZEROS: [u8; 4096] = [0; 4096];
    bytes.chunks(ZEROS.len()).all(|piece| *piece == ZEROS[..piece.len()])
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONTENT: Content = Content { chunks: 2, noise: 5000 };

    #[test]
    fn only_the_right_bytes_count_and_their_zeros_take_no_memory() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("drive");
        let mut drive = Drive::create(&path, CONTENT).unwrap();
        let file = OpenOptions::new().write(true).open(&path).unwrap();
        let mut chunk = CONTENT.noise_of(1);
        chunk.resize(CHUNK_SIZE, 0);
        file.write_all_at(&chunk, CHUNK_SIZE as u64).unwrap();
        file.write_all_at(&chunk, 0).unwrap();
        assert_eq!(drive.look().unwrap(), 1, "the noise of chunk 1 is wrong in chunk 0");
        assert_eq!(drive.check().unwrap(), 1);
        assert!(drive.is_written(0).unwrap() && !drive.is_written(1).unwrap());
        file.write_all_at(&vec![0; CHUNK_SIZE], 0).unwrap();
        assert_eq!(drive.look().unwrap(), 1);
        assert!(!drive.is_written(0).unwrap(), "zeros are not kept");
        chunk[..5000].copy_from_slice(&CONTENT.noise_of(0));
        chunk[CHUNK_SIZE - 1] = 1;
        file.write_all_at(&chunk, 0).unwrap();
        assert_eq!(drive.look().unwrap(), 1, "its last byte is wrong");
        chunk[CHUNK_SIZE - 1] = 0;
        file.write_all_at(&chunk, 0).unwrap();
        assert_eq!(drive.look().unwrap(), 2);
        assert_eq!(drive.check().unwrap(), 2);
    }
}
