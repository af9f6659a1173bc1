//! Groups of nodes close to each other in the fabric: units, pods, fabrics.
//!
//! A unit is a set of nodes with the same leaves. In a rail-optimised fabric a node has as many leaves as rails, and no
//! single leaf shows which nodes are close. The unit is the leaves' `scalable_unit` if the site gives one, otherwise
//! all leaves that share nodes. A pod is all units below the same spines, a fabric all pods below the same cores.
//!
//! Fabrics of the site that share nodes (rails or planes apart) number their units and pods together. Other fabrics may use
//! the same numbers for other units. Storage fabrics have no groups.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use crate::sets::Sets;
use rackwright_site::model::{FabricId, NodeId, Port, Site, Switch, SwitchId, SwitchRole};

/// A cable from an HCA to a leaf.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Uplink {
    /// Index in the SKU's list.
    pub(super) hca: u8,
    pub(super) leaf: SwitchId,
    /// The port of the leaf.
    pub(super) port: u16,
}

#[derive(Debug)]
pub(super) struct Unit {
    pub(super) name: String,
    /// Index in the list of pods.
    pub(super) pod: usize,
}

#[derive(Debug)]
pub(super) struct Pod {
    pub(super) name: String,
    /// Index in the list of fabrics.
    pub(super) fabric: usize,
    /// Whether switches are above its leaves.
    pub(super) spines: bool,
}

#[derive(Debug)]
pub(super) struct Whole {
    pub(super) name: String,
    /// Whether switches are above its pods.
    pub(super) cores: bool,
}

/// All groups of a site. Their names are the same in the packs of all clusters.
#[derive(Debug)]
pub(super) struct Groups {
    /// By node, in the order of the HCAs, without those to storage fabrics.
    pub(super) uplinks: Vec<Vec<Uplink>>,
    /// By node: cables to storage fabrics.
    pub(super) storage: Vec<Vec<Uplink>>,
    pub(super) units: Vec<Unit>,
    pub(super) pods: Vec<Pod>,
    pub(super) fabrics: Vec<Whole>,
    unit_of: BTreeMap<SwitchId, usize>,
}

/// The numbers of a unit or pod in the site.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Numbers {
    /// The first of the fabrics that share nodes. `None`: the site file does not say.
    fabric: Option<FabricId>,
    /// 0: none.
    pod: u16,
    /// The scalable unit. 0 for the key of a pod.
    unit: u16,
}

/// The key of a group of switches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    /// The site's numbers.
    Given(Numbers),
    /// The first of a set of connected switches.
    Joined(usize),
}

impl Groups {
    pub(super) fn of(site: &Site) -> Self {
        let mut uplinks: Vec<Vec<Uplink>> = vec![Vec::new(); site.nodes.len()];
        let mut storage = uplinks.clone();
        let mut between: Vec<(SwitchId, SwitchId)> = Vec::new();
        for cable in &site.cables {
            match (cable.a, cable.b) {
                (Port::Hca { node, hca }, Port::Switch { switch, port })
                | (Port::Switch { switch, port }, Port::Hca { node, hca }) => {
                    let leaf = switch;
                    let is_storage = site.is_storage_port(node, hca.into());
                    let of = if is_storage { &mut storage } else { &mut uplinks };
                    of[node.index()].push(Uplink { hca, leaf, port });
                }
                (Port::Switch { switch: a, .. }, Port::Switch { switch: b, .. }) => between.push((a, b)),
                (Port::Hca { .. }, Port::Hca { .. }) => {}
            }
        }
        uplinks.iter_mut().for_each(|links| links.sort_unstable());
        let mut groups = Self {
            uplinks,
            storage,
            units: Vec::new(),
            pods: Vec::new(),
            fabrics: Vec::new(),
            unit_of: BTreeMap::new(),
        };
        groups.join(site, &between);
        groups
    }

    /// The unit of a node in the fabric that has most of its cables. Error: the names of the units, if its leaves in this
    /// fabric are in several.
    pub(super) fn unit(&self, node: NodeId) -> Result<Option<usize>, Vec<&str>> {
        let mut fabrics: BTreeMap<usize, (usize, BTreeSet<usize>)> = BTreeMap::new();
        for link in &self.uplinks[node.index()] {
            let Some(&unit) = self.unit_of.get(&link.leaf) else {
                continue;
            };
            let fabric = self.pods[self.units[unit].pod].fabric;
            let (cables, units) = fabrics.entry(fabric).or_default();
            *cables += 1;
            units.insert(unit);
        }
        let most = fabrics.into_values().min_by_key(|(cables, _)| Reverse(*cables));
        let units = most.map(|(_, units)| units).unwrap_or_default();
        match units.len() {
            0 | 1 => Ok(units.first().copied()),
            _ => Err(units.iter().map(|unit| &*self.units[*unit].name).collect()),
        }
    }

