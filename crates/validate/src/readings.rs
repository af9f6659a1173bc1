//! A machine's report about itself, and the parser of `probe.sh`'s output.
//!
//! Tolerant: unknown keys, odd lines and missing values are ignored, because images differ. Strict where a verdict needs
//! it: output without its begin and end is refused as a whole, and an unparsable value counts as not read.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

const BEGIN: &str = "begin=rackwright-probe-1";
const END: &str = "end=rackwright-probe-1";
/// Most entries of a list; the largest machines have some hundreds of PCI devices.
const LIST_MAX: usize = 4096;
/// Most characters kept of a value.
const TEXT_MAX: usize = 4096;
/// Unit of `/sys/block/*/size`, whatever the drive's own block size.
const SECTOR_BYTES: u64 = 512;

/// Why a probe's output is unusable.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReadingsError {
    /// Another program answered, such as a forced command.
    #[error("the output does not begin like the output of the probe: {0:?}")]
    NoBegin(String),
    /// The output was cut off.
    #[error("the output was cut off after {0} lines")]
    NoEnd(usize),
}

/// A machine as its installed system reports it. `None` and empty text: not readable.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Readings {
    /// `/proc/sys/kernel/random/boot_id`.
    pub boot_id: String,
    /// Seconds since the kernel started.
    pub uptime_s: Option<f64>,
    /// The content of `/etc/os-release`.
    pub os: OsRelease,
    /// As `uname -r`.
    pub kernel_release: String,
    /// As `uname -m`.
    pub architecture: String,
    /// The kernel's host name.
    pub hostname: String,
    /// The kernel's command line.
    pub cmdline: String,
    /// Online logical processors.
    pub cpus: Option<u32>,
    /// MemTotal, in bytes.
    pub memory_bytes: Option<u64>,
    /// Sizes of the populated memory slots in bytes, from the SMBIOS table; empty: the table is not readable.
    pub memory_modules: Vec<u64>,
    /// Whole drives.
    pub drives: Vec<DriveReading>,
    /// Network interfaces on a bus, without virtual functions.
    pub nics: Vec<NicReading>,
    /// All PCI functions, virtual ones marked.
    pub pci_devices: Vec<PciReading>,
    /// The machine's clock.
    pub clock: Option<ClockReading>,
    /// As `systemctl is-system-running`; "none": another init runs.
    pub systemd_state: String,
    /// Units in state failed, at most 50.
    pub failed_units: Vec<String>,
    /// The drive below the root file system.
    pub root_drive: String,
    /// The read rate of the root drive.
    pub disk_read: Option<DiskRead>,
    /// Why the root drive could not be read.
    pub disk_read_error: String,
    /// The content of `/etc/rackwright/image`.
    pub image: ImageMarker,
}

/// From `/etc/os-release`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OsRelease {
    /// ID, such as "debian".
    pub id: String,
    /// VERSION_ID, such as "12".
    pub version_id: String,
    /// PRETTY_NAME, for people.
    pub pretty_name: String,
}

/// One drive.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DriveReading {
    /// The kernel's name.
    pub name: String,
    pub size_bytes: u64,
    /// The kernel reports the drive as removable.
    pub removable: bool,
    /// Serial number; empty where the kernel does not report it.
    pub serial: String,
}

/// One network interface.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NicReading {
    /// The kernel's name.
    pub name: String,
    /// ARPHRD number: 1 Ethernet, 32 InfiniBand.
    pub kind: u32,
    /// Lower case, colon separated.
    pub mac: String,
}

/// One PCI function.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PciReading {
    /// Domain:bus:device.function.
    pub address: String,
    /// PCI vendor id.
    pub vendor_id: u32,
    /// PCI device id.
    pub device_id: u32,
    /// A virtual function, made by the installed system.
    pub virtual_function: bool,
}

/// A reading of the machine's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockReading {
    /// The reported time, rounded down to `resolution`.
    pub time: SystemTime,
    /// 1 s where the machine's `date` has no fractions.
    pub resolution: Duration,
}

