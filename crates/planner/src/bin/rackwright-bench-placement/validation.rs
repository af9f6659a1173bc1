//! Measures the check of a generated site file: time, and the most memory that this process has had during the first check.
//!
//! The check is the same each time, so the shortest time counts: the rest of a longer time went to other programs of the
//! machine. The time of the first check is printed, too.

use std::time::Instant;

use rackwright_site::file::Source;
use rackwright_site::generate::{ReferenceSku, Request, site_file};

use crate::Options;

/// The aim for 100,000 nodes: seconds, and MiB of memory.
const AIM: (f64, u64) = (2.0, 500);

/// Number of checks.
const TRIES: usize = 3;

/// Checks a site file and prints the results. Runs first: the memory of a process never shrinks in this figure. False:
/// the site has faults, or an aim is missed.
pub fn run(options: Options) -> bool {
    let nodes = options.nodes.unwrap_or(100_000);
    let text = match site_file(&Request::new(ReferenceSku::DgxH100, nodes as usize)) {
        Ok(text) => text,
        Err(error) => {
            eprintln!("rackwright-bench-placement: {error}");
            return false;
        }
    };
    let name = "site.yaml";
    let check = || {
        let started = Instant::now();
        let checked = rackwright_planner::check(&[Source { name, text: &text }]);
        (checked, started.elapsed().as_secs_f64())
    };
    let (checked, first) = check();
    let peak = peak_mib();
    let seconds = (1..TRIES).map(|_| check().1).fold(first, f64::min);
    let (switches, cables) = checked
        .site
        .as_ref()
        .map_or((0, 0), |site| (site.switches.len(), site.cables.len()));
    println!(
        "{{\"bench\":\"validation\",\"nodes\":{nodes},\"switches\":{switches},\"cables\":{cables},\"file_kib\":{},\
         \"errors\":{},\"warnings\":{},\"check_ms\":{:.0},\"first_check_ms\":{:.0},\"peak_mib\":{}}}",
        text.len() >> 10,
        checked.findings.errors,
        checked.findings.warnings,
        seconds * 1e3,
        first * 1e3,
        peak.map_or_else(|| "null".to_owned(), |mib| mib.to_string())
    );
    let within = seconds <= AIM.0 && peak.is_none_or(|mib| mib <= AIM.1);
    checked.site.is_some() && (within || nodes > 100_000)
}

/// The most memory that this process has had, in MiB. `None`: the system does not say.
fn peak_mib() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib >> 10)
}
