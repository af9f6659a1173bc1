//! The reasons for which a cluster waits: stored as data, displayed as text.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::ids::NodeId;
use crate::names::names;

/// Why nothing is done at the moment.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Wait {
    /// At rest: for a request.
    #[default]
    Rest,
    /// For nodes to be imaged and checked.
    Nodes {
        /// Nodes on their way.
        coming: usize,
        /// All nodes.
        of: usize,
    },
    /// For a node to replace a lost one.
    Replacement {
        /// The lost one.
        lost: NodeId,
        /// Why no replacement was found.
        refused: String,
    },
    /// For every port of the fabric to be read with the right keys.
    Partition,
    /// For ports to be read without the removed key.
    PartitionRemoval {
        /// Ports that may still have the key.
        ports: usize,
    },
    /// For a fault that prevents the proof of the partition to be repaired.
    PartitionFault {
        /// The fault, for people.
        fault: String,
    },
    /// For the network test between its nodes to end.
    NetworkTest,
    /// For a fault between its nodes to be repaired, or for another try of a test that could not run.
    NetworkFault {
        /// The fault, for people.
        fault: String,
    },
    /// For the link of a node in use to be repaired.
    LinkFault {
        node: NodeId,
        /// The fault of the link, for people.
        fault: String,
    },
    /// For nodes to be erased.
    Erase {
        /// Nodes that are not erased yet.
        nodes: usize,
    },
    /// For nodes to get another image.
    Reimage {
        /// Nodes that have the image and are in use again.
        done: usize,
        /// All nodes.
        of: usize,
        /// Nodes that failed with it.
        failed: usize,
    },
    /// For an operator to decide how a stopped reimage goes on.
    ReimageStopped {
        /// Why the reimage stopped, for people.
        reason: String,
    },
    /// For an operator to settle a doubt about a node's record.
    Doubt { node: NodeId },
}

names! {
    /// The kind of a wait: what it is for, without names, numbers and messages.
    WaitKind {
        /// For a request.
        Rest = "rest",
        /// For nodes to be imaged and checked.
        Nodes = "nodes",
        /// For a node to replace a lost one.
        Replacement = "replacement",
        /// For the fabric manager to set up or remove the partition.
        Partition = "partition",
        /// For a fault of the fabric manager or of ports to be repaired.
        PartitionFault = "partition-fault",
        NetworkTest = "network-test",
        /// For a fault between its nodes to be repaired.
        NetworkFault = "network-fault",
        /// For the link of a node in use to be repaired.
        LinkFault = "link-fault",
        /// For nodes to be erased.
        Erase = "erase",
        /// For nodes to get another image.
        Reimage = "reimage",
        /// For an operator's decision about a stopped reimage.
        ReimageStopped = "reimage-stopped",
        /// For an operator to settle a doubt about a node.
        Doubt = "doubt",
    }
}

impl WaitKind {
    /// True for kinds that the cluster's customer may see: their texts contain only numbers of the customer's own nodes.
    #[must_use]
    pub fn is_for_customers(self) -> bool {
        match self {
            Self::Rest | Self::Nodes | Self::NetworkTest | Self::Erase | Self::Reimage => true,
            // Their texts name nodes, ports, cables and the site's software, or repeat operators' texts.
            Self::Replacement
            | Self::Partition
            | Self::PartitionFault
            | Self::NetworkFault
            | Self::LinkFault
            | Self::ReimageStopped
            | Self::Doubt => false,
        }
    }
}

impl Wait {
    /// The kind, for the database and the API.
    #[must_use]
    pub fn kind(&self) -> WaitKind {
        match self {
            Self::Rest => WaitKind::Rest,
            Self::Nodes { .. } => WaitKind::Nodes,
            Self::Replacement { .. } => WaitKind::Replacement,
            Self::Partition | Self::PartitionRemoval { .. } => WaitKind::Partition,
            Self::PartitionFault { .. } => WaitKind::PartitionFault,
            Self::NetworkTest => WaitKind::NetworkTest,
            Self::NetworkFault { .. } => WaitKind::NetworkFault,
            Self::LinkFault { .. } => WaitKind::LinkFault,
            Self::Erase { .. } => WaitKind::Erase,
            Self::Reimage { .. } => WaitKind::Reimage,
            Self::ReimageStopped { .. } => WaitKind::ReimageStopped,
            Self::Doubt { .. } => WaitKind::Doubt,
        }
    }
}

