//! The nodes of a command: named by their IDs, or selected by state, labels and other properties.

use std::collections::{BTreeMap, BTreeSet};

use clap::Args;
use rackwright_api::v1::{Node, NodeState};
use rackwright_cli_context::error::{CliError, plural};
use rackwright_cli_context::given::pair;
use rackwright_cli_context::mutation::{EachMutation, MutationArgs};
use rackwright_cli_context::names::listed;
use rackwright_cli_context::output::{Ui, clean};
use rackwright_cli_context::{Cx, names, nodes};

use super::state_name;

/// Which nodes.
#[derive(Debug, Default, Args)]
pub struct Selection {
    /// Terms FIELD = VALUE or FIELD != VALUE joined by OR and AND (docs/api.md lists the fields)
    #[arg(long, help_heading = "Selection")]
    pub filter: Option<String>,
    /// Only nodes in this state
    #[arg(long, value_parser = state, help_heading = "Selection")]
    pub state: Option<NodeState>,
    /// Only nodes with this label; repeat the option for nodes that have several labels
    #[arg(short = 'l', long = "label", value_name = "KEY=VALUE", value_parser = label, help_heading = "Selection")]
    pub labels: Vec<(String, String)>,
}

/// Reads a state's name.
pub fn state(text: &str) -> Result<NodeState, String> {
    let name = format!("NODE_STATE_{}", text.to_ascii_uppercase());
    NodeState::from_str_name(&name)
        .filter(|state| *state != NodeState::Unspecified)
        .ok_or_else(|| {
            let known: Vec<_> = (1..=12).map(state_name).collect();
            format!("unknown state; known states: {}", known.join(", "))
        })
}

/// Reads a label.
fn label(text: &str) -> Result<(String, String), String> {
    let (key, value) = pair(text)?;
    // The filter's names end at these characters, and its strings have no escapes.
    if key.contains([' ', '!', '"']) || value.contains(['"', '\\']) {
        return Err(format!(
            "no node can have the label `{text}`: write a label such as rack=r12"
        ));
    }
    Ok((key, value))
}

impl Selection {
    /// The API's filter for these options.
    pub fn filter(&self) -> String {
        let given = self.filter.iter().filter(|filter| !filter.trim().is_empty()).cloned();
        let state = self.state.map(|state| format!("state = {}", state_name(state as i32)));
        let labels = self.labels.iter();
        let labels = labels.map(|(key, value)| format!("labels.{key} = \"{value}\""));
        let terms: Vec<String> = given.chain(state).chain(labels).collect();
        terms.join(" AND ")
    }

    fn is_given(&self) -> bool {
        self.filter.is_some() || self.state.is_some() || !self.labels.is_empty()
    }
}

/// Nodes by their IDs, or a selection.
#[derive(Debug, Args)]
pub struct Targets {
    /// The nodes; --filter, --state and --label select nodes in place of IDs
    #[arg(value_name = "ID")]
    ids: Vec<String>,
    #[command(flatten)]
    selection: Selection,
}

impl Targets {
    pub fn new(ids: Vec<String>, selection: Selection) -> Self {
        Self { ids, selection }
    }

    /// The plain ids without repetition, in the given order.
    fn ids(&self) -> Vec<String> {
        let mut seen = BTreeSet::new();
        let ids = self.ids.iter().map(|id| names::short("nodes", id).to_owned());
        ids.filter(|id| seen.insert(id.clone())).collect()
    }

    /// The nodes of the command. Of a selection, it reads the nodes and shows which nodes they are. `verb` completes "to ...
    /// gpu-001".
    ///
    /// # Errors
    /// `Usage` unless there are either IDs or a selection; `NotFound` if no node matches the selection.
    pub async fn choose(&self, cx: &Cx, verb: &str) -> Result<Chosen, CliError> {
        match (self.ids.is_empty(), self.selection.is_given()) {
            (false, false) => Ok(Chosen {
                ids: self.ids(),
                selected: None,
            }),
            (true, true) => self.select(cx, verb).await,
            (true, false) => Err(CliError::usage(
                "no node is given",
                "name nodes by their IDs, or select nodes with --filter, --state or --label",
            )),
            (false, true) => Err(CliError::usage(
                "nodes are named by IDs and also selected; nothing was done",
                "give either IDs, or --filter, --state and --label",
            )),
        }
    }

