//! `rackwright-bench console`: how fast the web console is in headless Chromium, and what open consoles cost the control
//! plane. Each figure is printed with its aim.

mod browser;
mod idle;

use std::collections::HashMap;

use rackwright_api::v1::node_service_client::NodeServiceClient;
use rackwright_api::v1::session_service_client::SessionServiceClient;
use rackwright_api::v1::{CreateLoginTokenRequest, Metadata, Node, UpdateNodeRequest};
use rackwright_cli_context::client::{Client, rpc};
use rackwright_cli_context::error::{CliError, plural};
use rackwright_cli_context::{Cx, names, units};
use serde::Serialize;

use crate::args::{ConsoleArgs, FleetArgs};
use crate::fleet::print;
use crate::phases::{self, mutation};
use crate::progress::{Edge, Progress};
use crate::report::thousandths;
use crate::test_bed::TestBed;

use browser::Browser;

/// Nodes of a rack, and rooms of the hall: the labels `rack` and `room`.
const RACK: usize = 8;
const ROOMS: usize = 10;
/// How long the table is scrolled.
const SCROLL_S: u32 = 10;
/// The label that the bench changes.
const LABEL: &str = "bench";

/// Aims, in milliseconds; for open consoles the part of a core.
const FIRST_ROWS_MS: f64 = 300.0;
const FRAME_MS: f64 = 50.0;
const CHANGE_MS: f64 = 500.0;
const FILTER_MS: f64 = 1000.0;
const REDRAW_MS: f64 = 30.0;
const IDLE_CORES: f64 = 0.02;

/// A line of the output.
#[derive(Debug, Serialize)]
struct Figure {
    bench: &'static str,
    figure: &'static str,
    nodes: usize,
    /// Open consoles; only in figures about them.
    #[serde(skip_serializing_if = "Option::is_none")]
    consoles: Option<usize>,
    unit: &'static str,
    /// The value that is compared with the aim.
    #[serde(serialize_with = "thousandths")]
    value: f64,
    /// The largest of the measured values.
    #[serde(serialize_with = "thousandths")]
    worst: f64,
    measured: usize,
    aim: f64,
    is_met: bool,
}

impl Figure {
    /// The median of values in milliseconds.
    fn median(figure: &'static str, nodes: usize, mut values: Vec<f64>, aim: f64) -> Result<Self, CliError> {
        values.sort_by(f64::total_cmp);
        let median = values.get(values.len() / 2).copied();
        Self::of(figure, nodes, &values, median, aim)
    }

    /// The largest of values in milliseconds.
    fn worst(figure: &'static str, nodes: usize, mut values: Vec<f64>, aim: f64) -> Result<Self, CliError> {
        values.sort_by(f64::total_cmp);
        Self::of(figure, nodes, &values, values.last().copied(), aim)
    }

    fn of(figure: &'static str, nodes: usize, sorted: &[f64], value: Option<f64>, aim: f64) -> Result<Self, CliError> {
        let (Some(value), Some(worst)) = (value, sorted.last().copied()) else {
            return Err(CliError::BadAnswer(format!("{figure}: nothing was measured")));
        };
        Ok(Self {
            bench: "console",
            figure,
            nodes,
            consoles: None,
            unit: "ms",
            value,
            worst,
            measured: sorted.len(),
            aim,
            is_met: value <= aim,
        })
    }
}

/// Measures all three parts.
pub async fn run(cx: &Cx, args: ConsoleArgs) -> Result<(), CliError> {
    if args.nodes < RACK || args.many_nodes < RACK || args.idle_nodes == 0 {
        return Err(CliError::usage(
            format!("--nodes and --many-nodes must be at least {RACK}, --idle-nodes at least 1"),
            "",
        ));
    }
    if args.rounds == 0 || args.consoles == 0 || args.window.is_zero() {
        return Err(CliError::usage(
            "--rounds, --consoles and --window must be more than 0",
            "",
        ));
    }
    live(cx, &args).await?;
    many(cx, &args).await?;
    idle(cx, &args).await
}

/// The labels of a node, by its place in the list.
fn labels(place: usize) -> HashMap<String, String> {
    HashMap::from([
        ("rack".to_owned(), format!("r{:05}", place / RACK)),
        ("room".to_owned(), format!("room-{}", place % ROOMS)),
    ])
}

/// The console's words for a complete list of nodes.
fn complete(nodes: usize) -> String {
    let digits = nodes.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    let unit = if nodes == 1 { "node" } else { "nodes" };
    format!("{text} {unit}, live")
}

