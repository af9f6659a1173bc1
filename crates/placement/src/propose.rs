//! Good guesses: units that fit a cluster by the counts of free nodes and links, the least wasteful first.
//!
//! Guesses are not trusted: `shape` turns a guess into a placement and checks every budget and the rule.

use super::hall::Fabric;
use super::links::{Mask, bits};
use super::spec::PodId;
use super::view::View;

/// Maximum number of guesses before the exact search.
pub(super) const GUESSES: usize = 24;

/// A proposal of units for a cluster.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Proposal {
    pub cost: Cost,
    /// Units with equal links.
    pub even: Vec<u32>,
    /// The odd unit.
    pub odd: u32,
}

/// The cost of a proposal for later clusters. Lower is better, and earlier fields take precedence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Cost {
    pub units: usize,
    pods: usize,
    /// Number of untouched units that would become partly taken.
    broken: u32,
    /// Number of units that would be left with few free nodes.
    fragments: u32,
    /// Free nodes in the affected pods. Fuller pods come first, so that empty ones stay empty.
    free: u32,
}

/// The minimum number of units for this number of nodes. `None`: no fabric has enough nodes.
pub(super) fn fewest_units(view: &View) -> Option<usize> {
    let fabrics = view.hall.fabrics.iter();
    fabrics.filter_map(|fabric| fewest_of_fabric(view, fabric)).min()
}

fn fewest_of_fabric(view: &View, fabric: &Fabric) -> Option<usize> {
    let mut having = [0u32; 129];
    let caps = &view.caps[fabric.units.start as usize..fabric.units.end as usize];
    for &cap in caps.iter().filter(|&&c| c > 0) {
        having[cap.min(128) as usize] += 1;
    }
    let (mut left, mut units) = (view.size, 0);
    for cap in (1..=128).rev() {
        let needed = left.div_ceil(cap);
        if needed <= having[cap as usize] {
            return Some(units + needed as usize);
        }
        left -= having[cap as usize] * cap;
        units += having[cap as usize] as usize;
    }
    None
}

/// Proposals, cheapest first. Raises `reached` to the number of nodes in insufficient ones.
pub(super) fn proposals(view: &View, reached: &mut u32) -> Vec<Proposal> {
    let mut out = single_units(view);
    if out.is_empty() {
        let mut best = usize::MAX;
        for pod in 0..view.hall.pods.len() as u32 {
            if view.pod_caps[pod as usize] >= view.size {
                in_pod(view, pod, &mut best, &mut out);
            }
        }
        let fewest = fewest_units(view).unwrap_or(usize::MAX);
        if best > fewest {
            let fabrics = view.hall.fabrics.iter();
            for fabric in fabrics.filter(|fabric| fabric.pods.len() > 1 && fabric.wirings.cores.peers > 0) {
                over_pods(view, fabric, best, &mut out, reached);
            }
        }
    }
    out.sort();
    out.dedup();
    out
}

/// Only the best guesses become proposals, because in a big hall most units suffice for most requests.
fn single_units(view: &View) -> Vec<Proposal> {
    let mut fitting = Vec::new();
    for (unit, &cap) in view.caps.iter().enumerate() {
        if cap >= view.size {
            let known = &view.hall.units[unit];
            let rest = known.free.count_ones() - view.size;
            let broken = rest > 0 && known.taken == 0;
            let fragments = (1..4).contains(&rest);
            fitting.push((broken, fragments, view.pod_caps[known.pod as usize] + cap, unit as u32));
        }
    }
    if fitting.len() > GUESSES {
        fitting.select_nth_unstable(GUESSES);
        fitting.truncate(GUESSES);
    }
    fitting.into_iter().map(|f| proposal(view, Vec::new(), f.3)).collect()
}

fn proposal(view: &View, even: Vec<u32>, odd: u32) -> Proposal {
    let cost = cost(view, &even, odd);
    Proposal { cost, even, odd }
}

