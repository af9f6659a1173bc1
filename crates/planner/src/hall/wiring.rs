//! The cables of a site as placement reads them: the unit of each node, and the fabric of each unit.
//!
//! Switches of storage fabrics do not count. A leaf's unit is its `scalable_unit`. A leaf without one belongs to the unit
//! that has most of its nodes, otherwise leaves with mostly the same nodes are a unit of their own. Units with connected
//! switches form a fabric. A node belongs to the fabric that has most of its cables; its cables to another fabric are left
//! out. Of two fabrics with as many cables of the node, the larger one counts.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use crate::sets::Sets;
use rackwright_site::model::{CableId, FabricId, FabricPurpose, NodeId, Port, Site, SwitchId, SwitchRole};

/// The name of a unit within its pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum UnitName {
    /// The `scalable_unit` of its leaves, and a number for the fabrics that count it: 0 for leaves without a fabric. Rails
    /// that are fabrics of their own have the same number, because they serve the same nodes.
    Number(u16, u32),
    /// The first of its leaves, which have no `scalable_unit`.
    Leaf(SwitchId),
}

/// A unit: its pod and its name. Leaves without a pod are in pod 1.
pub(super) type Unit = (u16, UnitName);

/// The switches that a node's cables lead to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Attachment {
    /// No cable leads to a switch.
    NoCable,
    /// The node's cables lead only to storage fabrics.
    Storage,
    /// The node's cables lead only to switches that are not leaves, such as this one.
    NoLeaf(SwitchId),
    /// The node is cabled to this unit.
    Unit(Unit),
    /// The node is cabled to two units of one fabric.
    TwoUnits(Unit, Unit),
}

/// The cables of a site, sorted for placement.
pub(super) struct Wiring {
    up: Up,
    /// The attachment of each node.
    pub attachments: Vec<Attachment>,
    /// The leaves of each unit that has nodes, by rail.
    pub leaves: BTreeMap<Unit, Vec<SwitchId>>,
    /// The units of each fabric. The fabric with the most nodes comes first.
    pub fabrics: Vec<Vec<Unit>>,
    /// Whether a node is cabled to the switch, by switch.
    pub with_nodes: Vec<bool>,
    /// Cables that no fat-tree has: between switches that are not one level apart.
    pub irregular_cables: Vec<CableId>,
}

/// The switches one level above each leaf or spine.
struct Up {
    /// By switch: the place of its first pair. A last entry is the number of pairs.
    first: Vec<usize>,
    /// A switch above, and the number of cables to it; by the lower switch, then by the upper one.
    pairs: Vec<(SwitchId, u32)>,
}

impl Up {
    /// From the ends of each cable, the lower switch first.
    fn of(switches: usize, mut cables: Vec<(SwitchId, SwitchId)>) -> Self {
        // A site of 100,000 nodes has millions of cables: one sort is faster than a map.
        cables.sort_unstable();
        let (mut first, mut pairs) = (vec![0; switches + 1], Vec::new());
        for alike in cables.chunk_by(|one, other| one == other) {
            let (low, high) = alike[0];
            pairs.push((high, u32::try_from(alike.len()).unwrap_or(u32::MAX)));
            first[low.index() + 1] = pairs.len();
        }
        // A switch without a pair begins where the former one ends.
        for at in 1..first.len() {
            first[at] = first[at].max(first[at - 1]);
        }
        Self { first, pairs }
    }

    fn of_switch(&self, low: SwitchId) -> &[(SwitchId, u32)] {
        &self.pairs[self.first[low.index()]..self.first[low.index() + 1]]
    }
}

/// The reading of the cables.
struct Reading<'a> {
    site: &'a Site,
    /// The ends of each cable between switches one level apart, the lower one first.
    up: Vec<(SwitchId, SwitchId)>,
    attachments: Vec<Attachment>,
    /// The unit of each leaf, by switch.
    units: Vec<Option<Unit>>,
    with_nodes: Vec<bool>,
    /// Connected switches. Leaves of one unit are connected by their nodes.
    connected: Sets,
    irregular_cables: Vec<CableId>,
    /// Nodes at a leaf without a unit, or at leaves of several units.
    unclear: BTreeSet<NodeId>,
}

