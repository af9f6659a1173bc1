//! `rackwright bmc`: reads from a BMC directly, without a control plane and without changes to the BMC; and the factory
//! passwords of BMCs, which the control plane stores.

mod access;
mod bios;
mod credentials;
mod ipmi;
mod probe;
mod record;

use clap::Subcommand;

use crate::args::Cx;
use crate::error::CliError;

/// `rackwright bmc`
#[derive(Debug, Subcommand)]
pub enum BmcCommand {
    /// Show what a BMC is, which profiles apply, what it offers and what a deployment would miss
    Probe(probe::ProbeArgs),
    /// Show BIOS settings, what they may be and what waits for a start, and Secure Boot
    Bios(bios::BiosArgs),
    /// Record a BMC as a scrubbed tree of JSON, for a bug report or to be served by rackwright-sim
    Record(record::RecordArgs),
    /// Passwords that machines come with, which are tried on BMCs for which none is given
    #[command(subcommand)]
    Credentials(credentials::CredentialsCommand),
}

/// Runs a bmc command.
pub async fn run(cx: &Cx, command: BmcCommand) -> Result<(), CliError> {
    match command {
        BmcCommand::Probe(args) => probe::run(cx, args).await,
        BmcCommand::Credentials(command) => credentials::run(cx, command).await,
        BmcCommand::Bios(args) => bios::run(cx, args).await,
        BmcCommand::Record(args) => record::run(cx, args).await,
    }
}
