//! Sections `fabrics` and `switches`, and the ends of cables.

use super::fields::{Cycle, Entry, Fields};
use super::guids::Guids;
use super::names::shown;
use super::nodes::hca_names;
use super::rooms::MAX_UNITS;
use super::suggestion::nearest;
use super::{Draft, Sections, item_fields};
use crate::finding::Sink;
use crate::model::{Fabric, FabricId, FabricPurpose, NodeId, Port, RackId, Speed, Switch, SwitchId, SwitchRole};

/// Maximum number of ports of a switch.
const MAX_PORTS: u32 = 4096;

pub(super) fn read_fabrics(draft: &mut Draft, sections: &Sections<'_>, sink: &mut Sink) {
    for item in sections.of("fabrics") {
        match item_fields("fabrics", *item, sink) {
            Some(fields) => read_fabric(draft, fields),
            None => draft.fabrics.lost = true,
        }
    }
}

fn read_fabric(draft: &mut Draft, mut fields: Fields<'_, '_>) {
    let names = fields.own_names("name");
    let usual = FabricPurpose::Compute;
    let purposes = fields.turns(|fields| {
        let (purpose, _) = fields.choice_or("purpose", &FabricPurpose::ALL, FabricPurpose::name, usual);
        purpose
    });
    let (sink, entry) = fields.finish_with_sink();
    let number = draft.fabrics.enter(entry);
    draft.fabrics.lost |= names.is_empty();
    for (i, name) in names.iter().enumerate() {
        if draft.fabrics.add(sink, number, name) {
            draft.site.fabrics.push(Fabric {
                name: name.into(),
                purpose: purposes.get(i).copied().unwrap_or(usual),
            });
        }
    }
}

/// Warns of fabrics without a switch, unless an error may be the cause.
pub(super) fn check_fabrics(draft: &Draft, sink: &mut Sink) {
    if sink.has_errors() {
        return;
    }
    for id in draft.site.fabric_ids() {
        if draft.site.switches.iter().all(|switch| switch.fabric != Some(id)) {
            let what = format!("no switch is of the fabric {}", draft.site.fabric(id).name);
            let fix = "write `fabric` at one of its switches, or remove it";
            draft.fabrics.entry(id.0).warning(sink, "name", what, fix);
        }
    }
}

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
    let values = fields.turns(switch_values);
    draft.speeds_lost |= values.iter().any(|values| values.speed_lost);
    let racks = fields.names("rack");
    let fabrics = fields.names("fabric");
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
        ("fabric", fabrics.len()),
    ] {
        fields.distributes(field, len, names.len());
    }
    let guids = switch_guids(&mut fields, names.len());
    let other = values
        .iter()
        .filter_map(|values| values.role)
        .find(|role| *role != SwitchRole::Leaf);
    check_rails(draft, &mut fields, other, &numbers.rails);
    let (sink, entry) = fields.finish_with_sink();
    let number = draft.switches.enter(entry);
    draft.switches.lost |= names.is_empty();
    for (i, name) in names.iter().enumerate() {
        let Some(SwitchValues { switch, .. }) = values.get(i) else {
            continue;
        };
        let entry = draft.switches.entry_at(number);
        let rack = racks
            .get(i)
            .map(|rack| RackId(draft.racks.find(sink, entry, "rack", rack)));
        let fabric = fabrics
            .get(i)
            .map(|fabric| FabricId(draft.fabrics.find(sink, entry, "fabric", fabric)));
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
        let taken = draft.take_units(rack.unwrap_or(RackId::NONE), unit, switch.height_units);
        let entry = draft.switches.entry_at(number);
        if let Err(what) = taken {
            entry.error(sink, "unit", what, "choose free units");
        }
        let guid = guids.as_ref().and_then(|guids| guids.of(i));
        if guid.is_some_and(|guid| !draft.guids.insert(guid)) {
            entry.error(
                sink,
                "guid",
                "this GUID is given twice",
                "give each device its own GUID",
            );
        }
        draft.site.switches.push(Switch {
            name: name.into(),
            rack,
            unit,
            rail: numbers.rails.get(i).map(|rail| *rail as u8),
            scalable_unit: numbers.scalable_units.get(i).map(|su| *su as u16),
            pod: numbers.pods.get(i).map(|pod| *pod as u16),
            guid,
            fabric: fabric.filter(|fabric| !fabric.is_none()),
            ..switch.clone()
        });
    }
}

/// The values of a switch, apart from names, numbers and GUID.
struct SwitchValues {
    /// `None`: the role could not be read.
    role: Option<SwitchRole>,
    /// The speed could not be read.
    speed_lost: bool,
    switch: Switch,
}

