//! A hall: its equipment and its reservations. Only whole clusters change it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;

use super::ledger::Ledger;
use super::links::{Mask, low};
use super::profile::{self, Profile};
use super::request::{Placement, SpineShare};
use super::rule::Wirings;
use super::spec::{self, ClusterId, HallFault, HallSpec, LabelKind, NodeId, NodeSpec, PodId, SkuId, UnitId};

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
    pub(super) fabrics: Vec<Fabric>,
    pub(super) units: Vec<Unit>,
    pub(super) pods: Vec<Pod>,
    pub(super) profiles: Vec<Profile>,
    /// The traits of each profile.
    pub(super) traits: Vec<Traits>,
    /// The circuits of all profiles, one profile after the other.
    pub(super) circuits: Vec<u32>,
    /// Some budget would be exceeded if every node were taken.
    pub(super) tight: bool,
    /// Some node of a unit is impaired.
    pub(super) has_impaired: bool,
    /// The kind of each label.
    pub(super) label_kinds: Vec<LabelKind>,
    /// Unit of each node, and its index in the unit. `None`: the node is left out.
    places: Vec<Option<(u32, u32)>>,
    pub(super) ledger: Ledger,
    pub(super) clusters: BTreeMap<ClusterId, Placement>,
    committed: BTreeSet<ClusterId>,
    /// Free nodes by SKU and unit.
    pub(super) free_in_unit: Vec<Vec<u32>>,
    /// Free nodes by SKU and pod.
    pub(super) free_in_pod: Vec<Vec<u32>>,
}

/// Pods without a link to other pods.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fabric {
    pub wirings: Wirings,
    pub pods: Range<u32>,
    pub units: Range<u32>,
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
    /// Uplinks that the fabric has on every rail.
    pub wired: Mask,
    /// Working uplinks that no cluster has.
    pub links: Mask,
    /// `links` in counted form.
    pub counted: Mask,
    /// Broken uplinks.
    pub broken: Mask,
}

/// Hosts of a unit with the same profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Group {
    pub profile: u32,
    pub hosts: Mask,
}

/// What decides about a request for nodes of a profile. A decision reads the traits of thousands of profiles: they lie side
/// by side in memory, without pointers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Traits {
    pub sku: u32,
    /// The first of the profile's circuits in the hall's list, and their number.
    circuits: (u32, u32),
    pub survives: bool,
    pub impaired: bool,
    /// The kinds of the profile's labels below [`Self::KINDS`], one bit each.
    kinds: u32,
}

impl Traits {
    /// Number of kinds of labels that traits know.
    pub const KINDS: u32 = u32::BITS;

    /// Whether the profile has a label of a kind below [`Self::KINDS`].
    pub fn has(self, kind: LabelKind) -> bool {
        self.kinds & 1 << kind.0 != 0
    }
}

/// A pod and the links above its spines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pod {
    pub fabric: u32,
    pub units: Range<u32>,
    /// Links above each spine that the fabric has on every rail.
    pub wired: Vec<Mask>,
    /// Working links above each spine that no cluster has.
    pub up: Vec<Mask>,
    /// Broken links above each spine.
    pub broken: Vec<Mask>,
}

