//! `rackwright cluster reimage`, `resume`, `rollback` and `retry`.

use std::path::PathBuf;

use clap::Args;
use rackwright_api::v1::cluster_service_client::ClusterServiceClient;
use rackwright_api::v1::{
    Deployment, ReimageClusterRequest, ResumeClusterReimageRequest, RetryClusterRequest, RollBackClusterRequest,
    Rollout,
};
use rackwright_cli_context::client::{Client, rpc};
use rackwright_cli_context::error::{CliError, plural};
use rackwright_cli_context::given::{read_text, ssh_keys};
use rackwright_cli_context::mutation::MutationArgs;
use rackwright_cli_context::wait::WaitArgs;
use rackwright_cli_context::{Cx, names, operation};

use super::{get, short};

/// A number of nodes, or a fraction of the cluster's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Share {
    Nodes(u32),
    Percent(u32),
}

impl Share {
    fn parse(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is neither a number of nodes nor a percentage such as 10%");
        match text.strip_suffix('%') {
            Some(number) => match number.parse() {
                Ok(percent @ 0..=100) => Ok(Self::Percent(percent)),
                _ => Err(wrong()),
            },
            None => text.parse().map(Self::Nodes).map_err(|_| wrong()),
        }
    }

    /// The number of nodes, rounded down.
    fn of(self, nodes: u32) -> u32 {
        match self {
            Self::Nodes(count) => count,
            Self::Percent(percent) => {
                let part = u64::from(nodes) * u64::from(percent) / 100;
                u32::try_from(part).unwrap_or(nodes)
            }
        }
    }
}

/// How many at a time, and when it is enough.
#[derive(Debug, Args)]
pub struct RolloutArgs {
    /// Maximum number or percentage of nodes that are unavailable at the same time: 4, 10% (default: 1)
    #[arg(long, value_name = "N|P%", value_parser = Share::parse)]
    max_unavailable: Option<Share>,
    /// Reimage nodes of several leaves at the same time (default: one leaf after the other)
    #[arg(long)]
    any_leaf: bool,
    /// Number or percentage of nodes that may fail before the reimage stops: 2, 5% (default: 0)
    #[arg(long, value_name = "N|P%", value_parser = Share::parse)]
    max_failures: Option<Share>,
    /// If more nodes fail, write the former image automatically instead of stopping
    #[arg(long)]
    roll_back: bool,
}

impl RolloutArgs {
    fn is_given(&self) -> bool {
        self.max_unavailable.is_some() || self.any_leaf || self.max_failures.is_some() || self.roll_back
    }

    async fn rollout(&self, client: &Client, id: &str) -> Result<Rollout, CliError> {
        let shares = [self.max_unavailable, self.max_failures];
        let nodes = match shares.iter().flatten().any(|share| matches!(share, Share::Percent(_))) {
            false => 0,
            true => {
                let members = get(client, id).await?.status.unwrap_or_default().members;
                u32::try_from(members.len()).unwrap_or(u32::MAX)
            }
        };
        Ok(Rollout {
            max_unavailable: self.max_unavailable.map_or(1, |share| share.of(nodes).max(1)),
            any_leaf: self.any_leaf,
            max_failures: self.max_failures.map_or(0, |share| share.of(nodes)),
            roll_back: self.roll_back,
        })
    }

    /// None: the same as in the last request.
    async fn given(&self, client: &Client, id: &str) -> Result<Option<Rollout>, CliError> {
        match self.is_given() {
            true => self.rollout(client, id).await.map(Some),
            false => Ok(None),
        }
    }
}

/// `rackwright cluster reimage`
#[derive(Debug, Args)]
pub struct ReimageArgs {
    /// The cluster
    name: String,
    /// Image: NAME for its newest version, or NAME@DIGEST (default: the current image)
    #[arg(long)]
    image: Option<String>,
    /// SSH public key for logins, or a file with such keys; repeat the option for several (default: unchanged)
    #[arg(long = "ssh-key", value_name = "FILE|KEY")]
    ssh_keys: Vec<String>,
    /// File with cloud-config for the installed systems, in addition to Rackwright's own (default: unchanged)
    #[arg(long, value_name = "FILE")]
    user_data: Option<PathBuf>,
    #[command(flatten)]
    rollout: RolloutArgs,
    /// Do not ask for confirmation; all data on the drives is destroyed
    #[arg(long, short)]
    yes: bool,
    #[command(flatten)]
    waiting: WaitArgs,
    #[command(flatten)]
    mutation: MutationArgs,
}

/// `rackwright cluster resume`
#[derive(Debug, Args)]
pub struct ResumeArgs {
    /// The cluster
    name: String,
    #[command(flatten)]
    rollout: RolloutArgs,
    #[command(flatten)]
    waiting: WaitArgs,
    #[command(flatten)]
    mutation: MutationArgs,
}

