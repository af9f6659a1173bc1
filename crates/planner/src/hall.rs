//! Converts a site into the hall that placement works on.
//!
//! Nodes, SKUs, customers and power domains have the same ids as in the site. [`rackwright_site::power::Ledger`] then
//! checks the limits that placement does not know: outlets, phases, rack limits, and feeds that share a letter.

use std::collections::{BTreeMap, BTreeSet};

mod broken;
mod irregular;
mod layout;
mod positions;
mod rails;
mod switches;
mod wiring;

pub(crate) use broken::{Place, locate};
pub(crate) use irregular::left_out;
pub use irregular::{Culprit, Irregularity, Several, irregularities};
pub(crate) use switches::Switches;

use layout::Layout;
use rackwright_placement::{
    CoolingId, CoolingSpec, CustomerId, DomainId, DomainSpec, HallSpec, LabelId, LabelKind, LabelSpec, NodeId,
    NodeSpec, Request, SkuId, SkuSpec,
};
use rackwright_site::model::{self, Redundancy, Site};
use rackwright_site::power::{HeatLoads, Ledger, Zone, capacity_watts, node_heat, watts, zone_of};

/// The label kind for racks, by [`model::RackId`].
pub const RACK: LabelKind = LabelKind(0);
/// The label kind for customers. It marks nodes on circuits or cooling dedicated to a customer.
const OWNER: LabelKind = LabelKind(1);

/// Why clusters cannot be placed in a site.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct UnsupportedFabric(pub String);

/// Converts a site into its hall. Parts that do not fit into a uniform fat-tree are left out; [`irregularities`] names
/// them.
#[must_use]
pub fn hall(site: &Site) -> HallSpec {
    spec(site, &Layout::of(site), &Ledger::new(site))
}

/// The hall of a site, and the switches of its units, spines and cores. `ledger` is the ledger of the site.
pub(crate) fn with_switches(site: &Site, ledger: &Ledger) -> (HallSpec, Switches) {
    let layout = Layout::of(site);
    (spec(site, &layout, ledger), layout.into_switches())
}

fn spec(site: &Site, layout: &Layout, ledger: &Ledger) -> HallSpec {
    let racks = site.racks.iter().map(|rack| (RACK, rack.name.to_string()));
    let customers = site.customers.iter().map(|customer| (OWNER, customer.name.to_string()));
    let labels = racks.chain(customers).map(|(kind, name)| LabelSpec { kind, name });
    let (cooling, zones) = cooling(site);
    let impaired: BTreeSet<model::NodeId> = rails::impaired(site, layout).iter().map(|one| one.node).collect();
    let mut nodes = Vec::with_capacity(site.nodes.len());
    for id in site.node_ids() {
        let node = site.node(id);
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
            unit: layout.unit_of(site, id).ok(),
            sku: SkuId(node.sku.0),
            psus: node.psus.iter().flatten().map(|plug| DomainId(plug.pdu.0)).collect(),
            cooling: zones
                .get(&zone)
                .map(|zone| (*zone, round_up(watts(given))))
                .into_iter()
                .collect(),
            labels,
            excluded: false,
            impaired: impaired.contains(&id),
        });
    }
    HallSpec {
        tree: layout.tree(),
        more_fabrics: layout.more_fabrics(),
        pods: layout.pod_specs(site),
        skus: skus(site),
        domains: domains(site),
        cooling,
        labels: labels.collect(),
        nodes,
        contracts: contracts(site),
        absent_uplinks: layout.absent_uplinks(site),
        absent_cores: layout.absent_cores(),
    }
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
