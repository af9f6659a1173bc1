//! `rackwright usage sum`

use rackwright_api::v1::metering_service_client::MeteringServiceClient;
use rackwright_api::v1::{SumUsageRequest, SumUsageResponse, UsageSum};
use rackwright_cli_context::client::rpc;
use rackwright_cli_context::error::{CliError, plural};
use rackwright_cli_context::output::table::Cell;
use rackwright_cli_context::output::{Format, Paint, Table, Tone, json};
use rackwright_cli_context::{Cx, units};
use serde_json::Value;

use super::csv::Csv;
use super::{PeriodArgs, breaches, cluster, is_csv};

/// Shows sums, and the breaches of isolation in the period.
pub async fn run(cx: &Cx, args: PeriodArgs) -> Result<(), CliError> {
    args.check()?;
    let client = cx.client().await?;
    let request = SumUsageRequest {
        start_time: Some(args.from),
        end_time: args.to,
        customer: args.customer(),
        cluster: args.cluster(),
    };
    let answer = rpc!(client, MeteringServiceClient.sum_usage, "sum usage", request).await?;
    let total = checked_total(&answer)?;
    if let Some(end) = answer.end_time.as_ref().filter(|_| total.open) {
        cx.ui.note(&format!(
            "note: nodes still in use are counted up to {}",
            units::stamp(end)
        ));
    }
    let breached = breaches::all(&client, &args).await?;
    let count = breached.breaches.len();
    match (is_csv(cx), cx.ui.format()) {
        // These forms have one kind of row.
        (true, _) | (false, Format::Name) if count > 0 => cx.ui.note(&format!(
            "note: {} of isolation in the period; `rackwright usage breaches` shows each",
            plural(count, "breach")
        )),
        _ => breaches::note_open(cx, &breached),
    }
    if is_csv(cx) {
        return cx.ui.line(csv(&answer.sums).as_line());
    }
    if matches!(cx.ui.format(), Format::Json | Format::Yaml) {
        let mut value = json::to_value(&answer)?;
        if let (Value::Object(object), Value::Object(mut other)) = (&mut value, breaches::value(&breached)?) {
            object.extend(other.shift_remove_entry("breaches"));
        }
        return cx.ui.value(&value);
    }
    let width = cx.ui.width();
    cx.ui.item(&answer, |paint| {
        let mut text = table(&answer.sums, &total, paint, width);
        if count > 0 {
            text.push('\n');
            text.push_str(&breaches::table(&breached.breaches, paint, width));
        }
        text
    })
}

/// The total as sent. Bills are based on it, so a total that differs from the sum of its rows is not shown.
fn checked_total(answer: &SumUsageResponse) -> Result<UsageSum, CliError> {
    let total = answer.total.clone().unwrap_or_default();
    let mut sums = (0i64, 0i64, 0i64);
    for sum in &answer.sums {
        sums.0 += sum.reserved_node_seconds;
        sums.1 += sum.on_demand_node_seconds;
        sums.2 += sum.node_seconds;
    }
    let sent = (
        total.reserved_node_seconds,
        total.on_demand_node_seconds,
        total.node_seconds,
    );
    if sums != sent || sums.0 + sums.1 != sums.2 {
        return Err(CliError::BadAnswer(format!(
            "its rows sum to {sums:?}, but the total is {sent:?}"
        )));
    }
    Ok(total)
}

fn csv(sums: &[UsageSum]) -> Csv<7> {
    let mut csv = Csv::new([
        "customer",
        "cluster",
        "sku",
        "reserved_node_seconds",
        "on_demand_node_seconds",
        "node_seconds",
        "open",
    ]);
    for sum in sums {
        csv.row([
            &sum.customer,
            cluster(&sum.cluster),
            &sum.sku,
            &sum.reserved_node_seconds.to_string(),
            &sum.on_demand_node_seconds.to_string(),
            &sum.node_seconds.to_string(),
            &sum.open.to_string(),
        ]);
    }
    csv
}

fn table(sums: &[UsageSum], total: &UsageSum, paint: Paint, width: Option<usize>) -> String {
    let mut table = Table::new(&[
        "CUSTOMER",
        "CLUSTER",
        "SKU",
        "RESERVED",
        "ON-DEMAND",
        "NODE-SECONDS",
        "STATE",
    ]);
    for sum in sums {
        table.row([
            sum.customer.as_str().into(),
            cluster(&sum.cluster).into(),
            sum.sku.as_str().into(),
            sum.reserved_node_seconds.to_string().into(),
            sum.on_demand_node_seconds.to_string().into(),
            sum.node_seconds.to_string().into(),
            if sum.open {
                Cell::toned("open", Tone::Busy)
            } else {
                "ended".into()
            },
        ]);
    }
    let strong = |count: i64| Cell::toned(count.to_string(), Tone::Strong);
    table.row([
        Cell::toned("total", Tone::Strong),
        "".into(),
        "".into(),
        strong(total.reserved_node_seconds),
        strong(total.on_demand_node_seconds),
        strong(total.node_seconds),
        "".into(),
    ]);
    table.render(paint, width)
}
