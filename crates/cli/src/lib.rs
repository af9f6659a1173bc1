//! `rackwright`: the operator's command line.
//!
//! The program is a gRPC client of `rackwrightd`. It uses only the public API, so any other client can do the same. Some
//! commands need no `rackwrightd`: `bmc probe`, `bmc bios` and `bmc record` call a BMC directly, and `site import netbox`
//! can call NetBox. Commands such as `site validate` and `fabric show` only read files.
//!
//! Each command of the first level has a module. The module `auth` has the commands about login, tokens, members and SSH
//! keys. The module `args` has the tree of commands. The crate `rackwright-cli-context` has the code that all commands
//! share. The crate `rackwright-cli-site` has `site`, `fabric` and `power`.

mod apply;
mod args;
mod audit;
mod auth;
mod bmc;
mod boot;
mod capacity;
mod certificates;
mod cluster;
mod control;
mod discover;
mod events;
mod firmware;
mod image;
mod man;
mod node;
mod operation;
mod status;
mod usage;

use std::process::ExitCode;

use clap::Parser as _;
use rackwright_cli_context::error::CliError;
use rackwright_cli_context::{Cx, program};
use rackwright_cli_site::{fabric, power, site};

pub use crate::args::Cli;
use crate::args::Command;

/// Runs the program with the process's own arguments and returns its exit code. `docs/cli.md` lists the exit codes.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    let cx = Cx::new(cli.global);
    match cli.command.check_output(&cx.global.output) {
        Ok(()) => program::run(&cx, dispatch(&cx, cli.command)),
        Err(error) => program::fail(&cx, &error),
    }
}

async fn dispatch(cx: &Cx, command: Command) -> Result<(), CliError> {
    match command {
        Command::Status => status::run(cx).await,
        Command::Login(args) => auth::login::run(cx, args).await,
        Command::Whoami => auth::whoami(cx).await,
        Command::Token(command) => auth::token(cx, command).await,
        Command::Member(command) => auth::member::run(cx, command).await,
        Command::SshKey(command) => auth::ssh_key::run(cx, command).await,
        Command::Console(command) => auth::session::console(cx, command).await,
        Command::Session(command) => auth::session::session(cx, command).await,
        Command::ApiKey(command) => auth::session::api_key(cx, command).await,
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
        Command::Completion { shell } => args::completion(cx, shell),
        Command::Man(args) => man::run(cx, &args),
        Command::Version => cx.ui.line(&format!("rackwright {}", env!("CARGO_PKG_VERSION"))),
    }
}
