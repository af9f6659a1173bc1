//! Parts of a site that do not fit into a uniform fat-tree: the culprit, and the cost of placement without the part.

use std::collections::{BTreeMap, BTreeSet};

use super::layout::{LaidPod, Layout, LeftOut, pod_name, unit_name};
use super::positions::Positions;
use super::rails::{Impaired, Missing, impaired};
use super::wiring::{Attachment, Unit, is_storage, low_and_high};
use rackwright_placement::{Mask, PodId, UnitId, Wiring as Links};
use rackwright_site::model::{NodeId, Port, Site, SkuId, SwitchId, SwitchRole};

/// The part that does not fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Culprit {
    /// The site as a whole.
    Site,
    Node(NodeId),
    Switch(SwitchId),
}

/// A part that does not fit into a uniform fat-tree. Placement goes on without the part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Irregularity {
    /// The part.
    pub culprit: Culprit,
    /// The field of the site file that describes the fault. Empty: the whole item.
    pub field: &'static str,
    /// The fault, with the name of the part.
    pub what: String,
    /// The consequence for clusters.
    pub cost: String,
    /// The words for several parts with the same fault. `None`: each part has words of its own.
    pub several: Option<Several>,
    /// The remedy.
    pub fix: &'static str,
}

/// Words about several nodes with the same fault.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Several {
    /// The fault, after the names of the nodes.
    pub what: String,
    /// The consequence for clusters.
    pub cost: String,
}

impl std::fmt::Display for Irregularity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.what, self.cost)
    }
}

/// All irregularities of a site. An empty list: clusters can use every node, and every link of a regular fat-tree.
#[must_use]
pub fn irregularities(site: &Site) -> Vec<Irregularity> {
    if site.nodes.is_empty() {
        return Vec::new();
    }
    let layout = Layout::of(site);
    let impaired = impaired(site, &layout);
    let mut found = Found {
        site,
        hosts: hosts(site, &layout, &impaired),
        usual: (0..layout.fabrics.len()).map(|at| usual_uplinks(&layout, at)).collect(),
        absent: layout.absent_uplinks(site),
        layout,
        impaired,
        list: Vec::new(),
    };
    found.nodes();
    if !site.cables.is_empty() {
        found.impaired();
        found.beside();
        found.leaves();
        found.irregular_cables();
        found.uplinks();
        found.core_links();
    }
    found.list
}

/// Why no cluster gets these nodes, one sentence each. Nodes that clusters can get are skipped.
pub(crate) fn left_out(site: &Site, nodes: &[NodeId]) -> Vec<String> {
    if nodes.is_empty() {
        return Vec::new();
    }
    let layout = Layout::of(site);
    let why = |node: &NodeId| Some(node_words(site, *node, layout.unit_of(site, *node).err()?));
    nodes.iter().filter_map(why).collect()
}

fn node_words(site: &Site, node: NodeId, why: LeftOut) -> String {
    format!("node {} {}", site.node(node).name, fault(site, why, &ONE))
}

/// The verbs of a sentence about nodes.
struct Verbs {
    they_are: &'static str,
    each: &'static str,
    are: &'static str,
    have: &'static str,
    need: &'static str,
}

/// About one node.
const ONE: Verbs = Verbs {
    they_are: "it is",
    each: "the node",
    are: "is",
    have: "has",
    need: "needs",
};

/// About several nodes.
const MANY: Verbs = Verbs {
    they_are: "they are",
    each: "each node",
    are: "are",
    have: "have",
    need: "need",
};

