//! A small hall as a site file, and changes that make the hall irregular. Each change knows the warning that it causes.

#![allow(clippy::unwrap_used)] // helpers of tests fail loudly

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

mod known;

use crate::placement_common::Dice;

/// Number of HCAs of a node in the compute fabric, and of leaves in a unit.
const RAILS: u64 = 2;

/// The kinds of change.
pub const KINDS: &[&str] = &[
    "uplink absent",
    "core cable absent",
    "node without cables",
    "node without one cable",
    "node without PSUs",
    "two nodes crossed",
    "spare leaf",
    "storage fabric",
    "node delivered",
    "cable between leaves",
    "leaf without a unit",
    EXCHANGED,
];

/// Comes after all other changes of a hall, and leaves the units as these made them.
const EXCHANGED: &str = "exchanged rails";

/// Maximum draw of a node, in watts.
const NODE_WATTS: u64 = 10_200;
/// Maximum draw of a storage server, in watts.
const STORE_WATTS: u64 = 1_000;

/// The customer whose clusters survive the loss of a feed, by its place in the site file. The other one has no promise.
pub const SURVIVES_FEED_LOSS: u32 = 1;

/// A warning that a change causes.
#[derive(Debug, Clone)]
pub struct Expected {
    /// The culprit at the beginning of the warning.
    begins: String,
    /// The cost, or another part of the warning.
    has: String,
}

impl Expected {
    fn new(begins: impl Into<String>, has: impl Into<String>) -> Self {
        Self {
            begins: begins.into(),
            has: has.into(),
        }
    }

    pub fn matches(&self, warning: &str) -> bool {
        warning.starts_with(&self.begins) && warning.contains(&self.has)
    }
}

/// A leaf by unit and rail.
type Leaf = (u64, u64);

/// A hall of one or two pods. Units count through all pods, as nodes do; all count from 1.
pub struct SmallHall {
    pods: u64,
    units_per_pod: u64,
    hosts: u64,
    cores: u64,
    /// Nodes that were delivered after the others, without cables.
    delivered: u64,
    /// By node and rail: the leaf.
    down: BTreeMap<(u64, u64), Leaf>,
    /// Leaf and spine of its pod.
    up: BTreeSet<(Leaf, u64)>,
    /// Pod, spine, core, and the number of the cable between the latter two.
    top: BTreeSet<(u64, u64, u64, u64)>,
    without_psus: BTreeSet<u64>,
    leaves_without_unit: BTreeSet<Leaf>,
    has_spare_leaf: bool,
    has_storage: bool,
    /// Leaves with a cable to the leaf of another unit.
    between_leaves: Option<(Leaf, Leaf)>,
    /// Capacity of each of the two feeds, in watts. One feed must carry every cluster that survives the loss of the other.
    feed_watts: u64,
    /// Nodes that a change has damaged already.
    touched: BTreeSet<u64>,
    expected: Vec<Expected>,
    /// Warnings about nodes that stay in their unit, which gives fewer nodes to non-blocking clusters. Each with the unit.
    impaired: Vec<(u64, Expected)>,
}

fn leaf_name((unit, rail): Leaf) -> String {
    format!("leaf-{unit:02}-{rail}")
}

impl SmallHall {
    /// A hall without irregularities.
    pub fn regular(dice: &mut Dice) -> Self {
        let pods = dice.roll(1, 2);
        let units_per_pod = dice.roll(2, 3);
        let hosts = dice.roll(3, 4);
        let cores = if pods == 2 { dice.roll(1, 3) } else { 0 };
        let mut hall = Self {
            pods,
            units_per_pod,
            hosts,
            cores,
            delivered: 0,
            down: BTreeMap::new(),
            up: BTreeSet::new(),
            top: BTreeSet::new(),
            without_psus: BTreeSet::new(),
            leaves_without_unit: BTreeSet::new(),
            has_spare_leaf: false,
            has_storage: false,
            between_leaves: None,
            feed_watts: 6_000_000,
            touched: BTreeSet::new(),
            expected: Vec::new(),
            impaired: Vec::new(),
        };
        for node in 1..=hall.regular_nodes() {
            for rail in 0..RAILS {
                hall.down.insert((node, rail), (hall.unit_of(node), rail));
            }
        }
        for unit in 1..=hall.units() {
            for rail in 0..RAILS {
                // One uplink for each host: the unit is non-blocking.
                hall.up.extend((1..=hosts).map(|spine| ((unit, rail), spine)));
            }
        }
        for pod in 1..=pods {
            for spine in 1..=hosts {
                for core in 1..=cores {
                    // One cable for each rail.
                    hall.top.extend((0..RAILS).map(|cable| (pod, spine, core, cable)));
                }
            }
        }
        hall
    }