    async fn select(&self, cx: &Cx, verb: &str) -> Result<Chosen, CliError> {
        let filter = self.selection.filter();
        if filter.is_empty() {
            return Err(CliError::usage(
                "an empty filter would select every node; nothing was done",
                "give --filter a term such as sku = h100",
            ));
        }
        let client = cx.client().await?;
        let selected = nodes::all(&client, &filter).await?;
        if selected.is_empty() {
            return Err(CliError::not_found(format!(
                "no node matches {filter}; nothing was done"
            )));
        }
        cx.ui.note(&plan(verb, &selected));
        Ok(Chosen {
            ids: ids_of(&selected),
            selected: Some(selected),
        })
    }
}

fn ids_of(nodes: &[Node]) -> Vec<String> {
    let ids = nodes.iter().map(|node| names::short("nodes", &node.name).to_owned());
    ids.collect()
}

/// `gpu-001 of acme`: the nodes with a claim, and their customers.
fn used(nodes: &[Node]) -> Vec<String> {
    let claimed = nodes.iter().filter_map(|node| {
        let claim = node.status.as_ref()?.claim.as_ref()?;
        let id = names::short("nodes", &node.name);
        Some(match claim.customer.as_str() {
            "" => id.to_owned(),
            customer => format!("{id} of {customer}"),
        })
    });
    claimed.collect()
}

/// The selected nodes: their number, the first names, and numbers by state and by customer.
fn plan(verb: &str, nodes: &[Node]) -> String {
    let mut states = BTreeMap::new();
    let mut customers = BTreeMap::new();
    for status in nodes.iter().map(|node| node.status.clone().unwrap_or_default()) {
        *states.entry(status.state).or_insert(0) += 1;
        let customer = status.claim.map(|claim| claim.customer).unwrap_or_default();
        *customers.entry(customer).or_insert(0) += 1;
    }
    let without: Option<usize> = customers.remove("");
    let states = states
        .iter()
        .map(|(state, count)| format!("{count} {}", state_name(*state)));
    let customers = customers.iter().map(|(name, count)| format!("{count} {name}"));
    let without = without.map(|count| format!("{count} without a customer"));
    let states: Vec<String> = states.collect();
    let customers: Vec<String> = customers.chain(without).collect();
    let lines = [
        format!("to {verb}: {}", count(&ids_of(nodes))),
        format!("by state: {}", states.join(", ")),
        format!("by customer: {}", customers.join(", ")),
    ];
    lines.map(|line| clean(&line)).join("\n  ")
}

/// `2 nodes (gpu-001, gpu-002)`
fn count(ids: &[String]) -> String {
    format!("{} ({})", plural(ids.len(), "node"), listed(ids))
}

/// What a question says before an act that destroys or interrupts something.
#[derive(Debug)]
pub struct Warning {
    /// Begins the error if there is no terminal to ask on: "this destroys ...".
    pub does: String,
    /// The question's sentence.
    pub question: String,
}

impl Warning {
    /// The control plane forgets these nodes.
    pub fn of_delete(ids: &[String]) -> Self {
        let list = listed(ids);
        Self {
            does: format!("this deletes {list}"),
            question: format!(
                "Delete {list}: the control plane forgets them, and only a new enrolment brings them back."
            ),
        }
    }

    /// The drives of these nodes are erased. `what` begins the question: "Release".
    pub fn of_erase(what: &str, ids: &[String]) -> Self {
        let list = listed(ids);
        Self {
            does: format!("this destroys all data on the drives of {list}"),
            question: format!("{what} {list}: all data on the drives is lost."),
        }
    }
}

/// The nodes of a command.
#[derive(Debug)]
pub struct Chosen {
    pub ids: Vec<String>,
    /// The nodes of a selection, as they were read.
    selected: Option<Vec<Node>>,
}

impl Chosen {
    /// The mutation of each node. A selected node that has changed since it was shown is left alone.
    pub fn mutations(&self, args: &MutationArgs) -> Result<EachMutation, CliError> {
        let Some(selected) = &self.selected else {
            return args.each(self.ids.len());
        };
        let version = |node: &Node| node.metadata.as_ref().map(|metadata| metadata.resource_version.clone());
        let versions = selected.iter().map(|node| {
            let id = names::short("nodes", &node.name).to_owned();
            (id, version(node).unwrap_or_default())
        });
        args.each_selected(versions.collect())
    }

