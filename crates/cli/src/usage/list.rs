//! `rackwright usage list`

use clap::Args;
use rackwright_api::v1::metering_service_client::MeteringServiceClient;
use rackwright_api::v1::{ListUsageRequest, ListUsageResponse, UsageRecord};
use rackwright_cli_context::client::{Client, rpc};
use rackwright_cli_context::error::{CliError, plural};
use rackwright_cli_context::output::table::Cell;
use rackwright_cli_context::output::{Format, Paint, Table, Tone, json};
use rackwright_cli_context::{Cx, names, pages, units};
use serde_json::Value;

use super::csv::Csv;
use super::{PeriodArgs, cluster, is_csv, stamp};

/// Records of one page.
const PAGE: i32 = 1000;

/// `rackwright usage list`
#[derive(Debug, Args)]
pub struct ListArgs {
    #[command(flatten)]
    period: PeriodArgs,
}

/// Shows records.
pub async fn run(cx: &Cx, args: ListArgs) -> Result<(), CliError> {
    args.period.check()?;
    let client = cx.client().await?;
    let all = all(&client, &args.period).await?;
    let total = all.records.iter().map(|record| record.node_seconds).sum::<i64>();
    note_open(cx, &all);
    if is_csv(cx) {
        return cx.ui.line(csv(&all.records).as_line());
    }
    match cx.ui.format() {
        Format::Json | Format::Yaml => cx.ui.value(&value(&all, total)?),
        _ => {
            let width = cx.ui.width();
            cx.ui.item(&all, |paint| table(&all.records, total, paint, width))
        }
    }
}

/// All records, page by page. The server counts usage in progress up to the same second on each page.
async fn all(client: &Client, period: &PeriodArgs) -> Result<ListUsageResponse, CliError> {
    let mut all = ListUsageResponse::default();
    all.records = pages::all(async |page_token| {
        let request = ListUsageRequest {
            page_size: PAGE,
            page_token,
            start_time: Some(period.from),
            end_time: period.to,
            customer: period.customer(),
            cluster: period.cluster(),
        };
        let page = rpc!(client, MeteringServiceClient.list_usage, "list usage", request).await?;
        (all.start_time, all.end_time) = (page.start_time, page.end_time);
        Ok((page.records, page.next_page_token))
    })
    .await?;
    Ok(all)
}

fn note_open(cx: &Cx, all: &ListUsageResponse) {
    let open = all.records.iter().filter(|record| record.open).count();
    if let Some(end) = all.end_time.as_ref().filter(|_| open > 0) {
        cx.ui.note(&format!(
            "note: {} still in use, counted up to {}",
            plural(open, "node"),
            units::stamp(end)
        ));
    }
}

fn csv(records: &[UsageRecord]) -> Csv<8> {
    let mut csv = Csv::new([
        "node",
        "customer",
        "cluster",
        "sku",
        "start_time",
        "end_time",
        "node_seconds",
        "open",
    ]);
    for record in records {
        csv.row([
            names::short("nodes", &record.node),
            &record.customer,
            cluster(&record.cluster),
            &record.sku,
            &stamp(record.start_time.as_ref()),
            &stamp(record.end_time.as_ref()),
            &record.node_seconds.to_string(),
            &record.open.to_string(),
        ]);
    }
    csv
}

fn value(all: &ListUsageResponse, total: i64) -> Result<Value, CliError> {
    let mut value = json::to_value(all)?;
    if let Value::Object(object) = &mut value {
        // Of the last page: the result contains all pages.
        object.shift_remove("next_page_token");
        object.insert("node_seconds".to_owned(), total.into());
    }
    Ok(value)
}

fn table(records: &[UsageRecord], total: i64, paint: Paint, width: Option<usize>) -> String {
    let mut table = Table::new(&[
        "FROM",
        "TO",
        "NODE",
        "CUSTOMER",
        "CLUSTER",
        "SKU",
        "NODE-SECONDS",
        "STATE",
    ]);
    for record in records {
        table.row([
            stamp(record.start_time.as_ref()).into(),
            stamp(record.end_time.as_ref()).into(),
            names::short("nodes", &record.node).into(),
            record.customer.as_str().into(),
            cluster(&record.cluster).into(),
            record.sku.as_str().into(),
            record.node_seconds.to_string().into(),
            if record.open {
                Cell::toned("open", Tone::Busy)
            } else {
                "ended".into()
            },
        ]);
    }
    table.row([
        Cell::toned("total", Tone::Strong),
        "".into(),
        "".into(),
        "".into(),
        "".into(),
        "".into(),
        Cell::toned(total.to_string(), Tone::Strong),
        "".into(),
    ]);
    table.render(paint, width)
}
