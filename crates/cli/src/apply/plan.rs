//! Computes the steps that bring the nodes to the state of the documents. No I/O.

use std::collections::HashMap;

use rackwright_api::v1::{Bmc, EnrollNodeRequest, Metadata, Mutation, Node, NodeSpec, Operation, UpdateNodeRequest};
use rackwright_cli_context::names;
use secrecy::ExposeSecret as _;

use super::document::{BmcDocument, Document};
use crate::node::labels_text;

/// One node and its action.
#[derive(Debug)]
pub struct Step {
    /// Id of the node.
    pub id: String,
    /// The request that the step sends, if it sends one.
    pub action: Action,
    /// The changes, as texts for people.
    pub changes: Vec<String>,
    /// The operation that the server started.
    pub operation: Option<Operation>,
    /// Whether the step is completed.
    pub done: bool,
}

/// The request of a step.
#[derive(Debug)]
pub enum Action {
    /// The node does not exist.
    Enroll(Box<EnrollNodeRequest>),
    /// The node differs from its document.
    Change(Box<UpdateNodeRequest>),
    /// The node agrees with its document: no request.
    Nothing,
}

impl Action {
    /// The node's state after the step, as one word for people.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Enroll(_) => "enrolled",
            Self::Change(_) => "changed",
            Self::Nothing => "unchanged",
        }
    }
}

/// Compares the documents with the existing nodes: one step for each document. With `resend_passwords`, all BMC passwords
/// are sent again.
pub fn plan(documents: Vec<Document>, existing: &[Node], resend_passwords: bool) -> Vec<Step> {
    let existing: HashMap<&str, &Node> = existing
        .iter()
        .map(|node| (names::short("nodes", &node.name), node))
        .collect();
    documents
        .into_iter()
        .map(|document| match existing.get(document.id.as_str()) {
            None => enroll(document),
            Some(node) => change(document, node, resend_passwords),
        })
        .collect()
}

fn step(id: String, action: Action, changes: Vec<String>) -> Step {
    Step {
        id,
        action,
        changes,
        operation: None,
        done: false,
    }
}

/// The step that enrolls a document's node.
fn enroll(document: Document) -> Step {
    let bmc = Bmc {
        address: document.bmc.address,
        username: document.bmc.username,
        password: document.bmc.password.expose_secret().to_owned(),
        certificate_sha256: document.bmc.certificate_sha256.unwrap_or_default(),
        system: document.bmc.system.unwrap_or_default(),
    };
    let request = EnrollNodeRequest {
        node_id: document.id.clone(),
        spec: Some(NodeSpec {
            bmc: Some(bmc),
            sku: document.sku.unwrap_or_default(),
            boot_macs: document.boot_macs.unwrap_or_default(),
        }),
        labels: document.labels.unwrap_or_default(),
        mutation: None,
        tpm_ek: String::new(),
    };
    step(document.id, Action::Enroll(Box::new(request)), Vec::new())
}

/// The differences between a node and its document.
#[derive(Default)]
struct Differences {
    /// Paths of the fields, for the update mask.
    paths: Vec<String>,
    /// Each change in words for people.
    words: Vec<String>,
}

impl Differences {
    /// Adds the field at `path` if its wanted value differs from the present one. Returns the field's value in the request:
    /// the wanted one, or nothing if the document leaves the field unchanged.
    fn add_field(&mut self, path: &str, present: &str, wanted: Option<&str>) -> String {
        let Some(wanted) = wanted else { return String::new() };
        if present != wanted {
            let shown = |text: &str| {
                if text.is_empty() {
                    "nothing".to_owned()
                } else {
                    text.to_owned()
                }
            };
            let field = path.rsplit_once("spec.").map_or(path, |(_, field)| field);
            let words = format!("{field} {} -> {}", shown(present), shown(wanted));
            self.add(path, words);
        }
        wanted.to_owned()
    }

    fn add(&mut self, path: &str, words: String) {
        self.paths.push(path.to_owned());
        self.words.push(words);
    }
}

