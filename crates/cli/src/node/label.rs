//! `node label`.

use std::collections::HashMap;

use clap::Args;
use rackwright_api::v1::node_service_client::NodeServiceClient;
use rackwright_api::v1::{Metadata, Node, UpdateNodeRequest};
use rackwright_cli_context::client::{Client, rpc};
use rackwright_cli_context::error::CliError;
use rackwright_cli_context::given::pair;
use rackwright_cli_context::mutation::MutationArgs;
use rackwright_cli_context::output::{Format, clean};
use rackwright_cli_context::{Cx, names, nodes};
use tonic::Code;

use super::labels_text;

/// How often to read and change again after a concurrent change of the node.
const TRIES: u32 = 5;

/// `rackwright node label`
#[derive(Debug, Args)]
pub struct LabelArgs {
    /// The node
    id: String,
    /// `k=v` sets a label, `k-` removes it
    #[arg(required = true, value_name = "K=V|K-", value_parser = change)]
    changes: Vec<Change>,
    #[command(flatten)]
    mutation: MutationArgs,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Change {
    Set(String, String),
    Remove(String),
}

fn change(text: &str) -> Result<Change, String> {
    match text.strip_suffix('-') {
        Some(key) if !key.is_empty() && !key.contains('=') => Ok(Change::Remove(key.to_owned())),
        _ => pair(text).map(|(key, value)| Change::Set(key, value)),
    }
}

fn apply(labels: &mut HashMap<String, String>, changes: &[Change]) {
    for change in changes {
        match change {
            Change::Set(key, value) => {
                labels.insert(key.clone(), value.clone());
            }
            Change::Remove(key) => {
                labels.remove(key);
            }
        }
    }
}

/// Changes labels and keeps all others.
pub async fn run(cx: &Cx, args: LabelArgs) -> Result<(), CliError> {
    let client = cx.client().await?;
    let node = change_labels(&client, &args).await?;
    if cx.ui.format() != Format::Table {
        return cx.ui.item(&node, |_| String::new());
    }
    let labels = node
        .metadata
        .map(|metadata| labels_text(&metadata.labels))
        .unwrap_or_default();
    let labels = if labels.is_empty() {
        "no labels".to_owned()
    } else {
        labels
    };
    cx.ui
        .say(&clean(&format!("{} has {labels}", names::short("nodes", &node.name))))
}

async fn change_labels(client: &Client, args: &LabelArgs) -> Result<Node, CliError> {
    let mut tries = 0;
    loop {
        let node = nodes::get(client, &args.id).await?;
        let metadata = node.metadata.unwrap_or_default();
        let mut labels = metadata.labels;
        apply(&mut labels, &args.changes);
        let mut mutation = args.mutation.once();
        if mutation.resource_version.is_empty() {
            mutation.resource_version = metadata.resource_version;
        }
        let request = UpdateNodeRequest {
            node: Some(Node {
                name: node.name,
                metadata: Some(Metadata {
                    labels,
                    ..Metadata::default()
                }),
                ..Node::default()
            }),
            update_mask: Some(prost_types::FieldMask {
                paths: vec!["metadata.labels".to_owned()],
            }),
            mutation: Some(mutation),
        };
        let doing = format!("label node {}", names::short("nodes", &args.id));
        let answer = rpc!(client, NodeServiceClient.update_node, doing, request).await;
        // The node was changed in between. Our change is relative, so start again from its current labels. With the
        // caller's own version or key, that would differ from the request.
        let own = args.mutation.resource_version.is_some() || args.mutation.idempotency_key.is_some();
        match answer {
            Err(error) if error.code() == Some(Code::Aborted) && !own && tries < TRIES => tries += 1,
            answer => return answer,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_read_and_applied() {
        assert_eq!(change("rack=r1"), Ok(Change::Set("rack".into(), "r1".into())));
        assert_eq!(change("rack=r1-"), Ok(Change::Set("rack".into(), "r1-".into())));
        assert_eq!(change("rack-"), Ok(Change::Remove("rack".into())));
        assert!(change("-").is_err());
        assert!(change("=x").is_err());
        assert!(change("rack").is_err());
        let mut labels = HashMap::from([("a".to_owned(), "1".to_owned()), ("b".to_owned(), "2".to_owned())]);
        apply(&mut labels, &[change("a-").unwrap(), change("c=3").unwrap()]);
        assert_eq!(labels_text(&labels), "b=2 c=3");
    }
}
