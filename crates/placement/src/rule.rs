//! When a cluster never needs links of another: the rule for the shape of its links.
//!
//! A host sends and receives at most at its own bandwidth. Of a unit with `h` of a cluster's `N` nodes, at most `e =
//! min(h, N - h)` nodes exchange data with other units at once. So at most `e` streams leave the unit and at most `e`
//! enter it, for any traffic pattern.
//!
//! **Two levels.** All units have equal links to the same spines, at least `e` of them. One unit may differ: its links
//! are a subset of the others' and at least its own `e`. Then the cluster's own links suffice for every pattern: colour
//! the streams with the links so that no colour occurs twice at a unit (König), the odd unit's colours first. A unit
//! may have more links than its nodes need: (3,2,1) works with links (3,3,1). A single unit needs no links. Next to a
//! big unit, the small ones decide: (28,4) needs four links on each side.
//!
//! **Three levels.** A colour is a spine's index in its pod. Spines with the same index connect to the same cores: their
//! plane. In each plane the same rule applies, with pods as units and cores as spines: if the units of a pod have `d` links
//! to that spine, of `D` links in all pods, the pod needs `min(d, D - d)` links up.
//!
//! The shapes come from Zahavi et al., "Links as a Service", ANCS 2016, and Smith and Lowenthal, "Jigsaw", HPDC 2021.
//! Those papers use exactly as many links as a unit has nodes, and allow no smaller units except the odd one.

use std::collections::BTreeMap;

use super::hall::Hall;
use super::links::{Mask, Wiring, lowest};
use super::request::{Bandwidth, SpineShare, UnitShare};
use super::spec::Tree;

/// A breach of the rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Breach {
    /// Two units have no path to each other.
    #[error("the units are in several fabrics")]
    Fabrics,
    /// A unit has too few uplinks for its nodes.
    #[error("unit {0} has too few uplinks")]
    Unit(u32),
    /// More than one unit differs from the others, or the odd unit has links that the others lack.
    #[error("the units' uplinks do not go to the same spines")]
    Units,
    /// A spine has too few links to cores.
    #[error("spine {spine} of pod {pod} has too few uplinks")]
    Spine { pod: u32, spine: u32 },
    /// Like [`Breach::Units`], for the pods at this spine.
    #[error("the links above spine {0} do not go to the same cores in all pods")]
    Plane(u32),
}

/// The wiring of the tree: from a unit to spines, and from a spine to cores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wirings {
    /// From a unit to spines.
    pub spines: Wiring,
    /// From a spine to cores.
    pub cores: Wiring,
}

impl Wirings {
    /// The wiring of a tree.
    #[must_use]
    pub fn of(tree: Tree) -> Self {
        Self {
            spines: Wiring {
                peers: tree.spines,
                parallel: tree.links_per_spine,
            },
            cores: Wiring {
                peers: tree.cores_per_spine,
                parallel: tree.links_per_core,
            },
        }
    }
}

/// Whether all `masks` are equal except at most one, which is a subset of the others.
fn alike_but_one(masks: &[Mask]) -> bool {
    let all = masks.iter().fold(0, |a, m| a | m);
    let odd = masks.iter().filter(|&&m| m != all).count();
    odd <= 1
}

/// Checks a shape against the rule.
///
/// # Errors
/// The first breach.
pub fn check(wirings: Wirings, bandwidth: Bandwidth, units: &[UnitShare], cores: &[SpineShare]) -> Result<(), Breach> {
    if units.len() < 2 {
        return Ok(());
    }
    let all: u32 = units.iter().map(|u| u.hosts.count_ones()).sum();
    for unit in units {
        let hosts = unit.hosts.count_ones();
        if unit.links.count_ones() < bandwidth.links(hosts.min(all - hosts)) {
            return Err(Breach::Unit(unit.unit.0));
        }
    }
    let counted: Vec<_> = units.iter().map(|u| wirings.spines.counted(u.links)).collect();
    if !alike_but_one(&counted) {
        return Err(Breach::Units);
    }
    if units.iter().all(|u| u.pod == units[0].pod) {
        return Ok(());
    }
    (0..wirings.spines.peers).try_for_each(|spine| check_plane(wirings, spine, units, cores))
}

