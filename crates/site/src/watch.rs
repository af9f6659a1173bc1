//! What of a running fabric is not as the site has it, and whom that touches.
//!
//! [`compare`] turns the findings of [`crate::fabric::check`] into faults with ids that stay the same from look to look,
//! so that one can tell which is new and which is gone. [`absent`] does so with ports that a reading did not find.
//!
//! A machine without power has no links: that nothing is seen of a node is a fault only while its system should run.
//! Devices that no plan has are not told here, nor are adapters on the wrong rail in the plan itself: nothing that is
//! planned is missing by them, and `rackwright fabric check` tells them.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::fabric::check::{CableFault, FaultKind, check};
use crate::fabric::{Fabric, Guid, Plan, Rate};
use crate::model::{Cable, NodeId, Port, Site};

/// Cables of a fault whose ends are told; a switch has more.
const MAX_ENDS: usize = 12;

/// A sort of fault, as its events are called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// A cable or a switch.
    Cable,
    /// A port of a node has no link.
    PortAbsent,
}

impl Kind {
    /// `cable`, `port-absent`
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Cable => "cable",
            Self::PortAbsent => "port-absent",
        }
    }
}

/// Something that is not as planned.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    /// Sort.
    pub kind: Kind,
    /// `missing`, `wrong-speed` and so on: the words of `rackwright fabric check`.
    pub what: String,
    /// Labels of the planned cables that it concerns.
    pub cables: Vec<String>,
    /// Both ends of these, `leaf-01/7` and `gpu-001/mlx5_0`; of a dozen cables at most.
    pub ends: Vec<[String; 2]>,
    /// Nodes on these cables.
    pub nodes: Vec<String>,
    /// The nodes have no full connection by it.
    pub impairs: bool,
    /// Cables between switches that carry less by it than was planned, or nothing.
    pub broken: Vec<String>,
    /// In words a technician can act on.
    pub text: String,
}

/// Faults by their ids.
pub type Faults = BTreeMap<String, Fault>;

/// What a discovered fabric has otherwise than the plan of the site. `up` are the nodes whose system should run.
///
/// Where most links run at another rate than the site says, that is the fabric's rate: it is told once, and what runs so is
/// taken for right.
///
/// # Errors
/// Not one planned cable is there: it is another fabric, or nothing of the site tells who is who.
pub fn compare(site: &Site, plan: &Plan, found: &Fabric, up: &BTreeSet<NodeId>) -> Result<Faults, String> {
    let labels: BTreeMap<&str, &Cable> = site.cables.iter().map(|cable| (&*cable.label, cable)).collect();
    let report = check(plan, found);
    let mut rates: BTreeMap<Rate, usize> = BTreeMap::new();
    for rate in report.faults.iter().filter_map(|fault| fault.runs) {
        *rates.entry(rate).or_default() += 1;
    }
    let there = report.right + rates.values().sum::<usize>();
    if there == 0 && report.cables > 0 {
        return Err(format!(
            "none of the site's {} cables is in the fabric that was discovered: it is another fabric, or the site has neither \
             its GUIDs nor its names",
            report.cables
        ));
    }
    let common = rates.iter().find(|(_, count)| **count * 2 > there);
    let common = common.map(|(rate, count)| (*rate, *count));
    let mut faults = Faults::new();
    if let Some((rate, count)) = common {
        let text = format!("{count} of {there} links run at {rate}, which is not what the site says of them");
        put(&mut faults, "cable/rate".to_owned(), plain(text));
    }
    let usual = common.map(|(rate, _)| rate);
    for fault in &report.faults {
        if usual.is_some() && fault.runs == usual {
            continue;
        }
        if let Some((id, fault)) = of_cable(site, &labels, fault, up) {
            put(&mut faults, id, fault);
        }
    }
    Ok(faults)
}

/// Something that there is to know, and nothing to act on.
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
    }
}

/// Ports of nodes whose system should run that were not found in the fabric.
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

/// Both together. Ports whose cables another fault names are not told again: its switch is gone, or somebody has just
/// looked and says more.
#[must_use]
pub fn together(cables: &Faults, ports: &Faults) -> Faults {
    let told: BTreeSet<&String> = cables.values().flat_map(|fault| &fault.cables).collect();
    let mut all = cables.clone();
    for (id, fault) in ports {
        let is_told = !fault.cables.is_empty() && fault.cables.iter().all(|cable| told.contains(cable));
        if !is_told {
            all.entry(id.clone()).or_insert_with(|| fault.clone());
        }
    }
    all
}

/// The nodes that have no full connection, each with the first reason.
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

/// The cables between switches that nobody can count on.
#[must_use]
pub fn broken(faults: &Faults) -> BTreeSet<String> {
    faults.values().flat_map(|fault| fault.broken.iter().cloned()).collect()
}

fn put(faults: &mut Faults, id: String, fault: Fault) {
    let mut place = id.clone();
    // Two of one kind at one cable, as an end that is loose twice: both are kept.
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
    }
}

fn ends(site: &Site, cables: &[&Cable]) -> Vec<[String; 2]> {
    let words = |cable: &&Cable| [site.port_name(cable.a), site.port_name(cable.b)];
    cables.iter().take(MAX_ENDS).map(words).collect()
}

/// The node at one end of a cable; none between switches.
fn host(cable: &Cable) -> Option<NodeId> {
    [cable.a, cable.b].into_iter().find_map(|end| match end {
        Port::Hca { node, .. } => Some(node),
        Port::Switch { .. } => None,
    })
}

/// Whether a link that is so is not the one that was planned, or less.
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
        | FaultKind::WrongPort
        | FaultKind::Extra
        | FaultKind::Rail => false,
    }
}

fn of_cable(
    site: &Site,
    labels: &BTreeMap<&str, &Cable>,
    fault: &CableFault,
    up: &BTreeSet<NodeId>,
) -> Option<(String, Fault)> {
    if fault.kind == FaultKind::DeviceUnknown {
        return None;
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
    // A port of one node, or all of them.
    if is_dark && alone {
        if hosts.is_disjoint(up) {
            return None;
        }
        let port = cables.iter().flat_map(|cable| [cable.a, cable.b]);
        let mut port = port.filter(|end| matches!(end, Port::Hca { .. }));
        let id = match (fault.kind, port.next()) {
            (FaultKind::Missing, Some(end)) => port_id(&site.port_name(end)),
            _ => node_id(&names[0]),
        };
        return Some((id, port_fault(site, &names[0], &cables, fault.text.clone())));
    }
    // Ports that are dark because they are cabled to what is gone, and those that are slow. What goes elsewhere has a link.
    let impairs = is_dark || matches!(fault.kind, FaultKind::WrongSpeed | FaultKind::WrongWidth);
    let about = fault.devices.first().filter(|_| cables.len() != 1);
    let about = about.or(fault.cables.first()).or(fault.devices.first());
    let id = format!("cable/{}/{}", fault.kind.word(), about.map_or("?", |name| name));
    let told = Fault {
        kind: Kind::Cable,
        what: fault.kind.word().to_owned(),
        cables: fault.cables.clone(),
        ends: ends(site, &cables),
        nodes: names,
        impairs,
        broken,
        text: fault.text.clone(),
    };
    Some((id, told))
}
