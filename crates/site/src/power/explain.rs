//! The power paths from the utility to each PSU of a node, with the watts at each step.

use serde::Serialize;

use super::load::watts;
use super::loads::{Loads, Scenario, node_loads};
use super::{capacity_watts, outlet_watts, survival};
use crate::model::{DomainId, NodeId, Redundancy, Site};

/// One domain of a path.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Step {
    pub domain: DomainId,
    /// Continuous capacity after derating, in watts.
    pub capacity_watts: f64,
    /// Total load in the given loads, in watts.
    pub load_watts: f64,
    /// Draw of this node at its maximum over all its PSUs, in watts.
    pub node_watts: f64,
    /// Measured load, in watts.
    pub measured_watts: Option<f64>,
}

/// The path to one PSU.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PsuPath {
    /// Number of the PSU, from 1.
    pub psu: usize,
    /// Its outlet, as `pdu/outlet`. `None`: not plugged in.
    pub outlet: Option<String>,
    /// The phase of the outlet.
    pub phase: Option<&'static str>,
    /// Capacity of the outlet, in watts. `None`: not limited.
    pub outlet_watts: Option<f64>,
    /// Draw of the PSU while all PSUs work, in watts.
    pub psu_watts: f64,
    /// The domains, top down.
    pub steps: Vec<Step>,
}

/// The effect of the loss of a feed on the node.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LossOutcome {
    /// The feed's letter.
    pub feed: Box<str>,
    /// Number of PSUs that still work.
    pub live: usize,
    /// Their total output, in watts.
    pub live_watts: f64,
    /// The draw of each of them, in watts.
    pub psu_watts: f64,
    /// Whether the node survives, considering only its own PSUs and outlets.
    pub survives: bool,
}

/// The power supply of a node.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Explanation {
    /// The node's name.
    pub node: Box<str>,
    /// The node's SKU.
    pub sku: Box<str>,
    /// The node's rack.
    pub rack: Box<str>,
    /// Maximum draw, in watts.
    pub max_watts: f64,
    /// Number of PSUs that must work.
    pub psus_needed: usize,
    /// The path to each PSU.
    pub psus: Vec<PsuPath>,
    /// By feed.
    pub losses: Vec<LossOutcome>,
    /// Whether it survives the loss of any one PSU.
    pub survives_psu_loss: bool,
}

/// Explains how a node is fed, with the given loads: those of a ledger, or of [`Loads::of_all_nodes`].
#[must_use]
pub fn explain(site: &Site, loads: &Loads, node: NodeId) -> Explanation {
    let (this, sku) = (site.node(node), site.sku_of(node));
    let max_watts = sku.power.max_watts;
    let own = node_loads(site, node, max_watts, Redundancy::None, Scenario::Normal);
    let plugged = this.psus.iter().flatten().count();
    let step = |domain: DomainId| Step {
        domain,
        capacity_watts: capacity_watts(site.domain(domain)),
        load_watts: watts(loads.at(domain, Scenario::Normal).total),
        node_watts: own
            .iter()
            .find(|(id, _)| *id == domain)
            .map_or(0.0, |(_, load)| watts(load.total)),
        measured_watts: site.domain(domain).measured_watts,
    };
    let path = |(i, plug): (usize, &Option<crate::model::Plug>)| {
        let mut steps: Vec<Step> = plug
            .iter()
            .flat_map(|plug| site.ancestors(plug.pdu))
            .map(step)
            .collect();
        steps.reverse();
        PsuPath {
            psu: i + 1,
            outlet: plug.map(|plug| site.plug_name(plug)),
            phase: plug
                .and_then(|plug| site.outlet(plug))
                .map(|outlet| outlet.phase.name()),
            outlet_watts: plug.and_then(|plug| outlet_watts(site, plug)),
            psu_watts: if plug.is_some() {
                max_watts / plugged as f64
            } else {
                0.0
            },
            steps,
        }
    };
    let loss = |feed: crate::model::FeedId| {
        let lost = Scenario::Lost(feed);
        let plugs = this.psus.iter().flatten();
        let live = plugs.filter(|plug| !lost.kills(site.domain(plug.pdu).feed)).count();
        LossOutcome {
            feed: site.feeds[feed.index()].clone(),
            live,
            live_watts: live as f64 * sku.psus.watts,
            psu_watts: if live > 0 { max_watts / live as f64 } else { 0.0 },
            survives: survival::lives(site, node, max_watts, lost).is_ok(),
        }
    };
    Explanation {
        node: this.name.clone(),
        sku: sku.name.clone(),
        rack: site.rack(this.rack).name.clone(),
        max_watts,
        psus_needed: usize::from(sku.psus.needed),
        psus: this.psus.iter().enumerate().map(path).collect(),
        losses: site.feed_ids().map(loss).collect(),
        survives_psu_loss: survival::survival(site, node, max_watts, Redundancy::PsuLoss).is_ok(),
    }
}
