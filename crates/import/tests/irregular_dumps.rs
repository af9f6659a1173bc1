//! Dumps of irregular fabrics as sites with clusters. The hall of placement has exactly the nodes and cables of the dump,
//! `site validate` names what the fabric lacks, and an exact solver finds no better place for any cluster.
//!
//! Dumps of real fabrics are no part of the repository. The fabrics here have the traits of a real one: leaves with
//! different numbers of hosts and uplinks, a core above some of the spines, and adapters without the names of their hosts.

#![allow(clippy::unwrap_used)] // helpers of tests fail loudly

mod dump_common;
#[path = "../../planner/tests/irregular_common/mod.rs"]
mod irregular_common;
#[path = "../../placement/tests/placement_common/mod.rs"]
mod placement_common;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use dump_common::{finding_texts, import, links};
use irregular_common::{read as read_site, sound};
use placement_common::{Dice, exact};
use rackwright_infiniband::dump::{Limits, read};
use rackwright_infiniband::{Dump, Guid, Plan, PlannedCable, PlannedDevice, Role, Speed, Width};
use rackwright_placement::{Bandwidth, ClusterId, CustomerId, Hall, NodeId, NodeStatus, PodId, Request, SkuId, UnitId};
use rackwright_planner::cabling::plan;
use rackwright_planner::hall::{Culprit, irregularities};
use rackwright_planner::planner::{Planner, Refused};
use rackwright_site::model::{NodeId as SiteNode, Port, Site, SwitchId, SwitchRole};

const FABRICS: u64 = 40;
/// Number of requests in each fabric.
const REQUESTS: u64 = 8;
/// The description of an adapter whose host has not set one.
const UNNAMED: &str = "MT25408 ConnectX Mellanox Technologies";

/// An irregular fabric of leaves with hosts, spines, and a core above some spines.
struct Shape {
    /// By leaf.
    hosts: Vec<u64>,
    /// By leaf and spine.
    cables: Vec<Vec<u64>>,
    /// By spine: cables to the core.
    core: Vec<u64>,
}

impl Shape {
    fn random(dice: &mut Dice) -> Self {
        let (leaves, spines, usual) = (dice.roll(3, 7), dice.roll(2, 4), dice.roll(1, 4));
        let mut cables = vec![vec![usual; spines as usize]; leaves as usize];
        // Of any two pairs of a leaf and a spine, less than one differs, so most pairs have the usual number.
        for _ in 0..dice.roll(1, leaves * spines / 3) {
            let (leaf, spine) = (dice.roll(0, leaves - 1), dice.roll(0, spines - 1));
            cables[leaf as usize][spine as usize] = dice.roll(0, usual + 2);
        }
        for of_leaf in &mut cables {
            // A leaf without uplinks would be a fabric of its own.
            if of_leaf.iter().sum::<u64>() == 0 {
                of_leaf[0] = usual;
            }
        }
        let has_core = dice.chance(30);
        Self {
            hosts: (0..leaves).map(|_| dice.roll(2, 14)).collect(),
            cables,
            core: (0..spines)
                .map(|_| if has_core { dice.roll(0, 3) } else { 0 })
                .collect(),
        }
    }

    fn dump(&self) -> Dump {
        let mut wires = Wires::default();
        let of_role = |role, name: &str, number: usize, wires: &mut Wires| {
            wires.device(PlannedDevice::switch(format!("{name}-{number}"), role, 64))
        };
        let leaves: Vec<usize> = (0..self.hosts.len())
            .map(|at| of_role(Role::Leaf, "leaf", at, &mut wires))
            .collect();
        let spines: Vec<usize> = (0..self.core.len())
            .map(|at| of_role(Role::Spine, "spine", at, &mut wires))
            .collect();
        let mut hosts = Vec::new();
        for (leaf, count) in leaves.iter().zip(&self.hosts) {
            for _ in 0..*count {
                let name = format!("host-{} HCA-1", hosts.len());
                let host = wires.device(PlannedDevice::adapter(name.clone(), 1, 0));
                wires.cable(*leaf, host);
                hosts.push(name);
            }
        }
        for (leaf, of_leaf) in leaves.iter().zip(&self.cables) {
            for (spine, count) in spines.iter().zip(of_leaf) {
                (0..*count).for_each(|_| wires.cable(*leaf, *spine));
            }
        }
        if self.core.iter().any(|count| *count > 0) {
            let core = of_role(Role::Core, "core", 0, &mut wires);
            for (spine, count) in spines.iter().zip(&self.core) {
                (0..*count).for_each(|_| wires.cable(*spine, core));
            }
        }
        let plan = Plan::new(&wires.devices, &wires.cables).unwrap();
        let text = Dump::of(plan.fabric().clone()).write();
        let text = hosts.iter().fold(text, |text, host| {
            text.replace(&format!("\"{host}\""), &format!("\"{UNNAMED}\""))
        });
        read(text.as_bytes(), Limits::default()).unwrap()
    }
}

