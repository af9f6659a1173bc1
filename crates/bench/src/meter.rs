//! The cost of processes and files, as the kernel counts it (`proc(5)`).

use std::fs;
use std::io;
use std::path::Path;

use rackwright_cli_context::error::CliError;

/// Clock ticks a second in `/proc`: `USER_HZ`, 100 on every architecture this runs on.
const TICKS_PER_S: f64 = 100.0;

/// A measured process.
#[derive(Debug, Clone)]
pub struct Process {
    pids: Vec<u32>,
    name: &'static str,
}

/// The usage of a process so far.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Usage {
    /// Seconds of CPU, user and system.
    pub cpu_s: f64,
    /// Most memory resident since the last [`Process::reset_peak`], in bytes.
    pub peak_resident_bytes: u64,
}

impl Process {
    /// The usage of several processes is added up.
    pub fn new(name: &'static str, pids: Vec<u32>) -> Self {
        Self { pids, name }
    }

    pub fn usage(&self) -> Result<Usage, CliError> {
        let mut sum = Usage::default();
        for pid in &self.pids {
            let read = |file: &str| {
                let path = format!("/proc/{pid}/{file}");
                fs::read_to_string(&path).map_err(|e| self.failed(e))
            };
            let nonsense = || self.failed(io::Error::other("/proc has an unexpected format"));
            sum.cpu_s += cpu_s(&read("stat")?).ok_or_else(nonsense)?;
            sum.peak_resident_bytes += peak_bytes(&read("status")?).ok_or_else(nonsense)?;
        }
        Ok(sum)
    }

    /// The peak counts from now on. For a process that only root may inspect, such as a control plane, an ordinary user
    /// gets the peak since its start.
    pub fn reset_peak(&self) -> Result<(), CliError> {
        let reset = |pid| match fs::write(format!("/proc/{pid}/clear_refs"), "5") {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
            other => other,
        };
        self.pids.iter().try_for_each(reset).map_err(|e| self.failed(e))
    }

    fn failed(&self, source: io::Error) -> CliError {
        CliError::io(format!("measure {}", self.name), source)
    }
}

fn cpu_s(stat: &str) -> Option<f64> {
    // The name, in brackets, may contain any character.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some((user + system) as f64 / TICKS_PER_S)
}

fn peak_bytes(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

/// Bytes of all files in a folder with names that start with `prefix`.
pub fn file_bytes(folder: &Path, prefix: &str) -> io::Result<u64> {
    let mut sum = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(prefix) {
            sum += entry.metadata()?.len();
        }
    }
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_name_with_brackets_and_spaces_is_read() {
        let stat = "12 (a) b) S 1 12 12 0 -1 4194560 1 0 0 0 150 50 0 0 20 0 9 0 1 2 3";
        assert_eq!(cpu_s(stat), Some(2.0));
        assert_eq!(cpu_s("12"), None);
    }

    #[test]
    fn this_process_can_be_measured() {
        let own_process = Process::new("this test", vec![std::process::id()]);
        own_process.reset_peak().unwrap();
        let before = own_process.usage().unwrap();
        let held = vec![1u8; 64 << 20];
        assert!(held.iter().map(|&b| u64::from(b)).sum::<u64>() > 0);
        let after = own_process.usage().unwrap();
        assert!(
            after.peak_resident_bytes >= before.peak_resident_bytes + (48 << 20),
            "{before:?} {after:?}"
        );
        assert!(after.cpu_s >= before.cpu_s);
    }

    #[test]
    fn a_process_that_is_gone_is_an_error() {
        let gone = Process::new("nobody", vec![u32::MAX]);
        assert!(gone.usage().is_err());
    }
}
