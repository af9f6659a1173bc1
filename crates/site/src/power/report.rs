//! Headroom, stranded power and phase balance of every domain.

use serde::Serialize;

use super::ledger::Ledger;
use super::load::watts;
use super::loads::Scenario;
use super::{capacity_watts, node_loads};
use crate::model::{DomainId, Redundancy, Site};

/// The remaining capacity of a domain.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Headroom {
    pub domain: DomainId,
    /// Continuous capacity after derating, in watts.
    pub capacity_watts: f64,
    /// Load of reservations and other equipment, in watts.
    pub reserved_watts: f64,
    /// Worst load, in watts: in the normal state, and after the loss of another feed if nodes on the domain were
    /// promised to survive it.
    pub worst_watts: f64,
    /// Measured load, in watts.
    pub measured_watts: Option<f64>,
    /// Capacity minus the worst load, in watts. Negative if loads did not go through the ledger.
    pub headroom_watts: f64,
    /// Headroom that no installed node can use, in watts: no free node is plugged in below, or a domain above or below
    /// is full.
    pub stranded_watts: f64,
    /// Excess of the most loaded phase over the mean of the three, as a share of the mean.
    pub imbalance: f64,
}

/// The headroom of every domain, ordered by id.
#[must_use]
pub fn headroom(site: &Site, ledger: &Ledger) -> Vec<Headroom> {
    let loads = ledger.loads();
    let mut report: Vec<Headroom> = Vec::with_capacity(site.domains.len());
    for id in site.domain_ids() {
        let domain = site.domain(id);
        let normal = loads.at(id, Scenario::Normal);
        let counts = |scenario: &Scenario| {
            *scenario == Scenario::Normal || (loads.is_promised(id) && !scenario.kills(domain.feed))
        };
        let states = Scenario::all(site).filter(counts);
        let worst = states.map(|scenario| loads.at(id, scenario).total).max().unwrap_or(0);
        let capacity_watts = capacity_watts(domain);
        report.push(Headroom {
            domain: id,
            capacity_watts,
            reserved_watts: watts(normal.total),
            worst_watts: watts(worst),
            measured_watts: domain.measured_watts,
            headroom_watts: capacity_watts - watts(worst),
            stranded_watts: 0.0,
            imbalance: normal.imbalance(),
        });
    }
    let usable = usable(site, ledger, &report);
    for (row, usable) in report.iter_mut().zip(usable) {
        row.stranded_watts = (row.headroom_watts - usable).max(0.0);
    }
    report
}

/// The part of each domain's headroom that free nodes can draw, in watts: limited by the domains above and below and by
/// the nodes' maximum.
fn usable(site: &Site, ledger: &Ledger, report: &[Headroom]) -> Vec<f64> {
    // Top down: the free capacity along the whole path.
    let mut free: Vec<f64> = report.iter().map(|row| row.headroom_watts.max(0.0)).collect();
    for id in 0..free.len() {
        if let Some(parent) = site.domains[id].parent {
            free[id] = free[id].min(free[parent.index()]);
        }
    }
    // Bottom up: the part of it that free nodes would draw.
    let mut usable = vec![0.0; free.len()];
    for node in site.node_ids().filter(|node| ledger.reservation(*node).is_none()) {
        let watts_of = site.sku_of(node).power.max_watts;
        for (domain, load) in node_loads(site, node, watts_of, Redundancy::None, Scenario::Normal) {
            if site.domain(domain).kind.has_outlets() {
                usable[domain.index()] += watts(load.total);
            }
        }
    }
    for id in (0..free.len()).rev() {
        usable[id] = usable[id].min(free[id]);
        if let Some(parent) = site.domains[id].parent {
            usable[parent.index()] += usable[id];
        }
    }
    usable
}
