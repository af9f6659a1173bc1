//! `node list` and `node get`.

use clap::Args;
use rackwright_api::v1::Node;
use rackwright_cli_context::error::{CliError, plural};
use rackwright_cli_context::output::table::Cell;
use rackwright_cli_context::output::{Paint, Table, Tone, clean};
use rackwright_cli_context::{Cx, names, nodes, units};

use super::targets::Selection;
use super::{health_cell, image_text, labels_text, state_cell, watch};

/// `rackwright node list`
#[derive(Debug, Args)]
pub struct ListArgs {
    #[command(flatten)]
    pub selection: Selection,
    /// Continue to show changes
    #[arg(long)]
    watch: bool,
}

/// Shows nodes, and changes on request.
pub async fn run(cx: &Cx, args: ListArgs) -> Result<(), CliError> {
    let filter = args.selection.filter();
    if args.watch {
        return watch::follow(cx, Vec::new(), filter, None, None).await;
    }
    let client = cx.client().await?;
    let nodes = nodes::all(&client, &filter).await?;
    let width = cx.ui.width();
    cx.ui.list(&nodes, |paint| table(&nodes).render(paint, width))
}

fn table(nodes: &[Node]) -> Table {
    let now = units::now();
    let mut table = Table::new(&[
        "NODE",
        "STATE",
        "HEALTH",
        "SINCE",
        "POWER",
        "AGENT",
        "SKU",
        "CUSTOMER",
        "IMAGE",
        "WAITS FOR",
    ]);
    for node in nodes {
        let status = node.status.clone().unwrap_or_default();
        let since = status
            .state_since
            .as_ref()
            .map(|time| units::age(units::since(time, now)));
        let words = match (
            status.doubt.as_str(),
            status.reason.as_str(),
            status.waiting_for.as_str(),
        ) {
            // An idle node waits for nothing, but its BMC may still be silent.
            ("", "", "") => status.health_reason.clone(),
            ("", "", waiting_for) => waiting_for.to_owned(),
            ("", reason, _) => reason.to_owned(),
            (doubt, ..) => format!("doubted: {doubt}"),
        };
        table.row([
            names::short("nodes", &node.name).into(),
            state_cell(status.state),
            health_cell(status.health),
            since.unwrap_or_default().into(),
            (&status.power).into(),
            if status.agent_connected { "yes" } else { "no" }.into(),
            node.spec
                .as_ref()
                .map(|spec| spec.sku.as_str())
                .unwrap_or_default()
                .into(),
            status.claim.map(|claim| claim.customer).unwrap_or_default().into(),
            image_text(node).into(),
            words.into(),
        ]);
    }
    table
}

/// `rackwright node get`
pub async fn get(cx: &Cx, id: &str) -> Result<(), CliError> {
    let node = nodes::get(&*cx.client().await?, id).await?;
    let width = cx.ui.width();
    cx.ui.item(&node, |paint| details(&node, paint, width))
}

fn details(node: &Node, paint: Paint, width: Option<usize>) -> String {
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
    let name = paint.tone(Tone::Strong, &clean(names::short("nodes", &node.name)));
    format!("{name}\n{}", table.render(paint, width))
}
