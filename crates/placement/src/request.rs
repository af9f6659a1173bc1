//! Requests and their results.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::links::{Mask, hex};
use super::spec::{ClusterId, CoolingId, CustomerId, DomainId, LabelId, LabelKind, NodeId, PodId, SkuId, UnitId};

/// The bandwidth between the nodes of a cluster, guaranteed against all other clusters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Bandwidth {
    /// `up` uplinks for every `down` nodes. 1 for 1 is non-blocking.
    Ratio {
        /// Number of nodes.
        down: u32,
        /// Number of uplinks for them.
        up: u32,
    },
    /// One uplink for each unit: connected and isolated from other clusters, but without guaranteed bandwidth.
    BestEffort,
}

impl Bandwidth {
    /// Every node can send at full speed, whatever the others do.
    pub const FULL: Self = Self::Ratio { down: 1, up: 1 };

    /// Parses `non-blocking`, `best-effort`, or a ratio of nodes to uplinks such as `2:1`. `None`: the text has another
    /// form.
    #[must_use]
    pub fn parse(words: &str) -> Option<Self> {
        match words {
            "non-blocking" => Some(Self::FULL),
            "best-effort" => Some(Self::BestEffort),
            _ => {
                let (down, up) = words.split_once(':')?;
                let (down, up): (u32, u32) = (down.trim().parse().ok()?, up.trim().parse().ok()?);
                ((1..=down).contains(&up) && down <= 1024).then_some(Self::Ratio { down, up })
            }
        }
    }

    /// Whether every node has an uplink of its own.
    #[must_use]
    pub fn is_non_blocking(self) -> bool {
        matches!(self, Self::Ratio { down, up } if up >= down)
    }

    /// Number of uplinks for `nodes` nodes that communicate with other units.
    #[must_use]
    pub fn links(self, nodes: u32) -> u32 {
        match self {
            Self::Ratio { down, up } => scaled(nodes, up, down, u64::div_ceil),
            Self::BestEffort => nodes.min(1),
        }
    }

    /// Number of nodes for which `links` uplinks suffice.
    #[must_use]
    pub fn nodes(self, links: u32) -> u32 {
        match self {
            Self::Ratio { down, up } => scaled(links, down, up, |a, b| a / b),
            Self::BestEffort if links == 0 => 0,
            Self::BestEffort => u32::from(u16::MAX),
        }
    }
}

/// `count` times `by`, divided by `through`, limited to the range of the type because a ratio may come from any input.
fn scaled(count: u32, by: u32, through: u32, divide: fn(u64, u64) -> u64) -> u32 {
    let scaled = divide(u64::from(count) * u64::from(by.max(1)), u64::from(through.max(1)));
    u32::try_from(scaled).unwrap_or(u32::MAX)
}

/// A request for a cluster. It is placed as a whole or not at all.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// The id of the cluster.
    pub cluster: ClusterId,
    /// The cluster's customer.
    pub customer: CustomerId,
    /// The SKU of the nodes.
    pub sku: SkuId,
    /// Number of nodes in use.
    pub nodes: u32,
    /// Number of additional nodes. A spare can replace any node of the cluster without breaking a promise.
    pub spares: u32,
    /// Bandwidth between its nodes.
    pub bandwidth: Bandwidth,
    /// Whether the cluster must survive the loss of any single feed.
    pub survives_feed_loss: bool,
    /// Whether the cluster shares no circuit with other customers.
    pub own_circuits: bool,
    /// Whether the cluster shares no cooling unit with other customers.
    pub own_cooling: bool,
    /// Constraints on the position.
    pub affinity: Affinity,
}

impl Request {
    /// A non-blocking cluster without further constraints.
    #[must_use]
    pub fn plain(cluster: ClusterId, customer: CustomerId, sku: SkuId, nodes: u32) -> Self {
        Self {
            cluster,
            customer,
            sku,
            nodes,
            spares: 0,
            bandwidth: Bandwidth::FULL,
            survives_feed_loss: false,
            own_circuits: false,
            own_cooling: false,
            affinity: Affinity::default(),
        }
    }

    /// Number of nodes and spares.
    #[must_use]
    pub fn size(&self) -> u32 {
        self.nodes.saturating_add(self.spares)
    }

    /// Whether every node needs all its rails, each on the leaf of its number. A single node has no peer, so it needs no
    /// rail.
    #[must_use]
    pub fn needs_all_rails(&self) -> bool {
        self.bandwidth.is_non_blocking() && self.size() > 1
    }
}

