//! `rackwright cluster create`

use std::path::{Path, PathBuf};

use clap::Args;
use prost_types::Timestamp;
use rackwright_api::v1::cluster_service_client::ClusterServiceClient;
use rackwright_api::v1::{ClusterSpec, CreateClusterRequest, Deployment};
use rackwright_cli_context::client::rpc;
use rackwright_cli_context::error::CliError;
use rackwright_cli_context::given::{pair, read_text, ssh_keys};
use rackwright_cli_context::mutation::MutationArgs;
use rackwright_cli_context::wait::WaitArgs;
use rackwright_cli_context::{Cx, names, operation, units};
use rackwright_cli_site::site::load;

use super::wanted::{self, ClusterRequest};

/// The bandwidth of a cluster without `--bandwidth`.
const DEFAULT_BANDWIDTH: &str = "non-blocking";

/// `rackwright cluster create`
#[derive(Debug, Args)]
pub struct CreateArgs {
    /// Name of the cluster: 1 to 63 characters of a-z, 0-9 and '-'
    #[arg(required_unless_present = "file", conflicts_with = "file", requires_all = ["customer", "sku", "nodes", "image"])]
    name: Option<String>,
    /// File with clusters, instead of NAME and its options: docs/placement.md
    #[arg(short, long, value_name = "FILE|-")]
    file: Option<PathBuf>,
    /// Owning customer, one of the site's customers
    #[arg(long, value_name = "NAME", conflicts_with = "file")]
    customer: Option<String>,
    /// SKU of the nodes
    #[arg(long, conflicts_with = "file")]
    sku: Option<String>,
    /// Number of nodes in use
    #[arg(long, value_name = "N", conflicts_with = "file", value_parser = clap::value_parser!(u32).range(1..))]
    nodes: Option<u32>,
    /// Number of spare nodes (default: 0)
    #[arg(long, value_name = "N", conflicts_with = "file")]
    spares: Option<u32>,
    /// Bandwidth: non-blocking (the default), best-effort, or a ratio of nodes to uplinks such as 2:1
    #[arg(long, conflicts_with = "file", value_parser = wanted::bandwidth)]
    bandwidth: Option<String>,
    /// Image: NAME for its newest version, or NAME@DIGEST
    #[arg(long, conflicts_with = "file")]
    image: Option<String>,
    /// SSH public key for logins, or a file with such keys; repeat the option for several
    #[arg(long = "ssh-key", value_name = "FILE|KEY", conflicts_with = "file")]
    ssh_keys: Vec<String>,
    /// File with cloud-config for the installed systems, in addition to Rackwright's own
    #[arg(long, value_name = "FILE", conflicts_with = "file")]
    user_data: Option<PathBuf>,
    /// End of the lease, when the cluster is released automatically: 2026-12-31T18:00:00Z, or 30d from now (default: no end)
    #[arg(long, value_name = "TIME", conflicts_with = "file", value_parser = units::parse_moment)]
    lease_end: Option<Timestamp>,
    /// Label, k=v; repeat the option for several
    #[arg(long = "label", value_name = "K=V", value_parser = pair, conflicts_with = "file")]
    labels: Vec<(String, String)>,
    #[command(flatten)]
    waiting: WaitArgs,
    #[command(flatten)]
    mutation: MutationArgs,
}

/// Requests the clusters one after the other; a refusal does not stop the later ones, but an outage does. Then waits for the
/// operations, if the arguments ask for it.
pub async fn run(cx: &Cx, args: CreateArgs) -> Result<(), CliError> {
    let cluster_requests = match &args.file {
        Some(file) => requests_from_file(file)?,
        None => vec![request_from_options(&args)?],
    };
    let mutations = args.mutation.each(cluster_requests.len())?;
    let client = cx.client().await?;
    let (mut started, mut errors) = (Vec::new(), Vec::new());
    let mut remaining = cluster_requests.into_iter();
    for cluster in remaining.by_ref() {
        let doing = format!("create cluster {}", cluster.name);
        let request = CreateClusterRequest {
            mutation: Some(mutations.of(&cluster.name)),
            cluster_id: cluster.name,
            spec: Some(cluster.spec),
            labels: cluster.labels,
        };
        match rpc!(client, ClusterServiceClient.create_cluster, doing, request).await {
            Ok(operation) => started.push(operation),
            // Without a server the other calls would only fail in the same way, slowly.
            Err(error) if error.is_outage() => {
                errors.push(error);
                break;
            }
            Err(error) => errors.push(error),
        }
    }
    let not_requested: Vec<String> = remaining.map(|cluster| cluster.name).collect();
    if !not_requested.is_empty() {
        let names = not_requested.join(", ");
        cx.ui.note(&format!("note: not requested after this failure: {names}"));
    }
    if !started.is_empty()
        && let Err(error) = operation::finish(cx, &client, started, args.waiting).await
    {
        errors.push(error);
    }
    CliError::gather(errors)
}

/// All clusters of a file. Every cluster without an image is an error.
fn requests_from_file(file: &Path) -> Result<Vec<ClusterRequest>, CliError> {
    let cluster_requests = wanted::cluster_requests(file, &load::read_file(file)?)?;
    let without_image = cluster_requests
        .iter()
        .enumerate()
        .filter(|(_, cluster)| cluster.image().is_empty());
    let fault = |index| {
        let message = format!("{}: clusters[{index}].image: is missing", file.display());
        CliError::usage(message, "`rackwright image list` shows the images")
    };
    CliError::gather(without_image.map(|(index, _)| fault(index)).collect())?;
    if cluster_requests.is_empty() {
        return Err(CliError::usage(
            format!("{}: the file contains no cluster", file.display()),
            "",
        ));
    }
    Ok(cluster_requests)
}

/// The one cluster that the options describe.
fn request_from_options(args: &CreateArgs) -> Result<ClusterRequest, CliError> {
    let user_data = args.user_data.as_deref().map(read_text).transpose()?;
    let deployment = Deployment {
        image: args.image.as_deref().map(names::image).unwrap_or_default(),
        ssh_authorized_keys: ssh_keys(&args.ssh_keys)?,
        user_data: user_data.unwrap_or_default(),
        ..Deployment::default()
    };
    let name = args.name.as_deref().unwrap_or_default();
    Ok(ClusterRequest {
        name: super::short(name).to_owned(),
        spec: ClusterSpec {
            customer: args.customer.clone().unwrap_or_default(),
            sku: args.sku.clone().unwrap_or_default(),
            nodes: args.nodes.unwrap_or_default(),
            spares: args.spares.unwrap_or_default(),
            bandwidth: args.bandwidth.clone().unwrap_or_else(|| DEFAULT_BANDWIDTH.to_owned()),
            deployment: Some(deployment),
            lease_end: args.lease_end,
        },
        labels: args.labels.iter().cloned().collect(),
    })
}