/// One measurement of sequential reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskRead {
    /// Name of the drive.
    pub name: String,
    /// Bytes read.
    pub bytes: u64,
    /// Duration of the read, to 10 ms.
    pub duration: Duration,
    /// "direct", or "cold-cache" where direct reads are not possible.
    pub method: String,
}

impl DiskRead {
    /// Rate in 10^6 bytes a second; a duration below the clock's 10 ms counts as 10 ms.
    pub fn mb_per_s(&self) -> f64 {
        self.bytes as f64 / 1e6 / self.duration.as_secs_f64().max(0.01)
    }
}

/// The marker that the seed left on the installed system.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ImageMarker {
    /// Digest of the image version.
    pub digest: String,
    /// Generation of the claim.
    pub generation: Option<u64>,
}

impl Readings {
    /// Parses the output of `probe.sh`; text before its begin (a shell's greeting) is skipped.
    pub fn parse(output: &str) -> Result<Self, ReadingsError> {
        let mut lines = output.lines().map(str::trim_end).skip_while(|line| *line != BEGIN);
        if lines.next().is_none() {
            return Err(ReadingsError::NoBegin(output.chars().take(200).collect()));
        }
        let mut readings = Self::default();
        for (count, line) in lines.enumerate() {
            if line == END {
                return Ok(readings);
            }
            if count > 8 * LIST_MAX {
                return Err(ReadingsError::NoEnd(count));
            }
            if let Some((key, value)) = line.split_once('=') {
                readings.take(key, value);
            }
        }
        Err(ReadingsError::NoEnd(output.lines().count()))
    }

    fn take(&mut self, key: &str, value: &str) {
        match key {
            "boot_id" => self.boot_id = text(value),
            "uptime_s" => self.uptime_s = value.parse().ok().filter(|s: &f64| s.is_finite() && *s >= 0.0),
            "kernel" => self.kernel_release = text(value),
            "architecture" => self.architecture = text(value),
            "hostname" => self.hostname = text(value),
            "cmdline" => self.cmdline = text(value),
            "os_release" => self.take_os(value),
            "cpus" => self.cpus = value.parse().ok().filter(|n| *n > 0),
            "memory_kib" => self.memory_bytes = value.parse().ok().and_then(|kib: u64| kib.checked_mul(1024)),
            "memory_module" => {
                let kib = value.parse().ok().filter(|kib: &u64| *kib > 0);
                push(&mut self.memory_modules, kib.and_then(|kib| kib.checked_mul(1024)));
            }
            "image" => self.take_image(value),
            "drive" => push(&mut self.drives, drive(value)),
            "nic" => push(&mut self.nics, nic(value)),
            "pci" => push(&mut self.pci_devices, pci(value)),
            "root_drive" => self.root_drive = text(value),
            "disk_read" => self.disk_read = disk_read(value),
            "disk_read_error" => self.disk_read_error = text(value),
            "systemd" => self.systemd_state = text(value),
            "failed_unit" => push(&mut self.failed_units, Some(text(value))),
            _ => {}
        }
    }

    fn take_os(&mut self, line: &str) {
        let Some((key, value)) = line.split_once('=') else {
            return;
        };
        let value = text(unquote(value));
        match key {
            "ID" => self.os.id = value,
            "VERSION_ID" => self.os.version_id = value,
            "PRETTY_NAME" => self.os.pretty_name = value,
            _ => {}
        }
    }

    fn take_image(&mut self, line: &str) {
        match line.split_once('=') {
            Some(("digest", digest)) => self.image.digest = text(digest),
            Some(("generation", generation)) => self.image.generation = generation.trim().parse().ok(),
            _ => {}
        }
    }
}

