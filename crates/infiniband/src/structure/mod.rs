//! The shape of a fabric: levels, units, pods, rails, and the ratio of bandwidth down and up.
//!
//! No fabric is refused. A fabric that is not a fat-tree is described as far as possible, with a list of oddities.

mod hosts;
mod levels;
mod oddity;
mod suspect;
mod units;

use std::collections::BTreeMap;

use serde::Serialize;

use super::model::{Counts, DeviceIx, DeviceKind, Fabric, Role};
use super::plan;
use super::rate::Rate;

pub use oddity::{Oddity, OddityKind};

/// The shape of a fabric.
#[derive(Debug, Clone)]
pub struct Structure {
    /// The numbers of devices and links.
    pub counts: Counts,
    /// Number of switch levels: 1 to 3 for a fat-tree.
    pub levels: u8,
    /// Every switch, in the order of the fabric.
    pub switches: Vec<SwitchView>,
    /// Leaves that share their nodes. In a rail-optimised fabric these are the scalable units.
    pub units: Vec<Unit>,
    /// Leaves that share their spines, with these spines.
    pub pods: Vec<Pod>,
    /// Spines that share their cores. Empty with two levels.
    pub groups: Vec<Vec<DeviceIx>>,
    /// Whether adapters with the same number share a leaf.
    pub rails: Rails,
    /// Number of links by class and rate.
    pub rates: BTreeMap<(LinkClass, Rate), usize>,
    /// Deviations from the rest of the fabric.
    pub oddities: Vec<Oddity>,
    /// Number of oddities beyond [`oddity::MAX_ODDITIES`].
    pub more_oddities: usize,
    /// Index in `switches` by device.
    positions: BTreeMap<DeviceIx, usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum LinkClass {
    /// A switch and a channel adapter.
    Access,
    /// Two switches.
    Trunk,
    /// Links to an aggregation node or a router.
    Other,
}

impl LinkClass {
    /// The class of a link between two devices of these kinds.
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
    /// Names do not show which adapters belong to one node, or do not show their places in the node.
    Unknown,
    /// Nodes have all their adapters on one leaf, or in no regular order.
    NotOptimised,
    /// Adapter r of every node of a unit is on leaf r of the unit. The number is that of the leaves of a whole unit.
    Optimised(u8),
}

/// A switch and its connections.
#[derive(Debug, Clone, PartialEq)]
pub struct SwitchView {
    /// The switch.
    pub device: DeviceIx,
    /// 1 for leaves, 2 for spines, 3 for cores. 0: no path leads to a node.
    pub level: u8,
    /// The role that follows from the level and the number of levels.
    pub role: Role,
    /// Number of links to channel adapters.
    pub adapters: u32,
    /// Number of links to switches of lower levels.
    pub down: u32,
    /// Number of links to switches of the same level.
    pub beside: u32,
    /// Number of links to each switch of a higher level.
    pub up: BTreeMap<DeviceIx, u32>,
    /// Data rate to lower levels and adapters, in Gb/s.
    pub down_gbps: f64,
    /// Data rate to higher levels, in Gb/s.
    pub up_gbps: f64,
    /// Number of ports without a link. The port for an aggregation node does not count.
    pub spare_ports: u32,
    /// Index in `units`, for leaves.
    pub unit: Option<usize>,
    /// Index in `pods`, for leaves and spines.
    pub pod: Option<usize>,
    /// Rail, from 0, for leaves of rail-optimised units. `None` also where the adapters of a leaf do not show it.
    pub rail: Option<u8>,
}

impl SwitchView {
    /// Number of links to switches of higher levels.
    pub fn uplinks(&self) -> u32 {
        self.up.values().sum()
    }

    /// The ratio of the rates down and up: 1 is non-blocking, 2 is 2:1. `None`: there are no uplinks.
    pub fn oversubscription(&self) -> Option<f64> {
        (self.up_gbps > 0.0).then(|| self.down_gbps / self.up_gbps)
    }
}

/// Leaves that share their nodes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Unit {
    /// The unit's leaves, by rail.
    pub leaves: Vec<DeviceIx>,
    /// The names of the unit's nodes, if known.
    pub nodes: Vec<String>,
    /// The names of other machines at its leaves, with adapters on at most half of them: hosts of subnet managers,
    /// storage.
    pub others: Vec<String>,
}

/// Leaves that share their spines.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Pod {
    /// The pod's leaves.
    pub leaves: Vec<DeviceIx>,
    /// The pod's spines.
    pub spines: Vec<DeviceIx>,
}

impl Structure {
    /// Analyses the shape of a fabric.
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
        let mut machines = hosts::Machines::of(fabric);
        let (units, rails, numbers) = units::units(fabric, &mut switches, &positions, &mut machines);
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
        oddity::find(fabric, &mut structure, &machines, &numbers);
        structure
    }

    /// The view of a switch. `None`: the device is not a switch.
    pub fn switch(&self, device: DeviceIx) -> Option<&SwitchView> {
        self.switches.get(*self.positions.get(&device)?)
    }

    /// The switches with this role.
    pub fn of_role(&self, role: Role) -> impl Iterator<Item = &SwitchView> {
        self.switches.iter().filter(move |view| view.role == role)
    }

    /// The ratio of the rates from a pod's nodes and towards the cores. `None` with two levels.
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

    /// The highest oversubscription of a leaf. `None`: no leaf has uplinks.
    pub fn worst_leaf(&self) -> Option<f64> {
        let all = self.of_role(Role::Leaf).filter_map(SwitchView::oversubscription);
        all.max_by(f64::total_cmp)
    }

    /// Whether there are no oddities.
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

/// A device in words.
pub fn called(fabric: &Fabric, device: DeviceIx) -> String {
    plan::device_text(fabric, device, None)
}
