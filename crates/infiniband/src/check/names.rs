//! Nodes and switches that were recognised by GUID and have another name in their description than in the plan.

use std::collections::BTreeMap;

use super::units::{Unit, rings};
use super::{CableFault, FaultKind, View};
use crate::guid::Guid;
use crate::model::{Device, DeviceIx, DeviceKind};
use crate::name;

/// The name of the machine or of the switch in a description.
pub(super) fn said(device: &Device) -> Option<&str> {
    let text = &*device.name;
    let machine = device.is_adapter().then(|| name::machine(text)).flatten();
    let tells = !name::is_generic(text) && text.parse::<Guid>().is_err();
    match machine {
        Some((machine, _)) => Some(machine),
        None => tells.then(|| name::proper(text)),
    }
}

/// Whether two names are equal, each with or without a domain.
pub(super) fn same(a: &str, b: &str) -> bool {
    let (a, b) = (name::key(a), name::key(b));
    let within = |long: &str, short: &str| long.strip_prefix(short).is_some_and(|rest| rest.starts_with('.'));
    a == b || within(&a, &b) || within(&b, &a)
}

/// The other name of a unit.
struct Other<'a> {
    name: &'a str,
    devices: Vec<DeviceIx>,
}

/// Finds the units. Returns the number of units with names of another scheme than the plan's. These give no findings.
///
/// Takes time in proportion to n log n for n devices.
pub(super) fn find(view: &View<'_>, faults: &mut Vec<CableFault>) -> usize {
    let search = Search::of(view);
    let next: Vec<Option<usize>> = search
        .others
        .iter()
        .map(|other| search.owner(other.as_ref()?.name))
        .collect();
    let rings: Vec<Vec<usize>> = rings(&next).into_iter().filter(|ring| ring.len() > 1).collect();
    let mut reported = vec![false; next.len()];
    for ring in &rings {
        ring.iter().for_each(|unit| reported[*unit] = true);
        faults.push(search.exchanged(ring));
    }
    // If most units of a kind have names that the plan does not have, the names follow another scheme.
    let strange = |kind: DeviceKind| {
        let others = search.others.iter().zip(view.units.all()).zip(&next);
        let strange =
            others.filter(|((other, (_, unit)), next)| other.is_some() && next.is_none() && unit.kind == kind);
        strange.count()
    };
    let kinds = [DeviceKind::Switch, DeviceKind::ChannelAdapter];
    let scheme: Vec<DeviceKind> = kinds
        .into_iter()
        .filter(|kind| strange(*kind) > search.right.get(kind).copied().unwrap_or(0))
        .collect();
    let mut unlike = 0;
    for ((at, unit), is_reported) in view.units.all().zip(reported) {
        let Some(other) = search.others[at].as_ref().filter(|_| !is_reported) else {
            continue;
        };
        if next[at].is_none() && scheme.contains(&unit.kind) {
            unlike += 1;
        } else {
            faults.push(search.wrong(at, unit, other));
        }
    }
    for (device, name) in &search.single {
        faults.push(search.single_wrong(*device, name));
    }
    unlike
}

struct Search<'a> {
    view: &'a View<'a>,
    /// Units by their planned names.
    owners: BTreeMap<String, usize>,
    /// The other name of each unit; none: the unit has its planned name.
    others: Vec<Option<Other<'a>>>,
    /// Number of units with their planned names, by kind.
    right: BTreeMap<DeviceKind, usize>,
    /// Adapters of units that have their planned names.
    single: Vec<(DeviceIx, &'a str)>,
}

impl<'a> Search<'a> {
    fn of(view: &'a View<'a>) -> Self {
        let mut search = Self {
            view,
            owners: BTreeMap::new(),
            others: Vec::new(),
            right: BTreeMap::new(),
            single: Vec::new(),
        };
        for (at, unit) in view.units.all() {
            search.owners.insert(name::key(&unit.name), at);
            let other = search.look(at, unit);
            search.others.push(other);
        }
        search
    }

