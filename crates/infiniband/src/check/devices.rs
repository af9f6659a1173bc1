//! Missing devices, unplanned devices, and devices in the place of others.
//!
//! The search visits each planned device once with its cables: n log n for n cables.

use std::collections::BTreeSet;

use super::{CableFault, FaultKind, MAX_NAMED, Replacement, View, cable_key, listed};
use crate::model::{DeviceIx, DeviceKind, LinkIx, PortRef};
use crate::name;
use crate::plan;

/// Minimum number of missing adapters of a node for a common finding, if other adapters of the node are seen.
const MIN_GONE: usize = 3;

/// Finds the devices. Returns the cables that are absent because of the findings, and the number of nodes that were
/// recognised by their places only and have names of another scheme than the plan's.
pub(super) fn find(view: &View<'_>, faults: &mut Vec<CableFault>) -> (BTreeSet<LinkIx>, usize) {
    let mut silent = BTreeSet::new();
    missing_switches(view, faults, &mut silent);
    missing_machines(view, faults, &mut silent);
    let named_otherwise = replaced(view, faults);
    unknown(view, faults);
    (silent, named_otherwise)
}

fn links_of(view: &View<'_>, device: DeviceIx) -> Vec<(PortRef, LinkIx)> {
    view.plan
        .fabric()
        .neighbours(device)
        .map(|(_, far, link)| (far, link))
        .collect()
}

/// Whether a planned device is seen. A device without a link does not count, unless the plan gives it no cable.
fn is_seen(view: &View<'_>, device: DeviceIx) -> bool {
    let needs_link = view.plan.fabric().neighbours(device).next().is_some();
    let found = view.matching.found_of(device);
    found.is_some_and(|found| !needs_link || view.found.neighbours(found).next().is_some())
}

fn missing_switches(view: &View<'_>, faults: &mut Vec<CableFault>, silent: &mut BTreeSet<LinkIx>) {
    let planned = view.plan.fabric();
    for (ix, device) in planned.devices() {
        if !device.is_switch() || is_seen(view, ix) {
            continue;
        }
        let links = links_of(view, ix);
        let is_hidden = |far: &DeviceIx| {
            let adapter = !planned.device(*far).is_switch() && !is_seen(view, *far);
            adapter && planned.neighbours(*far).all(|(_, end, _)| !is_seen(view, end.device))
        };
        let hidden: BTreeSet<DeviceIx> = links.iter().map(|(far, _)| far.device).filter(is_hidden).collect();
        let also = match hidden.len() {
            0 => String::new(),
            1 => ", nor is the adapter connected only to it".to_owned(),
            n => format!(", nor are {n} adapters connected only to it"),
        };
        let words = view.plan.device_text(ix);
        let cables: Vec<LinkIx> = links.iter().map(|(_, link)| *link).collect();
        let text = format!(
            "{words}: the switch is not seen{also} (cables {})",
            listed(view, &cables)
        );
        silent.extend(&cables);
        let devices = std::iter::once(words).chain(hidden.iter().map(|ix| view.plan.device_text(*ix)));
        faults.push(fault(view, FaultKind::DeviceMissing, &cables, devices.collect(), text));
    }
}

