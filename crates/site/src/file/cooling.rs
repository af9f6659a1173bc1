//! Sections `cooling_units` and `cooling_loops`.

use super::fields::{Fields, NameCycle};
use super::names::fill;
use super::nodes::addresses;
use super::quantity::Unit;
use super::table::NONE;
use super::{Draft, Sections, item_fields};
use crate::finding::Sink;
use crate::model::{CoolingKind, CoolingLoop, CoolingUnit, CoolingUnitId, LoopId, RackId, RoomId};

pub(super) fn read_units(draft: &mut Draft, sections: &Sections<'_>, sink: &mut Sink) {
    for item in sections.of("cooling_units") {
        match item_fields("cooling_units", *item, sink) {
            Some(fields) => read_unit(draft, fields),
            None => draft.cooling_units.lost = true,
        }
    }
}

fn read_unit(draft: &mut Draft, mut fields: Fields<'_, '_>) {
    let names = fields.own_names("name");
    let kind = fields.need_choice("kind", &CoolingKind::ALL, CoolingKind::name);
    let is_door = kind == Some(CoolingKind::RearDoor);
    let (rooms, racks) = match kind {
        Some(CoolingKind::RearDoor) => (fields.names("room"), fields.need_names("rack")),
        Some(_) => (fields.need_names("room"), fields.names("rack")),
        None => (fields.names("room"), fields.names("rack")),
    };
    if kind.is_some() && !is_door && racks.len() > 0 {
        fields.error(
            "rack",
            "only a rear-door has the field `rack`",
            "remove `rack`; the cooling loop lists the racks of a cdu",
        );
    }
    if is_door && rooms.len() > 0 {
        fields.error("room", "a rear-door is in the room of its rack", "remove `room`");
    }
    let has_rack = fields.has("rack");
    let bmcs = addresses(&mut fields, has_rack);
    fields.distributes("room", rooms.len(), names.len());
    fields.distributes("rack", racks.len(), names.len());
    let units = fields.turns(|fields| unit_values(fields, kind));
    let (sink, entry) = fields.finish_with_sink();
    let entry = draft.cooling_units.enter(entry);
    draft.cooling_units.lost |= names.is_empty() || kind.is_none();
    for (i, name) in names.iter().enumerate() {
        let Some(unit) = units.get(i) else { continue };
        let from = draft.cooling_units.entry_at(entry);
        let rack = racks
            .get(i)
            .filter(|_| is_door)
            .map(|rack| draft.racks.find(sink, from, "rack", rack));
        let room = match rooms.get(i).filter(|_| !is_door) {
            Some(room) => RoomId(draft.rooms.find(sink, from, "room", room)),
            None => match rack {
                Some(rack) if rack != NONE => draft.site.rack(RackId(rack)).room,
                _ => RoomId::NONE,
            },
        };
        let id = CoolingUnitId::of(draft.site.cooling_units.len());
        if let Some(rack) = rack.filter(|rack| *rack != NONE) {
            let slot = &mut draft.site.racks[rack as usize].rear_door;
            if slot.replace(id).is_some() {
                let what = format!("rack {} has two rear doors", racks.get(i).map_or("", |rack| rack));
                from.error(sink, "rack", what, "a rack has at most one rear door");
            }
        }
        if draft.cooling_units.add(sink, entry, name) {
            draft.site.cooling_units.push(CoolingUnit {
                name: name.into(),
                room,
                rack: rack.map(RackId),
                bmc: bmcs
                    .get(i)
                    .map(|bmc| fill(bmc, name, racks.get(i).unwrap_or("")).into()),
                ..unit.clone()
            });
        }
    }
}

