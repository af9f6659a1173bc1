//! `rackwright boot ...`: the network boots of machines, as they were observed.

use clap::Subcommand;
use rackwright_api::v1::boot_service_client::BootServiceClient;
use rackwright_api::v1::{
    GetCountersRequest, ListUnknownMachinesRequest, TraceBootRequest, TraceBootResponse, UnknownMachine,
};
use rackwright_cli_context::client::{Client, rpc};
use rackwright_cli_context::error::CliError;
use rackwright_cli_context::output::table::Cell;
use rackwright_cli_context::output::{Format, Paint, Table, Tone, clean};
use rackwright_cli_context::{Cx, names, nodes, pages, units};

/// Unknown machines of one page.
const PAGE: i32 = 200;

const UNKNOWN: [&str; 8] = [
    "MAC",
    "FIRST SEEN",
    "LAST SEEN",
    "MODEL",
    "SERIAL NUMBER",
    "ARCHITECTURE",
    "RELAY",
    "SYSTEM UUID",
];

/// `rackwright boot`
#[derive(Debug, Subcommand)]
pub enum BootCommand {
    /// Show the recorded boot stages of a machine, oldest first
    Trace {
        /// MAC address, or a node for all its MAC addresses
        #[arg(value_name = "MAC|NODE")]
        machine: String,
    },
    /// Show machines that sent a boot request and belong to no node
    Unknown,
    /// Show the counters of the boot servers
    Counters,
}

/// Runs a boot command.
pub async fn run(cx: &Cx, command: BootCommand) -> Result<(), CliError> {
    let client = cx.client().await?;
    match command {
        BootCommand::Trace { machine } => trace(cx, &client, &machine).await,
        BootCommand::Unknown => unknown(cx, &client).await,
        BootCommand::Counters => counters(cx, &client).await,
    }
}

async fn trace(cx: &Cx, client: &Client, machine: &str) -> Result<(), CliError> {
    let macs = match names::mac(machine) {
        Some(mac) => vec![mac],
        None => node_macs(client, machine).await?,
    };
    let mut traces = Vec::new();
    for mac in macs {
        let request = TraceBootRequest { mac: mac.clone() };
        traces.push(
            rpc!(
                client,
                BootServiceClient.trace_boot,
                format!("trace the boot of {mac}"),
                request
            )
            .await?,
        );
    }
    let width = cx.ui.width();
    cx.ui.items(&traces, |paint| {
        traces.iter().map(|trace| trace_text(trace, paint, width)).collect()
    })
}

async fn node_macs(client: &Client, id: &str) -> Result<Vec<String>, CliError> {
    let macs = nodes::get(client, id).await?.status.unwrap_or_default().macs;
    if macs.is_empty() {
        return Err(CliError::usage(
            format!("no MAC address of node {id} is known yet"),
            "give a MAC address, or wait until the node is inspected",
        ));
    }
    Ok(macs)
}

fn trace_text(trace: &TraceBootResponse, paint: Paint, width: Option<usize>) -> String {
    let node = if trace.node.is_empty() {
        "belongs to no node"
    } else {
        names::short("nodes", &trace.node)
    };
    let mut text = format!("{}  {}\n", paint.tone(Tone::Strong, &clean(&trace.mac)), clean(node));
    if trace.stages.is_empty() {
        text.push_str("  no boot stage is recorded\n");
        return text;
    }
    let mut table = Table::new(&["TIME", "AFTER", "STAGE", "FROM", "DETAIL"]).indented(2);
    let mut before = None;
    for stage in &trace.stages {
        let after = units::between(before, stage.time.as_ref()).map(|seconds| format!("+{seconds:.2} s"));
        let tone = if stage.stage == "refused" {
            Tone::Bad
        } else {
            Tone::Strong
        };
        table.row([
            stage.time.as_ref().map(units::stamp).unwrap_or_default().into(),
            after.unwrap_or_default().into(),
            Cell::toned(&stage.stage, tone),
            (&stage.remote).into(),
            (&stage.detail).into(),
        ]);
        before = stage.time.as_ref();
    }
    text + &table.render(paint, width)
}

/// All unknown machines, page by page.
async fn all_unknown(client: &Client) -> Result<Vec<UnknownMachine>, CliError> {
    pages::all(async |page_token| {
        let request = ListUnknownMachinesRequest {
            page_size: PAGE,
            page_token,
        };
        let doing = "list unknown machines";
        let page = rpc!(client, BootServiceClient.list_unknown_machines, doing, request).await?;
        Ok((page.machines, page.next_page_token))
    })
    .await
}

async fn unknown(cx: &Cx, client: &Client) -> Result<(), CliError> {
    let machines = all_unknown(client).await?;
    let width = cx.ui.width();
    cx.ui.list(&machines, |paint| {
        let now = units::now();
        let age = |time: &Option<prost_types::Timestamp>| time.as_ref().map(|t| units::age(units::since(t, now)));
        let mut table = Table::new(&UNKNOWN);
        for machine in &machines {
            let dmi = machine.inventory.clone().unwrap_or_default().dmi.unwrap_or_default();
            table.row([
                (&machine.mac).into(),
                age(&machine.first_seen).unwrap_or_default().into(),
                age(&machine.last_seen).unwrap_or_default().into(),
                format!("{} {}", dmi.system_vendor, dmi.product_name).trim().into(),
                dmi.serial_number.into(),
                (&machine.architecture).into(),
                (&machine.relay).into(),
                (&machine.system_uuid).into(),
            ]);
        }
        table.render(paint, width)
    })
}

async fn counters(cx: &Cx, client: &Client) -> Result<(), CliError> {
    let answer = rpc!(
        client,
        BootServiceClient.get_counters,
        "read the counters",
        GetCountersRequest {}
    )
    .await?;
    if cx.ui.format() != Format::Table {
        return cx.ui.item(&answer, |_| String::new());
    }
    let mut counters: Vec<_> = answer.counters.iter().collect();
    counters.sort();
    let mut table = Table::new(&["COUNTER", "VALUE"]);
    for (name, value) in counters {
        table.row([name.into(), value.to_string().into()]);
    }
    cx.ui.item(&answer, |paint| table.render(paint, None))
}
