//! `rackwright power alarms`

use rackwright_api::v1::power_service_client::PowerServiceClient;
use rackwright_api::v1::{Alarm, ListAlarmsRequest, ReadingCoverage};
use rackwright_cli_context::client::{Client, rpc};
use rackwright_cli_context::error::CliError;
use rackwright_cli_context::output::table::Cell;
use rackwright_cli_context::output::{Table, Tone};
use rackwright_cli_context::{Cx, pages, units};

/// Alarms of one page.
const PAGE: i32 = 500;

/// Shows the open alarms.
pub async fn run(cx: &Cx) -> Result<(), CliError> {
    let client = cx.client().await?;
    let (alarms, coverage) = all(&client).await?;
    let width = cx.ui.width();
    cx.ui.list(&alarms, |paint| {
        let read = read(&coverage);
        if alarms.is_empty() {
            return read;
        }
        format!("{}\n{read}", table(&alarms).render(paint, width))
    })
}

/// A text about the devices that are read, and that nothing is known of the others.
fn read(coverage: &[ReadingCoverage]) -> String {
    let known: i32 = coverage.iter().map(|of| of.known).sum();
    if known == 0 {
        return "the state of power and cooling is unknown: no device is read. The site file names the devices to read, \
            `facility` in the settings the way to read them (docs/power.md)\n"
            .to_owned();
    }
    let counts: Vec<String> = coverage
        .iter()
        .map(|of| {
            let things = match of.kind.as_str() {
                "node" => "nodes",
                "pdu" => "PDUs",
                "cooling" => "cooling units",
                other => other,
            };
            format!("{} of {} {things}", of.read, of.known)
        })
        .collect();
    let is_whole = coverage.iter().all(|of| of.read >= of.known);
    let rest = if is_whole {
        ""
    } else {
        "; the state of the others is unknown"
    };
    format!("alarms cover the devices that are read: {}{rest}\n", counts.join(", "))
}

async fn all(client: &Client) -> Result<(Vec<Alarm>, Vec<ReadingCoverage>), CliError> {
    let mut coverage = Vec::new();
    let alarms = pages::all(async |page_token| {
        let request = ListAlarmsRequest {
            page_size: PAGE,
            page_token,
        };
        let page = rpc!(client, PowerServiceClient.list_alarms, "list alarms", request).await?;
        coverage.extend(page.coverage);
        Ok((page.alarms, page.next_page_token))
    })
    .await?;
    Ok((alarms, coverage))
}

fn table(alarms: &[Alarm]) -> Table {
    let mut table = Table::new(&["SEVERITY", "SUBJECT", "SINCE", "NODES", "BLOCKS", "MESSAGE", "ADVICE"]);
    for alarm in alarms {
        let tone = if alarm.severity == "critical" {
            Tone::Bad
        } else {
            Tone::Busy
        };
        let holds = match (alarm.blocks, alarm.cordons) {
            (true, _) => "starts, placement",
            (false, true) => "placement",
            (false, false) => "",
        };
        table.row([
            Cell::toned(&alarm.severity, tone),
            (&alarm.subject).into(),
            alarm.open_time.as_ref().map(units::stamp).unwrap_or_default().into(),
            alarm.node_count.to_string().into(),
            holds.into(),
            (&alarm.message).into(),
            (&alarm.advice).into(),
        ]);
    }
    table
}
