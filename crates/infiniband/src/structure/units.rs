//! Leaves with the same nodes, and whether adapters with the same number share a leaf.

use std::collections::{BTreeMap, BTreeSet};

use super::{Rails, SwitchView, Unit};
use crate::model::{DeviceIx, Fabric, Role};
use crate::name;

/// An adapter at a leaf, with its number in the node.
struct Attached<'a> {
    node: &'a str,
    number: u16,
    leaf: DeviceIx,
}

/// Finds the units and the rails of their leaves, and stores both in `switches`.
pub(super) fn units(
    fabric: &Fabric,
    switches: &mut [SwitchView],
    positions: &BTreeMap<DeviceIx, usize>,
) -> (Vec<Unit>, Rails) {
    let attached = attached(fabric, switches);
    let leaves: Vec<DeviceIx> = switches
        .iter()
        .filter(|v| v.role == Role::Leaf)
        .map(|v| v.device)
        .collect();
    let joined = join(&leaves, &attached);
    let mut units: Vec<Unit> = Vec::new();
    let mut place: BTreeMap<DeviceIx, usize> = BTreeMap::new();
    for leaf in &leaves {
        let root = joined[leaf];
        let at = *place.entry(root).or_insert(units.len());
        if at == units.len() {
            units.push(Unit::default());
        }
        place.insert(*leaf, at);
        units[at].leaves.push(*leaf);
        switches[positions[leaf]].unit = Some(at);
    }
    let numbers = leaf_numbers(&attached);
    let mut nodes: Vec<BTreeMap<&str, u32>> = vec![BTreeMap::new(); units.len()];
    let mut of_node: BTreeMap<&str, BTreeMap<usize, u32>> = BTreeMap::new();
    for adapter in &attached {
        *of_node
            .entry(adapter.node)
            .or_default()
            .entry(place[&adapter.leaf])
            .or_default() += 1;
    }
    for (node, at) in of_node {
        if let Some((unit, count)) = at.into_iter().max_by_key(|(unit, count)| (*count, usize::MAX - unit)) {
            nodes[unit].insert(node, count);
        }
    }
    for (unit, nodes) in units.iter_mut().zip(nodes) {
        unit.nodes = nodes.into_keys().map(str::to_owned).collect();
        unit.nodes.sort_by(|a, b| name::natural(a, b));
        unit.leaves
            .sort_by_key(|leaf| (numbers.get(leaf).map(|(number, _)| *number), *leaf));
    }
    let rails = rails(&units, &numbers, &attached);
    if matches!(rails, Rails::Optimised(_)) {
        for unit in &units {
            for (rail, leaf) in unit.leaves.iter().enumerate() {
                let view = &mut switches[positions[leaf]];
                view.rail = view.rail.or(u8::try_from(rail).ok());
            }
        }
    }
    (units, rails)
}

fn attached<'a>(fabric: &'a Fabric, switches: &[SwitchView]) -> Vec<Attached<'a>> {
    let mut attached = Vec::new();
    for view in switches.iter().filter(|view| view.role == Role::Leaf) {
        for (_, far, _) in fabric.neighbours(view.device) {
            let device = fabric.device(far.device);
            if let Some(host) = device.host() {
                attached.push(Attached {
                    node: host.machine,
                    number: device.rail.map_or(host.number, u16::from),
                    leaf: view.device,
                });
            }
        }
    }
    attached
}

/// Joins leaves that share more than half of the nodes of the smaller one. One crossed cable joins nothing.
fn join(leaves: &[DeviceIx], attached: &[Attached<'_>]) -> BTreeMap<DeviceIx, DeviceIx> {
    let mut of_node: BTreeMap<&str, BTreeSet<DeviceIx>> = BTreeMap::new();
    for adapter in attached {
        of_node.entry(adapter.node).or_default().insert(adapter.leaf);
    }
    let mut nodes: BTreeMap<DeviceIx, u32> = BTreeMap::new();
    let mut shared: BTreeMap<(DeviceIx, DeviceIx), u32> = BTreeMap::new();
    for leaves in of_node.values() {
        for a in leaves {
            *nodes.entry(*a).or_default() += 1;
            for b in leaves.range(a..).skip(1) {
                *shared.entry((*a, *b)).or_default() += 1;
            }
        }
    }
    let mut parent: BTreeMap<DeviceIx, DeviceIx> = leaves.iter().map(|leaf| (*leaf, *leaf)).collect();
    for ((a, b), count) in shared {
        if count * 2 > nodes[&a].min(nodes[&b]) {
            let (a, b) = (root(&parent, a), root(&parent, b));
            parent.insert(a.max(b), a.min(b));
        }
    }
    leaves.iter().map(|leaf| (*leaf, root(&parent, *leaf))).collect()
}

fn root(parent: &BTreeMap<DeviceIx, DeviceIx>, mut at: DeviceIx) -> DeviceIx {
    while parent[&at] != at {
        at = parent[&at];
    }
    at
}

/// For each leaf: the most frequent adapter number, and the counts of adapters with it and of all adapters.
pub(super) type LeafNumbers = BTreeMap<DeviceIx, (u16, (u32, u32))>;

fn leaf_numbers(attached: &[Attached<'_>]) -> LeafNumbers {
    let mut counts: BTreeMap<DeviceIx, BTreeMap<u16, u32>> = BTreeMap::new();
    for adapter in attached {
        *counts
            .entry(adapter.leaf)
            .or_default()
            .entry(adapter.number)
            .or_default() += 1;
    }
    let most = |counts: BTreeMap<u16, u32>| {
        let all = counts.values().sum();
        let (number, count) = counts
            .into_iter()
            .max_by_key(|(number, count)| (*count, u16::MAX - number))?;
        Some((number, (count, all)))
    };
    counts
        .into_iter()
        .filter_map(|(leaf, counts)| Some((leaf, most(counts)?)))
        .collect()
}

/// A fabric is rail-optimised if units have several leaves and nine of ten adapters have the number of their leaf.
fn rails(units: &[Unit], numbers: &LeafNumbers, attached: &[Attached<'_>]) -> Rails {
    let widest = units.iter().map(|unit| unit.leaves.len()).max().unwrap_or(0);
    let nodes: BTreeSet<&str> = attached.iter().map(|adapter| adapter.node).collect();
    if attached.is_empty() {
        return Rails::Unknown;
    }
    let agreeing: u32 = numbers.values().map(|(_, (most, _))| most).sum();
    let all: u32 = numbers.values().map(|(_, (_, all))| all).sum();
    let distinct = units.iter().all(|unit| {
        let of_unit: BTreeSet<u16> = unit
            .leaves
            .iter()
            .filter_map(|leaf| Some(numbers.get(leaf)?.0))
            .collect();
        of_unit.len() == unit.leaves.len()
    });
    // A single node allows no comparison, but one leaf for each of its adapters means rail-optimised.
    let optimised = widest > 1 && distinct && agreeing * 10 >= all * 9 && nodes.len() * widest >= all as usize / 2;
    match u8::try_from(widest) {
        Ok(rails) if optimised => Rails::Optimised(rails),
        _ => Rails::NotOptimised,
    }
}