/// Devices and cables in the making. Each cable takes the next port of both ends.
#[derive(Default)]
struct Wires {
    devices: Vec<PlannedDevice>,
    cables: Vec<PlannedCable>,
    used: Vec<u8>,
}

impl Wires {
    fn device(&mut self, device: PlannedDevice) -> usize {
        let at = self.devices.len();
        let guid = Guid::new(0xa088_c203_0000_0000 + at as u64 * 0x100);
        self.devices.push(PlannedDevice { guid, ..device });
        self.used.push(0);
        at
    }

    fn cable(&mut self, a: usize, b: usize) {
        let [a, b] = [a, b].map(|device| {
            self.used[device] += 1;
            (device, self.used[device])
        });
        self.cables.push(PlannedCable {
            name: format!("c{}", self.cables.len()),
            a,
            b,
            speed: Some(Speed::Qdr),
            width: Some(Width::X4),
        });
    }
}

/// The site of a dump in which the SKUs are filled in and each node has a power shelf. Its cables are those of the dump.
fn site_of(dump: &Dump) -> Site {
    // Without SKUs, only the SKUs are missing.
    let imported = import(dump, None);
    let findings = finding_texts(&imported);
    let errors: Vec<&String> = findings.iter().filter(|line| line.contains(": error:")).collect();
    assert!(errors.iter().all(|error| error.contains("skus[")), "{errors:#?}");
    let filled = "  power: {max_watts: 500}\n  psus: {count: 2, watts: 500, needed: 1}\n  height_units: 1\n  hcas: [";
    let text = imported.text.replace("  hcas: [", filled);
    let site = read_site(&text);
    assert_eq!(links(plan(&site).unwrap().fabric()), links(&dump.fabric));
    assert_eq!(site.switches.len(), dump.fabric.counts().switches);
    powered(&text, &site)
}

/// The same site with a power shelf for each node.
fn powered(text: &str, site: &Site) -> Site {
    let lines = text.lines().map(|line| {
        if line.starts_with("  sku: ") {
            format!("{line}\n  psus: [\"shelf-{{name}}/1\", ~]\n")
        } else {
            format!("{line}\n")
        }
    });
    let mut powered: String = lines.collect();
    powered.push_str(
        "---\noutlet_layouts:\n- {name: one, outlets: [{name: 1}]}\n\
         power:\n- {name: utility, kind: utility, feed: A, watts: 1 MW}\n\
         - {name: circuit, kind: circuit, parent: utility, watts: 1 MW}\n",
    );
    for node in &site.nodes {
        let name = &node.name;
        powered.push_str(&format!(
            "- {{name: 'shelf-{name}', kind: power-shelf, parent: circuit, rack: rack, watts: 1 MW, outlets: one}}\n"
        ));
    }
    powered.push_str("customers:\n- {name: acme}\n");
    read_site(&powered)
}

/// What the cables of a site with one rail say.
struct Cabled {
    /// The nodes of each leaf.
    nodes: BTreeMap<SwitchId, BTreeSet<SiteNode>>,
    /// The number of cables of each leaf to each spine.
    uplinks: BTreeMap<SwitchId, BTreeMap<SwitchId, u32>>,
    spines: BTreeSet<SwitchId>,
    /// Leaves without nodes. A core above the spines of a single pod is cabled like one.
    spare: BTreeSet<SwitchId>,
}

