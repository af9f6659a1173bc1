//! What is missing, where the rest of the fabric is regular: leaves, nodes and adapters. Nothing of this is certain.

use std::collections::{BTreeMap, BTreeSet};

use super::hosts::{Machine, Machines};
use super::oddity::{Oddity, OddityKind, oddity};
use super::{Rails, Structure, Unit, called};
use crate::model::{DeviceIx, Fabric, PortRef, Role};
use crate::rail::Doubt;

/// Names that are listed in one finding at most.
const MAX_NAMED: usize = 8;

pub(super) fn find(fabric: &Fabric, all: &Structure, machines: &Machines<'_>, found: &mut Vec<Oddity>) {
    let empty = all.of_role(Role::Leaf).filter(|view| view.adapters == 0);
    for view in empty.filter(|view| view.uplinks() > 0) {
        let text = format!(
            "{}: a leaf without adapters; its nodes are suspected to be off or not cabled",
            called(fabric, view.device)
        );
        found.push(oddity(OddityKind::EmptyLeaf, text));
    }
    if all.rails == Rails::Unknown {
        return;
    }
    let mut nodes: Vec<Vec<&Machine<'_>>> = vec![Vec::new(); all.units.len()];
    for machine in machines.list.iter().filter(|machine| machine.is_node) {
        if let Some(unit) = machine.unit {
            nodes[unit].push(machine);
        }
    }
    let hall = Hall {
        fabric,
        all,
        machines,
        leaves: all.units.iter().map(|unit| unit.leaves.len()).max().unwrap_or(0),
    };
    let ports: Vec<Ports> = all
        .units
        .iter()
        .zip(&nodes)
        .map(|(unit, nodes)| Ports::of(fabric, unit, nodes))
        .collect();
    let from = ports.iter().filter_map(Ports::range).map(|(first, _)| first).min();
    for (at, (unit, nodes)) in all.units.iter().zip(&nodes).enumerate() {
        hall.leaf(unit, nodes, found);
        hall.adapters(unit, nodes, found);
        hall.nodes(unit, at, (&ports, from.unwrap_or(1)), found);
    }
}

struct Hall<'a> {
    fabric: &'a Fabric,
    all: &'a Structure,
    machines: &'a Machines<'a>,
    /// Leaves of the units with most leaves.
    leaves: usize,
}

