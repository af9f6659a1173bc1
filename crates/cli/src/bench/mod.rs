//! `rackwright bench ...`: what the control plane costs, measured on processes that this program starts itself.

mod fleet;
mod meter;
mod phases;
mod progress;
mod report;
mod stand;

use clap::Subcommand;

use crate::args::Cx;
use crate::error::CliError;

/// `rackwright bench`
#[derive(Debug, Subcommand)]
pub enum BenchCommand {
    /// A control plane and a fleet of simulated machines, from enrolment to release
    ///
    /// Starts rackwrightd and rackwright-sim in a folder of their own and takes every machine through its life. Prints one
    /// JSON object a line: one for each phase, then one for all. Ends with an error if a node did not end as it should.
    Fleet(fleet::FleetArgs),
}

/// Runs one of them.
pub async fn run(cx: &Cx, command: BenchCommand) -> Result<(), CliError> {
    match command {
        BenchCommand::Fleet(args) => fleet::run(cx, args).await,
    }
}
