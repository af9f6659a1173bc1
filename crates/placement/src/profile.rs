//! The load of a node on every budget. Nodes with the same power, cooling and labels share one profile.

use std::collections::BTreeMap;

use super::spec::{DomainId, HallSpec, NodeSpec};

/// The common properties of nodes of one SKU in one place.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Profile {
    /// Index of the SKU.
    pub sku: u32,
    /// Load on each power domain above the node, with all feeds alive.
    pub loads: Vec<(u32, u64)>,
    /// The domains that the power supplies are connected to.
    pub strips: Vec<u32>,
    /// Additional load on domains after the loss of a feed.
    pub rises: Vec<Rise>,
    /// Whether the node survives the loss of any single feed.
    pub survives: bool,
    /// The circuits that feed the node.
    pub circuits: Vec<u32>,
    /// Heat to each cooling unit.
    pub heat: Vec<(u32, u64)>,
    /// The node's labels.
    pub labels: Vec<u32>,
    /// Whether the node lacks a rail or has exchanged rails.
    pub impaired: bool,
    /// The loads on budgets that can run short.
    pub tight: Tight,
}

/// Loads on domains and cooling units that would run short if every node were taken. The others always suffice.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Tight {
    pub loads: Vec<(u32, u64)>,
    pub rises: Vec<Rise>,
    pub heat: Vec<(u32, u64)>,
}

impl Profile {
    /// Stores the loads on domains and cooling units that are marked as possibly short.
    pub fn mark_tight(&mut self, domains: &[bool], cooling: &[bool]) {
        let on = |known: &[bool], at: u32| known.get(at as usize).copied().unwrap_or(true);
        self.tight = Tight {
            loads: self.loads.iter().copied().filter(|l| on(domains, l.0)).collect(),
            rises: self.rises.iter().copied().filter(|r| on(domains, r.domain)).collect(),
            heat: self.heat.iter().copied().filter(|h| on(cooling, h.0)).collect(),
        };
    }

    /// The maximum additional load on a domain after the loss of any feed.
    pub fn worst_rise(&self, domain: u32) -> u64 {
        let rises = self.rises.iter().filter(|r| r.domain == domain);
        rises.map(|r| r.watts).max().unwrap_or(0)
    }
}

/// Additional load on a domain after the loss of a feed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Rise {
    pub domain: u32,
    /// The lost feed.
    pub feed: u32,
    /// Additional load, in watts.
    pub watts: u64,
}

/// A domain and its ancestors, up to the root.
fn line(spec: &HallSpec, from: DomainId) -> impl Iterator<Item = u32> {
    std::iter::successors(Some(from), |at| spec.domains[at.at()].parent).map(|d| d.0)
}

/// Load on every domain if only the supplies in `alive` work, by domain. They share the load evenly, rounded up at each
/// domain.
fn loads(spec: &HallSpec, watts: u64, alive: &[DomainId]) -> Vec<(u32, u64)> {
    let mut domains: Vec<u32> = alive.iter().flat_map(|psu| line(spec, *psu)).collect();
    domains.sort_unstable();
    let all = alive.len().max(1) as u64;
    let load = |supplies: &[u32]| (supplies[0], (watts * supplies.len() as u64).div_ceil(all));
    domains.chunk_by(|one, other| one == other).map(load).collect()
}

/// Whether two nodes have the same profile, because they are the same but for name and unit.
pub(super) fn are_alike(one: &NodeSpec, other: &NodeSpec) -> bool {
    one.sku == other.sku
        && one.psus == other.psus
        && one.cooling == other.cooling
        && one.labels == other.labels
        && one.impaired == other.impaired
}

/// Computes the profile of `node`.
///
/// A node that fails with a feed keeps its earlier load in the calculation: no relief is assumed.
pub(super) fn of(spec: &HallSpec, node: &NodeSpec) -> Profile {
    let sku = &spec.skus[node.sku.at()];
    let normal = loads(spec, sku.watts, &node.psus);
    let mut rises = Vec::new();
    let mut survives = true;
    let fed = normal.iter().map(|(domain, _)| *domain);
    for feed in fed.clone().filter(|d| spec.domains[*d as usize].feed) {
        let lives = |psu: &DomainId| line(spec, *psu).all(|d| d != feed);
        let alive: Vec<_> = node.psus.iter().copied().filter(lives).collect();
        if alive.is_empty() || alive.len() < sku.psus_needed as usize {
            survives = false;
            continue;
        }
        for (domain, load) in loads(spec, sku.watts, &alive) {
            let before = normal.binary_search_by_key(&domain, |(domain, _)| *domain);
            let before = before.map_or(0, |at| normal[at].1);
            if load > before {
                let watts = load - before;
                rises.push(Rise { domain, feed, watts });
            }
        }
    }
    let circuits = fed.filter(|d| spec.domains[*d as usize].circuit).collect();
    let mut heat: BTreeMap<u32, u64> = BTreeMap::new();
    for (unit, watts) in &node.cooling {
        *heat.entry(unit.0).or_default() += watts;
    }
    let mut labels: Vec<_> = node.labels.iter().map(|l| l.0).collect();
    labels.sort_unstable();
    labels.dedup();
    let mut strips: Vec<_> = node.psus.iter().map(|p| p.0).collect();
    strips.sort_unstable();
    strips.dedup();
    Profile {
        sku: node.sku.0,
        strips,
        circuits,
        loads: normal,
        rises,
        survives,
        heat: heat.into_iter().collect(),
        labels,
        impaired: node.impaired,
        tight: Tight::default(),
    }
}