/// `rackwright cluster rollback`
#[derive(Debug, Args)]
pub struct RollBackArgs {
    /// The cluster
    name: String,
    #[command(flatten)]
    rollout: RolloutArgs,
    /// Do not ask for confirmation; all data on the drives of nodes with the new image is destroyed
    #[arg(long, short)]
    yes: bool,
    #[command(flatten)]
    waiting: WaitArgs,
    #[command(flatten)]
    mutation: MutationArgs,
}

/// `rackwright cluster retry`
#[derive(Debug, Args)]
pub struct RetryArgs {
    /// The cluster
    name: String,
    #[command(flatten)]
    waiting: WaitArgs,
    #[command(flatten)]
    mutation: MutationArgs,
}

/// Asks for consent, unless it was given already.
async fn consent(cx: &Cx, client: &Client, id: &str, what: &str, yes: bool) -> Result<(), CliError> {
    if yes {
        return Ok(());
    }
    let nodes = get(client, id).await?.status.unwrap_or_default().members.len();
    let lost = format!("all data on the drives of {} of {id}", plural(nodes, "node"));
    cx.ui.consent(
        &format!("this destroys {lost}"),
        &format!("{what} destroys {lost}, some nodes at a time."),
    )
}

/// Requests another image on all nodes.
pub async fn reimage(cx: &Cx, args: ReimageArgs) -> Result<(), CliError> {
    let client = cx.client().await?;
    let id = short(&args.name).to_owned();
    let deployment = Deployment {
        image: args.image.as_deref().map(names::image).unwrap_or_default(),
        ssh_authorized_keys: ssh_keys(&args.ssh_keys)?,
        user_data: args
            .user_data
            .as_deref()
            .map(read_text)
            .transpose()?
            .unwrap_or_default(),
        ..Deployment::default()
    };
    consent(cx, &client, &id, "Another image", args.yes).await?;
    let request = ReimageClusterRequest {
        name: names::full("clusters", &id),
        deployment: Some(deployment),
        rollout: Some(args.rollout.rollout(&client, &id).await?),
        mutation: Some(args.mutation.once()),
    };
    let doing = format!("reimage cluster {id}");
    let started = rpc!(client, ClusterServiceClient.reimage_cluster, doing, request).await?;
    operation::finish_one(cx, &client, started, args.waiting).await
}

/// Continues a reimage that stopped.
pub async fn resume(cx: &Cx, args: ResumeArgs) -> Result<(), CliError> {
    let client = cx.client().await?;
    let id = short(&args.name).to_owned();
    let request = ResumeClusterReimageRequest {
        name: names::full("clusters", &id),
        rollout: args.rollout.given(&client, &id).await?,
        mutation: Some(args.mutation.once()),
    };
    let doing = format!("resume the reimage of cluster {id}");
    let started = rpc!(client, ClusterServiceClient.resume_cluster_reimage, doing, request).await?;
    operation::finish_one(cx, &client, started, args.waiting).await
}

/// Requests the previous image again.
pub async fn roll_back(cx: &Cx, args: RollBackArgs) -> Result<(), CliError> {
    let client = cx.client().await?;
    let id = short(&args.name).to_owned();
    consent(cx, &client, &id, "The former image", args.yes).await?;
    let request = RollBackClusterRequest {
        name: names::full("clusters", &id),
        rollout: args.rollout.given(&client, &id).await?,
        mutation: Some(args.mutation.once()),
    };
    let doing = format!("roll back cluster {id}");
    let started = rpc!(client, ClusterServiceClient.roll_back_cluster, doing, request).await?;
    operation::finish_one(cx, &client, started, args.waiting).await
}

/// Requests a new attempt to build a failed cluster.
pub async fn retry(cx: &Cx, args: RetryArgs) -> Result<(), CliError> {
    let client = cx.client().await?;
    let id = short(&args.name).to_owned();
    let request = RetryClusterRequest {
        name: names::full("clusters", &id),
        mutation: Some(args.mutation.once()),
    };
    let doing = format!("retry cluster {id}");
    let started = rpc!(client, ClusterServiceClient.retry_cluster, doing, request).await?;
    operation::finish_one(cx, &client, started, args.waiting).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_nodes_or_percent() {
        assert_eq!(Share::parse("4"), Ok(Share::Nodes(4)));
        assert_eq!(Share::parse("10%").map(|share| share.of(48)), Ok(4));
        for wrong in ["", "%", "101%", "-1", "1.5%", "many"] {
            assert!(Share::parse(wrong).is_err(), "{wrong}");
        }
    }
}
