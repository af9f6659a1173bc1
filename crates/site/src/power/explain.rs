//! The way from the utility to each PSU of a node, with watts at each step.

use serde::Serialize;

use super::load::watts;
use super::loads::{Loads, Scenario, node_loads};
use super::{capacity_watts, outlet_watts, survival};
use crate::model::{DomainId, NodeId, Redundancy, Site};

/// One domain on the way.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Step {
    /// Which.
    pub domain: DomainId,
    /// What it carries, in watts.
    pub capacity_watts: f64,
    /// All that is drawn from it in the given loads, in watts.
    pub load_watts: f64,
    /// What this node draws from it at its maximum, in watts, over all its PSUs.
    pub node_watts: f64,
    /// What was measured, in watts.
    pub measured_watts: Option<f64>,
}

/// The way to one PSU.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PsuPath {
    /// From 1.
    pub psu: usize,
    /// Its outlet, as `pdu/outlet`; `None`: it is not plugged in.
    pub outlet: Option<String>,
    /// Phase of the outlet.
    pub phase: Option<&'static str>,
    /// What the outlet carries, in watts, where that is limited.
    pub outlet_watts: Option<f64>,
    /// What the PSU draws while all live, in watts.
    pub psu_watts: f64,
    /// From the top down.
    pub steps: Vec<Step>,
}

/// What becomes of the node when a feed is lost.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LossOutcome {
    /// The feed's letter.
    pub feed: Box<str>,
    /// PSUs that live.
    pub live: usize,
    /// What they give, in watts.
    pub live_watts: f64,
    /// What each of them would draw, in watts.
    pub psu_watts: f64,
    /// Whether the node lives on, as far as its own PSUs and outlets go.
    pub survives: bool,
}

/// How a node is fed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Explanation {
    /// Its name.
    pub node: Box<str>,
    /// Its class.
    pub sku: Box<str>,
    /// Its rack.
    pub rack: Box<str>,
    /// What it draws at most, in watts.
    pub max_watts: f64,
    /// PSUs that must live.
    pub psus_needed: usize,
    /// By PSU.
    pub psus: Vec<PsuPath>,
    /// By feed.
    pub losses: Vec<LossOutcome>,
    /// Whether it survives the loss of any one PSU.
    pub survives_psu_loss: bool,
}

/// How a node is fed, with the loads given: those of a ledger, or of [`Loads::of_all_nodes`].
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
