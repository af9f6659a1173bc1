//! Sections `switches` and `cables`.

use super::fields::{Cycle, Entry, Fields};
use super::nodes::{hca_names, parse_guid};
use super::rooms::MAX_UNITS;
use super::suggestion::nearest;
use super::{Draft, Sections, item_fields};
use crate::finding::Sink;
use crate::model::{Cable, NodeId, Port, RackId, Speed, Switch, SwitchId, SwitchRole};

/// Maximum number of ports of a switch.
const MAX_PORTS: u32 = 4096;

pub(super) fn read_switches(draft: &mut Draft, sections: &Sections<'_>, sink: &mut Sink) {
    for item in sections.of("switches") {
        match item_fields("switches", *item, sink) {
            Some(fields) => read_switch(draft, fields),
            None => draft.switches.lost = true,
        }
    }
}

struct Numbers {
    units: Cycle<u32>,
    rails: Cycle<u32>,
    scalable_units: Cycle<u32>,
    pods: Cycle<u32>,
}

fn read_switch(draft: &mut Draft, mut fields: Fields<'_, '_>) {
    let names = fields.own_names("name");
    let role = fields.need_choice("role", &SwitchRole::ALL, SwitchRole::name);
    let ports = fields.need_integer("ports", 1..=MAX_PORTS);
    let speed = fields.choice("speed", &Speed::ALL, Speed::name).unwrap_or(Speed::Ndr);
    let racks = fields.names("rack");
    let height_units = fields.integer("height_units", 1..=MAX_UNITS).unwrap_or(1) as u16;
    let numbers = Numbers {
        units: fields.integers("unit", 1..=MAX_UNITS),
        rails: fields.integers("rail", 0..=254),
        scalable_units: fields.integers("scalable_unit", 1..=65_535),
        pods: fields.integers("pod", 1..=65_535),
    };
    for (field, len) in [
        ("rack", racks.len()),
        ("unit", numbers.units.len()),
        ("rail", numbers.rails.len()),
        ("scalable_unit", numbers.scalable_units.len()),
        ("pod", numbers.pods.len()),
    ] {
        fields.distributes(field, len, names.len());
    }
    let guid = switch_guid(&mut fields, names.len());
    check_rails(draft, &mut fields, role, &numbers.rails);
    let (sink, entry) = fields.finish_with_sink();
    let number = draft.switches.enter(entry);
    draft.switches.lost |= names.is_empty();
    for (i, name) in names.iter().enumerate() {
        let entry = draft.switches.entry_at(number);
        let rack = racks
            .get(i)
            .map(|rack| RackId(draft.racks.find(sink, entry, "rack", rack)));
        if draft.nodes.get(name).is_some() {
            entry.error(
                sink,
                "name",
                format!("a node is also named {name}"),
                "rename one of them",
            );
        }
        if !draft.switches.add(sink, number, name) {
            continue;
        }
        let unit = numbers.units.get(i).copied().unwrap_or(0) as u16;
        let taken = draft.take_units(rack.unwrap_or(RackId::NONE), unit, height_units);
        let entry = draft.switches.entry_at(number);
        if let Err(what) = taken {
            entry.error(sink, "unit", what, "choose free units");
        }
        let guid = guid.and_then(|(base, step)| base.checked_add(step.checked_mul(i as u64)?));
        if guid.is_some_and(|guid| !draft.guids.insert(guid)) {
            entry.error(
                sink,
                "guid",
                "this GUID is given twice",
                "give each device its own GUID",
            );
        }
        draft.site.switches.push(Switch {
            name: name.as_str().into(),
            role: role.unwrap_or(SwitchRole::Leaf),
            ports: ports.unwrap_or(u32::from(u16::MAX)) as u16,
            speed,
            rack,
            unit,
            height_units,
            rail: numbers.rails.get(i).map(|rail| *rail as u8),
            scalable_unit: numbers.scalable_units.get(i).map(|su| *su as u16),
            pod: numbers.pods.get(i).map(|pod| *pod as u16),
            guid,
        });
    }
}

/// Only leaves have rails, and every rail must exist in some SKU.
fn check_rails(draft: &Draft, fields: &mut Fields<'_, '_>, role: Option<SwitchRole>, rails: &Cycle<u32>) {
    if rails.len() == 0 {
        return;
    }
    if let Some(role) = role.filter(|role| *role != SwitchRole::Leaf) {
        fields.error("rail", format!("a {} serves all rails", role.name()), "remove `rail`");
        return;
    }
    let most = draft
        .site
        .skus
        .iter()
        .map(|sku| u32::from(sku.rails()))
        .max()
        .unwrap_or(0);
    if let Some(rail) = rails.iter().find(|rail| **rail >= most)
        && !draft.skus.lost
        && most > 0
    {
        let what = format!("no SKU has an HCA on rail {rail}");
        fields.error("rail", what, format!("rails count from 0 to {}", most - 1));
    }
}

fn switch_guid(fields: &mut Fields<'_, '_>, items: usize) -> Option<(u64, u64)> {
    let text = fields.text("guid")?;
    let (base, step) = text.split_once('+').unwrap_or((text, ""));
    let guid = match (parse_guid(base), parse_guid(step)) {
        (Some(base), Some(step)) => Some((base, step)),
        (Some(base), None) if step.is_empty() && items < 2 => Some((base, 0)),
        _ => None,
    };
    if guid.is_none() {
        let fix = "write 0x and 16 hexadecimal digits, for several switches followed by a step such as +0x40";
        fields.error("guid", format!("`{text}` is not a GUID"), fix);
    }
    guid
}

