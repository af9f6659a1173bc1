//! Sections `rooms` and `racks`.

use super::fields::Fields;
use super::quantity::Unit;
use super::table::NONE;
use super::{Draft, Sections, item_fields};
use crate::finding::Sink;
use crate::model::{Rack, RackId, Room, RoomId};

/// Maximum number of units of a rack: the bits of `taken_units`.
pub(super) const MAX_UNITS: u32 = 120;

pub(super) fn read_rooms(draft: &mut Draft, sections: &Sections<'_>, sink: &mut Sink) {
    let mut parents: Vec<Option<String>> = Vec::new();
    for item in sections.of("rooms") {
        let Some(mut fields) = item_fields("rooms", *item, sink) else {
            draft.rooms.lost = true;
            continue;
        };
        let names = fields.own_names("name");
        let parent = fields.names("parent");
        fields.distributes("parent", parent.len(), names.len());
        let entry = draft.rooms.enter(fields.finish());
        draft.rooms.lost |= names.is_empty();
        for (i, name) in names.iter().enumerate() {
            if draft.rooms.add(sink, entry, name) {
                parents.push(parent.get(i).map(str::to_owned));
                draft.site.rooms.push(Room {
                    name: name.into(),
                    parent: None,
                });
            }
        }
    }
    for (id, parent) in parents.iter().enumerate() {
        let Some(parent) = parent else { continue };
        let found = draft.rooms.find(sink, draft.rooms.entry(id as u32), "parent", parent);
        draft.site.rooms[id].parent = (found != NONE).then_some(RoomId(found));
    }
    let parents: Vec<u32> = draft
        .site
        .rooms
        .iter()
        .map(|room| room.parent.map_or(NONE, |id| id.0))
        .collect();
    for cycle in cycles(&parents) {
        let name = |id: &u32| &*draft.site.rooms[*id as usize].name;
        let what = format!("rooms contain each other: {}", chain(&cycle, name));
        draft
            .rooms
            .entry(cycle[0])
            .error(sink, "parent", what, "one of them must have no parent");
    }
}

/// The cycles among parent links, each once and starting at its smallest member.
pub(super) fn cycles(parents: &[u32]) -> Vec<Vec<u32>> {
    // 0: not visited. Otherwise the number of the first walk through it.
    let mut seen = vec![0_u32; parents.len()];
    let mut found = Vec::new();
    for start in 0..parents.len() as u32 {
        let walk = start + 1;
        let mut at = start;
        while at != NONE && seen[at as usize] == 0 {
            seen[at as usize] = walk;
            at = parents[at as usize];
        }
        if at != NONE && seen[at as usize] == walk {
            let mut cycle = vec![at];
            let mut next = parents[at as usize];
            while next != at {
                cycle.push(next);
                next = parents[next as usize];
            }
            let least = cycle
                .iter()
                .enumerate()
                .min_by_key(|(_, id)| **id)
                .map_or(0, |(i, _)| i);
            cycle.rotate_left(least);
            found.push(cycle);
        }
    }
    found
}

/// Such as `a, b, a`. A long cycle is cut.
pub(super) fn chain<'a>(cycle: &[u32], name: impl Fn(&u32) -> &'a str) -> String {
    let mut names: Vec<&str> = cycle.iter().take(6).map(&name).collect();
    if cycle.len() > names.len() {
        names.push("...");
    }
    names.extend(cycle.first().map(&name));
    names.join(" in ")
}

pub(super) fn read_racks(draft: &mut Draft, sections: &Sections<'_>, sink: &mut Sink) {
    for item in sections.of("racks") {
        let Some(mut fields) = item_fields("racks", *item, sink) else {
            draft.racks.lost = true;
            continue;
        };
        let names = fields.own_names("name");
        let rooms = fields.need_names("room");
        fields.distributes("room", rooms.len(), names.len());
        let racks = fields.turns(rack);
        let entry = draft.racks.enter(fields.finish());
        draft.racks.lost |= names.is_empty();
        for (i, name) in names.iter().enumerate() {
            let Some(rack) = racks.get(i) else { continue };
            let from = draft.racks.entry_at(entry);
            let room = rooms
                .get(i)
                .map_or(NONE, |room| draft.rooms.find(sink, from, "room", room));
            if draft.racks.add(sink, entry, name) {
                draft.taken_units.push([0; 2]);
                draft.site.racks.push(Rack {
                    name: name.into(),
                    room: RoomId(room),
                    ..rack.clone()
                });
            }
        }
    }
}

/// The values of a rack, apart from its name and room.
fn rack(fields: &mut Fields<'_, '_>) -> Rack {
    // If the number is invalid, no position counts as beyond the rack.
    let assumed = if fields.has("units") { MAX_UNITS } else { 42 };
    Rack {
        name: Box::default(),
        room: RoomId::NONE,
        units: fields.integer("units", 1..=MAX_UNITS).unwrap_or(assumed) as u16,
        weight_limit_kg: fields.number("weight_limit_kg", Unit::Kilograms, 1.0..=100_000.0),
        air_heat_limit_watts: fields.number("air_heat_limit_watts", Unit::Watts, 0.0..=1e7),
        // If the value is invalid, the rack counts as liquid-cooled, so that its nodes and loop give no findings.
        liquid: fields.flag("liquid").unwrap_or(fields.has("liquid")),
        cooling_loop: None,
        rear_door: None,
    }
}

impl Draft {
    /// Reserves rack units for a node or switch. Returns a message if they are beyond the rack or taken.
    pub(super) fn take_units(&mut self, rack: RackId, unit: u16, height: u16) -> Result<(), String> {
        if rack.is_none() || unit == 0 || height == 0 {
            return Ok(());
        }
        let units = self.site.rack(rack).units;
        let top = u32::from(unit) + u32::from(height) - 1;
        if top > u32::from(units) {
            let name = &self.site.rack(rack).name;
            return Err(format!(
                "units {unit} to {top} do not fit: rack {name} has {units} units"
            ));
        }
        let mask = ((1_u128 << height) - 1) << unit;
        let halves = [mask as u64, (mask >> 64) as u64];
        let taken = &mut self.taken_units[rack.index()];
        if taken[0] & halves[0] != 0 || taken[1] & halves[1] != 0 {
            let first = (u128::from(taken[1] & halves[1]) << 64 | u128::from(taken[0] & halves[0])).trailing_zeros();
            return Err(format!(
                "unit {first} of rack {} is taken already",
                self.site.rack(rack).name
            ));
        }
        taken[0] |= halves[0];
        taken[1] |= halves[1];
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cycles_are_found_once_each() {
        assert_eq!(cycles(&[NONE, 0, 1]), Vec::<Vec<u32>>::new());
        assert_eq!(cycles(&[0]), [[0]]);
        assert_eq!(cycles(&[1, 2, 1, 0]), [vec![1, 2]]);
        assert_eq!(cycles(&[3, NONE, 2, 0]), [vec![0, 3], vec![2]]);
    }
}
