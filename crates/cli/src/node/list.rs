//! `node list` and `node get`.

use std::sync::LazyLock;

use clap::Args;
use rackwright_api::v1::{Node, NodeStatus};
use rackwright_cli_context::error::{CliError, plural};
use rackwright_cli_context::output::table::Cell;
use rackwright_cli_context::output::{Column, Paint, SortArgs, Table, Tone, clean, columns};
use rackwright_cli_context::{Cx, names, nodes, units};

use super::targets::Selection;
use super::{health_cell, image_text, labels_text, state_cell, watch};

/// `rackwright node list`
#[derive(Debug, Args)]
pub struct ListArgs {
    #[command(flatten)]
    pub selection: Selection,
    #[command(flatten)]
    sorting: SortArgs,
    /// Continue to show changes
    #[arg(long, conflicts_with = "sort_by")]
    watch: bool,
}

/// Shows nodes, and changes on request.
pub async fn run(cx: &Cx, args: ListArgs) -> Result<(), CliError> {
    let sorting = args.sorting.sorting(COLUMNS)?;
    let filter = args.selection.filter();
    if args.watch {
        return watch::follow(cx, Vec::new(), filter, None, None).await;
    }
    let client = cx.client().await?;
    let mut nodes = nodes::all(&client, &filter).await?;
    let (now, width, is_wide) = (units::now(), cx.ui.width(), cx.ui.is_wide());
    if let Some(sorting) = sorting {
        sorting.sort(&mut nodes, now);
    }
    cx.ui.list(&nodes, |paint| {
        columns::table(COLUMNS, &nodes, is_wide, now).render(paint, width)
    })
}

const COLUMNS: &[Column<Node>] = &[
    Column::<Node>::new("NODE", |node, _| names::short("nodes", &node.name).into()),
    Column::<Node>::new("STATE", |node, _| state_cell(status(node).state)),
    Column::<Node>::new("HEALTH", |node, _| health_cell(status(node).health)),
    Column::<Node>::new("SINCE", since).ordered(|node| status(node).state_since.as_ref().map(units::seconds)),
    Column::<Node>::new("POWER", |node, _| (&status(node).power).into()),
    Column::<Node>::new("AGENT", |node, _| match status(node).agent_connected {
        true => "yes".into(),
        false => "no".into(),
    }),
    Column::<Node>::new("SKU", |node, _| {
        let sku = node.spec.as_ref().map(|spec| spec.sku.as_str());
        sku.unwrap_or_default().into()
    }),
    Column::<Node>::new("CUSTOMER", |node, _| {
        let customer = status(node).claim.as_ref().map(|claim| claim.customer.as_str());
        customer.unwrap_or_default().into()
    }),
    Column::<Node>::new("IMAGE", |node, _| image_text(node).into()),
    Column::<Node>::new("ADDRESS", |node, _| (&status(node).address).into()).wide(),
    Column::<Node>::new("BMC", bmc).wide(),
    Column::<Node>::new("MACS", |node, _| status(node).macs.join(" ").into()).wide(),
    Column::<Node>::new("LABELS", labels).wide(),
    Column::<Node>::new("IDENTITY", |node, _| (&status(node).identity).into()).wide(),
    Column::<Node>::new("DEADLINE", deadline)
        .ordered(|node| status(node).state_deadline.as_ref().map(units::seconds))
        .wide(),
    Column::<Node>::new("WAITS FOR", waits_for),
];

fn status(node: &Node) -> &NodeStatus {
    static NONE: LazyLock<NodeStatus> = LazyLock::new(NodeStatus::default);
    node.status.as_ref().unwrap_or(&NONE)
}

fn since(node: &Node, now: f64) -> Cell {
    let since = status(node).state_since.as_ref();
    let age = since.map(|time| units::age(units::since(time, now)));
    age.unwrap_or_default().into()
}

fn bmc(node: &Node, _now: f64) -> Cell {
    let bmc = node.spec.as_ref().and_then(|spec| spec.bmc.as_ref());
    bmc.map(|bmc| bmc.address.as_str()).unwrap_or_default().into()
}

fn labels(node: &Node, _now: f64) -> Cell {
    let labels = node.metadata.as_ref().map(|metadata| labels_text(&metadata.labels));
    labels.unwrap_or_default().into()
}

