//! `rackwright status`: the hall in one screen.

use rackwright_api::v1::control_service_client::ControlServiceClient;
use rackwright_api::v1::node_service_client::NodeServiceClient;
use rackwright_api::v1::power_service_client::PowerServiceClient;
use rackwright_api::v1::site_service_client::SiteServiceClient;
use rackwright_api::v1::{
    Alarm, Cluster, ClusterState, Control, FleetCount, FleetSummary, GetControlRequest, ListAlarmsRequest,
    ListFabricFaultsRequest, ListFabricFaultsResponse, ListNodesRequest, Node, Operation, SummarizeFleetRequest,
};
use rackwright_cli_context::client::{Client, rpc};
use rackwright_cli_context::error::{CliError, plural};
use rackwright_cli_context::output::table::Cell;
use rackwright_cli_context::output::{Format, Paint, Table, Tone, clean, json};
use rackwright_cli_context::{Cx, names, operation, units};
use serde_json::{Value, json};
use tonic::Code;

use crate::{cluster, node};

/// Rows of each list.
const ROWS: usize = 10;
/// Most operations under way that are counted.
const OPERATIONS: usize = 1000;
/// Failed operations that are shown.
const FAILED: usize = 5;
/// Nodes that an operator has to look at.
const TROUBLED: &str = "state = failed OR state = quarantined OR health = unreachable OR health = login-refused OR \
                        health = doubted OR wait = bug";
/// The same for customers, who see no health.
const TROUBLED_OF_CUSTOMER: &str = "state = failed OR state = quarantined";

/// What members of the site see beside nodes and clusters.
struct Hall {
    control: Control,
    alarms: Vec<Alarm>,
    /// More alarms than these.
    more_alarms: bool,
    /// `None`: there is no site.
    fabric: Option<ListFabricFaultsResponse>,
}

/// All that is shown.
struct Status {
    /// `None`: the caller is a member of a customer.
    hall: Option<Hall>,
    fleet: FleetSummary,
    /// The first nodes that need attention.
    troubled: Vec<Node>,
    more_troubled: bool,
    /// All but the released ones.
    clusters: Vec<Cluster>,
    under_way: usize,
    failed: Vec<Operation>,
}

/// Shows the state of the hall, or of the caller's part of it.
pub async fn run(cx: &Cx) -> Result<(), CliError> {
    let client = cx.client().await?;
    let status = read(&client).await?;
    match cx.ui.format() {
        Format::Table => cx.ui.line(text(&status, cx.ui.paint(), cx.ui.width()).trim_end()),
        Format::Name => names_of(&status).iter().try_for_each(|name| cx.ui.line(&clean(name))),
        Format::Json | Format::Yaml => cx.ui.value(&value(&status)?),
    }
}

async fn read(client: &Client) -> Result<Status, CliError> {
    let hall = hall(client).await?;
    let request = SummarizeFleetRequest::default();
    let fleet = rpc!(client, NodeServiceClient.summarize_fleet, "count the nodes", request).await?;
    let filter = if hall.is_some() { TROUBLED } else { TROUBLED_OF_CUSTOMER };
    let request = ListNodesRequest {
        page_size: ROWS as i32,
        filter: filter.to_owned(),
        ..ListNodesRequest::default()
    };
    let troubled = rpc!(client, NodeServiceClient.list_nodes, "list nodes", request).await?;
    let clusters = cluster::list::all(client, "state != released").await?;
    let under_way = operation::matching(client, "done = false", OPERATIONS).await?;
    let failed = operation::matching(client, "result = failed", FAILED).await?;
    Ok(Status {
        hall,
        fleet,
        more_troubled: !troubled.next_page_token.is_empty(),
        troubled: troubled.nodes,
        clusters,
        under_way: under_way.len(),
        failed,
    })
}

