//! `rackwright node firmware`: a node's firmware compared with its SKU's, and its update.

use clap::{Args, Subcommand};
use rackwright_api::v1::firmware_service_client::FirmwareServiceClient;
use rackwright_api::v1::{GetNodeFirmwareRequest, NodeFirmware, UpdateNodeFirmwareRequest};
use rackwright_cli_context::client::{Client, rpc};
use rackwright_cli_context::error::CliError;
use rackwright_cli_context::mutation::MutationArgs;
use rackwright_cli_context::output::table::Cell;
use rackwright_cli_context::output::{Paint, Table, Tone};
use rackwright_cli_context::wait::WaitArgs;
use rackwright_cli_context::{Cx, names, operation, units};

/// `rackwright node firmware`
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct FirmwareArgs {
    #[command(subcommand)]
    command: Option<FirmwareVerb>,
    /// The node
    #[arg(required = true)]
    id: Option<String>,
}

/// What can be done about it.
#[derive(Debug, Subcommand)]
enum FirmwareVerb {
    /// Update a node's firmware to the versions that its SKU wants, the BMC first
    Update(UpdateArgs),
}

/// `rackwright node firmware update`
#[derive(Debug, Args)]
pub struct UpdateArgs {
    /// The node
    id: String,
    /// Only show the planned changes
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    waiting: WaitArgs,
    #[command(flatten)]
    mutation: MutationArgs,
}

/// Shows or updates.
pub async fn run(cx: &Cx, args: FirmwareArgs) -> Result<(), CliError> {
    match args.command {
        Some(FirmwareVerb::Update(args)) if !args.dry_run => update(cx, args).await,
        Some(FirmwareVerb::Update(args)) => show(cx, &args.id).await,
        None => show(cx, &args.id.unwrap_or_default()).await,
    }
}

async fn read(client: &Client, id: &str) -> Result<NodeFirmware, CliError> {
    let request = GetNodeFirmwareRequest {
        name: names::full("nodes", id),
    };
    let doing = format!("read the firmware of {id}");
    rpc!(client, FirmwareServiceClient.get_node_firmware, doing, request).await
}

async fn show(cx: &Cx, id: &str) -> Result<(), CliError> {
    let firmware = read(&*cx.client().await?, id).await?;
    let width = cx.ui.width();
    cx.ui.item(&firmware, |paint| details(&firmware, paint, width))
}

async fn update(cx: &Cx, args: UpdateArgs) -> Result<(), CliError> {
    let client = cx.client().await?;
    let id = names::short("nodes", &args.id).to_owned();
    let request = UpdateNodeFirmwareRequest {
        name: names::full("nodes", &id),
        mutation: Some(args.mutation.once()),
    };
    let doing = format!("update the firmware of {id}");
    let started = rpc!(client, FirmwareServiceClient.update_node_firmware, doing, request).await?;
    operation::finish_one(cx, &client, started, args.waiting).await
}

fn details(firmware: &NodeFirmware, paint: Paint, width: Option<usize>) -> String {
    let mut text = match &firmware.seen_time {
        Some(at) => format!("read {}; offered: {}\n", units::stamp(at), offered(firmware)),
        None => "the BMC was never read: an update or the admission to the pool reads it\n".to_owned(),
    };
    if !firmware.under_way.is_empty() {
        text.push_str(&format!("under way: {}\n", firmware.under_way));
    }
    if firmware.rows.is_empty() {
        text.push_str("the node's SKU wants no firmware version\n");
    } else {
        let mut table = Table::new(&["ORDER", "COMPONENT", "ID", "INSTALLED", "WANTED", "VERDICT"]);
        for row in &firmware.rows {
            let tone = match row.verdict.as_str() {
                "up-to-date" | "newer" => Tone::Good,
                "update" => Tone::Busy,
                _ => Tone::Bad,
            };
            table.row([
                (&row.order).into(),
                (&row.component).into(),
                (&row.id).into(),
                (&row.installed).into(),
                (&row.wanted).into(),
                Cell::toned(&row.verdict, tone),
            ]);
        }
        text.push_str(&format!("\n{}", table.render(paint, width)));
    }
    let mut table = Table::new(&["ID", "NAME", "VERSION", "UPDATEABLE"]);
    for entry in &firmware.inventory {
        let updateable = match entry.updateable {
            Some(true) => "yes",
            Some(false) => "no",
            None => "",
        };
        table.row([
            (&entry.id).into(),
            (&entry.title).into(),
            (&entry.version).into(),
            updateable.into(),
        ]);
    }
    if !table.is_empty() {
        text.push_str(&format!("\n{}", table.render(paint, width)));
    }
    text
}

fn offered(firmware: &NodeFirmware) -> String {
    match firmware.ways.is_empty() {
        true => "no update method".to_owned(),
        false => firmware.ways.join(", "),
    }
}
