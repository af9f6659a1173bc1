//! A hall: its equipment and its reservations. Only whole clusters change it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;

use super::ledger::Ledger;
use super::links::{Mask, Wiring, low};
use super::profile::{self, Profile};
use super::request::{Placement, SpineShare};
use super::rule::Wirings;
use super::spec::{self, ClusterId, HallFault, HallSpec, NodeId, PodId, SkuId, UnitId};

/// The state of a node for placement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeStatus {
    /// Free for any cluster.
    Free,
    /// Reserved for a cluster.
    Held(ClusterId),
    /// Part of a cluster.
    Taken(ClusterId),
    /// Held out: no cluster gets the node.
    Excluded,
}

/// A hall of nodes with its budgets and links.
#[derive(Debug, Clone)]
pub struct Hall {
    pub(super) spec: HallSpec,
    pub(super) wirings: Wirings,
    pub(super) units: Vec<Unit>,
    pub(super) pods: Vec<Pod>,
    pub(super) profiles: Vec<Profile>,
    /// Some budget would be exceeded if every node were taken.
    pub(super) tight: bool,
    /// Unit of each node, and its index in the unit.
    places: Vec<(u32, u32)>,
    pub(super) ledger: Ledger,
    pub(super) clusters: BTreeMap<ClusterId, Placement>,
    committed: BTreeSet<ClusterId>,
    /// Free nodes by SKU and unit.
    pub(super) free_in_unit: Vec<Vec<u32>>,
    /// Free nodes by SKU and pod.
    pub(super) free_in_pod: Vec<Vec<u32>>,
}

/// A scalable unit. Its leaves, one for each rail, are treated alike.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Unit {
    pub pod: u32,
    /// The node at each index.
    pub nodes: Vec<u32>,
    pub groups: Vec<Group>,
    /// Hosts in no cluster that are not held out.
    pub free: Mask,
    pub taken: Mask,
    pub excluded: Mask,
    /// Working uplinks that no cluster has.
    pub links: Mask,
    /// `links` in counted form.
    pub counted: Mask,
    /// Uplinks out of order.
    pub broken: Mask,
}

/// Hosts of a unit with the same profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Group {
    pub profile: u32,
    pub hosts: Mask,
}

/// A pod and the links above its spines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pod {
    pub units: Range<u32>,
    /// Working links above each spine that no cluster has.
    pub up: Vec<Mask>,
    /// Broken links above each spine.
    pub broken: Vec<Mask>,
}

impl Hall {
    /// A hall without clusters.
    ///
    /// # Errors
    /// All faults of the description.
    pub fn new(spec: HallSpec) -> Result<Self, Vec<HallFault>> {
        let faults = spec::faults(&spec);
        if !faults.is_empty() {
            return Err(faults);
        }
        let tree = spec.tree;
        let wirings = Wirings {
            spines: Wiring {
                peers: tree.spines,
                parallel: tree.links_per_spine,
            },
            cores: Wiring {
                peers: tree.cores_per_spine,
                parallel: tree.links_per_core,
            },
        };
        let mut hall = Self {
            wirings,
            units: Vec::new(),
            pods: Vec::new(),
            profiles: Vec::new(),
            tight: false,
            places: vec![(0, 0); spec.nodes.len()],
            ledger: Ledger::new(&spec),
            clusters: BTreeMap::new(),
            committed: BTreeSet::new(),
            free_in_unit: Vec::new(),
            free_in_pod: Vec::new(),
            spec,
        };
        hall.build_units();
        hall.place_nodes();
        hall.mark_tight();
        hall.count_free();
        Ok(hall)
    }

    fn build_units(&mut self) {
        let all = self.wirings.spines.all();
        for (pod, given) in self.spec.pods.iter().enumerate() {
            let first = self.units.len() as u32;
            self.units.extend(given.units.iter().map(|_| Unit {
                pod: pod as u32,
                nodes: Vec::new(),
                groups: Vec::new(),
                free: 0,
                taken: 0,
                excluded: 0,
                links: all,
                counted: all,
                broken: 0,
            }));
            self.pods.push(Pod {
                units: first..self.units.len() as u32,
                up: vec![self.wirings.cores.all(); self.spec.tree.spines as usize],
                broken: vec![0; self.spec.tree.spines as usize],
            });
        }
    }

