//! The qcow2 reader of the import, for the fuzzer.

use std::fs::File;
use std::io::{self, Read as _};

use crate::qcow2::Qcow2;

/// Returns the first bytes of the disk in a qcow2 file, at most `limit`.
///
/// # Errors
/// The file is refused; the error contains the reason.
pub fn qcow2(file: File, limit: u64) -> io::Result<Vec<u8>> {
    let disk = Qcow2::open(file).map_err(io::Error::other)?;
    let mut start = Vec::new();
    disk.take(limit).read_to_end(&mut start)?;
    Ok(start)
}