/// Machines without a seen adapter, and machines of which most adapters and at least [`MIN_GONE`] are missing. The finding
/// about a cable reports an adapter of an unknown machine with a single cable.
fn missing_machines(view: &View<'_>, faults: &mut Vec<CableFault>, silent: &mut BTreeSet<LinkIx>) {
    for (at, unit) in view
        .units
        .all()
        .filter(|(_, unit)| unit.kind == DeviceKind::ChannelAdapter)
    {
        let has_name = unit.is_machine || !name::is_generic(&unit.name);
        let is_unreported = |ix: &DeviceIx| links_of(view, *ix).iter().any(|(_, cable)| !silent.contains(cable));
        let gone: Vec<DeviceIx> = unit.devices.iter().copied().filter(|ix| !is_seen(view, *ix)).collect();
        let all_gone = gone.len() == unit.devices.len();
        // An adapter with its own power supply may be seen although its node is off.
        let gone: Vec<DeviceIx> = gone.into_iter().filter(|ix| all_gone || is_unreported(ix)).collect();
        let most_gone = gone.len() >= MIN_GONE && gone.len() * 2 > unit.devices.len();
        let links = gone.iter().flat_map(|ix| links_of(view, *ix));
        let cables: Vec<LinkIx> = links.map(|(_, link)| link).collect();
        let is_reported = !gone.iter().any(is_unreported);
        if !(all_gone || most_gone) || is_reported || !has_name && cables.len() < 2 {
            continue;
        }
        // The planned port may have another device on it. The fault of the cable then reports that device.
        let dark = |cable: &LinkIx| {
            let link = view.plan.fabric().link(*cable);
            let ends = [link.a, link.b];
            ends.iter()
                .filter_map(|end| view.place(*end))
                .all(|port| view.found.far_end(port).is_none())
        };
        let all = cables.len();
        let cables: Vec<LinkIx> = cables.into_iter().filter(dark).collect();
        if cables.len() * 2 < all {
            continue;
        }
        let text = missing_words(view, at, &gone, &cables);
        silent.extend(&cables);
        let devices = gone.iter().map(|ix| view.plan.device_text(*ix)).collect();
        faults.push(fault(view, FaultKind::DeviceMissing, &cables, devices, text));
    }
}

fn missing_words(view: &View<'_>, at: usize, gone: &[DeviceIx], cables: &[LinkIx]) -> String {
    let unit = view.units.get(at);
    let words = view.units.words(view.plan, at);
    let noun = if cables.len() == 1 { "cable" } else { "cables" };
    let listed = format!("{noun} {}", listed(view, cables));
    let all = unit.devices.len();
    match gone {
        [_] if !unit.is_machine => format!("{words} is not seen: it is off, or has no cable that works ({listed})"),
        [only] => format!(
            "{words}: {}, its only adapter, is not seen: the node is off, or the adapter has no cable that works ({listed})",
            view.plan.device_text(*only)
        ),
        gone if gone.len() < all => format!(
            "{words}: {} of its {all} adapters are not seen; the node may be off ({listed})",
            gone.len()
        ),
        _ => format!("{words}: none of its {all} adapters is seen; the node may be off ({listed})"),
    }
}

/// Devices with the planned place or name, and with another GUID or another name. All devices of a node give one finding.
///
/// If most nodes have other names, a node with just another name gives no finding. Returns the number of such nodes.
fn replaced(view: &View<'_>, faults: &mut Vec<CableFault>) -> usize {
    let (mut replaced, mut renamed, mut right) = (Vec::new(), 0, 0);
    for (at, unit) in view.units.all().filter(|(at, _)| !view.exchanges.has(*at)) {
        let pairs = unit.devices.iter();
        let others: Vec<(DeviceIx, DeviceIx)> =
            pairs.filter_map(|ix| Some((*ix, other_in_place(view, *ix)?))).collect();
        let has_guid = |ix: &DeviceIx| view.plan.fabric().device(*ix).guid.is_some();
        let by_name = !others.iter().any(|(ix, _)| has_guid(ix));
        if !others.is_empty() {
            renamed += usize::from(by_name);
            replaced.push((at, others, by_name));
        } else if unit.kind == DeviceKind::ChannelAdapter
            && unit.devices.iter().any(|ix| view.matching.is_identified(*ix))
        {
            right += 1;
        }
    }
    let is_scheme = renamed > right;
    for (at, others, by_name) in &replaced {
        if !(*by_name && is_scheme) {
            faults.push(other_device(view, *at, others));
        }
    }
    if is_scheme { renamed } else { 0 }
}