    fn place_nodes(&mut self) {
        let mut known: HashMap<Profile, u32> = HashMap::new();
        for (i, node) in self.spec.nodes.iter().enumerate() {
            let profile = profile::of(&self.spec, node);
            let next = known.len() as u32;
            let index = *known.entry(profile).or_insert_with_key(|profile| {
                self.profiles.push(profile.clone());
                next
            });
            let unit = &mut self.units[node.unit.at()];
            let place = unit.nodes.len() as u32;
            unit.nodes.push(i as u32);
            self.places[i] = (node.unit.0, place);
            let bit = 1 << place;
            match unit.groups.iter_mut().find(|g| g.profile == index) {
                Some(group) => group.hosts |= bit,
                None => unit.groups.push(Group {
                    profile: index,
                    hosts: bit,
                }),
            }
            let state = if node.excluded {
                &mut unit.excluded
            } else {
                &mut unit.free
            };
            *state |= bit;
        }
    }

    /// Finds the budgets that can run short. All others are ignored later.
    fn mark_tight(&mut self) {
        let mut watts: Vec<u64> = self.spec.domains.iter().map(|d| d.other_w).collect();
        let mut heat: Vec<u64> = self.spec.cooling.iter().map(|c| c.other_w).collect();
        for group in self.units.iter().flat_map(|u| &u.groups) {
            let profile = &self.profiles[group.profile as usize];
            let nodes = u64::from(group.hosts.count_ones());
            for &(at, load) in &profile.loads {
                let most = load.saturating_add(profile.worst_rise(at)).saturating_mul(nodes);
                watts[at as usize] = watts[at as usize].saturating_add(most);
            }
            for &(at, given) in &profile.heat {
                heat[at as usize] = heat[at as usize].saturating_add(given.saturating_mul(nodes));
            }
        }
        let domains = watts
            .iter()
            .zip(&self.spec.domains)
            .map(|(&most, d)| most > d.capacity_w);
        let domains: Vec<bool> = domains.collect();
        let cooling = heat
            .iter()
            .zip(&self.spec.cooling)
            .map(|(&most, c)| most > c.capacity_w);
        let cooling: Vec<bool> = cooling.collect();
        for profile in &mut self.profiles {
            profile.mark_tight(&domains, &cooling);
        }
        self.tight = domains.iter().chain(&cooling).any(|&tight| tight);
    }

    fn count_free(&mut self) {
        let skus = self.spec.skus.len();
        self.free_in_unit = vec![vec![0; self.units.len()]; skus];
        self.free_in_pod = vec![vec![0; self.pods.len()]; skus];
        for unit in 0..self.units.len() {
            self.recount(unit);
        }
    }

    /// Updates the counts of a unit.
    pub(super) fn recount(&mut self, at: usize) {
        let unit = &self.units[at];
        let mut counts = vec![0; self.spec.skus.len()];
        for group in &unit.groups {
            let sku = self.profiles[group.profile as usize].sku;
            counts[sku as usize] += (group.hosts & unit.free).count_ones();
        }
        for (sku, count) in counts.into_iter().enumerate() {
            let pod = unit.pod as usize;
            let before = std::mem::replace(&mut self.free_in_unit[sku][at], count);
            self.free_in_pod[sku][pod] = self.free_in_pod[sku][pod] + count - before;
        }
    }

    /// The description of the hall.
    #[must_use]
    pub fn spec(&self) -> &HallSpec {
        &self.spec
    }

    /// The wiring of the links.
    #[must_use]
    pub fn wirings(&self) -> Wirings {
        self.wirings
    }

    /// The clusters in the hall.
    #[must_use]
    pub fn clusters(&self) -> &BTreeMap<ClusterId, Placement> {
        &self.clusters
    }

    /// Number of free nodes of a SKU.
    #[must_use]
    pub fn free_nodes(&self, sku: SkuId) -> u32 {
        self.free_in_pod.get(sku.at()).map_or(0, |pods| pods.iter().sum())
    }

    /// The state of a node. `None`: there is no such node.
    #[must_use]
    pub fn node_status(&self, node: NodeId) -> Option<NodeStatus> {
        let &(unit, place) = self.places.get(node.at())?;
        let unit = &self.units[unit as usize];
        let bit = 1 << place;
        if unit.taken & bit != 0 {
            let mut holders = self.clusters.iter();
            let (&cluster, _) = holders.find(|(_, p)| p.nodes.contains(&node) || p.spares.contains(&node))?;
            let committed = self.committed.contains(&cluster);
            return Some(if committed {
                NodeStatus::Taken(cluster)
            } else {
                NodeStatus::Held(cluster)
            });
        }
        Some(if unit.excluded & bit != 0 {
            NodeStatus::Excluded
        } else {
            NodeStatus::Free
        })
    }

    /// Whether the node is free for any cluster.
    #[must_use]
    pub fn is_free(&self, node: NodeId) -> bool {
        let place = self.places.get(node.at());
        place.is_some_and(|&(unit, place)| self.units[unit as usize].free & (1 << place) != 0)
    }

    /// Free hosts of a unit, by their index in it.
    #[must_use]
    pub fn free_hosts(&self, unit: UnitId) -> Mask {
        self.units.get(unit.at()).map_or(0, |u| u.free)
    }

