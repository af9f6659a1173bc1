//! Reading segments, also while they are written.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

use super::{Head, PIECE_HEAD, PIECE_MAX, head, segments};

/// Most segments that are looked at: more than bounds of any sense leave.
const SEGMENTS: usize = 4096;

/// Bytes that came together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// When, in microseconds since 1970 UTC.
    pub at_us: i64,
    /// The boot that they belong to, by its begin.
    pub boot_us: i64,
    /// As the machine sent them.
    pub bytes: Vec<u8>,
}

/// A boot of which something is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Boot {
    /// When it began; 0: what came before the first power-on that was seen.
    pub boot_us: i64,
    /// First byte that is kept.
    pub first_us: i64,
    /// Bytes that are kept, with what is written around them.
    pub bytes: u64,
}

/// The boots that somebody may read, oldest first.
///
/// # Errors
/// The file system's.
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

/// Reads piece by piece. What is written meanwhile is found by asking again.
#[derive(Debug)]
pub struct Reader {
    folder: PathBuf,
    /// The last segment that was begun, by its path: the next ones come after it.
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
    /// A reader at the beginning of a folder.
    #[must_use]
    pub fn new(folder: PathBuf) -> Self {
        Self {
            folder,
            present: None,
            waiting: VecDeque::new(),
        }
    }

    /// The next piece that somebody may read; none: that is all for now.
    ///
    /// # Errors
    /// The file system's.
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

    /// Goes on to the next segment; false when there is none yet.
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
            // Gone, damaged, or its first line is being written: in the last case it is looked at again.
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
    /// The next whole piece; none: it ends here, for now.
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

/// Reads as much as fits; false when there is less.
fn fill(file: &mut File, buffer: &mut [u8]) -> io::Result<bool> {
    match file.read_exact(buffer) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        other => other.map(|()| true),
    }
}
