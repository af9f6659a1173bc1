//! Deviations from the rest of the fabric, found without a plan.

use std::collections::BTreeMap;

use serde::Serialize;

use super::hosts::Machines;
use super::units::LeafNumbers;
use super::{LinkClass, Rails, Structure, SwitchView, called, suspect};
use crate::model::{Fabric, Role};
use crate::plan;
use crate::rate::{Rate, Speed, Width};

/// Maximum number of listed oddities.
pub const MAX_ODDITIES: usize = 1_000;

/// Kinds of oddities.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum OddityKind {
    /// The fabric has more than three levels.
    TooDeep,
    /// A switch has no path to a node.
    Isolated,
    /// Switches of one level are linked.
    SameLevel,
    /// A leaf is linked to a core.
    SkipsLevel,
    /// The numbers of links to the switches above differ.
    UnevenUplinks,
    /// A switch has fewer uplinks than others with the same role.
    FewUplinks,
    /// An adapter's rail differs from that of its leaf.
    Rail,
    /// A leaf has a node of another unit.
    OtherUnit,
    /// A link has fewer lanes than others of its class.
    Narrow,
    /// A link is slower than nearly all others of its class.
    Slow,
    /// Suspected: a leaf that other units have.
    MissingLeaf,
    /// Suspected: the nodes of a leaf without adapters.
    EmptyLeaf,
    /// Suspected: a node at a port between the ports of other nodes.
    MissingNode,
    /// Suspected: an adapter that other nodes have.
    MissingAdapter,
    /// The names of a node's adapters do not show its rails.
    UnknownRails,
}

impl OddityKind {
    /// The name in tables.
    pub fn word(self) -> &'static str {
        match self {
            Self::TooDeep => "too-deep",
            Self::Isolated => "isolated",
            Self::SameLevel => "same-level",
            Self::SkipsLevel => "skips-level",
            Self::UnevenUplinks => "uneven-uplinks",
            Self::FewUplinks => "few-uplinks",
            Self::Rail => "rail",
            Self::OtherUnit => "other-unit",
            Self::Narrow => "narrow",
            Self::Slow => "slow",
            Self::MissingLeaf => "missing-leaf",
            Self::EmptyLeaf => "empty-leaf",
            Self::MissingNode => "missing-node",
            Self::MissingAdapter => "missing-adapter",
            Self::UnknownRails => "unknown-rails",
        }
    }

    /// Whether something is suspected to be missing, because the rest of the fabric is regular.
    pub fn is_suspicion(self) -> bool {
        matches!(
            self,
            Self::MissingLeaf | Self::EmptyLeaf | Self::MissingNode | Self::MissingAdapter
        )
    }
}

/// A deviation from the rest of the fabric.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Oddity {
    /// The kind of the oddity.
    pub kind: OddityKind,
    /// A description.
    pub text: String,
}

pub(super) fn find(fabric: &Fabric, structure: &mut Structure, machines: &Machines<'_>, numbers: &LeafNumbers) {
    let mut found = Vec::new();
    if structure.levels > 3 {
        let text = format!(
            "{} levels of switches: not a fat-tree of two or three",
            structure.levels
        );
        found.push(oddity(OddityKind::TooDeep, text));
    }
    let usual = usual_uplinks(structure);
    for view in &structure.switches {
        switch(fabric, structure, view, &usual, &mut found);
        if view.role == Role::Leaf {
            adapters(fabric, structure, view, (machines, numbers), &mut found);
        }
    }
    suspect::find(fabric, structure, machines, &mut found);
    links(fabric, structure, &mut found);
    structure.more_oddities = found.len().saturating_sub(MAX_ODDITIES);
    found.truncate(MAX_ODDITIES);
    structure.oddities = found;
}

pub(super) fn oddity(kind: OddityKind, text: String) -> Oddity {
    Oddity { kind, text }
}

/// The most frequent number of uplinks for each level.
fn usual_uplinks(structure: &Structure) -> BTreeMap<u8, u32> {
    let mut counts: BTreeMap<u8, BTreeMap<u32, u32>> = BTreeMap::new();
    for view in &structure.switches {
        *counts.entry(view.level).or_default().entry(view.uplinks()).or_default() += 1;
    }
    let most = |counts: BTreeMap<u32, u32>| counts.into_iter().max_by_key(|(up, n)| (*n, *up)).map(|(up, _)| up);
    counts
        .into_iter()
        .filter_map(|(level, counts)| Some((level, most(counts)?)))
        .collect()
}

