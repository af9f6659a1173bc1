//! The answers of an installed system. Pure functions from values to text.
//!
//! The system runs no shell. It recognises the three scripts of validation and hand-over by the name and version with
//! which their output begins (`crates/validate`), and prints the output of those scripts.

use super::super::installed::Installed;
use rackwright_api::v1::Inventory;
use std::fmt::Write as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The content of every image, as a simulated drive does not store the written one.
const OS_RELEASE: [&str; 3] = [
    "PRETTY_NAME=\"Debian GNU/Linux 12 (simulated)\"",
    "ID=debian",
    "VERSION_ID=\"12\"",
];
const KERNEL: &str = "6.1.0-simulated-amd64";
/// The failed unit of a degraded system.
const FAILED_UNIT: &str = "simulated.service";
/// The probe reads more until the reading takes a fifth of a second or reaches this size.
const READ_ENOUGH: Duration = Duration::from_millis(200);
const READ_MOST_MIB: u64 = 1024;

/// A script that the system recognises.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Script<'a> {
    /// Reads the machine, and at first this many MiB of its drive.
    Probe { sample_mib: u64 },
    /// Reports the time.
    Clock,
    /// Removes a key: the base64 part of its public half.
    HandOver { key: &'a str },
}

impl<'a> Script<'a> {
    /// The script in the shell's input; `None` for any other.
    pub(super) fn of(text: &'a str) -> Option<Self> {
        let has_line = |line: &str| text.lines().any(|other| other.trim() == line);
        let set = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        if has_line("say begin rackwright-probe-1") {
            let sample_mib = set("sample_mib")?.parse().ok()?;
            return Some(Self::Probe { sample_mib });
        }
        if has_line("say begin rackwright-hand-over-1") {
            let key = set("blob")?.strip_prefix('\'')?.strip_suffix('\'')?;
            return (!key.is_empty()).then_some(Self::HandOver { key });
        }
        (text.trim_end() == "date +clock=%s.%N </dev/null").then_some(Self::Clock)
    }
}

/// The facts of a machine and its system at the time of the request.
pub(super) struct Facts<'a> {
    pub(super) inventory: &'a Inventory,
    pub(super) installed: &'a Installed,
    pub(super) boot_id: &'a str,
    pub(super) uptime_s: f64,
    pub(super) degraded: bool,
    /// Read speed of the root drive, in decimal megabytes a second.
    pub(super) read_mb_per_s: f64,
}

/// The output of the probe.
pub(super) fn probe(facts: &Facts<'_>, sample_mib: u64) -> String {
    let mut out = Lines::default();
    out.add_line("begin", "rackwright-probe-1");
    out.add_line("systemd", if facts.degraded { "degraded" } else { "running" });
    if facts.degraded {
        out.add_line("failed_unit", FAILED_UNIT);
    }
    system(&mut out, facts);
    for module in &facts.inventory.memory_modules {
        out.add_line("memory_module", module.size_bytes / 1024);
    }
    for drive in &facts.inventory.drives {
        let (name, serial) = (&drive.name, &drive.serial_number);
        out.add_line("drive", format!("{name}\t{}\t0\t{serial}", drive.size_bytes / 512));
    }
    for nic in &facts.inventory.nics {
        out.add_line("nic", format!("{}\t1\t{}", nic.name, nic.mac));
    }
    for device in &facts.inventory.pci_devices {
        let (vendor, kind) = (device.vendor_id, device.device_id);
        out.add_line("pci", format!("{}\t{vendor:#06x}\t{kind:#06x}\t0", device.address));
    }
    root_drive(&mut out, facts, sample_mib);
    out.add_line("end", "rackwright-probe-1");
    out.0
}

fn system(out: &mut Lines, facts: &Facts<'_>) {
    out.add_line("boot_id", facts.boot_id);
    out.add_line("uptime_s", format!("{:.2}", facts.uptime_s));
    out.add_line("kernel", KERNEL);
    out.add_line("architecture", "x86_64");
    out.add_line("hostname", &facts.installed.hostname);
    out.add_line("cmdline", "root=LABEL=root ro quiet");
    for line in OS_RELEASE {
        out.add_line("os_release", line);
    }
    out.add_line("cpus", facts.inventory.cpus.iter().map(|cpu| cpu.threads).sum::<u32>());
    out.add_line("memory_kib", facts.inventory.memory_bytes / 1024);
    for line in facts.installed.marker.lines() {
        out.add_line("image", line);
    }
}

