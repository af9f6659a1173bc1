//! The level of each switch, and groups of switches that share the switches above them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::{Pod, SwitchView};
use crate::model::{DeviceIx, DeviceKind, Fabric, Role};

type Positions = BTreeMap<DeviceIx, usize>;

/// Every switch with its level and its links.
pub(super) fn views(fabric: &Fabric) -> (Vec<SwitchView>, Positions) {
    let levels = levels(fabric);
    let mut positions = Positions::new();
    let mut views = Vec::new();
    for (ix, device) in fabric.devices() {
        if device.is_switch() {
            positions.insert(ix, views.len());
            views.push(view(fabric, ix, &levels));
        }
    }
    (views, positions)
}

fn view(fabric: &Fabric, ix: DeviceIx, levels: &BTreeMap<DeviceIx, u8>) -> SwitchView {
    let level = levels.get(&ix).copied().unwrap_or(0);
    let mut view = SwitchView {
        device: ix,
        level,
        role: Role::Unknown,
        adapters: 0,
        down: 0,
        beside: 0,
        up: BTreeMap::new(),
        down_gbps: 0.0,
        up_gbps: 0.0,
        spare_ports: u32::from(fabric.device(ix).port_count),
        unit: None,
        pod: None,
        rail: fabric.device(ix).rail,
    };
    for (_, far, link) in fabric.neighbours(ix) {
        view.spare_ports = view.spare_ports.saturating_sub(1);
        let gbps = fabric.link_rate(link).map_or(0.0, |rate| rate.gbps());
        match fabric.device(far.device).kind {
            DeviceKind::ChannelAdapter => {
                view.adapters += 1;
                view.down_gbps += gbps;
            }
            DeviceKind::Switch => {
                let other = levels.get(&far.device).copied().unwrap_or(0);
                if other < level {
                    view.down += 1;
                    view.down_gbps += gbps;
                } else if other > level {
                    *view.up.entry(far.device).or_default() += 1;
                    view.up_gbps += gbps;
                } else {
                    view.beside += 1;
                }
            }
            DeviceKind::AggregationNode | DeviceKind::Router => {}
        }
    }
    // An extra port that can only connect to the aggregation node is not a spare port.
    let extra = fabric.device(ix).port_count % 2 == 1 && fabric.device(ix).port_count > 36;
    let engine = fabric
        .neighbours(ix)
        .any(|(_, far, _)| fabric.device(far.device).kind == DeviceKind::AggregationNode);
    if extra && !engine {
        view.spare_ports = view.spare_ports.saturating_sub(1);
    }
    view
}

/// The levels of switches. Leaves have level 1. Every other switch is one above the lowest switch that it is linked to.
/// Switches without a path to a node have no level. A leaf without adapters is not taken for a core.
fn levels(fabric: &Fabric) -> BTreeMap<DeviceIx, u8> {
    let mut levels: BTreeMap<DeviceIx, u8> = leaves(fabric).into_iter().map(|leaf| (leaf, 1)).collect();
    let mut open: VecDeque<DeviceIx> = levels.keys().copied().collect();
    while let Some(ix) = open.pop_front() {
        let above = levels[&ix].saturating_add(1);
        for (_, far, _) in fabric.neighbours(ix) {
            if fabric.device(far.device).is_switch() && !levels.contains_key(&far.device) {
                levels.insert(far.device, above);
                open.push_back(far.device);
            }
        }
    }
    for leaf in empty_leaves(fabric, &levels) {
        levels.insert(leaf, 1);
    }
    levels
}

/// Switches above the spines that are leaves without adapters: the plan names them leaves, or they share with a leaf at
/// least two spines, which are more than half of the spines of each of the two. A core does not: it is linked to the spines
/// of several pods.
fn empty_leaves(fabric: &Fabric, levels: &BTreeMap<DeviceIx, u8>) -> Vec<DeviceIx> {
    let level = |ix: DeviceIx| levels.get(&ix).copied().unwrap_or(0);
    let switches_of = |ix: DeviceIx| -> BTreeSet<DeviceIx> {
        let far = fabric.neighbours(ix).map(|(_, far, _)| far.device);
        far.filter(|far| fabric.device(*far).is_switch()).collect()
    };
    let is_empty_leaf = |ix: DeviceIx| {
        let own = switches_of(ix);
        if own.iter().any(|far| level(*far) != 2) {
            return false;
        }
        match fabric.device(ix).role {
            Role::Leaf => return true,
            Role::Spine | Role::Core => return false,
            Role::Unknown => {}
        }
        let mut spines = own.iter();
        let (Some(one), Some(other)) = (spines.next(), spines.next()) else {
            return false;
        };
        let below = switches_of(*other);
        let leaves = switches_of(*one).into_iter();
        let leaves = leaves.filter(|far| level(*far) == 1 && below.contains(far));
        let mut alike = leaves.map(switches_of).filter(|spines| {
            let shared = own.intersection(spines).count();
            shared > 1 && shared * 2 > own.len().max(spines.len())
        });
        alike.next().is_some()
    };
    let above = levels.iter().filter(|(_, level)| **level == 3).map(|(ix, _)| *ix);
    above
        .filter(|ix| {
            fabric
                .neighbours(*ix)
                .all(|(_, far, _)| !fabric.device(far.device).is_adapter())
        })
        .filter(|ix| is_empty_leaf(*ix))
        .collect()
}

