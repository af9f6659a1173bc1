//! `rackwright`: the operator's command line. It is only a gRPC client of `rackwrightd`: it reads and writes by the
//! public API alone, so any other client can do the same. Commands for site files need no server; only `site import
//! netbox` calls another server, NetBox, and `bmc` calls a BMC directly.
//!
//! One module per noun (`node`, `cluster`, `site`, `image`, `operation`, `events`, `boot`, `usage`, `auth`, `apply`, `bmc`,
//! `bench`); around them
//! `client` (endpoints tried in order, retries with the same idempotency key), `config` (contexts and credentials on
//! disk), `output` (tables, JSON, YAML, colours, live lines), `wait` (following operations) and `error` (one sentence and
//! an exit code for everything that can go wrong). Nothing else in the crate prints or decides exit codes.

mod apply;
mod args;
mod audit;
mod auth;
mod bench;
mod bmc;
mod boot;
mod capacity;
mod certificates;
mod client;
mod cluster;
mod config;
mod control;
mod discover;
mod error;
mod events;
mod fabric;
mod firmware;
mod image;
mod mutation;
mod names;
mod node;
mod operation;
mod output;
mod power;
mod random;
mod retry;
mod save;
mod site;
mod tls;
mod units;
mod usage;
mod wait;

use std::process::ExitCode;

use clap::Parser as _;

pub use crate::args::Cli;
use crate::args::{Command, Cx};
use crate::error::CliError;

/// Runs the program with the process's own arguments and returns its exit code (see `docs/cli.md`).
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    // Fails only if a provider is installed already, which is equally good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let cx = Cx::new(cli.global);
    if let Err(error) = cli.command.check_output(cx.global.output) {
        return fail(&cx, &error);
    }
    let runtime = match tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(source) => return fail(&cx, &CliError::io("start the program", source)),
    };
    let outcome = runtime.block_on(dispatch(&cx, cli.command));
    // Blocking reads (standard input) must not keep a finished program alive.
    runtime.shutdown_background();
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&cx, &error),
    }
}

fn fail(cx: &Cx, error: &CliError) -> ExitCode {
    if !error.is_silent() {
        eprint!("{}", error.render(cx.ui.paint_errors()));
    }
    ExitCode::from(error.exit_code())
}

async fn dispatch(cx: &Cx, command: Command) -> Result<(), CliError> {
    match command {
        Command::Login(args) => auth::login::run(cx, args).await,
        Command::Whoami => auth::whoami(cx).await,
        Command::Token(command) => auth::token(cx, command).await,
        Command::Member(command) => auth::member::run(cx, command).await,
        Command::SshKey(command) => auth::ssh_key::run(cx, command).await,
        Command::Context(command) => auth::context(cx, command),
        Command::Apply(args) => apply::run(cx, args).await,
        Command::Node(command) => node::run(cx, command).await,
        Command::Site(command) => site::run(cx, command).await,
        Command::Power(command) => power::run(cx, command).await,
        Command::Cluster(command) => cluster::run(cx, command).await,
        Command::Control(command) => control::run(cx, command).await,
        Command::Fabric(command) => fabric::run(cx, command).await,
        Command::Firmware(command) => firmware::run(cx, command).await,
        Command::Image(command) => image::run(cx, command).await,
        Command::Capacity(args) => capacity::run(cx, args).await,
        Command::Usage(command) => usage::run(cx, command).await,
        Command::Operation(command) => operation::run(cx, command).await,
        Command::Events(args) => events::run(cx, args).await,
        Command::Certificates(args) => certificates::run(cx, args).await,
        Command::Audit(command) => audit::run(cx, command).await,
        Command::Boot(command) => boot::run(cx, command).await,
        Command::Discover(command) => discover::run(cx, command).await,
        Command::Bmc(command) => bmc::run(cx, command).await,
        Command::Bench(command) => bench::run(cx, command).await,
        Command::Completion { shell } => args::completion(cx, shell),
        Command::Version => cx.ui.line(&format!("rackwright {}", env!("CARGO_PKG_VERSION"))),
    }
}
