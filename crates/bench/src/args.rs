//! The arguments of the benchmarks.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use rackwright_cli_context::units;

/// `rackwright-bench fleet`
#[derive(Debug, Clone, Args)]
pub struct FleetArgs {
    /// Number of machines
    #[arg(long, default_value_t = 1000, value_name = "N")]
    pub nodes: usize,
    /// Timing profile of the simulated machines: docs/sim.md
    #[arg(long, value_enum, default_value = "instant")]
    pub profile: ProfileArg,
    /// Database of the control plane
    #[arg(long, value_enum, default_value = "sqlite")]
    pub store: StoreArg,
    /// An empty PostgreSQL database for `--store postgres`: postgres://USER@HOST/NAME
    #[arg(long, value_name = "URL", required_if_eq("store", "postgres"))]
    pub database: Option<String>,
    /// Phases, in this order; each needs the phases before it, except `list`, `idle`, `restart` and `life`
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "enrol,inspect,deploy,release"
    )]
    pub phases: Vec<PhaseArg>,
    /// Duration of the phase `idle`
    #[arg(long, value_name = "TIME", value_parser = units::parse_duration, default_value = "60s")]
    pub idle: Duration,
    /// Interval between two readings of the power state of an idle node
    #[arg(long, value_name = "TIME", value_parser = units::parse_duration, default_value = "300s")]
    pub interval: Duration,
    /// Number of BMC event streams that the control plane keeps open
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub streams: usize,
    /// Number of parallel calls
    #[arg(long, default_value_t = 64, value_name = "N")]
    pub parallel: usize,
    /// First run only the first N machines, then all machines with these N last; a line compares their times in both runs
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub alone: usize,
    /// Seconds of simulated time per second
    #[arg(long, default_value_t = 1.0, value_name = "FACTOR")]
    pub speed: f64,
    /// Proof of a machine's identity. `both` runs everything four times (none, tpm, tpm, none), and a last line shows the
    /// cost of the proof
    #[arg(long, value_enum, default_value = "tpm")]
    pub identity: IdentityArg,
    /// File with simulated faults, in YAML: docs/sim.md
    #[arg(long, value_name = "FILE")]
    pub faults: Option<PathBuf>,
    /// Fail if no machine changes its state for this time
    #[arg(long, value_name = "TIME", value_parser = units::parse_duration, default_value = "10m")]
    pub patience: Duration,
    /// Keep data and logs in this directory, which must not exist yet
    #[arg(long, value_name = "DIR")]
    pub keep: Option<PathBuf>,
    /// Directory with rackwrightd and rackwright-sim (default: the directory of this program)
    #[arg(long, value_name = "DIR")]
    pub programs: Option<PathBuf>,
    /// Whether the control plane serves the web console.
    #[arg(skip)]
    pub has_console: bool,
}

impl FleetArgs {
    /// This number of machines, and the defaults.
    pub fn of_nodes(nodes: usize, programs: Option<PathBuf>) -> Self {
        Self {
            nodes,
            profile: ProfileArg::Instant,
            store: StoreArg::Sqlite,
            database: None,
            phases: vec![PhaseArg::Enrol, PhaseArg::Inspect],
            idle: Duration::from_secs(60),
            interval: Duration::from_secs(300),
            streams: 0,
            parallel: 64,
            alone: 0,
            speed: 1.0,
            identity: IdentityArg::Tpm,
            faults: None,
            patience: Duration::from_secs(600),
            keep: None,
            programs,
            has_console: false,
        }
    }
}

/// `rackwright-bench api`
#[derive(Debug, Clone, Args)]
pub struct ApiArgs {
    /// Number of machines
    #[arg(long, default_value_t = 100, value_name = "N")]
    pub nodes: usize,
    /// Number of calls of each method in each form and round
    #[arg(long, default_value_t = 5000, value_name = "N")]
    pub calls: usize,
    /// Directory with rackwrightd and rackwright-sim (default: the directory of this program)
    #[arg(long, value_name = "DIR")]
    pub programs: Option<PathBuf>,
}

/// `rackwright-bench console`
#[derive(Debug, Clone, Args)]
pub struct ConsoleArgs {
    /// Nodes of the first part: first rows, scrolling, changes
    #[arg(long, default_value_t = 10_000, value_name = "N")]
    pub nodes: usize,
    /// Nodes of the second part: filters, heat map
    #[arg(long, default_value_t = 100_000, value_name = "N")]
    pub many_nodes: usize,
    /// Open consoles of the third part
    #[arg(long, default_value_t = 500, value_name = "N")]
    pub consoles: usize,
    /// Nodes of the third part
    #[arg(long, default_value_t = 100, value_name = "N")]
    pub idle_nodes: usize,
    /// Time for which the third part measures the control plane, each time
    #[arg(long, value_name = "TIME", value_parser = units::parse_duration, default_value = "60s")]
    pub window: Duration,
    /// Number of measurements of a figure; the median counts
    #[arg(long, default_value_t = 9, value_name = "N")]
    pub rounds: usize,
    /// Directory with rackwrightd and rackwright-sim (default: the directory of this program)
    #[arg(long, value_name = "DIR")]
    pub programs: Option<PathBuf>,
}

/// A timing profile of the simulator.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum ProfileArg {
    Instant,
    Vm,
    DgxH100,
}

impl ProfileArg {
    pub fn name(self) -> &'static str {
        match self {
            Self::Instant => "instant",
            Self::Vm => "vm",
            Self::DgxH100 => "dgx-h100",
        }
    }
}

/// A database.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum StoreArg {
    Sqlite,
    Postgres,
}

impl StoreArg {
    pub fn name(self) -> &'static str {
        match self {
            Self::Sqlite => "sqlite",
            Self::Postgres => "postgres",
        }
    }
}

/// A way in which machines prove that they are the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum IdentityArg {
    /// No machine has a TPM, and no proof is required: the identity is by address only
    None,
    /// Every machine has a TPM, and an agent's session without its proof is refused
    Tpm,
    /// Both, one after the other, for comparison
    Both,
}

impl IdentityArg {
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Tpm => "tpm",
            Self::Both => "both",
        }
    }
}

/// A part of the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum PhaseArg {
    /// All machines are enrolled
    Enrol,
    /// The machines boot the agent, and the agent reports the inventory
    Inspect,
    /// Nodes are listed and filtered
    List,
    /// No operation is requested
    Idle,
    /// An image is written, the machines start it and are validated
    Deploy,
    /// Drives are erased
    Release,
    /// The control plane is killed and started again
    Restart,
    /// Instead of enrol, inspect, deploy and release: each machine starts its next phase as soon as possible, independent of
    /// the others
    Life,
}

pub fn name(phase: PhaseArg) -> &'static str {
    match phase {
        PhaseArg::Enrol => "enrol",
        PhaseArg::Inspect => "inspect",
        PhaseArg::List => "list",
        PhaseArg::Idle => "idle",
        PhaseArg::Deploy => "deploy",
        PhaseArg::Release => "release",
        PhaseArg::Restart => "restart",
        PhaseArg::Life => "life",
    }
}
