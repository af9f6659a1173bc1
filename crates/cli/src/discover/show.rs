//! `rackwright discover show`

use clap::Args;
use rackwright_api::v1::discovery_service_client::DiscoveryServiceClient;
use rackwright_api::v1::{Discovery, Finding, GetDiscoveryRequest};
use rackwright_cli_context::client::rpc;
use rackwright_cli_context::error::CliError;
use rackwright_cli_context::output::{Format, Paint, Table, clean};
use rackwright_cli_context::{Cx, names, units};

use super::{chosen, counts, findings, short_address, state_cell};

/// `rackwright discover show`
#[derive(Debug, Args)]
pub struct ShowArgs {
    /// The discovery (default: the newest one)
    discovery: Option<String>,
    /// Only findings of this state: new, known, moved, conflict, login-needed, login-refused, unreadable, unreachable,
    /// not-redfish, enrolled, same
    #[arg(long)]
    state: Option<String>,
}

/// Shows the findings.
pub async fn run(cx: &Cx, args: ShowArgs) -> Result<(), CliError> {
    let client = cx.client().await?;
    let parent = chosen(&client, args.discovery.as_deref()).await?;
    let all = findings(&client, &parent, args.state.as_deref().unwrap_or_default()).await?;
    if cx.ui.format() != Format::Table {
        return cx.ui.list(&all, |_| String::new());
    }
    let request = GetDiscoveryRequest { name: parent };
    let discovery = rpc!(
        client,
        DiscoveryServiceClient.get_discovery,
        "read the discovery",
        request
    )
    .await?;
    let width = cx.ui.width();
    cx.ui
        .list(&all, |paint| summary(&discovery) + &table(&all, paint, width))
}

fn summary(discovery: &Discovery) -> String {
    let began = discovery.create_time.as_ref().map(units::stamp).unwrap_or_default();
    let found = counts(discovery);
    let mut text = format!(
        "{}: {}, {}/{} addresses checked, {} silent; {}\nbegan {began} by {}",
        names::short("discoveries", &discovery.name),
        discovery.phase,
        discovery.reached,
        discovery.total,
        discovery.silent,
        if found.is_empty() { "nothing found" } else { &found },
        discovery.requested_by,
    );
    if let Some(ended) = &discovery.end_time {
        text += &format!(", ended {}", units::stamp(ended));
    }
    if !discovery.message.is_empty() {
        text += &format!("\nnote: {}", clean(&discovery.message));
    }
    text + "\n\n"
}

fn table(findings: &[Finding], paint: Paint, width: Option<usize>) -> String {
    if findings.is_empty() {
        return "no findings\n".to_owned();
    }
    let mut table = Table::new(&[
        "ADDRESS", "STATE", "NODE", "MAKER", "MODEL", "SERIAL", "RACK", "ALSO AT", "WHY",
    ]);
    for one in findings {
        let maker = if one.manufacturer.is_empty() {
            &one.vendor
        } else {
            &one.manufacturer
        };
        let model = if one.model.is_empty() { &one.product } else { &one.model };
        let also: Vec<&str> = one
            .other_addresses
            .iter()
            .map(|address| short_address(address))
            .collect();
        let place = match (one.rack.as_str(), one.unit) {
            (rack, 0) => rack.to_owned(),
            (rack, unit) => format!("{rack} u{unit}").trim().to_owned(),
        };
        table.row([
            short_address(&one.address).into(),
            state_cell(&one.state),
            names::short("nodes", &one.node).into(),
            maker.into(),
            model.into(),
            one.serial.as_str().into(),
            place.into(),
            also.join(" ").into(),
            one.reason.as_str().into(),
        ]);
    }
    table.render(paint, width)
}
