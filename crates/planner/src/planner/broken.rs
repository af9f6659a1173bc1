//! Broken links. Placement no longer counts on their bandwidth.

use std::collections::{BTreeMap, BTreeSet};

use super::{NamedPlacement, Planner};
use crate::hall::{self, Place};
use rackwright_placement::{Mask, Placement, PodId, UnitId};

impl Planner<'_> {
    /// Takes the links of these cables out of service and puts all others into service. New clusters do not get broken
    /// links. A cluster keeps those that it has, and a change of it uses them only if no working links suffice. Returns
    /// how many of the cables are links between switches of this hall.
    pub fn break_links(&mut self, cables: &BTreeSet<String>) -> usize {
        let broken = hall::locate(self.site, &self.switches, cables);
        let mut masks: BTreeMap<Place, Mask> = BTreeMap::new();
        for (place, mask) in broken.iter().flat_map(|cable| &cable.at) {
            *masks.entry(*place).or_default() |= mask;
        }
        let units: usize = self.hall.spec().pods.iter().map(|pod| pod.units.len()).sum();
        for unit in 0..units {
            let mask = masks.get(&Place::Unit(unit)).copied().unwrap_or(0);
            self.hall.set_broken_uplinks(UnitId(number(unit)), mask);
        }
        let pods = self.hall.spec().pods.len();
        for pod in 0..pods {
            let of_pod = PodId(number(pod));
            for spine in 0..self.hall.wirings(of_pod).spines.peers {
                let place = Place::Spine(pod, spine as usize);
                let mask = masks.get(&place).copied().unwrap_or(0);
                self.hall.set_broken_cores(of_pod, spine, mask);
            }
        }
        broken.len()
    }

    /// The clusters that use these cables: by cable, the indices of the clusters in `live`. A cluster that the site
    /// cannot resolve is skipped.
    #[must_use]
    pub fn counting_on(&self, live: &[NamedPlacement], cables: &BTreeSet<String>) -> BTreeMap<String, Vec<usize>> {
        let broken = hall::locate(self.site, &self.switches, cables);
        let mut found: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        if broken.is_empty() {
            return found;
        }
        for (at, named) in live.iter().enumerate() {
            let Ok(placement) = self.resolve(named) else { continue };
            for cable in &broken {
                if cable
                    .at
                    .iter()
                    .any(|(place, mask)| holds(&placement, *place) & mask != 0)
                {
                    found.entry(cable.label.clone()).or_default().push(at);
                }
            }
        }
        found
    }
}

/// The links of a cluster at a place.
fn holds(placement: &Placement, place: Place) -> Mask {
    match place {
        Place::Unit(unit) => {
            let mut units = placement.units.iter();
            units
                .find(|share| share.unit.at() == unit)
                .map_or(0, |share| share.links)
        }
        Place::Spine(pod, spine) => {
            let mut cores = placement.cores.iter();
            let share = cores.find(|share| share.pod.at() == pod && share.spine as usize == spine);
            share.map_or(0, |share| share.links)
        }
    }
}

fn number(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX)
}
