//! `rackwright site`: commands for site files, which need no server of ours; and for the control
//! plane's site (`plan`, `apply`, `export`, `show`).

mod diff;
pub mod explain;
mod export;
mod generate;
mod import;
pub mod load;
mod plan;
mod sent;
mod show;
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
    /// Write a site file from what NetBox or a fabric's dump knows
    #[command(subcommand)]
    Import(import::ImportCommand),
    /// Show what was added, removed and changed between two sites
    Diff {
        /// File or directory of the former site
        old: PathBuf,
        /// File or directory of the new site
        new: PathBuf,
    },
    /// Show what applying site files would change, and what is wrong with them
    Plan(Paths),
    /// Make site files the site: all of them together, or nothing
    Apply(plan::ApplyArgs),
    /// Give the files back as they were applied last
    Export(export::ExportArgs),
    /// Show which site is applied
    Show,
}

/// The files of one site.
#[derive(Debug, Args)]
pub struct Paths {
    /// File, directory (its *.yaml and *.yml) or `-` for standard input; all of them describe one site
    #[arg(required = true, value_name = "FILE|DIR|-")]
    paths: Vec<PathBuf>,
}

/// Runs a site command.
pub async fn run(cx: &Cx, command: SiteCommand) -> Result<(), CliError> {
    match command {
        SiteCommand::Validate(paths) => validate::run(cx, &paths.paths),
        SiteCommand::Generate(args) => generate::run(cx, args),
        SiteCommand::Import(command) => import::run(cx, command).await,
        SiteCommand::Diff { old, new } => diff::run(cx, &old, &new),
        SiteCommand::Plan(paths) => plan::run(cx, &paths.paths).await,
        SiteCommand::Apply(args) => plan::apply(cx, args).await,
        SiteCommand::Export(args) => export::run(cx, args).await,
        SiteCommand::Show => show::run(cx).await,
    }
}
