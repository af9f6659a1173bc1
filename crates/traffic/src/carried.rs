//! The dynamic program that the static one carries.
//!
//! libibverbs and the adapters' drivers are of the system, and only a program that is linked dynamically can load them. So
//! `make traffic` builds this crate twice, and `build.rs` puts the first program into the second. Where the machine has an
//! adapter, the static program asks the other one whether the library can be loaded and, if so, becomes it. Nothing is
//! written to a disk: it lies in memory, and has no path. Where it cannot run (another C library, an older one, no
//! libibverbs), the static program goes on, by TCP, and says why.

#![allow(unsafe_code)]

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsRawFd as _, FromRawFd as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use crate::lanes;

/// Nothing, where it was built without.
const PROGRAM: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/carried"));
/// Of what the other one says.
const WORDS: usize = 160;

/// Why there is no RDMA.
pub static WHY: OnceLock<String> = OnceLock::new();

/// Becomes the other program, with the same words; or comes back, and [`WHY`] tells why.
pub fn go_on(words: &[String]) {
    if let Err(why) = become_it(words) {
        WHY.get_or_init(|| why);
    }
}

fn become_it(words: &[String]) -> Result<(), String> {
    if PROGRAM.is_empty() {
        return Err("this program was built without it".into());
    }
    if !lanes::are_there() {
        return Err("this machine has no InfiniBand or RoCE device".into());
    }
    let program = in_memory().map_err(|e| format!("there is no memory for the program of RDMA: {e}"))?;
    let path = format!("/proc/self/fd/{}", program.as_raw_fd());
    let asked = Command::new(&path)
        .arg("verbs")
        .stdin(Stdio::null())
        .output()
        .map_err(|e| format!("the program of RDMA does not run here: {e}"))?;
    if !asked.status.success() {
        let text = String::from_utf8_lossy(&asked.stderr);
        let line = text.lines().next().unwrap_or_default();
        let line = line
            .trim_start_matches("rackwright-traffic: ")
            .trim_start_matches(&path);
        return Err(line.chars().filter(|c| !c.is_control()).take(WORDS).collect());
    }
    // Under the name that it was brought by: its folder is found by it, and whoever ends it finds it by that.
    let name = std::env::current_exe().map_err(|e| format!("the program does not know its own place: {e}"))?;
    let error = Command::new(&path).arg0(name).args(words).exec();
    Err(format!("the program of RDMA does not run here: {error}"))
}

fn in_memory() -> io::Result<File> {
    // SAFETY: the name ends with a zero.
    let descriptor = unsafe { libc::memfd_create(c"rackwright-traffic".as_ptr(), libc::MFD_CLOEXEC) };
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: it is open, and nobody else has it.
    let mut file = unsafe { File::from_raw_fd(descriptor) };
    file.write_all(PROGRAM)?;
    Ok(file)
}
