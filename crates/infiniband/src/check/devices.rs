//! Devices that are missing, unknown or replaced.

use std::collections::{BTreeMap, BTreeSet};

use super::{CableFault, FaultKind, View, cable_key};
use crate::model::{DeviceIx, DeviceKind, LinkIx, PortRef};
use crate::name;
use crate::plan;

/// Maximum number of cables that a finding names.
const MAX_NAMED: usize = 12;

/// Finds faults of devices. Returns the cables whose absence these faults explain.
pub(super) fn find(view: &View<'_>, faults: &mut Vec<CableFault>) -> BTreeSet<LinkIx> {
    let mut silent = BTreeSet::new();
    missing_switches(view, faults, &mut silent);
    missing_machines(view, faults, &mut silent);
    replaced(view, faults);
    unknown(view, faults);
    silent
}

fn links_of(view: &View<'_>, device: DeviceIx) -> Vec<(PortRef, LinkIx)> {
    view.plan
        .fabric()
        .neighbours(device)
        .map(|(_, far, link)| (far, link))
        .collect()
}

fn missing_switches(view: &View<'_>, faults: &mut Vec<CableFault>, silent: &mut BTreeSet<LinkIx>) {
    let planned = view.plan.fabric();
    for (ix, device) in planned.devices() {
        if !device.is_switch() || view.matching.found_of(ix).is_some() {
            continue;
        }
        let links = links_of(view, ix);
        let is_hidden = |far: &DeviceIx| {
            let adapter = !planned.device(*far).is_switch() && view.matching.found_of(*far).is_none();
            adapter
                && planned
                    .neighbours(*far)
                    .all(|(_, end, _)| view.matching.found_of(end.device).is_none())
        };
        let hidden: BTreeSet<DeviceIx> = links.iter().map(|(far, _)| far.device).filter(is_hidden).collect();
        let also = match hidden.len() {
            0 => String::new(),
            1 => ", and with it the adapter that hangs on it alone".to_owned(),
            n => format!(", and with it {n} adapters that hang on it alone"),
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

/// Machines with several planned adapters of which none is seen. The faults of their cables report single adapters.
fn missing_machines(view: &View<'_>, faults: &mut Vec<CableFault>, silent: &mut BTreeSet<LinkIx>) {
    let mut machines: BTreeMap<&str, Vec<DeviceIx>> = BTreeMap::new();
    for (ix, device) in view.plan.fabric().devices() {
        if let Some(host) = device.host() {
            machines.entry(host.machine).or_default().push(ix);
        }
    }
    for (machine, adapters) in machines {
        let mut cables: Vec<LinkIx> = Vec::new();
        for adapter in &adapters {
            cables.extend(links_of(view, *adapter).iter().map(|(_, link)| *link));
        }
        let gone = adapters.iter().all(|ix| view.matching.found_of(*ix).is_none());
        if adapters.len() < 2 || !gone || cables.iter().all(|cable| silent.contains(cable)) {
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
        if !cables.iter().all(dark) {
            continue;
        }
        let text = format!(
            "node {machine}: none of its {} adapters is seen, it may be off (cables {})",
            adapters.len(),
            listed(view, &cables)
        );
        silent.extend(&cables);
        let devices = adapters.iter().map(|ix| view.plan.device_text(*ix)).collect();
        faults.push(fault(view, FaultKind::DeviceMissing, &cables, devices, text));
    }
}

/// Devices in the right place or with the right name, but with another GUID or name.
fn replaced(view: &View<'_>, faults: &mut Vec<CableFault>) {
    for (ix, wanted) in view.plan.fabric().devices() {
        let Some(other) = view.matching.found_of(ix) else {
            continue;
        };
        let found = view.found.device(other);
        let other_guid = match (wanted.guid, found.guid) {
            (Some(wanted), Some(there)) => view.found.find(wanted) != Some(other) && wanted != there,
            _ => false,
        };
        let told = |text: &str| !name::is_generic(text) && text.parse::<crate::Guid>().is_err();
        let renamed = wanted.guid.is_none()
            && told(&wanted.name)
            && told(&found.name)
            && view.plan.fabric().device(ix).host().map(|h| h.machine) != found.host().map(|h| h.machine);
        let renamed = renamed && name::key(&wanted.name) != name::key(&found.name);
        if !other_guid && !renamed {
            continue;
        }
        let cables: Vec<LinkIx> = links_of(view, ix).iter().map(|(_, link)| *link).collect();
        let words = view.plan.device_text(ix);
        let guid = found.guid.map(|guid| guid.to_string()).unwrap_or_default();
        let should = wanted
            .guid
            .map(|guid| format!(" instead of {guid}"))
            .unwrap_or_default();
        let noun = wanted.kind.noun();
        let text = format!(
            "{words}: another {noun} is in its place, {guid} ({:?}){should}",
            found.name
        );
        faults.push(fault(view, FaultKind::DeviceReplaced, &cables, vec![words], text));
    }
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
            "{noun} {guid} ({:?}) is in no plan; it is connected to {places}",
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
    }
}

fn listed(view: &View<'_>, cables: &[LinkIx]) -> String {
    let mut names: Vec<String> = cables
        .iter()
        .take(MAX_NAMED)
        .map(|cable| cable_key(view.plan, *cable))
        .collect();
    if cables.len() > MAX_NAMED {
        names.push(format!("and {} more", cables.len() - MAX_NAMED));
    }
    names.join(", ")
}
