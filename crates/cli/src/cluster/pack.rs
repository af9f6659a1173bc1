//! `rackwright cluster pack`: the files for the customer's team.

use std::path::PathBuf;

use clap::Args;
use rackwright_api::v1::GetHandoverPackRequest;
use rackwright_api::v1::cluster_service_client::ClusterServiceClient;
use rackwright_cli_context::client::rpc;
use rackwright_cli_context::error::CliError;
use rackwright_cli_context::output::{Format, Table};
use rackwright_cli_context::save::{self, Present};
use rackwright_cli_context::{Cx, names, units};

use super::short;

/// `rackwright cluster pack`
#[derive(Debug, Args)]
pub struct PackArgs {
    /// The cluster
    name: String,
    /// Directory for the files (without it the files are only listed; -o json has their text)
    #[arg(value_name = "DIR")]
    folder: Option<PathBuf>,
    /// Replace existing files
    #[arg(long, requires = "folder")]
    force: bool,
}

/// Lists the files or writes them.
pub async fn run(cx: &Cx, args: PackArgs) -> Result<(), CliError> {
    let client = cx.client().await?;
    let id = short(&args.name);
    let request = GetHandoverPackRequest {
        name: names::full("clusters", id),
    };
    let doing = format!("get the hand-over pack of cluster {id}");
    let pack = rpc!(client, ClusterServiceClient.get_handover_pack, doing, request).await?;
    if let Some(folder) = &args.folder {
        let files: Vec<(&str, &str)> = pack.files.iter().map(|file| (&*file.name, &*file.text)).collect();
        let present = if args.force { Present::Replaced } else { Present::Kept };
        save::below(folder, &files, present)?;
        if cx.ui.format() == Format::Table {
            return cx.ui.say(&save::written(files.len(), folder));
        }
    }
    let width = cx.ui.width();
    cx.ui.item(&pack, |paint| {
        let mut table = Table::new(&["FILE", "SIZE"]);
        for file in &pack.files {
            table.row([(&file.name).into(), units::bytes(file.text.len() as u64).into()]);
        }
        table.render(paint, width)
    })
}
