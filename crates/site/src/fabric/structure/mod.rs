//! What shape a fabric has: levels, units, pods, rails, and how much goes up for what comes from below.
//!
//! Nothing is refused here: a fabric that is no fat-tree is described as far as it can be, and what is odd is listed.

mod levels;
mod odd;
mod units;

use std::collections::BTreeMap;

use serde::Serialize;

use super::model::{Counts, DeviceIx, DeviceKind, Fabric, Role};
use super::plan;
use super::rate::Rate;

pub use odd::{Oddity, OddityKind};

/// The shape of a fabric.
#[derive(Debug, Clone)]
pub struct Structure {
    /// How many there are of each.
    pub counts: Counts,
    /// Levels of switches: 1 to 3 for what is a fat-tree.
    pub levels: u8,
    /// Every switch, in the order of the fabric.
    pub switches: Vec<SwitchView>,
    /// Leaves that share their nodes: scalable units where the fabric is rail-optimised.
    pub units: Vec<Unit>,
    /// Leaves that share their spines, with these.
    pub pods: Vec<Pod>,
    /// Spines that share their cores. None with two levels.
    pub groups: Vec<Vec<DeviceIx>>,
    /// Whether adapters with one number share a leaf.
    pub rails: Rails,
    /// Links by class and rate.
    pub rates: BTreeMap<(LinkClass, Rate), usize>,
    /// What is not as the rest.
    pub oddities: Vec<Oddity>,
    /// Oddities beyond [`odd::MAX_ODDITIES`].
    pub more_oddities: usize,
    /// Position in `switches` by device.
    positions: BTreeMap<DeviceIx, usize>,
}

/// What a link connects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum LinkClass {
    /// A switch and a channel adapter.
    Access,
    /// Two switches.
    Trunk,
    /// Anything to an aggregation node or a router.
    Other,
}

impl LinkClass {
    /// The class of a link between two such devices.
    pub fn of(a: DeviceKind, b: DeviceKind) -> Self {
        use DeviceKind::{ChannelAdapter, Switch};
        match (a, b) {
            (Switch, Switch) => Self::Trunk,
            (Switch, ChannelAdapter) | (ChannelAdapter, Switch) => Self::Access,
            _ => Self::Other,
        }
    }
}

/// Whether the fabric is rail-optimised.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rails {
    /// Names do not tell which adapters are of one node.
    Unknown,
    /// Nodes have all their adapters on one leaf, or anyhow.
    NotOptimised,
    /// Adapter r of every node of a unit is on leaf r of the unit.
    Optimised(u8),
}

/// A switch and what hangs on it.
#[derive(Debug, Clone, PartialEq)]
pub struct SwitchView {
    /// The switch.
    pub device: DeviceIx,
    /// 1 for leaves, 2 for spines, 3 for cores; 0 if no way leads to a node.
    pub level: u8,
    /// By level and number of levels.
    pub role: Role,
    /// Links to channel adapters.
    pub adapters: u32,
    /// Links to switches of lower levels.
    pub down: u32,
    /// Links to switches of its own level.
    pub beside: u32,
    /// Links to each switch of higher levels.
    pub up: BTreeMap<DeviceIx, u32>,
    /// Data rate of what comes from below, Gb/s.
    pub down_gbps: f64,
    /// Data rate of what goes up, Gb/s.
    pub up_gbps: f64,
    /// Ports without link; the port of an aggregation node is not counted.
    pub spare_ports: u32,
    /// Position in `units`, for leaves.
    pub unit: Option<usize>,
    /// Position in `pods`, for leaves and spines.
    pub pod: Option<usize>,
    /// Rail, from 0, for leaves of rail-optimised units.
    pub rail: Option<u8>,
}

impl SwitchView {
    /// Links to switches of higher levels.
    pub fn uplinks(&self) -> u32 {
        self.up.values().sum()
    }

    /// What comes from below for each Gb/s that goes up: 1 is non-blocking, 2 is 2:1. None where nothing goes up.
    pub fn oversubscription(&self) -> Option<f64> {
        (self.up_gbps > 0.0).then(|| self.down_gbps / self.up_gbps)
    }
}

/// Leaves that share their nodes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Unit {
    /// Its leaves, by rail.
    pub leaves: Vec<DeviceIx>,
    /// Names of its nodes, where they are known.
    pub nodes: Vec<String>,
}

/// Leaves that share their spines.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Pod {
    /// Its leaves.
    pub leaves: Vec<DeviceIx>,
    /// Its spines.
    pub spines: Vec<DeviceIx>,
}

impl Structure {
    /// Finds out what shape a fabric has.
    pub fn of(fabric: &Fabric) -> Self {
        let (mut switches, positions) = levels::views(fabric);
        let levels = switches.iter().map(|view| view.level).max().unwrap_or(0);
        for view in &mut switches {
            view.role = match (view.level, levels) {
                (0, _) | (4.., _) => Role::Unknown,
                (1, _) => Role::Leaf,
                (2, _) => Role::Spine,
                (3, _) => Role::Core,
            };
        }
        let (units, rails) = units::units(fabric, &mut switches, &positions);
        let pods = levels::pods(&mut switches, &positions);
        let groups = levels::groups(&switches);
        let mut structure = Self {
            counts: fabric.counts(),
            levels,
            switches,
            units,
            pods,
            groups,
            rails,
            rates: rates(fabric),
            oddities: Vec::new(),
            more_oddities: 0,
            positions,
        };
        odd::find(fabric, &mut structure);
        structure
    }

    /// What is known of a switch.
    pub fn switch(&self, device: DeviceIx) -> Option<&SwitchView> {
        self.switches.get(*self.positions.get(&device)?)
    }

    /// The switches of a role.
    pub fn of_role(&self, role: Role) -> impl Iterator<Item = &SwitchView> {
        self.switches.iter().filter(move |view| view.role == role)
    }

    /// What comes from the nodes of a pod for each Gb/s that leaves it towards the cores. None with two levels.
    pub fn pod_oversubscription(&self, pod: &Pod) -> Option<f64> {
        let sum = |devices: &[DeviceIx], of: fn(&SwitchView) -> f64| -> f64 {
            devices.iter().filter_map(|device| self.switch(*device)).map(of).sum()
        };
        let (down, up) = (
            sum(&pod.leaves, |view| view.down_gbps),
            sum(&pod.spines, |view| view.up_gbps),
        );
        (up > 0.0).then(|| down / up)
    }

    /// The worst leaf's oversubscription. None if nothing goes up anywhere.
    pub fn worst_leaf(&self) -> Option<f64> {
        let all = self.of_role(Role::Leaf).filter_map(SwitchView::oversubscription);
        all.max_by(f64::total_cmp)
    }

    /// Whether nothing is odd.
    pub fn is_regular(&self) -> bool {
        self.oddities.is_empty()
    }
}

fn rates(fabric: &Fabric) -> BTreeMap<(LinkClass, Rate), usize> {
    let mut rates = BTreeMap::new();
    for (ix, link) in fabric.links() {
        let class = LinkClass::of(fabric.device(link.a.device).kind, fabric.device(link.b.device).kind);
        if let Some(rate) = fabric.link_rate(ix) {
            *rates.entry((class, rate)).or_default() += 1;
        }
    }
    rates
}

/// A device as people call it.
pub fn called(fabric: &Fabric, device: DeviceIx) -> String {
    plan::device_words(fabric, device, None)
}
