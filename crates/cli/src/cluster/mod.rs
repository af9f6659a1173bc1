//! `rackwright cluster`: clusters as they would be. `plan` works from files and needs no server.

mod plan;
mod wanted;

use clap::Subcommand;

use crate::args::Cx;
use crate::error::CliError;

/// `rackwright cluster`
#[derive(Debug, Subcommand)]
pub enum ClusterCommand {
    /// Show where clusters would go in a site, without taking anything
    Plan(plan::PlanArgs),
}

/// Does what was asked for.
pub fn run(cx: &Cx, command: ClusterCommand) -> Result<(), CliError> {
    match command {
        ClusterCommand::Plan(args) => plan::run(cx, &args),
    }
}
