//! How quickly placement answers in a full hall, and how full a hall gets over a month. Prints lines of JSON.
//!
//! Usage: `rackwright-bench-placement [latency|trace] [--pods N] [--requests N] [--days N] [--seed N]`; both without a name.
//! The clock is read here and nowhere else in this crate; all that is random comes from the seed.

mod hall;
mod latency;
mod rivals;
mod trace;

use std::process::ExitCode;

/// What the command line says.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Pods of 1,024 nodes; 98 for latency and 4 for the trace if not said.
    pub pods: Option<u32>,
    /// Timed requests.
    pub requests: u32,
    /// Days that count; three come before them.
    pub days: u32,
    /// Where all numbers start.
    pub seed: u64,
}

fn main() -> ExitCode {
    let mut options = Options {
        pods: None,
        requests: 6000,
        days: 30,
        seed: 1,
    };
    let mut which = None;
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        if let "latency" | "trace" = arg.as_str() {
            which = Some(arg);
            continue;
        }
        let value = args.next().and_then(|v| v.parse::<u32>().ok());
        match (arg.as_str(), value) {
            ("--pods", Some(n)) if n > 0 => options.pods = Some(n),
            ("--requests", Some(n)) => options.requests = n,
            ("--days", Some(n)) => options.days = n,
            ("--seed", Some(n)) => options.seed = u64::from(n),
            _ => {
                eprintln!("rackwright-bench-placement: {arg}: not known, or without a number");
                return ExitCode::from(2);
            }
        }
    }
    let wanted = |name: &str| which.as_deref().is_none_or(|w| w == name);
    let done = [
        !wanted("latency") || latency::run(options),
        !wanted("trace") || trace::run(options),
    ];
    if done == [true, true] {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