/// The values of a unit, apart from names.
fn unit_values(fields: &mut Fields<'_, '_>, kind: Option<CoolingKind>) -> CoolingUnit {
    CoolingUnit {
        name: Box::default(),
        kind: kind.unwrap_or(CoolingKind::Crah),
        room: RoomId::NONE,
        rack: None,
        cooling_loop: None,
        watts: fields.need_number("watts", Unit::Watts, 1.0..=1e9),
        flow_lpm: fields.number("flow_lpm", Unit::LitresPerMinute, 0.1..=1e6),
        supply_celsius: fields.number("supply_celsius", Unit::Celsius, -40.0..=80.0),
        supply_max_celsius: fields.number("supply_max_celsius", Unit::Celsius, -40.0..=100.0),
        flow_min_lpm: fields.number("flow_min_lpm", Unit::LitresPerMinute, 0.1..=1e6),
        bmc: None,
        loss_to_air_watts: fields
            .number("loss_to_air_watts", Unit::Watts, 0.0..=1e8)
            .unwrap_or(0.0),
    }
}

pub(super) fn read_loops(draft: &mut Draft, sections: &Sections<'_>, sink: &mut Sink) {
    for item in sections.of("cooling_loops") {
        match item_fields("cooling_loops", *item, sink) {
            Some(fields) => read_loop(draft, fields),
            None => draft.loops.lost = true,
        }
    }
}

fn read_loop(draft: &mut Draft, mut fields: Fields<'_, '_>) {
    let names = fields.own_names("name");
    let says_units = fields.has("units");
    let units = fields.names("units");
    let racks = fields.names("racks");
    let flow_lpm = fields.number("flow_lpm", Unit::LitresPerMinute, 0.1..=1e6);
    if !says_units {
        fields.lacks(
            "units",
            "no cooling unit feeds this loop",
            "add `units:` with the names of its CDUs",
        );
    }
    if names.len() > 1 {
        fields.error(
            "name",
            "an item describes only one loop",
            "write one item for each loop",
        );
    }
    let (sink, entry) = fields.finish_with_sink();
    let entry = draft.loops.enter(entry);
    draft.loops.lost |= names.is_empty();
    let Some(name) = names.first() else { return };
    if !draft.loops.add(sink, entry, name) {
        return;
    }
    let id = LoopId::of(draft.site.loops.len());
    let units = loop_units(draft, entry, id, &units, sink);
    let racks = loop_racks(draft, entry, id, &racks, sink);
    draft.site.loops.push(CoolingLoop {
        name: name.into(),
        units,
        racks,
        flow_lpm,
    });
}

fn loop_units(draft: &mut Draft, entry: usize, id: LoopId, names: &NameCycle, sink: &mut Sink) -> Vec<CoolingUnitId> {
    let entry = draft.loops.entry_at(entry);
    let mut units = Vec::new();
    for name in names.iter() {
        let found = CoolingUnitId(draft.cooling_units.find(sink, entry, "units", name));
        if found.is_none() {
            continue;
        }
        let unit = &mut draft.site.cooling_units[found.index()];
        if unit.kind != CoolingKind::Cdu && draft.cooling_units.lost {
            // The kind may be one that could not be read.
            continue;
        }
        if unit.kind != CoolingKind::Cdu {
            let what = format!("{name} is a {}, but only CDUs feed a loop", unit.kind.name());
            entry.error(sink, "units", what, "name units of kind cdu");
        } else if unit.cooling_loop.replace(id).is_some() {
            entry.error(
                sink,
                "units",
                format!("{name} feeds another loop already"),
                "a CDU feeds only one loop",
            );
        }
        units.push(found);
    }
    units
}

fn loop_racks(draft: &mut Draft, entry: usize, id: LoopId, names: &NameCycle, sink: &mut Sink) -> Vec<RackId> {
    let entry = draft.loops.entry_at(entry);
    let mut racks = Vec::new();
    for name in names.iter() {
        let found = RackId(draft.racks.find(sink, entry, "racks", name));
        if found.is_none() {
            continue;
        }
        let rack = &mut draft.site.racks[found.index()];
        if !rack.liquid {
            let what = format!("rack {name} has no liquid manifold");
            entry.error(
                sink,
                "racks",
                what,
                "write `liquid: true` at the rack, or remove the rack here",
            );
        } else if rack.cooling_loop.replace(id).is_some() {
            entry.error(
                sink,
                "racks",
                format!("rack {name} already belongs to another loop"),
                "a rack belongs to only one loop",
            );
        }
        racks.push(found);
    }
    racks
}
