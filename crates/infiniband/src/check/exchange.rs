//! Switches and nodes that stand in each other's places: one finding for all their cables.
//!
//! A unit is a switch, or all adapters of a node. Unit A stands in the place of unit B if at least four fifths of B's
//! planned cables with a link end at A, each at the port (and adapter) that the plan gives B. At least three cables must
//! show this for a switch, and at least two for a node. An exchange is a ring of such units. The other searches then judge
//! the fabric as if the exchanges were undone.
//!
//! A round looks at each planned cable twice: n log n for n cables. A further round comes only after an exchange.

use std::collections::{BTreeMap, BTreeSet};

use super::matching::Matching;
use super::units::{Units, rings};
use super::{CableFault, FaultKind, View, cable_key, listed};
use crate::model::{DeviceIx, Fabric, LinkIx, PortRef};
use crate::plan::Plan;

/// Maximum number of rounds. Each may find any number of exchanges.
const MAX_ROUNDS: usize = 8;
/// Minimum number of cables that show the exchange of a switch.
const MIN_SWITCH: usize = 3;
/// Minimum number of cables that show the exchange of a node.
const MIN_NODE: usize = 2;

/// The exchanged units.
pub(super) struct Exchanges {
    /// Rings of units. In the place of each unit stands the next unit of the ring, and in the place of the last the first.
    rings: Vec<Vec<usize>>,
    /// The index of the ring of each unit; none: the unit is not exchanged.
    of: Vec<Option<usize>>,
    /// Partners of all planned devices by their own GUIDs and names.
    own: Vec<Option<DeviceIx>>,
}

impl Exchanges {
    pub(super) fn has(&self, unit: usize) -> bool {
        self.of[unit].is_some()
    }
}

/// Finds the exchanges, and changes the matching to one with all exchanges undone.
pub(super) fn find(plan: &Plan, found: &Fabric, units: &Units, matching: &mut Matching) -> Exchanges {
    let mut exchanges = Exchanges {
        rings: Vec::new(),
        of: vec![None; units.all().len()],
        own: matching.partners().to_vec(),
    };
    let mut moved = vec![false; units.all().len()];
    for _ in 0..MAX_ROUNDS {
        let search = Search {
            plan,
            found,
            units,
            matching,
            moved: &moved,
        };
        // An exchange of switches explains the cables of nodes, and not the other way round.
        let mut rings = search.rings(true);
        if rings.is_empty() {
            rings = search.rings(false);
        }
        if rings.is_empty() {
            break;
        }
        let pairs: Vec<_> = rings.iter().flat_map(|ring| search.pairs(ring)).collect();
        let recognised: Vec<bool> = rings.iter().map(|ring| search.is_recognised(ring)).collect();
        for (ring, is_recognised) in rings.into_iter().zip(recognised) {
            ring.iter().for_each(|unit| moved[*unit] = true);
            // Without a GUID or name of a device the ring shows a wrong guess of the matching, and no exchange.
            if is_recognised {
                ring.iter()
                    .for_each(|unit| exchanges.of[*unit] = Some(exchanges.rings.len()));
                exchanges.rings.push(ring);
            }
        }
        matching.repair(plan.fabric(), found, &pairs);
    }
    exchanges
}

struct Search<'a> {
    plan: &'a Plan,
    found: &'a Fabric,
    units: &'a Units,
    matching: &'a Matching,
    /// Units that were put into their places in earlier rounds.
    moved: &'a [bool],
}

impl Search<'_> {
    fn rings(&self, switches: bool) -> Vec<Vec<usize>> {
        let next: Vec<Option<usize>> = (0..self.units.all().len())
            .map(|unit| self.stand_in(unit, switches))
            .collect();
        rings(&next)
    }

    /// The unit that stands in the place of this one.
    fn stand_in(&self, unit: usize, switches: bool) -> Option<usize> {
        let place = self.units.get(unit);
        let is_switch = self.is_switch(unit);
        if self.moved[unit] || is_switch != switches {
            return None;
        }
        let mut votes: BTreeMap<usize, usize> = BTreeMap::new();
        let mut seen = 0;
        for device in &place.devices {
            for (port, far, _) in self.plan.fabric().neighbours(*device) {
                let Some(there) = self.seen_from(far) else {
                    continue;
                };
                seen += 1;
                let Some(other) = self.matching.planned_of(there.device) else {
                    continue;
                };
                if there.port == port && self.units.slot(other) == self.units.slot(*device) {
                    *votes.entry(self.units.at(other)).or_default() += 1;
                }
            }
        }
        let (other, shown) = votes.into_iter().max_by_key(|(_, shown)| *shown)?;
        let enough = if is_switch { MIN_SWITCH } else { MIN_NODE };
        let clear = shown >= enough && shown * 5 >= seen * 4;
        (clear && other != unit && !self.moved[other] && self.is_switch(other) == is_switch).then_some(other)
    }

    /// The discovered port at the far end of a planned port. An adapter that was matched by its place only gives none: by
    /// definition such an adapter is where it should be.
    fn seen_from(&self, end: PortRef) -> Option<PortRef> {
        let sure = self.matching.is_identified(end.device) || self.plan.fabric().device(end.device).is_switch();
        let device = self.matching.found_of(end.device).filter(|_| sure)?;
        self.found.far_end(PortRef { device, ..end })
    }

    fn is_switch(&self, unit: usize) -> bool {
        let first = self.units.get(unit).devices.first();
        first.is_some_and(|device| self.plan.fabric().device(*device).is_switch())
    }

    /// Whether the GUID or the name of a device in the ring is recognised.
    fn is_recognised(&self, ring: &[usize]) -> bool {
        let mut devices = ring.iter().flat_map(|unit| &self.units.get(*unit).devices);
        devices.any(|device| self.matching.is_identified(*device))
    }

    /// The planned devices of a ring, each with the discovered device that stands in its place.
    fn pairs(&self, ring: &[usize]) -> Vec<(DeviceIx, Option<DeviceIx>)> {
        let mut pairs = Vec::new();
        for (unit, other) in around(ring) {
            let others = self.units.get(other).devices.iter();
            let by_slot: BTreeMap<u32, DeviceIx> = others.map(|device| (self.units.slot(*device), *device)).collect();
            for device in &self.units.get(unit).devices {
                let stands = by_slot.get(&self.units.slot(*device));
                pairs.push((*device, stands.and_then(|other| self.matching.found_of(*other))));
            }
        }
        pairs
    }
}

