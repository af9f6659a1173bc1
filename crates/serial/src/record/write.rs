//! Writing segments, and removing those that are too many, too old, or no longer anybody's to read.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use super::{FORMAT, Head, Holder, PIECE_MAX, SUFFIX, head, segments};

/// Of one machine's recordings.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// All segments together, in bytes.
    pub bytes: u64,
    /// One segment, in bytes.
    pub segment_bytes: u64,
    /// Oldest end of a segment, in microseconds before now.
    pub age_us: i64,
}

/// Writes what one machine prints.
#[derive(Debug)]
pub struct Recorder {
    folder: PathBuf,
    bounds: Bounds,
    holder: Holder,
    boot_us: i64,
    open: Option<Open>,
}

#[derive(Debug)]
struct Open {
    file: File,
    bytes: u64,
}

impl Recorder {
    /// A recorder for a folder, which is made with the first bytes.
    #[must_use]
    pub fn new(folder: PathBuf, bounds: Bounds, holder: Holder) -> Self {
        Self {
            folder,
            bounds,
            holder,
            boot_us: 0,
            open: None,
        }
    }

    /// A boot begins: what comes now is its.
    pub fn boot(&mut self, now_us: i64) {
        self.boot_us = now_us;
        self.open = None;
    }

    /// From now on it is another's.
    pub fn hand(&mut self, holder: Holder) {
        if self.holder != holder {
            self.holder = holder;
            self.open = None;
        }
    }

    /// Writes a piece.
    ///
    /// # Errors
    /// The file system's. Nothing of a new segment is left open: the next piece tries another one.
    pub fn write(&mut self, now_us: i64, bytes: &[u8]) -> io::Result<()> {
        for part in bytes.chunks(PIECE_MAX) {
            let written = self.write_part(now_us, part);
            if written.is_err() {
                self.open = None;
            }
            written?;
        }
        Ok(())
    }

    fn write_part(&mut self, now_us: i64, part: &[u8]) -> io::Result<()> {
        let is_full = |open: &Open| open.bytes >= self.bounds.segment_bytes;
        if self.open.as_ref().is_none_or(is_full) {
            self.open = Some(self.begin(now_us)?);
        }
        let Some(open) = &mut self.open else { return Ok(()) };
        let mut piece = Vec::with_capacity(super::PIECE_HEAD + part.len());
        piece.extend_from_slice(&now_us.to_le_bytes());
        piece.extend_from_slice(&u32::try_from(part.len()).unwrap_or(u32::MAX).to_le_bytes());
        piece.extend_from_slice(part);
        open.file.write_all(&piece)?;
        open.bytes += piece.len() as u64;
        Ok(())
    }

    fn begin(&self, now_us: i64) -> io::Result<Open> {
        fs::create_dir_all(&self.folder)?;
        prune(&self.folder, self.bounds, now_us)?;
        let head = Head {
            format: FORMAT,
            begun_us: now_us,
            boot_us: self.boot_us,
            holder: self.holder.clone(),
        };
        let mut line = serde_json::to_vec(&head)?;
        line.push(b'\n');
        // Two may begin in the same microsecond.
        for number in 0..1000 {
            let path = self.folder.join(format!("{now_us:020}-{number:03}{SUFFIX}"));
            let made = OpenOptions::new().append(true).create_new(true).mode(0o600).open(path);
            match made {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                other => {
                    let mut file = other?;
                    file.write_all(&line)?;
                    let bytes = line.len() as u64;
                    return Ok(Open { file, bytes });
                }
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }
}

/// Makes room for one more segment: the oldest go first.
fn prune(folder: &Path, bounds: Bounds, now_us: i64) -> io::Result<()> {
    let all = segments(folder)?;
    let room = bounds.bytes.saturating_sub(bounds.segment_bytes);
    let mut total: u64 = all.iter().map(|segment| segment.bytes).sum();
    for segment in all {
        let age = ended_us(&segment.path).map_or(0, |ended| now_us.saturating_sub(ended));
        if total <= room && age <= bounds.age_us {
            continue;
        }
        total -= segment.bytes;
        remove(&segment.path)?;
    }
    Ok(())
}

fn ended_us(path: &Path) -> Option<i64> {
    let ended = fs::metadata(path).ok()?.modified().ok()?;
    let since = ended.duration_since(std::time::UNIX_EPOCH).ok()?;
    i64::try_from(since.as_micros()).ok()
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// Removes what is too old, also of machines that are recorded no more.
///
/// # Errors
/// The file system's.
pub fn remove_old(folder: &Path, age_us: i64, now_us: i64) -> io::Result<()> {
    let bounds = Bounds {
        bytes: u64::MAX,
        segment_bytes: 0,
        age_us,
    };
    prune(folder, bounds, now_us)
}

/// Removes what was printed while the machine was somebody's who has it no more: all that was held, but by `present`. How many
/// segments that were. A segment that cannot be read counts as held.
///
/// # Errors
/// The file system's.
pub fn remove_held(folder: &Path, present: &Holder) -> io::Result<usize> {
    let mut removed = 0;
    for segment in segments(folder)? {
        let holder = head(&segment.path)?.map(|(head, _)| head.holder);
        let stays = holder.is_some_and(|holder| !holder.held || holder == *present);
        if !stays {
            remove(&segment.path)?;
            removed += 1;
        }
    }
    Ok(removed)
}
