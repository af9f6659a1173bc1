//! Rack PDUs, floor PDUs and power shelves, with their circuits and outlets.

use rackwright_redfish_wire::json;
use serde::Serialize;
use serde_json::Value;

use super::chassis::name;
use super::view;

view!(
    /// A rack PDU, floor PDU or power shelf (`#PowerDistribution`).
    PowerDistribution
);

impl PowerDistribution {
    pub fn id(&self) -> String {
        self.0.id()
    }

    /// The unit's names for people: `Name`, `UserLabel`, `AssetTag`.
    pub fn labels(&self) -> Vec<String> {
        let fields = ["Name", "UserLabel", "AssetTag"];
        fields.iter().filter_map(|field| self.0.fact(&[field])).collect()
    }

    /// Link to the circuits that feed it.
    pub fn mains(&self) -> Option<String> {
        self.0.link(&["Mains"])
    }

    /// Link to its branch circuits, each with a breaker or a fuse.
    pub fn branches(&self) -> Option<String> {
        self.0.link(&["Branches"])
    }

    /// Link to its outlets.
    pub fn outlets(&self) -> Option<String> {
        self.0.link(&["Outlets"])
    }

    /// Link to the metrics of the whole unit.
    pub fn metrics(&self) -> Option<String> {
        self.0.link(&["Metrics"])
    }
}

/// `BreakerState` of a circuit (DSP0268).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Breaker {
    /// Closed: current can flow.
    Closed,
    /// Opened by an overload or a fault.
    Tripped,
    /// Opened by a person.
    Off,
    /// The PDU does not report it.
    Unknown,
}

impl Breaker {
    fn read(text: Option<String>) -> Self {
        match text.unwrap_or_default().to_ascii_lowercase().as_str() {
            "normal" => Self::Closed,
            "tripped" => Self::Tripped,
            "off" => Self::Off,
            _ => Self::Unknown,
        }
    }
}

view!(
    /// A circuit of a power distribution (`#Circuit`): mains or branch.
    Circuit
);

impl Circuit {
    /// The circuit's name.
    pub fn name(&self) -> String {
        name(self.0.json())
    }

    pub fn id(&self) -> String {
        self.0.id()
    }

    pub fn breaker(&self) -> Breaker {
        Breaker::read(self.0.text(&["BreakerState"]))
    }

    /// Power through it, in watts: the total, or the sum of its lines.
    pub fn watts(&self) -> Option<f64> {
        watts(self.0.json())
    }

    /// Current, in amps; of several wires, the most loaded one's.
    pub fn amps(&self) -> Option<f64> {
        amps(self.0.json())
    }

    /// `RatedCurrentAmps`.
    pub fn rated_amps(&self) -> Option<f64> {
        self.0.number(&["RatedCurrentAmps"])
    }

    /// The highest voltage of its wires, in volts: without voltage no consumer on the circuit runs.
    pub fn volts(&self) -> Option<f64> {
        let own = self.0.reading(&["Voltage"]);
        own.or_else(|| each(self.0.json(), "PolyPhaseVoltage").into_iter().reduce(f64::max))
    }

    /// Links to the outlets on it.
    pub fn outlets(&self) -> Vec<String> {
        self.0.links(&["Links", "Outlets"])
    }
}

view!(
    /// An outlet of a power distribution (`#Outlet`).
    Outlet
);

impl Outlet {
    pub fn id(&self) -> String {
        self.0.id()
    }

    /// The outlet's name.
    pub fn name(&self) -> String {
        name(self.0.json())
    }

    /// The label that a person gave it.
    pub fn label(&self) -> Option<String> {
        self.0.fact(&["UserLabel"])
    }

    /// Whether it is switched on; none if the PDU does not report it.
    pub fn is_on(&self) -> Option<bool> {
        match self.0.text(&["PowerState"])?.to_ascii_lowercase().as_str() {
            "on" | "poweringoff" => Some(true),
            "off" | "poweringon" => Some(false),
            _ => None,
        }
    }

    /// Power that it delivers, in watts.
    pub fn watts(&self) -> Option<f64> {
        watts(self.0.json())
    }

    /// Current, in amps.
    pub fn amps(&self) -> Option<f64> {
        amps(self.0.json())
    }

    /// Link to its branch circuit.
    pub fn branch(&self) -> Option<String> {
        self.0.link(&["Links", "BranchCircuit"])
    }
}

/// The readings of a polyphase excerpt, one level down.
fn each(value: &Value, property: &str) -> Vec<f64> {
    match json::at(value, &[property]) {
        Some(Value::Object(lines)) => lines
            .values()
            .take(16)
            .filter_map(|line| json::reading(line, &[]))
            .collect(),
        _ => Vec::new(),
    }
}

fn watts(value: &Value) -> Option<f64> {
    let whole = json::reading(value, &["PowerWatts"]);
    let watts = whole.or_else(|| each(value, "PolyPhasePowerWatts").into_iter().reduce(|a, b| a + b));
    watts.filter(|watts| *watts >= 0.0)
}

fn amps(value: &Value) -> Option<f64> {
    let whole = json::reading(value, &["CurrentAmps"]);
    let amps = whole.or_else(|| each(value, "PolyPhaseCurrentAmps").into_iter().reduce(f64::max));
    amps.filter(|amps| *amps >= 0.0)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::resource::Resource;

    fn circuit(body: Value) -> Circuit {
        Resource::new("/redfish/v1/PowerEquipment/RackPDUs/1/Branches/A", None, body).into()
    }

    #[test]
    fn circuits_are_read_as_the_standard_writes_them() {
        let malformed = circuit(json!({
            "Id": "A", "BreakerState": "Tripped", "PolyPhaseVoltage": {"Line1ToNeutral": {"Reading": 118.2}, "Line1ToLine2": {"Reading": 203.5}},
            "PolyPhaseCurrentAmps": {"Line1": {"Reading": 5.19}, "Line2": {"Reading": null}},
            "PolyPhasePowerWatts": {"Line1ToNeutral": {"Reading": 100.5}, "Line2ToNeutral": {"Reading": 200}}
        }));
        assert_eq!(malformed.breaker(), Breaker::Tripped);
        assert_eq!(
            (malformed.volts(), malformed.amps(), malformed.watts()),
            (Some(203.5), Some(5.19), Some(300.5))
        );
        let silent = circuit(json!({"BreakerState": 3, "PowerWatts": {"Reading": -4}, "PolyPhaseVoltage": []}));
        assert_eq!(
            (silent.breaker(), silent.watts(), silent.volts()),
            (Breaker::Unknown, None, None)
        );
    }
}