/// What members of the site alone see. `None`: the caller is none.
async fn hall(client: &Client) -> Result<Option<Hall>, CliError> {
    let doing = "read the state of the control plane";
    let control = match rpc!(client, ControlServiceClient.get_control, doing, GetControlRequest {}).await {
        Err(error) if error.code() == Some(Code::PermissionDenied) => return Ok(None),
        control => control?,
    };
    let request = ListAlarmsRequest {
        page_size: ROWS as i32,
        ..ListAlarmsRequest::default()
    };
    let page = rpc!(client, PowerServiceClient.list_alarms, "list alarms", request).await?;
    let request = ListFabricFaultsRequest {};
    let fabric = match rpc!(
        client,
        SiteServiceClient.list_fabric_faults,
        "list fabric faults",
        request
    )
    .await
    {
        Err(error) if error.code() == Some(Code::FailedPrecondition) => None,
        faults => Some(faults?),
    };
    Ok(Some(Hall {
        control,
        alarms: page.alarms,
        more_alarms: !page.next_page_token.is_empty(),
        fabric,
    }))
}

/// The names of all resources that need attention.
fn names_of(status: &Status) -> Vec<String> {
    let clusters = status.clusters.iter().filter(|cluster| is_troubled(cluster));
    let alarms = status.hall.iter().flat_map(|hall| &hall.alarms);
    let nodes = status.troubled.iter().map(|node| node.name.clone());
    nodes
        .chain(clusters.map(|cluster| cluster.name.clone()))
        .chain(alarms.map(|alarm| alarm.name.clone()))
        .collect()
}

fn is_troubled(cluster: &Cluster) -> bool {
    let state = cluster.status.as_ref().map_or(0, |status| status.state);
    [ClusterState::Failed as i32, ClusterState::Degraded as i32].contains(&state)
}

fn value(status: &Status) -> Result<Value, CliError> {
    let nodes: Vec<Value> = status.troubled.iter().map(json::to_value).collect::<Result<_, _>>()?;
    let clusters: Vec<Value> = status.clusters.iter().map(json::to_value).collect::<Result<_, _>>()?;
    let failed: Vec<Value> = status.failed.iter().map(json::to_value).collect::<Result<_, _>>()?;
    let mut value = json!({
        "fleet": json::to_value(&status.fleet)?,
        "nodes_to_look_at": nodes,
        "clusters": clusters,
        "operations_under_way": status.under_way,
        "failed_operations": failed,
    });
    if let Some(hall) = &status.hall {
        let alarms: Vec<Value> = hall.alarms.iter().map(json::to_value).collect::<Result<_, _>>()?;
        value["control"] = json::to_value(&hall.control)?;
        value["alarms"] = alarms.into();
        value["fabric"] = hall.fabric.as_ref().map(json::to_value).transpose()?.into();
    }
    Ok(value)
}

/// The screen.
fn text(status: &Status, paint: Paint, width: Option<usize>) -> String {
    let mut out = String::new();
    let mut section = |title: &str, words: String, tables: Vec<Table>| {
        if !out.is_empty() {
            out.push('\n');
        }
        out.push_str(&format!("{}  {}\n", paint.tone(Tone::Strong, title), clean(&words)));
        for table in tables.iter().filter(|table| !table.is_empty()) {
            out.push_str(&table.render(paint, width));
        }
    };
    if let Some(hall) = &status.hall {
        section(
            "CONTROL PLANE",
            control_words(&hall.control),
            vec![warnings(&hall.control)],
        );
    }
    let fleet = &status.fleet;
    section("NODES", fleet_words(fleet), vec![counts(fleet)]);
    if !status.troubled.is_empty() {
        let more = if status.more_troubled { "the first ones; " } else { "" };
        let words = format!("{more}`rackwright node explain NODE` says what to do");
        section("NODES TO LOOK AT", words, vec![nodes(&status.troubled)]);
    }
    section(
        "CLUSTERS",
        cluster_words(&status.clusters),
        vec![clusters(&status.clusters)],
    );
    let under_way = match status.under_way {
        0 => "none under way".to_owned(),
        count if count >= OPERATIONS => format!("{OPERATIONS} or more under way"),
        count => format!("{count} under way"),
    };
    let last = if status.failed.is_empty() {
        ""
    } else {
        "; the last failures:"
    };
    section(
        "OPERATIONS",
        format!("{under_way}{last}"),
        vec![failures(&status.failed)],
    );
    if let Some(hall) = &status.hall {
        let more = if hall.more_alarms { " or more" } else { "" };
        let words = match hall.alarms.len() {
            0 => "none open; `rackwright power alarms` says which devices are read".to_owned(),
            count => format!("{count}{more} open"),
        };
        section("ALARMS", words, vec![alarms(&hall.alarms)]);
        section("FABRIC", fabric_words(hall.fabric.as_ref()), Vec::new());
    }
    out
}