impl Hall<'_> {
    fn is_optimised(&self) -> bool {
        matches!(self.all.rails, Rails::Optimised(_))
    }

    fn unit_words(&self, unit: &Unit) -> String {
        unit.leaves
            .first()
            .map_or_else(String::new, |leaf| format!("unit of {}", called(self.fabric, *leaf)))
    }

    /// A unit with fewer leaves than others, most nodes of which lack the adapters for the missing ones.
    fn leaf(&self, unit: &Unit, nodes: &[&Machine<'_>], found: &mut Vec<Oddity>) {
        let gone = self.leaves - unit.leaves.len();
        if gone == 0 || !self.is_optimised() {
            return;
        }
        let lack = |machine: &&&Machine<'_>| machine.lacking.len() == gone;
        let lacking = nodes.iter().filter(lack).count();
        let Some(first) = nodes.iter().find(lack).filter(|_| lacking * 2 > nodes.len()) else {
            return;
        };
        let (leaf, are) = match gone {
            1 => ("a leaf".to_owned(), "is"),
            _ => (format!("{gone} leaves"), "are"),
        };
        let text = format!(
            "{}: {leaf} for {} {are} suspected to be missing: {lacking} of {} nodes lack these adapters, and other units \
             have {} leaves",
            self.unit_words(unit),
            first.lacking.join(", "),
            nodes.len(),
            self.leaves
        );
        found.push(oddity(OddityKind::MissingLeaf, text));
    }

    /// Nodes with fewer adapters than others of the unit, and nodes with unknown rails.
    fn adapters(&self, unit: &Unit, nodes: &[&Machine<'_>], found: &mut Vec<Oddity>) {
        let all = unit.leaves.len();
        let whole = nodes.iter().filter(|machine| machine.adapters.len() >= all).count();
        for machine in nodes {
            let on: BTreeSet<DeviceIx> = machine
                .adapters
                .iter()
                .flat_map(|adapter| self.leaves_of(*adapter))
                .collect();
            let has = machine.adapters.len();
            if self.is_optimised() && all > 1 {
                let open: Vec<&DeviceIx> = unit.leaves.iter().filter(|leaf| !on.contains(leaf)).collect();
                if has < all && whole * 2 > nodes.len() && !open.is_empty() {
                    let leaves: Vec<String> = open.iter().map(|leaf| called(self.fabric, **leaf)).collect();
                    found.push(missing_adapter(machine, all, &leaves));
                    continue;
                }
            } else if matches!(machine.doubt, None | Some(Doubt::Renumbered)) && !machine.lacking.is_empty() {
                found.push(missing_adapter(machine, has + machine.lacking.len(), &[]));
                continue;
            }
            let doubt = machine.doubt.filter(|_| has > 1 && self.is_optimised());
            if let Some(doubt) = doubt.filter(|doubt| *doubt != Doubt::Renumbered || machine.lacking.is_empty()) {
                let text = format!("node {}: its rails are unknown: {doubt}", machine.name);
                found.push(oddity(OddityKind::UnknownRails, text));
            }
        }
    }

    fn leaves_of(&self, adapter: DeviceIx) -> impl Iterator<Item = DeviceIx> {
        self.fabric.neighbours(adapter).map(|(_, far, _)| far.device)
    }

    /// Ports before and between the ports of nodes that no leaf of the unit uses. Ports after the last node may be spare.
    fn nodes(&self, unit: &Unit, at: usize, (ports, from): (&[Ports], u8), found: &mut Vec<Oddity>) {
        let own = &ports[at];
        if !self.is_optimised() || unit.leaves.len() < 2 || !own.is_regular {
            return;
        }
        for (first, last) in own.gaps(from) {
            let (mut others, mut used) = (0, false);
            for other in ports
                .iter()
                .enumerate()
                .filter(|(other, _)| *other != at)
                .map(|(_, other)| other)
            {
                if other
                    .range()
                    .is_some_and(|(lowest, highest)| lowest <= first && last <= highest)
                {
                    others += 1;
                    used |= (first..=last).any(|port| other.nodes.contains_key(&port));
                }
            }
            // Where every other unit has the gap too, the gap is meant.
            if others > 0 && !used {
                continue;
            }
            let places = match first == last {
                true => format!("port {first}"),
                false => format!("ports {first} to {last}"),
            };
            let text = format!(
                "{}: {places} of its {} leaves {} no adapter, but other ports beside have; {} suspected to be off or not \
                 cabled",
                self.unit_words(unit),
                unit.leaves.len(),
                if first == last { "has" } else { "have" },
                self.between(own, first, last)
            );
            found.push(oddity(OddityKind::MissingNode, text));
        }
    }

    /// The nodes of a gap by name, if the names before and after are numbered: `node gpu0007 is`.
    fn between(&self, ports: &Ports, first: u8, last: u8) -> String {
        let count = usize::from(last - first) + 1;
        let name = |port: u8| Some(self.machines.list[*ports.nodes.get(&port)?].name);
        let names = name(first - 1).zip(name(last + 1));
        let names = names.and_then(|(before, after)| numbered_between(before, after, count));
        let names = names.filter(|names| {
            let known = |name: &String| self.machines.list.iter().any(|machine| machine.name == *name);
            !names.iter().any(known)
        });
        match (names.as_deref(), count) {
            (Some([name]), _) => format!("node {name} is"),
            (Some([from, .., to]), _) => format!("nodes {from} to {to} are"),
            (_, 1) => "a node is".to_owned(),
            (_, count) => format!("{count} nodes are"),
        }
    }
}

/// An adapter of a node that is not seen, and the leaves on which none is.
fn missing_adapter(machine: &Machine<'_>, all: usize, leaves: &[String]) -> Oddity {
    let has = machine.adapters.len();
    let mut text = format!("node {}: {has} of {all} adapters are seen", machine.name);
    if !leaves.is_empty() {
        let more = leaves.len().saturating_sub(MAX_NAMED);
        let named: Vec<&str> = leaves.iter().take(MAX_NAMED).map(String::as_str).collect();
        text.push_str(&format!(", none on {}", named.join(", ")));
        if more > 0 {
            text.push_str(&format!(" and {more} more"));
        }
    }
    let certain = machine.doubt.is_none() && !machine.lacking.is_empty();
    let what = match certain {
        true => machine
            .lacking
            .iter()
            .take(MAX_NAMED)
            .copied()
            .collect::<Vec<_>>()
            .join(", "),
        false => "an adapter".to_owned(),
    };
    text.push_str(&format!("; {what} or its cable is suspected to be faulty"));
    oddity(OddityKind::MissingAdapter, text)
}

/// The names between `gpu0006` and `gpu0008`, if there are as many as this.
fn numbered_between(before: &str, after: &str, count: usize) -> Option<Vec<String>> {
    let split = |name: &str| {
        let at = name.trim_end_matches(|c: char| c.is_ascii_digit()).len();
        let (stem, digits) = name.split_at(at);
        Some((stem.to_owned(), digits.len(), digits.parse::<usize>().ok()?))
    };
    let (from, to) = (split(before)?, split(after)?);
    let padded = from.1 == to.1;
    let fits = from.0 == to.0 && from.2.checked_add(count + 1) == Some(to.2);
    let width = if padded { from.1 } else { 0 };
    let (stem, number) = (from.0, from.2);
    fits.then(|| {
        (1..=count)
            .map(|step| format!("{stem}{:0width$}", number + step))
            .collect()
    })
}

/// The ports of a unit's leaves.
struct Ports {
    /// The node at a port, by position in the list of machines.
    nodes: BTreeMap<u8, usize>,
    /// Ports that some leaf of the unit uses.
    used: BTreeSet<u8>,
    /// Whether nearly all nodes have the same port on all leaves.
    is_regular: bool,
}

impl Ports {
    fn of(fabric: &Fabric, unit: &Unit, nodes: &[&Machine<'_>]) -> Self {
        let leaves: BTreeSet<DeviceIx> = unit.leaves.iter().copied().collect();
        let used = unit
            .leaves
            .iter()
            .flat_map(|leaf| fabric.neighbours(*leaf).map(|(port, _, _)| port))
            .collect();
        let mut ports = Self {
            nodes: BTreeMap::new(),
            used,
            is_regular: false,
        };
        let mut regular = 0;
        for machine in nodes {
            let far = machine.adapters.iter().flat_map(|adapter| fabric.neighbours(*adapter));
            let far = far.map(|(_, far, _)| far).filter(|far| leaves.contains(&far.device));
            let own: BTreeSet<u8> = far.map(|PortRef { port, .. }| port).collect();
            regular += usize::from(own.len() == 1);
            for port in own {
                ports.nodes.insert(port, machine.position);
            }
        }
        ports.is_regular = regular * 4 > nodes.len() * 3;
        ports
    }

    /// The lowest and the highest port with a node.
    fn range(&self) -> Option<(u8, u8)> {
        let (first, _) = self.nodes.first_key_value()?;
        let (last, _) = self.nodes.last_key_value()?;
        Some((*first, *last))
    }

    /// Runs of unused ports from a port to the last node. Empty if more than a quarter is unused: then nodes are not side
    /// by side.
    fn gaps(&self, from: u8) -> Vec<(u8, u8)> {
        let Some((first, last)) = self.range() else {
            return Vec::new();
        };
        let first = first.min(from);
        let unused: Vec<u8> = (first..=last).filter(|port| !self.used.contains(port)).collect();
        if unused.len() * 4 > usize::from(last - first) + 1 {
            return Vec::new();
        }
        let mut gaps: Vec<(u8, u8)> = Vec::new();
        for port in unused {
            match gaps.last_mut() {
                Some((_, last)) if *last + 1 == port => *last = port,
                _ => gaps.push((port, port)),
            }
        }
        gaps
    }
}

#[cfg(test)]
mod tests {
    use super::numbered_between;

    #[test]
    fn names_between_numbered_names_are_known_only_if_all_fit() {
        let between = |before: &str, after: &str, count: usize| numbered_between(before, after, count);
        assert_eq!(between("gpu0006", "gpu0008", 1), Some(vec!["gpu0007".to_owned()]));
        assert_eq!(
            between("gpu9", "gpu12", 2),
            Some(vec!["gpu10".to_owned(), "gpu11".to_owned()])
        );
        for (before, after, count) in [
            ("gpu0006", "gpu0009", 1),
            ("gpu0006", "cpu0008", 1),
            ("gpu0008", "gpu0006", 1),
            ("a", "b", 1),
        ] {
            assert_eq!(between(before, after, count), None, "{before} {after}");
        }
    }
}
