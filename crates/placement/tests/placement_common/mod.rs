//! Small random halls, and a judge of their clusters that shares only types with the planner.

#![allow(clippy::unwrap_used, dead_code)] // helpers of tests fail loudly, and no test uses all of them

use std::collections::{BTreeMap, BTreeSet};

use rackwright_placement::*;
use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng as _, SeedableRng as _};

pub mod exact;
pub mod feed_loss;
mod route;

pub use route::Own;

/// The random numbers of one seed: the same seed gives the same hall everywhere.
pub struct Dice(SplitMix64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(SplitMix64::from_seed(seed.to_le_bytes()))
    }

    pub fn next(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A number from `from` to `to`, inclusive.
    pub fn roll(&mut self, from: u64, to: u64) -> u64 {
        from + self.next() % (to - from + 1)
    }

    pub fn chance(&mut self, percent: u64) -> bool {
        self.next() % 100 < percent
    }
}

/// The seed of random tests: `RACKWRIGHT_SEED`, or a constant.
pub fn seed() -> u64 {
    let given = std::env::var("RACKWRIGHT_SEED").ok();
    given.map_or(20_261_122, |text| text.parse().unwrap())
}

/// The size of a hall.
#[derive(Clone, Copy)]
pub struct Size {
    pub pods: (u64, u64),
    pub units: (u64, u64),
    pub hosts: (u64, u64),
    pub parallel: u64,
}

pub const TINY: Size = Size {
    pods: (1, 3),
    units: (1, 4),
    hosts: (1, 5),
    parallel: 2,
};

/// A hall with racks of two nodes on two feeds. Some budgets are tight, others wide.
pub fn hall_spec(dice: &mut Dice, size: Size) -> HallSpec {
    let pods = dice.roll(size.pods.0, size.pods.1);
    let units = dice.roll(size.units.0, size.units.1);
    let hosts = dice.roll(size.hosts.0, size.hosts.1);
    let parallel = if pods == 1 && dice.chance(30) { size.parallel } else { 1 };
    let spines = hosts.div_ceil(parallel).max(1);
    let tree = Tree {
        spines: spines as u32,
        links_per_spine: parallel as u32,
        cores_per_spine: if pods > 1 { dice.roll(0, units) as u32 } else { 0 },
        links_per_core: 1,
    };
    let mut spec = HallSpec {
        tree,
        skus: vec![sku("big", 10_000, 2), sku("small", 3_000, 1)],
        ..HallSpec::default()
    };
    let tight = dice.chance(60);
    let margin = |dice: &mut Dice, watts: u64| {
        if tight {
            watts * dice.roll(5, 11) / 10
        } else {
            watts * 20
        }
    };
    let all = pods * units * hosts * 10_000;
    let domain = |name: String, parent: Option<u32>, capacity_w: u64| DomainSpec {
        name,
        parent: parent.map(DomainId),
        capacity_w,
        ..DomainSpec::default()
    };
    for feed in ["A", "B"] {
        let capacity = margin(dice, all);
        let mut root = domain(format!("feed {feed}"), None, capacity);
        root.feed = true;
        spec.domains.push(root);
    }
    let loops = dice.roll(1, 2);
    for i in 0..loops {
        spec.cooling.push(CoolingSpec {
            name: format!("cdu {i}"),
            capacity_w: margin(dice, all * 2 / loops),
            other_w: 0,
        });
    }
    if dice.chance(20) {
        spec.contracts.insert(CustomerId(0), all * dice.roll(1, 6) / 10);
    }
    let dual = dice.chance(70);
    let two_skus = dice.chance(20);
    let mut unit = 0;
    for pod in 0..pods {
        let names = (0..units).map(|u| format!("su-{pod}-{u}")).collect();
        spec.pods.push(PodSpec {
            name: format!("pod-{pod}"),
            units: names,
        });
        for _ in 0..units {
            for host in 0..hosts {
                if host % 2 == 0 {
                    rack(dice, &mut spec, &margin);
                }
                let (a, b) = (spec.domains.len() as u32 - 2, spec.domains.len() as u32 - 1);
                let psus = if dual { vec![a, a, b, b] } else { vec![a, a] };
                let label = LabelId(spec.labels.len() as u32 - 1);
                spec.nodes.push(NodeSpec {
                    name: format!("n{}", spec.nodes.len()),
                    unit: Some(UnitId(unit)),
                    sku: SkuId(u32::from(two_skus && dice.chance(30))),
                    psus: psus.into_iter().map(DomainId).collect(),
                    cooling: vec![(CoolingId((host % loops) as u32), 10_000)],
                    labels: vec![label],
                    excluded: dice.chance(8),
                    impaired: false,
                });
            }
            unit += 1;
        }
    }
    spec
}