impl Cabled {
    fn of(site: &Site) -> Self {
        let mut cabled = Self {
            nodes: BTreeMap::new(),
            uplinks: BTreeMap::new(),
            spines: BTreeSet::new(),
            spare: BTreeSet::new(),
        };
        for cable in &site.cables {
            match (cable.a, cable.b) {
                (Port::Hca { node, .. }, Port::Switch { switch, .. })
                | (Port::Switch { switch, .. }, Port::Hca { node, .. }) => {
                    cabled.nodes.entry(switch).or_default().insert(node);
                }
                (Port::Switch { switch: a, .. }, Port::Switch { switch: b, .. }) => {
                    let (low, high) = if site.switch(a).role == SwitchRole::Leaf {
                        (a, b)
                    } else {
                        (b, a)
                    };
                    if site.switch(low).role == SwitchRole::Leaf {
                        *cabled.uplinks.entry(low).or_default().entry(high).or_default() += 1;
                    }
                }
                (Port::Hca { .. }, Port::Hca { .. }) => panic!("a cable between two nodes"),
            }
        }
        let with_nodes = &cabled.nodes;
        let spare = cabled.uplinks.extract_if(.., |leaf, _| !with_nodes.contains_key(leaf));
        cabled.spare = spare.map(|(leaf, _)| leaf).collect();
        cabled.spines = cabled.uplinks.values().flat_map(BTreeMap::keys).copied().collect();
        cabled
    }

    /// The number of cables that most pairs of a leaf and a spine have; of several numbers, the largest.
    fn usual(&self) -> u32 {
        let mut pairs: BTreeMap<u32, u32> = BTreeMap::new();
        for count in self.uplinks.values().flat_map(BTreeMap::values) {
            *pairs.entry(*count).or_default() += 1;
        }
        let most = pairs.into_iter().max_by_key(|(count, pairs)| (*pairs, *count));
        most.unwrap().0
    }

    /// Compares a hall without clusters: every node is free, at its leaf, and every leaf has its cables to each spine.
    fn compare(&self, hall: &Hall) {
        let spec = hall.spec();
        assert!(spec.more_fabrics.is_empty());
        let mut units: BTreeMap<UnitId, BTreeSet<SiteNode>> = BTreeMap::new();
        for (at, node) in (0..).zip(&spec.nodes) {
            let status = hall.node_status(NodeId(at));
            assert_eq!(
                (status, node.impaired),
                (Some(NodeStatus::Free), false),
                "{}",
                node.name
            );
            units.entry(node.unit.unwrap()).or_default().insert(SiteNode(at));
        }
        assert_eq!(units.len(), self.nodes.len());
        let spines = hall.wirings(PodId(0)).spines;
        assert_eq!(spines.peers as usize, self.spines.len());
        for (unit, nodes) in units {
            let leaf = self.nodes.iter().find(|(_, of_leaf)| **of_leaf == nodes);
            let (leaf, _) = leaf.expect("a unit has the nodes of a leaf");
            let free = hall.free_uplinks(unit);
            let counts = (0..spines.peers).map(|spine| spines.count(free, spine));
            let mut found: Vec<u32> = counts.filter(|count| *count > 0).collect();
            let mut wanted: Vec<u32> = self.uplinks[leaf].values().copied().collect();
            found.sort_unstable();
            wanted.sort_unstable();
            assert_eq!(found, wanted, "uplinks of {leaf:?}");
        }
    }

    /// Compares the irregularities: each leaf that lacks cables or nodes has one with its cost, and nothing else has.
    fn compare_warnings(&self, site: &Site) {
        let mut wanted: BTreeMap<SwitchId, [String; 2]> = BTreeMap::new();
        for (leaf, uplinks) in &self.uplinks {
            if let Some(what) = self.lacks(site, *leaf) {
                let (hosts, links) = (self.nodes[leaf].len() as u32, uplinks.values().sum::<u32>());
                let most = hosts.min(self.spines.len() as u32 * self.usual());
                let cost = format!("gives {} of {most} non-blocking nodes", hosts.min(links));
                wanted.insert(*leaf, [what, cost]);
            }
        }
        for leaf in &self.spare {
            let what = format!("{} is a leaf without nodes", site.switch(*leaf).name);
            wanted.insert(*leaf, [what, "which costs no node".to_owned()]);
        }
        for one in irregularities(site) {
            let Culprit::Switch(leaf) = one.culprit else {
                panic!("the nodes are sound: {one}");
            };
            let [what, cost] = wanted.remove(&leaf).unwrap_or_else(|| panic!("a sound leaf: {one}"));
            assert!(
                one.what == what && one.cost.ends_with(&cost),
                "{one}: not {what}, {cost}"
            );
        }
        assert!(wanted.is_empty(), "not told: {wanted:?}");
    }