    /// By fabric of the site: the first of the fabrics that share nodes with it.
    fn first_fabrics(&self, site: &Site) -> Vec<FabricId> {
        let mut sets = Sets::new(site.fabrics.len());
        for links in &self.uplinks {
            let fabrics = links.iter().filter_map(|link| site.switch(link.leaf).fabric);
            let fabrics: Vec<usize> = fabrics.map(FabricId::index).collect();
            fabrics.windows(2).for_each(|pair| sets.join(pair[0], pair[1]));
        }
        let ids: Vec<FabricId> = site.fabric_ids().collect();
        (0..ids.len()).map(|fabric| ids[sets.first(fabric)]).collect()
    }

    fn join(&mut self, site: &Site, between: &[(SwitchId, SwitchId)]) {
        let first_fabrics = self.first_fabrics(site);
        let fabric_of = |switch: &Switch| switch.fabric.map(|fabric| first_fabrics[fabric.index()]);
        let leaves: BTreeSet<SwitchId> = self.uplinks.iter().flatten().map(|link| link.leaf).collect();
        let mut sets = Sets::new(site.switches.len());
        for links in &self.uplinks {
            let loose = links
                .iter()
                .filter(|link| site.switch(link.leaf).scalable_unit.is_none());
            let loose: Vec<usize> = loose.map(|link| link.leaf.index()).collect();
            loose.windows(2).for_each(|pair| sets.join(pair[0], pair[1]));
        }
        let unit_key = |sets: &mut Sets, leaf: SwitchId| {
            let switch = site.switch(leaf);
            match switch.scalable_unit {
                Some(unit) => Key::Given(Numbers {
                    fabric: fabric_of(switch),
                    pod: switch.pod.unwrap_or(0),
                    unit,
                }),
                None => Key::Joined(sets.first(leaf.index())),
            }
        };
        let by_unit = gather(leaves.iter().map(|leaf| (unit_key(&mut sets, *leaf), *leaf)));
        join_all(&mut sets, by_unit.values());
        let core = |id: SwitchId| site.switch(id).role == SwitchRole::Core;
        let joins = between.iter().filter(|(a, b)| !core(*a) && !core(*b));
        joins.for_each(|(a, b)| sets.join(a.index(), b.index()));
        let pod_key = |sets: &mut Sets, leaves: &[SwitchId]| {
            let first = site.switch(leaves[0]);
            match first.pod {
                Some(pod) => Key::Given(Numbers {
                    fabric: fabric_of(first),
                    pod,
                    unit: 0,
                }),
                None => Key::Joined(sets.first(leaves[0].index())),
            }
        };
        let pods = gather(by_unit.iter().map(|(key, leaves)| (pod_key(&mut sets, leaves), *key)));
        let switches =
            |units: &[Key]| -> Vec<SwitchId> { units.iter().flat_map(|unit| by_unit[unit].clone()).collect() };
        let of_pods: Vec<Vec<SwitchId>> = pods.values().map(|units| switches(units)).collect();
        join_all(&mut sets, of_pods.iter());
        between.iter().for_each(|(a, b)| sets.join(a.index(), b.index()));
        let fabrics = gather((0..pods.len()).map(|pod| (sets.first(of_pods[pod][0].index()), pod)));
        self.name(site, between, &by_unit, &pods, &fabrics);
    }

    fn name(
        &mut self,
        site: &Site,
        between: &[(SwitchId, SwitchId)],
        by_unit: &BTreeMap<Key, Vec<SwitchId>>,
        pods: &BTreeMap<Key, Vec<Key>>,
        fabrics: &BTreeMap<usize, Vec<usize>>,
    ) {
        let linked: BTreeSet<SwitchId> = between.iter().flat_map(|(a, b)| [*a, *b]).collect();
        let unit_names = unit_names(site, by_unit.keys().copied());
        let pod_names = pod_names(site, pods.keys().copied());
        let units: Vec<Key> = by_unit.keys().copied().collect();
        self.units = unit_names.into_iter().map(|name| Unit { name, pod: 0 }).collect();
        for (pod, (name, keys)) in pod_names.into_iter().zip(pods.values()).enumerate() {
            let mut spines = false;
            for key in keys {
                let Ok(unit) = units.binary_search(key) else { continue };
                self.units[unit].pod = pod;
                spines |= by_unit[key].iter().any(|leaf| linked.contains(leaf));
                self.unit_of.extend(by_unit[key].iter().map(|leaf| (*leaf, unit)));
            }
            self.pods.push(Pod {
                name,
                fabric: 0,
                spines,
            });
        }
        let has_cores = site.switches.iter().any(|switch| switch.role == SwitchRole::Core);
        for (fabric, (_, of)) in fabrics.iter().enumerate() {
            of.iter().for_each(|pod| self.pods[*pod].fabric = fabric);
            let name = match fabrics.len() {
                1 => "core".to_owned(),
                all => format!("fabric{}", padded(fabric + 1, all)),
            };
            let cores = of.len() > 1 && has_cores;
            self.fabrics.push(Whole { name, cores });
        }
    }
}

