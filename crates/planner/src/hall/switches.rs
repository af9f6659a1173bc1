//! The switches of a hall's units, spines and cores. All rails are wired and allocated alike, so names refer to the
//! first rail.

use std::collections::BTreeMap;

use super::{UnitKey, UnsupportedFabric, Wiring, unit_of};
use rackwright_placement::Tree;
use rackwright_site::model::{Site, SwitchId, SwitchRole};

/// Switches by their position in the hall.
#[derive(Debug, Clone, Default)]
pub(crate) struct Switches {
    /// By unit: its leaves, by rail.
    pub leaves: Vec<Vec<SwitchId>>,
    /// By pod: the spines of the first rail, by position.
    pub spines: Vec<Vec<SwitchId>>,
    /// By pod and spine: the cores above it that belong to the first rail, by position.
    pub cores: Vec<Vec<Vec<SwitchId>>>,
}

impl Switches {
    pub(super) fn of(site: &Site, wiring: &Wiring, keys: &[UnitKey], tree: Tree) -> Result<Self, UnsupportedFabric> {
        let mut leaves: BTreeMap<UnitKey, Vec<SwitchId>> = BTreeMap::new();
        for id in site.switch_ids() {
            let switch = site.switch(id);
            if switch.role == SwitchRole::Leaf
                && let Some(key) = unit_of(switch)
            {
                leaves.entry(key).or_default().push(id);
            }
        }
        let mut switches = Self::default();
        let mut pods: Vec<u16> = Vec::new();
        for key in keys {
            let mut of_unit = leaves.remove(key).unwrap_or_default();
            of_unit.sort_by_key(|&leaf| (site.switch(leaf).rail, leaf));
            if pods.last() != Some(&key.0) {
                pods.push(key.0);
                let (spines, _) = match of_unit.first() {
                    Some(&leaf) => wiring.evenly(site, leaf)?,
                    None => (Vec::new(), 0),
                };
                let mut above = Vec::with_capacity(spines.len());
                for &spine in &spines {
                    let (mut cores, _) = wiring.evenly(site, spine)?;
                    cores.truncate(tree.cores_per_spine as usize);
                    above.push(cores);
                }
                switches.spines.push(spines);
                switches.cores.push(above);
            }
            switches.leaves.push(of_unit);
        }
        Ok(switches)
    }

    /// The unit of a leaf.
    pub fn unit_of_leaf(&self, leaf: SwitchId) -> Option<usize> {
        self.leaves.iter().position(|of_unit| of_unit.contains(&leaf))
    }

    /// Pod and position of a spine.
    pub fn place_of_spine(&self, spine: SwitchId) -> Option<(usize, usize)> {
        let place = |spines: &Vec<SwitchId>| spines.iter().position(|&other| other == spine);
        let mut pods = self.spines.iter().enumerate();
        pods.find_map(|(pod, spines)| place(spines).map(|place| (pod, place)))
    }
}
