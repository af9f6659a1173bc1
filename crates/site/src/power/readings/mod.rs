//! Measurements of meters and sensors, compared with reservations and limits.
//!
//! A reading that is too old or empty is neither good nor bad. [`judge`] returns what is certainly wrong and what is
//! certainly right. For all other subjects, the alarms stay as they are. Right is slightly stricter than "not wrong", so
//! that a value at its limit does not make an alarm come and go.

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

/// A temperature sensor with a limit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sensor {
    /// The sensor's name.
    pub name: String,
    /// The temperature, in °C.
    pub celsius: f64,
    /// The limit, in °C. From here on the hardware is in danger.
    pub limit_celsius: f64,
}

/// The state of a leak detector.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LeakLevel {
    /// No moisture.
    Dry,
    /// The state is not reported.
    Unknown,
    /// Moisture: a leak may be starting.
    Moist,
    /// A leak.
    Wet,
}

/// A leak detector.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leak {
    /// The detector's name.
    pub name: String,
    /// The detector's state.
    pub level: LeakLevel,
}

/// The reading of a node's BMC.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct NodeReading {
    /// Whether the machine is on.
    pub on: Option<bool>,
    /// The draw, in watts.
    pub watts: Option<f64>,
    /// The sensors nearest to their limits.
    pub sensors: Vec<Sensor>,
    /// Leak detectors.
    pub leaks: Vec<Leak>,
    /// Failed power supplies. `None`: unknown.
    pub failed_supplies: Option<Vec<String>>,
    /// Whether parts could not be read. Then wrong values stay wrong, but nothing counts as right.
    #[serde(default)]
    pub has_gaps: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BreakerState {
    /// Current can flow.
    Closed,
    /// An overload or a fault opened the breaker.
    Tripped,
    /// A person or a command opened the breaker.
    Off,
    /// The state is unknown.
    Unknown,
}

/// A circuit of a rack PDU: an input (main) or a branch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CircuitState {
    /// The circuit's name.
    pub name: String,
    /// The state of its breaker.
    pub breaker: BreakerState,
    /// The highest voltage of its wires, in volts.
    pub volts: Option<f64>,
    /// The outlets of the circuit, by name. Empty: unknown.
    pub outlets: Vec<String>,
}

/// The reading of a rack PDU.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct PduReading {
    /// Total draw, in watts.
    pub watts: Option<f64>,
    /// The inputs.
    pub mains: Vec<CircuitState>,
    pub branches: Vec<CircuitState>,
    /// Whether parts could not be read. Then wrong values stay wrong, but nothing counts as right.
    #[serde(default)]
    pub has_gaps: bool,
}

/// The reading of a cooling unit.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct CoolingReading {
    /// Highest supply temperature, in °C.
    pub supply_celsius: Option<f64>,
    /// Highest return temperature, in °C.
    pub return_celsius: Option<f64>,
    /// Flow to the racks, in litres a minute.
    pub flow_lpm: Option<f64>,
    /// Leak detectors.
    pub leaks: Vec<Leak>,
    /// Whether parts could not be read. Then wrong values stay wrong, but nothing counts as right.
    #[serde(default)]
    pub has_gaps: bool,
}

/// The reading of one object.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reading {
    /// The reading of a node.
    Node(NodeReading),
    /// The reading of a rack PDU or a power shelf.
    Pdu(PduReading),
    /// The reading of a cooling unit.
    Cooling(CoolingReading),
}

/// A value with the time of its reading.
#[derive(Debug, Clone, PartialEq)]
pub struct Seen<T> {
    /// Time of the reading, in microseconds since 1970.
    pub at_us: i64,
    pub value: T,
}

/// The latest readings of a site.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Readings {
    nodes: BTreeMap<NodeId, Seen<NodeReading>>,
    pdus: BTreeMap<DomainId, Seen<PduReading>>,
    cooling: BTreeMap<CoolingUnitId, Seen<CoolingReading>>,
}

/// The value. `None`: it is too old, or too far in the future for a difference between clocks.
fn fresh<T>(seen: Option<&Seen<T>>, now_us: i64, fresh_us: i64) -> Option<&T> {
    seen.filter(|seen| (now_us.saturating_sub(seen.at_us)).abs() <= fresh_us)
        .map(|seen| &seen.value)
}

impl Readings {
    /// Stores a reading by the name of its object. Returns false if the site has no such object, or if this reading or
    /// a newer one is already stored. The same row may be read many times.
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

    /// The latest reading of a node with its time, however old.
    #[must_use]
    pub fn node(&self, id: NodeId) -> Option<&Seen<NodeReading>> {
        self.nodes.get(&id)
    }

    /// The latest reading of a PDU with its time, however old.
    #[must_use]
    pub fn pdu(&self, id: DomainId) -> Option<&Seen<PduReading>> {
        self.pdus.get(&id)
    }

    /// The latest reading of a cooling unit with its time, however old.
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
