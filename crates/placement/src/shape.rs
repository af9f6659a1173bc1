//! Turns chosen units into a placement: the number of nodes in each, the nodes, and the links.

use super::fill::{Quota, fill};
use super::hall::Hall;
use super::ledger::Trial;
use super::links::{Mask, bits};
use super::request::{Placement, PowerShare, Request, SpineShare, UnitShare};
use super::rule::{Demand, choose_plane, fits_plane};
use super::spec::{CoolingId, DomainId, NodeId, PodId, UnitId};
use super::view::{Effort, Spread, View};

/// Units with the same links, and the links that they have in common.
#[derive(Debug, Clone)]
pub(super) struct Even {
    pub units: Vec<u32>,
    /// Number of units in each pod.
    pub pods: Vec<Demand>,
    /// Uplinks that are free on all units and lead to spines with room in their planes, in counted form.
    pub common: Mask,
}

impl Even {
    /// No unit.
    pub fn none() -> Self {
        Self {
            units: Vec::new(),
            pods: Vec::new(),
            common: Mask::MAX,
        }
    }

    /// The even units of this list.
    pub fn of(hall: &Hall, units: &[u32]) -> Self {
        let mut all = Self::none();
        all.units.extend_from_slice(units);
        for &unit in units {
            all.common &= all.links_with(hall, unit);
            count_in(&mut all.pods, hall.units[unit as usize].pod, 1);
        }
        all.common = planes(hall, &all.pods, all.common);
        all
    }

    /// The same with one more unit.
    pub fn with(&self, hall: &Hall, unit: u32) -> Self {
        let mut more = self.clone();
        more.common = self.links_with(hall, unit);
        more.units.push(unit);
        count_in(&mut more.pods, hall.units[unit as usize].pod, 1);
        more.common = planes(hall, &more.pods, more.common);
        more
    }

    /// The common uplinks that are free on another unit, too, in counted form. None if the unit is in another fabric.
    pub fn links_with(&self, hall: &Hall, unit: u32) -> Mask {
        let first = self.units.first();
        match first.is_none_or(|&first| hall.fabric_of(first) == hall.fabric_of(unit)) {
            true => self.common & hall.units[unit as usize].counted,
            false => 0,
        }
    }

    /// The common uplinks that `odd` can have as well.
    pub fn shared_with(&self, hall: &Hall, odd: u32) -> Mask {
        let unit = &hall.units[odd as usize];
        let wanted = self.links_with(hall, odd);
        if wanted == 0 || self.pods.iter().all(|p| p.0 == unit.pod) {
            return wanted;
        }
        let spines = hall.wirings(PodId(unit.pod)).spines;
        (0..spines.peers).fold(0, |out, spine| {
            let even = spines.count(self.common, spine);
            let fits = |&n: &u32| {
                let mut demands: Vec<_> = self.pods.iter().map(|&(p, c)| (p, c * even)).collect();
                count_in(&mut demands, unit.pod, n);
                fits_plane(hall, spine, &demands)
            };
            let most = (1..=spines.count(wanted, spine)).rev().find(fits);
            out | spines.first(spine, most.unwrap_or(0))
        })
    }
}

fn count_in(demands: &mut Vec<Demand>, pod: u32, more: u32) {
    // Searches from the end, because units come pod by pod.
    match demands.iter_mut().rev().find(|d| d.0 == pod) {
        Some(known) => known.1 += more,
        None => demands.push((pod, more)),
    }
}

/// The uplinks of `common` for which the spines' planes have enough links for these units of each pod.
fn planes(hall: &Hall, pods: &[Demand], common: Mask) -> Mask {
    if pods.len() < 2 || common == 0 {
        return common;
    }
    let spines = hall.wirings(PodId(pods[0].0)).spines;
    (0..spines.peers).fold(0, |out, spine| {
        let fits = |&n: &u32| {
            let demands: Vec<_> = pods.iter().map(|&(p, c)| (p, c * n)).collect();
            fits_plane(hall, spine, &demands)
        };
        let most = (1..=spines.count(common, spine)).rev().find(fits);
        out | spines.first(spine, most.unwrap_or(0))
    })
}

