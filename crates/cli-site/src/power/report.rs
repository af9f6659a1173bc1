//! `rackwright power report`

use clap::Args;
use rackwright_api::v1::power_service_client::PowerServiceClient;
use rackwright_api::v1::{GetPowerReportRequest, PowerHeadroom};
use rackwright_cli_context::client::{Client, rpc};
use rackwright_cli_context::error::CliError;
use rackwright_cli_context::output::table::Cell;
use rackwright_cli_context::output::{Table, Tone};
use rackwright_cli_context::{Cx, pages};

use super::{kw, maybe};

/// Rows of one page.
const PAGE: i32 = 1000;

/// `rackwright power report`
#[derive(Debug, Args)]
pub struct ReportArgs {
    /// Level: utility, panel, feed, circuit, rack-pdu or power-shelf
    #[arg(long, default_value = "circuit", value_name = "LEVEL")]
    level: String,
    /// Maximum number of rows; rows with the least headroom are shown first
    #[arg(long, default_value_t = 1000, value_name = "N")]
    limit: usize,
}

/// Shows headroom and stranded power.
pub async fn run(cx: &Cx, args: ReportArgs) -> Result<(), CliError> {
    let client = cx.client().await?;
    let (rows, total) = all(&client, &args).await?;
    if rows.len() < total {
        cx.ui.note(&format!(
            "note: {} of {total} rows are shown; --limit shows more",
            rows.len()
        ));
    }
    let width = cx.ui.width();
    cx.ui.list(&rows, |paint| table(&rows).render(paint, width))
}

async fn all(client: &Client, args: &ReportArgs) -> Result<(Vec<PowerHeadroom>, usize), CliError> {
    let mut total = 0;
    // Also for no rows, the server states their total.
    let mut rows = pages::first(args.limit.max(1), PAGE, async |page_size, page_token| {
        let request = GetPowerReportRequest {
            level: args.level.clone(),
            page_size,
            page_token,
        };
        let page = rpc!(
            client,
            PowerServiceClient.get_power_report,
            "read the power report",
            request
        )
        .await?;
        total = page.total;
        Ok((page.rows, page.next_page_token))
    })
    .await?;
    rows.truncate(args.limit);
    Ok((rows, usize::try_from(total).unwrap_or(0)))
}

fn table(rows: &[PowerHeadroom]) -> Table {
    let mut table = Table::new(&[
        "NAME", "KIND", "FEED", "CARRIES", "RESERVED", "WORST", "MEASURED", "HEADROOM", "STRANDED",
    ]);
    for row in rows {
        let headroom = match row.headroom_watts {
            left if left < 0.0 => Cell::toned(kw(left), Tone::Bad),
            left => kw(left).into(),
        };
        table.row([
            (&row.name).into(),
            (&row.kind).into(),
            (&row.feed).into(),
            kw(row.derated_watts).into(),
            kw(row.reserved_watts).into(),
            kw(row.worst_watts).into(),
            maybe(row.measured_watts).into(),
            headroom,
            kw(row.stranded_watts).into(),
        ]);
    }
    table
}
