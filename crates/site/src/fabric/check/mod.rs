//! The fabric as it is, compared with the fabric as it should be: each fault once, in words a technician can act on.

mod cables;
mod devices;
mod matching;

use std::fmt;

use serde::Serialize;

use super::model::{DeviceKind, Fabric, LinkIx, PortRef};
use super::plan::Plan;
use super::rate::Rate;

pub use matching::Matched;

/// Kinds of faults.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FaultKind {
    /// A machine or a switch is not seen at all.
    DeviceMissing,
    /// A device is there that no plan knows.
    DeviceUnknown,
    /// In the place of a device is another one.
    DeviceReplaced,
    /// Two or more cables are in each other's places.
    Swapped,
    /// A cable goes to another device.
    WrongDevice,
    /// A cable goes to another port of the right device.
    WrongPort,
    /// A cable is not there, or has no link.
    Missing,
    /// A link is there for which no cable is planned.
    Extra,
    /// Another speed than planned, and perhaps another width.
    WrongSpeed,
    /// Another width than planned.
    WrongWidth,
    /// An adapter is planned on the leaf of another rail.
    Rail,
}

impl FaultKind {
    /// As tables show it.
    pub fn word(self) -> &'static str {
        match self {
            Self::DeviceMissing => "device-missing",
            Self::DeviceUnknown => "device-unknown",
            Self::DeviceReplaced => "device-replaced",
            Self::Swapped => "swapped",
            Self::WrongDevice => "wrong-device",
            Self::WrongPort => "wrong-port",
            Self::Missing => "missing",
            Self::Extra => "extra",
            Self::WrongSpeed => "wrong-speed",
            Self::WrongWidth => "wrong-width",
            Self::Rail => "rail",
        }
    }
}

/// A fault of the cabling.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CableFault {
    /// What sort of fault.
    pub kind: FaultKind,
    /// The planned cables that it concerns, by name; of cables without name, their ends.
    pub cables: Vec<String>,
    /// The planned devices at these cables, and devices that no plan knows.
    pub devices: Vec<String>,
    /// What to do something about.
    pub text: String,
    /// Of a link that is there and runs otherwise than planned: how.
    #[serde(skip)]
    pub runs: Option<Rate>,
}

impl fmt::Display for CableFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// What came out of a comparison.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Report {
    /// All faults: devices first, then cables in the order of the plan.
    pub faults: Vec<CableFault>,
    /// Planned cables.
    pub cables: usize,
    /// Those that are where they should be and run as they should.
    pub right: usize,
    /// How devices were recognised.
    pub matched: Matched,
}

impl Report {
    /// Whether all is as planned.
    pub fn is_clean(&self) -> bool {
        self.faults.is_empty()
    }
}

/// Compares a discovered fabric with its plan.
///
/// Devices are recognised by GUID where the plan has it, else by description, else by what they are connected to.
pub fn check(plan: &Plan, found: &Fabric) -> Report {
    let matching = matching::Matching::of(plan, found);
    let view = View {
        plan,
        found,
        matching: &matching,
    };
    let mut faults = Vec::new();
    let silent = devices::find(&view, &mut faults);
    let right = cables::find(&view, &silent, &mut faults);
    Report {
        faults,
        cables: plan.fabric().links().len(),
        right,
        matched: matching.counts,
    }
}

/// Faults of a plan by itself: adapters on the leaf of another rail.
pub fn check_plan(plan: &Plan) -> Vec<CableFault> {
    let fabric = plan.fabric();
    let mut faults = Vec::new();
    for (ix, link) in fabric.links() {
        if let Some(crossed) = crossed(plan, link.a, link.b) {
            let (a, b) = (plan.end_words(link.a), plan.end_words(link.b));
            faults.push(CableFault {
                kind: FaultKind::Rail,
                cables: vec![cable_key(plan, ix)],
                devices: vec![plan.device_words(link.a.device), plan.device_words(link.b.device)],
                text: format!("{}: planned from {a} to {b}, {crossed}", plan.cable_words(ix)),
                runs: None,
            });
        }
    }
    faults
}

/// `an adapter of rail 3 on the leaf of rail 4`, where a link between two planned ports would be that.
fn crossed(plan: &Plan, a: PortRef, b: PortRef) -> Option<String> {
    let (a, b) = (plan.fabric().device(a.device), plan.fabric().device(b.device));
    let (adapter, leaf) = match (a.kind, b.kind) {
        (DeviceKind::ChannelAdapter, DeviceKind::Switch) => (a.rail?, b.rail?),
        (DeviceKind::Switch, DeviceKind::ChannelAdapter) => (b.rail?, a.rail?),
        _ => return None,
    };
    (adapter != leaf).then(|| format!("an adapter of rail {adapter} on the leaf of rail {leaf}"))
}

/// What stands for a cable in lists.
fn cable_key(plan: &Plan, link: LinkIx) -> String {
    match plan.cable_name(link) {
        "" => {
            let link = plan.fabric().link(link);
            format!("{} to {}", plan.end_words(link.a), plan.end_words(link.b))
        }
        name => name.to_owned(),
    }
}

/// What the searches look at.
struct View<'a> {
    plan: &'a Plan,
    found: &'a Fabric,
    matching: &'a matching::Matching,
}

impl View<'_> {
    /// The port where a planned end should be found; none while its device is not seen.
    fn place(&self, end: PortRef) -> Option<PortRef> {
        let device = self.matching.found_of(end.device)?;
        Some(PortRef { device, ..end })
    }

    /// The planned port that is found here, if its device is planned.
    fn planned(&self, found: PortRef) -> Option<PortRef> {
        let device = self.matching.planned_of(found.device)?;
        Some(PortRef { device, ..found })
    }

    /// A found port in words, by the plan's names where it has the device.
    fn found_words(&self, found: PortRef) -> String {
        match self.planned(found) {
            Some(planned) => self.plan.end_words(planned),
            None => {
                let words = super::plan::end_words(self.found, found, None);
                format!("{words}, which no plan knows")
            }
        }
    }
}
