//! `rackwright cluster get`, and the texts that other views of a cluster share with it.

use rackwright_api::v1::{
    Cluster, ClusterMember, ClusterPartition, ClusterReplacement, ClusterSpec, ClusterState, ClusterStatus,
    RolloutStatus,
};
use rackwright_cli_context::error::{CliError, plural};
use rackwright_cli_context::names::listed;
use rackwright_cli_context::output::table::Cell;
use rackwright_cli_context::output::{Paint, Table, Tone, clean};
use rackwright_cli_context::{Cx, names, units};

use super::{get, short, standing_tone, state_cell};
use crate::node::{labels_text, state_cell as node_state_cell};

/// Shows a cluster.
pub async fn run(cx: &Cx, name: &str) -> Result<(), CliError> {
    let client = cx.client().await?;
    let cluster = get(&client, name).await?;
    let width = cx.ui.width();
    let now = units::now();
    cx.ui.item(&cluster, |paint| {
        let mut text = details(&cluster, now).render(paint, width);
        text.insert_str(
            0,
            &format!("{}\n", paint.tone(Tone::Strong, &clean(short(&cluster.name)))),
        );
        let status = cluster.status.clone().unwrap_or_default();
        let members = &status.members;
        section(&mut text, paint, "Nodes", &members_table(members, paint, width));
        section(
            &mut text,
            paint,
            "Replaced",
            &replaced_table(status.replaced.iter(), now).render(paint, width),
        );
        text
    })
}

/// Adds a section, unless it is empty.
pub fn section(text: &mut String, paint: Paint, title: &str, body: &str) {
    if !body.is_empty() {
        text.push_str(&format!("\n{}\n{body}", paint.tone(Tone::Strong, title)));
    }
}

/// The time of each replacement with the old and the new node, newest first.
pub fn replaced_table<'a>(replaced: impl DoubleEndedIterator<Item = &'a ClusterReplacement>, now: f64) -> Table {
    let mut table = Table::pairs().indented(2);
    for one in replaced.rev() {
        let [node, by] = [&one.node, &one.by].map(|name| names::short("nodes", name));
        let because = match one.reason.as_str() {
            "" => String::new(),
            reason => format!(": {reason}"),
        };
        let words = format!("{by} replaced {node}{because}");
        table.row([ago(one.time.as_ref(), now).into(), words.into()]);
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

/// Key, ports, and the time of the proof or the reason why it is not proven.
pub fn partition_cell(partition: Option<&ClusterPartition>, now: f64) -> Cell {
    let Some(partition) = partition.filter(|partition| !partition.key.is_empty()) else {
        return "none".into();
    };
    let ports = plural(partition.ports as usize, "port");
    let (words, tone) = match (&partition.proven_time, open_reason(partition)) {
        (Some(time), "") => {
            let age = units::age(units::since(time, now));
            (format!("proven {age} ago"), Tone::Good)
        }
        (_, "") => ("not proven".to_owned(), Tone::Bad),
        (_, words) if partition.fault.is_empty() => (format!("not proven: {words}"), Tone::Busy),
        (_, fault) => (format!("not proven: {fault}"), Tone::Bad),
    };
    Cell::toned(format!("{} on {ports}, {words}", partition.key), tone)
}

/// Why the partition is not proven: a fault, else the work that is left.
pub fn open_reason(partition: &ClusterPartition) -> &str {
    match partition.fault.as_str() {
        "" => &partition.progress,
        fault => fault,
    }
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

/// The record of a cluster, field by field.
pub fn details(cluster: &Cluster, now: f64) -> Table {
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
    table.row(["requested".into(), wanted_text(&spec).into()]);
    table.row(["nodes".into(), standings_text(&status.members).into()]);
    changing(&mut table, &status);
    let keys = plural(deployment.ssh_authorized_keys.len(), "SSH key");
    let user_data = if deployment.has_user_data { ", user data" } else { "" };
    let image = names::image_short(&deployment.image);
    table.row(["image".into(), format!("{image}, {keys}{user_data}").into()]);
    table.row(["partition".into(), partition_cell(status.partition.as_ref(), now)]);
    if !status.network.is_empty() {
        table.row(["network".into(), (&status.network).into()]);
    }
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

/// The nodes' changes in progress, if there are any.
pub fn changing(table: &mut Table, status: &ClusterStatus) {
    if let Some(rollout) = &status.rollout {
        table.row(["reimage".into(), rollout_cell(rollout)]);
    }
    if !status.leaving.is_empty() {
        let nodes = status.leaving.iter().map(|node| names::short("nodes", node).to_owned());
        table.row(["leaving".into(), listed(&nodes.collect::<Vec<_>>()).into()]);
    }
}

/// `12 of 48 nodes done, 1 failed`
fn rollout_cell(status: &RolloutStatus) -> Cell {
    let mut words = format!("{} of {} done", status.done, plural(status.of as usize, "node"));
    if status.failed > 0 {
        words.push_str(&format!(", {} failed", status.failed));
    }
    if status.is_back {
        words.push_str(", back to the former image");
    }
    match status.stopped.as_str() {
        "" => words.into(),
        why => Cell::toned(format!("{words}, stopped: {why}"), Tone::Bad),
    }
}

/// The reason why it is degraded or failed.
pub fn reason_cell(reason: &str) -> Cell {
    if reason.is_empty() {
        "".into()
    } else {
        Cell::toned(reason, Tone::Bad)
    }
}

/// One line per node.
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
