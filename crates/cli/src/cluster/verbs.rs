//! `rackwright cluster replace`, `lease` and `delete`.

use clap::Args;
use prost_types::Timestamp;
use rackwright_api::v1::cluster_service_client::ClusterServiceClient;
use rackwright_api::v1::{DeleteClusterRequest, ReplaceClusterNodeRequest, SetClusterLeaseRequest};
use rackwright_cli_context::client::rpc;
use rackwright_cli_context::error::CliError;
use rackwright_cli_context::mutation::MutationArgs;
use rackwright_cli_context::output::{Format, clean};
use rackwright_cli_context::wait::WaitArgs;
use rackwright_cli_context::{Cx, names, operation, units};

use super::short;
use super::show::lease_text;

/// `rackwright cluster replace`
#[derive(Debug, Args)]
pub struct ReplaceArgs {
    /// The cluster
    name: String,
    /// The node to replace
    node: String,
    /// Reason, stored and shown to others
    #[arg(long)]
    reason: String,
    /// Do not ask for confirmation; all data on the drives of the removed node is destroyed
    #[arg(long, short)]
    yes: bool,
    #[command(flatten)]
    waiting: WaitArgs,
    #[command(flatten)]
    mutation: MutationArgs,
}

/// `rackwright cluster lease`
#[derive(Debug, Args)]
pub struct LeaseArgs {
    /// The cluster
    name: String,
    /// End of the lease, when the cluster is released automatically: 2026-12-31T18:00:00Z, or 30d from now
    #[arg(long, value_name = "TIME", value_parser = units::parse_moment, required_unless_present = "none")]
    until: Option<Timestamp>,
    /// Remove the end of the lease
    #[arg(long, conflicts_with = "until")]
    none: bool,
    #[command(flatten)]
    mutation: MutationArgs,
}

/// `rackwright cluster delete`
#[derive(Debug, Args)]
pub struct DeleteArgs {
    /// The cluster
    name: String,
    #[command(flatten)]
    mutation: MutationArgs,
}

/// Requests the replacement of a node.
pub async fn replace(cx: &Cx, args: ReplaceArgs) -> Result<(), CliError> {
    let (id, node) = (short(&args.name), names::short("nodes", &args.node));
    if !args.yes {
        let lost = clean(&format!("all data on the drives of {node}"));
        cx.ui.consent(
            &format!("this destroys {lost}"),
            &clean(&format!("Replacing {node} of cluster {id} destroys {lost}.")),
        )?;
    }
    let client = cx.client().await?;
    let doing = format!("replace {node} of cluster {id}");
    let request = ReplaceClusterNodeRequest {
        name: names::full("clusters", id),
        node: names::full("nodes", node),
        reason: args.reason,
        mutation: Some(args.mutation.once()),
    };
    let started = rpc!(client, ClusterServiceClient.replace_cluster_node, doing, request).await?;
    operation::finish_one(cx, &client, started, args.waiting).await
}

/// Sets the end of the lease.
pub async fn lease(cx: &Cx, args: LeaseArgs) -> Result<(), CliError> {
    let client = cx.client().await?;
    let id = short(&args.name);
    let request = SetClusterLeaseRequest {
        name: names::full("clusters", id),
        lease_end: args.until,
        mutation: Some(args.mutation.once()),
    };
    let doing = format!("set the lease of cluster {id}");
    let cluster = rpc!(client, ClusterServiceClient.set_cluster_lease, doing, request).await?;
    if cx.ui.format() != Format::Table {
        return cx.ui.item(&cluster, |_| String::new());
    }
    let spec = cluster.spec.unwrap_or_default();
    let words = match spec.lease_end {
        None => "has no end".to_owned(),
        Some(_) => lease_text(&spec, units::now()),
    };
    cx.ui
        .say(&clean(&format!("the lease of {} {words}", short(&cluster.name))))
}

/// Deletes a released cluster.
pub async fn delete(cx: &Cx, args: DeleteArgs) -> Result<(), CliError> {
    let client = cx.client().await?;
    let id = short(&args.name);
    let request = DeleteClusterRequest {
        name: names::full("clusters", id),
        mutation: Some(args.mutation.once()),
    };
    let doing = format!("delete cluster {id}");
    rpc!(client, ClusterServiceClient.delete_cluster, doing, request).await?;
    cx.ui.say(&format!("{id} deleted"))
}
