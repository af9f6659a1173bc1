//! `node explain`: one screen with a node's state and its time, the cause and limit of its wait, the attempts so
//! far, and the next steps.

use rackwright_api::v1::node_service_client::NodeServiceClient;
use rackwright_api::v1::{ExplainNodeRequest, Explanation, Node};
use rackwright_cli_context::client::{Client, rpc};
use rackwright_cli_context::error::CliError;
use rackwright_cli_context::output::table::Cell;
use rackwright_cli_context::output::{Paint, Table, Tone, clean};
use rackwright_cli_context::{Cx, names, units};

use super::{image_text, state_cell, state_name, state_tone};

/// Most lines of each section, so that all fit on a screen.
const MOST: usize = 8;

/// Shows the explanation.
pub async fn run(cx: &Cx, id: &str) -> Result<(), CliError> {
    let explanation = get(&*cx.client().await?, id).await?;
    let width = cx.ui.width();
    cx.ui
        .item(&explanation, |paint| screen(&explanation, paint, width, units::now()))
}

/// Reads the explanation.
pub async fn get(client: &Client, id: &str) -> Result<Explanation, CliError> {
    let request = ExplainNodeRequest {
        name: names::full("nodes", id),
    };
    let doing = format!("explain node {}", names::short("nodes", id));
    rpc!(client, NodeServiceClient.explain_node, doing, request).await
}

/// The explanation for people.
pub fn screen(explanation: &Explanation, paint: Paint, width: Option<usize>, now: f64) -> String {
    let node = explanation.node.clone().unwrap_or_default();
    let mut text = heading(&node, paint, now);
    if !explanation.summary.is_empty() {
        text.push_str(&format!("{}\n", clean(&explanation.summary)));
    }
    text.push_str(&status_table(&node, &explanation.summary, now).render(paint, width));
    let mut section = |title: &str, body: String| {
        if !body.is_empty() {
            text.push_str(&format!("\n{}\n{body}", paint.tone(Tone::Strong, title)));
        }
    };
    section("What you can do", hints(explanation));
    section("Tried in this state", attempts(explanation, now).render(paint, width));
    section("History", history(explanation, now).render(paint, width));
    section("Known facts", facts(explanation, now).render(paint, width));
    text
}

fn heading(node: &Node, paint: Paint, now: f64) -> String {
    let status = node.status.clone().unwrap_or_default();
    let mut text = format!(
        "{}  {}",
        paint.tone(Tone::Strong, &clean(names::short("nodes", &node.name))),
        paint.tone(state_tone(status.state), &state_name(status.state))
    );
    if let Some(since) = &status.state_since {
        text.push_str(&format!(" for {}", units::duration(units::since(since, now))));
    }
    if let Some(deadline) = &status.state_deadline {
        let left = -units::since(deadline, now);
        let words = if left >= 0.0 {
            "left before the deadline"
        } else {
            "past its deadline"
        };
        text.push_str(&format!(", {} {words}", units::duration(left.abs())));
    }
    text.push('\n');
    text
}

/// Facts that the summary does not contain.
fn status_table(node: &Node, summary: &str, now: f64) -> Table {
    let status = node.status.clone().unwrap_or_default();
    let mut table = Table::pairs().indented(2);
    if !status.reason.is_empty() && !summary.contains(&status.reason) {
        table.row(["reason".into(), Cell::toned(&status.reason, Tone::Bad)]);
    }
    if !status.waiting_for.is_empty() && !summary.contains(&status.waiting_for) {
        let until = status.waiting_until.as_ref().map(|until| {
            let left = -units::since(until, now);
            if left >= 0.0 {
                format!(", for at most {}", units::duration(left))
            } else {
                ", overdue".to_owned()
            }
        });
        table.row([
            "waits for".into(),
            format!("{}{}", status.waiting_for, until.unwrap_or_default()).into(),
        ]);
    }
    let agent = if status.agent_connected {
        "agent connected"
    } else {
        "no agent"
    };
    let address = if status.address.is_empty() {
        String::new()
    } else {
        format!(", address {}", status.address)
    };
    table.row([
        "machine".into(),
        format!("power {}, {agent}{address}", status.power).into(),
    ]);
    let image = image_text(node);
    if !image.is_empty() {
        let claimed = if status.claim.is_some() {
            "claimed"
        } else {
            "not claimed"
        };
        table.row([
            "image".into(),
            format!("{image}, {claimed}, generation {}", status.claim_generation).into(),
        ]);
    }
    table
}

fn hints(explanation: &Explanation) -> String {
    let lines = explanation.hints.iter().enumerate();
    lines
        .map(|(index, hint)| format!("  {}. {}\n", index + 1, clean(hint)))
        .collect()
}

fn ago(time: Option<&prost_types::Timestamp>, now: f64) -> String {
    time.map(|time| format!("{} ago", units::age(units::since(time, now))))
        .unwrap_or_default()
}

fn attempts(explanation: &Explanation, now: f64) -> Table {
    let mut table = Table::pairs().indented(2);
    for attempt in explanation.attempts.iter().take(MOST) {
        let tone = match attempt.outcome.as_str() {
            "succeeded" => Tone::Good,
            "running" => Tone::Busy,
            "interrupted" => Tone::Dim,
            _ => Tone::Bad,
        };
        let took = units::between(attempt.start_time.as_ref(), attempt.end_time.as_ref());
        table.row([
            ago(attempt.start_time.as_ref(), now).into(),
            format!("{} #{}", attempt.effect, attempt.number).into(),
            Cell::toned(&attempt.outcome, tone),
            took.map(units::duration).unwrap_or_default().into(),
            (&attempt.detail).into(),
        ]);
    }
    table
}

fn history(explanation: &Explanation, now: f64) -> Table {
    let mut table = Table::pairs().indented(2);
    for step in explanation.history.iter().take(MOST) {
        let spent = step
            .time_in_former_state
            .as_ref()
            .map(|d| units::duration(units::proto_seconds(d)));
        table.row([
            ago(step.time.as_ref(), now).into(),
            (&step.edge).into(),
            state_cell(step.to_state),
            format!("after {} {}", spent.unwrap_or_default(), state_name(step.from_state)).into(),
            (&step.reason).into(),
        ]);
    }
    table
}

fn facts(explanation: &Explanation, now: f64) -> Table {
    let mut table = Table::pairs().indented(2);
    for fact in &explanation.facts {
        table.row([
            (&fact.name).into(),
            (&fact.value).into(),
            ago(fact.time.as_ref(), now).into(),
        ]);
    }
    table
}
