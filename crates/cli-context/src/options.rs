//! The options that every command takes.

use std::time::Duration;

use clap::{Args, ValueEnum};

use crate::output::Format;
use crate::units;

/// Options every command takes.
#[derive(Debug, Args)]
#[command(next_help_heading = "Global options")]
pub struct Global {
    /// Context to use (see `rackwright context list`)
    #[arg(long, global = true, env = "RACKWRIGHT_CONTEXT", value_name = "NAME")]
    pub context: Option<String>,
    /// Server to use instead of the context's servers; repeat the option for several, tried in order
    #[arg(
        long,
        global = true,
        env = "RACKWRIGHT_SERVER",
        value_name = "URL",
        value_delimiter = ','
    )]
    pub server: Vec<String>,
    /// Output format
    #[arg(short, long, global = true, value_enum, default_value_t = Output::Table)]
    pub output: Output,
    /// Print only results and errors
    #[arg(short, long, global = true)]
    pub quiet: bool,
    /// Time limit of each call to the server (not of waiting)
    #[arg(long, global = true, value_name = "TIME", value_parser = units::parse_duration, default_value = "30s")]
    pub call_timeout: Duration,
}

/// What `--output` takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// For people
    Table,
    /// JSON with the API's field names; streams write one object per line
    Json,
    /// The same content in YAML
    Yaml,
    /// Resource names only, one per line
    Name,
    /// Comma-separated values, only for reports of `usage`
    Csv,
}

impl Output {
    /// The format of every output except reports in CSV.
    pub(crate) fn format(self) -> Format {
        match self {
            Self::Table | Self::Csv => Format::Table,
            Self::Json => Format::Json,
            Self::Yaml => Format::Yaml,
            Self::Name => Format::Name,
        }
    }
}
