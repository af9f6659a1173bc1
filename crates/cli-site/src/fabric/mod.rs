//! `rackwright fabric`: the content of a fabric, and faults of its cabling. Works from files and needs no server, except
//! `faults`, which shows the control plane's findings.

mod check;
mod faults;
mod show;

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use rackwright_cli_context::Cx;
use rackwright_cli_context::error::{CliError, Fault, plural};
use rackwright_infiniband::dump::{self, DumpFinding, Limits};
use rackwright_infiniband::{Dump, Plan, PlanFault, topo};
use rackwright_planner::cabling;
use rackwright_site::model::Site;

use crate::site::load;

/// Most faults of a site's cables that are shown.
const MOST_FAULTS: usize = 5;

/// Findings in a dump that are shown one by one; `-o json` contains more.
const MAX_NOTES: usize = 20;

/// `rackwright fabric`
#[derive(Debug, Subcommand)]
pub enum FabricCommand {
    /// Compare discovered cabling with the plan, and report each fault; without a plan, what is irregular
    Check(CheckArgs),
    /// Show the faults of the running fabric, and the affected clusters
    Faults,
    /// Show levels, units, rails, oversubscription, spare ports and irregularities
    Show(ShowArgs),
}

/// `rackwright fabric check`
#[derive(Debug, Args)]
pub struct CheckArgs {
    /// Site file (.yaml) or directory of site files, cabling list (cable,device_a,port_a,device_b,port_b,speed,width),
    /// topology file of ibutils (.topo), or an ibnetdiscover dump taken as reference. Without a plan: what differs from the
    /// rest of the fabric is suspected
    #[arg(long, value_name = "FILE|DIR")]
    plan: Option<PathBuf>,
    /// Compare with one of the site's `fabrics`; a dump shows only the fabric in which it was made
    #[arg(long, value_name = "NAME", requires = "plan")]
    fabric: Option<String>,
    /// Output of ibnetdiscover, or a topology file of ibdiagnet; `-` for standard input
    #[arg(long, value_name = "DUMP|-")]
    discovered: PathBuf,
    /// Dump of another fabric of the site, may be repeated: a port GUID that answers in two of the fabrics is a fault
    #[arg(long = "other", value_name = "DUMP")]
    others: Vec<PathBuf>,
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

/// The cables of a site as a plan.
pub(crate) fn plan_of_site(site: &Site) -> Result<Plan, CliError> {
    valid(cabling::plan(site))
}

/// The cables of one fabric of a site as a plan.
fn plan_of_fabric(site: &Site, name: &str) -> Result<Plan, CliError> {
    let Some(fabric) = site.fabric_ids().find(|id| *site.fabric(*id).name == *name) else {
        let known: Vec<&str> = site.fabrics.iter().map(|fabric| &*fabric.name).collect();
        let fix = match known.as_slice() {
            [] => "name the site's fabrics in the section `fabrics`".to_owned(),
            known => format!("the site has {}", known.join(", ")),
        };
        return Err(CliError::usage(format!("the site has no fabric named {name}"), fix));
    };
    valid(cabling::plan_of(site, |switch| {
        site.switch(switch).fabric == Some(fabric)
    }))
}

fn valid(plan: Result<Plan, Vec<PlanFault>>) -> Result<Plan, CliError> {
    plan.map_err(|faults| {
        let words: Vec<String> = faults.iter().take(MOST_FAULTS).map(ToString::to_string).collect();
        CliError::usage(
            format!(
                "the site's cables are not a valid plan of a fabric: {}",
                words.join("; ")
            ),
            "correct them in the site files",
        )
    })
}

/// Whether a plan is a site: a directory, or a YAML file.
fn is_site(path: &Path) -> bool {
    let extension = path.extension().and_then(OsStr::to_str);
    path.is_dir() || matches!(extension, Some("yaml" | "yml"))
}

/// A cabling list begins with its column names; any other text should be a topology file or a dump.
fn read_plan(cx: &Cx, path: &Path, fabric: Option<&str>) -> Result<Plan, CliError> {
    if is_site(path) {
        let site = load::site(cx, &[path.to_owned()])?;
        if site.cables.is_empty() {
            let message = format!("{}: the site describes no cables", path.display());
            return Err(CliError::usage(message, "describe `switches` and `cables`"));
        }
        return match fabric {
            Some(fabric) => plan_of_fabric(&site, fabric),
            None => plan_of_site(&site),
        };
    }
    if fabric.is_some() {
        let message = format!("--fabric names a fabric of a site, and {} is no site", path.display());
        return Err(CliError::usage(message, "leave out --fabric"));
    }
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
