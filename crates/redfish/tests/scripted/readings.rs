use std::collections::BTreeMap;
use std::time::Duration;

use rackwright_redfish::{Breaker, ConnectorSide, LeakState, RedfishError};
use serde_json::{Value, json};

use crate::bmc::{Bmc, SYSTEM, standard_tree};
use crate::server::Answer;

fn link(path: &str) -> Value {
    json!({"@odata.id": path})
}

fn with(entries: impl IntoIterator<Item = (&'static str, Value)>) -> BTreeMap<String, Value> {
    let mut tree = standard_tree();
    tree.extend(entries.into_iter().map(|(path, body)| (path.to_owned(), body)));
    tree.get_mut(SYSTEM).unwrap()["Links"]["Chassis"] = json!([link("/c")]);
    tree
}

async fn serve(tree: BTreeMap<String, Value>) -> Bmc {
    Bmc::start_with(tree, Duration::ZERO, |_, _| None).await
}

#[tokio::test]
async fn readings_of_a_machine_by_the_newer_schema() {
    let bmc = serve(with([
        (
            "/c",
            json!({"EnvironmentMetrics": link("/c/env"), "ThermalSubsystem": link("/c/ts"), "PowerSubsystem": link("/c/ps")}),
        ),
        ("/c/env", json!({"PowerWatts": {"Reading": 5610.5, "DataSourceUri": "/x"}})),
        ("/c/ts", json!({"ThermalMetrics": link("/c/tm"), "LeakDetection": link("/c/ld")})),
        (
            "/c/tm",
            json!({"TemperatureReadingsCelsius": [
                {"Reading": 25, "DeviceName": "Intake", "DataSourceUri": "/s/inlet"},
                {"Reading": 99, "DataSourceUri": "/s/gone"}, {"Reading": null}, {"Reading": 31.5, "DeviceName": "Exhaust"}, 7]}),
        ),
        (
            "/s/inlet",
            json!({"Id": "inlet", "Reading": 26, "ReadingType": "Temperature", "Thresholds": {"UpperCritical": {"Reading": 42}}}),
        ),
        ("/c/ld", json!({"LeakDetectors": link("/c/ld/all")})),
        ("/c/ld/all", json!({"Members": [link("/c/ld/1"), link("/c/ld/2")]})),
        ("/c/ld/1", json!({"Name": "tray", "DetectorState": "Critical", "Status": {"State": "Enabled"}})),
        ("/c/ps", json!({"PowerSupplies": link("/c/ps/all")})),
        ("/c/ps/all", json!({"Members": [link("/c/ps/1")]})),
        ("/c/ps/1", json!({"Name": "PSU1", "SerialNumber": "S", "Status": {"Health": "Critical"}, "Metrics": link("/c/ps/1/m")})),
        ("/c/ps/1/m", json!({"InputPowerWatts": {"DataSourceUri": "/s/psu"}})),
        ("/s/psu", json!({"Reading": 951})),
    ]))
    .await;
    let read = bmc.connect().await.node_readings().await.unwrap();
    assert_eq!(read.watts, Some(5610.5));
    let temperatures: Vec<_> = read
        .temperatures
        .iter()
        .map(|one| (one.name.as_str(), one.celsius, one.upper_critical))
        .collect();
    assert_eq!(temperatures, [("inlet", 26.0, Some(42.0)), ("Exhaust", 31.5, None)]);
    assert_eq!(
        (read.leaks[0].name.as_str(), read.leaks[0].state),
        ("tray", LeakState::Leak)
    );
    assert_eq!(
        (read.supplies[0].health.as_deref(), read.supplies[0].watts),
        (Some("Critical"), Some(951.0))
    );
    // A detector that could not be read is reported, and is neither wet nor dry.
    let gaps: Vec<_> = read.gaps.iter().map(|gap| gap.path.as_str()).collect();
    assert_eq!(gaps, ["/s/gone", "/c/ld/2"]);
    assert_eq!(read.leaks.len(), 1);
}

#[tokio::test]
async fn the_older_resources_have_all_readings_in_one_answer_each() {
    let bmc = serve(with([
        ("/c", json!({"Power": link("/c/p"), "Thermal": link("/c/t"), "PowerSubsystem": link("/c/ps")})),
        (
            "/c/p",
            json!({"PowerControl": [{"Name": "CPU", "PowerConsumedWatts": 99}, {"PhysicalContext": "Chassis", "PowerConsumedWatts": 708}],
                "PowerSupplies": [{"Name": "PSU1", "Status": {"State": "Enabled", "Health": "OK"}, "PowerInputWatts": 361},
                    {"Name": "PSU2", "Status": {"State": "Absent"}}]}),
        ),
        ("/c/t", json!({"Temperatures": [{"Name": "Inlet", "ReadingCelsius": 21, "UpperThresholdCritical": 42}]})),
    ]))
    .await;
    let client = bmc.connect().await;
    client.power().await.unwrap();
    let before = bmc.server.requests().len();
    let read = client.node_readings().await.unwrap();
    assert_eq!(
        (read.watts, read.supplies.len(), read.temperatures.len()),
        (Some(708.0), 1, 1)
    );
    // The system, its chassis, its power and its temperatures.
    assert_eq!(bmc.server.requests().len() - before, 4);
}

#[tokio::test]
async fn a_reading_of_a_disabled_meter_is_ignored() {
    let bmc = serve(with([
        ("/c", json!({"Power": link("/c/p")})),
        (
            "/c/p",
            json!({"PowerControl": [{"PowerConsumedWatts": 100, "Status": {"State": "Disabled", "Health": "Critical"}}]}),
        ),
    ]))
    .await;
    assert_eq!(bmc.connect().await.node_readings().await.unwrap().watts, None);
}

#[tokio::test]
async fn cut_off_and_missing_answers_are_gaps() {
    let mut tree = with([
        ("/c", json!({"LeakDetectors": link("/c/l")})),
        (
            "/c/l",
            json!({"Members": (0..70).map(|n| link(&format!("/d/{n}"))).collect::<Vec<_>>()}),
        ),
    ]);
    tree.extend((0..70).map(|n| (format!("/d/{n}"), json!({"Name": "d", "DetectorState": "OK"}))));
    tree.extend((1..5).map(|n| (format!("/c{n}"), json!({}))));
    let paths = ["/c", "/c1", "/c2", "/c3", "/c4"];
    tree.get_mut(SYSTEM).unwrap()["Links"]["Chassis"] = paths.map(link).into();
    let bmc = Bmc::start_with(tree, Duration::ZERO, |request, _| {
        (request.path == "/c2").then(|| Answer::json(500, &json!({})))
    })
    .await;
    let read = bmc.connect().await.node_readings().await.unwrap();
    assert_eq!(read.leaks.len(), 64);
    let mut gaps: Vec<_> = read.gaps.iter().map(|gap| gap.path.as_str()).collect();
    gaps.sort_unstable();
    assert_eq!(gaps, ["/c2", "/c4", "/d/64"]);
}

fn equipment() -> BTreeMap<String, Value> {
    let mut tree = with([
        ("/pe", json!({"RackPDUs": link("/pe/r")})),
        ("/pe/r", json!({"Members": [link("/pe/r/1"), link("/pe/r/2")]})),
        (
            "/pe/r/1",
            json!({"Id": "1", "UserLabel": "pdu-a-r01", "Mains": link("/m"), "Branches": link("/b"), "Outlets": link("/o"), "Metrics": link("/metrics")}),
        ),
        ("/pe/r/2", json!({"Id": "2", "UserLabel": "pdu-b-r01"})),
        ("/metrics", json!({"PowerWatts": {"Reading": 12_400}})),
        ("/m", json!({"Members": [link("/m/AC1")]})),
        (
            "/m/AC1",
            json!({"Id": "AC1", "BreakerState": "Normal", "RatedCurrentAmps": 60, "PolyPhaseVoltage": {"Line1ToNeutral": {"Reading": 239}}}),
        ),
        ("/b", json!({"Members": [link("/b/A"), link("/b/B")]})),
        (
            "/b/A",
            json!({"Id": "A", "BreakerState": "Tripped", "Links": {"Outlets": [link("/o/A1")]}}),
        ),
        ("/b/B", json!({"Id": "B", "BreakerState": "Off"})),
        ("/o", json!({"Members": [link("/o/A1")]})),
        (
            "/o/A1",
            json!({"Id": "A1", "PowerState": "On", "PowerWatts": {"Reading": 0}, "CurrentAmps": {"Reading": 0.1}, "Links": {"BranchCircuit": link("/b/A")}}),
        ),
        ("/te", json!({"CDUs": link("/te/c")})),
        ("/te/c", json!({"Members": [link("/te/c/1")]})),
        (
            "/te/c/1",
            json!({"Id": "1", "PrimaryCoolantConnectors": link("/te/p"), "SecondaryCoolantConnectors": link("/te/s"), "LeakDetection": link("/te/l")}),
        ),
        ("/te/p", json!({"Members": []})),
        ("/te/s", json!({"Members": [link("/te/s/1"), link("/te/s/2")]})),
        (
            "/te/s/1",
            json!({"Name": "Loop", "SupplyTemperatureCelsius": {"Reading": 30.5}, "ReturnTemperatureCelsius": {"Reading": 38}, "FlowLitersPerMinute": {"Reading": "Out of range"}}),
        ),
        ("/te/s/2", json!({"Name": "Spare", "Status": {"State": "Absent"}})),
        (
            "/te/l",
            json!({"LeakDetectorGroups": [{"Detectors": [{"DeviceName": "tray", "DetectorState": "Warning"}]}]}),
        ),
    ]);
    let root = tree.get_mut("/redfish/v1").unwrap();
    root["PowerEquipment"] = link("/pe");
    root["ThermalEquipment"] = link("/te");
    tree
}

#[tokio::test]
async fn one_of_several_pdus_is_found_by_its_names() {
    let bmc = serve(equipment()).await;
    let client = bmc.connect().await;
    let read = client.pdu_readings("pdu-a-r01").await.unwrap();
    assert_eq!(read.watts, Some(12_400.0));
    assert_eq!(
        (read.mains[0].breaker, read.mains[0].volts),
        (Breaker::Closed, Some(239.0))
    );
    let branches: Vec<_> = read.branches.iter().map(|one| (one.id.as_str(), one.breaker)).collect();
    assert_eq!(branches, [("A", Breaker::Tripped), ("B", Breaker::Off)]);
    let outlet = &read.outlets[0];
    assert_eq!(
        (outlet.is_on, outlet.watts, outlet.branch.as_deref()),
        (Some(true), Some(0.0), Some("A"))
    );
    assert_eq!(read.branches[0].outlets, ["A1"]);
    let refused = client.pdu_readings("pdu-c").await.unwrap_err();
    assert!(matches!(refused, RedfishError::NoSuchUnit { .. }), "{refused}");
    assert!(refused.to_string().ends_with("it has: 1, 2"), "{refused}");
}

#[tokio::test]
async fn a_cdu_reports_temperature_flow_and_leaks() {
    let bmc = serve(equipment()).await;
    let read = bmc.connect().await.cdu_readings("cdu-1").await.unwrap();
    assert_eq!(read.connectors.len(), 1, "{read:?}");
    let one = &read.connectors[0];
    assert_eq!(
        (one.side, one.supply_celsius, one.return_celsius, one.flow_lpm),
        (ConnectorSide::Secondary, Some(30.5), Some(38.0), None)
    );
    assert_eq!(read.leaks[0].state, LeakState::Warning);

    let mut tree = equipment();
    let many: Vec<Value> = (0..65).map(|_| json!({"DetectorState": "OK"})).collect();
    tree.insert("/te/l".to_owned(), json!({"LeakDetectorGroups": [{"Detectors": many}]}));
    let read = serve(tree).await.connect().await.cdu_readings("cdu-1").await.unwrap();
    assert_eq!((read.leaks.len(), read.gaps.len()), (64, 1), "{:?}", read.gaps);
}

#[tokio::test]
async fn a_service_without_equipment_and_an_endless_one() {
    let client = Bmc::plain().await.connect().await;
    assert!(matches!(
        client.pdu_readings("x").await,
        Err(RedfishError::MissingProperty { .. })
    ));
    let mut tree = equipment();
    let many: Vec<Value> = (0..1000).map(|n| link(&format!("/o/{n}"))).collect();
    tree.insert("/o".to_owned(), json!({"Members": many}));
    let bmc = Bmc::start_with(tree, Duration::ZERO, |request, _| {
        (request.path.starts_with("/o/")).then(|| Answer::json(200, &json!({"Id": "x"})))
    })
    .await;
    let read = bmc.connect().await.pdu_readings("pdu-a-r01").await.unwrap();
    assert!(read.outlets.len() < 400, "{}", read.outlets.len());
    assert!(
        read.gaps.iter().any(|gap| gap.why.contains("more than 400")),
        "{:?}",
        read.gaps
    );
}