/// Switches with adapters, except spines with a few machines (the subnet manager's host, storage). Such a spine has
/// most of its links to switches with at least four times as many adapters.
fn leaves(fabric: &Fabric) -> BTreeSet<DeviceIx> {
    let mut adapters: BTreeMap<DeviceIx, u32> = BTreeMap::new();
    for (_, link) in fabric.links() {
        for (near, far) in [(link.a, link.b), (link.b, link.a)] {
            if fabric.device(near.device).is_switch() && fabric.device(far.device).is_adapter() {
                *adapters.entry(near.device).or_default() += 1;
            }
        }
    }
    let planned = |ix: &DeviceIx| fabric.device(*ix).role;
    let is_spine = |ix: &DeviceIx, own: u32| {
        let (mut to_leaves, mut to_switches) = (0u32, 0u32);
        for (_, far, _) in fabric.neighbours(*ix) {
            if fabric.device(far.device).is_switch() {
                to_switches += 1;
                let theirs = adapters.get(&far.device).copied().unwrap_or(0);
                to_leaves += u32::from(theirs >= own.saturating_mul(4));
            }
        }
        to_switches > own && to_leaves * 2 > to_switches
    };
    adapters
        .iter()
        .filter(|(ix, own)| match planned(ix) {
            Role::Leaf => true,
            Role::Spine | Role::Core => false,
            Role::Unknown => !is_spine(ix, **own),
        })
        .map(|(ix, _)| *ix)
        .collect()
}

/// Groups switches that share more than half of the switches above them.
fn gather(views: &[&SwitchView]) -> Vec<Vec<DeviceIx>> {
    let mut gathered: Vec<(BTreeSet<DeviceIx>, Vec<DeviceIx>)> = Vec::new();
    for view in views {
        let own: BTreeSet<DeviceIx> = view.up.keys().copied().collect();
        let shares = |above: &BTreeSet<DeviceIx>| own.intersection(above).count() * 2 > own.len();
        match gathered.iter_mut().find(|(above, _)| shares(above)) {
            Some((_, members)) => members.push(view.device),
            None => gathered.push((own, vec![view.device])),
        }
    }
    gathered.into_iter().map(|(_, members)| members).collect()
}

/// Leaves that share their spines. A spine belongs to the pod with most of its lower links.
pub(super) fn pods(switches: &mut [SwitchView], positions: &Positions) -> Vec<Pod> {
    let leaves: Vec<&SwitchView> = switches.iter().filter(|view| view.role == Role::Leaf).collect();
    let mut pods: Vec<Pod> = gather(&leaves)
        .into_iter()
        .map(|leaves| Pod {
            leaves,
            spines: Vec::new(),
        })
        .collect();
    let mut below: BTreeMap<DeviceIx, BTreeMap<usize, u32>> = BTreeMap::new();
    for (at, pod) in pods.iter().enumerate() {
        for leaf in &pod.leaves {
            let leaf = &mut switches[positions[leaf]];
            leaf.pod = Some(at);
            for (spine, links) in &leaf.up {
                *below.entry(*spine).or_default().entry(at).or_default() += links;
            }
        }
    }
    for (spine, links) in below {
        let most = links.iter().max_by_key(|(pod, links)| (**links, usize::MAX - **pod));
        let spine_view = &mut switches[positions[&spine]];
        if let Some((pod, _)) = most
            && spine_view.role == Role::Spine
        {
            spine_view.pod = Some(*pod);
            pods[*pod].spines.push(spine);
        }
    }
    pods
}

/// Spines that share their cores.
pub(super) fn groups(switches: &[SwitchView]) -> Vec<Vec<DeviceIx>> {
    let spines: Vec<&SwitchView> = switches
        .iter()
        .filter(|view| view.role == Role::Spine && !view.up.is_empty())
        .collect();
    gather(&spines)
}