/// The fault of nodes that are left out, after their names.
fn fault(site: &Site, why: LeftOut, verbs: &Verbs) -> String {
    let Verbs { are, have, need, .. } = verbs;
    let unit = |unit: Unit| unit_name(site, unit);
    match why {
        LeftOut::Attachment(Attachment::NoLeaf(switch)) => {
            format!("{are} cabled to {}, which is not a leaf", site.switch(switch).name)
        }
        LeftOut::Attachment(Attachment::TwoUnits(one, other)) => {
            format!("{are} cabled to units {} and {}", unit(one), unit(other))
        }
        LeftOut::Attachment(Attachment::Storage) => format!("{are} cabled to a storage fabric alone"),
        LeftOut::Attachment(Attachment::NoCable | Attachment::Unit(_)) => format!("{have} no cable to a leaf"),
        LeftOut::Beside(of) => format!("{are} in unit {}, which is left out", unit(of)),
        LeftOut::Psus { plugged: 0, .. } => format!("{have} no PSU plugged in"),
        LeftOut::Psus { plugged: 1, needed } => format!("{have} 1 PSU plugged in, but {need} {needed}"),
        LeftOut::Psus { plugged, needed } => format!("{have} {plugged} PSUs plugged in, but {need} {needed}"),
    }
}

/// The nodes of a unit that clusters can get.
#[derive(Debug, Clone, Copy, Default)]
struct Hosts {
    all: u32,
    /// Those that are not impaired.
    whole: u32,
}

fn hosts(site: &Site, layout: &Layout, impaired: &[Impaired]) -> BTreeMap<Unit, Hosts> {
    let impaired: BTreeSet<NodeId> = impaired.iter().map(|one| one.node).collect();
    let mut hosts: BTreeMap<Unit, Hosts> = BTreeMap::new();
    for node in site.node_ids() {
        if let Attachment::Unit(unit) = layout.wiring.attachments[node.index()]
            && layout.unit_of(site, node).is_ok()
        {
            let of_unit = hosts.entry(unit).or_default();
            of_unit.all += 1;
            of_unit.whole += u32::from(!impaired.contains(&node));
        }
    }
    hosts
}

struct Found<'a> {
    site: &'a Site,
    layout: Layout,
    impaired: Vec<Impaired>,
    hosts: BTreeMap<Unit, Hosts>,
    /// By fabric: the number of cables that most pairs of a leaf and a spine have.
    usual: Vec<u32>,
    /// The uplinks that units lack.
    absent: BTreeMap<UnitId, Mask>,
    list: Vec<Irregularity>,
}

