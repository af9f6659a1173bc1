//! `rackwright cluster explain`: the state of a cluster, the reason for its wait, its history, and the next steps.

use rackwright_api::v1::{Cluster, ClusterMember, ClusterState};
use rackwright_cli_context::error::CliError;
use rackwright_cli_context::output::{Paint, Table, Tone, clean};
use rackwright_cli_context::{Cx, units};

use super::show::{
    ago, changing, lease_text, members_table, partition_cell, reason_cell, replaced_table, section, standings_text,
    wanted_text,
};
use super::{get, hints, short, state_cell, state_name, state_tone};

/// Most lines of each section.
const MOST: usize = 20;

/// Shows the explanation.
pub async fn run(cx: &Cx, name: &str) -> Result<(), CliError> {
    let client = cx.client().await?;
    let cluster = get(&client, name).await?;
    let width = cx.ui.width();
    cx.ui
        .item(&cluster, |paint| screen(&cluster, paint, width, units::now()))
}

/// The explanation for people.
pub fn screen(cluster: &Cluster, paint: Paint, width: Option<usize>, now: f64) -> String {
    let status = cluster.status.clone().unwrap_or_default();
    let mut text = heading(cluster, paint, now);
    text.push_str(&standing(cluster, now).render(paint, width));
    let hints: String = hints::hints(cluster, now)
        .iter()
        .enumerate()
        .map(|(place, hint)| format!("  {}. {}\n", place + 1, clean(hint)))
        .collect();
    section(&mut text, paint, "What you can do", &hints);
    let deviating: Vec<ClusterMember> = deviating(&status.members).take(MOST).cloned().collect();
    section(
        &mut text,
        paint,
        "Nodes that the cluster waits for",
        &members_table(&deviating, paint, width),
    );
    let earlier = status.replaced.len().saturating_sub(MOST);
    let replaced = status.replaced[earlier..].iter();
    section(
        &mut text,
        paint,
        "Replaced",
        &replaced_table(replaced, now).render(paint, width),
    );
    section(
        &mut text,
        paint,
        "History",
        &timeline(cluster, now).render(paint, width),
    );
    text
}

fn heading(cluster: &Cluster, paint: Paint, now: f64) -> String {
    let spec = cluster.spec.clone().unwrap_or_default();
    let status = cluster.status.clone().unwrap_or_default();
    let mut text = format!(
        "{}  {}",
        paint.tone(Tone::Strong, &clean(short(&cluster.name))),
        paint.tone(state_tone(status.state), &state_name(status.state))
    );
    if let Some(since) = &status.state_since {
        text.push_str(&format!(" for {}", units::duration(units::since(since, now))));
    }
    let words = format!("{} for {}", wanted_text(&spec), spec.customer);
    text.push_str(&format!("\n{}\n", clean(&words)));
    text
}

fn standing(cluster: &Cluster, now: f64) -> Table {
    let spec = cluster.spec.clone().unwrap_or_default();
    let status = cluster.status.clone().unwrap_or_default();
    let mut table = Table::pairs().indented(2);
    if !status.reason.is_empty() {
        table.row(["reason".into(), reason_cell(&status.reason)]);
    }
    if !status.waiting_for.is_empty() {
        table.row(["waits for".into(), (&status.waiting_for).into()]);
    }
    table.row(["nodes".into(), standings_text(&status.members).into()]);
    changing(&mut table, &status);
    table.row(["partition".into(), partition_cell(status.partition.as_ref(), now)]);
    if !status.network.is_empty() {
        table.row(["network".into(), (&status.network).into()]);
    }
    table.row(["lease".into(), lease_text(&spec, now).into()]);
    if let Some(took) = hand_over_duration(cluster) {
        let words = format!("{} after the request", units::duration(took));
        table.row(["first ready".into(), words.into()]);
    }
    table
}

/// Seconds from the request to the first hand-over, if the history still contains both.
fn hand_over_duration(cluster: &Cluster) -> Option<f64> {
    let created = cluster.metadata.as_ref()?.create_time?;
    let history = &cluster.status.as_ref()?.history;
    let is_first = |step: &&rackwright_api::v1::ClusterTransition| {
        step.to_state == ClusterState::Ready as i32 && step.from_state == ClusterState::Validating as i32
    };
    let first = history.iter().rev().find(is_first)?;
    units::between(Some(&created), first.time.as_ref())
}

/// Nodes in another standing than those of a cluster in its state should have.
fn deviating(members: &[ClusterMember]) -> impl Iterator<Item = &ClusterMember> {
    // A node in use has a reason while its link to the fabric is broken.
    let is_settled = |member: &&ClusterMember| {
        matches!(member.standing.as_str(), "handed-over" | "checked" | "freed") && member.reason.is_empty()
    };
    // Lost nodes first: they need an operator.
    let lost = members.iter().filter(|member| member.standing == "lost");
    let others = members
        .iter()
        .filter(move |member| member.standing != "lost" && !is_settled(member));
    lost.chain(others)
}

fn timeline(cluster: &Cluster, now: f64) -> Table {
    let mut table = Table::pairs().indented(2);
    let history = cluster.status.as_ref().map_or(&[][..], |status| &status.history);
    for step in history.iter().take(MOST) {
        let spent = step.time_in_former_state.as_ref().map(units::proto_seconds);
        let former = state_name(step.from_state);
        table.row([
            step.time.as_ref().map(units::stamp).unwrap_or_default().into(),
            ago(step.time.as_ref(), now).into(),
            (&step.edge).into(),
            state_cell(step.to_state),
            spent
                .map(|spent| format!("after {} {former}", units::duration(spent)))
                .unwrap_or_default()
                .into(),
            (&step.reason).into(),
        ]);
    }
    table
}
