//! `node describe`: a node on one page: the reasons for its state, its record, its hardware and its newest events.

use rackwright_api::v1::{Event, Explanation, Inventory, Node};
use rackwright_cli_context::error::{CliError, plural};
use rackwright_cli_context::output::{Format, Paint, Table, Tone, clean, json};
use rackwright_cli_context::{Cx, names, nodes, units};
use serde_json::{Value, json};
use tonic::Code;

use super::{explain, inventory, list};
use crate::events;

/// Everything that is shown.
struct Description {
    node: Node,
    /// `None`: the caller is a customer. Only members of the site get explanations.
    explanation: Option<Explanation>,
    /// The newest events, in order.
    events: Vec<Event>,
}

/// Shows the page.
pub async fn run(cx: &Cx, id: &str) -> Result<(), CliError> {
    let client = cx.client().await?;
    let node = nodes::get(&client, id).await?;
    let explanation = match explain::get(&client, id).await {
        Ok(explanation) => Some(explanation),
        Err(error) if error.code() == Some(Code::PermissionDenied) => None,
        Err(error) => return Err(error),
    };
    let events = events::newest(&client, &node.name).await?;
    let description = Description {
        node,
        explanation,
        events,
    };
    match cx.ui.format() {
        Format::Table => cx.ui.line(text(&description, cx.ui.paint(), cx.ui.width()).trim_end()),
        Format::Name => cx.ui.line(&clean(&description.node.name)),
        Format::Json | Format::Yaml => cx.ui.value(&value(&description)?),
    }
}

fn text(description: &Description, paint: Paint, width: Option<usize>) -> String {
    let Description {
        node,
        explanation,
        events,
    } = description;
    let mut text = match explanation {
        Some(explanation) => explain::screen(explanation, paint, width, units::now()),
        None => format!(
            "{}\n",
            paint.tone(Tone::Strong, &clean(names::short("nodes", &node.name)))
        ),
    };
    let mut section = |title: &str, body: &str| {
        if !body.is_empty() {
            text.push_str(&format!("\n{}\n{body}", paint.tone(Tone::Strong, title)));
        }
    };
    section("Record", &list::record(node).render(paint, width));
    let inventory = node.status.as_ref().and_then(|status| status.inventory.as_ref());
    match inventory {
        Some(inventory) => section("Hardware", &hardware(inventory).render(paint, width)),
        None => section("Hardware", "  not known yet: an inspection reads it\n"),
    }
    section("Newest events", &events::lines(events, paint));
    text
}

/// The system and the number of its parts.
fn hardware(inventory: &Inventory) -> Table {
    let mut table = inventory::system(inventory).indented(2);
    let bytes = inventory.drives.iter().map(|drive| drive.size_bytes).sum();
    let drives = plural(inventory.drives.len(), "drive");
    table.row(["drives".into(), format!("{drives}, {}", units::bytes(bytes)).into()]);
    let cards = plural(inventory.nics.len(), "Ethernet card");
    let adapters = plural(inventory.hcas.len(), "InfiniBand adapter");
    table.row(["network".into(), format!("{cards}, {adapters}").into()]);
    let mut gpus: Vec<(&str, usize)> = Vec::new();
    for gpu in &inventory.gpus {
        match gpus.iter_mut().find(|(model, _)| *model == gpu.model) {
            Some((_, count)) => *count += 1,
            None => gpus.push((&gpu.model, 1)),
        }
    }
    for (model, count) in gpus {
        table.row(["GPU".into(), format!("{count} × {}", clean(model)).into()]);
    }
    table
}

fn value(description: &Description) -> Result<Value, CliError> {
    let events: Vec<Value> = description
        .events
        .iter()
        .map(json::to_value)
        .collect::<Result<_, _>>()?;
    let explanation = description.explanation.as_ref().map(json::to_value).transpose()?;
    Ok(json!({
        "node": json::to_value(&description.node)?,
        "explanation": explanation,
        "events": events,
    }))
}
