//! `rackwright fabric`: the content of a fabric, and faults of its cabling. Works from files and needs no server, except
//! `faults`, which shows the control plane's findings.

mod check;
mod faults;
mod show;

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use rackwright_cli_context::Cx;
use rackwright_cli_context::error::{CliError, Fault, plural};
use rackwright_infiniband::dump::{self, DumpFinding, Limits};
use rackwright_infiniband::{Dump, Plan, PlanFault, topo};

/// Findings in a dump that are shown one by one; `-o json` contains more.
const MAX_NOTES: usize = 20;

/// `rackwright fabric`
#[derive(Debug, Subcommand)]
pub enum FabricCommand {
    /// Compare discovered cabling with the plan, and report each fault
    Check(CheckArgs),
    /// Show the faults of the running fabric, and the affected clusters
    Faults,
    /// Show levels, units, rails, oversubscription, spare ports and irregularities
    Show(ShowArgs),
}

/// `rackwright fabric check`
#[derive(Debug, Args)]
pub struct CheckArgs {
    /// Cabling list (cable,device_a,port_a,device_b,port_b,speed,width), topology file of ibutils (.topo), or an
    /// ibnetdiscover dump taken as reference
    #[arg(long, value_name = "FILE")]
    plan: PathBuf,
    /// Output of ibnetdiscover, or a topology file of ibdiagnet; `-` for standard input
    #[arg(long, value_name = "DUMP|-")]
    discovered: PathBuf,
}

/// `rackwright fabric show`
#[derive(Debug, Args)]
pub struct ShowArgs {
    /// Output of ibnetdiscover, or `-` for standard input
    #[arg(value_name = "DUMP|-")]
    dump: PathBuf,
}

/// Runs a fabric command.
pub async fn run(cx: &Cx, command: FabricCommand) -> Result<(), CliError> {
    match command {
        FabricCommand::Check(args) => check::run(cx, &args),
        FabricCommand::Faults => faults::run(cx).await,
        FabricCommand::Show(args) => show::run(cx, &args),
    }
}

/// The bytes of a file or of standard input, up to one more than the limit.
pub(crate) fn bytes(path: &Path) -> Result<Vec<u8>, CliError> {
    let most = Limits::default().bytes as u64 + 1;
    let mut bytes = Vec::new();
    let read = if path == Path::new("-") {
        io::stdin().lock().take(most).read_to_end(&mut bytes)
    } else {
        File::open(path).and_then(|file| file.take(most).read_to_end(&mut bytes))
    };
    read.map_err(|source| CliError::given("read", path, source))?;
    Ok(bytes)
}

/// Reads a discovered fabric: a dump, or a topology file.
pub(crate) fn read_dump(path: &Path, bytes: &[u8]) -> Result<Dump, CliError> {
    let text = String::from_utf8_lossy(bytes);
    if topo::is_topo(&text) {
        let plan = Plan::from_topo(&text).map_err(|faults| manifest(path, faults))?;
        return Ok(Dump::of(plan.fabric().clone()));
    }
    dump::read(bytes, Limits::default()).map_err(|error| {
        CliError::usage(
            format!("{}: {error}", path.display()),
            "make a dump with `ibnetdiscover > DUMP`",
        )
    })
}

fn manifest(path: &Path, faults: Vec<PlanFault>) -> CliError {
    let fault = |fault: PlanFault| Fault {
        file: path.display().to_string(),
        line: fault.line as usize,
        column: 1,
        message: fault.text,
    };
    CliError::Manifest(faults.into_iter().map(fault).collect())
}

/// A cabling list begins with its column names; any other text should be a topology file or a dump.
fn read_plan(path: &Path) -> Result<Plan, CliError> {
    let bytes = bytes(path)?;
    let text = String::from_utf8_lossy(&bytes);
    let first = text
        .lines()
        .map(str::trim)
        .find(|line| !line.is_empty() && !line.starts_with('#'))
        .unwrap_or("");
    if topo::is_topo(&text) {
        return Plan::from_topo(&text).map_err(|faults| manifest(path, faults));
    }
    if !first.contains(',') {
        return Ok(Plan::of_reference(read_dump(path, &bytes)?.fabric));
    }
    Plan::from_csv(&text).map_err(|faults| manifest(path, faults))
}

/// Reports unusable parts of a dump on stderr: the result covers the rest.
fn note_findings(cx: &Cx, path: &Path, findings: &[DumpFinding], more: usize) {
    for finding in findings.iter().take(MAX_NOTES) {
        cx.ui.note(&format!("{}: {finding}", path.display()));
    }
    let more = more + findings.len().saturating_sub(MAX_NOTES);
    if more > 0 {
        cx.ui
            .note(&format!("{}: and {} more", path.display(), plural(more, "finding")));
    }
}
