//! The load of every domain, in the normal state and after the loss of each feed.

use serde::Serialize;

use super::load::{Load, MilliWatts, milliwatts};
use super::refusal::Refusal;
use super::{capacity_watts, watts};
use crate::model::{DomainId, FeedId, NodeId, Phases, Rating, Redundancy, Site};

/// A state of the power feeds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub enum Scenario {
    /// All feeds work.
    Normal,
    /// All feeds except this letter work.
    Lost(FeedId),
}

impl Scenario {
    /// The normal state, then the loss of each feed of a site.
    pub fn all(site: &Site) -> impl Iterator<Item = Self> + use<> {
        std::iter::once(Self::Normal).chain(site.feed_ids().map(Self::Lost))
    }

    fn index(self) -> usize {
        match self {
            Self::Normal => 0,
            Self::Lost(feed) => feed.index() + 1,
        }
    }

    /// Whether a domain with this feed is dead.
    #[must_use]
    pub fn kills(self, feed: Option<FeedId>) -> bool {
        matches!(self, Self::Lost(lost) if feed == Some(lost))
    }
}

/// The load of a node on each domain above it, at `node_watts`. Each domain occurs once, in no particular order.
///
/// - Normal: PSUs share evenly. With [`Redundancy::PsuLoss`], each has its share after the loss of another PSU.
/// - A feed lost, with [`Redundancy::FeedLoss`]: the working PSUs share evenly.
/// - A feed lost, without that promise: breakers that feed only such nodes are not guarded. They may open one after
///   another until a single rack PDU is left. So each PDU counts with the whole load, up to the output of its PSUs.
#[must_use]
pub fn node_loads(
    site: &Site,
    node: NodeId,
    node_watts: f64,
    redundancy: Redundancy,
    scenario: Scenario,
) -> Vec<(DomainId, Load)> {
    let psus = &site.node(node).psus;
    let feed = |plug: &crate::model::Plug| site.domain(plug.pdu).feed;
    let live = || psus.iter().flatten().filter(|plug| !scenario.kills(feed(plug)));
    let count = live().count();
    let psu_watts = site.sku_of(node).psus.watts;
    let all = milliwatts(node_watts);
    let mut loads: Vec<(DomainId, Load)> = Vec::with_capacity(24);
    for plug in live() {
        let share = match (scenario, redundancy) {
            (Scenario::Normal, Redundancy::PsuLoss) => node_watts / (count.max(2) - 1) as f64,
            (Scenario::Normal, _) | (Scenario::Lost(_), Redundancy::FeedLoss) => node_watts / count as f64,
            (Scenario::Lost(_), _) => {
                let same = live().filter(|other| other.pdu == plug.pdu).count();
                (node_watts / same as f64).min(psu_watts)
            }
        };
        let Some(outlet) = site.outlet(*plug) else { continue };
        let mut load = Load::on(outlet.phase, milliwatts(share));
        for id in site.ancestors(plug.pdu) {
            match loads.iter_mut().find(|(other, _)| *other == id) {
                Some((_, sum)) => *sum = sum.plus(load),
                None => loads.push((id, load)),
            }
            load = load.above(site.domain(id));
        }
    }
    for (_, load) in &mut loads {
        load.total = load.total.min(all);
    }
    loads
}

/// The load of every domain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loads {
    scenarios: usize,
    /// By domain, then by scenario.
    loads: Vec<Load>,
    /// By domain: number of nodes on it that must survive the loss of a feed.
    promised: Vec<u32>,
}

impl Loads {
    /// The loads without nodes.
    #[must_use]
    pub fn new(site: &Site) -> Self {
        let scenarios = site.feeds.len() + 1;
        let mut loads = vec![Load::NONE; site.domains.len() * scenarios];
        let mut other = vec![Load::NONE; site.domains.len()];
        for (id, domain) in site.domains.iter().enumerate().rev() {
            let own = Load::on(crate::model::Phase::All, milliwatts(domain.other_watts));
            other[id] = other[id].plus(own);
            loads[id * scenarios..(id + 1) * scenarios].fill(other[id]);
            if let Some(parent) = domain.parent {
                other[parent.index()] = other[parent.index()].plus(other[id].above(domain));
            }
        }
        Self {
            scenarios,
            loads,
            promised: vec![0; site.domains.len()],
        }
    }