fn switch_values(fields: &mut Fields<'_, '_>) -> SwitchValues {
    let role = fields.need_choice("role", &SwitchRole::ALL, SwitchRole::name);
    let ports = fields.need_integer("ports", 1..=MAX_PORTS);
    let (speed, is_known) = fields.choice_or("speed", &Speed::ALL, Speed::name, Speed::Ndr);
    let switch = Switch {
        name: Box::default(),
        role: role.unwrap_or(SwitchRole::Leaf),
        ports: ports.unwrap_or(u32::from(u16::MAX)) as u16,
        speed,
        rack: None,
        unit: 0,
        height_units: fields.integer("height_units", 1..=MAX_UNITS).unwrap_or(1) as u16,
        rail: None,
        scalable_unit: None,
        pod: None,
        guid: None,
        fabric: None,
    };
    SwitchValues {
        role,
        speed_lost: !is_known,
        switch,
    }
}

/// Only leaves have rails, and every rail must exist in some SKU. `other`: a role of the entry that is not leaf.
fn check_rails(draft: &Draft, fields: &mut Fields<'_, '_>, other: Option<SwitchRole>, rails: &Cycle<u32>) {
    if rails.len() == 0 {
        return;
    }
    if let Some(role) = other {
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
        && !draft.hcas_lost
        && most > 0
    {
        let what = format!("no SKU has an HCA on rail {rail}");
        fields.error("rail", what, format!("rails count from 0 to {}", most - 1));
    }
}

fn switch_guids(fields: &mut Fields<'_, '_>, items: usize) -> Option<Guids> {
    let tree = fields.take("guid")?;
    Guids::read(fields, "guid", tree, items)
}

/// The device of the end before, in a list of ends.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct LastDevice(Option<Device>);

#[derive(Debug, Clone, Copy)]
enum Device {
    Node(u32),
    Switch(u32),
}

impl LastDevice {
    fn find(&mut self, draft: &Draft, name: &str) -> Option<Device> {
        let node = |last| draft.nodes.get_near(name, last).map(Device::Node);
        let switch = |last| draft.switches.get_near(name, last).map(Device::Switch);
        let found = match self.0 {
            Some(Device::Node(last)) => node(last).or_else(|| switch(0)),
            Some(Device::Switch(last)) => switch(last).or_else(|| node(0)),
            None => switch(0).or_else(|| node(0)),
        };
        self.0 = found.or(self.0);
        found
    }
}

/// The port that an end of a cable names.
pub(super) fn end(
    draft: &Draft,
    entry: &Entry,
    field: &str,
    text: &str,
    last: &mut LastDevice,
    sink: &mut Sink,
) -> Option<Port> {
    let Some((device, port)) = text.rsplit_once('/') else {
        entry.error(
            sink,
            field,
            format!("`{text}` is not a port"),
            "write NODE/HCA or SWITCH/PORT",
        );
        return None;
    };
    let id = match last.find(draft, device) {
        Some(Device::Node(id)) => id,
        Some(Device::Switch(id)) => {
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
        None => {
            unknown_device(draft, entry, field, device, sink);
            return None;
        }
    };
    let sku = draft.site.nodes[id as usize].sku;
    if sku.is_none() {
        return None;
    }
    let sku = draft.site.sku(sku);
    let hca = sku.hcas.iter().position(|hca| *hca.name == *port);
    if hca.is_none() && !draft.hcas_lost {
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

fn unknown_device(draft: &Draft, entry: &Entry, field: &str, device: &str, sink: &mut Sink) {
    if draft.nodes.lost || draft.switches.lost {
        return;
    }
    let names = draft.nodes.names().chain(draft.switches.names());
    let fix = match sink.may_search().then(|| nearest(device, names)).flatten() {
        Some(suggestion) => format!("did you mean `{suggestion}`?"),
        None => "describe it, or name a node or a switch that exists".to_owned(),
    };
    let what = format!("there is no node or switch named `{}`", shown(device));
    entry.error(sink, field, what, fix);
}

/// Checks that a cable connects two devices, one of them a switch.
pub(super) fn check_pair(draft: &Draft, entry: &Entry, a: Port, b: Port, sink: &mut Sink) {
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
            if speed(a) != speed(b) && !draft.speeds_lost {
                let what = format!("this cable connects {} and {}", speed(a).name(), speed(b).name());
                entry.warning(sink, "b", what, "the link runs at the slower speed");
            }
            return;
        }
    };
    entry.error(sink, "b", what, "one end must be a port of another switch");
}
