//! `rackwright cluster get`, and the words that other views of a cluster share with it.

use rackwright_api::v1::event_service_client::EventServiceClient;
use rackwright_api::v1::{
    Cluster, ClusterMember, ClusterPartition, ClusterSpec, ClusterState, Event, StreamEventsRequest,
};
use tokio_stream::StreamExt as _;

use super::{get, short, standing_tone, state_cell};
use crate::args::Cx;
use crate::client::{Client, open_stream};
use crate::error::{CliError, plural};
use crate::node::{labels_text, state_cell as node_state_cell};
use crate::output::table::Cell;
use crate::output::{Format, Paint, Table, Tone, clean};
use crate::{names, units};

/// The kind of events that tell of a replaced node.
const REPLACED: &str = "cluster.replaced";

/// Shows a cluster.
pub async fn run(cx: &Cx, name: &str) -> Result<(), CliError> {
    let client = cx.client().await?;
    let cluster = get(&client, name).await?;
    // A cluster does not hold them; its events do, as long as those are kept.
    let replaced = match cx.ui.format() {
        Format::Table => replacements(&client, &cluster).await?,
        _ => Vec::new(),
    };
    let width = cx.ui.width();
    let now = units::now();
    cx.ui.item(&cluster, |paint| {
        let mut text = details(&cluster, now).render(paint, width);
        text.insert_str(
            0,
            &format!("{}\n", paint.tone(Tone::Strong, &clean(short(&cluster.name)))),
        );
        let members = cluster.status.as_ref().map_or(&[][..], |status| &status.members);
        section(&mut text, paint, "Nodes", &members_table(members, paint, width));
        section(
            &mut text,
            paint,
            "Replaced",
            &replaced_table(&replaced, now).render(paint, width),
        );
        text
    })
}

/// Adds a section that has something in it.
pub fn section(text: &mut String, paint: Paint, title: &str, body: &str) {
    if !body.is_empty() {
        text.push_str(&format!("\n{}\n{body}", paint.tone(Tone::Strong, title)));
    }
}

/// Events of replaced nodes, newest first; none of a former cluster of that name.
pub async fn replacements(client: &Client, cluster: &Cluster) -> Result<Vec<Event>, CliError> {
    let doing = format!("read events of cluster {}", short(&cluster.name));
    let request = StreamEventsRequest {
        target: cluster.name.clone(),
        until_now: true,
        ..StreamEventsRequest::default()
    };
    let mut stream = open_stream!(client, EventServiceClient.stream_events, &doing, request).await?;
    let created = cluster.metadata.as_ref().and_then(|metadata| metadata.create_time);
    let is_ours = |event: &Event| {
        let before = units::between(created.as_ref(), event.time.as_ref()).is_some_and(|after| after < 0.0);
        event.kind == REPLACED && !before
    };
    let mut events = Vec::new();
    while let Some(next) = stream.next().await {
        let event = next.map_err(|status| CliError::rpc(&doing, client.classify(status)))?;
        if is_ours(&event) {
            events.push(event);
        }
    }
    events.reverse();
    Ok(events)
}

/// When and what.
pub fn replaced_table(events: &[Event], now: f64) -> Table {
    let mut table = Table::pairs().indented(2);
    for event in events {
        table.row([ago(event.time.as_ref(), now).into(), (&event.message).into()]);
    }
    table
}

/// `3h ago`
pub fn ago(time: Option<&prost_types::Timestamp>, now: f64) -> String {
    time.map(|time| format!("{} ago", units::age(units::since(time, now))))
        .unwrap_or_default()
}

/// `48 nodes of dgx-h100 and 1 spare, non-blocking`
pub fn wanted_text(spec: &ClusterSpec) -> String {
    let bandwidth = if spec.bandwidth.is_empty() {
        "non-blocking"
    } else {
        &spec.bandwidth
    };
    format!(
        "{} of {} and {}, {bandwidth}",
        plural(spec.nodes as usize, "node"),
        spec.sku,
        plural(spec.spares as usize, "spare"),
    )
}

/// Key, ports, and since when it is proven or why it is not.
pub fn partition_cell(partition: Option<&ClusterPartition>, now: f64) -> Cell {
    let Some(partition) = partition.filter(|partition| !partition.key.is_empty()) else {
        return "none".into();
    };
    let ports = plural(partition.ports as usize, "port");
    let words = match (&partition.proven_time, partition.fault.as_str()) {
        (Some(time), "") => {
            let age = units::age(units::since(time, now));
            return Cell::toned(format!("{} on {ports}, proven {age} ago", partition.key), Tone::Good);
        }
        (_, "") => "not proven".to_owned(),
        (_, fault) => format!("not proven: {fault}"),
    };
    Cell::toned(format!("{} on {ports}, {words}", partition.key), Tone::Bad)
}

