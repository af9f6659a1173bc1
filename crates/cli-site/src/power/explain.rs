//! `rackwright power explain`

use std::fmt::Write as _;
use std::path::PathBuf;

use clap::Args;
use rackwright_api::v1::power_service_client::PowerServiceClient;
use rackwright_api::v1::{ExplainPowerRequest, ExplainPowerResponse, PowerLoss, PowerPsu};
use rackwright_cli_context::client::{Client, rpc};
use rackwright_cli_context::error::{CliError, plural};
use rackwright_cli_context::output::{Table, clean};
use rackwright_cli_context::{Cx, pages};
use tonic::Code;

use super::{kw, maybe};
use crate::site;

/// Number of steps in a page.
const PAGE: i32 = 1000;

/// `rackwright power explain`
#[derive(Debug, Args)]
pub struct ExplainArgs {
    /// A node, a cluster or a customer; nodes/NAME, clusters/NAME or customers/NAME if a name is ambiguous
    #[arg(value_name = "NODE|CLUSTER|CUSTOMER")]
    name: String,
    /// Explain a node from site files, without the server: file or directory (its *.yaml and *.yml files); repeat the option
    /// for several
    #[arg(long = "site", value_name = "FILE|DIR|-")]
    site: Vec<PathBuf>,
}

/// Shows the path from the utility to each PSU.
pub async fn run(cx: &Cx, args: ExplainArgs) -> Result<(), CliError> {
    if !args.site.is_empty() {
        return site::explain::run(cx, &args.name, &args.site);
    }
    let client = cx.client().await?;
    let explained = find(&client, &args.name).await?;
    cx.ui.item(&explained, |paint| {
        text(&explained, |table| table.render(paint, cx.ui.width()))
    })
}

/// Tries a bare name as the name of a node, then of a cluster, then of a customer.
async fn find(client: &Client, name: &str) -> Result<ExplainPowerResponse, CliError> {
    if name.contains('/') {
        return all_pages(client, name).await;
    }
    for kind in ["nodes", "clusters"] {
        match all_pages(client, &format!("{kind}/{name}")).await {
            Err(error) if error.code() == Some(Code::NotFound) => {}
            other => return other,
        }
    }
    match all_pages(client, &format!("customers/{name}")).await {
        Err(error) if error.code() == Some(Code::NotFound) => Err(CliError::usage(
            format!("the site has no node, cluster or customer named {name}"),
            "`rackwright cluster list` and `rackwright node list` show the names",
        )),
        other => other,
    }
}

/// Reads all steps, page by page.
async fn all_pages(client: &Client, name: &str) -> Result<ExplainPowerResponse, CliError> {
    let mut explained = ExplainPowerResponse::default();
    let steps = pages::all(async |page_token| {
        let is_first = page_token.is_empty();
        let request = ExplainPowerRequest {
            name: name.to_owned(),
            page_size: PAGE,
            page_token,
        };
        let mut page = rpc!(
            client,
            PowerServiceClient.explain_power,
            format!("explain the power of {name}"),
            request
        )
        .await?;
        let read = (
            std::mem::take(&mut page.steps),
            std::mem::take(&mut page.next_page_token),
        );
        if is_first {
            explained = page;
        }
        Ok(read)
    })
    .await?;
    Ok(ExplainPowerResponse { steps, ..explained })
}

fn text(explained: &ExplainPowerResponse, render: impl FnOnce(&Table) -> String) -> String {
    let mut out = String::new();
    let measured = match explained.measured_watts {
        Some(watts) => format!("measured: {}", kw(watts)),
        None => "not all nodes are measured".to_owned(),
    };
    // Writing to a string cannot fail.
    let _ = writeln!(
        out,
        "{}: {}, at most {} together; {measured}.",
        clean(&explained.name),
        plural(usize::try_from(explained.node_count).unwrap_or_default(), "node"),
        kw(explained.reserved_watts)
    );
    for alarm in &explained.alarms {
        let _ = writeln!(
            out,
            "ALARM {}: {}; {}",
            clean(&alarm.severity),
            clean(&alarm.message),
            clean(&alarm.advice)
        );
    }
    for psu in &explained.psus {
        let _ = writeln!(out, "{}", psu_text(psu));
    }
    let _ = writeln!(out);
    let mut table = Table::new(&[
        "KIND", "NAME", "FED BY", "FEED", "RATED", "DERATED", "RESERVED", "THESE", "MEASURED", "NODES", "STARTS",
    ]);
    for step in &explained.steps {
        let starts = match step.starts_at_once {
            0 => "all".to_owned(),
            count => count.to_string(),
        };
        table.row([
            (&step.kind).into(),
            (&step.name).into(),
            (&step.parent).into(),
            (&step.feed).into(),
            kw(step.rated_watts).into(),
            kw(step.derated_watts).into(),
            kw(step.reserved_watts).into(),
            kw(step.own_watts).into(),
            maybe(step.measured_watts).into(),
            step.nodes.to_string().into(),
            starts.into(),
        ]);
    }
    out.push_str(&render(&table));
    if !explained.losses.is_empty() {
        let _ = writeln!(out);
    }
    for loss in &explained.losses {
        let _ = writeln!(out, "{}", loss_text(loss));
    }
    out
}

fn psu_text(psu: &PowerPsu) -> String {
    match psu.outlet.as_str() {
        "" => format!("PSU {} is not plugged in", psu.psu),
        outlet => format!("PSU {} draws {} from outlet {}", psu.psu, kw(psu.watts), clean(outlet)),
    }
}

fn loss_text(loss: &PowerLoss) -> String {
    let end = if loss.survives {
        "the node stays on"
    } else {
        "the node goes down"
    };
    let supply = if loss.live == 1 {
        "remains and supplies"
    } else {
        "remain and supply"
    };
    format!(
        "Feed {} lost: {} {supply} {}: {end}.",
        clean(&loss.feed),
        plural(usize::try_from(loss.live).unwrap_or_default(), "PSU"),
        kw(loss.live_watts)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_node_and_one_psu_are_named_in_the_singular() {
        let explained = ExplainPowerResponse {
            name: "nodes/gpu-1".into(),
            node_count: 1,
            ..ExplainPowerResponse::default()
        };
        assert!(text(&explained, |_| String::new()).starts_with("nodes/gpu-1: 1 node, at most"));
        let loss = |live| PowerLoss {
            feed: "A".into(),
            live,
            ..PowerLoss::default()
        };
        assert!(loss_text(&loss(1)).starts_with("Feed A lost: 1 PSU remains and supplies"));
        assert!(loss_text(&loss(2)).starts_with("Feed A lost: 2 PSUs remain and supply"));
    }
}
