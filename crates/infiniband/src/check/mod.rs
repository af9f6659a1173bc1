//! Compares the discovered fabric with the plan. Each fault is reported once, in words for a technician.

mod cables;
mod devices;
mod exchange;
mod matching;
mod names;
mod units;

use std::collections::BTreeSet;
use std::fmt;

use serde::Serialize;

use super::guid::Guid;
use super::model::{DeviceKind, Fabric, LinkIx, PortRef};
use super::plan::Plan;
use super::rate::Rate;

pub use matching::Matched;

/// Maximum number of cables that one finding names.
const MAX_NAMED: usize = 12;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FaultKind {
    /// No part of a machine or switch is seen.
    DeviceMissing,
    /// A device is not in the plan.
    DeviceUnknown,
    /// Another device is in the place of a planned one.
    DeviceReplaced,
    /// Switches or nodes stand in each other's places with all their cables.
    DevicesExchanged,
    /// Devices recognised by GUID have each other's names.
    NamesExchanged,
    /// A device recognised by GUID has another name than in the plan.
    WrongName,
    /// Two or more cables are in each other's places.
    Swapped,
    /// A cable goes to another device.
    WrongDevice,
    /// A cable goes to another port of the right device.
    WrongPort,
    /// A cable is missing or has no link.
    Missing,
    /// A link exists without a planned cable.
    Extra,
    /// The speed differs from the plan. The width may differ, too.
    WrongSpeed,
    /// The width differs from the plan.
    WrongWidth,
    /// An adapter is connected to the leaf of another rail in the plan.
    Rail,
    /// A port GUID answers in several dumps. Not found by [`check`], which sees one dump.
    GuidTwice,
}

impl FaultKind {
    /// The name in tables.
    pub fn word(self) -> &'static str {
        match self {
            Self::DeviceMissing => "device-missing",
            Self::DeviceUnknown => "device-unknown",
            Self::DeviceReplaced => "device-replaced",
            Self::DevicesExchanged => "devices-exchanged",
            Self::NamesExchanged => "names-exchanged",
            Self::WrongName => "wrong-name",
            Self::Swapped => "swapped",
            Self::WrongDevice => "wrong-device",
            Self::WrongPort => "wrong-port",
            Self::Missing => "missing",
            Self::Extra => "extra",
            Self::WrongSpeed => "wrong-speed",
            Self::WrongWidth => "wrong-width",
            Self::Rail => "rail",
            Self::GuidTwice => "guid-twice",
        }
    }
}

/// A fault of the cabling.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CableFault {
    /// The kind of the fault.
    pub kind: FaultKind,
    /// The affected planned cables, by name. A cable without a name is given by its ends.
    pub cables: Vec<String>,
    /// The planned devices at these cables, and unplanned devices.
    pub devices: Vec<String>,
    /// A description for a technician.
    pub text: String,
    /// The actual rate of a link that runs at another rate than planned.
    #[serde(skip)]
    pub runs: Option<Rate>,
    /// The devices in the places of planned ones with other GUIDs. Only of the kind [`FaultKind::DeviceReplaced`].
    #[serde(skip)]
    pub replacements: Vec<Replacement>,
}

/// A device with another GUID in the place of a planned device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replacement {
    /// The planned device's name, such as `gpu-093 mlx5_3` or `leaf-12`.
    pub planned: String,
    /// The node GUID of the device in its place.
    pub guid: Guid,
    /// The GUIDs of the adapter's ports, with the planned cables at these ports. Empty for a switch.
    pub ports: Vec<(String, Guid)>,
    /// The ports in `ports` that are linked to the planned port at the other end of the cable.
    pub in_place: BTreeSet<Guid>,
}

impl fmt::Display for CableFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The result of a comparison.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Report {
    /// All faults: devices first, then cables in the order of the plan.
    pub faults: Vec<CableFault>,
    /// Number of planned cables.
    pub cables: usize,
    /// Number of cables in the planned place that run at the planned rate.
    pub right: usize,
    /// How devices were recognised.
    pub matched: Matched,
    /// Number of switches and nodes, recognised by GUID or place, with names of another scheme than the plan's. They are no
    /// faults.
    pub named_otherwise: usize,
}

impl Report {
    /// Whether there are no faults.
    pub fn is_clean(&self) -> bool {
        self.faults.is_empty()
    }
}

