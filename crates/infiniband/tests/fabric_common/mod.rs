//! Fabrics that differ from their plans, for the tests of the comparison.

#![allow(dead_code)] // no test uses them all

use std::collections::BTreeSet;

use rackwright_infiniband::check::{Report, check};
use rackwright_infiniband::{
    Device, Fabric, FabricBuilder, FatTree, FaultKind, Guid, Plan, PlannedCable, PlannedDevice, PortRef, Rate,
};

/// How the discovered fabric tells who is who.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Known {
    /// GUIDs, descriptions are generic.
    Guids,
    /// Descriptions; the plan knows no GUIDs.
    Names,
    /// GUIDs and descriptions.
    Both,
    /// GUIDs of switches; adapters have generic descriptions, and the plan knows no GUIDs of them.
    Switches,
    /// Nothing: descriptions are generic, and the plan knows no GUIDs.
    Shape,
}

pub const EVERY: [Known; 5] = [Known::Guids, Known::Names, Known::Both, Known::Switches, Known::Shape];

#[derive(Debug, Clone)]
pub struct Lab {
    pub devices: Vec<PlannedDevice>,
    pub cables: Vec<PlannedCable>,
}

impl Lab {
    pub fn new(hosts: u32, rails: u8, radix: u8) -> Self {
        Self::of(&FatTree {
            rails,
            radix,
            ..FatTree::rail_optimised(hosts)
        })
    }

    pub fn of(tree: &FatTree) -> Self {
        let (devices, cables) = tree.plan().expect("a tree");
        Self { devices, cables }
    }

    fn has_guid(&self, at: usize, known: Known) -> bool {
        match known {
            Known::Guids | Known::Both => true,
            Known::Names | Known::Shape => false,
            Known::Switches => self.devices[at].kind == rackwright_infiniband::DeviceKind::Switch,
        }
    }

    pub fn plan(&self, known: Known) -> Plan {
        let mut devices = self.devices.clone();
        for (at, device) in devices.iter_mut().enumerate() {
            device.guid = device.guid.filter(|_| self.has_guid(at, known));
        }
        Plan::new(&devices, &self.cables).expect("a plan")
    }

    /// What would be discovered with these cables: devices without link are not.
    pub fn discover(&self, cables: &[PlannedCable], known: Known) -> Fabric {
        self.describe(cables, |at| match known {
            Known::Guids | Known::Switches | Known::Shape => "Quantum Mellanox Technologies".to_owned(),
            Known::Names | Known::Both => self.devices[at].name.clone(),
        })
    }

    /// The same, where these are the descriptions of the devices.
    pub fn describe(&self, cables: &[PlannedCable], name: impl Fn(usize) -> String) -> Fabric {
        let linked: BTreeSet<usize> = cables.iter().flat_map(|cable| [cable.a.0, cable.b.0]).collect();
        self.listed(cables, |at| linked.contains(&at), name)
    }

    /// A list of these devices, with or without link.
    pub fn listed(
        &self,
        cables: &[PlannedCable],
        is_listed: impl Fn(usize) -> bool,
        name: impl Fn(usize) -> String,
    ) -> Fabric {
        let mut builder = FabricBuilder::default();
        let mut ixs = vec![None; self.devices.len()];
        // Another order than the plan's.
        for (at, device) in self.devices.iter().enumerate().rev().filter(|(at, _)| is_listed(*at)) {
            let guid = device.guid.or(Guid::new(0x1000 + at as u64));
            ixs[at] = Some(builder.device(Device {
                guid,
                ..Device::new(device.kind, &name(at), device.port_count)
            }));
        }
        for cable in cables {
            let end = |(device, port): (usize, u8)| PortRef {
                device: ixs[device].expect("a linked device"),
                port,
            };
            let rate = cable.speed.zip(cable.width).map(|(speed, width)| Rate { width, speed });
            builder.connect(end(cable.a), end(cable.b), rate).expect("free ports");
        }
        builder.finish()
    }

    pub fn device(&self, name: &str) -> usize {
        self.devices
            .iter()
            .position(|device| device.name == name)
            .expect("a device")
    }

    pub fn cable_of(&self, name: &str) -> usize {
        let device = self.device(name);
        self.cables
            .iter()
            .position(|cable| cable.b.0 == device)
            .expect("a cable")
    }

    pub fn checked(&self, cables: &[PlannedCable], known: Known) -> Report {
        check(&self.plan(known), &self.discover(cables, known))
    }

    /// The cables where each device stands in the place of another one.
    pub fn stand(&self, place_of: impl Fn(usize) -> usize) -> Vec<PlannedCable> {
        let mut cables = self.cables.clone();
        for cable in &mut cables {
            (cable.a.0, cable.b.0) = (place_of(cable.a.0), place_of(cable.b.0));
        }
        cables
    }

    /// The cables where these devices, or the devices of these nodes, stand in each other's places.
    pub fn exchanged(&self, a: &str, b: &str) -> Vec<PlannedCable> {
        self.stand(|at| {
            let name = &self.devices[at].name;
            let (unit, adapter) = match name.split_once(' ') {
                Some((unit, adapter)) => (unit, format!(" {adapter}")),
                None => (name.as_str(), String::new()),
            };
            match unit {
                unit if unit == a => self.device(&format!("{b}{adapter}")),
                unit if unit == b => self.device(&format!("{a}{adapter}")),
                _ => at,
            }
        })
    }

    /// The cables that are left while these devices are off.
    pub fn without(&self, gone: impl Fn(&str) -> bool) -> Vec<PlannedCable> {
        let is_gone = |end: (usize, u8)| gone(&self.devices[end.0].name);
        let cables = self.cables.iter();
        cables
            .filter(|cable| !is_gone(cable.a) && !is_gone(cable.b))
            .cloned()
            .collect()
    }
}

pub fn kinds(report: &Report) -> Vec<FaultKind> {
    report.faults.iter().map(|fault| fault.kind).collect()
}
