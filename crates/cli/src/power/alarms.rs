//! `rackwright power alarms`

use rackwright_api::v1::power_service_client::PowerServiceClient;
use rackwright_api::v1::{Alarm, ListAlarmsRequest};

use crate::args::Cx;
use crate::client::{Client, rpc};
use crate::error::CliError;
use crate::output::table::Cell;
use crate::output::{Table, Tone};
use crate::units;

/// Alarms of one page.
const PAGE: i32 = 500;

/// Shows what is wrong now.
pub async fn run(cx: &Cx) -> Result<(), CliError> {
    let client = cx.client().await?;
    let alarms = all(&client).await?;
    let width = cx.ui.width();
    cx.ui.list(&alarms, |paint| {
        if alarms.is_empty() {
            return "nothing is wrong, as far as was read\n".to_owned();
        }
        table(&alarms).render(paint, width)
    })
}

async fn all(client: &Client) -> Result<Vec<Alarm>, CliError> {
    let (mut alarms, mut page_token) = (Vec::new(), String::new());
    loop {
        let request = ListAlarmsRequest {
            page_size: PAGE,
            page_token,
        };
        let page = rpc!(client, PowerServiceClient.list_alarms, "list alarms", request).await?;
        alarms.extend(page.alarms);
        page_token = page.next_page_token;
        if page_token.is_empty() {
            return Ok(alarms);
        }
    }
}

fn table(alarms: &[Alarm]) -> Table {
    let mut table = Table::new(&["SEVERITY", "SUBJECT", "SINCE", "NODES", "HOLDS", "WHAT", "DO"]);
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
