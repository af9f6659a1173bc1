//! `rackwright usage breaches`, and the breaches of isolation under the sums.

use rackwright_api::v1::metering_service_client::MeteringServiceClient;
use rackwright_api::v1::{ListUsageBreachesRequest, ListUsageBreachesResponse, UsageBreach};
use rackwright_cli_context::client::{Client, rpc};
use rackwright_cli_context::error::{CliError, plural};
use rackwright_cli_context::output::table::Cell;
use rackwright_cli_context::output::{Format, Paint, Table, Tone, json};
use rackwright_cli_context::{Cx, pages, units};
use serde_json::Value;

use super::csv::Csv;
use super::{PeriodArgs, cluster, is_csv, stamp};

/// Breaches of one page.
const PAGE: i32 = 1000;

/// Shows breaches.
pub async fn run(cx: &Cx, args: PeriodArgs) -> Result<(), CliError> {
    args.check()?;
    let client = cx.client().await?;
    let all = all(&client, &args).await?;
    note_open(cx, &all);
    if is_csv(cx) {
        return cx.ui.line(csv(&all.breaches).as_line());
    }
    match cx.ui.format() {
        Format::Json | Format::Yaml => cx.ui.value(&value(&all)?),
        _ => {
            let width = cx.ui.width();
            cx.ui.item(&all, |paint| table(&all.breaches, paint, width))
        }
    }
}

/// All breaches, page by page. The server counts open breaches up to the same second on each page.
pub async fn all(client: &Client, period: &PeriodArgs) -> Result<ListUsageBreachesResponse, CliError> {
    let mut all = ListUsageBreachesResponse::default();
    all.breaches = pages::all(async |page_token| {
        let request = ListUsageBreachesRequest {
            page_size: PAGE,
            page_token,
            start_time: Some(period.from),
            end_time: period.to,
            customer: period.customer(),
            cluster: period.cluster(),
        };
        let doing = "list breaches of isolation";
        let page = rpc!(client, MeteringServiceClient.list_usage_breaches, doing, request).await?;
        (all.start_time, all.end_time) = (page.start_time, page.end_time);
        Ok((page.breaches, page.next_page_token))
    })
    .await?;
    Ok(all)
}

/// Says up to which second open breaches are counted.
pub fn note_open(cx: &Cx, all: &ListUsageBreachesResponse) {
    let open = all.breaches.iter().filter(|breach| breach.end_time.is_none()).count();
    if let Some(end) = all.end_time.as_ref().filter(|_| open > 0) {
        cx.ui.note(&format!(
            "note: {} of isolation still open, counted up to {}",
            plural(open, "breach"),
            units::stamp(end)
        ));
    }
}

/// The answer as a value, with the breaches of all pages.
pub fn value(all: &ListUsageBreachesResponse) -> Result<Value, CliError> {
    let mut value = json::to_value(all)?;
    if let Value::Object(object) = &mut value {
        object.shift_remove("next_page_token");
    }
    Ok(value)
}

fn csv(breaches: &[UsageBreach]) -> Csv<7> {
    let mut csv = Csv::new([
        "kind",
        "customer",
        "cluster",
        "good_time",
        "since",
        "end_time",
        "seconds",
    ]);
    for breach in breaches {
        csv.row([
            &breach.kind,
            &breach.customer,
            cluster(&breach.cluster),
            &stamp(breach.good_time.as_ref()),
            &stamp(breach.since.as_ref()),
            &stamp(breach.end_time.as_ref()),
            &breach.seconds.to_string(),
        ]);
    }
    csv
}

/// A breach at ports of an unknown cluster has no customer.
fn or_unknown(name: &str) -> &str {
    if name.is_empty() { "unknown" } else { name }
}

/// One line for each breach.
pub fn table(breaches: &[UsageBreach], paint: Paint, width: Option<usize>) -> String {
    let mut table = Table::new(&[
        "BREACH",
        "CUSTOMER",
        "CLUSTER",
        "LAST GOOD",
        "SEEN FIRST",
        "UNTIL",
        "SECONDS",
    ]);
    for breach in breaches {
        let good = match &breach.good_time {
            Some(time) => units::stamp(time),
            None => "unknown".to_owned(),
        };
        let until = match &breach.end_time {
            Some(end) => Cell::from(units::stamp(end)),
            None => Cell::toned("still open", Tone::Bad),
        };
        table.row([
            Cell::toned(&breach.kind, Tone::Bad),
            or_unknown(&breach.customer).into(),
            or_unknown(cluster(&breach.cluster)).into(),
            good.into(),
            stamp(breach.since.as_ref()).into(),
            until,
            breach.seconds.to_string().into(),
        ]);
    }
    table.render(paint, width)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_breach_at_ports_of_no_known_cluster_is_shown_as_unknown() {
        let breach = UsageBreach {
            kind: "foreign-key".into(),
            ..UsageBreach::default()
        };
        let shown = table(&[breach], Paint::PLAIN, None);
        let row: Vec<&str> = shown.lines().nth(1).unwrap_or_default().split_whitespace().collect();
        assert_eq!(row[..4], ["foreign-key", "unknown", "unknown", "unknown"], "{shown}");
    }
}
