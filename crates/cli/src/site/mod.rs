//! `rackwright site` and `rackwright power`: what site files say. Both work from files and need no server.

mod diff;
mod explain;
mod generate;
pub mod load;
mod validate;

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::args::Cx;
use crate::error::CliError;

/// `rackwright site`
#[derive(Debug, Subcommand)]
pub enum SiteCommand {
    /// Check site files and tell everything that is wrong with them
    Validate(Paths),
    /// Write a well-formed reference site of any size
    Generate(generate::GenerateArgs),
    /// Show what was added, removed and changed between two sites
    Diff {
        /// File or directory of the former site
        old: PathBuf,
        /// File or directory of the new site
        new: PathBuf,
    },
}

/// `rackwright power`
#[derive(Debug, Subcommand)]
pub enum PowerCommand {
    /// Show the way from the utility to each PSU of a node, with watts at each step
    Explain(explain::ExplainArgs),
}

/// The files of one site.
#[derive(Debug, Args)]
pub struct Paths {
    /// File, directory (its *.yaml and *.yml) or `-` for standard input; all of them describe one site
    #[arg(required = true, value_name = "FILE|DIR|-")]
    paths: Vec<PathBuf>,
}

/// Does what was asked for.
pub fn run(cx: &Cx, command: SiteCommand) -> Result<(), CliError> {
    match command {
        SiteCommand::Validate(paths) => validate::run(cx, &paths.paths),
        SiteCommand::Generate(args) => generate::run(cx, args),
        SiteCommand::Diff { old, new } => diff::run(cx, &old, &new),
    }
}

/// Does what was asked for.
pub fn power(cx: &Cx, command: PowerCommand) -> Result<(), CliError> {
    match command {
        PowerCommand::Explain(args) => explain::run(cx, &args),
    }
}
