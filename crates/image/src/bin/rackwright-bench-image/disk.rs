//! A disk image for measurements: content of this machine's own disk, with gaps as on a system disk.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rackwright_image::CHUNK_SIZE;

use crate::Failure;

/// Runs of 60 MiB of data alternate with gaps of 80 MiB: 43 % of the disk is data.
const RUN: u64 = 60 << 20;
const GAP: u64 = 80 << 20;

/// Creates a sparse raw image of `size` bytes. Returns the number of data bytes.
pub(crate) fn build(path: &Path, size: u64) -> Result<u64, Failure> {
    let mut content = Content::new()?;
    let disk = File::create(path)?;
    disk.set_len(size)?;
    let mut buffer = vec![0; CHUNK_SIZE];
    let (mut offset, mut data) = (0, 0);
    while offset < size {
        let end = (offset + RUN).min(size);
        while offset < end {
            let part = &mut buffer[..((end - offset) as usize).min(CHUNK_SIZE)];
            content.fill(part)?;
            disk.write_all_at(part, offset)?;
            offset += part.len() as u64;
            data += part.len() as u64;
        }
        offset += GAP;
    }
    (&disk).flush()?;
    disk.sync_all()?;
    Ok(data)
}

/// The files below `/usr`, concatenated; each starts in a new block.
struct Content {
    files: std::vec::IntoIter<PathBuf>,
    current: Option<File>,
    taken: u64,
}

impl Content {
    fn new() -> Result<Self, Failure> {
        let mut files = Vec::new();
        let mut folders = vec![PathBuf::from("/usr")];
        while let Some(folder) = folders.pop() {
            let mut entries: Vec<_> = fs::read_dir(&folder)?.collect::<Result<_, _>>()?;
            entries.sort_by_key(std::fs::DirEntry::file_name);
            for entry in entries {
                let kind = entry.file_type()?;
                if kind.is_dir() {
                    folders.push(entry.path());
                } else if kind.is_file() {
                    files.push(entry.path());
                }
            }
        }
        Ok(Self {
            files: files.into_iter(),
            current: None,
            taken: 0,
        })
    }

    fn fill(&mut self, mut part: &mut [u8]) -> Result<(), Failure> {
        while !part.is_empty() {
            let Some(file) = &mut self.current else {
                let path = self
                    .files
                    .next()
                    .ok_or("/usr holds too little for an image of this size")?;
                self.current = Some(File::open(path)?);
                self.taken = 0;
                continue;
            };
            match file.read(part) {
                Ok(0) => {
                    let padding = (self.taken.next_multiple_of(4096) - self.taken) as usize;
                    let padding = padding.min(part.len());
                    part[..padding].fill(0);
                    part = &mut part[padding..];
                    self.current = None;
                }
                Ok(count) => {
                    self.taken += count as u64;
                    part = &mut part[count..];
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}
