//! `rackwright power`: the paths of power to nodes, the remaining capacity, and alarms.

mod alarms;
mod explain;
mod report;

use clap::Subcommand;
use rackwright_cli_context::Cx;
use rackwright_cli_context::error::CliError;

/// `rackwright power`
#[derive(Debug, Subcommand)]
pub enum PowerCommand {
    /// Show the power path from the utility to a node, a cluster or a customer, with watts at each step
    Explain(explain::ExplainArgs),
    /// Show headroom and stranded power of one level, the least headroom first
    Report(report::ReportArgs),
    /// Show the open alarms of power and cooling
    Alarms,
}

/// Runs a power command.
pub async fn run(cx: &Cx, command: PowerCommand) -> Result<(), CliError> {
    match command {
        PowerCommand::Explain(args) => explain::run(cx, args).await,
        PowerCommand::Report(args) => report::run(cx, args).await,
        PowerCommand::Alarms => alarms::run(cx).await,
    }
}

fn kw(watts: f64) -> String {
    format!("{:.1} kW", watts / 1000.0)
}

fn maybe(watts: Option<f64>) -> String {
    watts.map(kw).unwrap_or_default()
}
