//! The description of a hall in a compact form for placement, with indices instead of names in the main parts.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::links::Mask;

/// Maximum number of hosts and of uplinks of a unit: one bit each.
pub const MOST: usize = 128;

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident($inner:ty)),* $(,)?) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub $inner);

        impl $name {
            /// The id as an index into the list of its kind.
            #[must_use]
            pub fn at(self) -> usize {
                self.0 as usize
            }
        }
    )*};
}

ids! {
    /// A node: its index in [`HallSpec::nodes`].
    NodeId(u32),
    /// A scalable unit. Units are numbered through all pods in order.
    UnitId(u32),
    /// A pod: its index in [`HallSpec::pods`].
    PodId(u32),
    /// A power domain: its index in [`HallSpec::domains`].
    DomainId(u32),
    /// A cooling unit: its index in [`HallSpec::cooling`].
    CoolingId(u32),
    /// A label: its index in [`HallSpec::labels`].
    LabelId(u32),
    /// A kind of label: rack, row, room.
    LabelKind(u32),
    /// A SKU: its index in [`HallSpec::skus`].
    SkuId(u32),
    /// A customer.
    CustomerId(u32),
    /// A cluster.
    ClusterId(u64),
}

/// A hall: its nodes, power, cooling and fat-tree.
#[derive(Debug, Clone, Default)]
pub struct HallSpec {
    /// The fat-tree of one rail, in the fabric of the first pods. All rails are wired and allocated alike.
    pub tree: Tree,
    /// Further fabrics, in the order of their pods. A cluster is in one fabric.
    pub more_fabrics: Vec<FabricSpec>,
    /// The pods in order.
    pub pods: Vec<PodSpec>,
    pub skus: Vec<SkuSpec>,
    /// The power tree, with utilities as roots.
    pub domains: Vec<DomainSpec>,
    /// The cooling units.
    pub cooling: Vec<CoolingSpec>,
    /// Labels for failure domains and other groups that requests refer to.
    pub labels: Vec<LabelSpec>,
    pub nodes: Vec<NodeSpec>,
    /// The contracted load of customers, in watts. Customers without an entry have no limit.
    pub contracts: BTreeMap<CustomerId, u64>,
    /// Uplinks of units that the fabric's [`Tree`] has and the fabric lacks, on at least one rail. No cluster gets them.
    pub absent_uplinks: BTreeMap<UnitId, Mask>,
    /// The same for the links above a spine of a pod.
    pub absent_cores: BTreeMap<(PodId, u32), Mask>,
}

/// The fat-tree of one rail. Spine `s` of every pod connects to the same `cores_per_spine` cores: its plane.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tree {
    /// Number of spines per pod.
    pub spines: u32,
    /// Number of parallel cables between a leaf and a spine.
    pub links_per_spine: u32,
    /// Number of cores above each spine. 0: two levels, and no cluster spans pods.
    pub cores_per_spine: u32,
    /// Number of parallel cables between a spine and a core.
    pub links_per_core: u32,
}

/// A fabric beside the first one: no link connects the pods of two fabrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FabricSpec {
    /// The first pod of the fabric. The next fabric begins after its last pod.
    pub first_pod: PodId,
    /// The fat-tree of one rail.
    pub tree: Tree,
}

impl HallSpec {
    /// The number of the fabric of a pod. 0: the fabric of [`HallSpec::tree`].
    #[must_use]
    pub fn fabric_of(&self, pod: PodId) -> usize {
        self.more_fabrics.partition_point(|fabric| fabric.first_pod <= pod)
    }

    /// The trees of all fabrics, in order.
    pub fn trees(&self) -> impl Iterator<Item = Tree> {
        std::iter::once(self.tree).chain(self.more_fabrics.iter().map(|fabric| fabric.tree))
    }
}

/// A pod of the hall.
#[derive(Debug, Clone, Default)]
pub struct PodSpec {
    /// The pod's name.
    pub name: String,
    /// The names of its scalable units.
    pub units: Vec<String>,
}

/// A class of identical nodes.
#[derive(Debug, Clone, Default)]
pub struct SkuSpec {
    /// The SKU's name.
    pub name: String,
    /// Maximum sustained draw, in watts.
    pub watts: u64,
    /// Number of power supplies that must work.
    pub psus_needed: u32,
}

/// A vertex of the power tree.
#[derive(Debug, Clone, Default)]
pub struct DomainSpec {
    /// The domain's name.
    pub name: String,
    /// The domain that feeds this one. `None`: a root.
    pub parent: Option<DomainId>,
    /// Capacity for continuous load after derating, in watts.
    pub capacity_w: u64,
    /// Load other than cluster nodes, in watts.
    pub other_w: u64,
    /// Whether promises cover the loss of this domain.
    pub feed: bool,
    /// Whether the domain can be dedicated to a customer.
    pub circuit: bool,
}

/// A cooling unit.
#[derive(Debug, Clone, Default)]
pub struct CoolingSpec {
    /// The cooling unit's name.
    pub name: String,
    /// Cooling capacity, in watts.
    pub capacity_w: u64,
    /// Heat from sources other than cluster nodes, in watts.
    pub other_w: u64,
}

/// A label of nodes.
#[derive(Debug, Clone)]
pub struct LabelSpec {
    /// The label's kind.
    pub kind: LabelKind,
    /// The label's name.
    pub name: String,
}