/// Compares a node's BMC with its document. Returns the BMC in the request, and its differences.
fn compare_bmc(wanted: &BmcDocument, node: &Node, resend_password: bool) -> (Bmc, Differences) {
    let spec = node.spec.as_ref();
    let present = spec.and_then(|spec| spec.bmc.clone()).unwrap_or_default();
    let status = node.status.as_ref();
    let has_own_login = status.is_some_and(|status| status.bmc_password_change_time.is_some());
    // Once the control plane has its own password for the BMC, and perhaps its own account, the document's login is an older
    // one.
    let sends_login = resend_password || !has_own_login;
    let mut differences = Differences::default();
    let mut bmc = Bmc {
        address: differences.add_field("spec.bmc.address", &present.address, Some(&wanted.address)),
        username: differences.add_field(
            "spec.bmc.username",
            &present.username,
            sends_login.then_some(wanted.username.as_str()),
        ),
        password: String::new(),
        certificate_sha256: differences.add_field(
            "spec.bmc.certificate_sha256",
            &present.certificate_sha256,
            wanted.certificate_sha256.as_deref(),
        ),
        system: differences.add_field("spec.bmc.system", &present.system, wanted.system.as_deref()),
    };
    // A password cannot be read back, so a difference is unknown; it is sent with any other change of the BMC.
    if resend_password || (sends_login && !differences.paths.is_empty()) {
        bmc.password = wanted.password.expose_secret().to_owned();
        differences.add("spec.bmc.password", "bmc.password sent again".to_owned());
    }
    (bmc, differences)
}

/// The step that changes a node to its document.
fn change(document: Document, node: &Node, resend_passwords: bool) -> Step {
    let spec = node.spec.clone().unwrap_or_default();
    let metadata = node.metadata.clone().unwrap_or_default();
    let (bmc, mut differences) = compare_bmc(&document.bmc, node, resend_passwords);
    let sku = differences.add_field("spec.sku", &spec.sku, document.sku.as_deref());
    let boot_macs = document.boot_macs.unwrap_or_else(|| spec.boot_macs.clone());
    differences.add_field("spec.boot_macs", &spec.boot_macs.join(" "), Some(&boot_macs.join(" ")));
    let labels = document.labels.unwrap_or_else(|| metadata.labels.clone());
    if labels != metadata.labels {
        differences.add("metadata.labels", label_changes(&metadata.labels, &labels));
    }
    if differences.paths.is_empty() {
        return step(document.id, Action::Nothing, Vec::new());
    }
    let request = UpdateNodeRequest {
        node: Some(Node {
            name: node.name.clone(),
            spec: Some(NodeSpec {
                bmc: Some(bmc),
                sku,
                boot_macs,
            }),
            metadata: Some(Metadata {
                labels,
                ..Metadata::default()
            }),
            ..Node::default()
        }),
        update_mask: Some(prost_types::FieldMask {
            paths: differences.paths,
        }),
        mutation: Some(Mutation {
            idempotency_key: String::new(),
            resource_version: metadata.resource_version,
        }),
    };
    step(document.id, Action::Change(Box::new(request)), differences.words)
}

/// The changes of labels as the arguments of `rackwright node label`: `labels k=v removed-`.
fn label_changes(before: &HashMap<String, String>, after: &HashMap<String, String>) -> String {
    let set: HashMap<_, _> = after
        .iter()
        .filter(|(key, value)| before.get(*key) != Some(value))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    let mut removed: Vec<_> = before
        .keys()
        .filter(|key| !after.contains_key(*key))
        .map(|key| format!("{key}-"))
        .collect();
    removed.sort();
    let mut parts = vec![labels_text(&set)];
    parts.extend(removed);
    format!("labels {}", parts.join(" ").trim())
}

#[cfg(test)]
mod tests {
    use super::*;
    use secrecy::SecretString;

    fn document() -> Document {
        let bmc = BmcDocument {
            address: "https://h".into(),
            username: "u".into(),
            password: SecretString::from("p".to_owned()),
            certificate_sha256: None,
            system: None,
        };
        Document {
            id: "a".into(),
            bmc,
            sku: None,
            boot_macs: None,
            labels: None,
        }
    }

