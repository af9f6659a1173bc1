//! `rackwright site import fabric`

use std::path::PathBuf;

use clap::Args;
use rackwright_cli_context::Cx;
use rackwright_cli_context::error::CliError;
use rackwright_import::{DumpOptions, from_dump};

use super::Common;
use crate::fabric::{bytes, read_dump};

/// `rackwright site import fabric`
#[derive(Debug, Args)]
pub struct FabricArgs {
    /// Output of ibnetdiscover, or a topology file (.topo); `-` for standard input
    #[arg(value_name = "DUMP|-")]
    dump: PathBuf,
    /// Room of the rack
    #[arg(long, default_value = "room", value_parser = crate::site::name)]
    room: String,
    /// Rack of all nodes and switches: a dump contains no positions
    #[arg(long, default_value = "rack", value_parser = crate::site::name)]
    rack: String,
    /// SKU of all nodes (default: the SKU in the SKU file with the same HCAs)
    #[arg(long, value_name = "SKU", requires = "sku_file")]
    sku: Option<String>,
    #[command(flatten)]
    common: Common,
}

/// Writes the site file of a dump.
pub fn run(cx: &Cx, args: &FabricArgs) -> Result<(), CliError> {
    let skus = args.common.skus(cx)?;
    let dump = read_dump(&args.dump, &bytes(&args.dump)?)?;
    let output = args.common.output();
    let options = DumpOptions {
        options: args.common.options(&output, skus.as_ref()),
        dump: &args.dump.display().to_string(),
        room: &args.room,
        rack: &args.rack,
        sku: args.sku.as_deref(),
    };
    // The lines of a dump are not worth showing: a finding contains the necessary text.
    args.common.finish(cx, from_dump(&dump, &options), Vec::new())
}
