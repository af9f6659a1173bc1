//! Measures the check of a generated site file: time, and the most memory that this process has had during the first check.
//!
//! The check is the same each time, so the shortest time counts: the rest of a longer time went to other programs of the
//! machine. The time of the first check is printed, too. The same for the command `rackwright site validate`: it also reads
//! the file, and prints the result.

use std::time::Instant;

use rackwright_site::file::Source;
use rackwright_site::generate::{ReferenceSku, Request, site_file};

use crate::command::{Folder, Runs};
use crate::{Options, peak_mib};

/// The aim for 100,000 nodes: seconds, and MiB of memory.
const AIM: (f64, u64) = (2.0, 500);

/// Number of checks, and of runs of the command.
const TRIES: usize = 3;

/// Checks a site file and prints the results. Runs first: the memory of a process never shrinks in this figure. False:
/// the site has faults, or an aim is missed.
pub fn run(options: Options) -> bool {
    crate::told(validation(options.nodes.unwrap_or(100_000)))
}

fn validation(nodes: u32) -> Result<bool, String> {
    let request = Request::new(ReferenceSku::DgxH100, nodes as usize);
    let text = site_file(&request).map_err(|error| error.to_string())?;
    let name = "site.yaml";
    let check = || {
        let started = Instant::now();
        let checked = rackwright_planner::check(&[Source { name, text: &text }]);
        (checked, started.elapsed().as_secs_f64())
    };
    let (checked, first) = check();
    let peak = peak_mib("/proc/self/status");
    let seconds = (1..TRIES).map(|_| check().1).fold(first, f64::min);
    let (switches, cables) = checked
        .site
        .as_ref()
        .map_or((0, 0), |site| (site.switches.len(), site.cables.len()));
    let (errors, warnings) = (checked.findings.errors, checked.findings.warnings);
    let is_whole = checked.site.is_some();
    drop(checked);
    let folder = Folder::new("validation")?;
    let file = folder.write(name, &text)?;
    let runs = Runs::of(&["site", "validate", &file, "-o", "json"], TRIES)?;
    println!(
        "{{\"bench\":\"validation\",\"nodes\":{nodes},\"switches\":{switches},\"cables\":{cables},\"file_kib\":{},\
         \"errors\":{errors},\"warnings\":{warnings},\"check_ms\":{:.0},\"first_check_ms\":{:.0},\"peak_mib\":{},\
         \"command_ms\":{:.0},\"first_command_ms\":{:.0},\"command_peak_mib\":{}}}",
        text.len() >> 10,
        seconds * 1e3,
        first * 1e3,
        peak.map_or_else(|| "null".to_owned(), |mib| mib.to_string()),
        runs.best_ms,
        runs.first_ms,
        runs.peak_json()
    );
    let times = [seconds, runs.best_ms / 1e3];
    let memory = [peak, runs.peak_mib];
    let within = times.iter().all(|time| *time <= AIM.0) && memory.iter().flatten().all(|mib| *mib <= AIM.1);
    Ok(is_whole && (within || nodes > 100_000))
}