fn root_drive(out: &mut Lines, facts: &Facts<'_>, sample_mib: u64) {
    let serial = &facts.installed.drive_serial;
    let mut drives = facts.inventory.drives.iter();
    let Some(drive) = drives.find(|drive| drive.serial_number == *serial) else {
        out.add_line("root_drive", "");
        return;
    };
    out.add_line("root_drive", &drive.name);
    if sample_mib > 0 {
        let (mib, took) = read(sample_mib, drive.size_bytes >> 20, facts.read_mb_per_s);
        out.add_line(
            "disk_read",
            format!("{}\t{mib}\t{}\tdirect", drive.name, took.as_millis() / 10),
        );
    }
}

/// The last of the probe's readings: MiB and duration.
fn read(sample_mib: u64, most_mib: u64, mb_per_s: f64) -> (u64, Duration) {
    let mut mib = sample_mib;
    loop {
        mib = mib.min(most_mib);
        let took = Duration::from_secs_f64((mib << 20) as f64 / 1e6 / mb_per_s);
        if took >= READ_ENOUGH || mib >= READ_MOST_MIB || mib >= most_mib {
            return (mib, took);
        }
        mib *= 4;
    }
}

/// The output of the clock script.
pub(super) fn clock(now: SystemTime) -> String {
    let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("clock={}.{:09}\n", since.as_secs(), since.subsec_nanos())
}

/// The output of hand-over if the key was `removed`, or was not there.
pub(super) fn hand_over(removed: bool) -> String {
    let mut out = Lines::default();
    out.add_line("begin", "rackwright-hand-over-1");
    if removed {
        out.add_line("removed", "seed:meta-data");
        out.add_line("removed", "seed:rackwright/authorized_keys");
    }
    out.add_line("seed", "clean");
    if removed {
        out.add_line("removed", "/root/.ssh/authorized_keys");
    }
    out.add_line("end", "rackwright-hand-over-1");
    out.0
}

#[derive(Default)]
struct Lines(String);

impl Lines {
    fn add_line(&mut self, key: &str, value: impl std::fmt::Display) {
        let _ = writeln!(self.0, "{key}={value}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_scripts_of_a_known_version_are_known() {
        let probe = "wait_s=180\nsample_mib=16\nmain() {\n  say begin rackwright-probe-1\n}\n";
        assert_eq!(Script::of(probe), Some(Script::Probe { sample_mib: 16 }));
        let hand_over = "blob='AAAA'\nextra=''\n  say begin rackwright-hand-over-1\n";
        assert_eq!(Script::of(hand_over), Some(Script::HandOver { key: "AAAA" }));
        assert_eq!(Script::of("date +clock=%s.%N </dev/null\n"), Some(Script::Clock));
        for other in [
            String::new(),
            "reboot".to_owned(),
            "date +clock=%s.%N </dev/null\nreboot\n".to_owned(),
            probe.replace("probe-1", "probe-2"),
            probe.replace("sample_mib=16", "sample_mib=many"),
            hand_over.replace("AAAA", ""),
            hand_over.replace("blob='AAAA'\n", ""),
        ] {
            assert_eq!(Script::of(&other), None, "{other:?}");
        }
    }

    #[test]
    fn reads_grow_until_they_take_long_enough() {
        assert_eq!(read(16, 1 << 20, 4.0).0, 16, "a slow drive is not read for long");
        let (mib, took) = read(16, 1 << 20, 300.0);
        assert_eq!((mib, took.as_millis()), (64, 223));
        assert_eq!(read(16, 1 << 20, 1e6).0, 1024, "and no more than a GiB");
        assert_eq!(read(16, 20, 1e6).0, 20, "or than there is");
    }
}
