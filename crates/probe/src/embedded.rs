//! The dynamically linked program inside the static one.
//!
//! The library of NVIDIA's driver belongs to the system, and only a dynamically linked program can load it. So `make probe`
//! builds this crate twice, and `build.rs` embeds the first program in the second. It is started from memory, without a
//! path; no disk is written. Where it cannot run (another or an older C library), the section `gpus` states the reason.

#![allow(unsafe_code)]

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::FromRawFd as _;

/// The embedded program; empty: built without one.
const PROGRAM: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/carried"));

/// The embedded program as a file in memory. The file must live until the program was started.
///
/// # Errors
/// There is none, or no memory; text for people.
pub fn program() -> Result<File, String> {
    if PROGRAM.is_empty() {
        return Err("this probe was built without its dynamic part".into());
    }
    in_memory().map_err(|error| format!("there is no memory for the dynamic part of the probe: {error}"))
}

fn in_memory() -> io::Result<File> {
    // SAFETY: the name ends with a zero.
    let descriptor = unsafe { libc::memfd_create(c"rackwright-probe".as_ptr(), libc::MFD_CLOEXEC) };
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: it is open, and has no other owner.
    let mut file = unsafe { File::from_raw_fd(descriptor) };
    file.write_all(PROGRAM)?;
    Ok(file)
}
