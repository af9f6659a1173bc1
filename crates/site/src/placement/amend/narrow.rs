//! The hall with fewer links for a moment: those that a cluster has anyway.

use crate::placement::hall::Hall;
use crate::placement::links::Mask;
use crate::placement::request::Placement;

/// Which links of its own units a cluster may have. It is out of the hall meanwhile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Links {
    /// Those that it had and that work.
    Own,
    /// All that are free.
    Free,
    /// Those that it had, out of order or not: a link that is down keeps nobody from swapping a node.
    OwnBroken,
}

impl Links {
    /// In the order in which they are tried.
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

/// What was free before.
pub(super) struct Narrowed {
    /// Unit and its links.
    units: Vec<(usize, Mask)>,
    /// Pod, spine, and the links above it.
    cores: Vec<(usize, usize, Mask)>,
}

/// Leaves these links alone.
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

/// Gives back what was left out.
pub(super) fn widen(hall: &mut Hall, narrowed: Narrowed) {
    for (at, links) in narrowed.units {
        set(hall, at, links);
    }
    for (pod, spine, links) in narrowed.cores {
        hall.pods[pod].up[spine] = links;
    }
}

fn set(hall: &mut Hall, at: usize, links: Mask) {
    let unit = &mut hall.units[at];
    unit.links = links;
    unit.counted = hall.wirings.spines.counted(links);
}
