//! What machines printed, in files.
//!
//! A machine has a folder, and in it segments: files that begin with a line of JSON ([`Head`]) and go on with pieces, each with
//! its time, its length and its bytes as they came. A segment ends with the boot, when the machine changes hands, and when it is
//! large. Every piece is one write, so that a process that dies loses what it had not written (a fraction of a second) and leaves
//! at worst one piece cut short at the end, which readers leave out. Old segments go when a machine has too many bytes or they
//! are too old.

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
/// The first bytes of the first line, so that no other file is taken for one.
const FORMAT: u32 = 1;
/// Time and length before the bytes of a piece.
const PIECE_HEAD: usize = 12;
/// Longest piece, and longest head, that a reader believes.
const PIECE_MAX: usize = 1 << 20;

/// Whose output it is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// True while somebody's system ran on the machine, which was theirs.
    pub held: bool,
    /// The customer; empty: nobody in particular.
    pub customer: String,
    /// The claim.
    pub generation: u64,
}

/// The first line of a segment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    format: u32,
    /// Microseconds since 1970 UTC.
    pub begun_us: i64,
    /// When the boot began to which it belongs; 0: before the first power-on that was seen.
    pub boot_us: i64,
    /// Whose it is.
    pub holder: Holder,
}

/// A segment's file.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Segment {
    path: PathBuf,
    bytes: u64,
}

/// All segments of a folder, oldest first. A folder that is not there has none.
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
        // It may have gone meanwhile.
        if let Ok(data) = fs::metadata(&path) {
            found.push(Segment {
                bytes: data.len(),
                path,
            });
        }
    }
    // Names begin with the time, in as many digits each.
    found.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(found)
}

/// Reads the first line of a segment; none where it is damaged.
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