/// Compares a discovered fabric with its plan.
///
/// Devices are recognised by GUID if the plan has it, otherwise by description, otherwise by their connections.
pub fn check(plan: &Plan, found: &Fabric) -> Report {
    let units = units::Units::of(plan);
    let mut matching = matching::Matching::of(plan, found);
    let exchanges = exchange::find(plan, found, &units, &mut matching);
    let view = View {
        plan,
        found,
        matching: &matching,
        units: &units,
        exchanges: &exchanges,
    };
    let mut faults = Vec::new();
    let explained = exchange::report(&view, &mut faults);
    let (silent, by_place) = devices::find(&view, &mut faults);
    let by_guid = names::find(&view, &mut faults);
    let right = cables::find(&view, &silent, &explained, &mut faults);
    Report {
        faults,
        cables: plan.fabric().links().len(),
        right,
        matched: matching.counts,
        named_otherwise: by_place + by_guid,
    }
}

/// Faults within a plan: adapters on the leaf of another rail.
pub fn check_plan(plan: &Plan) -> Vec<CableFault> {
    let fabric = plan.fabric();
    let mut faults = Vec::new();
    for (ix, link) in fabric.links() {
        if let Some(crossed) = crossed(plan, link.a, link.b) {
            let (a, b) = (plan.end_text(link.a), plan.end_text(link.b));
            faults.push(CableFault {
                kind: FaultKind::Rail,
                cables: vec![cable_key(plan, ix)],
                devices: vec![plan.device_text(link.a.device), plan.device_text(link.b.device)],
                text: format!("{}: planned from {a} to {b}, {crossed}", plan.cable_text(ix)),
                runs: None,
                replacements: Vec::new(),
            });
        }
    }
    faults
}

/// Such as `an adapter of rail 3 on the leaf of rail 4`, if a link between two planned ports would have this fault.
fn crossed(plan: &Plan, a: PortRef, b: PortRef) -> Option<String> {
    let (a, b) = (plan.fabric().device(a.device), plan.fabric().device(b.device));
    let (adapter, leaf) = match (a.kind, b.kind) {
        (DeviceKind::ChannelAdapter, DeviceKind::Switch) => (a.rail?, b.rail?),
        (DeviceKind::Switch, DeviceKind::ChannelAdapter) => (b.rail?, a.rail?),
        _ => return None,
    };
    (adapter != leaf).then(|| format!("an adapter of rail {adapter} on the leaf of rail {leaf}"))
}

/// The name of a cable in lists.
fn cable_key(plan: &Plan, link: LinkIx) -> String {
    match plan.cable_name(link) {
        "" => {
            let link = plan.fabric().link(link);
            format!("{} to {}", plan.end_text(link.a), plan.end_text(link.b))
        }
        name => name.to_owned(),
    }
}

fn listed(view: &View<'_>, cables: &[LinkIx]) -> String {
    let mut names: Vec<String> = cables
        .iter()
        .take(MAX_NAMED)
        .map(|cable| cable_key(view.plan, *cable))
        .collect();
    if cables.len() > MAX_NAMED {
        names.push(format!("and {} more", cables.len() - MAX_NAMED));
    }
    names.join(", ")
}

/// The input of the searches.
struct View<'a> {
    plan: &'a Plan,
    found: &'a Fabric,
    matching: &'a matching::Matching,
    units: &'a units::Units,
    exchanges: &'a exchange::Exchanges,
}

impl View<'_> {
    /// The port where a planned end should be. `None`: its device is not seen.
    fn place(&self, end: PortRef) -> Option<PortRef> {
        let device = self.matching.found_of(end.device)?;
        Some(PortRef { device, ..end })
    }

    /// The planned port for a discovered one. `None`: its device is not planned.
    fn planned(&self, found: PortRef) -> Option<PortRef> {
        let device = self.matching.planned_of(found.device)?;
        Some(PortRef { device, ..found })
    }

    /// A discovered port in words, with the plan's name if the device is planned.
    fn found_text(&self, found: PortRef) -> String {
        match self.planned(found) {
            Some(planned) => self.plan.end_text(planned),
            None => {
                let words = super::plan::end_text(self.found, found, None);
                format!("{words}, which is not in the plan")
            }
        }
    }
}
