//! Reads segments, including those still being written.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

use super::{Head, PIECE_HEAD, PIECE_MAX, head, segments};

/// Maximum number of segments to read. Sensible bounds leave fewer.
const SEGMENTS: usize = 4096;

/// Bytes that arrived together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// Time of arrival, in microseconds since 1970 UTC.
    pub at_us: i64,
    /// Start of the boot that printed the bytes.
    pub boot_us: i64,
    /// The bytes as the machine sent them.
    pub bytes: Vec<u8>,
}

/// A boot with recorded output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Boot {
    /// Start of the boot. 0: the output before the first observed power-on.
    pub boot_us: i64,
    /// Start of the first recorded segment, in microseconds since 1970 UTC.
    pub first_us: i64,
    /// Recorded bytes, including heads and framing.
    pub bytes: u64,
}

/// The boots that the caller may read, oldest first.
///
/// # Errors
/// An error of the file system.
pub fn boots(folder: &Path, may_read: impl Fn(&Head) -> bool) -> io::Result<Vec<Boot>> {
    let mut found: Vec<Boot> = Vec::new();
    for segment in segments(folder)?.into_iter().take(SEGMENTS) {
        let Some((head, _)) = head(&segment.path)?.filter(|(head, _)| may_read(head)) else {
            continue;
        };
        match found.last_mut().filter(|last| last.boot_us == head.boot_us) {
            Some(last) => last.bytes += segment.bytes,
            None => found.push(Boot {
                boot_us: head.boot_us,
                first_us: head.begun_us,
                bytes: segment.bytes,
            }),
        }
    }
    Ok(found)
}

/// Reads piece by piece. Call again to get output that is written meanwhile.
#[derive(Debug)]
pub struct Reader {
    folder: PathBuf,
    /// The current segment. The next segments follow its path in order.
    present: Option<Present>,
    waiting: VecDeque<PathBuf>,
}

#[derive(Debug)]
struct Present {
    path: PathBuf,
    head: Head,
    file: File,
    at: u64,
    may_read: bool,
}

impl Reader {
    /// Starts at the beginning of a folder.
    #[must_use]
    pub fn new(folder: PathBuf) -> Self {
        Self {
            folder,
            present: None,
            waiting: VecDeque::new(),
        }
    }

    /// The next piece that the caller may read. `None`: there is no more for now.
    ///
    /// # Errors
    /// An error of the file system.
    pub fn next(&mut self, may_read: &dyn Fn(&Head) -> bool) -> io::Result<Option<Piece>> {
        loop {
            if let Some(present) = self.present.as_mut().filter(|present| present.may_read)
                && let Some(piece) = present.next()?
            {
                return Ok(Some(piece));
            }
            if !self.advance(may_read)? {
                return Ok(None);
            }
        }
    }

    /// Moves to the next segment. Returns false if there is none yet.
    fn advance(&mut self, may_read: &dyn Fn(&Head) -> bool) -> io::Result<bool> {
        if self.waiting.is_empty() {
            let after = self.present.as_ref().map(|present| present.path.clone());
            let all = segments(&self.folder)?.into_iter().map(|segment| segment.path);
            self.waiting = all
                .filter(|path| after.as_ref().is_none_or(|after| path > after))
                .collect();
        }
        let Some(path) = self.waiting.pop_front() else {
            return Ok(false);
        };
        let Some((head, at)) = head(&path)? else {
            // The segment is gone or damaged, or its first line is being written. The last segment is tried again
            // later.
            let is_last = self.waiting.is_empty();
            return Ok(!is_last);
        };
        let file = match File::open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(true),
            other => other?,
        };
        self.present = Some(Present {
            may_read: may_read(&head),
            path,
            head,
            file,
            at,
        });
        Ok(true)
    }
}

impl Present {
    /// The next complete piece. `None`: there is none yet.
    fn next(&mut self) -> io::Result<Option<Piece>> {
        let mut top = [0; PIECE_HEAD];
        self.file.seek(SeekFrom::Start(self.at))?;
        if !fill(&mut self.file, &mut top)? {
            return Ok(None);
        }
        let (at_us, length) = top.split_at(8);
        let at_us = i64::from_le_bytes(at_us.try_into().unwrap_or_default());
        let length = u32::from_le_bytes(length.try_into().unwrap_or_default()) as usize;
        if length > PIECE_MAX {
            return Ok(None);
        }
        let mut bytes = vec![0; length];
        if !fill(&mut self.file, &mut bytes)? {
            return Ok(None);
        }
        self.at += (PIECE_HEAD + length) as u64;
        Ok(Some(Piece {
            at_us,
            boot_us: self.head.boot_us,
            bytes,
        }))
    }
}

/// Fills the buffer. Returns false if fewer bytes are left.
fn fill(file: &mut File, buffer: &mut [u8]) -> io::Result<bool> {
    match file.read_exact(buffer) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        other => other.map(|()| true),
    }
}