/// Adds two strips of a new rack, one on each feed, and its label.
fn rack(dice: &mut Dice, spec: &mut HallSpec, margin: &dyn Fn(&mut Dice, u64) -> u64) {
    let racks = spec.labels.len();
    for feed in 0..2 {
        spec.domains.push(DomainSpec {
            name: format!("rack {racks} strip {feed}"),
            parent: Some(DomainId(feed)),
            capacity_w: margin(dice, 24_000),
            other_w: 0,
            feed: false,
            circuit: true,
        });
    }
    spec.labels.push(LabelSpec {
        kind: LabelKind(0),
        name: format!("rack {racks}"),
    });
}

pub fn sku(name: &str, watts: u64, psus_needed: u32) -> SkuSpec {
    SkuSpec {
        name: name.to_owned(),
        watts,
        psus_needed,
    }
}

pub fn request(dice: &mut Dice, spec: &HallSpec, cluster: u64) -> Request {
    let most = (spec.nodes.len() as u64).min(if dice.chance(50) { 9 } else { 18 });
    let mut request = Request::plain(
        ClusterId(cluster),
        CustomerId(dice.roll(0, 2) as u32),
        SkuId(u32::from(dice.chance(5))),
        dice.roll(1, most) as u32,
    );
    request.spares = u32::from(dice.chance(15));
    request.bandwidth = match dice.roll(0, 9) {
        0 => Bandwidth::Ratio { down: 2, up: 1 },
        1 => Bandwidth::BestEffort,
        _ => Bandwidth::FULL,
    };
    request.survives_feed_loss = dice.chance(30);
    request.own_circuits = dice.chance(20);
    request.own_cooling = dice.chance(8);
    if dice.chance(10) {
        request.affinity.spread.push((LabelKind(0), 1));
    }
    if dice.chance(10) {
        request
            .affinity
            .avoid
            .push(LabelId(dice.roll(0, spec.labels.len() as u64 - 1) as u32));
    }
    request
}

/// A random hall after placements and releases.
pub fn used_hall(seed: u64, size: Size) -> (Hall, Dice) {
    let mut dice = Dice::new(seed);
    let spec = hall_spec(&mut dice, size);
    let mut hall = Hall::new(spec).unwrap();
    let links = hall.wirings(PodId(0)).spines.all();
    for unit in 0..hall.spec().pods.iter().map(|p| p.units.len()).sum::<usize>() {
        if dice.chance(25) {
            let broken = u128::from(dice.next()) & links & u128::from(dice.next());
            assert!(hall.set_broken_uplinks(UnitId(unit as u32), broken));
        }
    }
    for cluster in 0..dice.roll(0, 8) {
        let mut wish = request(&mut dice, hall.spec(), cluster);
        wish.nodes = wish.nodes.min(dice.roll(1, 6) as u32);
        if let Ok(placement) = plan(&hall, &wish) {
            hall.take(&placement).unwrap();
        }
        if dice.chance(30) {
            hall.free(ClusterId(dice.roll(0, cluster)));
        }
    }
    (hall, dice)
}

