//! The positions of spines and cores in a fabric, and the links that it lacks.
//!
//! Placement works on a uniform fat-tree. It is the smallest one that contains the fabric: each pod and rail has as many
//! positions of spines as the widest has spines, each leaf as many cables to a spine as the best-cabled pair has. The
//! links of this tree that the fabric lacks are absent.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use super::wiring::{Unit, Wiring};
use rackwright_placement::{MOST, Mask, Tree};
use rackwright_site::model::{Site, SwitchId};

/// The rail and the position of a spine.
type SpinePlace = (Option<u8>, usize);

/// The spines at their positions. `None`: no spine is there.
pub(super) type Spines = Vec<Option<SwitchId>>;

/// The positions of one fabric.
#[derive(Debug, Clone)]
pub(super) struct Positions {
    /// The tree of one rail.
    pub tree: Tree,
    /// By pod, the spines of each rail.
    pub spines: BTreeMap<u16, BTreeMap<Option<u8>, Spines>>,
    /// By rail and position of a spine: the cores above it, by position, the same in all pods.
    pub cores: BTreeMap<SpinePlace, Vec<SwitchId>>,
    /// Number of cables between a spine and a core, for all rails that share the spine.
    pub cables_per_core: u32,
    /// Number of parts into which the cores above a spine are divided, one for each rail or some rails.
    parts: u32,
}

impl Positions {
    /// The positions of the fabric of these units.
    pub fn of(site: &Site, wiring: &Wiring, units: &[Unit]) -> Self {
        let mut below: BTreeMap<(u16, Option<u8>), BTreeMap<SwitchId, u32>> = BTreeMap::new();
        let mut rails: BTreeMap<SwitchId, BTreeSet<Option<u8>>> = BTreeMap::new();
        let mut cables = 0;
        for unit in units {
            for &leaf in &wiring.leaves[unit] {
                let spines = below.entry((unit.0, site.switch(leaf).rail)).or_default();
                for (spine, count) in wiring.above(leaf) {
                    *spines.entry(spine).or_default() += 1;
                    cables = cables.max(count);
                }
            }
        }
        for ((_, rail), spines) in &below {
            for spine in spines.keys() {
                rails.entry(*spine).or_default().insert(*rail);
            }
        }
        let widest = below.values().map(BTreeMap::len).max().unwrap_or(0).min(MOST);
        let lists: BTreeMap<(u16, Option<u8>), Vec<SwitchId>> = below
            .into_iter()
            .map(|(key, leaves)| (key, best(leaves, widest)))
            .collect();
        let spines = in_order(wiring, &lists);
        let models = models(&spines);
        let cores = cores(wiring, &spines, &models);
        let shared = rails.values().map(BTreeSet::len).max().unwrap_or(0) as u32;
        let per_spine = most_frequent(cores.values().map(|above| (above.len() as u32, 1)));
        let cores: BTreeMap<_, Vec<SwitchId>> = cores
            .into_iter()
            .map(|(place, above)| (place, best(above, per_spine as usize)))
            .collect();
        let cables_per_core = most_frequent(upper_cables(wiring, &spines, &cores, &models));
        let of_cables = common(cables_per_core, shared);
        let parts = (shared / of_cables).max(1);
        let links_per_core = cables_per_core / of_cables;
        let room = (MOST as u32).checked_div(links_per_core).unwrap_or(0);
        Self {
            tree: Tree {
                spines: widest as u32,
                links_per_spine: (MOST as u32)
                    .checked_div(widest as u32)
                    .map_or(0, |most| cables.min(most)),
                cores_per_spine: (per_spine / parts).min(room),
                links_per_core: if per_spine < parts { 0 } else { links_per_core },
            },
            spines,
            cores,
            cables_per_core,
            parts,
        }
    }

    /// The uplinks that these leaves of a pod do not all have.
    pub fn absent_uplinks(&self, site: &Site, wiring: &Wiring, pod: u16, leaves: &[SwitchId]) -> Mask {
        let (width, most) = (self.tree.spines as usize, self.tree.links_per_spine);
        let mut absent = 0;
        for &leaf in leaves {
            let rail = site.switch(leaf).rail;
            let places = self.spines.get(&pod).and_then(|rails| rails.get(&rail));
            let places = places.map_or(&[][..], Vec::as_slice);
            let wanted = places.iter().map(|spine| spine.map(|spine| (spine, most)));
            if places.len() == width && wiring.above(leaf).map(Some).eq(wanted) {
                continue;
            }
            for place in 0..width {
                let spine = places.get(place).copied().flatten();
                let cables = spine.map_or(0, |spine| wiring.cables(leaf, spine));
                for number in cables..most {
                    absent |= bit(number, place as u32, self.tree.spines);
                }
            }
        }
        absent
    }

