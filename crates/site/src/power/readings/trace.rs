//! The way from the utility to the outlets of some nodes, with what is carried, reserved and measured at each step.

use super::{Expected, Measured};
use crate::model::{DomainId, NodeId, Redundancy, Site};
use crate::power::{Scenario, capacity_watts, node_loads, watts};

/// One domain on the way.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TraceStep {
    /// Which.
    pub domain: DomainId,
    /// What it is rated for, in watts.
    pub rated_watts: f64,
    /// What it carries all the time: rated less derating, in watts.
    pub capacity_watts: f64,
    /// What is reserved of it, by everybody, and what is no node, in watts.
    pub reserved_watts: f64,
    /// What the traced nodes draw of it at their maximum, in watts.
    pub traced_watts: f64,
    /// What is measured.
    pub measured: Measured,
    /// How many of the traced nodes hang on it.
    pub nodes: u32,
}

/// The domains above some nodes, from the top down. `drawn` and `wanted` are by domain (`measured`, `expected`).
#[must_use]
pub fn trace(site: &Site, nodes: &[NodeId], drawn: &[Measured], wanted: &[Expected]) -> Vec<TraceStep> {
    let mut own = vec![(0.0, 0_u32); site.domains.len()];
    for node in nodes {
        let most = site.sku_of(*node).power.max_watts;
        for (domain, load) in node_loads(site, *node, most, Redundancy::None, Scenario::Normal) {
            own[domain.index()].0 += watts(load.total);
            own[domain.index()].1 += 1;
        }
    }
    let step = |domain: DomainId| {
        let vertex = site.domain(domain);
        let capacity = capacity_watts(vertex);
        let wanted = wanted.get(domain.index()).copied().unwrap_or_default();
        TraceStep {
            domain,
            rated_watts: capacity / vertex.derate,
            capacity_watts: capacity,
            reserved_watts: wanted.reserved_watts + wanted.other_watts,
            traced_watts: own[domain.index()].0,
            measured: drawn.get(domain.index()).copied().unwrap_or_default(),
            nodes: own[domain.index()].1,
        }
    };
    // Parents have smaller ids.
    let on_the_way = site.domain_ids().filter(|domain| own[domain.index()].1 > 0);
    on_the_way.map(step).collect()
}