    fn present() -> Node {
        let bmc = Bmc {
            address: "https://h".into(),
            username: "u".into(),
            certificate_sha256: "sha256:00".into(),
            ..Bmc::default()
        };
        Node {
            name: "nodes/a".into(),
            spec: Some(NodeSpec {
                bmc: Some(bmc),
                sku: "h100".into(),
                boot_macs: vec!["94:6d:ae:57:0d:d6".into()],
            }),
            metadata: Some(Metadata {
                labels: HashMap::from([("rack".to_owned(), "r1".to_owned()), ("row".to_owned(), "1".to_owned())]),
                resource_version: "7".into(),
                ..Metadata::default()
            }),
            ..Node::default()
        }
    }

    fn paths(step: &Step) -> Vec<String> {
        match &step.action {
            Action::Change(request) => request.update_mask.clone().unwrap().paths,
            _ => Vec::new(),
        }
    }

    #[test]
    fn fields_that_a_document_does_not_name_stay() {
        let steps = plan(vec![document()], &[present()], false);
        assert_eq!(steps[0].action.name(), "unchanged");
    }

    #[test]
    fn a_new_node_is_enrolled() {
        let steps = plan(vec![document()], &[], false);
        let Action::Enroll(request) = &steps[0].action else {
            panic!("{steps:?}")
        };
        assert_eq!(request.spec.as_ref().unwrap().bmc.as_ref().unwrap().password, "p");
    }

    #[test]
    fn differences_are_sent_and_printed() {
        let mut wanted = document();
        wanted.sku = Some("b200".into());
        wanted.labels = Some(HashMap::from([("rack".to_owned(), "r2".to_owned())]));
        let steps = plan(vec![wanted], &[present()], false);
        assert_eq!(paths(&steps[0]), ["spec.sku", "metadata.labels"]);
        assert_eq!(steps[0].changes, ["sku h100 -> b200", "labels rack=r2 row-"]);
        let Action::Change(request) = &steps[0].action else {
            panic!("{steps:?}")
        };
        assert_eq!(
            request.mutation.as_ref().unwrap().resource_version,
            "7",
            "only as it was read"
        );
        assert_eq!(
            request
                .node
                .as_ref()
                .unwrap()
                .spec
                .as_ref()
                .unwrap()
                .bmc
                .as_ref()
                .unwrap()
                .password,
            ""
        );
    }

    #[test]
    fn mac_addresses_are_replaced_by_those_of_the_document() {
        for (given, expected, change) in [
            ("94:6d:ae:57:0d:d6", "unchanged", ""),
            (
                "58:a2:e1:bb:b1:0f",
                "changed",
                "boot_macs 94:6d:ae:57:0d:d6 -> 58:a2:e1:bb:b1:0f",
            ),
            ("", "changed", "boot_macs 94:6d:ae:57:0d:d6 -> nothing"),
        ] {
            let mut wanted = document();
            wanted.boot_macs = Some(given.split_whitespace().map(str::to_owned).collect());
            let steps = plan(vec![wanted], &[present()], false);
            assert_eq!(steps[0].action.name(), expected, "{given}");
            assert_eq!(steps[0].changes.join("; "), change, "{given}");
            if let Action::Change(request) = &steps[0].action {
                let spec = request.node.clone().unwrap().spec.unwrap();
                assert_eq!(spec.boot_macs.join(" "), given);
                assert_eq!(paths(&steps[0]), ["spec.boot_macs"]);
            }
        }
    }

    #[test]
    fn the_password_is_sent_with_the_rest_of_the_bmc() {
        let mut wanted = document();
        wanted.bmc.address = "https://other".into();
        let steps = plan(vec![wanted], &[present()], false);
        assert_eq!(paths(&steps[0]), ["spec.bmc.address", "spec.bmc.password"]);
        let steps = plan(vec![document()], &[present()], true);
        assert_eq!(paths(&steps[0]), ["spec.bmc.password"]);
    }
}
