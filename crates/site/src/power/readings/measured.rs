//! The measured and the expected load of every domain.

use super::{Below, Readings, Rules, fresh};
use crate::model::{DomainId, NodeId, Redundancy, Site};
use crate::power::{Scenario, node_loads, watts};

/// The measured load of a domain.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Measured {
    /// The sum of all known loads, in watts. The domain draws at least this much.
    pub watts: f64,
    /// Whether this is the whole load, without unknown parts.
    pub is_whole: bool,
}

impl Measured {
    /// The load, if it is whole.
    #[must_use]
    pub fn whole(self) -> Option<f64> {
        self.is_whole.then_some(self.watts)
    }
}

/// The expected maximum load of a domain.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Expected {
    /// Reservations, the possible draw of nodes without a reservation, and other equipment, in watts.
    pub watts: f64,
    /// The reserved part, in watts.
    pub reserved_watts: f64,
    /// The part of other equipment, in watts.
    pub other_watts: f64,
}

/// The measured load of every domain, by id: the value of its own meter, otherwise the sum of the nodes' shares, the
/// domains below and other equipment.
#[must_use]
pub fn measured(site: &Site, below: &Below, readings: &Readings, rules: &Rules, now_us: i64) -> Vec<Measured> {
    let mut all = vec![Measured::default(); site.domains.len()];
    // Parents have smaller ids, so this goes bottom up.
    for id in (0..site.domains.len()).rev().map(DomainId::of) {
        let domain = site.domain(id);
        let pdu = fresh(readings.pdu(id), now_us, rules.fresh_us);
        if let Some(own) = pdu.and_then(|pdu| pdu.watts) {
            all[id.index()] = Measured {
                watts: own,
                is_whole: true,
            };
            continue;
        }
        let mut sum = Measured {
            watts: domain.other_watts,
            // A domain without known children may feed unknown equipment.
            is_whole: !below.children(id).is_empty() || !below.plugged(id).is_empty(),
        };
        for child in below.children(id) {
            sum.watts += all[child.index()].watts;
            sum.is_whole &= all[child.index()].is_whole;
        }
        for (node, _) in below.plugged(id) {
            match fresh(readings.node(*node), now_us, rules.fresh_us).and_then(|one| one.watts) {
                Some(watts) => sum.watts += watts / plugs(site, *node),
                None => sum.is_whole = false,
            }
        }
        all[id.index()] = sum;
    }
    all
}

/// Number of a node's plugged-in PSUs. They share its load.
fn plugs(site: &Site, node: NodeId) -> f64 {
    site.node(node).psus.iter().flatten().count().max(1) as f64
}

/// The expected maximum load of every domain, by id. `reserved` returns the reservation of a node, in watts.
#[must_use]
pub fn expected(site: &Site, reserved: &dyn Fn(NodeId) -> Option<f64>) -> Vec<Expected> {
    let mut all = vec![Expected::default(); site.domains.len()];
    for (id, domain) in site.domains.iter().enumerate() {
        for above in site.ancestors(DomainId::of(id)) {
            all[above.index()].watts += domain.other_watts;
            all[above.index()].other_watts += domain.other_watts;
        }
    }
    for node in site.node_ids() {
        let own = reserved(node);
        // A machine that is off still draws standby power, which no file states.
        let most = own.unwrap_or(site.sku_of(node).power.max_watts);
        for (domain, load) in node_loads(site, node, most, Redundancy::None, Scenario::Normal) {
            let sum = &mut all[domain.index()];
            sum.watts += watts(load.total);
            sum.reserved_watts += own.map_or(0.0, |_| watts(load.total));
        }
    }
    all
}
