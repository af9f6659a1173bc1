//! `rackwright bmc`: reads from a BMC directly, without a control plane and without changes to the BMC; and the factory
//! passwords of BMCs, which the control plane stores.

mod access;
mod bios;
mod credentials;
mod ipmi;
mod probe;
mod record;

use clap::Subcommand;
use rackwright_cli_context::Cx;
use rackwright_cli_context::error::CliError;

/// `rackwright bmc`
#[derive(Debug, Subcommand)]
pub enum BmcCommand {
    /// Show a BMC's identity, profiles and capabilities, and what is missing for a deployment
    Probe(probe::ProbeArgs),
    /// Show BIOS settings with their allowed and pending values, and Secure Boot
    Bios(bios::BiosArgs),
    /// Record a BMC's resources as JSON files without secrets, for a bug report or for rackwright-sim
    Record(record::RecordArgs),
    /// Factory credentials, tried on BMCs without given credentials
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