    /// The name in the descriptions of most adapters of the unit, if this name is not the planned one.
    fn look(&mut self, at: usize, unit: &Unit) -> Option<Other<'a>> {
        let has_name = !name::is_generic(&unit.name) && unit.name.parse::<Guid>().is_err();
        if self.view.exchanges.has(at) || !has_name {
            return None;
        }
        let mut names: BTreeMap<String, Other<'a>> = BTreeMap::new();
        let mut described = 0;
        for device in &unit.devices {
            let Some(name) = self.by_guid(*device).and_then(said) else {
                continue;
            };
            described += 1;
            if !same(name, &unit.name) {
                let devices = Vec::new();
                let other = names.entry(name::key(name)).or_insert(Other { name, devices });
                other.devices.push(*device);
            }
        }
        let most = names.values().map(|other| other.devices.len()).max().unwrap_or(0);
        if most * 2 > described {
            return names.into_values().find(|other| other.devices.len() == most);
        }
        if described > 0 {
            *self.right.entry(unit.kind).or_default() += 1;
        }
        for other in names.into_values() {
            // The finding about the cable reports a card that moved to another node.
            for device in other.devices {
                if self.is_cabled_right(device) {
                    self.single.push((device, other.name));
                }
            }
        }
        None
    }

    /// The discovered device for a planned one, if it was recognised by GUID.
    fn by_guid(&self, device: DeviceIx) -> Option<&'a Device> {
        let found = self.view.matching.found_of(device)?;
        let guid = self.view.plan.fabric().device(device).guid?;
        (self.view.found.find(guid) == Some(found)).then(|| self.view.found.device(found))
    }

    fn is_cabled_right(&self, device: DeviceIx) -> bool {
        let view = self.view;
        view.plan.fabric().neighbours(device).all(|(_, far, link)| {
            let near = view.plan.fabric().link(link).far(far);
            let there = view.place(near).and_then(|near| view.found.far_end(near));
            there.is_some() && there == view.place(far)
        })
    }

    /// The unit that has this name in the plan.
    fn owner(&self, name: &str) -> Option<usize> {
        let key = name::key(name);
        let short = key.split('.').next().unwrap_or_default();
        self.owners.get(&key).or_else(|| self.owners.get(short)).copied()
    }

    fn guids(&self, devices: &[DeviceIx]) -> String {
        let mut guids = devices
            .iter()
            .filter_map(|device| Some(self.by_guid(*device)?.guid?.to_string()));
        match (guids.next(), guids.count()) {
            (None, _) => String::new(),
            (Some(first), 0) => first,
            (Some(first), more) => format!("{first} and {more} more"),
        }
    }

    fn exchanged(&self, ring: &[usize]) -> CableFault {
        let view = self.view;
        let names: Vec<String> = ring.iter().map(|unit| view.units.words(view.plan, *unit)).collect();
        let others = ring.iter().zip(&names).filter_map(|(unit, words)| {
            let other = self.others[*unit].as_ref()?;
            Some(format!(
                "{words} ({}) has the description {:?}",
                self.guids(&other.devices),
                other.name
            ))
        });
        let others: Vec<String> = others.collect();
        let text = format!(
            "the names of {} are exchanged: {}; correct the names there, or the GUIDs in the plan",
            names.join(" and "),
            others.join(", ")
        );
        fault(FaultKind::NamesExchanged, names, text)
    }

    fn wrong(&self, at: usize, unit: &Unit, other: &Other<'_>) -> CableFault {
        let view = self.view;
        let words = view.units.words(view.plan, at);
        let noun = unit.noun();
        let also = match self.owner(other.name) {
            Some(owner) => format!(", which the plan gives to {}", view.units.words(view.plan, owner)),
            None => String::new(),
        };
        let text = format!(
            "{words} ({}) has the description {:?}{also}; correct the name of the {noun}, or the plan",
            self.guids(&other.devices),
            other.name
        );
        fault(FaultKind::WrongName, vec![words], text)
    }

    fn single_wrong(&self, device: DeviceIx, name: &str) -> CableFault {
        let words = self.view.plan.device_text(device);
        let text = format!(
            "{words} ({}) names the node {name:?} in its description; correct the description, or the plan",
            self.guids(&[device])
        );
        fault(FaultKind::WrongName, vec![words], text)
    }
}

fn fault(kind: FaultKind, devices: Vec<String>, text: String) -> CableFault {
    CableFault {
        kind,
        cables: Vec::new(),
        devices,
        text,
        runs: None,
        replacements: Vec::new(),
    }
}
