//! Links that are out of order: nobody's bandwidth counts on one from now on.

use std::collections::{BTreeMap, BTreeSet};

use super::{NamedPlacement, Planner};
use crate::hall::{self, Place, Unfit};
use crate::placement::{Mask, Placement, PodId, UnitId};

impl Planner<'_> {
    /// Takes the links of these cables out of service, and puts all others into service: no new cluster and no change of
    /// one gets them while there are others. Who has one keeps it. Answers with how many of the cables are links between
    /// switches of this site.
    ///
    /// # Errors
    /// As [`Planner::new`].
    pub fn break_links(&mut self, cables: &BTreeSet<String>) -> Result<usize, Unfit> {
        let broken = hall::locate(self.site, &self.switches, cables)?;
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
            for spine in 0..self.hall.spec().tree.spines {
                let place = Place::Spine(pod, spine as usize);
                let mask = masks.get(&place).copied().unwrap_or(0);
                self.hall.set_broken_cores(PodId(number(pod)), spine, mask);
            }
        }
        Ok(broken.len())
    }

    /// Which of these clusters count on which of these cables: by cable, the places of the clusters in the list. What of a
    /// cluster the site does not have is not looked at.
    ///
    /// # Errors
    /// As [`Planner::new`].
    pub fn counting_on(
        &self,
        live: &[NamedPlacement],
        cables: &BTreeSet<String>,
    ) -> Result<BTreeMap<String, Vec<usize>>, Unfit> {
        let broken = hall::locate(self.site, &self.switches, cables)?;
        let mut found: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        if broken.is_empty() {
            return Ok(found);
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
        Ok(found)
    }
}

/// The links that a cluster holds at a place.
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