    /// The cables that a leaf lacks, in words.
    fn lacks(&self, site: &Site, leaf: SwitchId) -> Option<String> {
        let (name, usual) = (&site.switch(leaf).name, self.usual());
        let of = |spine: &SwitchId| self.uplinks[&leaf].get(spine).copied().unwrap_or(0);
        let mut lacking = self.spines.iter().filter(|spine| of(spine) < usual);
        let first = lacking.next()?;
        let spine = &site.switch(*first).name;
        let words = match of(first) {
            0 => format!("{name} has no cable to {spine}"),
            some => format!("{name} has {some} of {usual} cables to {spine}"),
        };
        Some(match lacking.map(|spine| usual - of(spine)).sum::<u32>() {
            0 => words,
            1 => format!("{words}, and 1 more cable is missing"),
            more => format!("{words}, and {more} more cables are missing"),
        })
    }
}

/// Places clusters and releases some. Each answer is an instance for the solver.
fn place(seed: u64, site: &Site) -> Vec<(bool, String)> {
    let cabled = Cabled::of(site);
    let mut planner = Planner::new(site).unwrap();
    cabled.compare(planner.hall());
    cabled.compare_warnings(site);
    let mut dice = Dice::new(seed);
    let mut answers = Vec::new();
    for number in 0..REQUESTS {
        let most = if number % 3 == 0 {
            4
        } else {
            site.nodes.len() as u64 * 2 / 3
        };
        let nodes = dice.roll(1, most);
        let bandwidth = match dice.roll(0, 3) {
            0 => Bandwidth::Ratio { down: 2, up: 1 },
            1 => Bandwidth::BestEffort,
            _ => Bandwidth::FULL,
        };
        let request = Request {
            bandwidth,
            ..Request::plain(ClusterId(number), CustomerId(0), SkuId(0), nodes as u32)
        };
        let before = planner.hall().clone();
        let answer = match planner.place(request.clone()) {
            Ok(placement) => Ok(placement.units.len()),
            Err(Refused::Placement(refusal)) => Err(refusal.proven),
            Err(other) => panic!("power suffices for all nodes: {other}"),
        };
        sound(&planner, site);
        let instance = exact::instance(seed * 100 + number, &before, &request, answer);
        answers.push((answer.is_ok(), instance));
        if answer.is_ok() && dice.chance(50) {
            planner.release(ClusterId(number)).unwrap();
        }
    }
    answers
}

/// The solver judges answers. At least `least` clusters are placed, and as many refused.
fn judge_answers(answers: Vec<(bool, String)>, least: usize, name: &str) {
    let placed = answers.iter().filter(|(is_placed, _)| *is_placed).count();
    println!("{placed} of {} placed", answers.len());
    assert!(
        placed >= least && answers.len() - placed >= least,
        "{placed} of {} placed",
        answers.len()
    );
    let instances: Vec<String> = answers.into_iter().map(|(_, instance)| instance).collect();
    exact::compare(Path::new(env!("CARGO_TARGET_TMPDIR")), name, &instances);
}

#[test]
fn clusters_get_what_an_irregular_dump_carries() {
    let mut answers = Vec::new();
    for seed in 0..FABRICS {
        let shape = Shape::random(&mut Dice::new(seed));
        let site = site_of(&shape.dump());
        assert_eq!(site.nodes.len() as u64, shape.hosts.iter().sum::<u64>());
        // The solver takes seconds for some answers, so it gets the last one of each fabric.
        answers.extend(place(seed, &site).pop());
    }
    judge_answers(answers, 10, "irregular-dumps.jsonl");
}

#[test]
#[ignore = "reads dumps that are no part of the repository: `make test-fabrics`"]
fn a_real_fabric_comes_back_and_takes_clusters() {
    let folder = std::env::var_os("RACKWRIGHT_FABRICS").expect("RACKWRIGHT_FABRICS is a folder with *.ibnetdiscover");
    let mut answers = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "ibnetdiscover") {
            continue;
        }
        println!("{}", path.display());
        let dump = read(&std::fs::read(&path).unwrap(), Limits::default()).unwrap();
        let site = site_of(&dump);
        assert_eq!(site.nodes.len(), dump.fabric.counts().adapters);
        answers.extend(place(answers.len() as u64, &site));
    }
    assert!(!answers.is_empty(), "no *.ibnetdiscover in RACKWRIGHT_FABRICS");
    judge_answers(answers, 1, "real-dumps.jsonl");
}
