//! Measures how fast a site file is checked, how fast the first cluster is planned in its site, how fast placement
//! decides in a full hall, and how full a hall gets over a month. Prints JSON lines.
//!
//! Usage: `rackwright-bench-placement [validation|plan|latency|trace] [--nodes N] [--pods N] [--requests N] [--days N]
//! [--seed N]`. Without a name, all four run. Only this program of the crate reads the clock. All randomness comes from
//! the seed.

mod hall;
mod latency;
mod placers;
mod plan;
mod trace;
mod validation;

use std::process::ExitCode;

/// The options on the command line.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Nodes of the site file that is checked, and in which a cluster is planned. Default: 100,000.
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

fn main() -> ExitCode {
    let mut options = Options {
        nodes: None,
        pods: None,
        requests: 6000,
        days: 30,
        seed: 1,
    };
    let mut which = None;
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        if let "validation" | "plan" | "latency" | "trace" = arg.as_str() {
            which = Some(arg);
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
    let wanted = |name: &str| which.as_deref().is_none_or(|w| w == name);
    let done = [
        !wanted("validation") || validation::run(options),
        !wanted("plan") || plan::run(options),
        !wanted("latency") || latency::run(options),
        !wanted("trace") || trace::run(options),
    ];
    if done == [true; 4] {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
