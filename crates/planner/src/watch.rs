//! Deviations of a running fabric from the site, and the nodes and clusters that they affect.
//!
//! [`compare`] turns the findings of [`rackwright_infiniband::check`] into faults with stable ids, so that the caller can
//! distinguish new, known and fixed faults. [`absent`] does the same for ports that a reading did not find.
//!
//! A replaced adapter has ports that no partition contains: its node is impaired until the site file has their GUIDs.
//! The fault's text names the field of the site file and the GUID.
//!
//! A machine without power has no links. A node without links is therefore a fault only while its system should run.
//!
//! Three kinds of findings are no faults here, because no planned part is missing. `rackwright fabric check` shows them:
//! unplanned devices, adapters on the wrong rail in the plan itself, and other names of devices that were recognised by
//! GUID (customers name their nodes as they like).

mod twice;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use rackwright_infiniband::check::{CableFault, FaultKind, Replacement, check};
use rackwright_infiniband::{Fabric, Guid, Plan, Rate};
use rackwright_site::model::{Cable, NodeId, Port, Site};

pub use twice::twice;

/// Maximum number of cables in a fault's `ends`. A switch has more.
const MAX_ENDS: usize = 12;

/// The kind of a fault, as in the names of its events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// A cable or a switch deviates.
    Cable,
    /// A port of a node has no link.
    PortAbsent,
    /// A port GUID answers in several fabrics.
    GuidTwice,
}

impl Kind {
    /// The name: `cable`, `port-absent` or `guid-twice`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Cable => "cable",
            Self::PortAbsent => "port-absent",
            Self::GuidTwice => "guid-twice",
        }
    }
}

/// A deviation from the plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    /// The kind of the fault.
    pub kind: Kind,
    /// The fault's name in `rackwright fabric check`, such as `missing` or `wrong-speed`.
    pub what: String,
    /// Labels of the affected planned cables.
    pub cables: Vec<String>,
    /// Both ends of these cables, such as `leaf-01/7` and `gpu-001/mlx5_0`. At most a dozen cables.
    pub ends: Vec<[String; 2]>,
    /// The nodes on these cables.
    pub nodes: Vec<String>,
    /// Whether the fault leaves the nodes without their full connection.
    pub impairs: bool,
    /// Cables between switches that carry less than planned, or nothing.
    pub broken: Vec<String>,
    /// A description for a technician.
    pub text: String,
    /// Ports of adapters in the places of planned ones.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub replaced: Vec<ReplacedPort>,
}

/// A port of an adapter in the place of a planned one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplacedPort {
    pub node: String,
    /// The name of the planned adapter in the SKU.
    pub hca: String,
    /// The port of the planned adapter, as in the site.
    pub former: Guid,
    /// The port in its place.
    pub port: Guid,
    /// Whether the port is linked to the planned port of the leaf.
    pub is_in_place: bool,
}

/// Faults by id.
pub type Faults = BTreeMap<String, Fault>;

/// Compares a discovered fabric with the site's plan. `up` has the nodes that should have a running system.
///
/// If most links run at one rate that differs from the site, that rate counts as correct. The difference becomes one
/// fault without affected cables.
///
/// # Errors
/// No planned cable is found: it is another fabric, or the site has neither GUIDs nor names to identify devices.
pub fn compare(site: &Site, plan: &Plan, found: &Fabric, up: &BTreeSet<NodeId>) -> Result<Faults, String> {
    let labels: BTreeMap<&str, &Cable> = site.cables.iter().map(|cable| (&*cable.label, cable)).collect();
    let report = check(plan, found);
    let mut rates: BTreeMap<Rate, usize> = BTreeMap::new();
    for rate in report.faults.iter().filter_map(|fault| fault.runs) {
        *rates.entry(rate).or_default() += 1;
    }
    let exchanged = report
        .faults
        .iter()
        .filter(|fault| fault.kind == FaultKind::DevicesExchanged);
    let exchanged: usize = exchanged.map(|fault| fault.cables.len()).sum();
    let there = report.right + rates.values().sum::<usize>() + exchanged;
    if there == 0 && report.cables > 0 {
        return Err(format!(
            "none of the site's {} cables is in the discovered fabric: it is another fabric, or the site has neither \
             its GUIDs nor its names",
            report.cables
        ));
    }
    let common = rates.iter().find(|(_, count)| **count * 2 > there);
    let common = common.map(|(rate, count)| (*rate, *count));
    let mut faults = Faults::new();
    if let Some((rate, count)) = common {
        let text = format!("{count} of {there} links run at {rate}, which is not their rate in the site file");
        put(&mut faults, "cable/rate".to_owned(), plain(text));
    }
    let usual = common.map(|(rate, _)| rate);
    for fault in &report.faults {
        if usual.is_some() && fault.runs == usual {
            continue;
        }
        for (id, fault) in of_cable(site, &labels, fault, up) {
            put(&mut faults, id, fault);
        }
    }
    Ok(faults)
}

