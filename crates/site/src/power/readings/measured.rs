//! What is measured and what is expected at every domain.

use super::{Below, Readings, Rules, fresh};
use crate::model::{DomainId, NodeId, Redundancy, Site};
use crate::power::{Scenario, node_loads, watts};

/// What meters say of a domain.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Measured {
    /// What is certainly drawn, in watts: the sum of all that is known.
    pub watts: f64,
    /// Whether that is all: nothing below is unknown.
    pub is_whole: bool,
}

impl Measured {
    /// The figure, where it is whole.
    #[must_use]
    pub fn whole(self) -> Option<f64> {
        self.is_whole.then_some(self.watts)
    }
}

/// What a domain should draw at most.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Expected {
    /// What is reserved on it, what nodes without a reservation may draw, and what is no
    /// node, in watts.
    pub watts: f64,
    /// Of that, what is reserved, in watts.
    pub reserved_watts: f64,
    /// Of that, what is no node, in watts.
    pub other_watts: f64,
}

/// What is measured of every domain, by its id: its own meter's figure, else what nodes say of their shares or what is below
/// adds up to, with what is no node.
#[must_use]
pub fn measured(site: &Site, below: &Below, readings: &Readings, rules: &Rules, now_us: i64) -> Vec<Measured> {
    let mut all = vec![Measured::default(); site.domains.len()];
    // Parents have smaller ids: from the bottom up.
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
            // A domain on which nothing is known to hang may feed what no file knows.
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

/// PSUs of a node that are plugged in; they share its load.
fn plugs(site: &Site, node: NodeId) -> f64 {
    site.node(node).psus.iter().flatten().count().max(1) as f64
}

/// What every domain should draw at most, by its id; `reserved` is by node, in watts.
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
        // A machine that is off still draws its standby power, which no file tells.
        let most = own.unwrap_or(site.sku_of(node).power.max_watts);
        for (domain, load) in node_loads(site, node, most, Redundancy::None, Scenario::Normal) {
            let sum = &mut all[domain.index()];
            sum.watts += watts(load.total);
            sum.reserved_watts += own.map_or(0.0, |_| watts(load.total));
        }
    }
    all
}
