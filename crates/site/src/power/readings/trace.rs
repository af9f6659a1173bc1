//! The power path from the utility to the outlets of some nodes, with capacity, reservation and measurement at each
//! step.

use super::{Expected, Measured};
use crate::model::{DomainId, NodeId, Redundancy, Site};
use crate::power::{Scenario, capacity_watts, node_loads, watts};

/// One domain of the path.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TraceStep {
    pub domain: DomainId,
    /// Rated load, in watts.
    pub rated_watts: f64,
    /// Continuous capacity after derating, in watts.
    pub capacity_watts: f64,
    /// All reservations and the load of other equipment, in watts.
    pub reserved_watts: f64,
    /// Draw of the traced nodes at their maximum, in watts.
    pub traced_watts: f64,
    /// The measured load.
    pub measured: Measured,
    /// Number of traced nodes on the domain.
    pub nodes: u32,
}

/// The domains above the nodes, top down. `drawn` and `wanted` are by domain, from `measured` and `expected`.
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
