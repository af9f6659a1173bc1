//! Links out of order, as placement sees them.

use std::collections::{BTreeMap, BTreeSet};

use super::{Switches, UnsupportedFabric, Wiring};
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

/// A cable out of order: each affected position, with its broken links.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Broken {
    /// The label of the cable.
    pub label: String,
    pub at: Vec<(Place, Mask)>,
}

/// Finds the positions of these cables. Cables of nodes and unknown labels are skipped.
pub(crate) fn locate(
    site: &Site,
    switches: &Switches,
    labels: &BTreeSet<String>,
) -> Result<Vec<Broken>, UnsupportedFabric> {
    if labels.is_empty() {
        return Ok(Vec::new());
    }
    let wiring = Wiring::of(site)?;
    let tree = wiring.tree(site)?;
    let spines = spine_places(site, switches, &wiring)?;
    let mut seen: BTreeMap<(SwitchId, SwitchId), u32> = BTreeMap::new();
    let mut found = Vec::new();
    for cable in &site.cables {
        let (Port::Switch { switch: a, .. }, Port::Switch { switch: b, .. }) = (cable.a, cable.b) else {
            continue;
        };
        let (low, high) = if site.switch(a).role < site.switch(b).role {
            (a, b)
        } else {
            (b, a)
        };
        // Parallel cables between two switches are numbered in the order of the site.
        let number = seen.entry((low, high)).or_default();
        let parallel = *number;
        *number += 1;
        if !labels.contains(&*cable.label) {
            continue;
        }
        let (above, _) = wiring.evenly(site, low)?;
        let Some(peer) = above.iter().position(|one| *one == high) else {
            continue;
        };
        let peer = u32::try_from(peer).unwrap_or(u32::MAX);
        let at = if site.switch(low).role == SwitchRole::Leaf {
            let unit = switches.unit_of_leaf(low).map(Place::Unit);
            unit.map(|unit| (unit, bit(parallel, peer, tree.spines)))
                .into_iter()
                .collect()
        } else {
            // Rails that share a spine each use a part of its links, and all rails are allocated alike, so this link
            // counts as broken on each of these rails.
            let (core, number) = (part(peer, tree.cores_per_spine), part(parallel, tree.links_per_core));
            let places = spines.get(&low).into_iter().flatten();
            let mask = bit(number, core, tree.cores_per_spine);
            places.map(|&(pod, place)| (Place::Spine(pod, place), mask)).collect()
        };
        found.push(Broken {
            label: cable.label.to_string(),
            at,
        });
    }
    Ok(found)
}

fn part(of: u32, size: u32) -> u32 {
    of.checked_rem(size).unwrap_or(0)
}

/// The bit of link `parallel` to `peer` among `peers`, in the numbering of [`rackwright_placement::Wiring`].
fn bit(parallel: u32, peer: u32, peers: u32) -> Mask {
    let at = parallel.saturating_mul(peers).saturating_add(peer);
    1_u128.checked_shl(at).unwrap_or(0)
}

/// Pod and position of each spine, on every rail that uses it.
fn spine_places(
    site: &Site,
    switches: &Switches,
    wiring: &Wiring,
) -> Result<BTreeMap<SwitchId, BTreeSet<(usize, usize)>>, UnsupportedFabric> {
    let mut places: BTreeMap<SwitchId, BTreeSet<(usize, usize)>> = BTreeMap::new();
    let mut pods: Vec<u16> = Vec::new();
    for leaves in &switches.leaves {
        let pod = leaves.first().map_or(1, |leaf| site.switch(*leaf).pod.unwrap_or(1));
        if pods.last() != Some(&pod) {
            pods.push(pod);
        }
        for leaf in leaves {
            let (spines, _) = wiring.evenly(site, *leaf)?;
            for (place, spine) in spines.into_iter().enumerate() {
                places.entry(spine).or_default().insert((pods.len() - 1, place));
            }
        }
    }
    Ok(places)
}
