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

/// How many machines may start at once on each domain, whoever is on: for starts that come one by one.
///
/// Everything that hangs on a domain counts at its maximum, and each that starts with what its boot peak is above that. Where
/// all maxima are more than the domain carries (reservations keep to it, machines that are not reserved are off), what starts
/// counts with all of its peak and nothing else counts. One may start in any case: else nothing ever would.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StartRooms {
    /// By domain; none where all on it may start at once.
    rooms: Vec<Option<u32>>,
}

/// What hangs on a domain, in watts.
#[derive(Debug, Clone, Copy, Default)]
struct Hanging {
    nodes: u32,
    max: f64,
    /// The largest share of any node.
    peak: f64,
    /// The most that a boot peak is above its maximum.
    above: f64,
}

impl StartRooms {
    /// Of a site.
    #[must_use]
    pub fn new(site: &Site) -> Self {
        let mut hanging = vec![Hanging::default(); site.domains.len()];
        for node in site.node_ids() {
            let power = site.sku_of(node).power;
            let peak = power.boot_peak_watts.max(power.max_watts);
            let share = |watts| super::node_loads(site, node, watts, Redundancy::None, super::Scenario::Normal);
            for ((domain, at_max), (_, at_peak)) in share(power.max_watts).into_iter().zip(share(peak)) {
                let (at_max, at_peak) = (super::watts(at_max.total), super::watts(at_peak.total));
                let sum = &mut hanging[domain.index()];
                sum.nodes += 1;
                sum.max += at_max;
                sum.peak = sum.peak.max(at_peak);
                sum.above = sum.above.max(at_peak - at_max);
            }
        }
        let other = Loads::new(site);
        let room = |id: DomainId| {
            let sum = hanging[id.index()];
            let carried = capacity_watts(site.domain(id)) - super::watts(other.at(id, super::Scenario::Normal).total);
            let free = carried - sum.max;
            // Milliwatts are rounded up, share by share.
            let fits = |free: f64, each: f64| ((free + 0.1) / each).floor().clamp(1.0, f64::from(u32::MAX)) as u32;
            let room = match sum.above > 0.01 {
                false => None,
                true if free >= 0.0 => Some(fits(free, sum.above)),
                true => Some(fits(carried, sum.peak)),
            };
            room.filter(|room| *room < sum.nodes)
        };
        Self {
            rooms: site.domain_ids().map(room).collect(),
        }
    }

    /// How many may start at once on a domain; none where all on it may.
    #[must_use]
    pub fn at(&self, domain: DomainId) -> Option<u32> {
        self.rooms.get(domain.index()).copied().flatten()
    }

    /// The domains above a node on which not all may start at once, and how many may.
    #[must_use]
    pub fn of(&self, site: &Site, node: NodeId) -> Vec<(DomainId, u32)> {
        let above = super::loads::touched(site, node).into_iter();
        above.filter_map(|domain| Some((domain, self.at(domain)?))).collect()
    }

    /// True where all may start at once everywhere.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rooms.iter().all(Option::is_none)
    }
}