    /// Working uplinks of a unit that no cluster has.
    #[must_use]
    pub fn free_uplinks(&self, unit: UnitId) -> Mask {
        self.units.get(unit.at()).map_or(0, |u| u.links)
    }

    /// The node at an index of a unit.
    #[must_use]
    pub fn node_at(&self, unit: UnitId, place: u32) -> Option<NodeId> {
        let unit = self.units.get(unit.at())?;
        unit.nodes.get(place as usize).copied().map(NodeId)
    }

    /// The unit of a node, and its index in the unit.
    pub(super) fn place_of(&self, node: NodeId) -> Option<(u32, u32)> {
        self.places.get(node.at()).copied()
    }

    /// Holds a node out: no cluster gets it, but a cluster that has it keeps it until it is freed. Returns false if
    /// there is no such node.
    pub fn exclude(&mut self, node: NodeId) -> bool {
        self.set_excluded(node, true)
    }

    /// Ends the hold-out of a node. Returns false if there is no such node.
    pub fn restore(&mut self, node: NodeId) -> bool {
        self.set_excluded(node, false)
    }

    fn set_excluded(&mut self, node: NodeId, out: bool) -> bool {
        let Some(&(at, place)) = self.places.get(node.at()) else {
            return false;
        };
        let unit = &mut self.units[at as usize];
        let bit: Mask = 1 << place;
        unit.excluded = if out { unit.excluded | bit } else { unit.excluded & !bit };
        unit.free = low(unit.nodes.len() as u32) & !unit.taken & !unit.excluded;
        self.recount(at as usize);
        true
    }

    /// Marks these uplinks of a unit as broken and all others as working. New clusters do not get broken uplinks.
    /// Returns false if there is no such unit.
    pub fn set_broken_uplinks(&mut self, unit: UnitId, broken: Mask) -> bool {
        let Some(known) = self.units.get_mut(unit.at()) else {
            return false;
        };
        known.broken = broken & self.wirings.spines.all();
        self.free_links_again(unit.0);
        true
    }

    /// The same for the links above a spine of a pod. Returns false if there is no such spine.
    pub fn set_broken_cores(&mut self, pod: PodId, spine: u32, broken: Mask) -> bool {
        let all = self.wirings.cores.all();
        let shares = self.clusters.values().flat_map(|placement| &placement.cores);
        let shares = shares.filter(|share| share.pod == pod && share.spine == spine);
        let held = shares.fold(0, |mask, share| mask | share.links);
        let (at, spine) = (pod.at(), spine as usize);
        let Some(known) = self.pods.get_mut(at).filter(|known| spine < known.up.len()) else {
            return false;
        };
        known.broken[spine] = broken & all;
        known.up[spine] = all & !held & !known.broken[spine];
        true
    }

    /// Working links above a spine of a pod that no cluster has.
    #[must_use]
    pub fn free_core_links(&self, pod: PodId, spine: u32) -> Mask {
        let up = self.pods.get(pod.at()).and_then(|known| known.up.get(spine as usize));
        up.copied().unwrap_or(0)
    }

    /// Recomputes a unit's free uplinks from those of its clusters.
    pub(super) fn free_links_again(&mut self, at: u32) {
        let shares = self.clusters.values().flat_map(|p| &p.units);
        let held = shares.filter(|s| s.unit.0 == at).fold(0, |mask, s| mask | s.links);
        let all = self.wirings.spines.all();
        let unit = &mut self.units[at as usize];
        unit.links = all & !held & !unit.broken;
        unit.counted = self.wirings.spines.counted(unit.links);
    }

    /// Turns the reservation of a cluster into ownership. Returns false if there is no such cluster.
    pub fn commit(&mut self, cluster: ClusterId) -> bool {
        self.clusters.contains_key(&cluster) && {
            self.committed.insert(cluster);
            true
        }
    }

    pub(super) fn is_committed(&self, cluster: ClusterId) -> bool {
        self.committed.contains(&cluster)
    }

    pub(super) fn forget(&mut self, cluster: ClusterId) -> Option<Placement> {
        self.committed.remove(&cluster);
        self.clusters.remove(&cluster)
    }

    /// Free links above a spine, in counted form.
    pub(super) fn free_cores(&self, pod: u32, spine: u32) -> Mask {
        self.wirings.cores.counted(self.pods[pod as usize].up[spine as usize])
    }

    /// As many free links above a spine as `wanted` (counted) has.
    pub(super) fn share_of_spine(&self, pod: u32, spine: u32, wanted: Mask) -> SpineShare {
        let free = self.pods[pod as usize].up[spine as usize];
        SpineShare {
            pod: PodId(pod),
            spine,
            links: self.wirings.cores.pick(free, wanted),
        }
    }
}
