//! Signals to processes that a test started.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Sends a signal to a process.
///
/// # Panics
/// If there is no such process.
pub fn signal(pid: u32, signal: Signal) {
    if let Err(error) = kill(Pid::from_raw(pid.cast_signed()), signal) {
        panic!("{signal} to process {pid}: {error}");
    }
}
