//! The nodes of a cluster for the tests: the leaf of each adapter's cable, and the uplinks of the leaves.

use std::collections::{BTreeMap, BTreeSet};

use super::Lane;
use super::judge::Part;
use rackwright_site::model::{NodeId, Port, Site, SwitchRole};

/// The connection of a node's lane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct End {
    /// A description, such as `cable c0417: node gpu-093 mlx5_3 to leaf-12 port 5`.
    pub words: String,
    /// The leaf, by its index in the topology. `None`: unknown.
    pub leaf: Option<usize>,
}

/// A node in the topology.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TestNode {
    /// The node's name.
    pub name: String,
    /// The node's known lanes.
    pub ends: BTreeMap<Lane, End>,
}

/// A switch with connected nodes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Leaf {
    name: String,
    /// Labels of the uplink cables.
    cables: Vec<String>,
    /// The switches at the other end of the uplinks.
    above: BTreeSet<String>,
}

/// The nodes of a cluster, and the network between them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Topology {
    nodes: Vec<TestNode>,
    leaves: Vec<Leaf>,
}

impl Topology {
    /// Nodes known only by name.
    #[must_use]
    pub fn bare(names: &[String]) -> Self {
        let node = |name: &String| TestNode {
            name: name.clone(),
            ends: BTreeMap::new(),
        };
        Self {
            nodes: names.iter().map(node).collect(),
            leaves: Vec::new(),
        }
    }

    /// Nodes of a site with their cables, apart from cables to storage fabrics. An unknown name becomes a node without
    /// cables.
    #[must_use]
    pub fn of_site(site: &Site, names: &[String]) -> Self {
        let mut topology = Self::bare(names);
        let ids: BTreeMap<NodeId, usize> = names
            .iter()
            .enumerate()
            .filter_map(|(at, name)| Some((site.node_named(name)?, at)))
            .collect();
        let mut leaves = BTreeMap::new();
        for cable in &site.cables {
            let ((Port::Hca { node, hca }, Port::Switch { switch, port })
            | (Port::Switch { switch, port }, Port::Hca { node, hca })) = (cable.a, cable.b)
            else {
                continue;
            };
            let Some(at) = ids.get(&node) else { continue };
            if site.is_storage_port(node, hca.into()) {
                continue;
            }
            let leaf = *leaves.entry(switch).or_insert_with(|| {
                topology.leaves.push(Leaf {
                    name: site.switch(switch).name.to_string(),
                    ..Leaf::default()
                });
                topology.leaves.len() - 1
            });
            let adapter = site
                .sku_of(node)
                .hcas
                .get(usize::from(hca))
                .map_or("?", |hca| &*hca.name);
            let (name, leaf_name) = (&site.node(node).name, &site.switch(switch).name);
            let words = format!(
                "cable {}: node {name} {adapter} to {leaf_name} port {port}",
                cable.label
            );
            let end = End {
                words,
                leaf: Some(leaf),
            };
            topology.nodes[*at].ends.insert(Lane::Hca(hca), end);
        }
        for cable in &site.cables {
            let (Port::Switch { switch: a, .. }, Port::Switch { switch: b, .. }) = (cable.a, cable.b) else {
                continue;
            };
            for (low, high) in [(a, b), (b, a)] {
                if let Some(leaf) = leaves.get(&low)
                    && site.switch(high).role != SwitchRole::Leaf
                {
                    let leaf = &mut topology.leaves[*leaf];
                    leaf.cables.push(cable.label.to_string());
                    leaf.above.insert(site.switch(high).name.to_string());
                }
            }
        }
        topology
    }

    /// Number of nodes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether there are no nodes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// The node's name. Empty: there is no such node.
    #[must_use]
    pub fn name(&self, node: usize) -> &str {
        self.nodes.get(node).map_or("", |node| &node.name)
    }

    /// The leaf of a node's lane.
    #[must_use]
    pub fn leaf(&self, node: usize, lane: Lane) -> Option<usize> {
        self.nodes.get(node)?.ends.get(&lane)?.leaf
    }

    /// Whether the lane of a node may have a cable. A node of a site without any cable may have all.
    #[must_use]
    pub fn may_have(&self, node: usize, lane: Lane) -> bool {
        self.nodes
            .get(node)
            .is_none_or(|node| node.ends.is_empty() || node.ends.contains_key(&lane))
    }

    /// The leaf of the node's first adapter, which decides whether two nodes are near.
    #[must_use]
    pub fn home(&self, node: usize) -> Option<usize> {
        self.nodes.get(node)?.ends.values().find_map(|end| end.leaf)
    }

    /// Nodes grouped by leaf.
    #[must_use]
    pub fn order(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.len()).collect();
        order.sort_by_key(|node| (self.home(*node), *node));
        order
    }

    /// A lane of a node in words.
    #[must_use]
    pub fn end_text(&self, node: usize, lane: Lane) -> String {
        let known = self.nodes.get(node).and_then(|node| node.ends.get(&lane));
        known.map_or_else(
            || {
                let name = self.name(node);
                match lane {
                    Lane::Address => format!("node {name}: its network interface or the cable to it"),
                    Lane::Hca(hca) => format!("node {name}: its adapter {hca} or the cable to it"),
                }
            },
            |end| end.words.clone(),
        )
    }

    /// A part in words.
    #[must_use]
    pub fn words(&self, part: Part) -> String {
        let leaf = |leaf: usize| self.leaves.get(leaf).map_or("?", |leaf| &leaf.name).to_owned();
        match part {
            Part::Node(node) => format!("node {}: all its adapters", self.name(node)),
            Part::End(node, lane) => self.end_text(node, lane),
            Part::Leaf(at) => format!("switch {}", leaf(at)),
            Part::Uplinks(at) => {
                let cables = self.leaves.get(at).map_or(&[][..], |leaf| &leaf.cables);
                format!("an uplink cable of {} ({})", leaf(at), some_of(cables))
            }
            Part::Above => {
                let above: BTreeSet<&String> = self.leaves.iter().flat_map(|leaf| &leaf.above).collect();
                let above: Vec<String> = above.into_iter().cloned().collect();
                format!("a switch above the leaves ({})", some_of(&above))
            }
            Part::Between(a, b) => format!("a part between nodes {} and {}", self.name(a), self.name(b)),
        }
    }
}

/// The first names, and the number of further ones.
fn some_of(names: &[String]) -> String {
    const SHOWN: usize = 6;
    let shown: Vec<&str> = names.iter().take(SHOWN).map(String::as_str).collect();
    let more = match names.len().saturating_sub(SHOWN) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    if shown.is_empty() {
        "names unknown".to_owned()
    } else {
        format!("{}{more}", shown.join(", "))
    }
}
