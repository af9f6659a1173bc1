//! Units of exchange: a switch, or all adapters of one machine.

use std::collections::BTreeMap;

use crate::model::{DeviceIx, DeviceKind};
use crate::name;
use crate::plan::Plan;

/// One switch, the planned adapters of one machine, or an adapter with a name that names no machine.
pub(super) struct Unit {
    /// The name of the machine or of the only device, as the plan writes it.
    pub(super) name: String,
    pub(super) kind: DeviceKind,
    /// Whether `name` is the name of a machine.
    pub(super) is_machine: bool,
    /// The devices, in the order of the plan.
    pub(super) devices: Vec<DeviceIx>,
}

impl Unit {
    /// `switch`, `node`, `channel adapter`
    pub(super) fn noun(&self) -> &'static str {
        if self.is_machine { "node" } else { self.kind.noun() }
    }
}

/// All units, and the unit of each device.
pub(super) struct Units {
    list: Vec<Unit>,
    of: Vec<usize>,
    /// For each device a number of its name in its unit. Equal names have equal numbers.
    slots: Vec<u32>,
}

impl Units {
    /// Takes time in proportion to n log n for n devices.
    pub(super) fn of(plan: &Plan) -> Self {
        let mut units = Self {
            list: Vec::new(),
            of: Vec::new(),
            slots: Vec::new(),
        };
        let mut slots: BTreeMap<String, u32> = BTreeMap::new();
        let mut machines: BTreeMap<String, usize> = BTreeMap::new();
        for (ix, device) in plan.fabric().devices() {
            let machine = device.is_adapter().then(|| name::machine(&device.name)).flatten();
            let next = units.list.len();
            let at = match machine {
                Some((machine, _)) => *machines.entry(name::key(machine)).or_insert(next),
                None => next,
            };
            if at == next {
                units.list.push(Unit {
                    name: machine
                        .map_or(name::proper(&device.name), |(machine, _)| machine)
                        .to_owned(),
                    kind: device.kind,
                    is_machine: machine.is_some(),
                    devices: Vec::new(),
                });
            }
            units.list[at].devices.push(ix);
            units.of.push(at);
            let adapter = machine
                .map(|(_, adapter)| adapter.to_ascii_lowercase())
                .unwrap_or_default();
            let slot = slots.len() as u32;
            units.slots.push(*slots.entry(adapter).or_insert(slot));
        }
        units
    }

    pub(super) fn all(&self) -> impl ExactSizeIterator<Item = (usize, &Unit)> {
        self.list.iter().enumerate()
    }

    pub(super) fn get(&self, at: usize) -> &Unit {
        &self.list[at]
    }

    pub(super) fn at(&self, device: DeviceIx) -> usize {
        self.of[device.0 as usize]
    }

    /// The number of a device's name in its unit: the same in all units for the same adapter.
    pub(super) fn slot(&self, device: DeviceIx) -> u32 {
        self.slots[device.0 as usize]
    }

    /// `leaf-12`, `node gpu-093`
    pub(super) fn words(&self, plan: &Plan, at: usize) -> String {
        let unit = self.get(at);
        match unit.devices.first() {
            Some(device) if !unit.is_machine => plan.device_text(*device),
            _ => format!("node {}", unit.name),
        }
    }
}

/// The cycles in `next`, each from its lowest member on. Takes time in proportion to the length of `next`.
pub(super) fn rings(next: &[Option<usize>]) -> Vec<Vec<usize>> {
    // The walk that visited each place, from 1; 0: not visited.
    let mut seen = vec![0; next.len()];
    let mut rings = Vec::new();
    for first in 0..next.len() {
        let walk = first + 1;
        let (mut at, mut path) = (first, Vec::new());
        while seen[at] == 0 {
            seen[at] = walk;
            path.push(at);
            match next[at] {
                Some(far) => at = far,
                None => break,
            }
        }
        let closed = next[at].is_some() && seen[at] == walk;
        let from = path.iter().position(|member| *member == at);
        if let Some(from) = from.filter(|_| closed && next[*path.last().unwrap_or(&at)] == Some(at)) {
            let mut ring = path.split_off(from);
            let lowest = (0..ring.len()).min_by_key(|at| ring[*at]).unwrap_or(0);
            ring.rotate_left(lowest);
            rings.push(ring);
        }
    }
    rings
}

#[cfg(test)]
mod tests {
    use super::rings;

    #[test]
    fn cycles_are_found_and_what_only_leads_to_them_is_not() {
        let next = [
            Some(3),
            None,
            Some(0),
            Some(4),
            Some(3),
            Some(5),
            Some(7),
            Some(6),
            Some(1),
        ];
        assert_eq!(rings(&next), [vec![3, 4], vec![5], vec![6, 7]]);
        assert_eq!(rings(&[Some(2), Some(0), Some(1)]), [vec![0, 2, 1]]);
        assert_eq!(rings(&[]), Vec::<Vec<usize>>::new());
    }
}
