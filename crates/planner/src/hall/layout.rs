//! The fabric of a site in the numbering of the hall.
//!
//! A fabric is used if the site file names it as a compute fabric, if it has the most nodes, or if it has the shape of
//! that one. What does not fit into a uniform fat-tree is left out: nodes, other fabrics, and links.
//! [`super::irregularities`] names each part and its cost.

use std::collections::{BTreeMap, HashMap};

use super::positions::Positions;
use super::switches::Switches;
use super::wiring::{Attachment, Unit, UnitName, Wiring};
use rackwright_placement::{FabricSpec, Mask, PodId, PodSpec, Tree, UnitId};
use rackwright_site::model::{FabricId, NodeId, Site, SwitchId};

/// A pod of the hall: a pod of one fabric.
pub(super) struct LaidPod {
    /// Index in [`Layout::fabrics`].
    pub fabric: usize,
    /// The number in the site.
    pub number: u16,
    pub units: Vec<Unit>,
}

/// The fabric of a site in the numbering of the hall.
pub(super) struct Layout {
    pub wiring: Wiring,
    /// The fabrics in use. A cluster is in one of them.
    pub fabrics: Vec<Positions>,
    /// The pods of each fabric, one fabric after the other.
    pub pods: Vec<LaidPod>,
    /// The number of each unit in use.
    pub units: HashMap<Unit, u32>,
    /// The units of fabrics that are left out.
    pub beside: Vec<Vec<Unit>>,
}

/// Why no cluster gets a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LeftOut {
    /// The node's cables do not lead to the leaves of one unit.
    Attachment(Attachment),
    /// The unit's fabric is left out.
    Beside(Unit),
    /// Fewer PSUs are plugged in than the SKU needs.
    Psus {
        /// Number of PSUs that are plugged in.
        plugged: usize,
        /// Number of PSUs that must work, at least 1.
        needed: usize,
    },
}

impl Layout {
    pub fn of(site: &Site) -> Self {
        let wiring = Wiring::of(site);
        let (mut fabrics, mut beside) = (Vec::new(), Vec::new());
        let mut pods: BTreeMap<(usize, u16), Vec<Unit>> = BTreeMap::new();
        let mut tree: Option<Tree> = None;
        for units in &wiring.fabrics {
            let positions = Positions::of(site, &wiring, units);
            let shape = |tree: Tree| (tree.spines, tree.links_per_spine);
            let same = tree.is_none_or(|tree| shape(tree) == shape(positions.tree));
            if !same && fabric_named(site, &wiring, units).is_none() {
                beside.push(units.clone());
                continue;
            }
            tree = tree.or(Some(positions.tree));
            for unit in units {
                pods.entry((fabrics.len(), unit.0)).or_default().push(*unit);
            }
            fabrics.push(positions);
        }
        let pods: Vec<LaidPod> = pods
            .into_iter()
            .map(|((fabric, number), units)| LaidPod { fabric, number, units })
            .collect();
        let units = pods.iter().flat_map(|pod| &pod.units).copied();
        Self {
            units: units.zip(0..).collect(),
            wiring,
            fabrics,
            pods,
            beside,
        }
    }

    /// The tree of one rail in the first fabric.
    pub fn tree(&self) -> Tree {
        self.fabrics.first().map(|fabric| fabric.tree).unwrap_or_default()
    }

    /// The fabrics after the first one.
    pub fn more_fabrics(&self) -> Vec<FabricSpec> {
        let mut more = Vec::new();
        for (pod, at) in self.pods.iter().zip(0..) {
            if pod.fabric > more.len() {
                more.push(FabricSpec {
                    first_pod: PodId(at),
                    tree: self.fabrics[pod.fabric].tree,
                });
            }
        }
        more
    }

    /// The fabric of a pod in the site file. Of rails apart, the first one. `None`: the site file does not say.
    pub fn fabric_of(&self, site: &Site, pod: &LaidPod) -> Option<FabricId> {
        fabric_named(site, &self.wiring, &pod.units)
    }