/// A fault for information only, without affected cables or nodes.
fn plain(text: String) -> Fault {
    Fault {
        kind: Kind::Cable,
        what: FaultKind::WrongSpeed.word().to_owned(),
        cables: Vec::new(),
        ends: Vec::new(),
        nodes: Vec::new(),
        impairs: false,
        broken: Vec::new(),
        text,
        replaced: Vec::new(),
    }
}

/// Ports that are missing in the fabric although their node's system should run.
#[must_use]
pub fn absent(site: &Site, ports: &BTreeSet<Guid>, up: &BTreeSet<NodeId>) -> Faults {
    let mut faults = Faults::new();
    if ports.is_empty() {
        return faults;
    }
    let cables = cables_of_hcas(site, up);
    for &node in up {
        let guids = &site.node(node).port_guids;
        let hcas = guids.iter().zip(0..=u8::MAX);
        let hcas = hcas.filter(|(_, hca)| !site.is_storage_port(node, (*hca).into()));
        let known = hcas.filter_map(|(guid, hca)| Some((guid.and_then(Guid::new)?, hca)));
        let (gone, there): (Vec<_>, Vec<_>) = known.partition(|(guid, _)| ports.contains(guid));
        let name = &site.node(node).name;
        let of = |hca: u8| cables.get(&(node, hca)).copied();
        if there.is_empty() && gone.len() > 1 {
            let all: Vec<&Cable> = gone.iter().filter_map(|(_, hca)| of(*hca)).collect();
            let text = format!("node {name}: none of its {} ports is in the fabric", gone.len());
            put(&mut faults, node_id(name), port_fault(site, name, &all, text));
            continue;
        }
        for (guid, hca) in gone {
            let port = site.port_name(Port::Hca { node, hca });
            let text = format!("{port} (port {guid}) is not in the fabric");
            let cable: Vec<&Cable> = of(hca).into_iter().collect();
            put(&mut faults, port_id(&port), port_fault(site, name, &cable, text));
        }
    }
    faults
}

/// Merges both kinds. Ports are omitted if another fault names their cable, because that fault is the cause or is more
/// recent and specific.
#[must_use]
pub fn together(cables: &Faults, ports: &Faults) -> Faults {
    let reported: BTreeSet<&String> = cables.values().flat_map(|fault| &fault.cables).collect();
    let mut all = cables.clone();
    for (id, fault) in ports {
        let is_reported = !fault.cables.is_empty() && fault.cables.iter().all(|cable| reported.contains(cable));
        if !is_reported {
            all.entry(id.clone()).or_insert_with(|| fault.clone());
        }
    }
    all
}

/// The nodes without their full connection, each with the first reason.
#[must_use]
pub fn impaired(faults: &Faults) -> BTreeMap<String, String> {
    let mut nodes = BTreeMap::new();
    for fault in faults.values().filter(|fault| fault.impairs) {
        for node in &fault.nodes {
            nodes.entry(node.clone()).or_insert_with(|| fault.text.clone());
        }
    }
    nodes
}

/// The cables between switches that a cluster cannot rely on.
#[must_use]
pub fn broken(faults: &Faults) -> BTreeSet<String> {
    faults.values().flat_map(|fault| fault.broken.iter().cloned()).collect()
}

