//! Signals to processes that a test started.

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
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

/// Stops a child of this process, and returns when all its threads stand still: on a busy computer they run on for a while
/// after the signal. `SIGCONT` lets the child run again.
///
/// # Panics
/// If there is no such child.
pub fn freeze(pid: u32) {
    signal(pid, Signal::SIGSTOP);
    loop {
        match waitid(Id::Pid(Pid::from_raw(pid.cast_signed())), WaitPidFlag::WSTOPPED) {
            Ok(WaitStatus::Stopped(..)) => return,
            Err(Errno::EINTR) => {}
            other => panic!("process {pid} does not stop: {other:?}"),
        }
    }
}

/// A line of a process's memory in proc(5), in bytes: `VmRSS` is the resident memory now, `VmHWM` the most that it ever was.
///
/// # Panics
/// If there is no such process or line.
#[must_use]
pub fn memory(pid: u32, line: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("the process runs");
    let mut values = status
        .lines()
        .filter_map(|text| text.strip_prefix(line)?.strip_prefix(':'));
    let kib = values
        .next()
        .and_then(|text| text.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kib.unwrap_or_else(|| panic!("{line} is not in:\n{status}")) * 1024
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_frozen_process_stands_still_until_it_is_continued() {
        let mut child = Command::new("sleep").arg("600").spawn().expect("sleep runs");
        let pid = child.id();
        freeze(pid);
        let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("its state");
        assert!(state.contains(") T "), "{state}");
        signal(pid, Signal::SIGCONT);
        child.kill().expect("it is ended");
        child.wait().expect("it ends");
    }
}
