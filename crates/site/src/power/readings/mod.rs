//! What meters and sensors said, against what was reserved and what things bear.
//!
//! A reading that is too old, or that says nothing, is neither good nor bad: [`judge`] answers with what is certainly wrong
//! and with what is certainly right, and whoever keeps alarms leaves everything else as it was. What is right is a little
//! stricter than "not wrong", so that a figure at its limit does not make an alarm come and go.

mod below;
mod finding;
mod judge;
mod measured;
mod trace;

#[cfg(test)]
mod tests;

pub use below::Below;
pub use finding::{Finding, FindingKind, Severity, Subject};
pub use judge::{Judgement, Rules, judge};
pub use measured::{Expected, Measured, expected, measured};
pub use trace::{TraceStep, trace};

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::model::{CoolingUnitId, DomainId, NodeId, Site};

/// A sensor of temperature that has a limit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sensor {
    /// Its name.
    pub name: String,
    /// What it reads, in °C.
    pub celsius: f64,
    /// From here on what it watches is in danger, in °C.
    pub limit_celsius: f64,
}

/// What a leak detector says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LeakLevel {
    /// Nothing is wet.
    Dry,
    /// It does not say.
    Unknown,
    /// Moisture: perhaps a leak begins.
    Moist,
    /// A leak.
    Wet,
}

/// A leak detector.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leak {
    /// Its name.
    pub name: String,
    /// What it says.
    pub level: LeakLevel,
}

/// What a node's BMC said.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct NodeReading {
    /// Whether it runs.
    pub on: Option<bool>,
    /// What it draws, in watts.
    pub watts: Option<f64>,
    /// Sensors with limits, those nearest to them.
    pub sensors: Vec<Sensor>,
    /// Leak detectors.
    pub leaks: Vec<Leak>,
    /// Power supplies that do not work; none: their state is not known.
    pub failed_supplies: Option<Vec<String>>,
    /// Some of it could not be read: what is wrong is wrong, but nothing is known to be right.
    #[serde(default)]
    pub has_gaps: bool,
}

/// A breaker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BreakerState {
    /// Current can flow.
    Closed,
    /// Opened by an overload or a fault.
    Tripped,
    /// Opened by somebody.
    Off,
    /// Not known.
    Unknown,
}

/// A circuit of a rack PDU: one that feeds it, or a branch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CircuitState {
    /// Its name.
    pub name: String,
    /// Its breaker.
    pub breaker: BreakerState,
    /// Voltage of the wire that has most, in volts.
    pub volts: Option<f64>,
    /// Outlets on it, by name; empty: not said.
    pub outlets: Vec<String>,
}

/// What a rack PDU said.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct PduReading {
    /// What all of it draws, in watts.
    pub watts: Option<f64>,
    /// What feeds it.
    pub mains: Vec<CircuitState>,
    /// Its branches.
    pub branches: Vec<CircuitState>,
    /// Some of it could not be read: what is wrong is wrong, but nothing is known to be right.
    #[serde(default)]
    pub has_gaps: bool,
}

/// What a cooling unit said.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct CoolingReading {
    /// The warmest that it supplies to racks, in °C.
    pub supply_celsius: Option<f64>,
    /// The warmest that comes back, in °C.
    pub return_celsius: Option<f64>,
    /// What flows to racks, in litres a minute.
    pub flow_lpm: Option<f64>,
    /// Leak detectors.
    pub leaks: Vec<Leak>,
    /// Some of it could not be read: what is wrong is wrong, but nothing is known to be right.
    #[serde(default)]
    pub has_gaps: bool,
}

/// What was read of one thing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reading {
    /// Of a node.
    Node(NodeReading),
    /// Of a rack PDU or a power shelf.
    Pdu(PduReading),
    /// Of a cooling unit.
    Cooling(CoolingReading),
}

/// A reading and when it was taken, in microseconds since 1970.
#[derive(Debug, Clone, PartialEq)]
pub struct Seen<T> {
    /// When.
    pub at_us: i64,
    /// What.
    pub value: T,
}

/// The latest readings of a site.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Readings {
    nodes: BTreeMap<NodeId, Seen<NodeReading>>,
    pdus: BTreeMap<DomainId, Seen<PduReading>>,
    cooling: BTreeMap<CoolingUnitId, Seen<CoolingReading>>,
}

/// The value, unless it is too old or from the future by more than clocks differ.
fn fresh<T>(seen: Option<&Seen<T>>, now_us: i64, fresh_us: i64) -> Option<&T> {
    seen.filter(|seen| (now_us.saturating_sub(seen.at_us)).abs() <= fresh_us)
        .map(|seen| &seen.value)
}

impl Readings {
    /// Takes up a reading by the name of what it is of. False where the site has nothing of that name and kind, or this
    /// reading or a newer one is there: the same row may be read many times.
    pub fn put(&mut self, site: &Site, name: &str, at_us: i64, reading: Reading) -> bool {
        match reading {
            Reading::Node(value) => site
                .node_named(name)
                .is_some_and(|id| newer(&mut self.nodes, id, at_us, value)),
            Reading::Pdu(value) => site
                .domain_named(name)
                .is_some_and(|id| newer(&mut self.pdus, id, at_us, value)),
            Reading::Cooling(value) => {
                let id = site.cooling_unit_ids().find(|id| &*site.cooling_unit(*id).name == name);
                id.is_some_and(|id| newer(&mut self.cooling, id, at_us, value))
            }
        }
    }

    /// What a node said, and when, however old.
    #[must_use]
    pub fn node(&self, id: NodeId) -> Option<&Seen<NodeReading>> {
        self.nodes.get(&id)
    }

    /// What a PDU said, and when, however old.
    #[must_use]
    pub fn pdu(&self, id: DomainId) -> Option<&Seen<PduReading>> {
        self.pdus.get(&id)
    }

    /// What a cooling unit said, and when, however old.
    #[must_use]
    pub fn cooling_unit(&self, id: CoolingUnitId) -> Option<&Seen<CoolingReading>> {
        self.cooling.get(&id)
    }
}

fn newer<K: Ord, T>(map: &mut BTreeMap<K, Seen<T>>, key: K, at_us: i64, value: T) -> bool {
    if map.get(&key).is_some_and(|seen| seen.at_us >= at_us) {
        return false;
    }
    map.insert(key, Seen { at_us, value });
    true
}
