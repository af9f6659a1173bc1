//! `rackwright fabric faults`

use rackwright_api::v1::site_service_client::SiteServiceClient;
use rackwright_api::v1::{FabricBreach, FabricFault, ListFabricFaultsRequest, ListFabricFaultsResponse};
use rackwright_cli_context::client::rpc;
use rackwright_cli_context::error::{CliError, plural};
use rackwright_cli_context::output::table::Cell;
use rackwright_cli_context::output::{Paint, Table, Tone, clean};
use rackwright_cli_context::{Cx, names, units};

/// Names in a cell.
const MOST: usize = 4;

pub(super) async fn run(cx: &Cx) -> Result<(), CliError> {
    let client = cx.client().await?;
    let doing = "list faults of the fabric";
    let request = ListFabricFaultsRequest {};
    let answer = rpc!(client, SiteServiceClient.list_fabric_faults, doing, request).await?;
    let width = cx.ui.width();
    cx.ui.item(&answer, |paint| render(&answer, paint, width, units::now()))
}

fn render(answer: &ListFabricFaultsResponse, paint: Paint, width: Option<usize>, now: f64) -> String {
    let mut text = breaches(answer, paint, width);
    if !answer.faults.is_empty() {
        let mut table = Table::new(&["FAULT", "SINCE", "CABLES", "ENDS", "CLUSTERS", "WHAT"]);
        for fault in &answer.faults {
            table.row(row(fault, now));
        }
        text.push_str(&table.render(paint, width));
    }
    if answer.more > 0 {
        text.push_str(&format!("and {}\n", plural(answer.more as usize, "more fault")));
    }
    text.push_str(&last_line(answer, paint, now));
    text
}

/// The breaches of isolation, with an empty line after them.
fn breaches(answer: &ListFabricFaultsResponse, paint: Paint, width: Option<usize>) -> String {
    let mut text = String::new();
    if !answer.breaches.is_empty() {
        let mut table = Table::new(&[
            "BREACH",
            "LAST GOOD",
            "SEEN FIRST",
            "UNTIL",
            "PORTS",
            "CLUSTERS",
            "WHAT",
        ]);
        for breach in &answer.breaches {
            table.row(breach_row(breach));
        }
        text = table.render(paint, width);
    }
    if !answer.isolation_problem.is_empty() {
        let words = format!("the isolation is not checked: {}", clean(&answer.isolation_problem));
        text.push_str(&format!("{}\n", paint.tone(Tone::Bad, &words)));
    }
    if !text.is_empty() {
        text.push('\n');
    }
    text
}

fn breach_row(breach: &FabricBreach) -> [Cell; 7] {
    let stamp = |time: Option<String>| time.unwrap_or_else(|| "unknown".to_owned());
    let until = match &breach.end_time {
        Some(end) => Cell::from(units::stamp(end)),
        None => Cell::toned("open", Tone::Bad),
    };
    let clusters: Vec<String> = breach
        .clusters
        .iter()
        .map(|name| names::short("clusters", name).to_owned())
        .collect();
    [
        Cell::toned(&breach.kind, Tone::Bad),
        stamp(breach.good_time.as_ref().map(units::stamp)).into(),
        stamp(breach.since.as_ref().map(units::stamp)).into(),
        until,
        breach.ports.to_string().into(),
        some(&clusters).into(),
        (&breach.text).into(),
    ]
}

fn row(fault: &FabricFault, now: f64) -> [Cell; 6] {
    let since = fault.since.as_ref().map(|time| units::age(units::since(time, now)));
    let ends: Vec<String> = fault
        .ends
        .iter()
        .map(|ends| format!("{} - {}", ends.a, ends.b))
        .collect();
    let counting = fault.counting_clusters.iter().map(|name| {
        let name = names::short("clusters", name);
        format!("{name} (counts on it)")
    });
    let clusters = fault
        .clusters
        .iter()
        .map(|name| names::short("clusters", name).to_owned());
    let clusters: Vec<String> = counting.chain(clusters).collect();
    [
        Cell::toned(format!("{} {}", fault.kind, fault.fault), Tone::Bad),
        since.unwrap_or_default().into(),
        some(&fault.cables).into(),
        some(&ends).into(),
        some(&clusters).into(),
        (&fault.text).into(),
    ]
}

/// The first names, and the number of further ones.
fn some(names: &[String]) -> String {
    let more = names.len().saturating_sub(MOST);
    let mut words = names.iter().take(MOST).cloned().collect::<Vec<_>>().join(", ");
    if more > 0 {
        words.push_str(&format!(" and {more} more"));
    }
    words
}