impl Wiring {
    pub fn of(site: &Site) -> Self {
        let mut reading = Reading {
            site,
            up: Vec::new(),
            attachments: vec![Attachment::NoCable; site.nodes.len()],
            units: numbered(site),
            with_nodes: vec![false; site.switches.len()],
            connected: Sets::new(site.switches.len()),
            irregular_cables: Vec::new(),
            unclear: BTreeSet::new(),
        };
        reading.read();
        reading.join_units();
        if !reading.unclear.is_empty() {
            reading.clear_up();
        }
        let leaves = reading.leaves();
        let fabrics = reading.fabrics(&leaves);
        Self {
            up: Up::of(site.switches.len(), reading.up),
            attachments: reading.attachments,
            leaves,
            fabrics,
            with_nodes: reading.with_nodes,
            irregular_cables: reading.irregular_cables,
        }
    }

    /// The switches above a leaf or spine, in order, with the number of cables to each.
    pub fn above(&self, low: SwitchId) -> impl Iterator<Item = (SwitchId, u32)> + '_ {
        self.up.of_switch(low).iter().copied()
    }

    /// Number of cables between a switch and one above.
    pub fn cables(&self, low: SwitchId, high: SwitchId) -> u32 {
        let above = self.up.of_switch(low);
        let at = above.binary_search_by_key(&high, |(other, _)| *other);
        at.map_or(0, |at| above[at].1)
    }
}

/// By fabric, a number that fabrics with mostly the same nodes share (separate rails or planes). Other fabrics count their
/// units on their own.
fn alike(site: &Site) -> Vec<u32> {
    let mut sets = Sets::new(site.fabrics.len());
    let mut first: Vec<Option<FabricId>> = vec![None; site.nodes.len()];
    let mut nodes = vec![0_usize; site.fabrics.len()];
    let mut shared: BTreeMap<(FabricId, FabricId), BTreeSet<NodeId>> = BTreeMap::new();
    for cable in site.cables.iter().filter(|_| site.fabrics.len() > 1) {
        if let (Port::Hca { node, .. }, Port::Switch { switch, .. })
        | (Port::Switch { switch, .. }, Port::Hca { node, .. }) = (cable.a, cable.b)
            && let Some(fabric) = site.switch(switch).fabric
            && !is_storage(site, switch)
        {
            let known = *first[node.index()].get_or_insert_with(|| {
                nodes[fabric.index()] += 1;
                fabric
            });
            if known != fabric && shared.entry((known, fabric)).or_default().insert(node) {
                nodes[fabric.index()] += 1;
            }
        }
    }
    for ((a, b), of_both) in shared {
        if of_both.len() * 2 > nodes[a.index()].min(nodes[b.index()]) {
            sets.join(a.index(), b.index());
        }
    }
    (0..site.fabrics.len())
        .map(|fabric| sets.first(fabric) as u32 + 1)
        .collect()
}

/// Whether a switch is of a storage fabric.
pub(super) fn is_storage(site: &Site, switch: SwitchId) -> bool {
    site.purpose_of(switch) == Some(FabricPurpose::Storage)
}

/// The units of leaves with a `scalable_unit`, by switch. Where other leaves of the unit have a rail, a leaf without
/// one is not of that unit: nodes use the rails alike.
fn numbered(site: &Site) -> Vec<Option<Unit>> {
    let alike = alike(site);
    let unit = |id: SwitchId| {
        let leaf = site.switch(id);
        let is_leaf = leaf.role == SwitchRole::Leaf && !is_storage(site, id);
        let number = leaf.scalable_unit.filter(|_| is_leaf)?;
        let fabric = leaf.fabric.map_or(0, |fabric| alike[fabric.index()]);
        Some((leaf.pod.unwrap_or(1), UnitName::Number(number, fabric)))
    };
    let railed: BTreeSet<Unit> = site
        .switch_ids()
        .filter(|id| site.switch(*id).rail.is_some())
        .filter_map(unit)
        .collect();
    let of_rail = |id: SwitchId| unit(id).filter(|unit| site.switch(id).rail.is_some() || !railed.contains(unit));
    site.switch_ids().map(of_rail).collect()
}

/// The two ends of a cable between switches, the lower level first.
pub(super) fn low_and_high(site: &Site, a: SwitchId, b: SwitchId) -> (SwitchId, SwitchId) {
    if site.switch(a).role < site.switch(b).role {
        (a, b)
    } else {
        (b, a)
    }
}

