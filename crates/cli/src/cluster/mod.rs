//! `rackwright cluster`: nodes of one SKU as a unit, with one image, a fabric partition, and promises of power,
//! cooling and links. `plan --site` works from files and needs no server.

mod changes;
mod create;
mod describe;
mod explain;
mod hints;
pub mod list;
mod pack;
mod plan;
mod reimage;
mod release;
mod resize;
mod show;
mod verbs;
mod wanted;
mod watch;

use clap::Subcommand;
use rackwright_api::v1::cluster_service_client::ClusterServiceClient;
use rackwright_api::v1::{Cluster, ClusterState, GetClusterRequest};
use rackwright_cli_context::client::{Client, rpc};
use rackwright_cli_context::error::CliError;
use rackwright_cli_context::output::Tone;
use rackwright_cli_context::output::table::Cell;
use rackwright_cli_context::{Cx, names};

/// `rackwright cluster`
#[derive(Debug, Subcommand)]
pub enum ClusterCommand {
    /// Show where clusters would be placed, without reserving anything
    Plan(plan::PlanArgs),
    /// Reserve nodes, links, power, cooling and a partition, all or nothing, and build clusters
    Create(Box<create::CreateArgs>),
    /// Show clusters
    List(list::ListArgs),
    /// Show one cluster with its nodes
    Get { name: String },
    /// Show the reasons for a cluster's state, its history, and what to do
    Explain { name: String },
    /// Show everything about a cluster: reasons, record, nodes, newest events
    Describe { name: String },
    /// Show the changes of a cluster until it is ready, released or failed
    Watch(watch::WatchArgs),
    /// Replace a node by another suitable node (all data on its drives is lost)
    Replace(verbs::ReplaceArgs),
    /// Add nodes, or remove nodes (all data on the drives of removed nodes is lost)
    Resize(resize::ResizeArgs),
    /// Write another image to all nodes, some at a time (all data on their drives is lost)
    Reimage(Box<reimage::ReimageArgs>),
    /// Continue a stopped reimage; failed nodes are tried again
    Resume(reimage::ResumeArgs),
    /// Write the former image to every node that does not have it
    Rollback(reimage::RollBackArgs),
    /// Build a failed cluster again
    Retry(reimage::RetryArgs),
    /// Set or remove the end of the lease
    Lease(verbs::LeaseArgs),
    /// Release a cluster: all drives of its nodes are erased and all its reservations are freed
    Release(release::ReleaseArgs),
    /// Delete a released cluster
    Delete(verbs::DeleteArgs),
    /// Get the files for the customer's team: Slurm, Kubernetes, NCCL, Ansible, and the promised and proven properties
    Pack(pack::PackArgs),
}

/// Runs a cluster command.
pub async fn run(cx: &Cx, command: ClusterCommand) -> Result<(), CliError> {
    match command {
        ClusterCommand::Plan(args) => plan::run(cx, &args).await,
        ClusterCommand::Create(args) => create::run(cx, *args).await,
        ClusterCommand::List(args) => list::run(cx, args).await,
        ClusterCommand::Get { name } => show::run(cx, &name).await,
        ClusterCommand::Explain { name } => explain::run(cx, &name).await,
        ClusterCommand::Describe { name } => describe::run(cx, &name).await,
        ClusterCommand::Watch(args) => watch::run(cx, args).await,
        ClusterCommand::Replace(args) => verbs::replace(cx, args).await,
        ClusterCommand::Resize(args) => resize::run(cx, args).await,
        ClusterCommand::Reimage(args) => reimage::reimage(cx, *args).await,
        ClusterCommand::Resume(args) => reimage::resume(cx, args).await,
        ClusterCommand::Rollback(args) => reimage::roll_back(cx, args).await,
        ClusterCommand::Retry(args) => reimage::retry(cx, args).await,
        ClusterCommand::Lease(args) => verbs::lease(cx, args).await,
        ClusterCommand::Release(args) => release::run(cx, args).await,
        ClusterCommand::Delete(args) => verbs::delete(cx, args).await,
        ClusterCommand::Pack(args) => pack::run(cx, args).await,
    }
}

/// Reads one cluster with its members and history.
async fn get(client: &Client, name: &str) -> Result<Cluster, CliError> {
    let request = GetClusterRequest {
        name: names::full("clusters", name),
    };
    let doing = format!("read cluster {}", short(name));
    rpc!(client, ClusterServiceClient.get_cluster, doing, request).await
}

/// `alpha` for `clusters/alpha` and for `alpha`.
fn short(name: &str) -> &str {
    names::short("clusters", name)
}

/// `degraded`
pub fn state_name(state: i32) -> String {
    match ClusterState::try_from(state) {
        Ok(state) => state
            .as_str_name()
            .trim_start_matches("CLUSTER_STATE_")
            .to_ascii_lowercase(),
        Err(_) => "unknown".to_owned(),
    }
}

/// The colour of a state.
fn state_tone(state: i32) -> Tone {
    match ClusterState::try_from(state) {
        Ok(ClusterState::Ready) => Tone::Good,
        Ok(ClusterState::Degraded | ClusterState::Failed) => Tone::Bad,
        Ok(ClusterState::Released | ClusterState::Unspecified) | Err(_) => Tone::Dim,
        Ok(_) => Tone::Busy,
    }
}

pub fn state_cell(state: i32) -> Cell {
    Cell::toned(state_name(state), state_tone(state))
}

/// Parses a state's name.
fn parse_state(text: &str) -> Result<ClusterState, String> {
    let name = format!("CLUSTER_STATE_{}", text.to_ascii_uppercase());
    ClusterState::from_str_name(&name)
        .filter(|state| *state != ClusterState::Unspecified)
        .ok_or_else(|| {
            let known: Vec<_> = (1..=10).map(state_name).collect();
            format!("unknown state; known states: {}", known.join(", "))
        })
}

/// The colour of a node's standing.
fn standing_tone(standing: &str) -> Tone {
    match standing {
        "handed-over" => Tone::Good,
        "lost" => Tone::Bad,
        "leaving" | "freed" => Tone::Dim,
        _ => Tone::Busy,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_named_and_read() {
        assert_eq!(state_name(ClusterState::Degraded as i32), "degraded");
        assert_eq!(state_name(99), "unknown");
        assert_eq!(parse_state("Ready"), Ok(ClusterState::Ready));
        assert!(parse_state("unspecified").is_err());
        assert!(
            parse_state("asleep")
                .unwrap_err()
                .ends_with("failed, resizing, reimaging")
        );
    }
}