/// For people; empty at rest.
impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rest => Ok(()),
            Self::Nodes { coming, of } => write!(f, "{coming} of {of} nodes to be imaged and checked"),
            Self::Replacement { lost, refused } => write!(f, "a replacement for node {lost}: {refused}"),
            Self::Partition => f.write_str("the fabric manager"),
            Self::PartitionRemoval { ports: 1 } => {
                f.write_str("1 port to be read back without the cluster's partition key")
            }
            Self::PartitionRemoval { ports } => {
                write!(f, "{ports} ports to be read back without the cluster's partition key")
            }
            Self::PartitionFault { fault } => write!(f, "the fabric manager: {fault}"),
            Self::NetworkTest => f.write_str("the test of the network between its nodes"),
            Self::NetworkFault { fault } => write!(f, "the network between its nodes: {fault}"),
            Self::LinkFault { node, fault } => write!(f, "the fabric link of {node}: {fault}"),
            Self::Erase { nodes: 1 } => f.write_str("1 node to be erased"),
            Self::Erase { nodes } => write!(f, "{nodes} nodes to be erased"),
            Self::Reimage { done, of, failed } => {
                write!(f, "the new image on its nodes: {done} of {of} are done")?;
                match failed {
                    0 => Ok(()),
                    _ => write!(f, ", {failed} failed"),
                }
            }
            Self::ReimageStopped { reason } => write!(f, "an operator to decide how its reimage continues: {reason}"),
            Self::Doubt { node } => write!(f, "an operator to settle a doubt about its node {node}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// A wait of each form.
    fn waits() -> Vec<Wait> {
        let text = || "the network between its nodes: SECRET".to_owned();
        vec![
            Wait::Rest,
            Wait::Nodes { coming: 3, of: 4 },
            Wait::Replacement {
                lost: "n1".into(),
                refused: text(),
            },
            Wait::Partition,
            Wait::PartitionRemoval { ports: 8 },
            Wait::PartitionFault { fault: text() },
            Wait::NetworkTest,
            Wait::NetworkFault { fault: text() },
            Wait::LinkFault {
                node: "n1".into(),
                fault: text(),
            },
            Wait::Erase { nodes: 2 },
            Wait::Reimage {
                done: 1,
                of: 4,
                failed: 1,
            },
            Wait::ReimageStopped { reason: text() },
            Wait::Doubt { node: "n1".into() },
        ]
    }

    #[test]
    fn each_wait_is_stored_and_read_back_as_it_was() {
        for wait in waits() {
            let text = serde_json::to_string(&wait).unwrap();
            assert_eq!(serde_json::from_str::<Wait>(&text).unwrap(), wait, "{text}");
        }
    }

    #[test]
    fn each_kind_has_a_wait_and_a_word() {
        let kinds: BTreeSet<WaitKind> = waits().iter().map(Wait::kind).collect();
        assert_eq!(kinds, WaitKind::ALL.iter().copied().collect());
        for kind in kinds {
            assert_eq!(WaitKind::parse(kind.as_str()), Some(kind));
        }
    }

    #[test]
    fn one_node_and_one_port_are_named_in_the_singular() {
        assert_eq!(Wait::Erase { nodes: 1 }.to_string(), "1 node to be erased");
        assert_eq!(Wait::Erase { nodes: 2 }.to_string(), "2 nodes to be erased");
        let port = Wait::PartitionRemoval { ports: 1 }.to_string();
        assert!(port.starts_with("1 port to be read back"), "{port}");
    }

    #[test]
    fn an_unknown_wait_is_named() {
        for text in [r#"{"moon":{"phase":1}}"#, r#""moon""#] {
            let error = serde_json::from_str::<Wait>(text).unwrap_err().to_string();
            assert!(error.contains("unknown variant `moon`"), "{error}");
        }
        assert_eq!(WaitKind::parse("moon"), None);
    }

    #[test]
    fn a_message_does_not_change_the_kind_of_a_wait() {
        let refused = "the network between its nodes: a switch".to_owned();
        let lost = "n1".into();
        assert_eq!(Wait::Replacement { lost, refused }.kind(), WaitKind::Replacement);
    }

    #[test]
    fn the_texts_for_customers_name_no_node_and_repeat_no_message() {
        for wait in waits().iter().filter(|wait| wait.kind().is_for_customers()) {
            let text = wait.to_string();
            assert!(!text.contains("n1") && !text.contains("SECRET"), "{text}");
        }
    }
}
