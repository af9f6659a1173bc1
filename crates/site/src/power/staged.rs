//! Staged power-on: how many machines may start at once, and in which order all of them may.

use serde::Serialize;

use super::capacity_watts;
use super::loads::Loads;
use crate::model::{DomainId, NodeId, Redundancy, Site, SkuId};

/// How many nodes of a SKU may start at once on a domain on which so many watts are drawn already: each takes its boot
/// peak (or its maximum, if that is more) until it has started. A node with PSUs on `feeds` feeds puts a part of that on each.
#[must_use]
pub fn power_on_tokens(site: &Site, domain: DomainId, drawn_watts: f64, sku: SkuId, feeds: usize) -> u32 {
    let free = capacity_watts(site.domain(domain)) - drawn_watts;
    let power = site.sku(sku).power;
    let peak = power.boot_peak_watts.max(power.max_watts) / feeds.max(1) as f64;
    // The cast saturates; a negative number becomes none.
    (free * (1.0 + 1e-9) / peak).floor() as u32
}

/// An order to switch machines on in.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Waves {
    /// Nodes of a wave start together; the next wave when they have started.
    pub waves: Vec<Vec<NodeId>>,
    /// Nodes that cannot be switched on beside those that are on.
    pub too_much: Vec<NodeId>,
}

/// Divides nodes into waves: in each, what is on draws its maximum, what starts its boot peak, and no domain carries more
/// than it may, on no phase. Nodes go in the order given; one that does not fit into a wave lets smaller ones pass.
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
