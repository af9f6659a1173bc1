//! Measures how fast a site file is checked, how fast the first cluster is planned in its site, how fast the dump of a large
//! fabric is imported, how fast placement decides in a full hall, and how full a hall gets over a month. Prints JSON lines.
//!
//! Usage: `rackwright-bench-placement [validation|plan|import|single|latency|trace]... [--nodes N] [--pods N]
//! [--requests N] [--days N] [--seed N]`. Without a name, all run. The first four also run the commands of the program
//! `rackwright` in the same folder. Only this program of the crate reads the clock. All randomness comes from the seed.

mod command;
mod hall;
mod import;
mod latency;
mod placers;
mod plan;
mod trace;
mod validation;

use std::process::ExitCode;

/// The options on the command line.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Nodes of the site file that is checked, and in which a cluster is planned, and of the imported fabric. Default:
    /// 100,000.
    pub nodes: Option<u32>,
    /// Pods of 1,024 nodes. Defaults: 98 for latency and 4 for the trace.
    pub pods: Option<u32>,
    /// Number of timed requests.
    pub requests: u32,
    /// Number of counted days. Three warm-up days precede them.
    pub days: u32,
    /// The seed of the random numbers.
    pub seed: u64,
}

type Bench = fn(Options) -> bool;

/// In the order of their runs. The first one measures the memory of this process, which never shrinks in that figure.
const BENCHES: [(&str, Bench); 6] = [
    ("validation", validation::run),
    ("plan", plan::run),
    ("import", import::run),
    ("single", import::run_single),
    ("latency", latency::run),
    ("trace", trace::run),
];

fn main() -> ExitCode {
    let mut options = Options {
        nodes: None,
        pods: None,
        requests: 6000,
        days: 30,
        seed: 1,
    };
    let mut names = Vec::new();
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        if BENCHES.iter().any(|(name, _)| *name == arg) {
            names.push(arg);
            continue;
        }
        let value = args.next().and_then(|v| v.parse::<u32>().ok());
        match (arg.as_str(), value) {
            ("--nodes", Some(n)) if n > 0 => options.nodes = Some(n),
            ("--pods", Some(n)) if n > 0 => options.pods = Some(n),
            ("--requests", Some(n)) => options.requests = n,
            ("--days", Some(n)) => options.days = n,
            ("--seed", Some(n)) => options.seed = u64::from(n),
            _ => {
                eprintln!("rackwright-bench-placement: {arg}: unknown argument, or its number is missing");
                return ExitCode::from(2);
            }
        }
    }
    let mut code = ExitCode::SUCCESS;
    for (name, bench) in BENCHES {
        let is_wanted = names.is_empty() || names.iter().any(|wanted| wanted == name);
        if is_wanted && !bench(options) {
            code = ExitCode::FAILURE;
        }
    }
    code
}

/// The result of a benchmark. An error is printed and counts as a failure.
fn told(result: Result<bool, String>) -> bool {
    result.unwrap_or_else(|error| {
        eprintln!("rackwright-bench-placement: {error}");
        false
    })
}

/// The most memory that a process has had, in MiB, from its file in `/proc`. `None`: the system does not say.
fn peak_mib(status: &str) -> Option<u64> {
    let status = std::fs::read_to_string(status).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib >> 10)
}
