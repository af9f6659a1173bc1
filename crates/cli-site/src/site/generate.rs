//! `rackwright site generate`

use std::path::{Path, PathBuf};

use clap::Args;
use rackwright_cli_context::Cx;
use rackwright_cli_context::error::CliError;
use rackwright_site::generate::{GenerateError, ReferenceSku, Request, site_file};

/// `rackwright site generate`
#[derive(Debug, Args)]
pub struct GenerateArgs {
    /// SKU of the nodes
    #[arg(long, value_parser = clap::builder::PossibleValuesParser::new(["dgx-h100", "dgx-b200", "gb200-nvl72"]))]
    sku: String,
    /// Number of nodes
    #[arg(long, value_name = "N")]
    nodes: usize,
    /// Number of power feeds, 1 to 4 (default: 3 for DGX, 2 for NVL72)
    #[arg(long, value_name = "N")]
    feeds: Option<usize>,
    /// Seed of the GUIDs: sites with different seeds share no GUID
    #[arg(long, default_value_t = 0, value_name = "0-255")]
    seed: u8,
    /// Name of the site
    #[arg(long, default_value = "reference", value_parser = super::name)]
    name: String,
    /// File to write (default: standard output)
    #[arg(short, long, value_name = "FILE")]
    file: Option<PathBuf>,
}

/// Writes a site file.
pub fn run(cx: &Cx, args: GenerateArgs) -> Result<(), CliError> {
    let sku = ReferenceSku::ALL.iter().find(|sku| sku.name() == args.sku).copied();
    let Some(sku) = sku else {
        return Err(CliError::usage(format!("there is no reference SKU {}", args.sku), ""));
    };
    let mut request = Request::new(sku, args.nodes);
    request.feeds = args.feeds.unwrap_or(request.feeds);
    request.seed = args.seed;
    request.name = args.name;
    let text = site_file(&request).map_err(|error: GenerateError| CliError::usage(error.to_string(), ""))?;
    match args.file {
        Some(file) => write(cx, &file, &text),
        None => cx.ui.line(text.trim_end()),
    }
}

fn write(cx: &Cx, file: &Path, text: &str) -> Result<(), CliError> {
    std::fs::write(file, text).map_err(|e| CliError::given("write", file, e))?;
    cx.ui.say(&format!("{} written", file.display()))
}