fn control_words(control: &Control) -> String {
    match control.paused {
        true => "paused: answers reads, acts on no machine".to_owned(),
        false => "working".to_owned(),
    }
}

fn warnings(control: &Control) -> Table {
    let mut table = Table::pairs().indented(2);
    for warning in &control.warnings {
        table.row([Cell::toned("warning", Tone::Busy), warning.as_str().into()]);
    }
    table
}

/// `10 in all, 9 healthy, 1 unreachable; 3 agents connected`
fn fleet_words(fleet: &FleetSummary) -> String {
    let healths = fleet.healths.iter().map(|health| match health.value.as_str() {
        "ok" => format!(", {} healthy", health.nodes),
        "unreachable" => format!(", {} with a silent BMC", health.nodes),
        "login-refused" => format!(", {} whose BMC refuses the login", health.nodes),
        "unknown" => format!(", {} of unknown health", health.nodes),
        other => format!(", {} {other}", health.nodes),
    });
    let agents = plural(usize::try_from(fleet.agents).unwrap_or(0), "agent");
    format!(
        "{} in all{}; {agents} connected",
        fleet.nodes,
        healths.collect::<String>()
    )
}

/// Nodes by state, by SKU and by what they wait for.
fn counts(fleet: &FleetSummary) -> Table {
    let mut table = Table::new(&["BY", "VALUE", "NODES", "STATES"]).indented(2);
    let mut rows = |by: &'static str, counts: &[FleetCount], has_states: bool| {
        for count in counts {
            let mut states: Vec<_> = count.states.iter().collect();
            states.sort_by_key(|(state, nodes)| (-**nodes, (*state).clone()));
            let states: Vec<String> = states.iter().map(|(state, nodes)| format!("{nodes} {state}")).collect();
            let states = if has_states { states.join(", ") } else { String::new() };
            table.row([
                by.into(),
                (&count.value).into(),
                count.nodes.to_string().into(),
                states.into(),
            ]);
        }
    };
    rows("state", &fleet.states, false);
    rows("sku", &fleet.skus, true);
    rows("customer", &fleet.customers, true);
    rows("wait", &fleet.waits, true);
    table
}

fn nodes(troubled: &[Node]) -> Table {
    let now = units::now();
    let mut table = Table::new(&["NODE", "STATE", "HEALTH", "SINCE", "REASON"]).indented(2);
    for found in troubled {
        let status = found.status.clone().unwrap_or_default();
        let since = status
            .state_since
            .as_ref()
            .map(|time| units::age(units::since(time, now)));
        let reasons = [
            &status.doubt,
            &status.reason,
            &status.health_reason,
            &status.waiting_for,
        ];
        let reason = reasons.into_iter().find(|reason| !reason.is_empty());
        table.row([
            names::short("nodes", &found.name).into(),
            node::state_cell(status.state),
            node::health_cell(status.health),
            since.unwrap_or_default().into(),
            reason.map(String::as_str).unwrap_or_default().into(),
        ]);
    }
    table
}

/// `12: 10 ready, 2 building`
fn cluster_words(clusters: &[Cluster]) -> String {
    let mut states: Vec<(String, usize)> = Vec::new();
    for found in clusters {
        let state = cluster::state_name(found.status.as_ref().map_or(0, |status| status.state));
        match states.iter_mut().find(|(known, _)| *known == state) {
            Some((_, count)) => *count += 1,
            None => states.push((state, 1)),
        }
    }
    let states: Vec<String> = states.iter().map(|(state, count)| format!("{count} {state}")).collect();
    match clusters.len() {
        0 => "none".to_owned(),
        count => format!("{count}: {}", states.join(", ")),
    }
}

