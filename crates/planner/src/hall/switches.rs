//! The switches of a hall's units, spines and cores. All rails are wired and allocated alike, so names refer to the
//! first rail.

use super::positions::{Positions, Spines};
use rackwright_site::model::SwitchId;

/// Switches by their position in the hall.
#[derive(Debug, Clone, Default)]
pub(crate) struct Switches {
    /// By unit: its leaves, by rail.
    pub leaves: Vec<Vec<SwitchId>>,
    /// By pod: the spines of the first rail, by position.
    pub spines: Vec<Spines>,
    /// By pod and spine: the cores above it that belong to the first rail, by position.
    pub cores: Vec<Vec<Vec<Option<SwitchId>>>>,
    /// The pod of each unit.
    pub(super) pod_of_unit: Vec<usize>,
    /// By pod: its fabric in `fabrics`, and its number in the site.
    pub(super) pods: Vec<(usize, u16)>,
    pub(super) fabrics: Vec<Positions>,
}

impl Switches {
    /// The unit that has this leaf. `None`: no unit has it.
    pub fn unit_of_leaf(&self, leaf: SwitchId) -> Option<usize> {
        self.leaves.iter().position(|of_unit| of_unit.contains(&leaf))
    }

    /// Pod and position of a spine.
    pub fn place_of_spine(&self, spine: SwitchId) -> Option<(usize, usize)> {
        let place = |spines: &Spines| spines.iter().position(|&other| other == Some(spine));
        let mut pods = self.spines.iter().enumerate();
        pods.find_map(|(pod, spines)| place(spines).map(|place| (pod, place)))
    }
}