fn check_plane(wirings: Wirings, spine: u32, units: &[UnitShare], cores: &[SpineShare]) -> Result<(), Breach> {
    let mut demands: BTreeMap<u32, u32> = BTreeMap::new();
    for unit in units {
        let links = wirings.spines.count(unit.links, spine);
        if links > 0 {
            *demands.entry(unit.pod.0).or_default() += links;
        }
    }
    let all: u32 = demands.values().sum();
    if demands.len() < 2 {
        return Ok(());
    }
    let mut masks = Vec::new();
    for (&pod, &demand) in &demands {
        let held = cores.iter().find(|c| c.pod.0 == pod && c.spine == spine);
        let held = held.map_or(0, |c| c.links);
        if held.count_ones() < demand.min(all - demand) {
            return Err(Breach::Spine { pod, spine });
        }
        masks.push(wirings.cores.counted(held));
    }
    if alike_but_one(&masks) {
        Ok(())
    } else {
        Err(Breach::Plane(spine))
    }
}

/// A pod, and the number of links from a cluster's units there to one spine.
pub(super) type Demand = (u32, u32);

/// The demands on a plane, and its free links.
struct Plane {
    /// Pod, number of streams in each direction, free links up in counted form.
    pods: Vec<(u32, u32, Mask)>,
    /// Links free on all pods.
    all: Mask,
    /// Maximum number of streams of a pod.
    most: u32,
}

impl Plane {
    fn of(hall: &Hall, spine: u32, demands: &[Demand]) -> Self {
        let total: u32 = demands.iter().map(|d| d.1).sum();
        let pods = demands.iter().filter(|d| d.1 > 0 && d.1 < total);
        let pods: Vec<_> = pods
            .map(|&(pod, links)| (pod, links.min(total - links), hall.free_cores(pod, spine)))
            .collect();
        Self {
            all: pods.iter().fold(Mask::MAX, |a, p| a & p.2),
            most: pods.iter().map(|p| p.1).max().unwrap_or(0),
            pods,
        }
    }

    /// The odd pod, which needs the fewest links, and the links free on all others.
    fn odd(&self) -> Option<(usize, Mask)> {
        let mut after = vec![Mask::MAX; self.pods.len() + 1];
        for (i, pod) in self.pods.iter().enumerate().rev() {
            after[i] = after[i + 1] & pod.2;
        }
        let (mut before, mut best) = (Mask::MAX, None::<(usize, Mask)>);
        let all = self.all.count_ones();
        for (i, pod) in self.pods.iter().enumerate() {
            let others = before & after[i + 1];
            let fits = all >= pod.1 && others.count_ones() >= self.most;
            if fits && best.is_none_or(|(b, _)| pod.1 < self.pods[b].1) {
                best = Some((i, others));
            }
            before &= pod.2;
        }
        best
    }
}

/// Whether the plane of `spine` has enough links for these pods.
pub(super) fn fits_plane(hall: &Hall, spine: u32, demands: &[Demand]) -> bool {
    let plane = Plane::of(hall, spine, demands);
    plane.pods.is_empty() || plane.all.count_ones() >= plane.most || plane.odd().is_some()
}

/// Chooses links above `spine` for these pods. `None`: they do not fit.
pub(super) fn choose_plane(hall: &Hall, spine: u32, demands: &[Demand]) -> Option<Vec<SpineShare>> {
    let plane = Plane::of(hall, spine, demands);
    if plane.pods.is_empty() {
        return Some(Vec::new());
    }
    let (odd, others) = plane.odd()?;
    let least = lowest(plane.all, plane.pods[odd].1);
    let common = least | lowest(others & !least, plane.most - least.count_ones());
    let share = |(i, pod): (usize, &(u32, u32, Mask))| {
        let wanted = if i == odd { least } else { common };
        hall.share_of_spine(pod.0, spine, wanted)
    };
    Some(plane.pods.iter().enumerate().map(share).collect())
}