impl ClockReading {
    /// Parses `clock=SECONDS.NANOSECONDS`; without exactly nine digits after the point the reading has whole seconds.
    pub fn parse(output: &str) -> Option<Self> {
        let value = output.lines().find_map(|line| line.trim().strip_prefix("clock="))?;
        let (seconds, fraction) = value.split_once('.').unwrap_or((value, ""));
        let seconds: u64 = seconds.parse().ok()?;
        let nanos = Some(fraction).filter(|f| f.len() == 9 && f.bytes().all(|b| b.is_ascii_digit()));
        let nanos: Option<u32> = nanos.and_then(|f| f.parse().ok());
        let resolution = if nanos.is_some() {
            Duration::from_nanos(1)
        } else {
            Duration::from_secs(1)
        };
        let time = UNIX_EPOCH.checked_add(Duration::new(seconds, nanos.unwrap_or(0)))?;
        Some(Self { time, resolution })
    }
}

fn drive(value: &str) -> Option<DriveReading> {
    let mut fields = value.split('\t');
    let name = text(fields.next()?);
    let sectors: u64 = fields.next()?.parse().ok()?;
    let removable = fields.next()? == "1";
    let serial = text(fields.next().unwrap_or(""));
    // A card reader without a medium has size 0.
    let size_bytes = sectors.checked_mul(SECTOR_BYTES).filter(|bytes| *bytes > 0)?;
    Some(DriveReading {
        name,
        size_bytes,
        removable,
        serial,
    })
}

fn nic(value: &str) -> Option<NicReading> {
    let mut fields = value.split('\t');
    let name = text(fields.next()?);
    let kind = fields.next()?.parse().ok()?;
    let mac = text(fields.next()?).to_ascii_lowercase();
    Some(NicReading { name, kind, mac })
}

fn pci(value: &str) -> Option<PciReading> {
    let mut fields = value.split('\t');
    let address = text(fields.next()?);
    let hex = |field: &str| u32::from_str_radix(field.strip_prefix("0x").unwrap_or(field), 16).ok();
    let vendor_id = hex(fields.next()?)?;
    let device_id = hex(fields.next()?)?;
    let virtual_function = fields.next()? == "1";
    Some(PciReading {
        address,
        vendor_id,
        device_id,
        virtual_function,
    })
}

fn disk_read(value: &str) -> Option<DiskRead> {
    let mut fields = value.split('\t');
    let name = text(fields.next()?);
    let mib: u64 = fields.next()?.parse().ok()?;
    let hundredths: u64 = fields.next()?.parse().ok()?;
    let method = text(fields.next().unwrap_or(""));
    let bytes = mib.checked_mul(1 << 20).filter(|bytes| *bytes > 0)?;
    Some(DiskRead {
        name,
        bytes,
        duration: Duration::from_millis(hundredths.checked_mul(10)?),
        method,
    })
}

fn push<T>(list: &mut Vec<T>, item: Option<T>) {
    if list.len() < LIST_MAX {
        list.extend(item);
    }
}

/// Trims and bounds a text, and removes control characters: it is shown in reports and on terminals.
fn text(value: &str) -> String {
    value
        .trim()
        .chars()
        .filter(|c| !c.is_control())
        .take(TEXT_MAX)
        .collect()
}