/// The time of the last check, so that silence is not mistaken for health.
fn last_line(answer: &ListFabricFaultsResponse, paint: Paint, now: f64) -> String {
    let checked = answer.check_time.as_ref().map(|time| {
        let age = units::age(units::since(time, now));
        format!("compared with the site {age} ago")
    });
    let (tone, count) = match answer.faults.len() + answer.more as usize {
        0 if answer.breaches.is_empty() => (Tone::Good, "no fault".to_owned()),
        // Below breaches, `no fault` would deny them.
        0 => (Tone::Good, "no fault of cables and ports".to_owned()),
        n => (Tone::Bad, plural(n, "fault")),
    };
    let mut text = match checked {
        Some(checked) => format!("{}; {checked}\n", paint.tone(tone, &count)),
        None => "the fabric was not compared with the site: this needs a fabric manager (`fabric` in the settings of \
                 rackwrightd) and a site\n"
            .to_owned(),
    };
    if !answer.problem.is_empty() {
        let words = format!("no comparison since then: {}", clean(&answer.problem));
        text.push_str(&format!("{}\n", paint.tone(Tone::Bad, &words)));
    }
    text
}

#[cfg(test)]
mod tests {
    use rackwright_api::v1::FabricCableEnds;

    use super::*;

    #[test]
    fn faults_name_cables_ends_and_clusters_and_silence_says_since_when() {
        let time = |seconds| Some(prost_types::Timestamp { seconds, nanos: 0 });
        let cable = FabricFault {
            id: "cable/missing/0417".into(),
            kind: "cable".into(),
            fault: "missing".into(),
            cables: vec!["0417".into()],
            ends: vec![FabricCableEnds {
                a: "leaf-1/33".into(),
                b: "spine-2/1".into(),
            }],
            counting_clusters: vec!["clusters/alpha".into()],
            text: "cable 0417: no link".into(),
            since: time(1000),
            ..FabricFault::default()
        };
        let mut answer = ListFabricFaultsResponse {
            faults: vec![cable],
            check_time: time(1050),
            ..ListFabricFaultsResponse::default()
        };
        assert_eq!(
            render(&answer, Paint::PLAIN, None, 1060.0),
            "FAULT          SINCE  CABLES  ENDS                   CLUSTERS              WHAT\n\
             cable missing  60s    0417    leaf-1/33 - spine-2/1  alpha (counts on it)  cable 0417: no link\n\
             1 fault; compared with the site 10s ago\n"
        );
        answer.faults.clear();
        answer.problem = "ibnetdiscover is not there".into();
        assert_eq!(
            render(&answer, Paint::PLAIN, None, 1060.0),
            "no fault; compared with the site 10s ago\nno comparison since then: ibnetdiscover is not there\n"
        );
        answer.problem.clear();
        answer.breaches = vec![
            FabricBreach {
                kind: "open-default".into(),
                text: "16 of 24 ports read are open".into(),
                ports: 16,
                clusters: vec!["clusters/alpha".into(), "clusters/beta".into()],
                since: time(1000),
                ..FabricBreach::default()
            },
            FabricBreach {
                kind: "partition-file".into(),
                text: "p.conf is missing".into(),
                good_time: time(940),
                since: time(1000),
                end_time: time(1007),
                ..FabricBreach::default()
            },
        ];
        answer.isolation_problem = "no subnet manager".into();
        let shown = render(&answer, Paint::PLAIN, None, 1060.0);
        let lines: Vec<Vec<&str>> = shown
            .lines()
            .map(|line| {
                line.split("  ")
                    .map(str::trim)
                    .filter(|cell| !cell.is_empty())
                    .collect()
            })
            .collect();
        let first = "1970-01-01T00:16:40Z";
        let cells = [
            "open-default",
            "unknown",
            first,
            "open",
            "16",
            "alpha, beta",
            "16 of 24 ports read are open",
        ];
        assert_eq!(lines[1], cells);
        let until = "1970-01-01T00:16:47Z";
        let good = "1970-01-01T00:15:40Z";
        assert_eq!(
            lines[2],
            ["partition-file", good, first, until, "0", "-", "p.conf is missing"]
        );
        assert_eq!(lines[3], ["the isolation is not checked: no subnet manager"]);
        assert_eq!(
            lines[5],
            ["no fault of cables and ports; compared with the site 10s ago"],
            "{shown}"
        );
        let never = ListFabricFaultsResponse::default();
        assert!(render(&never, Paint::PLAIN, None, 0.0).starts_with("the fabric was not compared"));
    }
}
