//! The losses that a node survives, considering its PSUs and its outlets.

use super::loads::{Scenario, exceeds};
use super::outlet_watts;
use super::refusal::Refusal;
use crate::model::{NodeId, Plug, Redundancy, Site};

/// Checks that a node at this load runs in the normal state and in every state that its redundancy class promises to
/// survive. Only its own PSUs and outlets are considered. The ledger checks the domains above them.
///
/// # Errors
/// The first state in which the node fails, and the reason.
pub fn survival(site: &Site, node: NodeId, watts: f64, redundancy: Redundancy) -> Result<(), Refusal> {
    lives(site, node, watts, Scenario::Normal)?;
    match redundancy {
        Redundancy::None => Ok(()),
        Redundancy::PsuLoss => without_one(site, node, watts),
        Redundancy::FeedLoss => site
            .feed_ids()
            .try_for_each(|feed| lives(site, node, watts, Scenario::Lost(feed))),
    }
}

pub(super) fn lives(site: &Site, node: NodeId, watts: f64, scenario: Scenario) -> Result<(), Refusal> {
    let profile = site.sku_of(node).psus;
    let plugs = site.node(node).psus.iter().flatten();
    let live: Vec<Plug> = plugs
        .filter(|plug| !scenario.kills(site.domain(plug.pdu).feed))
        .copied()
        .collect();
    let needed = usize::from(profile.needed);
    if live.len() < needed {
        return Err(Refusal::TooFewPsus {
            node,
            scenario,
            live: live.len(),
            needed,
        });
    }
    let live_watts = live.len() as f64 * profile.watts;
    if exceeds(watts, live_watts) {
        return Err(Refusal::PsusTooWeak {
            node,
            scenario,
            live_watts,
            watts,
        });
    }
    outlets_carry(site, node, &live, watts / live.len() as f64)
}

fn without_one(site: &Site, node: NodeId, watts: f64) -> Result<(), Refusal> {
    let profile = site.sku_of(node).psus;
    let plugs: Vec<Plug> = site.node(node).psus.iter().flatten().copied().collect();
    let live = plugs.len().saturating_sub(1);
    let needed = usize::from(profile.needed);
    if live < needed {
        return Err(Refusal::NoSparePsu { node, live, needed });
    }
    let live_watts = live as f64 * profile.watts;
    if exceeds(watts, live_watts) {
        return Err(Refusal::PsusTooWeak {
            node,
            scenario: Scenario::Normal,
            live_watts,
            watts,
        });
    }
    outlets_carry(site, node, &plugs, watts / live.max(1) as f64)
}

fn outlets_carry(site: &Site, node: NodeId, plugs: &[Plug], watts: f64) -> Result<(), Refusal> {
    for plug in plugs {
        if let Some(capacity_watts) = outlet_watts(site, *plug).filter(|capacity| exceeds(watts, *capacity)) {
            return Err(Refusal::Outlet {
                node,
                plug: *plug,
                watts,
                capacity_watts,
            });
        }
    }
    Ok(())
}