/// Starts a control plane with a console and enrolled machines.
async fn start(cx: &Cx, nodes: usize, args: &ConsoleArgs) -> Result<(TestBed, FleetArgs), CliError> {
    cx.ui
        .note(&format!("starting the control plane and {}", plural(nodes, "machine")));
    let fleet = FleetArgs {
        has_console: true,
        ..FleetArgs::of_nodes(nodes, args.programs.clone())
    };
    let test_bed = TestBed::start(cx, &fleet).await?;
    phases::enrol_labelled(&test_bed.client, &test_bed.machines, labels).await?;
    Ok((test_bed, fleet))
}

/// The same, with the machines inspected: the control plane is at rest.
async fn start_inspected(cx: &Cx, nodes: usize, args: &ConsoleArgs) -> Result<TestBed, CliError> {
    let (test_bed, fleet) = start(cx, nodes, args).await?;
    let mut progress = Progress::follow(test_bed.client.clone(), std::iter::empty(), None);
    progress.until(Edge::Inspected, nodes, fleet.patience).await?;
    Ok(test_bed)
}

/// A login token of a client's member, and the address that uses it.
async fn login(client: &Client) -> Result<(String, String), CliError> {
    let request = CreateLoginTokenRequest { mutation: mutation() };
    let made = rpc!(client, SessionServiceClient.create_login_token, "log in", request).await?;
    Ok((made.token, made.url))
}

async fn logged_in(test_bed: &TestBed) -> Result<Browser, CliError> {
    let browser = Browser::start(&test_bed.web).await?;
    browser.open(&login(&test_bed.client).await?.1).await?;
    // The first page after a login.
    browser.shows("Fleet").await?;
    Ok(browser)
}

/// First rows, scrolling, and changes.
async fn live(cx: &Cx, args: &ConsoleArgs) -> Result<(), CliError> {
    let test_bed = start_inspected(cx, args.nodes, args).await?;
    cx.ui.note("first rows, scrolling, changes");
    let browser = logged_in(&test_bed).await?;
    let mut values = Vec::new();
    for _ in 0..args.rounds {
        browser.open("/nodes").await?;
        values.push(
            browser
                .measure(include_str!("console/first_row.js"), Vec::new())
                .await?,
        );
    }
    print(cx, &Figure::median("first-rows", args.nodes, values, FIRST_ROWS_MS)?)?;

    browser.shows(&complete(args.nodes)).await?;
    let frames: Vec<f64> = browser
        .measure(include_str!("console/scroll.js"), vec![SCROLL_S.into()])
        .await?;
    print(cx, &Figure::worst("scroll-frame", args.nodes, frames, FRAME_MS)?)?;

    browser.open(&format!("/nodes?cols=node,state,labels.{LABEL}")).await?;
    browser.shows(&complete(args.nodes)).await?;
    let mut values = Vec::new();
    for round in 0..args.rounds {
        values.push(change(&test_bed, &browser, round).await?);
    }
    print(cx, &Figure::median("change-visible", args.nodes, values, CHANGE_MS)?)?;
    browser.end().await
}

/// Changes a label of the first node of the table. Returns the milliseconds from the call, which commits the change, until
/// the table shows it.
async fn change(test_bed: &TestBed, browser: &Browser, round: usize) -> Result<f64, CliError> {
    let Some(machine) = test_bed
        .machines
        .iter()
        .enumerate()
        .min_by_key(|(_, machine)| &machine.id)
    else {
        return Err(CliError::BadAnswer("there is no machine".to_owned()));
    };
    let value = format!("round-{round}");
    let mut changed = labels(machine.0);
    changed.insert(LABEL.to_owned(), value.clone());
    let request = UpdateNodeRequest {
        node: Some(Node {
            name: names::full("nodes", &machine.1.id),
            metadata: Some(Metadata {
                labels: changed,
                ..Metadata::default()
            }),
            ..Node::default()
        }),
        update_mask: Some(prost_types::FieldMask {
            paths: vec!["metadata.labels".to_owned()],
        }),
        mutation: mutation(),
    };
    browser
        .run(include_str!("console/await_change.js"), vec![value.into()])
        .await?;
    let begun_ms = units::now() * 1e3;
    rpc!(
        test_bed.client,
        NodeServiceClient.update_node,
        "change a label",
        request
    )
    .await?;
    let shown_ms: f64 = browser.measure(include_str!("console/changed.js"), Vec::new()).await?;
    Ok(shown_ms - begun_ms)
}

