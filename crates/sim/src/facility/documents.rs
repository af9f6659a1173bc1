//! The documents of a rack PDU and of a coolant distribution unit.

use serde_json::{Value, json};

use super::{Cdu, Pdu};

const PDU: &str = "/redfish/v1/PowerEquipment/RackPDUs/1";
const CDU: &str = "/redfish/v1/ThermalEquipment/CDUs/1";

fn link(path: &str) -> Value {
    json!({"@odata.id": path})
}

fn members(path: &str, kind: &str, ids: &[String]) -> Value {
    let members: Vec<Value> = ids.iter().map(|id| link(&format!("{path}/{id}"))).collect();
    json!({
        "@odata.id": path,
        "@odata.type": format!("#{kind}.{kind}"),
        "Name": kind,
        "Members@odata.count": members.len(),
        "Members": members,
    })
}

fn root(name: &str, equipment: &str) -> Value {
    json!({
        "@odata.id": "/redfish/v1/",
        "@odata.type": "#ServiceRoot.v1_15_0.ServiceRoot",
        "Id": "RootService",
        "Name": name,
        "RedfishVersion": "1.17.0",
        equipment: link(&format!("/redfish/v1/{equipment}")),
        "Links": {},
    })
}

fn ids(count: u32) -> Vec<String> {
    (1..=count).map(|n| n.to_string()).collect()
}

impl Pdu {
    fn branch(&self, outlet: u32) -> &'static str {
        if outlet <= self.outlets / 2 { "A" } else { "B" }
    }

    fn watts(&self, outlet: u32) -> f64 {
        let is_off = self.is_dead || (self.is_tripped && self.branch(outlet) == "B");
        if is_off { 0.0 } else { self.outlet_watts }
    }

    fn sum(&self, branch: Option<&str>) -> f64 {
        let on = (1..=self.outlets).filter(|outlet| branch.is_none_or(|branch| self.branch(*outlet) == branch));
        on.map(|outlet| self.watts(outlet)).sum()
    }
}

pub(super) fn of_pdu(pdu: &Pdu, path: &str) -> Option<Value> {
    let volts = if pdu.is_dead { 0.0 } else { 239.5 };
    if path == "/redfish/v1" {
        return Some(root("Rack PDU", "PowerEquipment"));
    }
    if path == "/redfish/v1/PowerEquipment" {
        return Some(json!({
            "@odata.id": path,
            "@odata.type": "#PowerEquipment.v1_2_0.PowerEquipment",
            "Id": "PowerEquipment",
            "Name": "Power Equipment",
            "RackPDUs": link("/redfish/v1/PowerEquipment/RackPDUs"),
        }));
    }
    if path == "/redfish/v1/PowerEquipment/RackPDUs" {
        return Some(members(path, "PowerDistributionCollection", &ids(1)));
    }
    let below = path.strip_prefix(PDU)?;
    let own = |name: &str| link(&format!("{PDU}/{name}"));
    let circuit = |id: &str, kind: &str, breaker: Option<&str>, watts: f64| {
        let outlets = (1..=pdu.outlets).filter(|outlet| kind == "Branch" && pdu.branch(*outlet) == id);
        let outlets: Vec<Value> = outlets.map(|outlet| own(&format!("Outlets/{outlet}"))).collect();
        let mut body = json!({
            "@odata.id": path,
            "@odata.type": "#Circuit.v1_7_0.Circuit",
            "Id": id,
            "Name": format!("{kind} {id}"),
            "CircuitType": kind,
            "PhaseWiringType": "ThreePhase5Wire",
            "RatedCurrentAmps": 32,
            "PolyPhaseVoltage": {"Line1ToNeutral": {"Reading": volts}, "Line2ToNeutral": {"Reading": volts}},
            "PowerWatts": {"Reading": watts},
            "Links": {"Outlets": outlets},
        });
        if let Some(breaker) = breaker {
            body["BreakerState"] = json!(breaker);
        }
        body
    };
    let tripped = if pdu.is_tripped { "Tripped" } else { "Normal" };
    match below {
        "" => Some(json!({
            "@odata.id": path,
            "@odata.type": "#PowerDistribution.v1_3_0.PowerDistribution",
            "Id": "1",
            "Name": "Rack PDU",
            "EquipmentType": "RackPDU",
            "Mains": own("Mains"),
            "Branches": own("Branches"),
            "Outlets": own("Outlets"),
            "Metrics": own("Metrics"),
        })),
        "/Metrics" => Some(json!({
            "@odata.id": path,
            "@odata.type": "#PowerDistributionMetrics.v1_3_0.PowerDistributionMetrics",
            "Id": "Metrics",
            "Name": "Metrics",
            "PowerWatts": {"Reading": pdu.sum(None)},
        })),
        "/Mains" => Some(members(path, "CircuitCollection", &["AC1".to_owned()])),
        // As on most PDUs, there is no breaker in front of it.
        "/Mains/AC1" => Some(circuit("AC1", "Mains", None, pdu.sum(None))),
        "/Branches" => Some(members(path, "CircuitCollection", &["A".to_owned(), "B".to_owned()])),
        "/Branches/A" => Some(circuit("A", "Branch", Some("Normal"), pdu.sum(Some("A")))),
        "/Branches/B" => Some(circuit("B", "Branch", Some(tripped), pdu.sum(Some("B")))),
        "/Outlets" => Some(members(path, "OutletCollection", &ids(pdu.outlets))),
        other => {
            let outlet: u32 = other.strip_prefix("/Outlets/")?.parse().ok()?;
            (1..=pdu.outlets).contains(&outlet).then(|| {
                json!({
                    "@odata.id": path,
                    "@odata.type": "#Outlet.v1_4_0.Outlet",
                    "Id": outlet.to_string(),
                    "Name": format!("Outlet {outlet}"),
                    "PowerState": "On",
                    "PowerWatts": {"Reading": pdu.watts(outlet)},
                    "CurrentAmps": {"Reading": pdu.watts(outlet) / 230.0},
                    "Links": {"BranchCircuit": own(&format!("Branches/{}", pdu.branch(outlet)))},
                })
            })
        }
    }
}

