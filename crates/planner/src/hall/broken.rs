//! Broken links, as placement sees them.

use std::collections::{BTreeMap, BTreeSet};

use super::Switches;
use super::positions::bit;
use super::wiring::low_and_high;
use rackwright_placement::Mask;
use rackwright_site::model::{Port, Site, SwitchId, SwitchRole};

/// The position of a link in the hall.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Place {
    /// An uplink of a unit, on any rail: all rails are allocated alike.
    Unit(usize),
    /// A link above a spine: the pod, and the spine's position within its rail.
    Spine(usize, usize),
}

/// A broken cable: each affected position, with its broken links.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Broken {
    /// The label of the cable.
    pub label: String,
    pub at: Vec<(Place, Mask)>,
}

/// Finds the positions of these cables. Skipped are unknown labels, and cables of nodes and of switches that are left
/// out.
pub(crate) fn locate(site: &Site, switches: &Switches, labels: &BTreeSet<String>) -> Vec<Broken> {
    if labels.is_empty() {
        return Vec::new();
    }
    let mut seen: BTreeMap<(SwitchId, SwitchId), u32> = BTreeMap::new();
    let mut found = Vec::new();
    for cable in &site.cables {
        let (Port::Switch { switch: a, .. }, Port::Switch { switch: b, .. }) = (cable.a, cable.b) else {
            continue;
        };
        let (low, high) = low_and_high(site, a, b);
        // Parallel cables between two switches are numbered in the order of the site.
        let number = seen.entry((low, high)).or_default();
        let parallel = *number;
        *number += 1;
        if !labels.contains(&*cable.label) {
            continue;
        }
        let at: Vec<(Place, Mask)> = if site.switch(low).role == SwitchRole::Leaf {
            uplink(site, switches, low, high, parallel).into_iter().collect()
        } else {
            core_links(switches, low, high, parallel)
        };
        if !at.is_empty() {
            found.push(Broken {
                label: cable.label.to_string(),
                at,
            });
        }
    }
    found
}

/// The position of cable `number` between a leaf and a spine.
fn uplink(site: &Site, switches: &Switches, leaf: SwitchId, spine: SwitchId, number: u32) -> Option<(Place, Mask)> {
    let unit = switches.unit_of_leaf(leaf)?;
    let (fabric, pod) = switches.pods[switches.pod_of_unit[unit]];
    let positions = &switches.fabrics[fabric];
    let spines = positions.spines.get(&pod)?.get(&site.switch(leaf).rail)?;
    let place = spines.iter().position(|other| *other == Some(spine))?;
    let used = number < positions.tree.links_per_spine;
    used.then(|| (Place::Unit(unit), bit(number, place as u32, positions.tree.spines)))
}

/// The positions of cable `number` between a spine and a core. Rails that share a spine each use a part of its links,
/// and all rails are allocated alike, so this link counts as broken on each of these rails.
fn core_links(switches: &Switches, spine: SwitchId, core: SwitchId, number: u32) -> Vec<(Place, Mask)> {
    let mut at: BTreeMap<Place, Mask> = BTreeMap::new();
    for (pod, (fabric, of_site)) in switches.pods.iter().enumerate() {
        let positions = &switches.fabrics[*fabric];
        for (rail, spines) in positions.spines.get(of_site).into_iter().flatten() {
            let Some(place) = spines.iter().position(|other| *other == Some(spine)) else {
                continue;
            };
            let cores = positions.cores.get(&(*rail, place)).into_iter().flatten();
            for (core_place, _) in cores.enumerate().filter(|(_, other)| **other == core) {
                let link = positions.core_link(core_place as u32, number);
                *at.entry(Place::Spine(pod, place)).or_default() |= link;
            }
        }
    }
    at.into_iter().filter(|(_, mask)| *mask != 0).collect()
}
