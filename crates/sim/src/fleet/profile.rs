//! The timing and hardware of machines. Figures with their sources; `docs/sim.md` repeats them.

use rackwright_sim_bmc::ResetType;
use std::time::Duration;

/// A kind of machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Profile {
    /// Everything takes no time: for tests of what happens, not of when
    Instant,
    /// An emulated machine of the lab: about 14 s from power-on to a running ramdisk
    Vm,
    /// NVIDIA DGX H100: minutes of POST, BMC answers that take seconds, four kinds of reset
    #[value(name = "dgx-h100")]
    DgxH100,
}

/// A phase with a duration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    PowerOn,
    PowerOff,
    Shutdown,
    Post,
    Boot,
    /// A drive's own erase command.
    Erase,
}

/// A range of milliseconds, uniformly distributed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Span {
    least_ms: u64,
    most_ms: u64,
}

const fn span(least_ms: u64, most_ms: u64) -> Span {
    Span { least_ms, most_ms }
}

const AT_ONCE: Span = span(0, 0);

impl Span {
    /// `chance` is a number from 0 to 1.
    fn at(self, chance: f64) -> u64 {
        let width = self.most_ms.saturating_sub(self.least_ms) as f64;
        self.least_ms + (width * chance.clamp(0.0, 1.0)) as u64
    }
}

/// The durations of a profile.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Timing {
    power_on: Span,
    power_off: Span,
    shutdown: Span,
    post: Span,
    boot: Span,
    erase: Span,
    answer: Span,
    /// Rate from the image store to the drive, in bytes a second; 0: it takes no time.
    image_bytes_per_s: u64,
    probe: Span,
    /// Resets are answered with 202 and a task instead of 204.
    pub(super) resets_are_tasks: bool,
    pub(super) sessions: usize,
    pub(super) session_timeout: Duration,
}

impl Timing {
    /// The duration of a phase; `chance` is a number from 0 to 1.
    pub(super) fn length_ms(&self, phase: Phase, chance: f64) -> u64 {
        let span = match phase {
            Phase::PowerOn => self.power_on,
            Phase::PowerOff => self.power_off,
            Phase::Shutdown => self.shutdown,
            Phase::Post => self.post,
            Phase::Boot => self.boot,
            Phase::Erase => self.erase,
        };
        span.at(chance)
    }

    /// Duration of the transfer of an image of this size from the store to the drive.
    pub(super) fn writing(&self, bytes: u64) -> Duration {
        match self.image_bytes_per_s {
            0 => Duration::ZERO,
            rate => Duration::from_secs_f64(bytes as f64 / rate as f64),
        }
    }

    /// Duration of an installed system's probe for validation.
    pub(super) fn probe(&self, chance: f64) -> Duration {
        Duration::from_millis(self.probe.at(chance))
    }

    /// Duration of a BMC's answer.
    pub(super) fn answer(&self, chance: f64) -> Duration {
        Duration::from_millis(self.answer.at(chance))
    }
}

const INSTANT: Timing = Timing {
    power_on: AT_ONCE,
    power_off: AT_ONCE,
    shutdown: AT_ONCE,
    post: AT_ONCE,
    boot: AT_ONCE,
    erase: AT_ONCE,
    answer: AT_ONCE,
    image_bytes_per_s: 0,
    probe: AT_ONCE,
    resets_are_tasks: false,
    sessions: 8,
    session_timeout: Duration::from_secs(300),
};

/// Measured on the lab's machines (emulated, OVMF, virtio, quiet): power-on 0.1 s, ForceOff 0.1 to 2 s, firmware to the
/// end of its network boot 8.6 to 12 s, from there to userspace 3.4 s; a small Debian shuts down in 2 to 4 s.
const VM: Timing = Timing {
    power_on: span(100, 300),
    power_off: span(100, 2000),
    shutdown: span(2000, 4000),
    post: span(8600, 12_000),
    boot: span(3000, 4000),
    erase: span(1000, 2000),
    image_bytes_per_s: 200_000_000,
    answer: span(1, 15),
    probe: span(1500, 2500),
    resets_are_tasks: false,
    sessions: 8,
    session_timeout: Duration::from_secs(300),
};

/// A reset of such a server takes 90 to 200 s and a request can take seconds (NVIDIA's infra-controller issues); its
/// sessions end after 30 s without use (recorded service). No times are published for its power supplies, its shutdown
/// and the boot of its operating system: those three are our estimates.
const DGX_H100: Timing = Timing {
    power_on: span(5000, 15_000),
    power_off: span(5000, 12_000),
    shutdown: span(30_000, 90_000),
    post: span(90_000, 200_000),
    boot: span(40_000, 70_000),
    erase: span(5000, 30_000),
    image_bytes_per_s: 2_000_000_000,
    answer: span(50, 2000),
    probe: span(600, 1500),
    resets_are_tasks: true,
    sessions: 8,
    session_timeout: Duration::from_secs(30),
};

