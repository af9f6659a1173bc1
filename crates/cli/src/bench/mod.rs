//! `rackwright bench ...`: the cost of the control plane, measured on processes that this program starts itself.

mod alone;
mod fleet;
mod identity;
mod meter;
mod phases;
mod progress;
mod report;
mod test_bed;

use clap::Subcommand;
use rackwright_cli_context::Cx;
use rackwright_cli_context::error::CliError;
use tokio::signal::unix::{SignalKind, signal};

/// `rackwright bench`
#[derive(Debug, Subcommand)]
pub enum BenchCommand {
    /// Run a control plane with a fleet of simulated machines, from enrolment to release
    /// Starts rackwrightd and rackwright-sim in a separate directory and takes every machine through all phases. Prints one
    /// JSON object per line: one for each phase, then one for all phases. Ends with an error if a node does not reach the
    /// final state of the run.
    Fleet(fleet::FleetArgs),
}

/// Runs a bench command.
pub async fn run(cx: &Cx, command: BenchCommand) -> Result<(), CliError> {
    let work = async {
        match command {
            BenchCommand::Fleet(args) => fleet::run(cx, args).await,
        }
    };
    tokio::select! {
        done = work => done,
        // Dropping the future ends the started processes.
        ended = wait_for_signal() => Err(ended),
    }
}

async fn wait_for_signal() -> CliError {
    let listen = |kind| signal(kind).map_err(|e| CliError::io("listen for signals", e));
    let heard = async {
        let (mut interrupt, mut terminate) = (listen(SignalKind::interrupt())?, listen(SignalKind::terminate())?);
        let mut hangup = listen(SignalKind::hangup())?;
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hangup.recv() => {}
        }
        Ok(())
    };
    match heard.await {
        Err(error) => error,
        Ok(()) => CliError::Missed {
            what: "a signal ended the run; its processes were stopped".to_owned(),
            hint: String::new(),
        },
    }
}