    /// The loads with every node at its maximum, without promises.
    #[must_use]
    pub fn of_all_nodes(site: &Site) -> Self {
        let mut loads = Self::new(site);
        for node in site.node_ids() {
            loads.add(site, node, site.sku_of(node).power.max_watts, Redundancy::None);
        }
        loads
    }

    /// The load of a domain in a scenario.
    #[must_use]
    pub fn at(&self, domain: DomainId, scenario: Scenario) -> Load {
        self.loads[domain.index() * self.scenarios + scenario.index()]
    }

    /// Whether nodes that must survive the loss of a feed depend on the domain.
    #[must_use]
    pub fn is_promised(&self, domain: DomainId) -> bool {
        self.promised[domain.index()] > 0
    }

    /// Adds a node.
    pub fn add(&mut self, site: &Site, node: NodeId, watts: f64, redundancy: Redundancy) {
        self.change(site, node, watts, redundancy, Load::plus);
        self.promise(site, node, redundancy, |count| count + 1);
    }

    /// Removes a node that was added with the same arguments.
    pub fn remove(&mut self, site: &Site, node: NodeId, watts: f64, redundancy: Redundancy) {
        self.change(site, node, watts, redundancy, Load::minus);
        self.promise(site, node, redundancy, |count| count - 1);
    }

    fn change(&mut self, site: &Site, node: NodeId, watts: f64, redundancy: Redundancy, with: fn(Load, Load) -> Load) {
        for scenario in Scenario::all(site) {
            for (domain, load) in node_loads(site, node, watts, redundancy, scenario) {
                let slot = &mut self.loads[domain.index() * self.scenarios + scenario.index()];
                *slot = with(*slot, load);
            }
        }
    }

    fn promise(&mut self, site: &Site, node: NodeId, redundancy: Redundancy, with: fn(u32) -> u32) {
        if redundancy != Redundancy::FeedLoss {
            return;
        }
        for domain in touched(site, node) {
            self.promised[domain.index()] = with(self.promised[domain.index()]);
        }
    }

    /// Checks whether a domain can carry its load: always in the normal state, and after the loss of any other feed if
    /// a node on the domain was promised to survive it.
    ///
    /// # Errors
    /// The worst excess in the first state with an excess.
    pub fn check(&self, site: &Site, domain: DomainId) -> Result<(), Refusal> {
        let vertex = site.domain(domain);
        for scenario in Scenario::all(site) {
            let counts = scenario == Scenario::Normal || self.is_promised(domain);
            if !counts || scenario.kills(vertex.feed) {
                continue;
            }
            let load = self.at(domain, scenario);
            let capacity = capacity_watts(vertex);
            if exceeds(watts(load.total), capacity) {
                let load_watts = watts(load.total);
                return Err(Refusal::Power {
                    domain,
                    scenario,
                    load_watts,
                    capacity_watts: capacity,
                });
            }
            let Rating::Electrical {
                volts,
                amps,
                phases: Phases::Three,
            } = vertex.rating
            else {
                continue;
            };
            let limit_amps = amps * vertex.derate;
            let lines = load.line_amps(volts);
            let worst = (0..3).max_by(|a, b| lines[*a].total_cmp(&lines[*b])).unwrap_or(0);
            if exceeds(lines[worst], limit_amps) {
                let line = worst as u8 + 1;
                return Err(Refusal::Phase {
                    domain,
                    scenario,
                    line,
                    amps: lines[worst],
                    limit_amps,
                });
            }
        }
        Ok(())
    }
}

/// Whether a value exceeds a limit by more than the rounding of some thousand loads.
pub(super) fn exceeds(value: f64, limit: f64) -> bool {
    value > limit * (1.0 + 1e-6)
}

/// The domains above a node, without duplicates.
pub(super) fn touched(site: &Site, node: NodeId) -> Vec<DomainId> {
    let mut all: Vec<DomainId> = Vec::with_capacity(24);
    for plug in site.node(node).psus.iter().flatten() {
        for id in site.ancestors(plug.pdu) {
            if all.contains(&id) {
                break;
            }
            all.push(id);
        }
    }
    all
}

/// The sum in milliwatts. It is exact, so adding and removing a node leaves no rest.
pub(super) fn sum(watts: impl Iterator<Item = f64>) -> MilliWatts {
    watts.map(milliwatts).sum()
}