/// When the lease ends.
pub fn lease_text(spec: &ClusterSpec, now: f64) -> String {
    let Some(end) = &spec.lease_end else {
        return "no end".to_owned();
    };
    let left = -units::since(end, now);
    let words = if left >= 0.0 { "left" } else { "past its end" };
    format!("ends {} ({} {words})", units::stamp(end), units::duration(left.abs()))
}

/// `47 handed-over, 1 coming, 1 lost`, the most frequent first.
pub fn standings_text(members: &[ClusterMember]) -> String {
    let mut counts: Vec<(usize, &str)> = Vec::new();
    for member in members {
        match counts.iter_mut().find(|(_, standing)| *standing == member.standing) {
            Some((count, _)) => *count += 1,
            None => counts.push((1, &member.standing)),
        }
    }
    counts.sort_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(b.1)));
    let words: Vec<String> = counts
        .iter()
        .map(|(count, standing)| format!("{count} {standing}"))
        .collect();
    words.join(", ")
}

fn details(cluster: &Cluster, now: f64) -> Table {
    let spec = cluster.spec.clone().unwrap_or_default();
    let status = cluster.status.clone().unwrap_or_default();
    let metadata = cluster.metadata.clone().unwrap_or_default();
    let deployment = spec.deployment.clone().unwrap_or_default();
    let mut table = Table::pairs().indented(2);
    table.row(["state".into(), state_cell(status.state)]);
    if let Some(since) = &status.state_since {
        let age = units::duration(units::since(since, now));
        table.row(["since".into(), format!("{} ({age})", units::stamp(since)).into()]);
    }
    table.row(["waits for".into(), (&status.waiting_for).into()]);
    table.row(["reason".into(), reason_cell(&status.reason)]);
    table.row(["customer".into(), (&spec.customer).into()]);
    table.row(["asked for".into(), wanted_text(&spec).into()]);
    table.row(["stands".into(), standings_text(&status.members).into()]);
    let keys = plural(deployment.ssh_authorized_keys.len(), "SSH key");
    let user_data = if deployment.user_data.is_empty() {
        ""
    } else {
        ", user data"
    };
    let image = names::image_short(&deployment.image);
    table.row(["image".into(), format!("{image}, {keys}{user_data}").into()]);
    table.row(["partition".into(), partition_cell(status.partition.as_ref(), now)]);
    let power = format!("{:.1} kW reserved", status.reserved_watts / 1000.0);
    table.row(["power".into(), power.into()]);
    let lease = match ClusterState::try_from(status.state) {
        Ok(ClusterState::Releasing | ClusterState::Released) => "over".to_owned(),
        _ => lease_text(&spec, now),
    };
    table.row(["lease".into(), lease.into()]);
    table.row(["labels".into(), labels_text(&metadata.labels).into()]);
    table.row(["version".into(), metadata.resource_version.into()]);
    table
}

/// Why it is degraded or failed.
pub fn reason_cell(reason: &str) -> Cell {
    if reason.is_empty() {
        "".into()
    } else {
        Cell::toned(reason, Tone::Bad)
    }
}

/// One line a node.
pub fn members_table(members: &[ClusterMember], paint: Paint, width: Option<usize>) -> String {
    if members.is_empty() {
        return String::new();
    }
    let mut table = Table::new(&["NODE", "STANDING", "STATE", "ROLE", "ADDRESS", "WHY"]).indented(2);
    for member in members {
        table.row([
            names::short("nodes", &member.node).into(),
            Cell::toned(&member.standing, standing_tone(&member.standing)),
            node_state_cell(member.state),
            if member.spare { "spare" } else { "in use" }.into(),
            (&member.address).into(),
            (&member.reason).into(),
        ]);
    }
    table.render(paint, width)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn standings_are_counted_the_most_frequent_first() {
        let member = |standing: &str| ClusterMember {
            standing: standing.into(),
            ..ClusterMember::default()
        };
        let members: Vec<_> = ["lost", "handed-over", "coming", "handed-over"].map(member).into();
        assert_eq!(standings_text(&members), "2 handed-over, 1 coming, 1 lost");
        assert_eq!(standings_text(&[]), "");
    }
}