    /// The nodes as they are now. Nodes that cannot be read are left out: the command's own call reports them.
    pub async fn nodes(&self, cx: &Cx) -> Result<Vec<Node>, CliError> {
        if let Some(selected) = &self.selected {
            return Ok(selected.clone());
        }
        let client = cx.client().await?;
        let mut found = Vec::new();
        for id in &self.ids {
            match nodes::get(&client, id).await {
                Ok(node) => found.push(node),
                Err(error) if error.is_outage() => return Err(error),
                Err(_) => {}
            }
        }
        Ok(found)
    }

    /// The warning before an act that disturbs customers; none if no node has a claim. `consequence` is a sentence.
    pub async fn warning_of_use(&self, cx: &Cx, verb: &str, consequence: &str) -> Result<Option<Warning>, CliError> {
        let used = used(&self.nodes(cx).await?);
        if used.is_empty() {
            return Ok(None);
        }
        let all = match self.ids.len() == used.len() {
            true => format!("{} in use", plural(used.len(), "node")),
            false => format!("{}, {} of them in use", plural(self.ids.len(), "node"), used.len()),
        };
        let which = listed(&used);
        Ok(Some(Warning {
            does: format!("this would {verb} {all} ({which})"),
            question: format!("To {verb}: {all} ({which}). {consequence}"),
        }))
    }

    /// Asks once, unless `yes` is given: with the warning if there is one, and for a selection in any case.
    pub fn approve(&self, ui: &Ui, yes: bool, verb: &str, warning: Option<&Warning>) -> Result<(), CliError> {
        if yes {
            return Ok(());
        }
        if let Some(warning) = warning {
            return ui.consent(&clean(&warning.does), &clean(&warning.question));
        }
        if self.selected.is_none() {
            return Ok(());
        }
        let nodes = count(&self.ids);
        let does = clean(&format!("this would {verb} {nodes}"));
        ui.consent(&does, &clean(&format!("To {verb}: {nodes}.")))
    }
}

#[cfg(test)]
mod tests {
    use rackwright_api::v1::{Claim, NodeStatus};

    use super::*;

    #[test]
    fn a_node_named_twice_counts_once() {
        let ids = vec!["b".into(), "nodes/a".into(), "nodes/b".into()];
        assert_eq!(Targets::new(ids, Selection::default()).ids(), ["b", "a"]);
    }

    #[test]
    fn selections_become_filters() {
        let selection = Selection {
            filter: Some("labels.rack = r1".into()),
            state: Some(NodeState::Active),
            labels: vec![label("row=4").unwrap(), label("rack=r 1").unwrap()],
        };
        assert_eq!(
            selection.filter(),
            "labels.rack = r1 AND state = active AND labels.row = \"4\" AND labels.rack = \"r 1\""
        );
        assert_eq!(Selection::default().filter(), "");
        assert_eq!(state("Active"), Ok(NodeState::Active));
        assert!(state("unspecified").is_err());
        assert!(state("broken").unwrap_err().ends_with("maintenance"));
        for wrong in ["row", "=4", "a b=4", "a!=4", "row=\" OR \"", "row=\\"] {
            assert!(label(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_plan_counts_states_and_customers() {
        let node = |index: usize, state: NodeState, customer: Option<&str>| Node {
            name: format!("nodes/n{index}"),
            status: Some(NodeStatus {
                state: state as i32,
                claim: customer.map(|customer| Claim {
                    customer: customer.to_owned(),
                    ..Claim::default()
                }),
                ..NodeStatus::default()
            }),
            ..Node::default()
        };
        let mut nodes = vec![node(0, NodeState::Failed, Some("")), node(1, NodeState::Failed, None)];
        assert_eq!(used(&nodes), ["n0"]);
        nodes.extend((2..10).map(|index| node(index, NodeState::Active, Some("acme"))));
        assert_eq!(
            plan("release", &nodes),
            "to release: 10 nodes (n0, n1, n2, n3, n4, n5, n6, n7 and 2 more)\n  \
             by state: 8 active, 2 failed\n  \
             by customer: 8 acme, 2 without a customer"
        );
        assert_eq!(used(&nodes)[8], "n9 of acme");
    }
}