pub(super) fn read_cables(draft: &mut Draft, sections: &Sections<'_>, sink: &mut Sink) {
    let mut ends = Vec::new();
    for item in sections.of("cables") {
        if let Some(fields) = item_fields("cables", *item, sink) {
            read_cable(draft, fields, &mut ends);
        }
    }
    check_ends(draft, ends, sink);
}

/// One end of a cable, as read. Ordered by port, then by position in the file.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct End {
    port: Port,
    cable: u32,
    field: &'static str,
    entry: u32,
}

fn read_cable(draft: &mut Draft, mut fields: Fields<'_, '_>, ends: &mut Vec<End>) {
    let labels = fields.own_names("label");
    let (a, b) = (fields.need_names("a"), fields.need_names("b"));
    for (field, len) in [("a", a.len()), ("b", b.len())] {
        fields.distributes(field, len, labels.len());
    }
    let (sink, entry) = fields.finish_with_sink();
    let number = draft.cables.enter(entry);
    let count = if labels.is_empty() {
        a.len().max(b.len())
    } else {
        labels.len()
    };
    for i in 0..count {
        let entry = draft.cables.entry_at(number);
        let one = a.get(i).and_then(|text| end(draft, entry, "a", text, sink));
        let other = b.get(i).and_then(|text| end(draft, entry, "b", text, sink));
        let (cable, from) = (draft.cables.len() as u32, number as u32);
        for (field, port) in [("a", one), ("b", other)] {
            ends.extend(port.map(|port| End {
                port,
                cable,
                field,
                entry: from,
            }));
        }
        if let (Some(one), Some(other)) = (one, other) {
            check_pair(draft, entry, one, other, sink);
        }
        let Some(label) = labels.get(i) else { continue };
        if draft.cables.add(sink, number, label) {
            // A cable with an invalid end keeps its place, so that ids and names stay in step.
            let nowhere = Port::Switch {
                switch: SwitchId::NONE,
                port: 0,
            };
            draft.site.cables.push(Cable {
                label: label.as_str().into(),
                a: one.unwrap_or(nowhere),
                b: other.unwrap_or(nowhere),
            });
        }
    }
}

/// Checks that each port has one cable. Sorting is faster than a table of millions of ports.
fn check_ends(draft: &Draft, mut ends: Vec<End>, sink: &mut Sink) {
    ends.sort_unstable();
    for same in ends.chunk_by(|a, b| a.port == b.port).filter(|same| same.len() > 1) {
        let label = draft
            .site
            .cables
            .get(same[0].cable as usize)
            .map_or("this cable", |cable| &*cable.label);
        let what = format!("{} already has a cable, {label}", draft.site.port_name(same[0].port));
        for end in &same[1..] {
            let entry = draft.cables.entry_at(end.entry as usize);
            entry.error(sink, end.field, what.as_str(), "a port takes one cable");
        }
    }
}

fn end(draft: &Draft, entry: &Entry, field: &str, text: &str, sink: &mut Sink) -> Option<Port> {
    let Some((device, port)) = text.rsplit_once('/') else {
        entry.error(
            sink,
            field,
            format!("`{text}` is not a port"),
            "write NODE/HCA or SWITCH/PORT",
        );
        return None;
    };
    if let Some(id) = draft.switches.get(device) {
        let switch = draft.site.switch(SwitchId(id));
        return match port.parse::<u16>() {
            Ok(port) if (1..=switch.ports).contains(&port) => Some(Port::Switch {
                switch: SwitchId(id),
                port,
            }),
            _ => {
                let what = format!("{device} has no port {port}");
                entry.error(sink, field, what, format!("the switch has ports 1 to {}", switch.ports));
                None
            }
        };
    }
    let Some(id) = draft.nodes.get(device) else {
        if !draft.nodes.lost && !draft.switches.lost {
            let names = draft.nodes.names().chain(draft.switches.names());
            let fix = match sink.may_search().then(|| nearest(device, names)).flatten() {
                Some(suggestion) => format!("did you mean `{suggestion}`?"),
                None => "describe it, or name a node or a switch that exists".to_owned(),
            };
            entry.error(sink, field, format!("there is no node or switch named `{device}`"), fix);
        }
        return None;
    };
    let sku = draft.site.nodes[id as usize].sku;
    if sku.is_none() {
        return None;
    }
    let sku = draft.site.sku(sku);
    let hca = sku.hcas.iter().position(|hca| *hca.name == *port);
    if hca.is_none() {
        let fix = match nearest(port, sku.hcas.iter().map(|hca| &*hca.name)) {
            Some(suggestion) => format!("did you mean `{suggestion}`? {}", hca_names(sku)),
            None => hca_names(sku),
        };
        entry.error(sink, field, format!("{device} has no HCA named {port}"), fix);
    }
    Some(Port::Hca {
        node: NodeId(id),
        hca: hca? as u8,
    })
}

fn check_pair(draft: &Draft, entry: &Entry, a: Port, b: Port, sink: &mut Sink) {
    let what = match (a, b) {
        (Port::Hca { .. }, Port::Hca { .. }) => "this cable connects two HCAs",
        (Port::Switch { switch: x, .. }, Port::Switch { switch: y, .. }) if x == y => {
            "this cable connects a switch to itself"
        }
        _ => {
            let speed = |port| match port {
                Port::Hca { node, .. } => draft.site.sku_of(node).hca_speed,
                Port::Switch { switch, .. } => draft.site.switch(switch).speed,
            };
            if speed(a) != speed(b) {
                let what = format!("this cable connects {} and {}", speed(a).name(), speed(b).name());
                entry.warning(sink, "b", what, "the link runs at the slower speed");
            }
            return;
        }
    };
    entry.error(sink, "b", what, "one end must be a port of another switch");
}
