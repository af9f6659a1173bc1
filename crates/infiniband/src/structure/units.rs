//! Leaves with the same nodes, and whether adapters of the same rail share a leaf.

use std::collections::{BTreeMap, BTreeSet};

use super::hosts::{Machine, Machines};
use super::{Rails, SwitchView, Unit};
use crate::model::{DeviceIx, Fabric, Role};
use crate::name;
use crate::rail::Doubt;

/// An adapter at a leaf.
struct Attached {
    /// Position in the list of machines.
    machine: usize,
    device: DeviceIx,
    leaf: DeviceIx,
}

/// Finds the units and the rails of their leaves, and stores both in `switches`, and the unit of each machine.
pub(super) fn units(
    fabric: &Fabric,
    switches: &mut [SwitchView],
    positions: &BTreeMap<DeviceIx, usize>,
    machines: &mut Machines<'_>,
) -> (Vec<Unit>, Rails, LeafNumbers) {
    let attached = attached(fabric, switches, machines);
    let leaves: Vec<DeviceIx> = switches
        .iter()
        .filter(|v| v.role == Role::Leaf && v.adapters > 0)
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
    settle(machines, &attached, &place, &mut units);
    let has_empty_leaf = switches
        .iter()
        .any(|view| view.role == Role::Leaf && view.adapters == 0);
    let numbers = leaf_numbers(machines, &attached, (&units, has_empty_leaf));
    for unit in &mut units {
        unit.leaves
            .sort_by_key(|leaf| (numbers.get(leaf).map(|(number, _)| *number), *leaf));
    }
    let rails = rails(&units, &numbers, machines);
    if matches!(rails, Rails::Optimised(_)) {
        leaf_rails(fabric, &units, &numbers, switches, positions);
    }
    (units, rails, numbers)
}

fn attached(fabric: &Fabric, switches: &[SwitchView], machines: &Machines<'_>) -> Vec<Attached> {
    let mut attached = Vec::new();
    for view in switches.iter().filter(|view| view.role == Role::Leaf) {
        for (_, far, _) in fabric.neighbours(view.device) {
            if let Some(machine) = machines.position(far.device) {
                attached.push(Attached {
                    machine,
                    device: far.device,
                    leaf: view.device,
                });
            }
        }
    }
    attached
}

/// Finds the unit of each machine, and lists the machines of each unit.
fn settle(machines: &mut Machines<'_>, attached: &[Attached], place: &BTreeMap<DeviceIx, usize>, units: &mut [Unit]) {
    let mut leaves_of: BTreeMap<usize, BTreeMap<usize, BTreeSet<DeviceIx>>> = BTreeMap::new();
    let mut counts: BTreeMap<(usize, usize), u32> = BTreeMap::new();
    for adapter in attached {
        let unit = place[&adapter.leaf];
        *counts.entry((adapter.machine, unit)).or_default() += 1;
        let of_machine = leaves_of.entry(adapter.machine).or_default();
        of_machine.entry(unit).or_default().insert(adapter.leaf);
    }
    for (machine, of_units) in leaves_of {
        let count = |unit: &usize| (counts[&(machine, *unit)], usize::MAX - unit);
        let Some((unit, leaves)) = of_units.into_iter().max_by_key(|(unit, _)| count(unit)) else {
            continue;
        };
        let machine = &mut machines.list[machine];
        let all = units[unit].leaves.len();
        machine.unit = Some(unit);
        machine.is_node = leaves.len() * 2 > all;
        let list = match machine.is_node {
            true => &mut units[unit].nodes,
            false => &mut units[unit].others,
        };
        list.push(machine.name.to_owned());
    }
    for unit in units {
        unit.nodes.sort_by(|a, b| name::natural(a, b).then_with(|| a.cmp(b)));
        unit.others.sort_by(|a, b| name::natural(a, b).then_with(|| a.cmp(b)));
    }
}