/// Constraints on the position of a cluster. All of them must hold.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Affinity {
    /// Every node has each of these labels.
    pub within: Vec<LabelId>,
    /// No node has any of these labels.
    pub avoid: Vec<LabelId>,
    /// Every node shares a label of this kind with that cluster.
    pub near: Vec<(ClusterId, LabelKind)>,
    /// No node shares a label of this kind with that cluster.
    pub apart: Vec<(ClusterId, LabelKind)>,
    /// Maximum number of nodes with the same label of this kind.
    pub spread: Vec<(LabelKind, u32)>,
}

impl Affinity {
    /// Whether there is no constraint on single nodes.
    #[must_use]
    pub fn takes_any_node(&self) -> bool {
        self.within.is_empty() && self.avoid.is_empty() && self.near.is_empty() && self.apart.is_empty()
    }
}

/// The result for a cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placement {
    pub request: Request,
    /// The nodes in use, by unit and host.
    pub nodes: Vec<NodeId>,
    pub spares: Vec<NodeId>,
    /// The cluster's shares of units, ordered by unit.
    pub units: Vec<UnitShare>,
    /// The cluster's links above the spines, by pod and spine. Empty within one pod.
    pub cores: Vec<SpineShare>,
    /// The load added to each power domain, by domain.
    pub power: Vec<PowerShare>,
    /// The heat added to each cooling unit, in watts, by unit.
    pub heat: Vec<(CoolingId, u64)>,
}

/// A cluster's share of a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnitShare {
    pub unit: UnitId,
    /// The unit's pod.
    pub pod: PodId,
    /// Hosts of the unit, by their index in it.
    #[serde(with = "hex")]
    pub hosts: Mask,
    /// Uplinks, the same on every rail: link k to spine s is bit k × spines + s.
    #[serde(with = "hex")]
    pub links: Mask,
}

/// A cluster's share of the links above a spine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpineShare {
    pub pod: PodId,
    /// Index of the spine in the pod.
    pub spine: u32,
    /// Links to cores: link k to core c is bit k × cores + c.
    #[serde(with = "hex")]
    pub links: Mask,
}

/// A cluster's load on a power domain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PowerShare {
    pub domain: DomainId,
    /// Load with all feeds alive, in watts.
    pub watts: u64,
    /// Load after the worst loss of a single feed, in watts.
    pub worst_w: u64,
}

/// The constraint in the way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Constraint {
    /// The request has no nodes.
    Empty,
    /// The id is taken, or a named cluster does not exist.
    Cluster(ClusterId),
    /// The number of free nodes of the SKU.
    Nodes,
    /// The nodes that satisfy the affinity.
    Affinity,
    /// Circuits or cooling units that are dedicated to other customers, or used by others.
    Dedication,
    /// The limit in the customer's contract.
    Contract,
    /// The power domain that refuses the most nodes, with all feeds alive.
    Power(DomainId),
    /// The power domain that refuses the most nodes, after the loss of a feed.
    FeedLoss(DomainId),
    /// The nodes' power supplies do not survive the loss of a feed.
    Supplies,
    /// Nodes that lack a rail or have exchanged rails, for a non-blocking cluster.
    Rails,
    /// The cooling unit that refuses the most nodes.
    Cooling(CoolingId),
    /// The maximum number of nodes under one label.
    Spread,
    /// Several budgets together. None of them alone is in the way.
    Budgets,
    /// Links in a shape that needs no links of other clusters.
    Links,
}

/// Why no placement was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The first constraint that leaves too few nodes.
    pub constraint: Constraint,
    /// Number of requested nodes that the constraint leaves.
    pub leaves: u32,
    /// Number of requested nodes, including spares.
    pub asked: u32,
    /// The shortfall at that domain or unit, in watts. 0: no shortfall of watts.
    pub short_w: u64,
    /// Whether the refusal is proven. False: the search was cut short, so a placement may exist.
    pub proven: bool,
    /// The nearest requests that fit: with fewer nodes, or without one of the constraints.
    pub nearest: Vec<Nearest>,
    /// The constraint in words, with names.
    pub why: String,
}

/// A similar request that would fit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nearest {
    /// The changed request.
    pub request: Request,
    /// The change in words.
    pub change: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)?;
        if self.asked == 0 {
            return Ok(());
        }
        if !self.proven {
            f.write_str("; the search was cut short")?;
        }
        let changes: Vec<_> = self.nearest.iter().map(|n| n.change.as_str()).collect();
        if changes.is_empty() {
            return f.write_str("; no similar request fits");
        }
        write!(f, "; what fits: {}", changes.join(", or "))
    }
}

impl std::error::Error for Refusal {}
