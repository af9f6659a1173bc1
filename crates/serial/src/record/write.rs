//! Writes segments, and removes those beyond the bounds or of earlier holders.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use super::{FORMAT, Head, Holder, PIECE_MAX, SUFFIX, head, segments};

/// Bounds of one machine's recordings.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Maximum size of all segments, in bytes.
    pub bytes: u64,
    /// Maximum size of a segment, in bytes.
    pub segment_bytes: u64,
    /// Maximum age of a segment's end, in microseconds.
    pub age_us: i64,
}

/// Records the output of one machine.
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
    /// Creates a recorder for a folder. The folder is created with the first bytes.
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

    /// Starts a boot: later output belongs to it.
    pub fn boot(&mut self, now_us: i64) {
        self.boot_us = now_us;
        self.open = None;
    }

    /// Changes the holder: later output belongs to the new holder.
    pub fn set_holder(&mut self, holder: Holder) {
        if self.holder != holder {
            self.holder = holder;
            self.open = None;
        }
    }

    /// Writes a piece.
    ///
    /// # Errors
    /// An error of the file system. A new segment is not left open, so the next piece starts another segment.
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
        // Two segments may start in the same microsecond.
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

/// Removes the oldest segments to make room for one more.
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

/// Removes segments that are too old, also of machines that are no longer recorded.
///
/// # Errors
/// An error of the file system.
pub fn remove_old(folder: &Path, age_us: i64, now_us: i64) -> io::Result<()> {
    let bounds = Bounds {
        bytes: u64::MAX,
        segment_bytes: 0,
        age_us,
    };
    prune(folder, bounds, now_us)
}

/// Removes the output of earlier holders: all held segments except those of `present`. Returns the number of removed
/// segments. An unreadable segment counts as held.
///
/// # Errors
/// An error of the file system.
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
