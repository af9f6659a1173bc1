//! What is asked for, and what comes out.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::links::{Mask, hex};
use super::spec::{ClusterId, CoolingId, CustomerId, DomainId, LabelId, LabelKind, NodeId, PodId, SkuId, UnitId};

/// Bandwidth between the nodes of a cluster that no other cluster takes from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Bandwidth {
    /// That of `up` links for `down` nodes' links: 1 for 1 is non-blocking.
    Ratio {
        /// Nodes.
        down: u32,
        /// Uplinks for them.
        up: u32,
    },
    /// One uplink for each unit: connected, and out of everybody's way, but nothing promised.
    BestEffort,
}

impl Bandwidth {
    /// Every node can send at full speed whatever the others do.
    pub const FULL: Self = Self::Ratio { down: 1, up: 1 };

    /// As people write it: `non-blocking`, `best-effort`, or nodes to uplinks as `2:1`. None: it is none of these.
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

    /// Uplinks that `nodes` nodes need which talk to others elsewhere.
    #[must_use]
    pub fn links(self, nodes: u32) -> u32 {
        match self {
            Self::Ratio { down, up } => scaled(nodes, up, down, u64::div_ceil),
            Self::BestEffort => nodes.min(1),
        }
    }

    /// Nodes that `links` uplinks are enough for.
    #[must_use]
    pub fn nodes(self, links: u32) -> u32 {
        match self {
            Self::Ratio { down, up } => scaled(links, down, up, |a, b| a / b),
            Self::BestEffort if links == 0 => 0,
            Self::BestEffort => u32::from(u16::MAX),
        }
    }
}

/// `count` times `by` through `through`, cut to what a number holds: a ratio may come from anywhere.
fn scaled(count: u32, by: u32, through: u32, divide: fn(u64, u64) -> u64) -> u32 {
    let scaled = divide(u64::from(count) * u64::from(by.max(1)), u64::from(through.max(1)));
    u32::try_from(scaled).unwrap_or(u32::MAX)
}

/// What a cluster shall be. All of it or nothing is placed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// What it will be called.
    pub cluster: ClusterId,
    /// Whose it is.
    pub customer: CustomerId,
    /// The class of its nodes.
    pub sku: SkuId,
    /// Nodes in use.
    pub nodes: u32,
    /// Nodes besides that can step in anywhere in the cluster without a promise broken.
    pub spares: u32,
    /// Bandwidth between its nodes.
    pub bandwidth: Bandwidth,
    /// It runs on through the loss of any single feed.
    pub survives_feed_loss: bool,
    /// No other customer hangs on its circuits.
    pub own_circuits: bool,
    /// No other customer hangs on its cooling units.
    pub own_cooling: bool,
    /// Where it may stand.
    pub affinity: Affinity,
}

impl Request {
    /// A non-blocking cluster without further wishes.
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

    /// Nodes and spares.
    #[must_use]
    pub fn size(&self) -> u32 {
        self.nodes.saturating_add(self.spares)
    }
}

/// Where a cluster may stand. All of it must hold.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Affinity {
    /// Every node carries each of these.
    pub within: Vec<LabelId>,
    /// No node carries any of these.
    pub avoid: Vec<LabelId>,
    /// Every node shares a label of this kind with that cluster.
    pub near: Vec<(ClusterId, LabelKind)>,
    /// No node shares a label of this kind with that cluster.
    pub apart: Vec<(ClusterId, LabelKind)>,
    /// At most so many nodes under one label of this kind.
    pub spread: Vec<(LabelKind, u32)>,
}

impl Affinity {
    /// True where it says nothing about single nodes.
    #[must_use]
    pub fn takes_any_node(&self) -> bool {
        self.within.is_empty() && self.avoid.is_empty() && self.near.is_empty() && self.apart.is_empty()
    }
}

/// What a cluster gets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placement {
    /// What was asked for.
    pub request: Request,
    /// Its nodes in use, by unit and host.
    pub nodes: Vec<NodeId>,
    /// Its spares.
    pub spares: Vec<NodeId>,
    /// What it takes of each unit, by unit.
    pub units: Vec<UnitShare>,
    /// What it takes above the spines, by pod and spine; none in one pod alone.
    pub cores: Vec<SpineShare>,
    /// What it adds to each power domain, by domain.
    pub power: Vec<PowerShare>,
    /// What it adds to each cooling unit, in watts, by unit.
    pub heat: Vec<(CoolingId, u64)>,
}

/// A cluster's part of a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnitShare {
    /// The unit.
    pub unit: UnitId,
    /// Its pod.
    pub pod: PodId,
    /// Hosts of the unit, by their place in it.
    #[serde(with = "hex")]
    pub hosts: Mask,
    /// Uplinks, the same on every rail: link k to spine s is bit k × spines + s.
    #[serde(with = "hex")]
    pub links: Mask,
}

/// A cluster's part of the links above a spine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpineShare {
    /// The pod.
    pub pod: PodId,
    /// The spine in it.
    pub spine: u32,
    /// Links up: link k to core c is bit k × cores + c.
    #[serde(with = "hex")]
    pub links: Mask,
}

/// A cluster's load on a power domain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PowerShare {
    /// The domain.
    pub domain: DomainId,
    /// Load with all feeds alive, in watts.
    pub watts: u64,
    /// Load after the worst loss of a single feed, in watts.
    pub worst_w: u64,
}

/// What stands in the way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Constraint {
    /// Nothing was asked for.
    Empty,
    /// The name is taken, or a cluster that is named does not exist.
    Cluster(ClusterId),
    /// Free nodes of the SKU.
    Nodes,
    /// What the affinity leaves.
    Affinity,
    /// Circuits or cooling units of other customers, or with other customers on them.
    Dedication,
    /// The customer's contract.
    Contract,
    /// A power domain with all feeds alive; the one that turns most nodes away.
    Power(DomainId),
    /// A power domain after the loss of a feed; the one that turns most nodes away.
    FeedLoss(DomainId),
    /// Nodes whose supplies do not live through the loss of a feed.
    Supplies,
    /// A cooling unit; the one that turns most nodes away.
    Cooling(CoolingId),
    /// At most so many nodes under one label.
    Spread,
    /// Several budgets together: none alone is in the way.
    Budgets,
    /// Links that no other cluster needs, in a shape in which this one needs no other.
    Links,
}

/// Why there is no placement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The constraint in the way: the first that leaves too little.
    pub constraint: Constraint,
    /// Nodes that it leaves for the request, of those asked for.
    pub leaves: u32,
    /// Nodes asked for, spares included.
    pub asked: u32,
    /// What is missing at that domain or unit, in watts; 0 where watts are not in the way.
    pub short_w: u64,
    /// False: the search was cut short, so a placement may exist.
    pub proven: bool,
    /// The nearest requests that fit, and what they change: fewer nodes, or a wish less.
    pub nearest: Vec<Nearest>,
    /// The constraint in words, with names.
    pub why: String,
}

/// A request that would fit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nearest {
    /// It.
    pub request: Request,
    /// What it changes, in words.
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
            return f.write_str("; nothing near it fits");
        }
        write!(f, "; what fits: {}", changes.join(", or "))
    }
}

impl std::error::Error for Refusal {}
