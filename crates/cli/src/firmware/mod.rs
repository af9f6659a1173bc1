//! `rackwright firmware ...`: files, compliance of the fleet, and the times at which machines may be disturbed.

mod add;
mod golden;
mod window;

use clap::Subcommand;
use rackwright_api::v1::firmware_service_client::FirmwareServiceClient;
use rackwright_api::v1::{
    Firmware, FirmwareRow, GetFirmwareReportRequest, ListFirmwareRequest, NodeCompliance, RemoveFirmwareRequest,
};
use rackwright_cli_context::client::rpc;
use rackwright_cli_context::error::CliError;
use rackwright_cli_context::mutation::MutationArgs;
use rackwright_cli_context::output::table::Cell;
use rackwright_cli_context::output::{Table, Tone};
use rackwright_cli_context::{Cx, names, pages, units};

/// `rackwright firmware`
#[derive(Debug, Subcommand)]
pub enum FirmwareCommand {
    /// Add a firmware file for a component and a version
    Add(add::AddArgs),
    /// Show all firmware files
    List,
    /// Remove a firmware file that no update is using
    Remove {
        /// Digest, as `firmware list` shows it
        digest: String,
        #[command(flatten)]
        mutation: MutationArgs,
    },
    /// Show which nodes have the firmware that their SKU wants, and the differences
    Report {
        /// Only nodes with differences, and nodes with a BMC that was never read
        #[arg(long)]
        drift: bool,
    },
    /// Golden values: approved firmware measurements of each SKU
    #[command(subcommand)]
    Golden(golden::GoldenCommand),
    /// Show or set the maintenance window of a claimed node or a cluster
    Window(window::WindowArgs),
}

/// Runs a firmware command.
pub async fn run(cx: &Cx, command: FirmwareCommand) -> Result<(), CliError> {
    match command {
        FirmwareCommand::Add(args) => add::run(cx, args).await,
        FirmwareCommand::List => list(cx).await,
        FirmwareCommand::Remove { digest, mutation } => {
            let client = cx.client().await?;
            let request = RemoveFirmwareRequest {
                name: names::full("firmware", &digest),
                mutation: Some(mutation.once()),
            };
            let doing = format!("remove firmware {digest}");
            rpc!(client, FirmwareServiceClient.remove_firmware, doing, request).await?;
            cx.ui.say(&format!("firmware {digest} removed"))
        }
        FirmwareCommand::Report { drift } => report(cx, drift).await,
        FirmwareCommand::Golden(command) => golden::run(cx, command).await,
        FirmwareCommand::Window(args) => window::run(cx, args).await,
    }
}

async fn list(cx: &Cx) -> Result<(), CliError> {
    let client = cx.client().await?;
    let request = ListFirmwareRequest {};
    let answer = rpc!(client, FirmwareServiceClient.list_firmware, "list firmware", request).await?;
    let width = cx.ui.width();
    cx.ui.list(&answer.firmware, |paint| {
        if answer.firmware.is_empty() {
            return "there is no firmware file; add a file with `rackwright firmware add`\n".to_owned();
        }
        files(&answer.firmware).render(paint, width)
    })
}

fn files(all: &[Firmware]) -> Table {
    let mut table = Table::new(&["COMPONENT", "VERSION", "FILE", "SIZE", "ADDED", "DIGEST"]);
    for one in all {
        table.row([
            (&one.component).into(),
            (&one.version).into(),
            (&one.file_name).into(),
            units::bytes(one.size_bytes).into(),
            one.create_time.as_ref().map(units::stamp).unwrap_or_default().into(),
            names::short("firmware", &one.name).into(),
        ]);
    }
    table
}

async fn report(cx: &Cx, drift: bool) -> Result<(), CliError> {
    let client = cx.client().await?;
    let mut nodes = pages::all(async |page_token| {
        let request = GetFirmwareReportRequest {
            page_size: 1000,
            page_token,
        };
        let doing = "read the firmware report";
        let page = rpc!(client, FirmwareServiceClient.get_firmware_report, doing, request).await?;
        Ok((page.nodes, page.next_page_token))
    })
    .await?;
    let all = nodes.len();
    let compliant = nodes.iter().filter(|node| node.state == "compliant").count();
    nodes.retain(|node| !drift || node.state != "compliant");
    let width = cx.ui.width();
    cx.ui.list(&nodes, |paint| {
        let head = format!("{compliant} of {all} nodes have the firmware that their SKU wants\n");
        match nodes.is_empty() {
            true => head,
            false => format!("{head}\n{}", compliance(&nodes).render(paint, width)),
        }
    })
}

fn compliance(nodes: &[NodeCompliance]) -> Table {
    let mut table = Table::new(&["NODE", "SKU", "STATE", "READ", "DIFFERS"]);
    for node in nodes {
        let tone = match node.state.as_str() {
            "compliant" => Tone::Good,
            "drift" => Tone::Bad,
            _ => Tone::Dim,
        };
        let differs: Vec<String> = node.rows.iter().map(difference).collect();
        table.row([
            names::short("nodes", &node.node).into(),
            (&node.sku).into(),
            Cell::toned(&node.state, tone),
            node.seen_time.as_ref().map(units::stamp).unwrap_or_default().into(),
            differs.join("; ").into(),
        ]);
    }
    table
}

fn difference(row: &FirmwareRow) -> String {
    let installed = if row.installed.is_empty() { "-" } else { &row.installed };
    format!("{} {installed} -> {} ({})", row.component, row.wanted, row.verdict)
}
