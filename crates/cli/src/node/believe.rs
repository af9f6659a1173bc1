//! `node believe`: an operator confirms the record of a doubted node.

use clap::Args;
use rackwright_api::v1::BelieveNodeRequest;
use rackwright_api::v1::node_service_client::NodeServiceClient;
use rackwright_cli_context::client::rpc;
use rackwright_cli_context::error::{CliError, plural};
use rackwright_cli_context::mutation::MutationArgs;
use rackwright_cli_context::{Cx, names, nodes};

/// `rackwright node believe`
#[derive(Debug, Args)]
pub struct BelieveArgs {
    /// The nodes
    #[arg(value_name = "ID", required_unless_present = "all", conflicts_with = "all")]
    ids: Vec<String>,
    /// Every doubted node
    #[arg(long)]
    all: bool,
    /// Reason why the records are right, stored and shown to others
    #[arg(long)]
    reason: String,
    /// Do not ask for confirmation with --all
    #[arg(long, short)]
    yes: bool,
    #[command(flatten)]
    mutation: MutationArgs,
}

/// Confirms the nodes one by one: each gets its own event.
pub async fn run(cx: &Cx, args: BelieveArgs) -> Result<(), CliError> {
    let client = cx.client().await?;
    let ids: Vec<String> = if args.all {
        let nodes = nodes::all(&client, "").await?;
        let doubted = nodes
            .iter()
            .filter(|node| node.status.as_ref().is_some_and(|status| !status.doubt.is_empty()));
        doubted
            .map(|node| names::short("nodes", &node.name).to_owned())
            .collect()
    } else {
        args.ids.iter().map(|id| names::short("nodes", id).to_owned()).collect()
    };
    if ids.is_empty() {
        return cx.ui.say("no node is doubted");
    }
    if args.all && !args.yes {
        let count = ids.len();
        cx.ui.consent(
            &format!(
                "this makes the control plane act on the records of {}",
                plural(count, "doubted node")
            ),
            &format!(
                "Confirm the records of {}: a machine with a free record can then be given to another customer.",
                plural(count, "node")
            ),
        )?;
    }
    let mutations = args.mutation.each(ids.len())?;
    let mut errors = Vec::new();
    for id in &ids {
        let request = BelieveNodeRequest {
            name: names::full("nodes", id),
            reason: args.reason.clone(),
            mutation: Some(mutations.of(id)),
        };
        match rpc!(client, NodeServiceClient.believe_node, format!("believe {id}"), request).await {
            Ok(_) => cx.ui.say(&format!("the record of {id} is confirmed"))?,
            Err(error) => errors.push(error),
        }
    }
    CliError::gather(errors)
}