fn switch(fabric: &Fabric, all: &Structure, view: &SwitchView, usual: &BTreeMap<u8, u32>, found: &mut Vec<Oddity>) {
    let name = called(fabric, view.device);
    if view.level == 0 {
        found.push(oddity(
            OddityKind::Isolated,
            format!("{name}: the switch has no path to a node"),
        ));
    }
    if view.beside > 0 {
        let text = format!("{name}: {} links to switches of the same level", view.beside);
        found.push(oddity(OddityKind::SameLevel, text));
    }
    let level = |device| all.switch(device).map_or(0, |view| view.level);
    for other in view.up.keys().filter(|other| level(**other) > view.level + 1) {
        let text = format!("{name}: linked to {}, more than one level up", called(fabric, *other));
        found.push(oddity(OddityKind::SkipsLevel, text));
    }
    let least = view.up.iter().min_by_key(|(device, links)| (**links, **device));
    let most = view
        .up
        .iter()
        .max_by_key(|(device, links)| (**links, u32::MAX - device.0));
    if let (Some((least, few)), Some((most, many))) = (least, most)
        && few < many
    {
        let text = format!(
            "{name}: uneven uplinks, {many} to {} and {few} to {}",
            called(fabric, *most),
            called(fabric, *least)
        );
        found.push(oddity(OddityKind::UnevenUplinks, text));
    }
    let usual = usual.get(&view.level).copied().unwrap_or(0);
    if view.level > 0 && view.uplinks() < usual {
        let text = format!(
            "{name}: {} uplinks, but other switches of this level have {usual}",
            view.uplinks()
        );
        found.push(oddity(OddityKind::FewUplinks, text));
    }
}

/// Adapters on the wrong rail or in the wrong unit. Machines that are no nodes of the rails may be on any leaf.
fn adapters(
    fabric: &Fabric,
    all: &Structure,
    view: &SwitchView,
    (machines, numbers): (&Machines<'_>, &LeafNumbers),
    found: &mut Vec<Oddity>,
) {
    if !matches!(all.rails, Rails::Optimised(_)) {
        return;
    }
    let usual = numbers.get(&view.device).map(|(number, _)| *number);
    for (port, far, _) in fabric.neighbours(view.device) {
        let Some((machine, rail)) = machines.at(far.device).filter(|(machine, _)| machine.is_node) else {
            continue;
        };
        let rail = rail.filter(|_| machine.doubt.is_none());
        let place = || {
            let (leaf, adapter) = (called(fabric, view.device), called(fabric, far.device));
            format!("{leaf} port {port}: {adapter}")
        };
        if let (Some(rail), Some(usual)) = (rail, usual)
            && rail != usual
        {
            let others = fabric.neighbours(view.device).map(|(_, far, _)| far.device);
            let mut others = others.filter(|other| machines.at(*other).is_some_and(|(_, rail)| rail == Some(usual)));
            let like = others.find_map(|other| Some(fabric.device(other).host()?.adapter.to_owned()));
            let text = format!("{} is on the leaf for {}", place(), like.unwrap_or_default());
            found.push(oddity(OddityKind::Rail, text));
        } else if machine.unit != view.unit {
            let text = format!("{} is in another unit than the rest of its node", place());
            found.push(oddity(OddityKind::OtherUnit, text));
        }
    }
}

/// Links that are narrower than others of their class, or slower than nearly all.
fn links(fabric: &Fabric, all: &Structure, found: &mut Vec<Oddity>) {
    let mut usual: BTreeMap<LinkClass, (Width, Speed, usize)> = BTreeMap::new();
    for class in [LinkClass::Access, LinkClass::Trunk] {
        let rates = || {
            all.rates
                .iter()
                .filter(|((of, _), _)| *of == class)
                .map(|((_, rate), n)| (*rate, *n))
        };
        if let Some((rate, _)) = rates().max_by_key(|(_, n)| *n) {
            let slower: usize = rates()
                .filter(|(other, _)| other.speed < rate.speed)
                .map(|(_, n)| n)
                .sum();
            let total: usize = rates().map(|(_, n)| n).sum();
            usual.insert(
                class,
                (rate.width, rate.speed, if slower * 20 <= total { slower } else { 0 }),
            );
        }
    }
    for (ix, link) in fabric.links() {
        let class = LinkClass::of(fabric.device(link.a.device).kind, fabric.device(link.b.device).kind);
        let (Some(rate), Some((width, speed, slower))) = (fabric.link_rate(ix), usual.get(&class)) else {
            continue;
        };
        let (kind, others) = if rate.width < *width {
            (OddityKind::Narrow, width.to_string())
        } else if rate.speed < *speed && *slower > 0 {
            (OddityKind::Slow, speed.to_string())
        } else {
            continue;
        };
        found.push(oddity(kind, slow_text(fabric, link, rate, &others)));
    }
}

fn slow_text(fabric: &Fabric, link: &crate::model::Link, rate: Rate, others: &str) -> String {
    let (a, b) = (
        plan::end_text(fabric, link.a, None),
        plan::end_text(fabric, link.b, None),
    );
    format!("{a} to {b}: runs at {rate}, but most such links run at {others}")
}