/// The finding about a unit with other devices in the places of these planned devices.
fn other_device(view: &View<'_>, at: usize, others: &[(DeviceIx, DeviceIx)]) -> CableFault {
    let unit = view.units.get(at);
    let (first, other) = others[0];
    let wanted = view.plan.fabric().device(first);
    let found = view.found.device(other);
    let guid = found.guid.map(|guid| guid.to_string()).unwrap_or_default();
    let should = wanted
        .guid
        .map(|guid| format!(" instead of {guid}"))
        .unwrap_or_default();
    let name = &found.name;
    let text = if others.len() == 1 {
        let (words, noun) = (view.plan.device_text(first), wanted.kind.noun());
        format!("{words}: another {noun} is in its place, {guid} ({name:?}){should}")
    } else {
        let (words, noun) = (view.units.words(view.plan, at), unit.noun());
        let why = match wanted.guid {
            Some(_) => "or the adapters of this node were replaced",
            None => "or this node has another name",
        };
        format!(
            "{words}: {} other adapters are in its place, the first is {guid} ({name:?}){should}: another {noun} is \
             there, {why}",
            others.len()
        )
    };
    let links = others.iter().flat_map(|(ix, _)| links_of(view, *ix));
    let cables: Vec<LinkIx> = links.map(|(_, link)| link).collect();
    let devices = others.iter().map(|(ix, _)| view.plan.device_text(*ix)).collect();
    CableFault {
        replacements: others.iter().filter_map(|pair| replacement(view, *pair)).collect(),
        ..fault(view, FaultKind::DeviceReplaced, &cables, devices, text)
    }
}

/// The text about the device in the place of a planned device. `None`: only the name differs.
fn replacement(view: &View<'_>, (planned, other): (DeviceIx, DeviceIx)) -> Option<Replacement> {
    let wanted = view.plan.fabric().device(planned);
    wanted.guid?;
    let found = view.found.device(other);
    let guid = found.guid?;
    let (mut ports, mut in_place) = (Vec::new(), BTreeSet::new());
    if found.is_adapter() {
        for (number, far, cable) in view.plan.fabric().neighbours(planned) {
            let place = PortRef {
                device: other,
                port: number,
            };
            let Some(port) = view.found.port(place).and_then(|port| port.guid) else {
                continue;
            };
            let linked = view.place(far).and_then(|far| view.found.far_end(far));
            if linked == Some(place) {
                in_place.insert(port);
            }
            ports.push((cable_key(view.plan, cable), port));
        }
    }
    Some(Replacement {
        planned: wanted.name.to_string(),
        guid,
        ports,
        in_place,
    })
}

/// The discovered device for a planned one, if its GUID or its name differs from the plan.
fn other_in_place(view: &View<'_>, ix: DeviceIx) -> Option<DeviceIx> {
    let wanted = view.plan.fabric().device(ix);
    let other = view.matching.found_of(ix)?;
    let found = view.found.device(other);
    let other_guid = match (wanted.guid, found.guid) {
        (Some(wanted), Some(there)) => view.found.find(wanted) != Some(other) && wanted != there,
        _ => false,
    };
    let is_specific = |text: &str| !name::is_generic(text) && text.parse::<crate::Guid>().is_err();
    let machine = |device: &crate::Device| {
        let named = device.is_adapter().then(|| name::machine(&device.name)).flatten();
        named.map(|(machine, _)| name::key(machine))
    };
    let renamed = wanted.guid.is_none()
        && is_specific(&wanted.name)
        && is_specific(&found.name)
        && machine(wanted) != machine(found)
        && name::key(&wanted.name) != name::key(&found.name);
    (other_guid || renamed).then_some(other)
}

fn unknown(view: &View<'_>, faults: &mut Vec<CableFault>) {
    for (ix, device) in view.found.devices() {
        let of_interest = matches!(device.kind, DeviceKind::Switch | DeviceKind::ChannelAdapter);
        if !of_interest || view.matching.planned_of(ix).is_some() {
            continue;
        }
        let guid = device.guid.map(|guid| guid.to_string()).unwrap_or_default();
        let places: Vec<String> = view
            .found
            .neighbours(ix)
            .take(MAX_NAMED)
            .map(|(_, far, _)| view.found_text(far))
            .collect();
        let places = if places.is_empty() {
            "no cable".to_owned()
        } else {
            places.join(", ")
        };
        let noun = device.kind.noun();
        let text = format!(
            "{noun} {guid} ({:?}) is not in the plan; it is connected to {places}",
            device.name
        );
        let words = plan::device_text(view.found, ix, None);
        faults.push(fault(view, FaultKind::DeviceUnknown, &[], vec![words], text));
    }
}

fn fault(view: &View<'_>, kind: FaultKind, cables: &[LinkIx], devices: Vec<String>, text: String) -> CableFault {
    CableFault {
        kind,
        cables: cables.iter().map(|cable| cable_key(view.plan, *cable)).collect(),
        devices,
        text,
        runs: None,
        replacements: Vec::new(),
    }
}