    /// The unit of a node, by its number.
    pub fn unit_of(&self, site: &Site, node: NodeId) -> Result<UnitId, LeftOut> {
        let unit = match self.wiring.attachments[node.index()] {
            Attachment::Unit(unit) => unit,
            attachment => return Err(LeftOut::Attachment(attachment)),
        };
        let number = self.units.get(&unit).ok_or(LeftOut::Beside(unit))?;
        let plugged = site.node(node).psus.iter().flatten().count();
        let needed = usize::from(site.sku_of(node).psus.needed).max(1);
        if plugged < needed {
            return Err(LeftOut::Psus { plugged, needed });
        }
        Ok(UnitId(*number))
    }

    pub fn pod_specs(&self, site: &Site) -> Vec<PodSpec> {
        let spec = |pod: &LaidPod| PodSpec {
            name: pod_name(self, site, pod),
            units: pod.units.iter().map(|unit| unit_name(site, *unit)).collect(),
        };
        self.pods.iter().map(spec).collect()
    }

    /// The uplinks that units lack.
    pub fn absent_uplinks(&self, site: &Site) -> BTreeMap<UnitId, Mask> {
        let mut absent = BTreeMap::new();
        for pod in &self.pods {
            let positions = &self.fabrics[pod.fabric];
            for unit in &pod.units {
                let leaves = &self.wiring.leaves[unit];
                let mask = positions.absent_uplinks(site, &self.wiring, pod.number, leaves);
                if mask != 0 {
                    absent.insert(UnitId(self.units[unit]), mask);
                }
            }
        }
        absent
    }

    /// The links above spines that pods lack.
    pub fn absent_cores(&self) -> BTreeMap<(PodId, u32), Mask> {
        let mut absent = BTreeMap::new();
        for (pod, at) in self.pods.iter().zip(0..) {
            let positions = &self.fabrics[pod.fabric];
            for place in 0..positions.tree.spines {
                let mask = positions.absent_cores(&self.wiring, pod.number, place as usize);
                if mask != 0 {
                    absent.insert((PodId(at), place), mask);
                }
            }
        }
        absent
    }

    pub fn into_switches(self) -> Switches {
        let mut switches = Switches::default();
        for (at, pod) in self.pods.iter().enumerate() {
            let positions = &self.fabrics[pod.fabric];
            let rails = positions.spines.get(&pod.number);
            let first = rails.and_then(BTreeMap::first_key_value);
            let (rail, spines) = first.map_or((None, Vec::new()), |(rail, spines)| (*rail, spines.clone()));
            let above = |place: usize| -> Vec<Option<SwitchId>> {
                let cores = positions.cores.get(&(rail, place)).into_iter().flatten();
                let first_part = cores.take(positions.tree.cores_per_spine as usize);
                first_part.copied().map(Some).collect()
            };
            switches.cores.push((0..spines.len()).map(above).collect());
            switches.spines.push(spines);
            switches.pods.push((pod.fabric, pod.number));
            for unit in &pod.units {
                switches.leaves.push(self.wiring.leaves[unit].clone());
                switches.pod_of_unit.push(at);
            }
        }
        switches.fabrics = self.fabrics;
        switches
    }
}

/// The fabric of the first leaf of these units.
fn fabric_named(site: &Site, wiring: &Wiring, units: &[Unit]) -> Option<FabricId> {
    let leaf = units.first().and_then(|unit| wiring.leaves[unit].first())?;
    site.switch(*leaf).fabric
}

/// The name of a unit in pictures and findings.
pub(super) fn unit_name(site: &Site, unit: Unit) -> String {
    match unit.1 {
        UnitName::Number(number, _) => format!("su{number:02}"),
        UnitName::Leaf(leaf) => site.switch(leaf).name.to_string(),
    }
}

/// The name of a pod. Where there are several fabrics, with the name of its fabric; pods of further fabrics without a name
/// have that of a leaf.
pub(super) fn pod_name(layout: &Layout, site: &Site, pod: &LaidPod) -> String {
    if let Some(fabric) = layout.fabric_of(site, pod).filter(|_| layout.fabrics.len() > 1) {
        return format!("pod {} of {}", pod.number, site.fabric(fabric).name);
    }
    let first = pod.units.first().and_then(|unit| layout.wiring.leaves[unit].first());
    match first.filter(|_| pod.fabric > 0) {
        Some(leaf) => format!("pod {} of {}", pod.number, site.switch(*leaf).name),
        None => format!("pod {}", pod.number),
    }
}