/// The faults of a hall's reservations, judged only from its description and its clusters.
pub fn judge(hall: &Hall) -> Vec<String> {
    let mut faults = Vec::new();
    let spec = hall.spec();
    let mut owner: BTreeMap<NodeId, ClusterId> = BTreeMap::new();
    let mut links: BTreeSet<(u32, u32)> = BTreeSet::new();
    let mut cores: BTreeSet<(u32, u32, u32)> = BTreeSet::new();
    for (&cluster, placement) in hall.clusters() {
        for &node in placement.nodes.iter().chain(&placement.spares) {
            if owner.insert(node, cluster).is_some() {
                faults.push(format!("{node:?} is taken twice"));
            }
            if spec.nodes[node.at()].sku != placement.request.sku {
                faults.push(format!("{node:?} is of another SKU"));
            }
            if spec.nodes[node.at()].excluded {
                faults.push(format!("{node:?} is held out"));
            }
            let request = &placement.request;
            let asks_for_all_rails = request.bandwidth == Bandwidth::FULL && request.nodes + request.spares > 1;
            if spec.nodes[node.at()].impaired && asks_for_all_rails {
                faults.push(format!("{node:?} lacks a rail of a non-blocking cluster"));
            }
        }
        for unit in &placement.units {
            for link in bits(unit.links) {
                if !links.insert((unit.unit.0, link)) {
                    faults.push(format!("{:?} link {link} is taken twice", unit.unit));
                }
            }
        }
        for share in &placement.cores {
            for link in bits(share.links) {
                if !cores.insert((share.pod.0, share.spine, link)) {
                    faults.push(format!("{share:?} link {link} is taken twice"));
                }
            }
        }
        faults.extend(judge_shape(hall, placement));
        if placement
            .request
            .affinity
            .avoid
            .iter()
            .any(|l| carries(spec, placement, *l) > 0)
        {
            faults.push(format!("{cluster:?} stands where it must not"));
        }
        for &(kind, most) in &placement.request.affinity.spread {
            let labels = (0..spec.labels.len()).filter(|&l| spec.labels[l].kind == kind);
            if labels
                .into_iter()
                .any(|l| carries(spec, placement, LabelId(l as u32)) > most)
            {
                faults.push(format!("{cluster:?} has too many nodes under one label"));
            }
        }
    }
    faults.extend(judge_power(hall, &owner));
    faults.extend(judge_tenants(hall, &owner));
    faults
}

fn carries(spec: &HallSpec, placement: &Placement, label: LabelId) -> u32 {
    let nodes = placement.nodes.iter().chain(&placement.spares);
    nodes.filter(|n| spec.nodes[n.at()].labels.contains(&label)).count() as u32
}

/// Whether power domain `at` is `above` or below it.
fn hangs_on(spec: &HallSpec, mut at: DomainId, above: DomainId) -> bool {
    loop {
        if at == above {
            return true;
        }
        match spec.domains[at.at()].parent {
            Some(parent) => at = parent,
            None => return false,
        }
    }
}

/// The draw of a node on a domain while `lost` is dead. A node that goes down counts as before.
fn draw_of(spec: &HallSpec, node: NodeId, domain: DomainId, lost: Option<DomainId>) -> u64 {
    let node = &spec.nodes[node.at()];
    let sku = &spec.skus[node.sku.at()];
    let share = |psus: &[DomainId]| {
        let here = psus.iter().filter(|&&p| hangs_on(spec, p, domain)).count() as u64;
        (sku.watts * here).div_ceil(psus.len() as u64)
    };
    let alive: Vec<_> = node
        .psus
        .iter()
        .copied()
        .filter(|&p| lost.is_none_or(|l| !hangs_on(spec, p, l)))
        .collect();
    let normal = share(&node.psus);
    if alive.is_empty() || alive.len() < sku.psus_needed as usize {
        normal
    } else {
        normal.max(share(&alive))
    }
}

fn lives(spec: &HallSpec, node: NodeId, lost: DomainId) -> bool {
    let node = &spec.nodes[node.at()];
    let alive = node.psus.iter().filter(|&&p| !hangs_on(spec, p, lost)).count();
    alive > 0 && alive >= spec.skus[node.sku.at()].psus_needed as usize
}

