//! Converts a site into the hall that placement works on.
//!
//! Nodes, SKUs, customers and power domains have the same ids as in the site. [`rackwright_site::power::Ledger`] then checks the
//! limits that placement does not know: outlets, phases, rack limits, and feeds that share a letter.

use std::collections::{BTreeMap, BTreeSet};

mod broken;
mod switches;

pub(crate) use broken::{Place, locate};
pub(crate) use switches::Switches;

use rackwright_placement::{
    CoolingId, CoolingSpec, CustomerId, DomainId, DomainSpec, HallSpec, LabelId, LabelKind, LabelSpec, NodeId,
    NodeSpec, PodSpec, Request, SkuId, SkuSpec, Tree, UnitId,
};
use rackwright_site::model::{self, Port, Redundancy, Site, SwitchId, SwitchRole};
use rackwright_site::power::{HeatLoads, Ledger, Zone, capacity_watts, node_heat, watts, zone_of};

/// The label kind for racks, by [`model::RackId`].
pub const RACK: LabelKind = LabelKind(0);
/// The label kind for customers. It marks nodes on circuits or cooling dedicated to a customer.
const OWNER: LabelKind = LabelKind(1);

/// Why clusters cannot be placed in a site.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct UnsupportedFabric(pub String);

/// A switch's pod and scalable unit. With two levels, all leaves are in pod 1.
type UnitKey = (u16, u16);

/// Cables between switches, and the units of nodes.
struct Wiring {
    /// By leaf or spine: number of cables to each switch above.
    up: BTreeMap<SwitchId, BTreeMap<SwitchId, u32>>,
    /// The unit of each node.
    units: Vec<Option<UnitKey>>,
}

/// Converts a site into its hall.
///
/// # Errors
/// The fabric is not a uniform fat-tree. The error names the deviating switch or node.
pub fn hall(site: &Site) -> Result<HallSpec, UnsupportedFabric> {
    with_switches(site).map(|(hall, _)| hall)
}

/// The hall of a site, and the switches of its units, spines and cores.
///
/// # Errors
/// Those of [`hall`].
pub(crate) fn with_switches(site: &Site) -> Result<(HallSpec, Switches), UnsupportedFabric> {
    let wiring = Wiring::of(site)?;
    let tree = wiring.tree(site)?;
    let keys: BTreeSet<UnitKey> = wiring.units.iter().flatten().copied().collect();
    let keys: Vec<UnitKey> = keys.into_iter().collect();
    let switches = Switches::of(site, &wiring, &keys, tree)?;
    spec(site, &wiring, &keys, tree).map(|spec| (spec, switches))
}

fn spec(site: &Site, wiring: &Wiring, keys: &[UnitKey], tree: Tree) -> Result<HallSpec, UnsupportedFabric> {
    let ledger = Ledger::new(site);
    let racks = site.racks.iter().map(|rack| (RACK, rack.name.to_string()));
    let customers = site.customers.iter().map(|customer| (OWNER, customer.name.to_string()));
    let labels = racks.chain(customers).map(|(kind, name)| LabelSpec { kind, name });
    let (cooling, zones) = cooling(site);
    let mut nodes = Vec::with_capacity(site.nodes.len());
    for id in site.node_ids() {
        let node = site.node(id);
        let unit = wiring.units[id.index()].and_then(|key| keys.binary_search(&key).ok());
        let unit = unit.ok_or_else(|| UnsupportedFabric(format!("node {} has no cable to a leaf", node.name)))?;
        let heat = node_heat(site, id, site.sku_of(id).power.max_watts);
        let zone = zone_of(site, id);
        let given = match zone {
            Zone::Loop(_) => heat.liquid,
            Zone::RearDoor(_) | Zone::Room(_) => heat.air,
        };
        let mut labels = vec![LabelId(node.rack.0)];
        let owners = ledger.owners(site, id);
        labels.extend(owners.into_iter().map(|owner| owner_label(site, owner)));
        nodes.push(NodeSpec {
            name: node.name.to_string(),
            unit: UnitId(number(unit)),
            sku: SkuId(node.sku.0),
            psus: node.psus.iter().flatten().map(|plug| DomainId(plug.pdu.0)).collect(),
            cooling: zones
                .get(&zone)
                .map(|zone| (*zone, round_up(watts(given))))
                .into_iter()
                .collect(),
            labels,
            excluded: false,
        });
    }
    Ok(HallSpec {
        tree,
        pods: pods(keys),
        skus: skus(site),
        domains: domains(site),
        cooling,
        labels: labels.collect(),
        nodes,
        contracts: contracts(site),
    })
}

/// A node of the site as placement numbers it.
#[must_use]
pub fn hall_node(node: model::NodeId) -> NodeId {
    NodeId(node.0)
}

/// A node of placement as the site numbers it.
#[must_use]
pub fn site_node(node: NodeId) -> model::NodeId {
    model::NodeId(node.0)
}

/// The rack of a rack label. `None`: the label is not a rack.
pub(crate) fn rack_of_label(site: &Site, label: LabelId) -> Option<&model::Rack> {
    site.racks.get(label.at())
}