pub(super) fn of_cdu(cdu: &Cdu, path: &str) -> Option<Value> {
    if path == "/redfish/v1" {
        return Some(root("CDU", "ThermalEquipment"));
    }
    if path == "/redfish/v1/ThermalEquipment" {
        return Some(json!({
            "@odata.id": path,
            "@odata.type": "#ThermalEquipment.v1_1_0.ThermalEquipment",
            "Id": "ThermalEquipment",
            "Name": "Thermal Equipment",
            "CDUs": link("/redfish/v1/ThermalEquipment/CDUs"),
        }));
    }
    if path == "/redfish/v1/ThermalEquipment/CDUs" {
        return Some(members(path, "CoolingUnitCollection", &ids(1)));
    }
    let own = |name: &str| link(&format!("{CDU}/{name}"));
    let detector_state = match (cdu.is_leak_unknown, cdu.is_leaking) {
        (true, _) => Value::Null,
        (false, true) => json!("Critical"),
        (false, false) => json!("OK"),
    };
    let connector = |supply: f64| {
        json!({
            "@odata.id": path,
            "@odata.type": "#CoolantConnector.v1_0_2.CoolantConnector",
            "Id": "1",
            "Name": "Connector 1",
            "CoolantConnectorType": "Pair",
            "SupplyTemperatureCelsius": {"Reading": supply},
            "ReturnTemperatureCelsius": {"Reading": supply + 10.0},
            "FlowLitersPerMinute": {"Reading": cdu.flow_lpm},
            "Status": {"State": "Enabled", "Health": "OK"},
        })
    };
    match path.strip_prefix(CDU)? {
        "" => Some(json!({
            "@odata.id": path,
            "@odata.type": "#CoolingUnit.v1_1_0.CoolingUnit",
            "Id": "1",
            "Name": "CDU",
            "EquipmentType": "CDU",
            "PrimaryCoolantConnectors": own("PrimaryCoolantConnectors"),
            "SecondaryCoolantConnectors": own("SecondaryCoolantConnectors"),
            "LeakDetection": own("LeakDetection"),
        })),
        "/PrimaryCoolantConnectors" | "/SecondaryCoolantConnectors" => {
            Some(members(path, "CoolantConnectorCollection", &ids(1)))
        }
        "/PrimaryCoolantConnectors/1" => Some(connector(18.0)),
        "/SecondaryCoolantConnectors/1" => Some(connector(cdu.supply_celsius)),
        "/LeakDetection" => Some(json!({
            "@odata.id": path,
            "@odata.type": "#LeakDetection.v1_0_1.LeakDetection",
            "Id": "LeakDetection",
            "Name": "Leak Detection",
            "LeakDetectors": own("LeakDetection/LeakDetectors"),
        })),
        "/LeakDetection/LeakDetectors" => Some(members(path, "LeakDetectorCollection", &["Tray".to_owned()])),
        "/LeakDetection/LeakDetectors/Tray" => Some(json!({
            "@odata.id": path,
            "@odata.type": "#LeakDetector.v1_1_0.LeakDetector",
            "Id": "Tray",
            "Name": "Tray",
            "LeakDetectorType": "Moisture",
            "DetectorState": detector_state,
            "Status": {"State": "Enabled"},
        })),
        _ => None,
    }
}
