//! `rackwright-bench`: measures the cost of the control plane, and the fan-out of images. The program itself starts the
//! processes that it measures.

mod alone;
mod api;
mod args;
pub mod chromium;
mod console;
mod fanout;
mod fleet;
mod identity;
mod meter;
mod phases;
mod progress;
mod report;
mod test_bed;

use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};
use rackwright_cli_context::error::CliError;
use rackwright_cli_context::{Cx, Global, Output, program, units};
use tokio::signal::unix::{SignalKind, signal};

/// Benchmarks of the control plane with simulated machines, and of the fan-out of images.
#[derive(Debug, Parser)]
#[command(name = "rackwright-bench", version, max_term_width = 110)]
struct Cli {
    /// Print only results and errors
    #[arg(short, long, global = true)]
    quiet: bool,
    /// Time limit of each call to the control plane
    #[arg(long, global = true, value_name = "TIME", value_parser = units::parse_duration, default_value = "30s")]
    call_timeout: Duration,
    #[command(subcommand)]
    command: BenchCommand,
}

#[derive(Debug, Subcommand)]
enum BenchCommand {
    /// Run a control plane with a fleet of simulated machines, from enrolment to release
    ///
    /// Starts rackwrightd and rackwright-sim in a separate directory and takes every machine through all phases. Prints one
    /// JSON object per line: one for each phase, then one for all phases. Ends with an error if a node does not reach the
    /// final state of the run.
    Fleet(args::FleetArgs),
    /// Compare the cost of a call by gRPC, Connect and REST
    ///
    /// Starts rackwrightd with inspected machines. Prints one JSON object per line: one for each method and form.
    Api(args::ApiArgs),
    /// Measure the web console in headless Chromium, and what open consoles cost
    ///
    /// Starts rackwrightd with simulated machines, and drives Chromium by chromedriver. Prints one JSON object per line: one
    /// for each figure, with its aim.
    Console(args::ConsoleArgs),
    /// Measure the fan-out of an image between agents in network namespaces
    ///
    /// Starts the agents' own code in a process for each agent, with links of the same rate, a control plane and an image
    /// server. Prints one JSON object per line: one for each case, with its aim. Beside it: unicast, nginx and BitTorrent.
    Fanout(fanout::args::FanoutArgs),
    /// The process of one agent of `fanout`
    #[command(hide = true)]
    FanoutAgent,
}

/// Runs the program with the process's own arguments and returns its exit code. `docs/cli.md` lists the exit codes.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    // This program starts the control plane itself, so it needs neither a stored context nor a server's address.
    let cx = Cx::new(Global {
        context: None,
        server: Vec::new(),
        output: Output::Table,
        quiet: cli.quiet,
        call_timeout: cli.call_timeout,
    });
    program::run(&cx, run(&cx, cli.command))
}

/// Runs a benchmark until it ends or a signal arrives.
async fn run(cx: &Cx, command: BenchCommand) -> Result<(), CliError> {
    let work = async {
        match command {
            BenchCommand::Fleet(args) => fleet::run(cx, args).await,
            BenchCommand::Api(args) => api::run(cx, args).await,
            BenchCommand::Console(args) => console::run(cx, args).await,
            BenchCommand::Fanout(args) => fanout::run(cx, args).await,
            BenchCommand::FanoutAgent => fanout::agent::run().await,
        }
    };
    tokio::select! {
        done = work => done,
        // Dropping the future ends the started processes.
        error = wait_for_signal() => Err(error),
    }
}

/// Waits for SIGINT, SIGTERM or SIGHUP. Returns the error with which the run ends.
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

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_command_tree_is_sound() {
        Cli::command().debug_assert();
    }
}