impl Found<'_> {
    fn add(&mut self, culprit: Culprit, field: &'static str, what: String, cost: String, fix: &'static str) {
        self.list.push(Irregularity {
            culprit,
            field,
            what,
            cost,
            several: None,
            fix,
        });
    }

    /// Adds a fault that several nodes may have. `fault` gives the words after their names, `cost` the consequence.
    fn add_node(
        &mut self,
        node: NodeId,
        field: &'static str,
        fault: impl Fn(&Verbs) -> String,
        cost: impl Fn(&Verbs) -> String,
        fix: &'static str,
    ) {
        self.list.push(Irregularity {
            culprit: Culprit::Node(node),
            field,
            what: format!("node {} {}", self.site.node(node).name, fault(&ONE)),
            cost: cost(&ONE),
            several: Some(Several {
                what: fault(&MANY),
                cost: cost(&MANY),
            }),
            fix,
        });
    }

    fn switch_name(&self, switch: SwitchId) -> &str {
        &self.site.switch(switch).name
    }

    fn nodes(&mut self) {
        let site = self.site;
        // The two causes that concern every node are reported once.
        let (no_cables, no_power) = (site.cables.is_empty(), site.domains.is_empty());
        let none = "no cluster can be placed in this site";
        if no_cables {
            let what = "the site describes no cables".to_owned();
            self.add(
                Culprit::Site,
                "",
                what,
                none.to_owned(),
                "describe `switches` and `cables`",
            );
        }
        if no_power {
            let what = "the site describes no power, so no PSU is plugged in".to_owned();
            let fix = "describe `power`, and the `psus` of the nodes";
            self.add(Culprit::Site, "", what, none.to_owned(), fix);
        }
        let mut skus: BTreeMap<SkuId, (usize, usize)> = BTreeMap::new();
        let mut out = Vec::new();
        for node in site.node_ids() {
            let (placed, all) = skus.entry(site.node(node).sku).or_default();
            *all += 1;
            match self.layout.unit_of(site, node) {
                Ok(_) => *placed += 1,
                Err(LeftOut::Psus { .. }) if no_power => {}
                Err(LeftOut::Attachment(Attachment::NoCable)) if no_cables => {}
                // Reported with the fabric.
                Err(LeftOut::Beside(_)) => {}
                Err(why) => out.push((node, why)),
            }
        }
        for (node, why) in out {
            let sku = site.node(node).sku;
            let (placed, all) = skus[&sku];
            // Storage servers, as the site file says: none of their kind is in a unit.
            if placed == 0 && why == LeftOut::Attachment(Attachment::Storage) {
                continue;
            }
            let name = &site.sku(sku).name;
            let cost = |verbs: &Verbs| {
                let they_are = verbs.they_are;
                format!("{they_are} left out, and {placed} of {all} nodes of {name} can be placed")
            };
            let (field, fix) = match why {
                LeftOut::Psus { .. } => ("psus", "plug in the PSUs, and write their outlets in `psus`"),
                _ => ("name", "cable the HCAs of a node to the leaves of one unit"),
            };
            self.add_node(node, field, |verbs| fault(site, why, verbs), cost, fix);
        }
    }

    /// Nodes in use with a rail that is missing or exchanged.
    fn impaired(&mut self) {
        for one in std::mem::take(&mut self.impaired) {
            let gives = self.gives_of_impaired(one.unit);
            if let Some(Missing { leaf, has, all }) = &one.missing {
                let leaf = self.switch_name(*leaf).to_owned();
                let fault = |verbs: &Verbs| format!("{} no cable to {leaf}", verbs.have);
                let cost = |verbs: &Verbs| {
                    let each = verbs.each;
                    format!("{each} has {has} of {all} rails and joins no non-blocking cluster, so {gives}")
                };
                let fix = "cable this HCA, or take the node out of service";
                self.add_node(one.node, "name", fault, cost, fix);
            }
            if let Some(first) = one.exchanged.first() {
                let hca = &self.site.sku_of(one.node).hcas[first.hca];
                let at = self.switch_name(first.leaf);
                let words = format!("HCA {} of rail {} at {at} of rail {}", hca.name, hca.rail, first.rail);
                let words = match one.exchanged.len() - 1 {
                    0 => words,
                    more => {
                        let more = counted(more, "more HCA", "more HCAs");
                        format!("{words}, and {more} at the leaf of another rail")
                    }
                };
                let fault = |verbs: &Verbs| format!("{} {words}", verbs.have);
                let cost = |verbs: &Verbs| format!("{} joins no non-blocking cluster, so {gives}", verbs.each);
                let fix = "exchange the cables, or correct `cables`, the `hcas` of the SKU or the `rail` of the leaf";
                self.add_node(one.node, "name", fault, cost, fix);
            }
        }
    }

    /// The nodes of a unit that a non-blocking cluster can get. A unit with more nodes than uplinks gives all its nodes to
    /// a cluster of its own.
    fn gives_of_impaired(&self, unit: Unit) -> String {
        let hosts = self.hosts.get(&unit).copied().unwrap_or_default();
        match self.layout.pods.iter().find(|pod| pod.units.contains(&unit)) {
            Some(pod) if hosts.all <= self.uplinks_of(pod) => self.gives(pod, unit),
            _ => self.gives_words(unit, hosts.whole, hosts.all),
        }
    }

    /// The nodes of a unit that a non-blocking cluster can get, by its uplinks and its impaired nodes.
    fn gives(&self, pod: &LaidPod, unit: Unit) -> String {
        let hosts = self.hosts.get(&unit).copied().unwrap_or_default();
        if self.is_alone(pod) {
            return self.gives_words(unit, hosts.whole, hosts.all);
        }
        let positions = &self.layout.fabrics[pod.fabric];
        let number = self.layout.units.get(&unit).map(|number| UnitId(*number));
        let absent = number.and_then(|number| self.absent.get(&number)).copied().unwrap_or(0);
        let gives = hosts.whole.min(links_of(positions, absent));
        self.gives_words(unit, gives, hosts.all.min(self.uplinks_of(pod)))
    }

    /// The number of uplinks that most units of the pod's fabric have.
    fn uplinks_of(&self, pod: &LaidPod) -> u32 {
        self.layout.fabrics[pod.fabric].tree.spines * self.usual[pod.fabric]
    }

    /// Whether the pod's fabric has one unit. Clusters in this unit need no uplinks.
    fn is_alone(&self, pod: &LaidPod) -> bool {
        let of_fabric = self.layout.pods.iter().filter(|other| other.fabric == pod.fabric);
        of_fabric.map(|other| other.units.len()).sum::<usize>() == 1
    }

    /// Where there are several fabrics, with the name of the unit's fabric: each may number its units as if it were alone.
    fn gives_words(&self, unit: Unit, gives: u32, of: u32) -> String {
        let name = unit_name(self.site, unit);
        let leaf = self.layout.wiring.leaves.get(&unit).and_then(|leaves| leaves.first());
        let fabric = leaf.and_then(|leaf| self.site.switch(*leaf).fabric);
        match fabric.filter(|_| self.layout.fabrics.len() > 1) {
            Some(fabric) => {
                let fabric = &self.site.fabric(fabric).name;
                format!("unit {name} of {fabric} gives {gives} of {of} non-blocking nodes")
            }
            None => format!("unit {name} gives {gives} of {of} non-blocking nodes"),
        }
    }

    /// Fabrics beside the one with the most nodes.
    fn beside(&mut self) {
        let cores = self.layout.tree().cores_per_spine;
        let mut first: BTreeMap<usize, SwitchId> = BTreeMap::new();
        for pod in self.layout.pods.iter().filter(|pod| pod.fabric > 0 && cores > 0) {
            // Fabrics with a name are meant to be apart.
            if self.layout.fabric_of(self.site, pod).is_some() {
                continue;
            }
            let leaf = pod
                .units
                .first()
                .and_then(|unit| self.layout.wiring.leaves[unit].first());
            if let Some(leaf) = leaf {
                first.entry(pod.fabric).or_insert(*leaf);
            }
        }
        for leaf in first.into_values() {
            let what = format!(
                "{} belongs to a fabric without a path to the one with the most nodes",
                self.switch_name(leaf)
            );
            let cost = "no cluster spans this fabric and another one".to_owned();
            let fix = "cable its spines to the cores of the other pods, or name both fabrics in `fabrics`";
            self.add(Culprit::Switch(leaf), "name", what, cost, fix);
        }
        for units in self.layout.beside.clone() {
            let leaves: Vec<SwitchId> = units
                .iter()
                .flat_map(|unit| &self.layout.wiring.leaves[unit])
                .copied()
                .collect();
            let Some(first) = leaves.first() else { continue };
            let units: BTreeSet<Unit> = units.into_iter().collect();
            let attachments = self.layout.wiring.attachments.iter();
            let nodes =
                attachments.filter(|attachment| matches!(attachment, Attachment::Unit(unit) if units.contains(unit)));
            let nodes = nodes.count();
            let others = match leaves.len() - 1 {
                0 => String::new(),
                more => format!(" and {}", counted(more, "more leaf", "more leaves")),
            };
            let what = format!(
                "{}{others} form a fabric beside the one with the most nodes, in another shape",
                self.switch_name(*first)
            );
            let cost = format!("the fabric is left out with its {}", counted(nodes, "node", "nodes"));
            let fix =
                "name it in `fabrics`: as a compute fabric it is used, as a storage fabric it is left out as planned";
            self.add(Culprit::Switch(*first), "name", what, cost, fix);
        }
    }

    /// Leaves without a node, and leaves with only nodes of units of another fabric.
    fn leaves(&mut self) {
        let site = self.site;
        let used: BTreeSet<SwitchId> = self.layout.wiring.leaves.values().flatten().copied().collect();
        let unused = site
            .switch_ids()
            .filter(|id| site.switch(*id).role == SwitchRole::Leaf && !used.contains(id) && !is_storage(site, *id));
        for leaf in unused {
            let name = &site.switch(leaf).name;
            let (what, fix) = if self.layout.wiring.with_nodes[leaf.index()] {
                let what = format!("the nodes at {name} have most of their cables in another fabric");
                (what, "name a storage fabric in `fabrics`; correct other cables")
            } else {
                let what = format!("{name} is a leaf without nodes");
                (what, "keep it as a spare, or cable its nodes")
            };
            let cost = "the leaf is left out, which costs no node".to_owned();
            self.add(Culprit::Switch(leaf), "name", what, cost, fix);
        }
    }

    fn irregular_cables(&mut self) {
        for id in self.layout.wiring.irregular_cables.clone() {
            let cable = self.site.cable(id);
            let (Port::Switch { switch: a, .. }, Port::Switch { switch: b, .. }) = (cable.a, cable.b) else {
                continue;
            };
            let (low, high) = low_and_high(self.site, a, b);
            let what = format!(
                "cable {} connects {} to {}, which is not one level above",
                cable.label,
                self.switch_name(low),
                self.switch_name(high)
            );
            let cost = "the cable is left out".to_owned();
            self.add(
                Culprit::Switch(low),
                "role",
                what,
                cost,
                "check the roles of both switches",
            );
        }
    }

    /// Cables between leaves and spines that are absent, by unit.
    fn uplinks(&mut self) {
        let mut notes = Vec::new();
        for pod in &self.layout.pods {
            let usual = self.usual[pod.fabric];
            for unit in &pod.units {
                if !self.absent.contains_key(&UnitId(self.layout.units[unit])) {
                    continue;
                }
                let lacking = lacking_uplinks(self.site, &self.layout, pod, *unit, usual);
                let Some((leaf, words)) = lacking else { continue };
                let cost = if self.is_alone(pod) {
                    "this costs no node, because the unit is alone in its fabric".to_owned()
                } else {
                    self.gives(pod, *unit)
                };
                notes.push((leaf, words, cost));
            }
        }
        for (leaf, what, cost) in notes {
            let fix = "add the cables, or write down those that are there";
            self.add(Culprit::Switch(leaf), "name", what, cost, fix);
        }
    }

    /// Cables between spines and cores that are absent, by pod.
    fn core_links(&mut self) {
        let absent = self.layout.absent_cores();
        let mut notes = Vec::new();
        for (pod, at) in self.layout.pods.iter().zip(0..) {
            let positions = &self.layout.fabrics[pod.fabric];
            let Some((spine, words)) = lacking_cores(self.site, &self.layout, pod) else {
                continue;
            };
            let tree = positions.tree;
            let each = tree.cores_per_spine * tree.links_per_core;
            let of_pod = absent.range((PodId(at), 0)..=(PodId(at), u32::MAX));
            let gone: u32 = of_pod.map(|(_, mask)| mask.count_ones()).sum();
            let all = tree.spines * each;
            let cost = format!(
                "{} keeps {} of {all} links to other pods on each rail",
                pod_name(&self.layout, self.site, pod),
                all.saturating_sub(gone)
            );
            notes.push((spine, words, cost));
        }
        for (spine, what, cost) in notes {
            let fix = "add the cables, or write down those that are there";
            self.add(Culprit::Switch(spine), "name", what, cost, fix);
        }
    }
}