/// The cost, with all even units fully used and the odd one for the rest.
fn cost(view: &View, even: &[u32], odd: u32) -> Cost {
    let (mut left, mut broken, mut fragments) = (view.size, 0, 0);
    let mut pods = Pods::default();
    for &unit in even.iter().chain([&odd]) {
        let known = &view.hall.units[unit as usize];
        let taken = left.min(view.caps[unit as usize]);
        left -= taken;
        let rest = known.free.count_ones().saturating_sub(taken);
        if rest > 0 {
            broken += u32::from(known.taken == 0);
            fragments += u32::from(rest < 4);
        }
        pods.add(known.pod);
    }
    let free_in = |p: &u32| view.pod_caps[*p as usize];
    Cost {
        units: even.len() + 1,
        pods: pods.all().len(),
        broken,
        fragments,
        free: pods.all().iter().map(free_in).sum::<u32>() + view.caps[odd as usize],
    }
}

/// The pods of some units. The costs of thousands of pairs of units are computed, so few pods need no memory of their own.
#[derive(Default)]
struct Pods {
    few: [u32; 4],
    len: usize,
    /// All pods, if there are more than a few.
    many: Vec<u32>,
}

impl Pods {
    fn add(&mut self, pod: u32) {
        // Searches from the end, because units come pod by pod.
        if self.all().iter().rev().any(|known| *known == pod) {
            return;
        }
        if self.many.is_empty() && self.len < self.few.len() {
            self.few[self.len] = pod;
            self.len += 1;
            return;
        }
        if self.many.is_empty() {
            self.many.extend(self.few);
        }
        self.many.push(pod);
    }

    fn all(&self) -> &[u32] {
        if self.many.is_empty() {
            &self.few[..self.len]
        } else {
            &self.many
        }
    }
}

/// Proposals within a pod, with at most `best` units.
fn in_pod(view: &View, pod: u32, best: &mut usize, out: &mut Vec<Proposal>) {
    let units = view.hall.pods[pod as usize].units.clone();
    let mut units: Vec<u32> = units.filter(|&u| view.caps[u as usize] > 0).collect();
    let cap = |u: u32| view.caps[u as usize];
    // Among equals, small ones first: big units stay whole for later requests.
    units.sort_by_key(|&u| (cap(u), view.hall.units[u as usize].counted.count_ones()));
    let found = out.len();
    pairs(view, &units, out);
    if out.len() > found {
        *best = 2.min(*best);
        return;
    }
    let most = units.iter().map(|&u| cap(u)).max().unwrap_or(0);
    let bandwidth = view.request.bandwidth;
    let links = view.hall.wirings(PodId(pod)).spines.all().count_ones();
    let links = links.min(bandwidth.links(most));
    for k in (1..=links).rev() {
        let each = bandwidth.nodes(k).min(most);
        if each == 0 || view.size.div_ceil(each) as usize > (*best).saturating_add(1) {
            break;
        }
        if let Some(proposal) = evenly(view, &units, k) {
            *best = proposal.cost.units.min(*best);
            out.push(proposal);
        }
    }
}

/// Two units: only the streams of the smaller part cross between them.
fn pairs(view: &View, units: &[u32], out: &mut Vec<Proposal>) {
    let cap = |u: u32| view.caps[u as usize];
    let mut best: Option<(Cost, u32, u32)> = None;
    for (i, &a) in units.iter().enumerate().rev() {
        if cap(a) * 2 < view.size {
            break;
        }
        for &b in &units[..i] {
            if cap(a) + cap(b) < view.size {
                continue;
            }
            let rest = view.size - cap(a).min(view.size - 1);
            let common = view.hall.units[a as usize].counted & view.hall.units[b as usize].counted;
            if view.request.bandwidth.nodes(common.count_ones()) < rest.min(view.size - rest) {
                continue;
            }
            let next = (cost(view, &[a], b), a, b);
            if best.is_none_or(|best| next < best) {
                best = Some(next);
            }
        }
    }
    out.extend(best.map(|(cost, a, odd)| Proposal {
        cost,
        even: vec![a],
        odd,
    }));
}

