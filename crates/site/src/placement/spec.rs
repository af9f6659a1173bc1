//! What a hall is made of, in the compact form that placement works on: indices instead of names wherever it counts.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Most hosts a unit can have, and most uplinks: one bit each.
pub const MOST: usize = 128;

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident($inner:ty)),* $(,)?) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub $inner);

        impl $name {
            /// As an index into the list of its kind.
            #[must_use]
            pub fn at(self) -> usize {
                self.0 as usize
            }
        }
    )*};
}

ids! {
    /// A node: its place in [`HallSpec::nodes`].
    NodeId(u32),
    /// A scalable unit: units are counted through all pods in order.
    UnitId(u32),
    /// A pod: its place in [`HallSpec::pods`].
    PodId(u32),
    /// A power domain: its place in [`HallSpec::domains`].
    DomainId(u32),
    /// A cooling unit: its place in [`HallSpec::cooling`].
    CoolingId(u32),
    /// A label: its place in [`HallSpec::labels`].
    LabelId(u32),
    /// A kind of label: rack, row, room.
    LabelKind(u32),
    /// A SKU: its place in [`HallSpec::skus`].
    SkuId(u32),
    /// A customer.
    CustomerId(u32),
    /// A cluster.
    ClusterId(u64),
}

/// A hall: what stands in it, what feeds and cools it, and its fat-tree.
#[derive(Debug, Clone, Default)]
pub struct HallSpec {
    /// The fat-tree of one rail; all rails are wired alike and are held alike.
    pub tree: Tree,
    /// The pods in order.
    pub pods: Vec<PodSpec>,
    /// The SKUs.
    pub skus: Vec<SkuSpec>,
    /// The power tree, utilities as roots.
    pub domains: Vec<DomainSpec>,
    /// The cooling units.
    pub cooling: Vec<CoolingSpec>,
    /// Failure domains and whatever else requests name.
    pub labels: Vec<LabelSpec>,
    /// The nodes.
    pub nodes: Vec<NodeSpec>,
    /// What customers contracted for, in watts. Who is missing here is not bounded.
    pub contracts: BTreeMap<CustomerId, u64>,
}

/// The fat-tree of one rail. Spine `s` of every pod reaches the same `cores_per_spine` cores: its plane.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tree {
    /// Spines of a pod.
    pub spines: u32,
    /// Parallel cables between a leaf and a spine.
    pub links_per_spine: u32,
    /// Cores above each spine; 0: two levels, no cluster spans pods.
    pub cores_per_spine: u32,
    /// Parallel cables between a spine and a core.
    pub links_per_core: u32,
}

/// A pod.
#[derive(Debug, Clone, Default)]
pub struct PodSpec {
    /// Its name.
    pub name: String,
    /// The names of its scalable units.
    pub units: Vec<String>,
}

/// A class of identical nodes.
#[derive(Debug, Clone, Default)]
pub struct SkuSpec {
    /// Its name.
    pub name: String,
    /// Most it draws for long, in watts.
    pub watts: u64,
    /// Power supplies that must live.
    pub psus_needed: u32,
}

/// A vertex of the power tree.
#[derive(Debug, Clone, Default)]
pub struct DomainSpec {
    /// Its name.
    pub name: String,
    /// What feeds it; none: it is a root.
    pub parent: Option<DomainId>,
    /// What it can carry for long after derating, in watts.
    pub capacity_w: u64,
    /// What it carries besides the nodes of clusters, in watts.
    pub other_w: u64,
    /// Its loss is one of those that a promise covers.
    pub feed: bool,
    /// It can be dedicated to a customer.
    pub circuit: bool,
}

/// A cooling unit.
#[derive(Debug, Clone, Default)]
pub struct CoolingSpec {
    /// Its name.
    pub name: String,
    /// Heat that it takes away, in watts.
    pub capacity_w: u64,
    /// Heat besides that of the nodes of clusters, in watts.
    pub other_w: u64,
}

/// A label that nodes carry.
#[derive(Debug, Clone)]
pub struct LabelSpec {
    /// Its kind.
    pub kind: LabelKind,
    /// Its name.
    pub name: String,
}

/// A node.
#[derive(Debug, Clone)]
pub struct NodeSpec {
    /// Its name.
    pub name: String,
    /// Its scalable unit.
    pub unit: UnitId,
    /// Its class.
    pub sku: SkuId,
    /// What each of its power supplies hangs on. They share the load evenly.
    pub psus: Vec<DomainId>,
    /// Where its heat goes, in watts.
    pub cooling: Vec<(CoolingId, u64)>,
    /// What it carries.
    pub labels: Vec<LabelId>,
    /// It is not given to anybody.
    pub held_out: bool,
}

/// What is wrong with a hall's description.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HallFault {
    /// Something names what is not there.
    #[error("{what} names {kind} {index}, of which there are {count}")]
    Missing {
        /// Who names it.
        what: String,
        /// What kind of thing.
        kind: &'static str,
        /// Which.
        index: usize,
        /// So many there are.
        count: usize,
    },
    /// More than [`MOST`] of something.
    #[error("{what} has {count} {kind}, at most {MOST} are possible")]
    TooMany {
        /// Who has them.
        what: String,
        /// What kind of thing.
        kind: &'static str,
        /// So many.
        count: usize,
    },
    /// The power tree bites its tail.
    #[error("power domain {0} feeds itself")]
    Cycle(String),
    /// A node without power supplies.
    #[error("node {0} has no power supply, or fewer than its SKU needs")]
    Unpowered(String),
}

/// Remarks on references: all at once.
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
        names(&node.name, "unit", node.unit.at(), units);
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
    if faults.is_empty() {
        faults.extend(shape_faults(spec));
    }
    faults
}

/// Remarks on sizes and cycles, once all references hold.
fn shape_faults(spec: &HallSpec) -> Vec<HallFault> {
    let mut faults = Vec::new();
    let tree = &spec.tree;
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
    let names: Vec<_> = spec.pods.iter().flat_map(|p| &p.units).collect();
    let mut hosts = vec![0; names.len()];
    for node in &spec.nodes {
        hosts[node.unit.at()] += 1;
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
        // As many steps as there are domains reach every root.
        let end = (0..spec.domains.len()).try_fold(i, |at, _| spec.domains[at].parent.map(DomainId::at));
        if end.is_some() {
            faults.push(HallFault::Cycle(domain.name.clone()));
        }
    }
    faults
}