/// The clusters that are not ready, those in trouble first.
fn clusters(all: &[Cluster]) -> Table {
    let mut table = Table::new(&["CLUSTER", "STATE", "CUSTOMER", "WAITS FOR"]).indented(2);
    let is_ready = |cluster: &&Cluster| cluster.status.as_ref().map_or(0, |s| s.state) == ClusterState::Ready as i32;
    let mut shown: Vec<&Cluster> = all.iter().filter(|cluster| !is_ready(cluster)).collect();
    shown.sort_by_key(|cluster| !is_troubled(cluster));
    for found in shown.into_iter().take(ROWS) {
        let status = found.status.clone().unwrap_or_default();
        let words = if status.reason.is_empty() {
            &status.waiting_for
        } else {
            &status.reason
        };
        table.row([
            names::short("clusters", &found.name).into(),
            cluster::state_cell(status.state),
            found
                .spec
                .as_ref()
                .map(|spec| spec.customer.as_str())
                .unwrap_or_default()
                .into(),
            words.into(),
        ]);
    }
    table
}

fn failures(failed: &[Operation]) -> Table {
    let now = units::now();
    let mut table = Table::new(&["KIND", "TARGET", "ENDED", "ERROR"]).indented(2);
    for operation in failed {
        let ended = operation
            .end_time
            .as_ref()
            .map(|time| units::age(units::since(time, now)));
        let error = operation.error.as_ref().map(|error| error.message.as_str());
        table.row([
            (&operation.kind).into(),
            (&operation.target).into(),
            ended.map(|age| format!("{age} ago")).unwrap_or_default().into(),
            error.unwrap_or_default().into(),
        ]);
    }
    table
}

fn alarms(open: &[Alarm]) -> Table {
    let mut table = Table::new(&["SEVERITY", "SUBJECT", "NODES", "MESSAGE"]).indented(2);
    for alarm in open {
        let tone = if alarm.severity == "critical" {
            Tone::Bad
        } else {
            Tone::Busy
        };
        table.row([
            Cell::toned(&alarm.severity, tone),
            (&alarm.subject).into(),
            alarm.node_count.to_string().into(),
            (&alarm.message).into(),
        ]);
    }
    table
}

fn fabric_words(fabric: Option<&ListFabricFaultsResponse>) -> String {
    let Some(fabric) = fabric else {
        return "unknown: no site is applied".to_owned();
    };
    if !fabric.problem.is_empty() {
        return format!("unknown: {}", fabric.problem);
    }
    if fabric.check_time.is_none() {
        return "unknown: it was never compared with the site".to_owned();
    }
    let open = fabric
        .breaches
        .iter()
        .filter(|breach| breach.end_time.is_none())
        .count();
    let faults = fabric.faults.len() + fabric.more as usize;
    let breaches = match open {
        0 => String::new(),
        count => format!(", {} of the isolation of clusters now", plural(count, "breach")),
    };
    match faults {
        0 => format!("as planned{breaches}"),
        count => format!("{}{breaches}; see `rackwright fabric faults`", plural(count, "fault")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(value: &str, nodes: i64) -> FleetCount {
        FleetCount {
            value: value.into(),
            nodes,
            states: [("active".to_owned(), nodes)].into(),
        }
    }

    #[test]
    fn an_unknown_fabric_is_not_called_sound() {
        assert!(fabric_words(None).starts_with("unknown"));
        let never = ListFabricFaultsResponse::default();
        assert!(fabric_words(Some(&never)).starts_with("unknown"));
        let checked = ListFabricFaultsResponse {
            check_time: Some(prost_types::Timestamp::default()),
            ..never
        };
        assert_eq!(fabric_words(Some(&checked)), "as planned");
        let failing = ListFabricFaultsResponse {
            problem: "no subnet manager answers".into(),
            ..checked
        };
        assert_eq!(fabric_words(Some(&failing)), "unknown: no subnet manager answers");
    }

    #[test]
    fn the_fleet_is_told_in_one_line() {
        let fleet = FleetSummary {
            nodes: 12,
            agents: 1,
            healths: vec![count("ok", 9), count("unreachable", 3)],
            ..FleetSummary::default()
        };
        assert_eq!(
            fleet_words(&fleet),
            "12 in all, 9 healthy, 3 with a silent BMC; 1 agent connected"
        );
    }
}