/// Even units with `k` common links each, the fullest use first, and the best odd unit.
fn evenly(view: &View, units: &[u32], k: u32) -> Option<Proposal> {
    let bandwidth = view.request.bandwidth;
    let each = bandwidth.nodes(k);
    let counted = |u: u32| view.hall.units[u as usize].counted;
    let gives = |u: u32| view.caps[u as usize].min(each);
    let mut order: Vec<u32> = units
        .iter()
        .copied()
        .filter(|&u| counted(u).count_ones() >= k)
        .collect();
    // The sort is stable, so among equals the small ones stay first.
    order.sort_by_key(|&u| std::cmp::Reverse(gives(u)));
    let (mut even, mut common, mut sum) = (Vec::new(), Mask::MAX, 0);
    for &unit in &order {
        if (common & counted(unit)).count_ones() < k {
            continue;
        }
        let left = view.size - sum;
        if left <= each
            && let Some(odd) = odd_unit(view, units, &even, common, left)
        {
            return Some(proposal(view, even, odd));
        }
        if gives(unit) >= left {
            return Some(proposal(view, even, unit));
        }
        even.push(unit);
        common &= counted(unit);
        sum += gives(unit);
    }
    let odd = odd_unit(view, units, &even, common, view.size - sum)?;
    Some(proposal(view, even, odd))
}

/// The smallest unit that gives `left` nodes, preferably one already in use.
fn odd_unit(view: &View, units: &[u32], even: &[u32], common: Mask, left: u32) -> Option<u32> {
    let fits = |u: &&u32| {
        let unit = &view.hall.units[**u as usize];
        let links = (common & unit.counted).count_ones();
        view.caps[**u as usize] >= left && view.request.bandwidth.nodes(links) >= left && !even.contains(u)
    };
    let exact = |u: &&u32| (view.hall.units[**u as usize].taken == 0, view.caps[**u as usize]);
    units.iter().filter(fits).min_by_key(exact).copied()
}

/// A pod's units that have the chosen links free. `sums[n]` is the number of nodes in the first `n` units.
struct Offer {
    pod: u32,
    units: Vec<u32>,
    sums: Vec<u32>,
}

impl Offer {
    fn of_first(&self, n: usize) -> u32 {
        self.sums[n.min(self.units.len())]
    }
}

/// Proposals over several pods of a fabric: pods with equal numbers of units, and an odd pod.
fn over_pods(view: &View, fabric: &Fabric, best: usize, out: &mut Vec<Proposal>, reached: &mut u32) {
    let all = fabric.wirings.spines.all().count_ones();
    let units = fabric.units.clone();
    let most = units.map(|unit| view.caps[unit as usize]).max().unwrap_or(0);
    let links = all.min(view.request.bandwidth.links(most));
    let mut best = best;
    let mut tried = Vec::new();
    for eighths in [8, 7, 6, 5, 4, 3, 2, 1] {
        let k = (links * eighths).div_ceil(8);
        let each = view.request.bandwidth.nodes(k).min(most);
        if each == 0 || tried.contains(&k) || view.size.div_ceil(each) as usize >= best {
            continue;
        }
        tried.push(k);
        let (common, offers) = offers(view, fabric, k);
        let first = view.size.div_ceil(each) as usize;
        let longest = offers.iter().map(|o| o.units.len()).max().unwrap_or(0);
        let mut sizes: Vec<_> = (1..=12).map(|pods| first.div_ceil(pods).min(longest)).collect();
        sizes.dedup();
        for size in sizes.into_iter().filter(|&s| s > 0) {
            match even_pods(view, fabric, (common, &offers), size) {
                Ok(proposal) => {
                    best = best.min(proposal.cost.units + 1);
                    out.push(proposal);
                }
                Err(nodes) => *reached = nodes.max(*reached),
            }
        }
    }
}