/// A node of the hall.
#[derive(Debug, Clone)]
pub struct NodeSpec {
    /// The node's name.
    pub name: String,
    /// The node's scalable unit. `None`: the node is left out, and no cluster gets it.
    pub unit: Option<UnitId>,
    /// The node's SKU.
    pub sku: SkuId,
    /// The domain of each power supply. The supplies share the load evenly.
    pub psus: Vec<DomainId>,
    /// The cooling units that take the node's heat, in watts.
    pub cooling: Vec<(CoolingId, u64)>,
    /// The node's labels.
    pub labels: Vec<LabelId>,
    /// Whether the node is held out: no cluster gets it.
    pub excluded: bool,
    /// Whether the node lacks a rail or has exchanged rails: no non-blocking cluster of several nodes gets it.
    pub impaired: bool,
}

/// A fault in a hall's description.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HallFault {
    /// A reference to a missing object.
    #[error("{what} names {kind} {index}, but there are only {count}")]
    Missing {
        /// The referring object.
        what: String,
        /// The kind of the missing object.
        kind: &'static str,
        /// The index of the missing object.
        index: usize,
        /// The number of objects of this kind.
        count: usize,
    },
    /// More than [`MOST`] objects.
    #[error("{what} has {count} {kind}, at most {MOST} are possible")]
    TooMany {
        /// The owner of the objects.
        what: String,
        /// The kind of the objects.
        kind: &'static str,
        /// Their number.
        count: usize,
    },
    /// A fabric begins before the one that is listed before it.
    #[error("the fabrics are not in the order of their pods")]
    FabricOrder,
    /// The power tree has a cycle.
    #[error("power domain {0} feeds itself")]
    Cycle(String),
    /// A node has no power supply, or fewer than its SKU needs.
    #[error("node {0} has no power supply, or fewer than its SKU needs")]
    Unpowered(String),
}

/// All faulty references.
pub(super) fn faults(spec: &HallSpec) -> Vec<HallFault> {
    let mut faults = Vec::new();
    let mut names = |what: &str, kind: &'static str, index: usize, count: usize| {
        if index >= count {
            let what = what.to_owned();
            faults.push(HallFault::Missing {
                what,
                kind,
                index,
                count,
            });
        }
    };
    for domain in &spec.domains {
        let parent = domain.parent.map_or(0, DomainId::at);
        names(&domain.name, "power domain", parent, spec.domains.len());
    }
    let units: usize = spec.pods.iter().map(|p| p.units.len()).sum();
    for node in &spec.nodes {
        if let Some(unit) = node.unit {
            names(&node.name, "unit", unit.at(), units);
        }
        names(&node.name, "SKU", node.sku.at(), spec.skus.len());
        for psu in &node.psus {
            names(&node.name, "power domain", psu.at(), spec.domains.len());
        }
        for (unit, _) in &node.cooling {
            names(&node.name, "cooling unit", unit.at(), spec.cooling.len());
        }
        for label in &node.labels {
            names(&node.name, "label", label.at(), spec.labels.len());
        }
    }
    for fabric in &spec.more_fabrics {
        names("a fabric", "pod", fabric.first_pod.at(), spec.pods.len());
    }
    for unit in spec.absent_uplinks.keys() {
        names("an absent uplink", "unit", unit.at(), units);
    }
    for (pod, spine) in spec.absent_cores.keys() {
        names("an absent link above a spine", "pod", pod.at(), spec.pods.len());
        let tree = spec.trees().nth(spec.fabric_of(*pod));
        let spines = tree.map_or(0, |tree| tree.spines as usize);
        names("an absent link above a spine", "spine", *spine as usize, spines);
    }
    if faults.is_empty() {
        faults.extend(shape_faults(spec));
    }
    faults
}

/// Faults of sizes and cycles. Requires valid references.
fn shape_faults(spec: &HallSpec) -> Vec<HallFault> {
    let mut faults = Vec::new();
    if !spec.more_fabrics.is_sorted_by_key(|fabric| fabric.first_pod) {
        faults.push(HallFault::FabricOrder);
    }
    for tree in spec.trees() {
        let counts = [
            ("uplinks", tree.spines as usize * tree.links_per_spine as usize),
            (
                "uplinks of a spine",
                tree.cores_per_spine as usize * tree.links_per_core as usize,
            ),
        ];
        for (kind, count) in counts {
            if count > MOST {
                let what = "the tree".to_owned();
                faults.push(HallFault::TooMany { what, kind, count });
            }
        }
    }
    let names: Vec<_> = spec.pods.iter().flat_map(|p| &p.units).collect();
    let mut hosts = vec![0; names.len()];
    for node in &spec.nodes {
        let Some(unit) = node.unit else { continue };
        hosts[unit.at()] += 1;
        if node.psus.is_empty() || node.psus.len() < spec.skus[node.sku.at()].psus_needed as usize {
            faults.push(HallFault::Unpowered(node.name.clone()));
        }
    }
    for (name, &count) in names.iter().zip(&hosts) {
        if count > MOST {
            let what = (*name).clone();
            let kind = "hosts";
            faults.push(HallFault::TooMany { what, kind, count });
        }
    }
    for (i, domain) in spec.domains.iter().enumerate() {
        // Every root is reached within as many steps as there are domains.
        let end = (0..spec.domains.len()).try_fold(i, |at, _| spec.domains[at].parent.map(DomainId::at));
        if end.is_some() {
            faults.push(HallFault::Cycle(domain.name.clone()));
        }
    }
    faults
}
