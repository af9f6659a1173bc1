//! Chassis, their power supplies and temperatures.

use rackwright_redfish_wire::json;
use serde::Serialize;
use serde_json::Value;

use super::view;

view!(
    /// A chassis (`#Chassis`): the enclosure of a machine or of a part of a machine.
    Chassis
);

impl Chassis {
    /// Whether it is a part of a machine, such as a GPU module: the whole machine's power includes its power.
    pub fn is_part(&self) -> bool {
        const PARTS: [&str; 6] = ["module", "component", "zone", "card", "cartridge", "storageenclosure"];
        let kind = self.0.text(&["ChassisType"]).unwrap_or_default().to_ascii_lowercase();
        PARTS.contains(&kind.as_str())
    }

    /// Link to the environment metrics.
    pub fn environment_metrics(&self) -> Option<String> {
        self.0.link(&["EnvironmentMetrics"])
    }

    /// Link to the older power resource.
    pub fn power(&self) -> Option<String> {
        self.0.link(&["Power"])
    }

    /// Link to the older thermal resource.
    pub fn thermal(&self) -> Option<String> {
        self.0.link(&["Thermal"])
    }

    /// Link to the power subsystem.
    pub fn power_subsystem(&self) -> Option<String> {
        self.0.link(&["PowerSubsystem"])
    }

    /// Link to the thermal subsystem.
    pub fn thermal_subsystem(&self) -> Option<String> {
        self.0.link(&["ThermalSubsystem"])
    }

    /// Link to the leak detectors, if the chassis itself has them (`Chassis` since 1.26).
    pub fn leak_detectors(&self) -> Option<String> {
        self.0.link(&["LeakDetectors"])
    }
}

/// The reading of a temperature sensor, and its limits.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Temperature {
    pub name: String,
    /// In °C.
    pub celsius: f64,
    /// The limit in °C from which the monitored part is in danger; none if the BMC does not report it.
    pub upper_critical: Option<f64>,
}

impl Temperature {
    /// A sensor (`#Sensor`); none if it is not in use, has no reading or does not measure a temperature.
    pub fn of_sensor(sensor: &Value) -> Option<Self> {
        let kind = json::text(sensor, &["ReadingType"]).unwrap_or_else(|| "Temperature".to_owned());
        if !kind.eq_ignore_ascii_case("temperature") || !is_in_use(sensor) {
            return None;
        }
        Some(Self {
            name: name(sensor),
            celsius: json::number(sensor, &["Reading"])?,
            upper_critical: json::reading(sensor, &["Thresholds", "UpperCritical"])
                .or_else(|| json::reading(sensor, &["Thresholds", "UpperFatal"])),
        })
    }

    /// A member of `Temperatures` in the older thermal resource.
    pub fn of_thermal(member: &Value) -> Option<Self> {
        if !is_in_use(member) {
            return None;
        }
        Some(Self {
            name: name(member),
            celsius: json::number(member, &["ReadingCelsius"])?,
            upper_critical: json::number(member, &["UpperThresholdCritical"])
                .or_else(|| json::number(member, &["UpperThresholdFatal"])),
        })
    }

    /// A member of `TemperatureReadingsCelsius` of the thermal metrics: a reading without limits, which are with the sensor.
    pub fn of_metrics(excerpt: &Value) -> Option<Self> {
        Some(Self {
            name: name(excerpt),
            celsius: json::number(excerpt, &["Reading"])?,
            upper_critical: None,
        })
    }
}

/// A power supply from the older power resource or from the power subsystem.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PowerSupply {
    pub name: String,
    /// `Status.Health`: `OK`, `Warning`, `Critical`; none if the BMC does not report it.
    pub health: Option<String>,
    /// Input power in watts; output power if the BMC reports only that.
    pub watts: Option<f64>,
}

impl PowerSupply {
    /// None for an empty bay.
    pub fn of(member: &Value) -> Option<Self> {
        let state = json::text(member, &["Status", "State"]).unwrap_or_default();
        let is_empty = json::at(member, &["Status"]).is_none() && json::fact(member, &["SerialNumber"]).is_none();
        if state.eq_ignore_ascii_case("absent") || is_empty {
            return None;
        }
        Some(Self {
            name: name(member),
            health: json::fact(member, &["Status", "Health"]),
            watts: json::number(member, &["PowerInputWatts"]).filter(|watts| *watts >= 0.0),
        })
    }
}

/// Whether `Status.State` is missing or a state with valid readings. (`Disabled` sensors of some BMCs still show a number.)
pub(crate) fn is_in_use(value: &Value) -> bool {
    let state = json::text(value, &["Status", "State"]);
    state.is_none_or(|state| {
        !["absent", "disabled", "unavailableoffline", "deferring", "starting"]
            .contains(&state.to_ascii_lowercase().as_str())
    })
}

/// The name of a part, cut to a readable length.
pub(super) fn name(value: &Value) -> String {
    let named = [
        &["Name"][..],
        &["DeviceName"],
        &["PhysicalContext"],
        &["Id"],
        &["MemberId"],
    ]
    .iter()
    .find_map(|path| json::fact(value, path));
    let named = named.unwrap_or_else(|| "unnamed".to_owned());
    named.chars().filter(|c| !c.is_control()).take(80).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn unused_sensors_have_no_reading() {
        let member = |state: &str| json!({"Name": "Inlet", "ReadingCelsius": 21, "UpperThresholdFatal": 47, "Status": {"State": state}});
        let read = Temperature::of_thermal(&member("Enabled")).unwrap();
        assert_eq!((read.celsius, read.upper_critical), (21.0, Some(47.0)));
        assert_eq!(Temperature::of_thermal(&member("Absent")), None);
        assert_eq!(Temperature::of_thermal(&member("Disabled")), None);
        assert_eq!(
            Temperature::of_thermal(&json!({"Name": "x", "ReadingCelsius": null})),
            None
        );
        let sensor = json!({"Id": "T1", "Reading": 30, "ReadingType": "Temperature", "Thresholds": {"UpperCritical": {"Reading": 75}}});
        assert_eq!(Temperature::of_sensor(&sensor).unwrap().upper_critical, Some(75.0));
        assert_eq!(
            Temperature::of_sensor(&json!({"Reading": 5, "ReadingType": "Voltage"})),
            None
        );
        assert_eq!(PowerSupply::of(&json!({"Name": "nil", "Status": null})), None);
        assert_eq!(
            PowerSupply::of(&json!({"Name": "6", "Status": {"State": "Absent"}})),
            None
        );
    }
}
