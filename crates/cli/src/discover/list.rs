//! `rackwright discover list`

use rackwright_api::v1::discovery_service_client::DiscoveryServiceClient;
use rackwright_api::v1::{Discovery, ListDiscoveriesRequest};
use rackwright_cli_context::client::rpc;
use rackwright_cli_context::error::CliError;
use rackwright_cli_context::output::table::Cell;
use rackwright_cli_context::output::{Table, Tone};
use rackwright_cli_context::{Cx, names, units};

use super::counts;

/// Shows discoveries.
pub async fn run(cx: &Cx) -> Result<(), CliError> {
    let client = cx.client().await?;
    let request = ListDiscoveriesRequest {
        page_size: super::PAGE,
        page_token: String::new(),
    };
    // The server stores far fewer discoveries than a page holds.
    let page = rpc!(
        client,
        DiscoveryServiceClient.list_discoveries,
        "list discoveries",
        request
    )
    .await?;
    let width = cx.ui.width();
    cx.ui.list(&page.discoveries, |paint| {
        if page.discoveries.is_empty() {
            return "no discovery yet; start a discovery with `rackwright discover start`\n".to_owned();
        }
        table(&page.discoveries).render(paint, width)
    })
}

fn table(discoveries: &[Discovery]) -> Table {
    let mut table = Table::new(&[
        "DISCOVERY",
        "BEGAN",
        "BY",
        "PHASE",
        "CHECKED",
        "SILENT",
        "FOUND",
        "NOTES",
    ]);
    for one in discoveries {
        let tone = match (one.phase.as_str(), one.message.is_empty()) {
            ("done", true) => Tone::Good,
            ("done", false) => Tone::Bad,
            _ => Tone::Busy,
        };
        table.row([
            names::short("discoveries", &one.name).into(),
            one.create_time.as_ref().map(units::stamp).unwrap_or_default().into(),
            one.requested_by.as_str().into(),
            Cell::toned(&one.phase, tone),
            format!("{}/{}", one.reached, one.total).into(),
            one.silent.to_string().into(),
            counts(one).into(),
            one.message.as_str().into(),
        ]);
    }
    table
}
