//! `rackwright cluster release`: shows what is destroyed, and asks for consent.

use clap::Args;
use rackwright_api::v1::cluster_service_client::ClusterServiceClient;
use rackwright_api::v1::{Cluster, ReleaseClusterRequest};
use rackwright_cli_context::client::rpc;
use rackwright_cli_context::error::{CliError, plural};
use rackwright_cli_context::mutation::MutationArgs;
use rackwright_cli_context::names::listed;
use rackwright_cli_context::output::clean;
use rackwright_cli_context::wait::WaitArgs;
use rackwright_cli_context::{Cx, names, operation};

use super::{get, short};

/// `rackwright cluster release`
#[derive(Debug, Args)]
pub struct ReleaseArgs {
    /// The cluster
    name: String,
    /// Do not ask for confirmation; all data on the drives is destroyed
    #[arg(long, short)]
    yes: bool,
    #[command(flatten)]
    waiting: WaitArgs,
    #[command(flatten)]
    mutation: MutationArgs,
}

/// Releases a cluster.
pub async fn run(cx: &Cx, args: ReleaseArgs) -> Result<(), CliError> {
    let client = cx.client().await?;
    let id = short(&args.name).to_owned();
    if !args.yes {
        let lost = lost(&get(&client, &id).await?);
        cx.ui.consent(
            &format!("this destroys {lost}"),
            &format!("Releasing {id} destroys {lost}."),
        )?;
    }
    let request = ReleaseClusterRequest {
        name: names::full("clusters", &id),
        mutation: Some(args.mutation.once()),
    };
    let doing = format!("release cluster {id}");
    let started = rpc!(client, ClusterServiceClient.release_cluster, doing, request).await?;
    operation::finish_one(cx, &client, started, args.waiting).await
}

/// The data and the partition that a release destroys, and the links and power that it frees.
fn lost(cluster: &Cluster) -> String {
    let spec = cluster.spec.clone().unwrap_or_default();
    let status = cluster.status.clone().unwrap_or_default();
    let nodes: Vec<String> = status
        .members
        .iter()
        .map(|member| names::short("nodes", &member.node).to_owned())
        .collect();
    let listed = if nodes.is_empty() {
        String::new()
    } else {
        format!(" ({})", listed(&nodes))
    };
    let partition = status
        .partition
        .filter(|partition| !partition.key.is_empty())
        .map(|partition| format!(" and partition {}", partition.key))
        .unwrap_or_default();
    clean(&format!(
        "all data on the drives of {}{listed} of {}{partition}, and frees its links and {:.1} kW",
        plural(nodes.len(), "node"),
        spec.customer,
        status.reserved_watts / 1000.0
    ))
}
