//! `rackwright cluster resize`: shows which nodes join and what is destroyed, and asks for consent.

use clap::Args;
use rackwright_api::v1::cluster_service_client::ClusterServiceClient;
use rackwright_api::v1::{ClusterResizePlan, ClusterSize, PlanClusterResizeRequest, ResizeClusterRequest};
use rackwright_cli_context::client::{Client, rpc};
use rackwright_cli_context::error::{CliError, plural};
use rackwright_cli_context::mutation::MutationArgs;
use rackwright_cli_context::names::listed;
use rackwright_cli_context::output::{Format, clean};
use rackwright_cli_context::wait::WaitArgs;
use rackwright_cli_context::{Cx, names, operation};

use super::short;

/// `rackwright cluster resize`
#[derive(Debug, Args)]
pub struct ResizeArgs {
    /// The cluster
    name: String,
    /// New number of nodes in use
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), required_unless_present_any = ["spares", "leave"])]
    nodes: Option<u32>,
    /// New number of spare nodes
    #[arg(long, value_name = "N")]
    spares: Option<u32>,
    /// Nodes that leave; further nodes are chosen so that the cluster stays compact in the fabric
    #[arg(long, value_name = "NODE", value_delimiter = ',')]
    leave: Vec<String>,
    /// Show the nodes that would join and leave, without reserving anything
    #[arg(long, conflicts_with = "wait")]
    plan: bool,
    /// Do not ask for confirmation; all data on the drives of nodes that leave is destroyed
    #[arg(long, short)]
    yes: bool,
    #[command(flatten)]
    waiting: WaitArgs,
    #[command(flatten)]
    mutation: MutationArgs,
}

/// Changes the size of a cluster.
pub async fn run(cx: &Cx, args: ResizeArgs) -> Result<(), CliError> {
    let client = cx.client().await?;
    let id = short(&args.name).to_owned();
    let nodes = args.leave.iter().map(|node| names::short("nodes", node));
    let size = ClusterSize {
        nodes: args.nodes,
        spares: args.spares,
        leave: nodes.map(|node| names::full("nodes", node)).collect(),
    };
    if args.plan {
        return show(cx, &id, &planned(&client, &id, size).await?);
    }
    if !args.yes {
        let plan = planned(&client, &id, size.clone()).await?;
        if plan.fits && !plan.leave.is_empty() {
            let lost = format!("all data on the drives of {}", listed(&plan.leave));
            cx.ui.consent_or(
                &format!("this destroys {lost}"),
                &format!("Resizing {id} destroys {lost}."),
                "give --yes to confirm; --plan shows the nodes that join and leave",
            )?;
        }
    }
    let request = ResizeClusterRequest {
        name: names::full("clusters", &id),
        size: Some(size),
        mutation: Some(args.mutation.once()),
    };
    let doing = format!("resize cluster {id}");
    let started = rpc!(client, ClusterServiceClient.resize_cluster, doing, request).await?;
    operation::finish_one(cx, &client, started, args.waiting).await
}

async fn planned(client: &Client, id: &str, size: ClusterSize) -> Result<ClusterResizePlan, CliError> {
    let request = PlanClusterResizeRequest {
        name: names::full("clusters", id),
        size: Some(size),
    };
    let doing = format!("plan the size of cluster {id}");
    rpc!(client, ClusterServiceClient.plan_cluster_resize, doing, request).await
}

fn show(cx: &Cx, id: &str, plan: &ClusterResizePlan) -> Result<(), CliError> {
    if cx.ui.format() != Format::Table {
        return cx.ui.item(plan, |_| String::new());
    }
    if !plan.fits {
        return Err(CliError::usage(format!("{id}: {}", plan.refusal), ""));
    }
    for (what, nodes) in [("to join", &plan.join), ("to erase and remove", &plan.leave)] {
        if !nodes.is_empty() {
            cx.ui.say(&clean(&format!(
                "{} {what}: {}",
                plural(nodes.len(), "node"),
                listed(nodes)
            )))?;
        }
    }
    let kilowatts = plan.reserved_watts / 1000.0;
    cx.ui.say(&format!(
        "{kilowatts:.1} kW are reserved until the leaving nodes are erased"
    ))?;
    cx.ui.say(plan.picture.trim_end())
}
