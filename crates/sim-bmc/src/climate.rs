//! The power and temperature readings of a machine, after DMTF's schemas (DSP8010).

use super::host::{Climate, Host};
use super::resources::collection;
use serde_json::{Value, json};

const CHASSIS: &str = "/redfish/v1/Chassis/1";
const SENSORS: &str = "/redfish/v1/Chassis/1/Sensors";

/// The ids of all sensors.
const ALL: [&str; 3] = ["Power", "Inlet", "Board"];

/// Adds the links to a chassis.
pub(super) fn link_into(chassis: &mut Value, host: &dyn Host) {
    if host.climate().is_none() {
        return;
    }
    for name in ["EnvironmentMetrics", "ThermalSubsystem", "Sensors"] {
        chassis[name] = json!({"@odata.id": format!("{CHASSIS}/{name}")});
    }
}

pub(super) fn metrics(host: &dyn Host) -> Option<Value> {
    let climate = host.climate()?;
    Some(json!({
        "@odata.id": format!("{CHASSIS}/EnvironmentMetrics"),
        "@odata.type": "#EnvironmentMetrics.v1_3_0.EnvironmentMetrics",
        "Id": "EnvironmentMetrics",
        "Name": "Chassis Environment Metrics",
        "PowerWatts": {"DataSourceUri": format!("{SENSORS}/Power"), "Reading": climate.watts},
        "TemperatureCelsius": {"DataSourceUri": format!("{SENSORS}/Inlet"), "Reading": climate.inlet_celsius},
    }))
}

pub(super) fn subsystem(host: &dyn Host) -> Option<Value> {
    host.climate()?;
    let path = format!("{CHASSIS}/ThermalSubsystem");
    Some(json!({
        "@odata.id": path,
        "@odata.type": "#ThermalSubsystem.v1_0_0.ThermalSubsystem",
        "Id": "ThermalSubsystem",
        "Name": "Thermal Subsystem",
        "ThermalMetrics": {"@odata.id": format!("{path}/ThermalMetrics")},
        "Status": {"State": "Enabled", "Health": "OK"},
    }))
}

pub(super) fn thermal(host: &dyn Host) -> Option<Value> {
    let climate = host.climate()?;
    let reading = |name: &str, celsius: f64| json!({"DataSourceUri": format!("{SENSORS}/{name}"), "DeviceName": name, "Reading": celsius});
    Some(json!({
        "@odata.id": format!("{CHASSIS}/ThermalSubsystem/ThermalMetrics"),
        "@odata.type": "#ThermalMetrics.v1_0_0.ThermalMetrics",
        "Id": "ThermalMetrics",
        "Name": "Thermal Metrics",
        "TemperatureReadingsCelsius": [
            reading("Inlet", climate.inlet_celsius),
            reading("Board", climate.board_celsius),
        ],
    }))
}

pub(super) fn sensors(host: &dyn Host) -> Option<Value> {
    host.climate()?;
    let members = ALL.into_iter();
    Some(collection(
        SENSORS,
        "#SensorCollection.SensorCollection",
        "Sensors",
        members,
    ))
}

pub(super) fn sensor(host: &dyn Host, id: &str) -> Option<Value> {
    let Climate {
        watts,
        inlet_celsius,
        board_celsius,
    } = host.climate()?;
    let (reading, kind, unit, limit) = match id {
        "Power" => (watts, "Power", "W", None),
        "Inlet" => (inlet_celsius, "Temperature", "Cel", Some(42.0)),
        "Board" => (board_celsius, "Temperature", "Cel", Some(85.0)),
        _ => return None,
    };
    let mut body = json!({
        "@odata.id": format!("{SENSORS}/{id}"),
        "@odata.type": "#Sensor.v1_7_0.Sensor",
        "Id": id,
        "Name": id,
        "ReadingType": kind,
        "ReadingUnits": unit,
        "Reading": reading,
        "Status": {"State": "Enabled", "Health": "OK"},
    });
    if let Some(limit) = limit {
        body["Thresholds"] = json!({"UpperCritical": {"Reading": limit}});
    }
    Some(body)
}
