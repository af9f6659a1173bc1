//! `cluster describe`: a cluster on one page: the reasons for its state, all nodes, and its newest events.

use rackwright_cli_context::error::CliError;
use rackwright_cli_context::output::{Format, clean, json};
use rackwright_cli_context::{Cx, units};
use serde_json::{Value, json};

use super::show::{members_table, section};
use super::{explain, get, show};
use crate::events;

/// Shows the page.
pub async fn run(cx: &Cx, name: &str) -> Result<(), CliError> {
    let client = cx.client().await?;
    let cluster = get(&client, name).await?;
    let events = events::newest(&client, &cluster.name).await?;
    match cx.ui.format() {
        Format::Table => {
            let (paint, width, now) = (cx.ui.paint(), cx.ui.width(), units::now());
            let mut text = explain::screen(&cluster, paint, width, now);
            section(
                &mut text,
                paint,
                "Record",
                &show::details(&cluster, now).render(paint, width),
            );
            let members = cluster.status.as_ref().map_or(&[][..], |status| &status.members);
            section(&mut text, paint, "Nodes", &members_table(members, paint, width));
            section(&mut text, paint, "Newest events", &events::lines(&events, paint));
            cx.ui.line(text.trim_end())
        }
        Format::Name => cx.ui.line(&clean(&cluster.name)),
        Format::Json | Format::Yaml => {
            let events: Vec<Value> = events.iter().map(json::to_value).collect::<Result<_, _>>()?;
            cx.ui
                .value(&json!({"cluster": json::to_value(&cluster)?, "events": events}))
        }
    }
}