    /// The links above a position of spines that a pod does not have on all rails. Rails that share a spine each use a
    /// part of its links, and all rails are allocated alike.
    pub fn absent_cores(&self, wiring: &Wiring, pod: u16, place: usize) -> Mask {
        let Some(rails) = self.spines.get(&pod).filter(|_| self.tree.cores_per_spine > 0) else {
            return 0;
        };
        let (mut absent, mut last) = (0, None);
        for (rail, spines) in rails {
            let spine = spines.get(place).copied().flatten();
            let cores = self.cores.get(&(*rail, place)).map_or(&[][..], Vec::as_slice);
            // Rails that share a spine have the same links above.
            if last.replace((spine, cores)) == Some((spine, cores)) {
                continue;
            }
            for at in 0..(self.parts * self.tree.cores_per_spine) as usize {
                let ends = spine.zip(cores.get(at).copied());
                let cables = ends.map_or(0, |(spine, core)| wiring.cables(spine, core));
                for number in cables..self.cables_per_core {
                    absent |= self.core_link(at as u32, number);
                }
            }
        }
        absent
    }

    /// The link of one rail for a cable to the core at a position: cable `number` of several.
    pub fn core_link(&self, core: u32, number: u32) -> Mask {
        let tree = self.tree;
        let used = core < self.parts * tree.cores_per_spine && number < self.cables_per_core;
        match (
            core.checked_rem(tree.cores_per_spine),
            number.checked_rem(tree.links_per_core),
        ) {
            (Some(core), Some(number)) if used => bit(number, core, tree.cores_per_spine),
            _ => 0,
        }
    }
}

/// The bit of link `number` to `peer` among `peers`, in the numbering of [`rackwright_placement::Wiring`].
pub(super) fn bit(number: u32, peer: u32, peers: u32) -> Mask {
    let at = number.saturating_mul(peers).saturating_add(peer);
    1_u128.checked_shl(at).unwrap_or(0)
}

/// At most this many switches, those with the most switches below, in order.
fn best(switches: BTreeMap<SwitchId, u32>, most: usize) -> Vec<SwitchId> {
    if switches.len() <= most {
        return switches.into_keys().collect();
    }
    let mut order: Vec<(SwitchId, u32)> = switches.into_iter().collect();
    order.sort_by_key(|(switch, below)| (Reverse(*below), *switch));
    order.truncate(most);
    order.sort_unstable();
    order.into_iter().map(|(switch, _)| switch).collect()
}

/// The spines of each pod and rail at their positions. Spines at one position are below the same cores, as far as
/// possible.
fn in_order(
    wiring: &Wiring,
    lists: &BTreeMap<(u16, Option<u8>), Vec<SwitchId>>,
) -> BTreeMap<u16, BTreeMap<Option<u8>, Spines>> {
    let mut models: BTreeMap<Option<u8>, &Vec<SwitchId>> = BTreeMap::new();
    for ((_, rail), list) in lists {
        let model = models.entry(*rail).or_insert(list);
        if list.len() > model.len() {
            *model = list;
        }
    }
    let mut spines: BTreeMap<u16, BTreeMap<Option<u8>, Spines>> = BTreeMap::new();
    for ((pod, rail), list) in lists {
        let places = aligned(wiring, list, models[rail]);
        spines.entry(*pod).or_default().insert(*rail, places);
    }
    spines
}

/// A list of spines at the positions of a list that is at least as long.
fn aligned(wiring: &Wiring, list: &[SwitchId], model: &[SwitchId]) -> Spines {
    let cores = |spine: SwitchId| wiring.above(spine).map(|(core, _)| core);
    let same = |(spine, other): (&SwitchId, &SwitchId)| cores(*spine).eq(cores(*other));
    if list.iter().zip(model).all(same) {
        return list.iter().copied().map(Some).collect();
    }
    let above: Vec<BTreeSet<SwitchId>> = model.iter().map(|spine| cores(*spine).collect()).collect();
    let mut places: Spines = vec![None; model.len()];
    for &spine in list {
        let common = |place: usize| cores(spine).filter(|core| above[place].contains(core)).count();
        let free = (0..model.len()).filter(|place| places[*place].is_none());
        if let Some(place) = free.max_by_key(|place| (common(*place), Reverse(*place))) {
            places[place] = Some(spine);
        }
    }
    places
}

