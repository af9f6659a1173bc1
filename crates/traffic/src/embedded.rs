//! The dynamically linked program inside the static one.
//!
//! libibverbs and the adapters' drivers belong to the system, and only a dynamically linked program can load them. So `make
//! traffic` builds this crate twice, and `build.rs` embeds the first program in the second. Where the machine has an
//! adapter, the static program runs the embedded one to check whether the library can be loaded and, if so, executes it in
//! its own place. The embedded program is in memory, without a path; no disk is written. Where it cannot run (another or an
//! older C library, no libibverbs), the static program continues by TCP and reports why.

#![allow(unsafe_code)]

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsRawFd as _, FromRawFd as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use crate::lanes;

/// The embedded program; empty: built without one.
const PROGRAM: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/carried"));
/// Most characters of the embedded program's message.
const REASON_MAX: usize = 160;

/// Why RDMA is not available.
pub static NO_RDMA_REASON: OnceLock<String> = OnceLock::new();

/// Executes the embedded program with the same arguments; if that fails, it returns and [`NO_RDMA_REASON`] has the reason.
pub fn exec_embedded(arguments: &[String]) {
    if let Err(why) = try_exec(arguments) {
        NO_RDMA_REASON.get_or_init(|| why);
    }
}

fn try_exec(arguments: &[String]) -> Result<(), String> {
    if PROGRAM.is_empty() {
        return Err("this program was built without RDMA".into());
    }
    if !lanes::any_present() {
        return Err("this machine has no InfiniBand or RoCE device".into());
    }
    let program = write_to_memfd().map_err(|e| format!("there is no memory for the RDMA program: {e}"))?;
    let path = format!("/proc/self/fd/{}", program.as_raw_fd());
    let output = Command::new(&path)
        .arg("verbs")
        .stdin(Stdio::null())
        .output()
        .map_err(|e| format!("the RDMA program does not run here: {e}"))?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        let line = text.lines().next().unwrap_or_default();
        let line = line
            .trim_start_matches("rackwright-traffic: ")
            .trim_start_matches(&path);
        return Err(line.chars().filter(|c| !c.is_control()).take(REASON_MAX).collect());
    }
    // Under the original name: the program finds its folder by that name, and so does the step that ends it.
    let name = std::env::current_exe().map_err(|e| format!("the path of this program is unknown: {e}"))?;
    let error = Command::new(&path).arg0(name).args(arguments).exec();
    Err(format!("the RDMA program does not run here: {error}"))
}

fn write_to_memfd() -> io::Result<File> {
    // SAFETY: the name ends with a zero.
    let descriptor = unsafe { libc::memfd_create(c"rackwright-traffic".as_ptr(), libc::MFD_CLOEXEC) };
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: it is open, and has no other owner.
    let mut file = unsafe { File::from_raw_fd(descriptor) };
    file.write_all(PROGRAM)?;
    Ok(file)
}