/// `su01` if the site numbers all units uniquely, `pod1-su01` if unit numbers are unique only within a pod, and with the
/// name of the fabric before it if they are unique only within a fabric.
fn unit_names(site: &Site, keys: impl ExactSizeIterator<Item = Key> + Clone) -> Vec<String> {
    let all = keys.len();
    let given: Vec<Numbers> = keys.clone().filter_map(given_numbers).collect();
    let most = given.iter().map(|numbers| numbers.unit).max().map_or(0, usize::from);
    let is_unique = |set: BTreeSet<(u16, u16)>| given.len() == all && set.len() == all;
    let by_unit = is_unique(given.iter().map(|numbers| (0, numbers.unit)).collect());
    let by_pod = is_unique(given.iter().map(|numbers| (numbers.pod, numbers.unit)).collect());
    let name = |(at, key): (usize, Key)| match given_numbers(key) {
        Some(Numbers { fabric, pod, unit }) if given.len() == all => {
            let unit = format!("su{}", padded(unit.into(), most));
            match (by_unit, by_pod, pod) {
                (true, _, _) => unit,
                (_, true, _) => format!("pod{pod}-{unit}"),
                (_, _, 0) => of_fabric(site, fabric, &unit),
                _ => of_fabric(site, fabric, &format!("pod{pod}-{unit}")),
            }
        }
        _ => format!("unit{}", padded(at + 1, all)),
    };
    keys.enumerate().map(name).collect()
}

/// `pod01` if the site numbers all pods, with the name of the fabric before it if the numbers are unique only within a
/// fabric, `spine` if there is only one.
fn pod_names(site: &Site, keys: impl ExactSizeIterator<Item = Key> + Clone) -> Vec<String> {
    let all = keys.len();
    let given: Vec<Numbers> = keys.clone().filter_map(given_numbers).collect();
    let numbers: BTreeSet<u16> = given.iter().map(|numbers| numbers.pod).collect();
    let most = numbers.last().copied().map_or(0, usize::from);
    let name = |(at, key): (usize, Key)| match given_numbers(key) {
        Some(Numbers { fabric, pod, .. }) if given.len() == all => {
            let pod = format!("pod{}", padded(pod.into(), most));
            match numbers.len() == all {
                true => pod,
                false => of_fabric(site, fabric, &pod),
            }
        }
        _ if all == 1 => "spine".to_owned(),
        _ => format!("spines{}", padded(at + 1, all)),
    };
    keys.enumerate().map(name).collect()
}

/// The name of a group with its fabric before it.
fn of_fabric(site: &Site, fabric: Option<FabricId>, name: &str) -> String {
    match fabric {
        Some(fabric) => format!("{}-{name}", site.fabric(fabric).name),
        None => name.to_owned(),
    }
}

fn given_numbers(key: Key) -> Option<Numbers> {
    match key {
        Key::Given(numbers) => Some(numbers),
        Key::Joined(_) => None,
    }
}

/// A number with as many digits as the highest, at least two.
fn padded(number: usize, highest: usize) -> String {
    let width = (highest.max(1).ilog10() as usize + 1).max(2);
    format!("{number:0width$}")
}

fn gather<K: Ord, V>(pairs: impl Iterator<Item = (K, V)>) -> BTreeMap<K, Vec<V>> {
    let mut map: BTreeMap<K, Vec<V>> = BTreeMap::new();
    pairs.for_each(|(key, value)| map.entry(key).or_default().push(value));
    map
}

fn join_all<'a>(sets: &mut Sets, groups: impl Iterator<Item = &'a Vec<SwitchId>>) {
    for pair in groups.flat_map(|group| group.windows(2)) {
        sets.join(pair[0].index(), pair[1].index());
    }
}
