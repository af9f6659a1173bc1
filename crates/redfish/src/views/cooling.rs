//! Cooling units, their coolant connectors and leak detectors.

use rackwright_redfish_wire::json;
use serde::Serialize;
use serde_json::Value;

use super::chassis::{is_in_use, name};
use super::view;

view!(
    /// A coolant distribution unit or another cooling unit (`#CoolingUnit`).
    CoolingUnit
);

impl CoolingUnit {
    pub fn id(&self) -> String {
        self.0.id()
    }

    /// The unit's names for people.
    pub fn labels(&self) -> Vec<String> {
        let fields = ["Name", "UserLabel", "AssetTag"];
        fields.iter().filter_map(|field| self.0.fact(&[field])).collect()
    }

    /// Link to the connectors of one side.
    pub fn connectors(&self, side: ConnectorSide) -> Option<String> {
        self.0.link(&[match side {
            ConnectorSide::Primary => "PrimaryCoolantConnectors",
            ConnectorSide::Secondary => "SecondaryCoolantConnectors",
        }])
    }

    /// Link to the leak detection.
    pub fn leak_detection(&self) -> Option<String> {
        self.0.link(&["LeakDetection"])
    }
}

/// A side of a heat exchanger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum ConnectorSide {
    /// Towards the building.
    Primary,
    /// Towards the racks.
    Secondary,
}

view!(
    /// A pair of connectors of a loop (`#CoolantConnector`).
    CoolantConnector
);

impl CoolantConnector {
    /// The connectors' name.
    pub fn name(&self) -> String {
        name(self.0.json())
    }

    /// Supply temperature, in °C.
    pub fn supply_celsius(&self) -> Option<f64> {
        self.0.reading(&["SupplyTemperatureCelsius"])
    }

    /// Return temperature, in °C.
    pub fn return_celsius(&self) -> Option<f64> {
        self.0.reading(&["ReturnTemperatureCelsius"])
    }

    /// Flow, in litres a minute.
    pub fn flow_lpm(&self) -> Option<f64> {
        self.0.reading(&["FlowLitersPerMinute"]).filter(|flow| *flow >= 0.0)
    }

    /// Whether the connectors are in use.
    pub fn is_in_use(&self) -> bool {
        is_in_use(self.0.json())
    }
}

/// The state of a leak detector (`DetectorState`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum LeakState {
    /// No leak.
    Dry,
    /// The state is missing or unknown.
    Unknown,
    /// Moisture.
    Warning,
    Leak,
}

/// A leak detector (`#LeakDetector`), or the excerpt of one in a group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LeakDetector {
    /// The detector's name.
    pub name: String,
    /// The detector's state.
    pub state: LeakState,
}

impl LeakDetector {
    /// None if no detector is installed.
    pub fn of(value: &Value) -> Option<Self> {
        let place = json::text(value, &["Status", "State"]).unwrap_or_default();
        if place.eq_ignore_ascii_case("absent") {
            return None;
        }
        // Older detectors report only their health, which the first version of the schema used for the leak state.
        let stated = json::text(value, &["DetectorState"]).or_else(|| json::text(value, &["Status", "Health"]));
        let state = match stated.unwrap_or_default().to_ascii_lowercase().as_str() {
            _ if !is_in_use(value) => LeakState::Unknown,
            "ok" => LeakState::Dry,
            "warning" => LeakState::Warning,
            "critical" => LeakState::Leak,
            _ => LeakState::Unknown,
        };
        Some(Self {
            name: name(value),
            state,
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_detector_without_a_state_is_not_dry() {
        let state = |value: Value| LeakDetector::of(&value).map(|one| one.state);
        for (stated, read) in [
            ("OK", LeakState::Dry),
            ("Warning", LeakState::Warning),
            ("Critical", LeakState::Leak),
            ("Unavailable", LeakState::Unknown),
            ("", LeakState::Unknown),
        ] {
            assert_eq!(state(json!({"DetectorState": stated})), Some(read), "{stated}");
        }
        assert_eq!(
            state(json!({"DetectorState": "OK", "Status": {"State": "Disabled"}})),
            Some(LeakState::Unknown)
        );
        assert_eq!(
            state(json!({"DetectorState": "OK", "Status": {"State": "Absent"}})),
            None
        );
        assert_eq!(state(json!({"Status": {"Health": "Critical"}})), Some(LeakState::Leak));
    }
}