/// Adds the site file's promises to the customer's request.
#[must_use]
pub fn promised(site: &Site, request: Request) -> Request {
    let own = model::CustomerId(request.customer.0);
    let customer = site.customer(own);
    let others = site.customer_ids().filter(|id| *id != own);
    let mut affinity = request.affinity.clone();
    affinity.avoid.extend(others.map(|id| owner_label(site, id)));
    Request {
        survives_feed_loss: customer.redundancy == Redundancy::FeedLoss,
        own_circuits: customer.dedicated_circuits,
        own_cooling: customer.dedicated_cooling,
        affinity,
        ..request
    }
}

fn owner_label(site: &Site, customer: model::CustomerId) -> LabelId {
    LabelId(number(site.racks.len() + customer.index()))
}

fn number(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX)
}

fn round_up(watts: f64) -> u64 {
    watts.max(0.0).ceil() as u64
}

fn pods(keys: &[UnitKey]) -> Vec<PodSpec> {
    let mut pods: Vec<PodSpec> = Vec::new();
    for part in keys.chunk_by(|a, b| a.0 == b.0) {
        pods.push(PodSpec {
            name: format!("pod {}", part[0].0),
            units: part.iter().map(|(_, unit)| format!("su{unit:02}")).collect(),
        });
    }
    pods
}

fn skus(site: &Site) -> Vec<SkuSpec> {
    let spec = |sku: &model::Sku| SkuSpec {
        name: sku.name.to_string(),
        watts: round_up(sku.power.max_watts),
        psus_needed: sku.psus.needed.into(),
    };
    site.skus.iter().map(spec).collect()
}

fn domains(site: &Site) -> Vec<DomainSpec> {
    let feed_above = |domain: &model::PowerDomain| domain.parent.and_then(|parent| site.domain(parent).feed);
    let spec = |domain: &model::PowerDomain| DomainSpec {
        name: domain.name.to_string(),
        parent: domain.parent.map(|parent| DomainId(parent.0)),
        capacity_w: capacity_watts(domain).max(0.0) as u64,
        other_w: round_up(domain.other_watts),
        feed: domain.feed.is_some() && feed_above(domain) != domain.feed,
        circuit: domain.kind.is_dedicable(),
    };
    site.domains.iter().map(spec).collect()
}

fn contracts(site: &Site) -> BTreeMap<CustomerId, u64> {
    let contract =
        |id: model::CustomerId| Some((CustomerId(id.0), site.customer(id).contracted_watts?.max(0.0) as u64));
    site.customer_ids().filter_map(contract).collect()
}

/// The zones that take most of the heat of a node, each as one cooling unit.
fn cooling(site: &Site) -> (Vec<CoolingSpec>, BTreeMap<Zone, CoolingId>) {
    let heat = HeatLoads::new(site);
    let used: BTreeSet<Zone> = site.node_ids().map(|node| zone_of(site, node)).collect();
    let (mut specs, mut ids) = (Vec::new(), BTreeMap::new());
    for zone in used {
        let (other, capacity) = match zone {
            Zone::Loop(id) => {
                let (used, limit) = heat.loop_watts(id);
                (used, Some(limit))
            }
            Zone::RearDoor(rack) => (0.0, site.rack(rack).rear_door.map(|door| site.cooling_unit(door).watts)),
            Zone::Room(room) => heat.room_air_watts(room),
        };
        ids.insert(zone, CoolingId(number(specs.len())));
        specs.push(CoolingSpec {
            name: zone.words(site),
            capacity_w: capacity.map_or(u64::MAX / 4, |watts| watts.max(0.0) as u64),
            other_w: round_up(other),
        });
    }
    (specs, ids)
}

impl Wiring {
    fn of(site: &Site) -> Result<Self, UnsupportedFabric> {
        let mut wiring = Self {
            up: BTreeMap::new(),
            units: vec![None; site.nodes.len()],
        };
        for cable in &site.cables {
            match (cable.a, cable.b) {
                (Port::Hca { node, .. }, Port::Switch { switch, .. })
                | (Port::Switch { switch, .. }, Port::Hca { node, .. }) => wiring.host(site, node, switch)?,
                (Port::Switch { switch: a, .. }, Port::Switch { switch: b, .. }) => wiring.switches(site, a, b)?,
                (Port::Hca { .. }, Port::Hca { .. }) => {
                    return Err(UnsupportedFabric(format!("cable {} connects two nodes", cable.label)));
                }
            }
        }
        Ok(wiring)
    }

    fn host(&mut self, site: &Site, node: model::NodeId, switch: SwitchId) -> Result<(), UnsupportedFabric> {
        let leaf = site.switch(switch);
        let name = &site.node(node).name;
        let Some(key) = unit_of(leaf) else {
            return Err(UnsupportedFabric(format!(
                "node {name} is cabled to {}, which is not a leaf with a `scalable_unit`",
                leaf.name
            )));
        };
        match self.units[node.index()].replace(key) {
            Some(other) if other != key => Err(UnsupportedFabric(format!(
                "node {name} is cabled to scalable units {} and {}",
                other.1, key.1
            ))),
            _ => Ok(()),
        }
    }

