//! Recordings of the machines' output, in files.
//!
//! Each machine has a folder of segments. A segment is a file with a line of JSON ([`Head`]) followed by pieces: time,
//! length and the raw bytes. A segment ends with the boot, when the machine changes hands, and at its maximum size.
//! Every piece is one write. A process that dies loses only unwritten output (a fraction of a second) and leaves at
//! most one truncated piece at the end, which readers skip. Old segments are removed when a machine has too many bytes
//! or when they are too old.

mod read;
mod write;

pub use read::{Boot, Piece, Reader, boots};
pub use write::{Bounds, Recorder, remove_held, remove_old};

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// The end of a segment's file name.
const SUFFIX: &str = ".console";
/// The format number in the first line, which identifies segments.
const FORMAT: u32 = 1;
/// Length of the time and the length before the bytes of a piece.
const PIECE_HEAD: usize = 12;
/// Maximum length of a piece and of a head that a reader accepts, in bytes.
const PIECE_MAX: usize = 1 << 20;

/// The holder of the machine while it printed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// True while the holder's own system ran on the machine.
    pub held: bool,
    /// The customer. Empty: no particular customer.
    pub customer: String,
    /// The claim generation.
    pub generation: u64,
}

/// The first line of a segment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    format: u32,
    /// Start of the segment, in microseconds since 1970 UTC.
    pub begun_us: i64,
    /// Start of the segment's boot. 0: before the first observed power-on.
    pub boot_us: i64,
    /// The holder of the machine.
    pub holder: Holder,
}

/// A segment's file.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Segment {
    path: PathBuf,
    bytes: u64,
}

/// All segments of a folder, oldest first. A missing folder has no segments.
fn segments(folder: &Path) -> io::Result<Vec<Segment>> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other?,
    };
    let mut found = Vec::new();
    for entry in entries {
        let path = entry?.path();
        let is_one = path
            .file_name()
            .is_some_and(|name| name.to_string_lossy().ends_with(SUFFIX));
        if !is_one {
            continue;
        }
        // The file may have been removed meanwhile.
        if let Ok(data) = fs::metadata(&path) {
            found.push(Segment {
                bytes: data.len(),
                path,
            });
        }
    }
    // Names begin with the time in a fixed number of digits.
    found.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(found)
}

/// Reads the first line of a segment. Returns `None` if the line is damaged or the file is gone.
fn head(path: &Path) -> io::Result<Option<(Head, u64)>> {
    use std::io::{BufRead as _, Read as _};
    let file = match fs::File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other?,
    };
    let mut line = Vec::new();
    io::BufReader::new(file.take(PIECE_MAX as u64)).read_until(b'\n', &mut line)?;
    let length = line.len() as u64;
    let head: Option<Head> = line
        .strip_suffix(b"\n")
        .and_then(|line| serde_json::from_slice(line).ok());
    Ok(head.filter(|head| head.format == FORMAT).map(|head| (head, length)))
}

#[cfg(test)]
mod tests;
