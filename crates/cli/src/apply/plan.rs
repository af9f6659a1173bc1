//! The steps that bring the nodes to the state of the documents. No I/O.

use std::collections::HashMap;

use rackwright_api::v1::{Bmc, EnrollNodeRequest, Metadata, Mutation, Node, NodeSpec, Operation, UpdateNodeRequest};
use rackwright_cli_context::names;
use secrecy::ExposeSecret as _;

use super::document::Document;
use crate::node::labels_text;

/// One node and its action.
#[derive(Debug)]
pub struct Step {
    pub id: String,
    pub action: Action,
    /// The changes in words for people.
    pub changes: Vec<String>,
    /// The operation that the server started.
    pub operation: Option<Operation>,
    /// Whether the step is completed.
    pub done: bool,
}

/// What is done.
#[derive(Debug)]
pub enum Action {
    Enroll(Box<EnrollNodeRequest>),
    Change(Box<UpdateNodeRequest>),
    Nothing,
}

impl Action {
    pub fn name(&self) -> &'static str {
        match self {
            Self::Enroll(_) => "enrolled",
            Self::Change(_) => "changed",
            Self::Nothing => "unchanged",
        }
    }
}

/// Compares documents with the existing nodes. With `passwords`, all BMC passwords are sent again.
pub fn plan(documents: Vec<Document>, present: &[Node], passwords: bool) -> Vec<Step> {
    let present: HashMap<&str, &Node> = present
        .iter()
        .map(|node| (names::short("nodes", &node.name), node))
        .collect();
    documents
        .into_iter()
        .map(|document| match present.get(document.id.as_str()) {
            None => enroll(document),
            Some(node) => compare(document, node, passwords),
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

/// Collects the paths and descriptions of differences.
#[derive(Default)]
struct Differences {
    paths: Vec<String>,
    words: Vec<String>,
}

impl Differences {
    fn compare(&mut self, path: &str, is: &str, wanted: Option<&str>) -> String {
        let Some(wanted) = wanted else { return String::new() };
        if is != wanted {
            let shown = |text: &str| {
                if text.is_empty() {
                    "nothing".to_owned()
                } else {
                    text.to_owned()
                }
            };
            let field = path.rsplit_once("spec.").map_or(path, |(_, field)| field);
            self.words.push(format!("{field} {} -> {}", shown(is), shown(wanted)));
            self.paths.push(path.to_owned());
        }
        wanted.to_owned()
    }
}

fn compare(document: Document, node: &Node, passwords: bool) -> Step {
    let spec = node.spec.clone().unwrap_or_default();
    let is = spec.bmc.unwrap_or_default();
    let metadata = node.metadata.clone().unwrap_or_default();
    let wanted = &document.bmc;
    let mut found = Differences::default();
    // The control plane has its own password for this BMC, and perhaps its own account: the document's login is an older
    // one.
    let is_ours = node
        .status
        .as_ref()
        .is_some_and(|s| s.bmc_password_change_time.is_some())
        && !passwords;
    let mut bmc = Bmc {
        address: found.compare("spec.bmc.address", &is.address, Some(&wanted.address)),
        username: found.compare(
            "spec.bmc.username",
            &is.username,
            (!is_ours).then_some(wanted.username.as_str()),
        ),
        password: String::new(),
        certificate_sha256: found.compare(
            "spec.bmc.certificate_sha256",
            &is.certificate_sha256,
            wanted.certificate_sha256.as_deref(),
        ),
        system: found.compare("spec.bmc.system", &is.system, wanted.system.as_deref()),
    };
    if passwords || (!is_ours && !found.paths.is_empty()) {
        // A password cannot be read back, so a difference is unknown; it is sent with the rest of the BMC.
        bmc.password = wanted.password.expose_secret().to_owned();
        found.paths.push("spec.bmc.password".to_owned());
        found.words.push("bmc.password sent again".to_owned());
    }
    let sku = found.compare("spec.sku", &spec.sku, document.sku.as_deref());
    let boot_macs = document.boot_macs.unwrap_or_else(|| spec.boot_macs.clone());
    found.compare("spec.boot_macs", &spec.boot_macs.join(" "), Some(&boot_macs.join(" ")));
    let labels = document.labels.unwrap_or_else(|| metadata.labels.clone());
    if labels != metadata.labels {
        found.paths.push("metadata.labels".to_owned());
        found.words.push(label_changes(&metadata.labels, &labels));
    }
    if found.paths.is_empty() {
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
        update_mask: Some(prost_types::FieldMask { paths: found.paths }),
        mutation: Some(Mutation {
            idempotency_key: String::new(),
            resource_version: metadata.resource_version,
        }),
    };
    step(document.id, Action::Change(Box::new(request)), found.words)
}

fn label_changes(before: &HashMap<String, String>, after: &HashMap<String, String>) -> String {
    let set: HashMap<_, _> = after
        .iter()
        .filter(|(k, v)| before.get(*k) != Some(v))
        .map(|(k, v)| (k.clone(), v.clone()))
        .collect();
    let mut removed: Vec<_> = before
        .keys()
        .filter(|k| !after.contains_key(*k))
        .map(|k| format!("{k}-"))
        .collect();
    removed.sort();
    let set = labels_text(&set);
    let parts: Vec<&str> = [set.as_str()]
        .into_iter()
        .chain(removed.iter().map(String::as_str))
        .collect();
    format!("labels {}", parts.join(" ").trim())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apply::document::BmcDocument;
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
    fn what_a_document_does_not_name_stays() {
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
    fn differences_are_sent_and_told() {
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
    fn the_password_goes_with_the_rest_of_the_bmc() {
        let mut wanted = document();
        wanted.bmc.address = "https://other".into();
        let steps = plan(vec![wanted], &[present()], false);
        assert_eq!(paths(&steps[0]), ["spec.bmc.address", "spec.bmc.password"]);
        let steps = plan(vec![document()], &[present()], true);
        assert_eq!(paths(&steps[0]), ["spec.bmc.password"]);
    }
}