/// The fabrics of a hall, each with its pods and units.
fn fabrics(spec: &HallSpec) -> Vec<Fabric> {
    let empty = |tree| Fabric {
        wirings: Wirings::of(tree),
        pods: 0..0,
        units: 0..0,
    };
    let mut fabrics: Vec<Fabric> = spec.trees().map(empty).collect();
    let mut units = 0;
    for (pod, given) in (0..).zip(&spec.pods) {
        let fabric = &mut fabrics[spec.fabric_of(PodId(pod))];
        if fabric.pods.is_empty() {
            (fabric.pods.start, fabric.units.start) = (pod, units);
        }
        units += given.units.len() as u32;
        (fabric.pods.end, fabric.units.end) = (pod + 1, units);
    }
    fabrics
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
        let mut hall = Self {
            fabrics: fabrics(&spec),
            units: Vec::new(),
            pods: Vec::new(),
            profiles: Vec::new(),
            traits: Vec::new(),
            circuits: Vec::new(),
            tight: false,
            has_impaired: false,
            places: vec![None; spec.nodes.len()],
            label_kinds: spec.labels.iter().map(|label| label.kind).collect(),
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
        hall.collect_traits();
        hall.count_free();
        Ok(hall)
    }

    fn build_units(&mut self) {
        for (pod, given) in self.spec.pods.iter().enumerate() {
            let fabric = self.spec.fabric_of(PodId(pod as u32));
            let Wirings { spines, cores } = self.fabrics[fabric].wirings;
            let first = self.units.len() as u32;
            for unit in first..first + given.units.len() as u32 {
                let absent = self.spec.absent_uplinks.get(&UnitId(unit)).copied().unwrap_or(0);
                let wired = spines.all() & !absent;
                self.units.push(Unit {
                    pod: pod as u32,
                    nodes: Vec::new(),
                    groups: Vec::new(),
                    free: 0,
                    taken: 0,
                    excluded: 0,
                    wired,
                    links: wired,
                    counted: spines.counted(wired),
                    broken: 0,
                });
            }
            let above = |spine: u32| {
                let absent = self.spec.absent_cores.get(&(PodId(pod as u32), spine)).copied();
                cores.all() & !absent.unwrap_or(0)
            };
            let wired: Vec<Mask> = (0..spines.peers).map(above).collect();
            self.pods.push(Pod {
                fabric: fabric as u32,
                units: first..self.units.len() as u32,
                up: wired.clone(),
                wired,
                broken: vec![0; spines.peers as usize],
            });
        }
    }

    fn place_nodes(&mut self) {
        let mut known: HashMap<Profile, u32> = HashMap::new();
        // Nodes of one rack are neighbours and mostly alike.
        let mut last: Option<(&NodeSpec, u32)> = None;
        for (i, node) in self.spec.nodes.iter().enumerate() {
            let Some(at) = node.unit else { continue };
            self.has_impaired |= node.impaired;
            let next = known.len() as u32;
            let index = match last {
                Some((other, index)) if profile::are_alike(other, node) => index,
                _ => *known
                    .entry(profile::of(&self.spec, node))
                    .or_insert_with_key(|profile| {
                        self.profiles.push(profile.clone());
                        next
                    }),
            };
            last = Some((node, index));
            let unit = &mut self.units[at.at()];
            let place = unit.nodes.len() as u32;
            unit.nodes.push(i as u32);
            self.places[i] = Some((at.0, place));
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

    fn collect_traits(&mut self) {
        for profile in &self.profiles {
            let first = self.circuits.len() as u32;
            self.circuits.extend(&profile.circuits);
            let kinds = profile.labels.iter().map(|label| self.label_kinds[*label as usize].0);
            let kinds = kinds
                .filter(|kind| *kind < Traits::KINDS)
                .fold(0, |all, kind| all | 1 << kind);
            self.traits.push(Traits {
                sku: profile.sku,
                circuits: (first, profile.circuits.len() as u32),
                survives: profile.survives,
                impaired: profile.impaired,
                kinds,
            });
        }
    }

    /// The circuits that feed nodes with these traits.
    pub(super) fn circuits_of(&self, traits: Traits) -> &[u32] {
        let (first, count) = traits.circuits;
        &self.circuits[first as usize..(first + count) as usize]
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

    /// The wiring of the links in the fabric of a pod. If there is no such pod, in the first fabric.
    #[must_use]
    pub fn wirings(&self, pod: PodId) -> Wirings {
        let fabric = self.pods.get(pod.at()).map_or(0, |known| known.fabric);
        self.fabrics[fabric as usize].wirings
    }

    /// The number of the fabric of a unit.
    pub(super) fn fabric_of(&self, unit: u32) -> u32 {
        self.pods[self.units[unit as usize].pod as usize].fabric
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
        let Some((unit, place)) = *self.places.get(node.at())? else {
            return Some(NodeStatus::Excluded);
        };
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
        let place = self.place_of(node);
        place.is_some_and(|(unit, place)| self.units[unit as usize].free & (1 << place) != 0)
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

    /// The unit of a node, and its index in the unit. `None`: there is no such node, or the node is left out.
    pub(super) fn place_of(&self, node: NodeId) -> Option<(u32, u32)> {
        self.places.get(node.at()).copied().flatten()
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
        let Some(&place) = self.places.get(node.at()) else {
            return false;
        };
        // A node that is left out stays so.
        let Some((at, place)) = place else { return true };
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
        known.broken = broken & known.wired;
        self.free_links_again(unit.0);
        true
    }

    /// The same for the links above a spine of a pod. Returns false if there is no such spine.
    pub fn set_broken_cores(&mut self, pod: PodId, spine: u32, broken: Mask) -> bool {
        let shares = self.clusters.values().flat_map(|placement| &placement.cores);
        let shares = shares.filter(|share| share.pod == pod && share.spine == spine);
        let held = shares.fold(0, |mask, share| mask | share.links);
        let (at, spine) = (pod.at(), spine as usize);
        let Some(known) = self.pods.get_mut(at).filter(|known| spine < known.up.len()) else {
            return false;
        };
        let wired = known.wired[spine];
        known.broken[spine] = broken & wired;
        known.up[spine] = wired & !held & !known.broken[spine];
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
        let wirings = self.wirings(PodId(self.units[at as usize].pod));
        let unit = &mut self.units[at as usize];
        unit.links = unit.wired & !held & !unit.broken;
        unit.counted = wirings.spines.counted(unit.links);
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
        let cores = self.wirings(PodId(pod)).cores;
        cores.counted(self.pods[pod as usize].up[spine as usize])
    }

    /// As many free links above a spine as `wanted` (counted) has.
    pub(super) fn share_of_spine(&self, pod: u32, spine: u32, wanted: Mask) -> SpineShare {
        let free = self.pods[pod as usize].up[spine as usize];
        SpineShare {
            pod: PodId(pod),
            spine,
            links: self.wirings(PodId(pod)).cores.pick(free, wanted),
        }
    }
}
