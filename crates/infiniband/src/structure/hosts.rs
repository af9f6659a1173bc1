//! The machines of a fabric, by the descriptions of their linked adapters.

use std::collections::BTreeMap;

use crate::model::{DeviceIx, Fabric};
use crate::rail::{self, Doubt};

/// A machine and its linked adapters.
pub(super) struct Machine<'a> {
    /// Its position in the list.
    pub(super) position: usize,
    pub(super) name: &'a str,
    /// In the order of the fabric.
    pub(super) adapters: Vec<DeviceIx>,
    /// The rail of each adapter, as a plan or the names give it.
    pub(super) rails: Vec<Option<u16>>,
    /// Names of adapters that other machines of its kind have.
    pub(super) lacking: Vec<&'a str>,
    pub(super) doubt: Option<Doubt>,
    /// The unit with most of its adapters.
    pub(super) unit: Option<usize>,
    /// Whether it has adapters on more than half of the unit's leaves. Others are not nodes of the unit's rails: the hosts
    /// of subnet managers, storage.
    pub(super) is_node: bool,
}

/// All machines, and the machine of each adapter.
pub(super) struct Machines<'a> {
    pub(super) list: Vec<Machine<'a>>,
    of: BTreeMap<DeviceIx, (usize, usize)>,
}

impl<'a> Machines<'a> {
    /// Takes time in proportion to n log n for n devices.
    pub(super) fn of(fabric: &'a Fabric) -> Self {
        let mut machines = Self {
            list: Vec::new(),
            of: BTreeMap::new(),
        };
        let mut by_name: BTreeMap<&str, usize> = BTreeMap::new();
        let mut names: Vec<Vec<&'a str>> = Vec::new();
        for (ix, device) in fabric.devices() {
            let Some(host) = device.host().filter(|_| fabric.neighbours(ix).next().is_some()) else {
                continue;
            };
            let at = *by_name.entry(host.machine).or_insert(names.len());
            if at == names.len() {
                names.push(Vec::new());
                machines.list.push(Machine {
                    position: at,
                    name: host.machine,
                    adapters: Vec::new(),
                    rails: Vec::new(),
                    lacking: Vec::new(),
                    doubt: None,
                    unit: None,
                    is_node: false,
                });
            }
            machines.of.insert(ix, (at, names[at].len()));
            machines.list[at].adapters.push(ix);
            names[at].push(host.adapter);
        }
        for (machine, agreed) in machines.list.iter_mut().zip(rail::agree(&names)) {
            let planned = machine.adapters.iter().map(|adapter| fabric.device(*adapter).rail);
            let planned: Vec<Option<u16>> = planned.map(|rail| rail.map(u16::from)).collect();
            if planned.iter().any(Option::is_some) {
                machine.rails = planned;
            } else {
                machine.rails = agreed.rails;
                machine.lacking = agreed.lacking;
                machine.doubt = agreed.doubt;
            }
        }
        machines
    }

    /// The machine of an adapter, and the adapter's rail.
    pub(super) fn at(&self, adapter: DeviceIx) -> Option<(&Machine<'a>, Option<u16>)> {
        let (machine, place) = *self.of.get(&adapter)?;
        let machine = &self.list[machine];
        Some((machine, machine.rails[place]))
    }

    /// The position of an adapter's machine in the list.
    pub(super) fn position(&self, adapter: DeviceIx) -> Option<usize> {
        self.of.get(&adapter).map(|(machine, _)| *machine)
    }
}