/// Filters and the heat map. The control plane is paused: it would identify the machines for minutes.
async fn many(cx: &Cx, args: &ConsoleArgs) -> Result<(), CliError> {
    let (mut test_bed, _) = start(cx, args.many_nodes, args).await?;
    test_bed.pause().await?;
    cx.ui.note("filters, heat map");
    let browser = logged_in(&test_bed).await?;
    browser.open("/nodes").await?;
    browser.shows(&complete(args.many_nodes)).await?;
    let (mut rack, mut room) = (Vec::new(), Vec::new());
    for round in 0..args.rounds {
        // The page keeps the nodes of a filter for a while: each round has another rack and room.
        let place = round % (args.many_nodes / RACK);
        let filter = format!("labels.rack = r{place:05}");
        rack.push(filtered(&browser, filter, RACK).await?);
        let place = round % ROOMS;
        let filter = format!("labels.room = room-{place}");
        room.push(filtered(&browser, filter, in_room(args.many_nodes, place)).await?);
    }
    print(cx, &Figure::median("filter-rack", args.many_nodes, rack, FILTER_MS)?)?;
    print(cx, &Figure::median("filter-room", args.many_nodes, room, FILTER_MS)?)?;

    browser.open("/nodes?view=map").await?;
    browser.shows(&complete(args.many_nodes)).await?;
    let mut values = Vec::new();
    for _ in 0..args.rounds {
        values.push(browser.measure(include_str!("console/redraw.js"), Vec::new()).await?);
    }
    print(
        cx,
        &Figure::median("heat-map-redraw", args.many_nodes, values, REDRAW_MS)?,
    )?;
    browser.end().await
}

/// The number of nodes in a room.
fn in_room(nodes: usize, room: usize) -> usize {
    (nodes + ROOMS - 1 - room) / ROOMS
}

async fn filtered(browser: &Browser, filter: String, nodes: usize) -> Result<f64, CliError> {
    let arguments = vec![filter.into(), complete(nodes).into()];
    browser.measure(include_str!("console/filter.js"), arguments).await
}

/// What open consoles cost, beyond what the control plane costs without them.
async fn idle(cx: &Cx, args: &ConsoleArgs) -> Result<(), CliError> {
    let test_bed = start_inspected(cx, args.idle_nodes, args).await?;
    cx.ui.note(&format!(
        "{} in the background, then shown",
        plural(args.consoles, "console")
    ));
    let cost = idle::measured(&test_bed, args.consoles, args.window).await?;
    for (figure, cores) in [("idle-background", cost.background), ("idle-shown", cost.shown)] {
        let value = cores - cost.without;
        let line = Figure {
            consoles: Some(args.consoles),
            unit: "cores",
            worst: cores,
            ..Figure::of(figure, args.idle_nodes, &[value], Some(value), IDLE_CORES)?
        };
        print(cx, &line)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_of_nodes_is_written_as_the_console_writes_it() {
        let words = [1, 12, 1_000, 100_000, 1_234_567].map(complete);
        let wanted = [
            "1 node, live",
            "12 nodes, live",
            "1,000 nodes, live",
            "100,000 nodes, live",
            "1,234,567 nodes, live",
        ];
        assert_eq!(words, wanted);
    }

    #[test]
    fn rooms_are_counted_by_their_labels() {
        for nodes in [8, 10, 24, 105] {
            for room in 0..ROOMS {
                let wanted = format!("room-{room}");
                let count = (0..nodes).filter(|place| labels(*place)["room"] == wanted).count();
                assert_eq!(in_room(nodes, room), count, "{nodes} nodes, room {room}");
            }
        }
    }

    #[test]
    fn a_figure_is_the_median_or_the_worst_and_is_compared_with_its_aim() {
        let values = || vec![30.0, 10.0, 20.0];
        let median = Figure::median("first-rows", 1, values(), 20.0).unwrap();
        assert_eq!(
            (median.value, median.worst, median.measured, median.is_met),
            (20.0, 30.0, 3, true)
        );
        let worst = Figure::worst("scroll-frame", 1, values(), 20.0).unwrap();
        assert_eq!((worst.value, worst.is_met), (30.0, false));
        assert!(Figure::median("first-rows", 1, Vec::new(), 20.0).is_err());
    }
}