fn put(faults: &mut Faults, id: String, fault: Fault) {
    let mut place = id.clone();
    // Two faults of one kind at one cable, such as two loose ends: both are kept.
    for number in 2.. {
        if !faults.contains_key(&place) {
            break;
        }
        place = format!("{id}/{number}");
    }
    faults.insert(place, fault);
}

fn node_id(node: &str) -> String {
    format!("port-absent/{node}")
}

fn port_id(port: &str) -> String {
    format!("port-absent/{port}")
}

fn cables_of_hcas<'a>(site: &'a Site, nodes: &BTreeSet<NodeId>) -> BTreeMap<(NodeId, u8), &'a Cable> {
    let mut cables = BTreeMap::new();
    for cable in &site.cables {
        for end in [cable.a, cable.b] {
            if let Port::Hca { node, hca } = end
                && nodes.contains(&node)
            {
                cables.insert((node, hca), cable);
            }
        }
    }
    cables
}

fn port_fault(site: &Site, node: &str, cables: &[&Cable], text: String) -> Fault {
    Fault {
        kind: Kind::PortAbsent,
        what: FaultKind::Missing.word().to_owned(),
        cables: cables.iter().map(|cable| cable.label.to_string()).collect(),
        ends: ends(site, cables),
        nodes: vec![node.to_owned()],
        impairs: true,
        broken: Vec::new(),
        text,
        replaced: Vec::new(),
    }
}

fn ends(site: &Site, cables: &[&Cable]) -> Vec<[String; 2]> {
    let words = |cable: &&Cable| [site.port_name(cable.a), site.port_name(cable.b)];
    cables.iter().take(MAX_ENDS).map(words).collect()
}

/// The node at one end of a cable. `None`: the cable connects two switches.
fn host(cable: &Cable) -> Option<NodeId> {
    [cable.a, cable.b].into_iter().find_map(|end| match end {
        Port::Hca { node, .. } => Some(node),
        Port::Switch { .. } => None,
    })
}

/// Whether a fault of this kind reduces or removes the planned link.
fn is_less(kind: FaultKind) -> bool {
    match kind {
        FaultKind::DeviceMissing
        | FaultKind::Missing
        | FaultKind::Swapped
        | FaultKind::WrongDevice
        | FaultKind::WrongSpeed
        | FaultKind::WrongWidth => true,
        FaultKind::DeviceUnknown
        | FaultKind::DeviceReplaced
        | FaultKind::DevicesExchanged
        | FaultKind::NamesExchanged
        | FaultKind::WrongName
        | FaultKind::WrongPort
        | FaultKind::Extra
        | FaultKind::Rail
        | FaultKind::GuidTwice => false,
    }
}