/// Each unit of a ring with the unit that stands in its place.
fn around(ring: &[usize]) -> impl Iterator<Item = (usize, usize)> {
    let next = ring.iter().cycle().skip(1);
    ring.iter().copied().zip(next.copied())
}

/// Reports one finding for each exchange. Returns the cables that the exchanges explain.
pub(super) fn report(view: &View<'_>, faults: &mut Vec<CableFault>) -> BTreeSet<LinkIx> {
    let exchanges = view.exchanges;
    let mut explained = vec![Vec::new(); exchanges.rings.len()];
    for (cable, link) in view.plan.fabric().links() {
        let ends = [link.a, link.b];
        let rings = ends.map(|end| exchanges.of[view.units.at(end.device)]);
        let Some(ring) = rings.into_iter().flatten().next() else {
            continue;
        };
        let own = |end: PortRef| match exchanges.of[view.units.at(end.device)] {
            Some(_) => exchanges.own[end.device.0 as usize].map(|device| PortRef { device, ..end }),
            None => view.place(end),
        };
        let goes = |a: Option<PortRef>, b: Option<PortRef>| b.is_some() && a.and_then(|a| view.found.far_end(a)) == b;
        if goes(view.place(link.a), view.place(link.b)) && !goes(own(link.a), own(link.b)) {
            explained[ring].push(cable);
        }
    }
    for (ring, cables) in exchanges.rings.iter().zip(&explained) {
        faults.push(fault(view, ring, cables));
    }
    explained.into_iter().flatten().collect()
}

fn fault(view: &View<'_>, ring: &[usize], cables: &[LinkIx]) -> CableFault {
    let words = |unit: usize| view.units.words(view.plan, unit);
    let names: Vec<String> = ring.iter().map(|unit| words(*unit)).collect();
    let nouns = match view.units.get(ring[0]).noun() {
        "switch" => "switches".to_owned(),
        noun => format!("{noun}s"),
    };
    let places: Vec<String> = around(ring)
        .map(|(place, unit)| format!("{}{} in the place of {}", words(unit), guid(view, unit), words(place)))
        .collect();
    let devices = || ring.iter().flat_map(|unit| &view.units.get(*unit).devices);
    let by_guid = devices().any(|device| view.plan.fabric().device(*device).guid.is_some());
    let hint = if !by_guid {
        format!("exchange the {nouns} or their cables, or correct their names")
    } else if ring.iter().all(|unit| says_its_place(view, *unit)) {
        format!(
            "their descriptions match the places, so the GUIDs in the plan may be exchanged: correct the plan, or \
             exchange the {nouns} or their cables"
        )
    } else {
        format!("exchange the {nouns} or their cables, or correct the plan")
    };
    let text = format!(
        "{} are in each other's places: {}; {} cables show this ({}); {hint}; other cables are checked as if the \
         {nouns} were exchanged",
        names.join(" and "),
        places.join(", "),
        cables.len(),
        listed(view, cables)
    );
    CableFault {
        kind: FaultKind::DevicesExchanged,
        cables: cables.iter().map(|cable| cable_key(view.plan, *cable)).collect(),
        devices: names,
        text,
        runs: None,
        replacements: Vec::new(),
    }
}

/// ` (0xfc6a1c0300000040)`: what the switch, or the first seen adapter, of the unit itself has.
fn guid(view: &View<'_>, unit: usize) -> String {
    let mut own = view.units.get(unit).devices.iter().filter_map(|device| {
        let found = view.exchanges.own[device.0 as usize]?;
        view.found.device(found).guid
    });
    own.next().map(|guid| format!(" ({guid})")).unwrap_or_default()
}

/// Whether the device in the unit's place has the description of the unit.
fn says_its_place(view: &View<'_>, unit: usize) -> bool {
    let unit = view.units.get(unit);
    let there = unit.devices.iter().filter_map(|device| view.matching.found_of(*device));
    let said: Vec<&str> = there
        .filter_map(|ix| super::names::said(view.found.device(ix)))
        .collect();
    !said.is_empty() && said.iter().all(|said| super::names::same(said, &unit.name))
}
