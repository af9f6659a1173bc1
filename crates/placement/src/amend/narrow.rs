//! Temporarily reduces the hall's free links to those of a cluster.

use crate::hall::Hall;
use crate::links::Mask;
use crate::request::Placement;
use crate::spec::PodId;

/// The links that a cluster may use in its own units, while it is out of the hall.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Links {
    /// The cluster's own working links.
    Own,
    /// All free links.
    Free,
    /// The cluster's own links, including broken ones: a broken link must not prevent the replacement of a node.
    OwnBroken,
}

impl Links {
    /// The variants, in the order of the attempts.
    pub fn of(hall: &Hall, before: &Placement) -> Vec<Self> {
        let broken = |share: &super::UnitShare| share.links & hall.units[share.unit.at()].broken != 0;
        let broken_up =
            |share: &super::SpineShare| share.links & hall.pods[share.pod.at()].broken[share.spine as usize] != 0;
        if before.units.iter().any(broken) || before.cores.iter().any(broken_up) {
            vec![Self::Own, Self::Free, Self::OwnBroken]
        } else {
            vec![Self::Own, Self::Free]
        }
    }
}

/// The free links before the reduction.
pub(super) struct Narrowed {
    /// Unit and its free links.
    units: Vec<(usize, Mask)>,
    /// Pod, spine, and the free links above it.
    cores: Vec<(usize, usize, Mask)>,
}

/// Reduces the free links to this selection.
pub(super) fn narrow(hall: &mut Hall, before: &Placement, links: Links) -> Narrowed {
    let mut narrowed = Narrowed {
        units: Vec::new(),
        cores: Vec::new(),
    };
    if links == Links::Free {
        return narrowed;
    }
    for share in &before.units {
        let at = share.unit.at();
        let own = match links {
            Links::OwnBroken => share.links,
            Links::Own | Links::Free => share.links & !hall.units[at].broken,
        };
        narrowed.units.push((at, hall.units[at].links));
        set(hall, at, own);
    }
    for share in &before.cores {
        let (pod, spine) = (share.pod.at(), share.spine as usize);
        let broken = hall.pods[pod].broken[spine];
        let up = &mut hall.pods[pod].up[spine];
        narrowed.cores.push((pod, spine, *up));
        *up = match links {
            Links::OwnBroken => share.links,
            Links::Own | Links::Free => share.links & !broken,
        };
    }
    narrowed
}

/// Restores the free links.
pub(super) fn widen(hall: &mut Hall, narrowed: Narrowed) {
    for (at, links) in narrowed.units {
        set(hall, at, links);
    }
    for (pod, spine, links) in narrowed.cores {
        hall.pods[pod].up[spine] = links;
    }
}

fn set(hall: &mut Hall, at: usize, links: Mask) {
    let counted = hall.wirings(PodId(hall.units[at].pod)).spines.counted(links);
    let unit = &mut hall.units[at];
    (unit.links, unit.counted) = (links, counted);
}
