//! Imports device types of nodes as SKUs.

use std::collections::{BTreeMap, BTreeSet};

use super::cables::{PartKind, in_order, most};
use super::{Class, Importer, Part};
use crate::draft::{Psus, Sku};
use crate::names::slug;
use crate::site_speed;
use rackwright_infiniband::adapter;

impl<'a> Importer<'a> {
    /// Assigns a SKU to each node. SKUs missing in the SKU file are described as far as NetBox knows them.
    pub(super) fn skus(&mut self) {
        let mut unknown: BTreeMap<&'a str, Vec<usize>> = BTreeMap::new();
        for (at, device) in self.devices.iter().enumerate() {
            let Class::Node(node) = device.class else { continue };
            let name = match self.options.skus.get(device.kind) {
                Some(name) => name.clone(),
                None => slug(device.kind),
            };
            let known = self
                .options
                .options
                .skus
                .is_some_and(|skus| skus.named(&name).is_some());
            if !known {
                unknown.entry(device.kind).or_default().push(at);
            }
            if let Some(node) = self.draft.nodes.get_mut(node) {
                node.sku = name;
            }
        }
        let mut done: BTreeSet<String> = BTreeSet::new();
        for (kind, devices) in unknown {
            let name = match self.options.skus.get(kind) {
                Some(name) => name.clone(),
                None => slug(kind),
            };
            if done.insert(name.clone()) {
                let sku = self.sku(name, kind, &devices);
                self.draft.skus.push(sku);
            }
        }
        self.draft.skus.sort_by(|a, b| in_order(&a.name, &b.name));
    }

    fn sku(&self, name: String, kind: &str, devices: &[usize]) -> Sku {
        let mut sku = Sku { name, ..Sku::default() };
        super::renamed(&mut sku.remarks, &sku.name, kind);
        let mut hcas: BTreeSet<String> = BTreeSet::new();
        for device in devices {
            hcas.extend(self.hca_names(*device).into_iter().map(|(_, name)| name));
        }
        sku.hcas = hcas.into_iter().collect();
        sku.hcas.sort_by(|a, b| adapter::in_order(a, b));
        let speed = most(
            devices
                .iter()
                .flat_map(|device| self.interfaces(*device))
                .map(|(_, _, speed)| speed),
        );
        sku.speed = speed.map(|speed| site_speed(speed, "hca_speed", &mut sku.remarks));
        if sku.hcas.len() > 1 {
            let what = "rails are in the order of the interfaces' names";
            sku.remarks
                .assumed("hcas", what, "write the HCAs in the order of the rails");
        }
        self.power_of(&mut sku, devices);
        match self.height(kind) {
            Some(units) if (0.5..=120.0).contains(&units) => sku.height_units = Some(units.ceil() as u16),
            _ => {
                let what = format!("NetBox has no height of a {kind}");
                sku.remarks
                    .missing("height_units", what, "export device types, or write the height here");
            }
        }
        let weight = self.device_type(kind).and_then(|row| row.kilograms("weight"));
        sku.weight_kg = weight.filter(|kg| (0.0..=10_000.0).contains(kg));
        sku
    }

    /// Reads the power figures from the power ports of the first device.
    fn power_of(&self, sku: &mut Sku, devices: &[usize]) {
        let ports: Vec<&Part<'_>> = devices
            .first()
            .map(|device| self.power_ports(*device))
            .unwrap_or_default();
        let positive = |watts: f64| (watts >= 1.0).then_some(watts);
        let all = |column: &str| -> Option<Vec<f64>> {
            let watts: Option<Vec<f64>> = ports
                .iter()
                .map(|port| port.row.number(column).and_then(positive))
                .collect();
            watts.filter(|watts| !watts.is_empty())
        };
        let (maximum, allocated) = (all("maximum"), all("allocated"));
        match &maximum {
            Some(watts) => {
                let least = watts.iter().copied().fold(f64::INFINITY, f64::min);
                let what =
                    "NetBox has no number of needed PSUs: all are assumed, so no node survives the loss of a feed";
                sku.remarks.assumed("psus", what, "write the number of `needed` PSUs");
                sku.psus = Some(Psus {
                    count: watts.len(),
                    watts: least,
                    needed: watts.len(),
                });
            }
            None => {
                let what = "power ports have no maximum draw: count, watts and needed PSUs are not known";
                sku.remarks.missing(
                    "psus",
                    what,
                    "describe the SKU in a SKU file (--sku-file), or write it here",
                );
            }
        }
        sku.max_watts = match (allocated, maximum) {
            (Some(watts), _) => {
                let what = "the sum of the allocated draw of the power ports in NetBox is assumed";
                sku.remarks.assumed(
                    "power",
                    what,
                    "write the maximum draw of a node: this power is reserved",
                );
                Some(watts.iter().sum())
            }
            (None, Some(watts)) => {
                let what = "power ports have no allocated draw: the maximum draw of all PSUs is assumed";
                sku.remarks.assumed(
                    "power",
                    what,
                    "write the maximum draw of a node: this power is reserved",
                );
                Some(watts.iter().sum())
            }
            (None, None) => {
                let what = "power ports have no draw: the draw of a node is not known";
                sku.remarks.missing(
                    "power",
                    what,
                    "describe the SKU in a SKU file (--sku-file), or write it here",
                );
                None
            }
        };
    }

    /// The power ports of a device in natural order: its PSUs.
    pub(super) fn power_ports(&self, device: usize) -> Vec<&Part<'a>> {
        self.power_ports_at(device).into_iter().map(|(_, part)| part).collect()
    }

    pub(super) fn power_ports_at(&self, device: usize) -> Vec<(usize, &Part<'a>)> {
        let parts = &self.parts[PartKind::PowerPort as usize];
        let first = parts.partition_point(|part| part.device < Some(device));
        let own = parts.iter().enumerate().skip(first);
        own.take_while(|(_, part)| part.device == Some(device)).collect()
    }

    /// The HCA names of a node's SKU.
    pub(super) fn hcas_of(&self, node: usize) -> BTreeSet<String> {
        let Some(node) = self.draft.nodes.get(node) else {
            return BTreeSet::new();
        };
        if let Some(sku) = self.options.options.skus.and_then(|skus| skus.named(&node.sku)) {
            return sku.hcas.iter().map(|hca| hca.name.to_string()).collect();
        }
        let own = self.draft.skus.iter().find(|sku| sku.name == node.sku);
        own.map(|sku| sku.hcas.iter().cloned().collect()).unwrap_or_default()
    }
}