/// By rail, the first rail with the same spines in all pods. In most fabrics of three levels all rails share them.
fn models(spines: &BTreeMap<u16, BTreeMap<Option<u8>, Spines>>) -> BTreeMap<Option<u8>, Option<u8>> {
    let rails: BTreeSet<Option<u8>> = spines.values().flat_map(BTreeMap::keys).copied().collect();
    let mut models: BTreeMap<Option<u8>, Option<u8>> = BTreeMap::new();
    for &rail in &rails {
        let mut earlier = models.values();
        let alike = |model: &&Option<u8>| spines.values().all(|of_pod| of_pod.get(&rail) == of_pod.get(*model));
        let model = earlier.find(alike).copied().unwrap_or(rail);
        models.insert(rail, model);
    }
    models
}

/// By rail and position: the cores above the spines there, with the number of these spines below each. A core above
/// less than half of them is left out.
fn cores(
    wiring: &Wiring,
    spines: &BTreeMap<u16, BTreeMap<Option<u8>, Spines>>,
    models: &BTreeMap<Option<u8>, Option<u8>>,
) -> BTreeMap<SpinePlace, BTreeMap<SwitchId, u32>> {
    let mut planes: BTreeMap<SpinePlace, (u32, BTreeMap<SwitchId, u32>)> = BTreeMap::new();
    for (rail, list) in spines.values().flatten().filter(|(rail, _)| models[*rail] == **rail) {
        for (place, spine) in list.iter().enumerate() {
            let Some(spine) = spine else { continue };
            let (all, cores) = planes.entry((*rail, place)).or_default();
            *all += 1;
            for (core, _) in wiring.above(*spine) {
                *cores.entry(core).or_default() += 1;
            }
        }
    }
    for (all, cores) in planes.values_mut() {
        cores.retain(|_, below| *below * 2 >= *all);
    }
    let mut of_rails = BTreeMap::new();
    for (rail, model) in models {
        let of_model = planes.range((*model, 0)..=(*model, usize::MAX));
        of_rails.extend(of_model.map(|((_, place), (_, cores))| ((*rail, *place), cores.clone())));
    }
    of_rails
}

/// The number of cables of each pair of a spine and a core, and the number of rails with that pair.
fn upper_cables<'a>(
    wiring: &'a Wiring,
    spines: &'a BTreeMap<u16, BTreeMap<Option<u8>, Spines>>,
    cores: &'a BTreeMap<SpinePlace, Vec<SwitchId>>,
    models: &'a BTreeMap<Option<u8>, Option<u8>>,
) -> impl Iterator<Item = (u32, u32)> + 'a {
    let rails_like = move |rail: Option<u8>| models.values().filter(|model| **model == rail).count() as u32;
    let places = spines
        .values()
        .flatten()
        .filter(move |(rail, _)| models[*rail] == **rail);
    let places =
        places.flat_map(|(rail, list)| list.iter().enumerate().map(move |(place, spine)| (*rail, place, spine)));
    let pairs = places.flat_map(move |(rail, place, spine)| {
        let above = cores.get(&(rail, place)).into_iter().flatten();
        let rails = rails_like(rail);
        above.filter_map(move |core| Some((wiring.cables((*spine)?, *core), rails)))
    });
    pairs.filter(|(cables, _)| *cables > 0)
}

/// The most frequent number; of several, the largest. 0 if there is none. Each number comes with how often it occurs.
fn most_frequent(numbers: impl Iterator<Item = (u32, u32)>) -> u32 {
    let mut counts: BTreeMap<u32, u32> = BTreeMap::new();
    for (number, times) in numbers {
        *counts.entry(number).or_default() += times;
    }
    let most = counts.into_iter().max_by_key(|(number, count)| (*count, *number));
    most.map_or(0, |(number, _)| number)
}

/// The greatest common divisor. If `a` is 0, `b`, but at least 1.
fn common(a: u32, b: u32) -> u32 {
    if a == 0 { b.max(1) } else { common(b % a, a) }
}