/// Removes quotes: `os-release` values may be quoted as in a shell.
fn unquote(value: &str) -> &str {
    let value = value.trim();
    let inner = |quote| value.strip_prefix(quote).and_then(|v| v.strip_suffix(quote));
    inner('"').or_else(|| inner('\'')).unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE: &str = "Welcome!\nbegin=rackwright-probe-1\nsystemd=degraded\nfailed_unit=foo.service\n\
        boot_id=1b4e28ba-2fa1-11d2-883f-0016d3cca427\nuptime_s=12.34\nkernel=6.1.0-18-cloud-amd64\narchitecture=x86_64\n\
        hostname=gpu-001\ncmdline=root=/dev/vda1 console=ttyS0\nos_release=ID=debian\nos_release=VERSION_ID=\"12\"\n\
        os_release=PRETTY_NAME='Debian 12'\ncpus=2\nmemory_kib=500000\nmemory_module=524288\nmemory_module=0\nimage=digest=b3-00\nimage=generation=7\n\
        drive=vda\t204800\t0\tserial one \ndrive=sdb\t0\t1\t\nnic=eth0\t1\t52:54:00:AA:BB:CC\n\
        pci=0000:00:03.0\t0x1af4\t0x1000\t0\nroot_drive=vda\ndisk_read=vda\t64\t32\tdirect\nunknown=1\njunk\n\
        end=rackwright-probe-1\nafter=1\n";

    #[test]
    fn a_full_output() {
        let r = Readings::parse(SAMPLE).unwrap();
        assert_eq!(
            (r.systemd_state.as_str(), r.failed_units.as_slice()),
            ("degraded", &["foo.service".to_owned()][..])
        );
        assert_eq!(r.uptime_s, Some(12.34));
        assert_eq!(
            (r.os.id.as_str(), r.os.version_id.as_str(), r.os.pretty_name.as_str()),
            ("debian", "12", "Debian 12")
        );
        assert_eq!((r.cpus, r.memory_bytes), (Some(2), Some(512_000_000)));
        assert_eq!(r.memory_modules, [512 << 20], "an empty slot is none");
        assert_eq!((r.image.digest.as_str(), r.image.generation), ("b3-00", Some(7)));
        assert_eq!(r.cmdline, "root=/dev/vda1 console=ttyS0");
        assert_eq!(r.drives.len(), 1, "a reader without a medium is no drive");
        assert_eq!(
            (r.drives[0].size_bytes, r.drives[0].serial.as_str()),
            (104_857_600, "serial one")
        );
        assert_eq!(r.nics[0].mac, "52:54:00:aa:bb:cc");
        assert_eq!(
            (r.pci_devices[0].vendor_id, r.pci_devices[0].device_id),
            (0x1af4, 0x1000)
        );
        let read = r.disk_read.unwrap();
        assert_eq!((read.bytes, read.duration), (64 << 20, Duration::from_millis(320)));
        assert!((read.mb_per_s() - 209.7).abs() < 0.1);
    }

    #[test]
    fn cut_off_output_is_refused() {
        let end = SAMPLE.find(END).unwrap();
        for cut in (0..end).filter(|cut| SAMPLE.is_char_boundary(*cut)) {
            assert!(Readings::parse(&SAMPLE[..cut]).is_err(), "{cut} bytes");
        }
        let refused = Readings::parse("Please login as the user \"debian\" rather than the user \"root\".");
        assert!(matches!(refused, Err(ReadingsError::NoBegin(text)) if text.contains("Please login")));
    }

    #[test]
    fn hostile_values_are_bounded_and_cleaned() {
        let long = "x".repeat(100_000);
        let many: String = (0..10_000).map(|n| format!("nic=e{n}\t1\t02:00\n")).collect();
        let output = format!(
            "{BEGIN}\nhostname={long}\nkernel=a\u{1b}[2Jb\ncpus=-1\nmemory_kib=99999999999999999999\n{many}{END}\n"
        );
        let r = Readings::parse(&output).unwrap();
        assert_eq!(r.hostname.len(), TEXT_MAX);
        assert_eq!(r.kernel_release, "a[2Jb");
        assert_eq!((r.cpus, r.memory_bytes), (None, None));
        assert_eq!(r.nics.len(), LIST_MAX);
        let endless = format!("{BEGIN}\n{}", "x=1\n".repeat(9 * LIST_MAX));
        assert!(matches!(Readings::parse(&endless), Err(ReadingsError::NoEnd(_))));
    }

    #[test]
    fn clocks_with_and_without_fractions() {
        let fine = ClockReading::parse("clock=1790000000.250000000\n").unwrap();
        assert_eq!(fine.time, UNIX_EPOCH + Duration::from_millis(1_790_000_000_250));
        for coarse in ["clock=1790000000.%N", "clock=1790000000.N", "clock=1790000000"] {
            let coarse = ClockReading::parse(coarse).unwrap();
            assert_eq!(coarse.resolution, Duration::from_secs(1));
            assert_eq!(coarse.time, UNIX_EPOCH + Duration::from_secs(1_790_000_000));
        }
        assert_eq!(ClockReading::parse("date: invalid\n"), None);
        assert_eq!(ClockReading::parse("clock=-5"), None);
    }
}