/// The `k` uplinks that are free on most candidates of a fabric, and the offer of each pod on them.
fn offers(view: &View, fabric: &Fabric, k: u32) -> (Mask, Vec<Offer>) {
    let hall = view.hall;
    let can = |u: u32| view.caps[u as usize] > 0 && hall.units[u as usize].counted.count_ones() >= k;
    let mut loved = [0u32; 128];
    for unit in fabric.units.clone().filter(|&u| can(u)) {
        for bit in bits(hall.units[unit as usize].counted) {
            loved[bit as usize] += view.caps[unit as usize];
        }
    }
    let mut order: Vec<u32> = bits(fabric.wirings.spines.all()).collect();
    order.sort_by_key(|&bit| std::cmp::Reverse(loved[bit as usize]));
    let common = order.iter().take(k as usize).fold(0, |mask: Mask, bit| mask | 1 << bit);
    let each = view.request.bandwidth.nodes(k);
    let gives = |u: u32| view.caps[u as usize].min(each);
    let offer = |pod: u32| {
        let fits = |&u: &u32| can(u) && hall.units[u as usize].counted & common == common;
        let mut units: Vec<u32> = hall.pods[pod as usize].units.clone().filter(fits).collect();
        units.sort_by_key(|&u| (std::cmp::Reverse(gives(u)), view.caps[u as usize]));
        let running = units.iter().scan(0, |sum, &u| {
            *sum += gives(u);
            Some(*sum)
        });
        Offer {
            pod,
            sums: std::iter::once(0).chain(running).collect(),
            units,
        }
    };
    let offers = fabric.pods.clone().map(offer);
    (common, offers.filter(|o| !o.units.is_empty()).collect())
}

/// Pods with up to `size` units each, and with enough cores in common above their spines. The last pod gives the remaining
/// nodes. Error: the number of nodes found, if they do not suffice.
fn even_pods(view: &View, fabric: &Fabric, (common, offers): (Mask, &[Offer]), size: usize) -> Result<Proposal, u32> {
    let hall = view.hall;
    let spines = fabric.wirings.spines;
    let of_spine: Vec<_> = (0..spines.peers)
        .map(|s| (s, spines.count(common, s)))
        .filter(|s| s.1 > 0)
        .collect();
    let mut order: Vec<&Offer> = offers.iter().collect();
    order.sort_by_key(|o| (std::cmp::Reverse(o.of_first(size)), view.pod_caps[o.pod as usize]));
    let mut cores = vec![Mask::MAX; of_spine.len()];
    let (mut chosen, mut used, mut left) = (Vec::new(), Vec::new(), view.size);
    let fits = |cores: &[Mask], pod: u32, units: usize| {
        let mut planes = of_spine.iter().zip(cores);
        planes.all(|(&(spine, n), &mask)| (mask & hall.free_cores(pod, spine)).count_ones() >= n * units as u32)
    };
    for offer in order {
        let least = offers
            .iter()
            .filter(|o| !used.contains(&o.pod) && o.of_first(size) >= left);
        let ends = |o: &&Offer| {
            let units = o.sums.iter().position(|&sum| sum >= left).unwrap_or(size);
            used.is_empty() || fits(&cores, o.pod, units)
        };
        let rest = |o: &&Offer| (o.sums.iter().position(|&s| s >= left), view.pod_caps[o.pod as usize]);
        if left <= offer.of_first(size)
            && let Some(last) = least.filter(ends).min_by_key(rest)
        {
            let units = last.sums.iter().position(|&sum| sum >= left).unwrap_or(0);
            chosen.extend_from_slice(&last.units[..units]);
            left = 0;
            break;
        }
        if !fits(&cores, offer.pod, size) {
            continue;
        }
        for (mask, &(spine, _)) in cores.iter_mut().zip(&of_spine) {
            *mask &= hall.free_cores(offer.pod, spine);
        }
        used.push(offer.pod);
        chosen.extend_from_slice(&offer.units[..size.min(offer.units.len())]);
        left = left.saturating_sub(offer.of_first(size));
        if left == 0 {
            break;
        }
    }
    match chosen.pop() {
        Some(odd) if left == 0 => Ok(proposal(view, chosen, odd)),
        _ => Err(view.size - left),
    }
}