impl Reading<'_> {
    fn read(&mut self) {
        let site = self.site;
        for (cable, id) in site.cables.iter().zip(site.cable_ids()) {
            match (cable.a, cable.b) {
                (Port::Hca { node, .. }, Port::Switch { switch, .. })
                | (Port::Switch { switch, .. }, Port::Hca { node, .. }) => self.attach(node, switch),
                (Port::Switch { switch: a, .. }, Port::Switch { switch: b, .. }) => {
                    if is_storage(site, a) {
                        continue;
                    }
                    let (low, high) = low_and_high(site, a, b);
                    let level = |id: SwitchId| site.switch(id).role as u8;
                    if level(high) == level(low) + 1 {
                        self.up.push((low, high));
                        self.connected.join(low.index(), high.index());
                    } else {
                        self.irregular_cables.push(id);
                    }
                }
                // The reader of site files refuses such a cable.
                (Port::Hca { .. }, Port::Hca { .. }) => {}
            }
        }
    }

    /// Counts a cable between a node and a switch.
    fn attach(&mut self, node: NodeId, switch: SwitchId) {
        let attachment = &mut self.attachments[node.index()];
        self.with_nodes[switch.index()] = true;
        if is_storage(self.site, switch) {
            if *attachment == Attachment::NoCable {
                *attachment = Attachment::Storage;
            }
            return;
        }
        if self.site.switch(switch).role != SwitchRole::Leaf {
            if matches!(*attachment, Attachment::NoCable | Attachment::Storage) {
                *attachment = Attachment::NoLeaf(switch);
            }
            return;
        }
        match (self.units[switch.index()], *attachment) {
            (Some(unit), Attachment::NoCable | Attachment::Storage | Attachment::NoLeaf(_)) => {
                *attachment = Attachment::Unit(unit)
            }
            (Some(unit), Attachment::Unit(other)) if unit == other => {}
            _ => _ = self.unclear.insert(node),
        }
    }

    /// Connects the leaves of each unit.
    fn join_units(&mut self) {
        let mut first: BTreeMap<Unit, usize> = BTreeMap::new();
        for leaf in 0..self.units.len() {
            if let Some(unit) = self.units[leaf].filter(|_| self.with_nodes[leaf]) {
                let first = *first.entry(unit).or_insert(leaf);
                self.connected.join(first, leaf);
            }
        }
    }

    /// Finds the units of leaves without one, then the units of the nodes that are still unclear.
    fn clear_up(&mut self) {
        let attached = self.attached();
        let mut nodes: BTreeMap<SwitchId, u32> = BTreeMap::new();
        for leaves in attached.values() {
            for leaf in leaves.keys().filter(|leaf| self.units[leaf.index()].is_none()) {
                *nodes.entry(*leaf).or_default() += 1;
            }
        }
        self.join_numbered(&attached, &nodes);
        self.join_loose(&attached, &nodes);
        let mut cables: BTreeMap<usize, u32> = BTreeMap::new();
        for (leaf, count) in attached.values().flatten() {
            *cables.entry(self.connected.first(leaf.index())).or_default() += count;
        }
        for (node, leaves) in attached {
            self.attachments[node.index()] = self.attachment(&leaves, &cables);
        }
    }

    /// The leaves of each unclear node, with the number of cables to each.
    fn attached(&self) -> BTreeMap<NodeId, BTreeMap<SwitchId, u32>> {
        let mut attached: BTreeMap<NodeId, BTreeMap<SwitchId, u32>> = BTreeMap::new();
        for cable in &self.site.cables {
            if let (Port::Hca { node, .. }, Port::Switch { switch, .. })
            | (Port::Switch { switch, .. }, Port::Hca { node, .. }) = (cable.a, cable.b)
                && self.site.switch(switch).role == SwitchRole::Leaf
                && self.unclear.contains(&node)
                && !is_storage(self.site, switch)
            {
                *attached.entry(node).or_default().entry(switch).or_default() += 1;
            }
        }
        attached
    }

    /// A leaf without a unit joins the unit of its fabric that more than half of its nodes are cabled to.
    fn join_numbered(&mut self, attached: &BTreeMap<NodeId, BTreeMap<SwitchId, u32>>, nodes: &BTreeMap<SwitchId, u32>) {
        let mut shared: BTreeMap<(SwitchId, Unit), u32> = BTreeMap::new();
        for leaves in attached.values() {
            for leaf in leaves.keys().filter(|leaf| nodes.contains_key(*leaf)) {
                let fabric = self.connected.first(leaf.index());
                let mut units = BTreeSet::new();
                for other in leaves.keys() {
                    if let Some(unit) = self.units[other.index()]
                        && self.connected.first(other.index()) == fabric
                    {
                        units.insert(unit);
                    }
                }
                for unit in units {
                    *shared.entry((*leaf, unit)).or_default() += 1;
                }
            }
        }
        for ((leaf, unit), count) in shared {
            if count * 2 > nodes[&leaf] {
                self.units[leaf.index()] = Some(unit);
            }
        }
    }

    /// Leaves that are still without a unit form one with the leaves that have mostly the same nodes.
    fn join_loose(&mut self, attached: &BTreeMap<NodeId, BTreeMap<SwitchId, u32>>, nodes: &BTreeMap<SwitchId, u32>) {
        let mut shared: BTreeMap<(SwitchId, SwitchId), u32> = BTreeMap::new();
        for leaves in attached.values() {
            let loose: Vec<SwitchId> = leaves
                .keys()
                .filter(|leaf| self.units[leaf.index()].is_none())
                .copied()
                .collect();
            for (at, a) in loose.iter().enumerate() {
                for b in &loose[at + 1..] {
                    *shared.entry((*a, *b)).or_default() += 1;
                }
            }
        }
        let mut alike = Sets::new(self.units.len());
        for ((a, b), count) in shared {
            if count * 2 > nodes[&a].max(nodes[&b]) {
                alike.join(a.index(), b.index());
                self.connected.join(a.index(), b.index());
            }
        }
        for leaf in nodes.keys() {
            if self.units[leaf.index()].is_none() {
                let first = SwitchId::of(alike.first(leaf.index()));
                let pod = self.site.switch(first).pod.unwrap_or(1);
                self.units[leaf.index()] = Some((pod, UnitName::Leaf(first)));
            }
        }
    }

    /// The unit of a node, from the number of its cables to each leaf. All of these leaves have a unit. Of two fabrics with
    /// as many cables of the node, the one with more cables of all nodes counts: `cables` by fabric.
    fn attachment(&mut self, leaves: &BTreeMap<SwitchId, u32>, cables: &BTreeMap<usize, u32>) -> Attachment {
        let mut fabrics: BTreeMap<usize, (u32, BTreeMap<Unit, u32>)> = BTreeMap::new();
        for (leaf, count) in leaves {
            let Some(unit) = self.units[leaf.index()] else { continue };
            let (all, units) = fabrics.entry(self.connected.first(leaf.index())).or_default();
            *all += count;
            *units.entry(unit).or_default() += count;
        }
        let most = fabrics.into_iter().min_by_key(|(fabric, (of_node, units))| {
            let of_all = cables.get(fabric).copied().unwrap_or(0);
            (Reverse(*of_node), Reverse(of_all), units.keys().next().copied())
        });
        let Some((_, (_, units))) = most else {
            return Attachment::NoCable;
        };
        let mut units: Vec<(Unit, u32)> = units.into_iter().collect();
        units.sort_by_key(|(unit, cables)| (Reverse(*cables), *unit));
        match units.as_slice() {
            [] => Attachment::NoCable,
            [(unit, _)] => Attachment::Unit(*unit),
            [(unit, _), (other, _), ..] => Attachment::TwoUnits(*unit, *other),
        }
    }

    fn leaves(&self) -> BTreeMap<Unit, Vec<SwitchId>> {
        let mut leaves: BTreeMap<Unit, Vec<SwitchId>> = BTreeMap::new();
        for attachment in &self.attachments {
            if let Attachment::Unit(unit) = attachment
                && !leaves.contains_key(unit)
            {
                leaves.insert(*unit, Vec::new());
            }
        }
        for id in self.site.switch_ids() {
            if let Some(unit) = self.units[id.index()].filter(|_| self.with_nodes[id.index()])
                && let Some(of_unit) = leaves.get_mut(&unit)
            {
                of_unit.push(id);
            }
        }
        for of_unit in leaves.values_mut() {
            of_unit.sort_by_key(|&leaf| (self.site.switch(leaf).rail, leaf));
        }
        leaves
    }

    fn fabrics(&mut self, leaves: &BTreeMap<Unit, Vec<SwitchId>>) -> Vec<Vec<Unit>> {
        let mut nodes: BTreeMap<Unit, usize> = BTreeMap::new();
        for attachment in &self.attachments {
            if let Attachment::Unit(unit) = attachment {
                *nodes.entry(*unit).or_default() += 1;
            }
        }
        let mut fabrics: BTreeMap<usize, (usize, Vec<Unit>)> = BTreeMap::new();
        for (unit, of_unit) in leaves {
            let Some(leaf) = of_unit.first() else { continue };
            let fabric = fabrics.entry(self.connected.first(leaf.index())).or_default();
            fabric.0 += nodes.get(unit).copied().unwrap_or(0);
            fabric.1.push(*unit);
        }
        let mut fabrics: Vec<(usize, Vec<Unit>)> = fabrics.into_values().collect();
        fabrics.sort_by_key(|(nodes, units)| (Reverse(*nodes), units.first().copied()));
        fabrics.into_iter().map(|(_, units)| units).collect()
    }
}