fn deadline(node: &Node, _now: f64) -> Cell {
    let deadline = status(node).state_deadline.as_ref();
    deadline.map(units::stamp).unwrap_or_default().into()
}

fn waits_for(node: &Node, _now: f64) -> Cell {
    let status = status(node);
    let (doubt, reason) = (status.doubt.as_str(), status.reason.as_str());
    match (doubt, reason, status.waiting_for.as_str()) {
        // An idle node waits for nothing, but its BMC may still be silent.
        ("", "", "") => (&status.health_reason).into(),
        ("", "", waiting_for) => waiting_for.into(),
        ("", reason, _) => reason.into(),
        (doubt, ..) => format!("doubted: {doubt}").into(),
    }
}

/// `rackwright node get`
pub async fn get(cx: &Cx, id: &str) -> Result<(), CliError> {
    let node = nodes::get(&*cx.client().await?, id).await?;
    let width = cx.ui.width();
    cx.ui.item(&node, |paint| details(&node, paint, width))
}

fn details(node: &Node, paint: Paint, width: Option<usize>) -> String {
    let name = paint.tone(Tone::Strong, &clean(names::short("nodes", &node.name)));
    format!("{name}\n{}", record(node).render(paint, width))
}

/// The record of a node, field by field.
pub fn record(node: &Node) -> Table {
    let now = units::now();
    let status = node.status.clone().unwrap_or_default();
    let spec = node.spec.clone().unwrap_or_default();
    let bmc = spec.bmc.unwrap_or_default();
    let mut table = Table::pairs().indented(2);
    table.row(["state".into(), state_cell(status.state)]);
    if let Some(since) = &status.state_since {
        let age = units::duration(units::since(since, now));
        table.row(["since".into(), format!("{} ({age})", units::stamp(since)).into()]);
    }
    table.row(["health".into(), health_cell(status.health)]);
    if !status.health_reason.is_empty() && status.doubt.is_empty() {
        table.row(["".into(), (&status.health_reason).into()]);
    }
    table.row(["waits for".into(), (&status.waiting_for).into()]);
    table.row(["reason".into(), (&status.reason).into()]);
    if !status.doubt.is_empty() {
        table.row(["doubted".into(), (&status.doubt).into()]);
    }
    table.row(["power".into(), (&status.power).into()]);
    table.row([
        "agent".into(),
        if status.agent_connected {
            "connected"
        } else {
            "not connected"
        }
        .into(),
    ]);
    table.row(["address".into(), (&status.address).into()]);
    table.row(["MACs".into(), status.macs.join(" ").into()]);
    let identity = match (status.identity.as_str(), status.tpm_ek.as_str()) {
        ("", _) => Cell::from("not known yet"),
        ("tpm", ek) => Cell::toned(format!("tpm, {}", clean(ek)), Tone::Good),
        (other, _) => Cell::from(clean(other)),
    };
    table.row(["identity".into(), identity]);
    if !spec.boot_macs.is_empty() {
        table.row([
            "boot MACs".into(),
            format!("{}, as given", spec.boot_macs.join(" ")).into(),
        ]);
    }
    table.row(["SKU".into(), spec.sku.into()]);
    table.row(["BMC".into(), format!("{} as {}", bmc.address, bmc.username).into()]);
    table.row(["BMC pin".into(), bmc.certificate_sha256.into()]);
    if let Some(claim) = &status.claim {
        let keys = plural(claim.ssh_authorized_keys.len(), "SSH key");
        let image = names::image_short(&claim.image_version);
        let words = format!(
            "generation {}, {image}, host {}, {keys}",
            claim.generation, claim.hostname
        );
        table.row(["claim".into(), words.into()]);
        if !claim.customer.is_empty() {
            table.row(["customer".into(), (&claim.customer).into()]);
        }
    } else {
        table.row([
            "claim".into(),
            format!("none, generation {}", status.claim_generation).into(),
        ]);
    }
    table.row(["on disk".into(), names::image_short(&status.image_written).into()]);
    let metadata = node.metadata.clone().unwrap_or_default();
    table.row(["labels".into(), labels_text(&metadata.labels).into()]);
    table.row(["version".into(), metadata.resource_version.into()]);
    table
}
