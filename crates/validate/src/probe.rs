//! Reads a machine: one script for everything (`probe.sh`), and one short command for its clock.

use std::time::{Duration, SystemTime};

use crate::profile::Profile;
use crate::readings::{ClockReading, Readings, ReadingsError};
use crate::ssh::{RunLimits, Session, SshError};

const SCRIPT: &str = include_str!("probe.sh");
const OUTPUT_MAX_BYTES: usize = 1024 * 1024;
/// Added to the waits of the options: the time of the reading itself, on a slow emulated machine under load.
const SLACK: Duration = Duration::from_secs(120);
/// The clock is read again, up to `CLOCK_TRIES` times, while the uncertainty is larger than this.
const CLOCK_SPAN_WANTED: Duration = Duration::from_millis(500);
const CLOCK_TRIES: u32 = 3;

/// Limits and amounts for the script.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProbeOptions {
    /// Longest wait for systemd to finish booting, in seconds.
    pub systemd_wait_s: u32,
    /// First sample of the root drive, in MiB; 0: no reading.
    pub disk_read_sample_mib: u32,
}

impl From<&Profile> for ProbeOptions {
    fn from(profile: &Profile) -> Self {
        Self {
            systemd_wait_s: profile.systemd_wait_s,
            disk_read_sample_mib: profile.disk_read_sample_mib,
        }
    }
}

/// The control plane's clock around a reading of the machine's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockSpan {
    /// Before the request was sent.
    pub sent: SystemTime,
    /// After the answer arrived.
    pub received: SystemTime,
}

/// The result of a reading.
#[derive(Debug, Clone)]
pub struct Probe {
    /// The machine's own report.
    pub readings: Readings,
    /// When the machine's clock was read.
    pub clock: ClockSpan,
}

/// Why a machine could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// The connection or the command failed.
    #[error(transparent)]
    Ssh(#[from] SshError),
    /// The script ran and its output is unusable. A retry seldom helps.
    #[error("the probe on {at} failed (exit status {status}; {stderr})")]
    Readings {
        /// Address and port.
        at: std::net::SocketAddr,
        /// The script's exit status.
        status: u32,
        /// The end of its standard error.
        stderr: String,
        /// The fault of the output.
        #[source]
        source: ReadingsError,
    },
}

/// Reads the machine of an open session.
pub async fn probe(session: &Session, options: ProbeOptions) -> Result<Probe, ProbeError> {
    let script = format!(
        "wait_s={}\nsample_mib={}\n{SCRIPT}",
        options.systemd_wait_s, options.disk_read_sample_mib
    );
    let timeout = Duration::from_secs(options.systemd_wait_s.into()) + SLACK;
    let output = session
        .run(
            &script,
            RunLimits {
                timeout,
                output_max_bytes: OUTPUT_MAX_BYTES,
            },
        )
        .await?;
    let readings = Readings::parse(&String::from_utf8_lossy(&output.stdout));
    let mut readings = readings.map_err(|source| ProbeError::Readings {
        at: session.at(),
        status: output.status,
        stderr: output.stderr_tail(),
        source,
    })?;
    let (clock, reading) = read_clock(session).await?;
    readings.clock = reading;
    Ok(Probe { readings, clock })
}

/// The clock of this computer, the reference for the machine's clock.
#[expect(clippy::disallowed_methods, reason = "both ends of the comparison are real clocks")]
fn local_time() -> SystemTime {
    SystemTime::now()
}

/// The reading with the shortest round trip.
async fn read_clock(session: &Session) -> Result<(ClockSpan, Option<ClockReading>), SshError> {
    let limits = RunLimits {
        timeout: Duration::from_secs(30),
        output_max_bytes: 4096,
    };
    let mut best: Option<(Duration, ClockSpan, Option<ClockReading>)> = None;
    for _ in 0..CLOCK_TRIES {
        let sent = local_time();
        let began = tokio::time::Instant::now();
        let output = session.run("date +clock=%s.%N </dev/null\n", limits).await?;
        let took = began.elapsed();
        let reading = ClockReading::parse(&String::from_utf8_lossy(&output.stdout));
        // The monotonic clock measures the round trip: a step of the wall clock must not make it look short.
        let span = ClockSpan {
            sent,
            received: sent + took,
        };
        if best.as_ref().is_none_or(|(shortest, ..)| took < *shortest) {
            best = Some((took, span, reading));
        }
        if took <= CLOCK_SPAN_WANTED {
            break;
        }
    }
    let now = local_time();
    Ok(best.map_or(
        (
            ClockSpan {
                sent: now,
                received: now,
            },
            None,
        ),
        |(_, span, reading)| (span, reading),
    ))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::SCRIPT;

    /// An SMBIOS structure of type 17 with its size and extended size, and its strings.
    fn module(size: u16, extended: u32, strings: &[u8]) -> Vec<u8> {
        let mut data = vec![0; 0x5c];
        (data[0], data[1]) = (17, 0x5c);
        data[0x0c..0x0e].copy_from_slice(&size.to_le_bytes());
        data[0x1c..0x20].copy_from_slice(&extended.to_le_bytes());
        [&data, strings, &[0]].concat()
    }

    #[test]
    fn modules_are_read_from_the_table() {
        let table = [
            vec![0, 4, 1, 1, b'v', 0, 0],
            module(512, 0, b"DIMM\0A\0"),
            module(0x7fff, 1 << 20, b"DIMM\0"),
            module(0, 0, b"empty\0"),
            module(0xffff, 0, b"unknown\0"),
            module(0x8000 | 640, 0, b"\0"),
            vec![127, 4, 2, 2, 0, 0],
            module(1, 0, b"after the end\0"),
        ]
        .concat();
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("DMI");
        for (bytes, output_text) in [
            (
                &table[..],
                "memory_module=524288\nmemory_module=1073741824\nmemory_module=640\n",
            ),
            (&table[..20], ""),
            (&[], ""),
        ] {
            std::fs::write(&file, bytes).unwrap();
            let script = SCRIPT
                .replace("/sys/firmware/dmi/tables/DMI", file.to_str().unwrap())
                .replace("main </dev/null", "memory_modules");
            let output = Command::new("sh").args(["-c", &script]).output().unwrap();
            assert_eq!(
                String::from_utf8(output.stdout).unwrap(),
                output_text,
                "{} bytes",
                bytes.len()
            );
        }
    }
}