/// The hardware of a machine.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Sku {
    pub(super) manufacturer: &'static str,
    pub(super) model: &'static str,
    pub(super) bmc_model: &'static str,
    pub(super) reset_types: &'static [ResetType],
    pub(super) cpus: Parts,
    pub(super) cores: u32,
    pub(super) gpus: Parts,
    pub(super) modules: Parts,
    pub(super) module_mib: u64,
    pub(super) nics: usize,
    pub(super) drives: &'static [(Parts, u64)],
    /// Sequential direct reads of the root drive at queue depth 1, in decimal megabytes a second.
    pub(super) read_mb_per_s: f64,
    /// TCP rate between the addresses of two machines, in Gbit/s.
    pub(super) network_gbit_per_s: f64,
    /// Adapters of the fabric, by their names in the system.
    pub(super) hcas: &'static [&'static str],
    /// TCP rate between two of these adapters, in Gbit/s.
    pub(super) hca_gbit_per_s: f64,
}

/// A number of equal parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Parts {
    pub(super) count: usize,
    pub(super) manufacturer: &'static str,
    pub(super) model: &'static str,
}

const fn parts(count: usize, manufacturer: &'static str, model: &'static str) -> Parts {
    Parts {
        count,
        manufacturer,
        model,
    }
}

const SMALL: Sku = Sku {
    manufacturer: "Rackwright",
    model: "Simulated Node",
    bmc_model: "Simulated BMC",
    reset_types: &ResetType::ALL,
    cpus: parts(1, "Rackwright", "Simulated CPU"),
    cores: 4,
    gpus: parts(0, "", ""),
    modules: parts(1, "Rackwright", "Simulated DIMM"),
    module_mib: 4096,
    nics: 1,
    drives: &[(parts(1, "Rackwright", "Simulated NVMe"), 100_000_000_000)],
    read_mb_per_s: 300.0,
    network_gbit_per_s: 9.4,
    hcas: &[],
    hca_gbit_per_s: 0.0,
};

/// NVIDIA DGX H100 user guide, hardware overview: 2 × Xeon Platinum 8480C, 8 × H100 80 GB, 2 TB of memory, 2 × 1.92 TB NVMe
/// for the system and 8 × 3.84 TB for data; its eight ConnectX-7 of 400 Gbit/s are those of its compute fabric. The TCP
/// rate over one of them is our estimate: no vendor publishes it. The reset types are those of a recorded service: no
/// PowerCycle.
const DGX: Sku = Sku {
    manufacturer: "NVIDIA",
    model: "DGXH100",
    bmc_model: "Simulated DGX BMC",
    reset_types: &[
        ResetType::On,
        ResetType::ForceOff,
        ResetType::GracefulShutdown,
        ResetType::ForceRestart,
    ],
    cpus: parts(2, "Intel(R) Corporation", "Intel(R) Xeon(R) Platinum 8480C"),
    cores: 56,
    gpus: parts(8, "NVIDIA", "NVIDIA H100 80GB HBM3"),
    modules: parts(32, "Samsung", "M321R8GA0BB0-CQKZJ"),
    module_mib: 65_536,
    nics: 3,
    drives: &[
        (parts(2, "Samsung", "SAMSUNG MZ1L21T9HCLS-00A07"), 1_920_383_410_176),
        (parts(8, "Samsung", "SAMSUNG MZWLO3T8HCLS-00A07"), 3_840_755_982_336),
    ],
    read_mb_per_s: 2500.0,
    network_gbit_per_s: 94.0,
    hcas: &[
        "mlx5_0", "mlx5_3", "mlx5_4", "mlx5_5", "mlx5_6", "mlx5_9", "mlx5_10", "mlx5_11",
    ],
    hca_gbit_per_s: 120.0,
};

impl Profile {
    /// The profile's name on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Instant => "instant",
            Self::Vm => "vm",
            Self::DgxH100 => "dgx-h100",
        }
    }

    pub(super) fn timing(self) -> &'static Timing {
        match self {
            Self::Instant => &INSTANT,
            Self::Vm => &VM,
            Self::DgxH100 => &DGX_H100,
        }
    }

    pub(super) fn sku(self) -> &'static Sku {
        match self {
            Self::Instant | Self::Vm => &SMALL,
            Self::DgxH100 => &DGX,
        }
    }
}