/// The number of cables that most pairs of a leaf and a spine have; of several numbers, the largest.
fn usual_uplinks(layout: &Layout, fabric: usize) -> u32 {
    let most = layout.fabrics[fabric].tree.links_per_spine;
    let mut counts: BTreeMap<u32, u32> = BTreeMap::new();
    for unit in layout
        .pods
        .iter()
        .filter(|pod| pod.fabric == fabric)
        .flat_map(|pod| &pod.units)
    {
        for leaf in &layout.wiring.leaves[unit] {
            for (_, cables) in layout.wiring.above(*leaf) {
                *counts.entry(cables.min(most)).or_default() += 1;
            }
        }
    }
    let most = counts.into_iter().max_by_key(|(cables, pairs)| (*pairs, *cables));
    most.map_or(0, |(cables, _)| cables)
}

/// Number of uplinks without the absent ones.
fn links_of(positions: &Positions, absent: Mask) -> u32 {
    let links = Links {
        peers: positions.tree.spines,
        parallel: positions.tree.links_per_spine,
    };
    (links.all() & !absent).count_ones()
}

/// The first leaf of a unit with fewer cables to a spine than usual, and the fault in words.
fn lacking_uplinks(site: &Site, layout: &Layout, pod: &LaidPod, unit: Unit, usual: u32) -> Option<(SwitchId, String)> {
    let positions = &layout.fabrics[pod.fabric];
    let (mut first, mut more) = (None, 0);
    for &leaf in &layout.wiring.leaves[&unit] {
        let rails = positions.spines.get(&pod.number)?;
        let Some(spines) = rails.get(&site.switch(leaf).rail) else {
            continue;
        };
        for place in 0..positions.tree.spines as usize {
            let spine = spines.get(place).copied().flatten();
            let cables = spine.map_or(0, |spine| layout.wiring.cables(leaf, spine));
            if cables >= usual {
                continue;
            }
            if first.is_some() {
                more += usual - cables;
            } else {
                first = Some((leaf, cable_words(site, leaf, spine, (cables, usual))));
            }
        }
    }
    let (leaf, words) = first?;
    Some((leaf, with_more(words, more)))
}