    fn units(&self) -> u64 {
        self.pods * self.units_per_pod
    }

    fn regular_nodes(&self) -> u64 {
        self.units() * self.hosts
    }

    fn unit_of(&self, node: u64) -> u64 {
        (node - 1) / self.hosts + 1
    }

    fn pod_of(&self, unit: u64) -> u64 {
        (unit - 1) / self.units_per_pod + 1
    }

    pub fn node_count(&self) -> u64 {
        self.regular_nodes() + self.delivered
    }

    /// Makes one to five changes, and returns their kinds. Gives most halls scarce power.
    pub fn change(&mut self, dice: &mut Dice) -> Vec<&'static str> {
        // With both feeds a node draws half of its power from each.
        self.feed_watts = NODE_WATTS * self.regular_nodes() * dice.roll(40, 130) / 100;
        let mut kinds = Vec::new();
        for _ in 0..dice.roll(1, 4) {
            let kind = KINDS[dice.next() as usize % (KINDS.len() - 1)];
            if self.apply(kind, dice) {
                kinds.push(kind);
            }
        }
        if kinds.is_empty() {
            assert!(self.apply("spare leaf", dice));
            kinds.push("spare leaf");
        }
        if dice.chance(40) && self.apply(EXCHANGED, dice) {
            kinds.push(EXCHANGED);
        }
        kinds
    }

    /// Makes one change. Returns false where the hall has no room for a change of this kind.
    fn apply(&mut self, kind: &str, dice: &mut Dice) -> bool {
        match kind {
            "uplink absent" => {
                let all: Vec<_> = self.up.iter().copied().collect();
                let at = all[dice.next() as usize % all.len()];
                // With only one uplink left, the leaf would soon be a fabric of its own.
                let left = self.up.iter().filter(|(leaf, _)| *leaf == at.0).count();
                left > 2 && self.up.remove(&at)
            }
            "core cable absent" => {
                let all: Vec<_> = self.top.iter().copied().collect();
                !all.is_empty() && self.cut_core(all[dice.next() as usize % all.len()])
            }
            "node without cables" => self.untouched(dice).is_some_and(|node| {
                self.down.retain(|(of, _), _| *of != node);
                self.left_out(format!("node n{node:02} has no cable to a leaf"));
                true
            }),
            "node without one cable" => self.untouched(dice).is_some_and(|node| {
                let rail = dice.roll(0, RAILS - 1);
                let leaf = self.down.remove(&(node, rail)).unwrap();
                let begins = format!("node n{node:02} has no cable to {}", leaf_name(leaf));
                let cost = "the node has 1 of 2 rails and joins no non-blocking cluster, so ";
                self.impaired.push((leaf.0, Expected::new(begins, cost)));
                true
            }),
            EXCHANGED => self.untouched(dice).is_some_and(|node| {
                let [a, b] = [0, 1].map(|rail| self.down[&(node, rail)]);
                self.down.insert((node, 0), b);
                self.down.insert((node, 1), a);
                let begins = format!("node n{node:02} has HCA mlx5_0 of rail 0 at {} of rail 1", leaf_name(b));
                let cost = "1 more HCA at the leaf of another rail: the node joins no non-blocking cluster, so ";
                self.impaired.push((b.0, Expected::new(begins, cost)));
                true
            }),
            "node without PSUs" => self.untouched(dice).is_some_and(|node| {
                self.without_psus.insert(node);
                self.left_out(format!("node n{node:02} has no PSU plugged in"));
                true
            }),
            "two nodes crossed" => self.cross(dice),
            "spare leaf" => {
                let is_new = !self.has_spare_leaf;
                if is_new {
                    let what = "leaf-spare is a leaf without nodes";
                    self.expected.push(Expected::new(what, "which costs no node"));
                }
                self.has_spare_leaf = true;
                is_new
            }
            "storage fabric" => {
                let is_new = !self.has_storage;
                if is_new {
                    self.expected
                        .push(Expected::new("stor-leaf-1", "the fabric is left out with its 3 nodes"));
                }
                self.has_storage = true;
                is_new
            }
            "node delivered" => {
                self.delivered += 1;
                let node = self.node_count();
                self.left_out(format!("node n{node:02} has no cable to a leaf"));
                true
            }
            "cable between leaves" => {
                let is_new = self.between_leaves.is_none();
                if is_new {
                    let (a, b) = ((1, dice.roll(0, 1)), (2, dice.roll(0, 1)));
                    self.between_leaves = Some((a, b));
                    let what = format!("cable odd connects {} to {}", leaf_name(b), leaf_name(a));
                    self.expected.push(Expected::new(what, "the cable is left out"));
                }
                is_new
            }
            "leaf without a unit" => {
                let leaf = (dice.roll(1, self.units()), dice.roll(0, RAILS - 1));
                self.leaves_without_unit.insert(leaf)
            }
            other => panic!("unknown kind of change {other}"),
        }
    }

    /// A node without damage, now marked as damaged. Every second node of each unit stays sound.
    fn untouched(&mut self, dice: &mut Dice) -> Option<u64> {
        let sound = |node: &u64| !self.touched.contains(node) && node.is_multiple_of(2);
        let sound: Vec<u64> = (1..=self.regular_nodes()).filter(sound).collect();
        let node = *sound.get(dice.next() as usize % sound.len().max(1))?;
        self.touched.insert(node);
        Some(node)
    }

    fn left_out(&mut self, begins: String) {
        self.expected.push(Expected::new(begins, "it is left out"));
    }

    /// Exchanges the cables of two nodes of different units on one rail.
    fn cross(&mut self, dice: &mut Dice) -> bool {
        let Some(a) = self.untouched(dice) else { return false };
        let unit = self.unit_of(a);
        let other = (1..=self.regular_nodes()).filter(|node| node.is_multiple_of(2) && self.unit_of(*node) != unit);
        let Some(b) = other.into_iter().find(|node| !self.touched.contains(node)) else {
            // `a` stays marked: other changes have enough nodes.
            return false;
        };
        self.touched.insert(b);
        let rail = dice.roll(0, RAILS - 1);
        let (of_a, of_b) = (self.down[&(a, rail)], self.down[&(b, rail)]);
        self.down.insert((a, rail), of_b);
        self.down.insert((b, rail), of_a);
        self.left_out(format!("node n{a:02} is cabled to units "));
        self.left_out(format!("node n{b:02} is cabled to units "));
        true
    }

    fn cut_core(&mut self, cable: (u64, u64, u64, u64)) -> bool {
        let (pod, spine, core, _) = cable;
        // The last cable to a core stays: without it, the core could be above too few spines to count. At most two cables
        // go, so that two cables between a spine and a core stay the usual number.
        let pair = self
            .top
            .iter()
            .filter(|other| (other.0, other.1, other.2) == (pod, spine, core));
        let all = self.pods * self.hosts * self.cores * RAILS;
        pair.count() > 1 && self.top.len() as u64 + 2 > all && self.top.remove(&cable)
    }

    /// The warnings of all changes.
    pub fn expected(&self) -> Vec<Expected> {
        let mut expected = self.expected.clone();
        expected.extend(self.impaired.iter().map(|(unit, one)| {
            let (cost, gives) = (&one.has, self.gives(*unit));
            Expected::new(one.begins.clone(), format!("{cost}{gives}"))
        }));
        expected.extend((1..=self.units()).filter_map(|unit| self.expected_of_uplinks(unit)));
        expected.extend((1..=self.pods).filter_map(|pod| self.expected_of_cores(pod)));
        let (load, most) = (self.feed_load(), self.feed_watts);
        let feeds = ["a", "b"].into_iter().filter(|_| load > most);
        expected.extend(feeds.map(|feed| {
            let begins = format!("the load of utility-{feed} is up to {load} W");
            Expected::new(begins, format!("but the capacity is {most} W"))
        }));
        expected
    }

    /// The most that all machines draw from one of the two feeds, in watts.
    fn feed_load(&self) -> u64 {
        let nodes = self.node_count() - self.without_psus.len() as u64;
        let stores = if self.has_storage { 3 } else { 0 };
        (nodes * NODE_WATTS + stores * STORE_WATTS) / 2
    }

    /// The unit in which a node is placed. `None`: no cluster gets the node.
    fn placed_at(&self, node: u64) -> Option<u64> {
        let leaves = (0..RAILS).filter_map(|rail| self.down.get(&(node, rail)));
        let units: BTreeSet<u64> = leaves.map(|leaf| leaf.0).collect();
        let is_of_one = units.len() == 1 && !self.without_psus.contains(&node);
        units.into_iter().next().filter(|_| is_of_one)
    }

    /// Whether each rail of a node is at the leaf of the rail in one unit.
    fn is_whole(&self, node: u64) -> bool {
        let unit = self.placed_at(node);
        unit.is_some_and(|unit| (0..RAILS).all(|rail| self.down.get(&(node, rail)) == Some(&(unit, rail))))
    }

    /// Whether a unit has its link to a spine on every rail.
    fn has_uplink(&self, unit: u64, spine: u64) -> bool {
        (0..RAILS).all(|rail| self.up.contains(&((unit, rail), spine)))
    }

    fn uplinks_of(&self, unit: u64) -> u64 {
        (1..=self.hosts).filter(|spine| self.has_uplink(unit, *spine)).count() as u64
    }

    /// Links of a spine to cores that the pod has on every rail.
    fn core_links_of(&self, pod: u64, spine: u64) -> u64 {
        let is_whole = |core: &u64| (0..RAILS).all(|cable| self.top.contains(&(pod, spine, *core, cable)));
        (1..=self.cores).filter(is_whole).count() as u64
    }

    /// The words about the nodes of a unit that a non-blocking cluster can get.
    fn gives(&self, unit: u64) -> String {
        let placed = (1..=self.regular_nodes()).filter(|node| self.placed_at(*node) == Some(unit));
        let (mut nodes, mut whole) = (0, 0);
        for node in placed {
            nodes += 1;
            whole += u64::from(self.is_whole(node));
        }
        let (gives, of) = (self.uplinks_of(unit).min(whole), self.hosts.min(nodes));
        // A unit without a number has the name of its first leaf.
        let has_number = (0..RAILS).any(|rail| !self.leaves_without_unit.contains(&(unit, rail)));
        let name = if has_number {
            format!("su{unit:02}")
        } else {
            leaf_name((unit, 0))
        };
        format!("unit {name} gives {gives} of {of} non-blocking nodes")
    }

    fn expected_of_uplinks(&self, unit: u64) -> Option<Expected> {
        let lacks_some = self.uplinks_of(unit) < self.hosts;
        lacks_some.then(|| Expected::new(format!("leaf-{unit:02}-"), self.gives(unit)))
    }

    fn expected_of_cores(&self, pod: u64) -> Option<Expected> {
        let kept: u64 = (1..=self.hosts).map(|spine| self.core_links_of(pod, spine)).sum();
        let all = self.hosts * self.cores;
        let cost = format!("pod {pod} keeps {kept} of {all} links to other pods on each rail");
        (kept < all).then(|| Expected::new(format!("spine-{pod}-"), cost))
    }

    /// The site file.
    pub fn text(&self) -> String {
        let mut text = String::from("site: {name: small}\nrooms:\n- name: hall\ncustomers:\n- {name: acme}\n");
        text.push_str("- {name: zeta, redundancy: feed-loss}\n");
        self.facility(&mut text);
        self.nodes(&mut text);
        self.switches(&mut text);
        self.cables(&mut text);
        text
    }

    /// One rack for each node, with a strip of each feed that carries the node.
    fn facility(&self, text: &mut String) {
        let (racks, feed) = (format!("r[01-{:02}]", self.node_count() + 3), self.feed_watts);
        let _ = write!(
            text,
            "racks:
- {{name: '{racks}', room: hall}}
outlet_layouts:
- name: c19-4
  outlets:
  - {{name: '[1-4]', phase: [L1, L2, L3, L1], amps: 16}}
power:
- {{name: utility-a, kind: utility, feed: A, watts: {feed}}}
- {{name: utility-b, kind: utility, feed: B, watts: {feed}}}
- {{name: 'pdu-a-{racks}', kind: rack-pdu, parent: utility-a, rack: '{racks}', volts: 415, amps: 32, phases: 3, outlets: c19-4}}
- {{name: 'pdu-b-{racks}', kind: rack-pdu, parent: utility-b, rack: '{racks}', volts: 415, amps: 32, phases: 3, outlets: c19-4}}
"
        );
    }

    fn nodes(&self, text: &mut String) {
        let storage_hca = if self.has_storage { ", mlx5_2" } else { "" };
        let _ = write!(
            text,
            "skus:
- name: gpu
  power: {{typical_watts: 5600, max_watts: {NODE_WATTS}}}
  psus: {{count: 6, watts: 3600, needed: 3}}
  height_units: 8
  hcas: [mlx5_0, mlx5_1{storage_hca}]
- {{name: store, power: {{max_watts: {STORE_WATTS}}}, psus: {{count: 2, watts: 1000, needed: 1}}, height_units: 2, hcas: [mlx5_0]}}
nodes:
"
        );
        for node in 1..=self.node_count() {
            let plugged = ["a/1", "a/2", "a/3", "b/1", "b/2", "b/3"].map(|outlet| {
                let (feed, outlet) = outlet.split_once('/').unwrap();
                format!("pdu-{feed}-r{node:02}/{outlet}")
            });
            let psus = if self.without_psus.contains(&node) {
                "~, ~, ~, ~, ~, ~".to_owned()
            } else {
                plugged.join(", ")
            };
            let _ = writeln!(
                text,
                "- {{name: n{node:02}, sku: gpu, rack: r{node:02}, unit: 3, psus: [{psus}]}}"
            );
        }
        for store in 1..=if self.has_storage { 3 } else { 0 } {
            let rack = self.node_count() + store;
            let psus = format!("pdu-a-r{rack:02}/1, pdu-b-r{rack:02}/1");
            let _ = writeln!(
                text,
                "- {{name: store-{store}, sku: store, rack: r{rack:02}, unit: 3, psus: [{psus}]}}"
            );
        }
    }

    fn switches(&self, text: &mut String) {
        text.push_str("switches:\n");
        for unit in 1..=self.units() {
            for rail in 0..RAILS {
                let (name, pod) = (leaf_name((unit, rail)), self.pod_of(unit));
                let of_unit = match self.leaves_without_unit.contains(&(unit, rail)) {
                    true => String::new(),
                    false => format!(", scalable_unit: {unit}"),
                };
                let _ = writeln!(
                    text,
                    "- {{name: {name}, role: leaf, ports: 64, rail: {rail}, pod: {pod}{of_unit}}}"
                );
            }
        }
        for pod in 1..=self.pods {
            for spine in 1..=self.hosts {
                let _ = writeln!(
                    text,
                    "- {{name: spine-{pod}-{spine}, role: spine, ports: 64, pod: {pod}}}"
                );
            }
        }
        for core in 1..=self.cores {
            // A group of cores for each spine: its plane.
            for spine in 1..=self.hosts {
                let _ = writeln!(text, "- {{name: core-{spine}-{core}, role: core, ports: 64}}");
            }
        }
        if self.has_spare_leaf {
            text.push_str("- {name: leaf-spare, role: leaf, ports: 64}\n");
        }
        if self.has_storage {
            text.push_str(
                "- {name: stor-leaf-1, role: leaf, ports: 64}\n- {name: stor-spine-1, role: spine, ports: 64}\n",
            );
        }
    }

    fn cables(&self, text: &mut String) {
        text.push_str("cables:\n");
        let mut used: BTreeMap<String, u64> = BTreeMap::new();
        let mut port = |switch: String| {
            let number = used.entry(switch.clone()).or_default();
            *number += 1;
            format!("{switch}/{number}")
        };
        let mut ends: Vec<(String, String)> = Vec::new();
        for ((node, rail), leaf) in &self.down {
            ends.push((format!("n{node:02}/mlx5_{rail}"), port(leaf_name(*leaf))));
        }
        for (leaf, spine) in &self.up {
            let pod = self.pod_of(leaf.0);
            ends.push((port(leaf_name(*leaf)), port(format!("spine-{pod}-{spine}"))));
        }
        for (pod, spine, core, _) in &self.top {
            let (low, high) = (format!("spine-{pod}-{spine}"), format!("core-{spine}-{core}"));
            ends.push((port(low), port(high)));
        }
        if self.has_storage {
            let cabled: BTreeSet<u64> = self.down.keys().map(|(node, _)| *node).collect();
            for node in cabled {
                ends.push((format!("n{node:02}/mlx5_2"), port("stor-leaf-1".to_owned())));
            }
            for store in 1..=3 {
                ends.push((format!("store-{store}/mlx5_0"), port("stor-leaf-1".to_owned())));
            }
            ends.push((port("stor-leaf-1".to_owned()), port("stor-spine-1".to_owned())));
        }
        for (number, (a, b)) in ends.iter().enumerate() {
            let _ = writeln!(text, "- {{label: c{number}, a: {a}, b: {b}}}");
        }
        if let Some((a, b)) = self.between_leaves {
            let (a, b) = (port(leaf_name(a)), port(leaf_name(b)));
            let _ = writeln!(text, "- {{label: odd, a: {a}, b: {b}}}");
        }
    }
}
