//! Atomic replacement of files: a reader sees the former or the new file, even after a power cut.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::path::Path;

use super::folder;
use crate::error::FabricError;

/// Most bytes read from a file.
const MAX_BYTES: u64 = 64 << 20;

pub(super) fn failed(doing: &'static str, path: &Path, source: io::Error) -> FabricError {
    let path = path.to_owned();
    FabricError::File { doing, path, source }
}

/// The text of a file; none if there is no such file.
pub(super) fn read(path: &Path) -> Result<Option<String>, FabricError> {
    let mut text = String::new();
    let read = File::open(path).and_then(|file| file.take(MAX_BYTES).read_to_string(&mut text));
    match read {
        Ok(_) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(failed("read", path, source)),
    }
}

/// Writes a file next to the target, flushes it to the disk, and renames it.
pub(super) fn replace(path: &Path, text: &str) -> Result<(), FabricError> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    let beside = path.with_file_name(name);
    let written = write(&beside, text).and_then(|()| fs::rename(&beside, path));
    written
        .and_then(|()| File::open(folder(path))?.sync_all())
        .map_err(|source| failed("write", path, source))
}

fn write(path: &Path, text: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).open(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}