    fn switches(&mut self, site: &Site, a: SwitchId, b: SwitchId) -> Result<(), UnsupportedFabric> {
        let (low, high) = if site.switch(a).role < site.switch(b).role {
            (a, b)
        } else {
            (b, a)
        };
        let level = |id: SwitchId| site.switch(id).role as u8;
        if level(high) != level(low) + 1 {
            return Err(UnsupportedFabric(format!(
                "{} and {} are cabled to each other; a fat-tree has no such cable",
                site.switch(a).name,
                site.switch(b).name
            )));
        }
        *self.up.entry(low).or_default().entry(high).or_default() += 1;
        Ok(())
    }

    /// The tree of one rail. If several rails share the spines, each rail gets its share of the uplinks: some of the
    /// cables to each core, or some of the cores.
    fn tree(&self, site: &Site) -> Result<Tree, UnsupportedFabric> {
        let of = |role: SwitchRole| site.switch_ids().filter(move |id| site.switch(*id).role == role);
        // By pod and rail: the spines in order, and the number of cables to each.
        let mut above: BTreeMap<(u16, Option<u8>), (Vec<SwitchId>, u32)> = BTreeMap::new();
        let mut rails: BTreeMap<SwitchId, BTreeSet<Option<u8>>> = BTreeMap::new();
        for leaf in of(SwitchRole::Leaf) {
            let switch = site.switch(leaf);
            let found = self.evenly(site, leaf)?;
            found
                .0
                .iter()
                .for_each(|spine| _ = rails.entry(*spine).or_default().insert(switch.rail));
            let key = (switch.pod.unwrap_or(1), switch.rail);
            let first = above.entry(key).or_insert_with(|| found.clone());
            if *first != found {
                return Err(UnsupportedFabric(format!(
                    "leaf {} is not cabled to the same spines in the same way as the other leaves of its pod and rail",
                    switch.name
                )));
            }
        }
        let (spines, links_per_spine) = same(above.values().map(|(spines, links)| (number(spines.len()), *links)))
            .ok_or_else(|| UnsupportedFabric("pods or rails have different numbers of spines".to_owned()))?;
        let mut planes: BTreeMap<(Option<u8>, usize), Vec<SwitchId>> = BTreeMap::new();
        let mut upper = BTreeSet::new();
        for ((_, rail), (in_order, _)) in &above {
            for (place, spine) in in_order.iter().enumerate() {
                let (cores, links) = self.evenly(site, *spine)?;
                let shared = number(rails.get(spine).map_or(1, BTreeSet::len));
                upper.insert((number(cores.len()), links, shared));
                if *planes.entry((*rail, place)).or_insert_with(|| cores.clone()) != cores {
                    let name = &site.switch(*spine).name;
                    return Err(UnsupportedFabric(format!(
                        "spine {name} is cabled to other cores than the corresponding spines of other pods"
                    )));
                }
            }
        }
        let (cores, links_per_core, shared) =
            same(upper).ok_or_else(|| UnsupportedFabric("spines have different numbers of cores".to_owned()))?;
        let of_links = common(links_per_core, shared);
        let of_cores = (shared / of_links).max(1);
        if !cores.is_multiple_of(of_cores) {
            return Err(UnsupportedFabric(format!(
                "{shared} rails share {cores} cores above a spine, {links_per_core} cables to each: these links \
                 cannot be divided among the rails"
            )));
        }
        Ok(Tree {
            spines,
            links_per_spine,
            cores_per_spine: cores / of_cores,
            links_per_core: links_per_core / of_links,
        })
    }

    /// The switches above `low`, in order, and the number of cables to each.
    fn evenly(&self, site: &Site, low: SwitchId) -> Result<(Vec<SwitchId>, u32), UnsupportedFabric> {
        let Some(up) = self.up.get(&low) else {
            return Ok((Vec::new(), 0));
        };
        let links = same(up.values().copied()).ok_or_else(|| {
            let name = &site.switch(low).name;
            UnsupportedFabric(format!(
                "{name} has different numbers of cables to the switches above it"
            ))
        })?;
        Ok((up.keys().copied().collect(), links))
    }
}

fn unit_of(switch: &model::Switch) -> Option<UnitKey> {
    (switch.role == SwitchRole::Leaf).then_some((switch.pod.unwrap_or(1), switch.scalable_unit?))
}

/// The greatest common divisor. If `a` is 0, `b`, but at least 1.
fn common(a: u32, b: u32) -> u32 {
    if a == 0 { b.max(1) } else { common(b % a, a) }
}

/// The common value of all items, or the default if there is no item. `None`: the items differ.
fn same<T: Default + PartialEq>(items: impl IntoIterator<Item = T>) -> Option<T> {
    let mut items = items.into_iter();
    let Some(first) = items.next() else {
        return Some(T::default());
    };
    items.all(|item| item == first).then_some(first)
}
