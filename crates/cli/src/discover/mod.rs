//! `rackwright discover`: BMCs of the management network, and the machines behind them.

mod enrol;
mod list;
mod show;
mod start;

use clap::Subcommand;
use rackwright_api::v1::discovery_service_client::DiscoveryServiceClient;
use rackwright_api::v1::{Discovery, Finding, ListDiscoveriesRequest, ListFindingsRequest};
use rackwright_cli_context::client::{Client, rpc};
use rackwright_cli_context::error::CliError;
use rackwright_cli_context::output::Tone;
use rackwright_cli_context::output::table::Cell;
use rackwright_cli_context::{Cx, names, pages};

/// Findings of one page.
const PAGE: i32 = 1000;

/// `rackwright discover`
#[derive(Debug, Subcommand)]
pub enum DiscoverCommand {
    /// Search for BMCs in address ranges, tables, lease files and by SSDP; nothing is enrolled
    Start(start::StartArgs),
    /// Show discoveries, the newest first
    List,
    /// Show the findings of a discovery
    Show(show::ShowArgs),
    /// Enrol found machines
    Enrol(enrol::EnrolArgs),
}

/// Runs a discover command.
pub async fn run(cx: &Cx, command: DiscoverCommand) -> Result<(), CliError> {
    match command {
        DiscoverCommand::Start(args) => start::run(cx, args).await,
        DiscoverCommand::List => list::run(cx).await,
        DiscoverCommand::Show(args) => show::run(cx, args).await,
        DiscoverCommand::Enrol(args) => enrol::run(cx, args).await,
    }
}

/// The name of the given discovery, or of the newest one.
async fn chosen(client: &Client, id: Option<&str>) -> Result<String, CliError> {
    if let Some(id) = id {
        // The discovery's operation has the same id.
        return Ok(names::full("discoveries", names::last(id)));
    }
    let request = ListDiscoveriesRequest {
        page_size: 1,
        page_token: String::new(),
    };
    let newest = rpc!(
        client,
        DiscoveryServiceClient.list_discoveries,
        "list discoveries",
        request
    )
    .await?;
    let newest: Option<Discovery> = newest.discoveries.into_iter().next();
    newest.map(|discovery| discovery.name).ok_or_else(|| {
        CliError::usage(
            "there is no discovery yet",
            "start a discovery with `rackwright discover start --range 10.0.0.0/24`",
        )
    })
}

/// All findings of a state; for an empty state, all findings.
async fn findings(client: &Client, parent: &str, state: &str) -> Result<Vec<Finding>, CliError> {
    pages::all(async |page_token| {
        let request = ListFindingsRequest {
            parent: parent.to_owned(),
            page_size: PAGE,
            page_token,
            state: state.to_owned(),
        };
        let page = rpc!(client, DiscoveryServiceClient.list_findings, "list findings", request).await?;
        Ok((page.findings, page.next_page_token))
    })
    .await
}

/// A state in its colour.
fn state_cell(state: &str) -> Cell {
    let tone = match state {
        "new" | "enrolled" => Tone::Good,
        "conflict" | "login-refused" | "unreadable" | "unreachable" => Tone::Bad,
        "moved" | "login-needed" => Tone::Busy,
        _ => Tone::Dim,
    };
    Cell::toned(state, tone)
}

/// `3 new, 12 known`; states without findings are left out.
fn counts(discovery: &Discovery) -> String {
    const ORDER: [&str; 12] = [
        "new",
        "moved",
        "conflict",
        "login-needed",
        "login-refused",
        "unreadable",
        "unreachable",
        "known",
        "enrolled",
        "same",
        "not-redfish",
        "read",
    ];
    let count = |state: &&str| discovery.counts.get(*state).copied().unwrap_or_default();
    let some: Vec<String> = ORDER
        .iter()
        .filter(|state| count(state) > 0)
        .map(|state| format!("{} {state}", count(state)))
        .collect();
    some.join(", ")
}

/// Without `https://`, which nearly all addresses have.
fn short_address(address: &str) -> &str {
    address.strip_prefix("https://").unwrap_or(address)
}
