//! Staged power-on: the number of machines that may start at once, and an order in which all can start.

use serde::Serialize;

use super::capacity_watts;
use super::loads::Loads;
use crate::model::{DomainId, NodeId, Redundancy, Site, SkuId};

/// The number of nodes of a SKU that may start at once on a domain with a load of `drawn_watts`. Each node takes its
/// boot peak (or its maximum, if that is higher) until it has started. A node with PSUs on `feeds` feeds puts an equal
/// part on each.
#[must_use]
pub fn power_on_tokens(site: &Site, domain: DomainId, drawn_watts: f64, sku: SkuId, feeds: usize) -> u32 {
    let free = capacity_watts(site.domain(domain)) - drawn_watts;
    let power = site.sku(sku).power;
    let peak = power.boot_peak_watts.max(power.max_watts) / feeds.max(1) as f64;
    // The cast saturates, and negative numbers become zero.
    (free * (1.0 + 1e-9) / peak).floor() as u32
}

/// An order in which to switch machines on.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Waves {
    /// The nodes of each wave start together. A wave starts once the previous one has started.
    pub waves: Vec<Vec<NodeId>>,
    /// Nodes that cannot be switched on next to those already on.
    pub too_much: Vec<NodeId>,
}

/// Divides nodes into waves. In each wave, running nodes draw their maximum and starting nodes their boot peak, within
/// the capacity of every domain and phase. Nodes are taken in the given order. Smaller nodes may overtake one that does
/// not fit.
#[must_use]
pub fn waves(site: &Site, on: &[NodeId], start: &[NodeId]) -> Waves {
    let mut loads = Loads::new(site);
    let max = |node: NodeId| site.sku_of(node).power.max_watts;
    let peak = |node: NodeId| site.sku_of(node).power.boot_peak_watts.max(max(node));
    on.iter()
        .for_each(|node| loads.add(site, *node, max(*node), Redundancy::None));
    let mut result = Waves::default();
    let mut rest: Vec<NodeId> = start.to_vec();
    while !rest.is_empty() {
        let mut wave = Vec::new();
        let mut later = Vec::new();
        for node in rest {
            loads.add(site, node, peak(node), Redundancy::None);
            if fits(site, &loads, node) {
                wave.push(node);
            } else {
                loads.remove(site, node, peak(node), Redundancy::None);
                later.push(node);
            }
        }
        if wave.is_empty() {
            result.too_much = later;
            return result;
        }
        for node in &wave {
            loads.remove(site, *node, peak(*node), Redundancy::None);
            loads.add(site, *node, max(*node), Redundancy::None);
        }
        result.waves.push(wave);
        rest = later;
    }
    result
}

fn fits(site: &Site, loads: &Loads, node: NodeId) -> bool {
    super::loads::touched(site, node)
        .into_iter()
        .all(|domain| loads.check(site, domain).is_ok())
}

/// The number of machines that may start at once on each domain. The number does not depend on which machines are on, so it
/// is valid for independent starts.
///
/// Every node on a domain counts at its maximum, and each starting node also with the excess of its boot peak. If the
/// maxima already exceed the capacity (reservations stay below it, and unreserved machines are off), only starting
/// nodes count, each with its full peak. One node may always start, otherwise no node ever could.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StartRooms {
    /// By domain. `None`: all its nodes may start at once.
    rooms: Vec<Option<u32>>,
}

/// The nodes on a domain, in watts.
#[derive(Debug, Clone, Copy, Default)]
struct Hanging {
    nodes: u32,
    max: f64,
    /// The largest peak share of any node.
    peak: f64,
    /// The largest excess of a boot peak over the maximum.
    above: f64,
}

impl StartRooms {
    /// Computes the numbers for a site.
    #[must_use]
    pub fn new(site: &Site) -> Self {
        let mut hanging = vec![Hanging::default(); site.domains.len()];
        for node in site.node_ids() {
            let power = site.sku_of(node).power;
            let peak = power.boot_peak_watts.max(power.max_watts);
            let share = |watts| super::node_loads(site, node, watts, Redundancy::None, super::Scenario::Normal);
            for ((domain, at_max), (_, at_peak)) in share(power.max_watts).into_iter().zip(share(peak)) {
                let (at_max, at_peak) = (super::watts(at_max.total), super::watts(at_peak.total));
                let sum = &mut hanging[domain.index()];
                sum.nodes += 1;
                sum.max += at_max;
                sum.peak = sum.peak.max(at_peak);
                sum.above = sum.above.max(at_peak - at_max);
            }
        }
        let other = Loads::new(site);
        let room = |id: DomainId| {
            let sum = hanging[id.index()];
            let carried = capacity_watts(site.domain(id)) - super::watts(other.at(id, super::Scenario::Normal).total);
            let free = carried - sum.max;
            // Tolerance for milliwatts rounded up in each share.
            let fits = |free: f64, each: f64| ((free + 0.1) / each).floor().clamp(1.0, f64::from(u32::MAX)) as u32;
            let room = match sum.above > 0.01 {
                false => None,
                true if free >= 0.0 => Some(fits(free, sum.above)),
                true => Some(fits(carried, sum.peak)),
            };
            room.filter(|room| *room < sum.nodes)
        };
        Self {
            rooms: site.domain_ids().map(room).collect(),
        }
    }

    /// The number of nodes that may start at once on a domain. `None`: all its nodes may.
    #[must_use]
    pub fn at(&self, domain: DomainId) -> Option<u32> {
        self.rooms.get(domain.index()).copied().flatten()
    }

    /// The domains above a node with a limit on simultaneous starts, and their limits.
    #[must_use]
    pub fn of(&self, site: &Site, node: NodeId) -> Vec<(DomainId, u32)> {
        let above = super::loads::touched(site, node).into_iter();
        above.filter_map(|domain| Some((domain, self.at(domain)?))).collect()
    }

    /// Whether all nodes may start at once on every domain.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rooms.iter().all(Option::is_none)
    }
}