fn judge_power(hall: &Hall, owner: &BTreeMap<NodeId, ClusterId>) -> Vec<String> {
    let spec = hall.spec();
    let mut faults = Vec::new();
    let ids = (0..spec.domains.len() as u32).map(DomainId);
    let feeds: Vec<_> = ids.clone().filter(|d| spec.domains[d.at()].feed).collect();
    let promised = |n: &NodeId| hall.clusters()[&owner[n]].request.survives_feed_loss;
    for domain in ids {
        let known = &spec.domains[domain.at()];
        let load = |lost| known.other_w + owner.keys().map(|&n| draw_of(spec, n, domain, lost)).sum::<u64>();
        if load(None) > known.capacity_w {
            faults.push(format!(
                "{} carries {} W of {}",
                known.name,
                load(None),
                known.capacity_w
            ));
        }
        let bound = owner.keys().any(|n| promised(n) && draw_of(spec, *n, domain, None) > 0);
        for &feed in feeds.iter().filter(|_| bound) {
            if load(Some(feed)) > known.capacity_w {
                faults.push(format!("{} carries too much without {feed:?}", known.name));
            }
        }
    }
    for (&node, _) in owner.iter().filter(|(n, _)| promised(n)) {
        let hit = |f: &&DomainId| spec.nodes[node.at()].psus.iter().any(|&p| hangs_on(spec, p, **f));
        if feeds.iter().filter(hit).any(|&f| !lives(spec, node, f)) {
            faults.push(format!("{node:?} does not live through the loss of a feed"));
        }
    }
    for (&customer, &watts) in &spec.contracts {
        let theirs = owner
            .iter()
            .filter(|(_, c)| hall.clusters()[c].request.customer == customer);
        let drawn: u64 = theirs.map(|(n, _)| spec.skus[spec.nodes[n.at()].sku.at()].watts).sum();
        if drawn > watts {
            faults.push(format!("{customer:?} draws {drawn} W"));
        }
    }
    for (i, unit) in spec.cooling.iter().enumerate() {
        let heat_of = |n: &NodeId| {
            let to = spec.nodes[n.at()].cooling.iter().filter(|c| c.0.at() == i);
            to.map(|c| c.1).sum::<u64>()
        };
        let heat = unit.other_w + owner.keys().map(heat_of).sum::<u64>();
        if heat > unit.capacity_w {
            faults.push(format!("{} takes {heat} W", unit.name));
        }
    }
    faults
}

fn judge_tenants(hall: &Hall, owner: &BTreeMap<NodeId, ClusterId>) -> Vec<String> {
    let spec = hall.spec();
    let mut faults = Vec::new();
    let mut shared = |name: &str, on: Vec<&NodeId>, alone: &dyn Fn(&Request) -> bool| {
        let requests: Vec<_> = on.iter().map(|n| &hall.clusters()[&owner[n]].request).collect();
        let customers: BTreeSet<_> = requests.iter().map(|r| r.customer).collect();
        if customers.len() > 1 && requests.iter().any(|r| alone(r)) {
            faults.push(format!("{name} is shared"));
        }
    };
    for (i, domain) in spec.domains.iter().enumerate().filter(|(_, d)| d.circuit) {
        let psus = |n: &NodeId| {
            spec.nodes[n.at()]
                .psus
                .iter()
                .any(|&p| hangs_on(spec, p, DomainId(i as u32)))
        };
        shared(&domain.name, owner.keys().filter(|n| psus(n)).collect(), &|r| {
            r.own_circuits
        });
    }
    for (i, unit) in spec.cooling.iter().enumerate() {
        let cooled = |n: &NodeId| spec.nodes[n.at()].cooling.iter().any(|c| c.0.at() == i);
        shared(&unit.name, owner.keys().filter(|n| cooled(n)).collect(), &|r| {
            r.own_cooling
        });
    }
    faults
}

/// Whether the cluster's own links route every traffic pattern. Tries all permutations of its nodes if possible,
/// otherwise many random ones.
fn judge_shape(hall: &Hall, placement: &Placement) -> Vec<String> {
    let wirings = hall.wirings(placement.units[0].pod);
    let own = Own::of(wirings, &placement.units, &placement.cores);
    if placement.request.bandwidth != Bandwidth::FULL {
        return if own.connected() {
            Vec::new()
        } else {
            vec![format!("{placement:?} is not connected")]
        };
    }
    match own.unroutable() {
        Some(pattern) => vec![format!("{placement:?} cannot route {pattern:?}")],
        None => Vec::new(),
    }
}
