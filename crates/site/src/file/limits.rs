//! Compares the equipment of racks and rooms with their limits. Excess weight is an error. Excess watts are a warning,
//! because reservations stay within the limits in any case.

use super::Draft;
use crate::finding::Sink;
use crate::model::{CoolingKind, DomainId};
use crate::power::capacity_watts;

pub(super) fn check(draft: &Draft, sink: &mut Sink) {
    racks(draft, sink);
    power(draft, sink);
    rooms(draft, sink);
}

#[derive(Clone, Copy, Default)]
struct Load {
    kg: f64,
    air_watts: f64,
}

fn racks(draft: &Draft, sink: &mut Sink) {
    let site = &draft.site;
    let mut loads = vec![Load::default(); site.racks.len()];
    for node in &site.nodes {
        if node.rack.is_none() || node.sku.is_none() {
            continue;
        }
        let sku = site.sku(node.sku);
        let load = &mut loads[node.rack.index()];
        load.kg += sku.weight_kg;
        load.air_watts += sku.power.max_watts * (1.0 - sku.liquid_share);
    }
    for (id, (rack, load)) in site.racks.iter().zip(&loads).enumerate() {
        let entry = draft.racks.entry(id as u32);
        if let Some(limit) = rack.weight_limit_kg.filter(|limit| load.kg > *limit) {
            let what = format!(
                "the nodes in rack {} weigh {:.0} kg, but the limit is {limit:.0} kg",
                rack.name, load.kg
            );
            entry.error(sink, "weight_limit_kg", what, "put fewer nodes into the rack");
        }
        if let Some(limit) = rack.air_heat_limit_watts.filter(|limit| load.air_watts > *limit) {
            let what = format!(
                "the nodes in rack {} give off up to {:.0} W to air, but the limit is {limit:.0} W",
                rack.name, load.air_watts
            );
            entry.warning(
                sink,
                "air_heat_limit_watts",
                what,
                "not all of these nodes can be reserved at the same time",
            );
        }
    }
}

/// Rack PDUs and circuits with a load above their capacity while all feeds are live.
fn power(draft: &Draft, sink: &mut Sink) {
    let site = &draft.site;
    let mut loads: Vec<f64> = site.domains.iter().map(|domain| domain.other_watts).collect();
    for node in &site.nodes {
        if node.sku.is_none() {
            continue;
        }
        let live = node.psus.iter().flatten().count();
        let share = site.sku(node.sku).power.max_watts / live as f64;
        for plug in node.psus.iter().flatten() {
            loads[plug.pdu.index()] += share;
        }
    }
    for id in (0..site.domains.len()).rev() {
        if let Some(parent) = site.domains[id].parent.filter(|id: &DomainId| !id.is_none()) {
            loads[parent.index()] += loads[id];
        }
    }
    for (id, (domain, load)) in site.domains.iter().zip(&loads).enumerate() {
        let capacity = capacity_watts(domain);
        if *load > capacity * (1.0 + 1e-9) {
            let what = format!(
                "the load of {} is up to {load:.0} W, but the capacity is {capacity:.0} W",
                domain.name
            );
            let entry = draft.domains.entry(id as u32);
            entry.warning(
                sink,
                "name",
                what,
                "not all of this load can be reserved at the same time",
            );
        }
    }
}

/// Rooms with nodes that neither a CRAH nor a rear door cools. A site without cooling units is not checked.
fn rooms(draft: &Draft, sink: &mut Sink) {
    let site = &draft.site;
    if site.cooling_units.is_empty() || draft.cooling_units.lost {
        return;
    }
    let mut cooled = vec![false; site.rooms.len()];
    for unit in &site.cooling_units {
        if unit.kind == CoolingKind::Crah && !unit.room.is_none() {
            cooled[unit.room.index()] = true;
        }
    }
    for node in &site.nodes {
        if node.rack.is_none() {
            continue;
        }
        let rack = site.rack(node.rack);
        if rack.room.is_none() || rack.rear_door.is_some() || cooled[rack.room.index()] {
            continue;
        }
        let what = format!(
            "room {} has nodes, but nothing cools its air",
            site.room(rack.room).name
        );
        draft.rooms.entry(rack.room.0).warning(
            sink,
            "name",
            what,
            "add crah units to the room, or rear doors to its racks",
        );
    }
}