/// Quotas that keep the rule for the even units and an odd one: without a big unit, or with any one unit as the big
/// one.
fn quotas(view: &View, even: &Even, odd: u32, shared: Mask) -> Vec<Vec<Quota>> {
    let (k, bandwidth) = (even.common.count_ones(), view.request.bandwidth);
    let (size, cap) = (view.size, |u: u32| view.caps[u as usize]);
    let limit = |&u: &u32| {
        let links = if u == odd { shared.count_ones() } else { k };
        (u, bandwidth.nodes(links))
    };
    let limits: Vec<_> = even.units.iter().chain([&odd]).map(limit).collect();
    let kept = |u: u32| view.kept_in(u).count_ones();
    let plain = |&(unit, limit): &(u32, u32)| Quota {
        unit,
        least: kept(unit),
        most: cap(unit).min(limit),
    };
    let plain: Vec<_> = limits.iter().map(plain).collect();
    let mut out = vec![plain.clone()];
    for (i, &(unit, limit)) in limits.iter().enumerate() {
        // The nodes elsewhere bound the streams of a big unit.
        let least = size.saturating_sub(limit);
        if cap(unit) > limit && cap(unit) >= least {
            let mut quotas = plain.clone();
            quotas[i].least = least.max(kept(unit));
            quotas[i].most = cap(unit).min(size);
            out.push(quotas);
        }
    }
    out.retain(|quotas| {
        let room: u32 = quotas.iter().map(|q| q.most).sum();
        room >= size && quotas.iter().all(|q| q.most >= q.least)
    });
    out
}

/// The maximum number of nodes that the rule allows on these units, regardless of budgets.
pub(super) fn most(view: &View, even: &Even, odd: u32) -> u32 {
    let shared = even.shared_with(view.hall, odd);
    let (k, bandwidth) = (even.common.count_ones(), view.request.bandwidth);
    let of = |u: u32, links: u32| view.caps[u as usize].min(bandwidth.nodes(links));
    even.units.iter().map(|&u| of(u, k)).sum::<u32>() + of(odd, shared.count_ones())
}

/// Searches a placement on these units.
pub(super) fn on_units(view: &View, effort: &mut Effort, even: &Even, odd: u32) -> Option<Placement> {
    if even.units.is_empty() {
        let quota = Quota {
            unit: odd,
            least: view.kept_in(odd).count_ones(),
            most: view.caps[odd as usize],
        };
        let hosts = fill(view, effort, &[quota])?;
        return assign(view, even, odd, 0, &hosts);
    }
    let shared = even.shared_with(view.hall, odd);
    if shared == 0 {
        return None;
    }
    for quotas in quotas(view, even, odd, shared) {
        if let Some(hosts) = fill(view, effort, &quotas) {
            let placement = assign(view, even, odd, shared, &hosts);
            if placement.is_some() {
                return placement;
            }
        }
    }
    None
}

/// Assigns links to units with chosen hosts.
pub(super) fn assign(view: &View, even: &Even, odd: u32, shared: Mask, hosts: &[(u32, Mask)]) -> Option<Placement> {
    let hall = view.hall;
    let streams = |mask: Mask| {
        let here = mask.count_ones();
        view.request.bandwidth.links(here.min(view.size - here))
    };
    let needs: Vec<_> = hosts.iter().map(|&(unit, mask)| (unit, streams(mask))).collect();
    let most = needs.iter().map(|n| n.1).max().unwrap_or(0);
    let least = needs.iter().min_by_key(|n| (n.1, n.0 != odd))?;
    // The unit with the fewest streams is the odd one, unless the unit chosen as odd has too few links to be even.
    let (odd, few, from, full) = match needs.iter().find(|n| n.0 == odd) {
        None => (least.0, least.1, even.common, even.common),
        Some(given) if given.1 > least.1 && shared.count_ones() >= most => (least.0, least.1, shared, shared),
        Some(given) => (odd, given.1, shared, even.common),
    };
    let loved = popularity(hall, hosts);
    let part = least_loved(from, few, &loved);
    let whole = part | least_loved(full & !part, most - few, &loved);
    let share = |&(unit, hosts): &(u32, Mask)| {
        let wanted = if unit == odd { part } else { whole };
        let known = &hall.units[unit as usize];
        UnitShare {
            unit: UnitId(unit),
            pod: PodId(known.pod),
            hosts,
            links: hall.wirings(PodId(known.pod)).spines.pick(known.links, wanted),
        }
    };
    let mut units: Vec<_> = hosts.iter().map(share).collect();
    units.sort_by_key(|u| u.unit);
    let cores = cores(hall, &units)?;
    Some(assemble(hall, view.request.clone(), units, cores))
}