fn of_cable(
    site: &Site,
    labels: &BTreeMap<&str, &Cable>,
    fault: &CableFault,
    up: &BTreeSet<NodeId>,
) -> Vec<(String, Fault)> {
    let leaves_all_there = matches!(
        fault.kind,
        FaultKind::DeviceUnknown | FaultKind::NamesExchanged | FaultKind::WrongName
    );
    if leaves_all_there {
        return Vec::new();
    }
    let cables: Vec<&Cable> = fault
        .cables
        .iter()
        .filter_map(|label| labels.get(&**label).copied())
        .collect();
    let hosts: BTreeSet<NodeId> = cables.iter().filter_map(|cable| host(cable)).collect();
    let between = cables.iter().filter(|cable| host(cable).is_none());
    let broken: Vec<String> = between
        .filter(|_| is_less(fault.kind))
        .map(|cable| cable.label.to_string())
        .collect();
    let names: Vec<String> = hosts.iter().map(|node| site.node(*node).name.to_string()).collect();
    let is_dark = matches!(fault.kind, FaultKind::Missing | FaultKind::DeviceMissing);
    let alone = cables.iter().all(|cable| host(cable).is_some()) && names.len() == 1;
    // One port of one node, or all its ports.
    if is_dark && alone {
        if hosts.is_disjoint(up) {
            return Vec::new();
        }
        // Faults of single ports, as a reading of ports gives them: the only port of a node, or some of several ports.
        let all = hosts.iter().map(|node| site.compute_ports(*node).count()).sum();
        if cables.len() == 1 || fault.devices.len() < all {
            let of_port = |cable: &Cable| {
                let port = [cable.a, cable.b]
                    .into_iter()
                    .find(|end| matches!(end, Port::Hca { .. }))?;
                let fault = port_fault(site, &names[0], &[cable], fault.text.clone());
                Some((port_id(&site.port_name(port)), fault))
            };
            return cables.iter().filter_map(|cable| of_port(cable)).collect();
        }
        return vec![(
            node_id(&names[0]),
            port_fault(site, &names[0], &cables, fault.text.clone()),
        )];
    }
    // These ports are impaired: ports without a link, slow ports, and the ports of another adapter, which no partition
    // contains. A port with a wrong cable still has a link.
    let is_slow = matches!(fault.kind, FaultKind::WrongSpeed | FaultKind::WrongWidth);
    let is_keyless = fault.replacements.iter().any(|other| !other.ports.is_empty());
    let impairs = is_dark || is_slow || is_keyless;
    let about = fault.devices.first().filter(|_| cables.len() != 1);
    let about = about.or(fault.cables.first()).or(fault.devices.first());
    let id = format!("cable/{}/{}", fault.kind.word(), about.map_or("?", |name| name));
    let fault = Fault {
        kind: Kind::Cable,
        what: fault.kind.word().to_owned(),
        cables: fault.cables.clone(),
        ends: ends(site, &cables),
        nodes: names,
        impairs,
        broken,
        text: format!("{}{}", fault.text, site_words(site, labels, &fault.replacements)),
        replaced: replaced_ports(site, labels, &fault.replacements),
    };
    vec![(id, fault)]
}

/// The ports of adapters in the places of planned ones. A port that the site has no GUID for is left out.
fn replaced_ports(site: &Site, labels: &BTreeMap<&str, &Cable>, replacements: &[Replacement]) -> Vec<ReplacedPort> {
    let mut replaced = Vec::new();
    for other in replacements {
        for (cable, port) in &other.ports {
            let ends = labels.get(&**cable).map(|cable| [cable.a, cable.b]);
            for end in ends.into_iter().flatten() {
                let Port::Hca { node, hca } = end else { continue };
                let at = usize::from(hca);
                let former = site.node(node).port_guids.get(at).copied().flatten();
                if let (Some(hca), Some(former)) = (site.sku_of(node).hcas.get(at), former.and_then(Guid::new)) {
                    replaced.push(ReplacedPort {
                        node: site.node(node).name.to_string(),
                        hca: hca.name.to_string(),
                        former,
                        port: *port,
                        is_in_place: other.in_place.contains(port),
                    });
                }
            }
        }
    }
    replaced
}

/// Which field of the site file confirms a replaced device, and with which GUID. Empty: no GUID is known.
fn site_words(site: &Site, labels: &BTreeMap<&str, &Cable>, replacements: &[Replacement]) -> String {
    let mut guids: BTreeMap<NodeId, Vec<String>> = BTreeMap::new();
    let mut fields = Vec::new();
    for other in replacements {
        if site.switches.iter().any(|switch| *switch.name == *other.planned) {
            fields.push(format!("`guid: {}` of switch {}", other.guid, other.planned));
        }
        for (cable, guid) in &other.ports {
            let ends = labels.get(&**cable).map(|cable| [cable.a, cable.b]);
            for end in ends.into_iter().flatten() {
                let Port::Hca { node, hca } = end else { continue };
                if let Some(hca) = site.sku_of(node).hcas.get(usize::from(hca)) {
                    guids.entry(node).or_default().push(format!("{}: {guid}", hca.name));
                }
            }
        }
    }
    for (node, ports) in guids {
        let name = &site.node(node).name;
        fields.push(format!("`guids: {{{}}}` of node {name}", ports.join(", ")));
    }
    match fields.is_empty() {
        true => String::new(),
        false => format!("; if it was replaced, the site file needs {}", fields.join(" and ")),
    }
}
