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
use rackwright_cli_context::Cx;
use rackwright_cli_context::error::CliError;
use rackwright_site::file::check_name;

/// `rackwright site`
#[derive(Debug, Subcommand)]
pub enum SiteCommand {
    /// Check site files and report all errors
    Validate(Paths),
    /// Write a well-formed reference site of any size
    Generate(generate::GenerateArgs),
    /// Write a site file from NetBox or from a dump of a fabric
    #[command(subcommand)]
    Import(import::ImportCommand),
    /// Show the differences between two sites
    Diff {
        /// File or directory of the former site
        old: PathBuf,
        /// File or directory of the new site
        new: PathBuf,
    },
    /// Show the changes that site files would make, and their errors
    Plan(Paths),
    /// Apply site files as the site, all together or nothing
    Apply(plan::ApplyArgs),
    /// Export the files that were applied last
    Export(export::ExportArgs),
    /// Show the applied site
    Show,
}

/// The files of one site.
#[derive(Debug, Args)]
pub struct Paths {
    /// File, directory (its *.yaml and *.yml files) or `-` for standard input; together they describe one site
    #[arg(required = true, value_name = "FILE|DIR|-")]
    paths: Vec<PathBuf>,
}

/// Parses an argument that becomes a name in a site file.
fn name(text: &str) -> Result<String, String> {
    check_name(text).map(|()| text.to_owned())
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
