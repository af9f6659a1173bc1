//! `node label`.

use std::collections::HashMap;

use clap::Args;
use rackwright_api::v1::node_service_client::NodeServiceClient;
use rackwright_api::v1::{Metadata, Node, UpdateNodeRequest};
use rackwright_cli_context::client::{Client, rpc};
use rackwright_cli_context::error::CliError;
use rackwright_cli_context::given::pair;
use rackwright_cli_context::mutation::{EachMutation, MutationArgs, fresh_key};
use rackwright_cli_context::output::{Format, clean};
use rackwright_cli_context::{Cx, names, nodes};
use tonic::Code;

use super::labels_text;
use super::targets::{Selection, Targets};

/// How often to read and change again after a concurrent change of the node.
const TRIES: u32 = 5;

/// `rackwright node label`
#[derive(Debug, Args)]
pub struct LabelArgs {
    /// The nodes and the changes: `k=v` sets a label, `k-` removes it. --filter, --state and --label select nodes in place
    /// of IDs
    #[arg(required = true, value_name = "ID|K=V|K-", value_parser = word)]
    words: Vec<Word>,
    #[command(flatten)]
    selection: Selection,
    /// Do not ask for confirmation of a selection
    #[arg(long, short)]
    yes: bool,
    #[command(flatten)]
    mutation: MutationArgs,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Change {
    Set(String, String),
    Remove(String),
}

/// A node, or a change of its labels.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Word {
    Id(String),
    Change(Change),
}

/// No ID contains `=` or ends with `-`.
fn word(text: &str) -> Result<Word, String> {
    match text.contains('=') || text.ends_with('-') {
        true => change(text).map(Word::Change),
        false => Ok(Word::Id(text.to_owned())),
    }
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

/// Changes labels and keeps all others. A refusal of one node does not stop the others.
pub async fn run(cx: &Cx, args: LabelArgs) -> Result<(), CliError> {
    let (mut ids, mut changes) = (Vec::new(), Vec::new());
    for word in args.words {
        match word {
            Word::Id(id) => ids.push(id),
            Word::Change(change) => changes.push(change),
        }
    }
    if changes.is_empty() {
        return Err(CliError::usage(
            "no change of a label is given",
            "rack=r12 sets the label rack, rack- removes it",
        ));
    }
    let chosen = Targets::new(ids, args.selection).choose(cx, "label").await?;
    chosen.approve(&cx.ui, args.yes, "label", None)?;
    let mutations = chosen.mutations(&args.mutation)?;
    let client = cx.client().await?;
    let (mut changed, mut errors) = (Vec::new(), Vec::new());
    for id in &chosen.ids {
        match change_labels(&client, id, &changes, &args.mutation, &mutations).await {
            Ok(node) => changed.push(node),
            Err(error) if error.is_outage() => {
                errors.push(error);
                break;
            }
            Err(error) => errors.push(error),
        }
    }
    show(cx, &changed)?;
    CliError::gather(errors)
}

fn show(cx: &Cx, nodes: &[Node]) -> Result<(), CliError> {
    if cx.ui.format() != Format::Table {
        return match nodes.is_empty() {
            true => Ok(()),
            false => cx.ui.items(nodes, |_| String::new()),
        };
    }
    for node in nodes {
        let metadata = node.metadata.clone().unwrap_or_default();
        let labels = match labels_text(&metadata.labels) {
            none if none.is_empty() => "no labels".to_owned(),
            labels => labels,
        };
        let id = names::short("nodes", &node.name);
        cx.ui.say(&clean(&format!("{id} has {labels}")))?;
    }
    Ok(())
}

async fn change_labels(
    client: &Client,
    id: &str,
    changes: &[Change],
    given: &MutationArgs,
    mutations: &EachMutation,
) -> Result<Node, CliError> {
    let mut tries = 0;
    loop {
        let node = nodes::get(client, id).await?;
        let metadata = node.metadata.unwrap_or_default();
        let mut labels = metadata.labels;
        apply(&mut labels, changes);
        let mut mutation = mutations.of(id);
        mutation.resource_version = given.resource_version.clone().unwrap_or(metadata.resource_version);
        if tries > 0 {
            // Another request needs another key.
            mutation.idempotency_key = fresh_key();
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
        let doing = format!("label node {id}");
        let answer = rpc!(client, NodeServiceClient.update_node, doing, request).await;
        // The node was changed in between. Our change is relative, so start again from its current labels. With the
        // caller's own version or key, that would differ from the request.
        let own = given.resource_version.is_some() || given.idempotency_key.is_some();
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
        assert_eq!(word("gpu-001"), Ok(Word::Id("gpu-001".into())));
        assert_eq!(word("rack-"), Ok(Word::Change(Change::Remove("rack".into()))));
        assert!(word("-").is_err() && word("=x").is_err());
        let mut labels = HashMap::from([("a".to_owned(), "1".to_owned()), ("b".to_owned(), "2".to_owned())]);
        apply(&mut labels, &[change("a-").unwrap(), change("c=3").unwrap()]);
        assert_eq!(labels_text(&labels), "b=2 c=3");
    }
}