/// The first spine of a pod with fewer cables to a core than usual, and the fault in words.
fn lacking_cores(site: &Site, layout: &Layout, pod: &LaidPod) -> Option<(SwitchId, String)> {
    let positions = &layout.fabrics[pod.fabric];
    let usual = positions.cables_per_core;
    // Rails may share a spine.
    let mut lacking: BTreeMap<(SwitchId, SwitchId), u32> = BTreeMap::new();
    for (rail, spines) in positions.spines.get(&pod.number)? {
        for (place, spine) in spines.iter().enumerate() {
            let Some(spine) = spine else { continue };
            let cores = positions.cores.get(&(*rail, place)).map_or(&[][..], Vec::as_slice);
            if layout.wiring.above(*spine).eq(cores.iter().map(|core| (*core, usual))) {
                continue;
            }
            for core in cores {
                let cables = layout.wiring.cables(*spine, *core);
                if cables < usual {
                    lacking.insert((*spine, *core), cables);
                }
            }
        }
    }
    let ((spine, core), cables) = lacking.pop_first()?;
    let more: u32 = lacking.values().map(|cables| usual - cables).sum();
    let words = cable_words(site, spine, Some(core), (cables, usual));
    Some((spine, with_more(words, more)))
}

/// Such as `leaf-1 has no cable to spine-2`.
fn cable_words(site: &Site, low: SwitchId, high: Option<SwitchId>, (cables, usual): (u32, u32)) -> String {
    let low = &site.switch(low).name;
    match (high, cables) {
        (None, _) => format!("{low} is cabled to fewer spines than other leaves"),
        (Some(high), 0) => format!("{low} has no cable to {}", site.switch(high).name),
        (Some(high), _) => format!("{low} has {cables} of {usual} cables to {}", site.switch(high).name),
    }
}

fn with_more(words: String, more: u32) -> String {
    match more {
        0 => words,
        1 => format!("{words}, and 1 more cable is missing"),
        more => format!("{words}, and {more} more cables are missing"),
    }
}

fn counted(count: usize, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}
