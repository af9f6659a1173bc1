//! `rackwright power report`

use clap::Args;
use rackwright_api::v1::power_service_client::PowerServiceClient;
use rackwright_api::v1::{GetPowerReportRequest, PowerHeadroom};
use rackwright_cli_context::Cx;
use rackwright_cli_context::client::{Client, rpc};
use rackwright_cli_context::error::CliError;
use rackwright_cli_context::output::table::Cell;
use rackwright_cli_context::output::{Table, Tone};

use super::{kw, maybe};

/// Rows of one page.
const PAGE: usize = 1000;

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
    let (mut rows, mut page_token) = (Vec::new(), String::new());
    loop {
        let left = args.limit - rows.len();
        let request = GetPowerReportRequest {
            level: args.level.clone(),
            page_size: i32::try_from(left.clamp(1, PAGE)).unwrap_or(1),
            page_token,
        };
        let page = rpc!(
            client,
            PowerServiceClient.get_power_report,
            "read the power report",
            request
        )
        .await?;
        rows.extend(page.rows);
        rows.truncate(args.limit);
        page_token = page.next_page_token;
        if page_token.is_empty() || rows.len() >= args.limit {
            return Ok((rows, usize::try_from(page.total).unwrap_or(0)));
        }
    }
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