/// For each uplink, the number of units in the affected pods with this uplink free.
fn popularity(hall: &Hall, hosts: &[(u32, Mask)]) -> [u32; 128] {
    let mut loved = [0; 128];
    let mut pods: Vec<_> = hosts.iter().map(|h| hall.units[h.0 as usize].pod).collect();
    pods.dedup();
    // A cluster with many pods takes whole pods, where no other unit can use the links.
    for pod in pods.iter().take(4) {
        for unit in hall.pods[*pod as usize].units.clone() {
            for bit in bits(hall.units[unit as usize].counted) {
                loved[bit as usize] += 1;
            }
        }
    }
    loved
}

/// The `n` links of `from` that the fewest units could use.
fn least_loved(from: Mask, n: u32, loved: &[u32; 128]) -> Mask {
    if n == 0 {
        return 0;
    }
    if from.count_ones() <= n {
        return from;
    }
    let mut order: Vec<_> = bits(from).collect();
    order.sort_by_key(|&bit| loved[bit as usize]);
    order.iter().take(n as usize).fold(0, |mask, bit| mask | 1 << bit)
}

/// Chooses links above the spines. `None`: there are too few.
fn cores(hall: &Hall, units: &[UnitShare]) -> Option<Vec<SpineShare>> {
    let mut out = Vec::new();
    if units.iter().all(|u| u.pod == units[0].pod) {
        return Some(out);
    }
    let spines = hall.wirings(units[0].pod).spines;
    for spine in 0..spines.peers {
        let mut demands = Vec::new();
        for unit in units {
            count_in(&mut demands, unit.pod.0, spines.count(unit.links, spine));
        }
        out.extend(choose_plane(hall, spine, &demands)?);
    }
    out.sort_by_key(|s| (s.pod, s.spine));
    Some(out)
}

/// Builds the placement with its nodes and loads. Units and cores must be in order.
pub(super) fn assemble(hall: &Hall, request: Request, units: Vec<UnitShare>, cores: Vec<SpineShare>) -> Placement {
    let unbounded = Spread::default();
    let mut trial = Trial::sum(&hall.ledger, &unbounded);
    let mut nodes = Vec::with_capacity(request.size() as usize);
    for share in &units {
        let unit = &hall.units[share.unit.at()];
        nodes.extend(bits(share.hosts).map(|place| NodeId(unit.nodes[place as usize])));
        for group in &unit.groups {
            let here = (group.hosts & share.hosts).count_ones();
            if here > 0 {
                trial.add(&hall.profiles[group.profile as usize], here);
            }
        }
    }
    let spares = nodes.split_off(nodes.len().min(request.nodes as usize));
    let share = |(domain, watts, worst_w)| PowerShare {
        domain: DomainId(domain),
        watts,
        worst_w,
    };
    let mut power: Vec<_> = trial.loads().map(share).collect();
    power.sort_by_key(|p| p.domain);
    let heat = trial.heat().map(|(unit, watts)| (CoolingId(unit), watts)).collect();
    Placement {
        request,
        nodes,
        spares,
        units,
        cores,
        power,
        heat,
    }
}