/// Joins leaves that share more than half of the nodes of the smaller one. One crossed cable joins nothing.
fn join(leaves: &[DeviceIx], attached: &[Attached]) -> BTreeMap<DeviceIx, DeviceIx> {
    let mut of_node: BTreeMap<usize, BTreeSet<DeviceIx>> = BTreeMap::new();
    for adapter in attached {
        of_node.entry(adapter.machine).or_default().insert(adapter.leaf);
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

/// For each leaf: the most frequent rail of its nodes' adapters, and the counts of adapters with it and of all adapters
/// with a rail.
pub(super) type LeafNumbers = BTreeMap<DeviceIx, (u16, (u32, u32))>;

/// Adapters with a certain rail decide. If a leaf has no such adapter, names that the kernel may have renumbered decide,
/// under one condition: at least three nodes agree and have an adapter on each leaf of their unit. In that case a leaf is
/// missing, not an adapter.
fn leaf_numbers(
    machines: &Machines<'_>,
    attached: &[Attached],
    (units, has_empty_leaf): (&[Unit], bool),
) -> LeafNumbers {
    let mut certain: BTreeMap<DeviceIx, BTreeMap<u16, u32>> = BTreeMap::new();
    let mut doubtful: BTreeMap<DeviceIx, BTreeMap<u16, u32>> = BTreeMap::new();
    for adapter in attached {
        // An adapter that is alone in its machine may be on any leaf.
        let votes = |machine: &Machine<'_>| machine.is_node && machine.adapters.len() + machine.lacking.len() > 1;
        let Some((machine, Some(rail))) = machines.at(adapter.device).filter(|(machine, _)| votes(machine)) else {
            continue;
        };
        let counts = match machine.doubt {
            None => &mut certain,
            Some(Doubt::Renumbered) => {
                let leaves = machine.unit.map_or(0, |unit| units[unit].leaves.len());
                if has_empty_leaf || machine.adapters.len() != leaves {
                    continue;
                }
                &mut doubtful
            }
            Some(_) => continue,
        };
        *counts.entry(adapter.leaf).or_default().entry(rail).or_default() += 1;
    }
    doubtful.retain(|leaf, counts| !certain.contains_key(leaf) && counts.values().any(|count| *count > 2));
    let most = |counts: BTreeMap<u16, u32>| {
        let all = counts.values().sum();
        let (number, count) = counts
            .into_iter()
            .max_by_key(|(number, count)| (*count, u16::MAX - number))?;
        Some((number, (count, all)))
    };
    certain
        .into_iter()
        .chain(doubtful)
        .filter_map(|(leaf, counts)| Some((leaf, most(counts)?)))
        .collect()
}

/// A fabric is rail-optimised if units have several leaves and nine of ten adapters have the rail of their leaf.
fn rails(units: &[Unit], numbers: &LeafNumbers, machines: &Machines<'_>) -> Rails {
    let widest = units.iter().map(|unit| unit.leaves.len()).max().unwrap_or(0);
    let nodes = machines.list.iter().filter(|machine| machine.is_node).count();
    if numbers.is_empty() {
        let known = machines
            .list
            .iter()
            .any(|machine| machine.is_node && machine.doubt.is_none());
        return if known { Rails::NotOptimised } else { Rails::Unknown };
    }
    let agreeing: u32 = numbers.values().map(|(_, (most, _))| most).sum();
    let all: u32 = numbers.values().map(|(_, (_, all))| all).sum();
    let distinct = units.iter().all(|unit| {
        let of_unit: Vec<u16> = unit
            .leaves
            .iter()
            .filter_map(|leaf| numbers.get(leaf).filter(|(_, (most, all))| most * 2 > *all))
            .map(|(number, _)| *number)
            .collect();
        let different: BTreeSet<&u16> = of_unit.iter().collect();
        different.len() == of_unit.len()
    });
    // A single node allows no comparison, but one leaf for each of its adapters means rail-optimised.
    let optimised = widest > 1 && distinct && agreeing * 10 >= all * 9 && nodes * widest >= all as usize / 2;
    match u8::try_from(widest) {
        Ok(rails) if optimised => Rails::Optimised(rails),
        _ => Rails::NotOptimised,
    }
}

/// Gives the leaves their rails. A leaf gets no rail if its adapters do not agree.
///
/// The rails of a plan are taken as they are. Other rails are positions among the adapters of a node, some of which may
/// go elsewhere: the rail of a leaf is its position among the leaves of the units with the most leaves. Units with at most
/// half as many leaves are of another kind, such as storage: their leaves get no rail.
fn leaf_rails(
    fabric: &Fabric,
    units: &[Unit],
    numbers: &LeafNumbers,
    switches: &mut [SwitchView],
    positions: &BTreeMap<DeviceIx, usize>,
) {
    let number = |leaf: &DeviceIx| {
        let (number, (most, all)) = numbers.get(leaf)?;
        (most * 2 > *all).then_some(*number)
    };
    let of_unit = |unit: &Unit| -> BTreeSet<u16> { unit.leaves.iter().filter_map(number).collect() };
    let widest = units.iter().map(|unit| of_unit(unit).len()).max().unwrap_or(0);
    let full: BTreeSet<BTreeSet<u16>> = units
        .iter()
        .map(of_unit)
        .filter(|numbers| numbers.len() == widest)
        .collect();
    let is_planned = |leaf: DeviceIx| {
        fabric
            .neighbours(leaf)
            .any(|(_, far, _)| fabric.device(far.device).rail.is_some() && fabric.device(far.device).is_adapter())
    };
    for unit in units {
        let own = of_unit(unit);
        for leaf in &unit.leaves {
            let Some(number) = number(leaf) else { continue };
            let rail = if is_planned(*leaf) {
                Some(usize::from(number))
            } else {
                // Each kind of full units that has the leaves of this one must give the same rail.
                let alike = own.len() * 2 > widest;
                let kinds = full.iter().filter(|kind| alike && kind.is_superset(&own));
                let rails: BTreeSet<usize> = kinds
                    .filter_map(|kind| kind.iter().position(|at| *at == number))
                    .collect();
                rails.first().copied().filter(|_| rails.len() == 1)
            };
            let view = &mut switches[positions[leaf]];
            view.rail = view.rail.or(rail.and_then(|rail| u8::try_from(rail).ok()));
        }
    }
}
