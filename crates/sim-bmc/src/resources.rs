//! The read-only documents, after DMTF's schemas (DSP8010).

use super::host::{ConsoleKind, Description, Host};
use super::time::{now_s, time};
use super::words::ResetType;
use super::{climate, events, expand, update, web_console};
use serde_json::{Value, json};

/// Makes a document; `None` if this machine has no such resource.
pub(super) type Document = fn(&dyn Host) -> Option<Value>;

/// Makes the document of one member of a collection; `None` if there is no such member.
pub(super) type Member = fn(&dyn Host, &str) -> Option<Value>;

/// Every read-only document by its path.
pub(super) const READ_ONLY: &[(&str, Document)] = &[
    ("/redfish", |_| Some(json!({"v1": "/redfish/v1/"}))),
    ("/redfish/v1", root),
    ("/redfish/v1/odata", odata),
    (events::SERVICE, events::service),
    ("/redfish/v1/AccountService/Roles", roles),
    ("/redfish/v1/AccountService/Roles/Administrator", |_| {
        role("Administrator", &ADMINISTRATOR)
    }),
    ("/redfish/v1/AccountService/Roles/Operator", |_| {
        role("Operator", &["Login", "ConfigureComponents", "ConfigureSelf"])
    }),
    ("/redfish/v1/AccountService/Roles/ReadOnly", |_| {
        role("ReadOnly", &["Login", "ConfigureSelf"])
    }),
    ("/redfish/v1/Systems", |_| {
        one("/redfish/v1/Systems", "ComputerSystemCollection", "1")
    }),
    ("/redfish/v1/Systems/1/Processors", |host| {
        let ids: Vec<String> = host.description().processors.into_iter().map(|part| part.id).collect();
        several("/redfish/v1/Systems/1/Processors", "ProcessorCollection", &ids)
    }),
    ("/redfish/v1/Systems/1/Memory", |host| {
        let ids: Vec<String> = host.description().memory.into_iter().map(|part| part.id).collect();
        several("/redfish/v1/Systems/1/Memory", "MemoryCollection", &ids)
    }),
    ("/redfish/v1/Systems/1/EthernetInterfaces", |host| {
        let ids: Vec<String> = host.description().nics.into_iter().map(|part| part.id).collect();
        let path = "/redfish/v1/Systems/1/EthernetInterfaces";
        several(path, "EthernetInterfaceCollection", &ids)
    }),
    ("/redfish/v1/Systems/1/Storage", |_| {
        one("/redfish/v1/Systems/1/Storage", "StorageCollection", "1")
    }),
    ("/redfish/v1/Systems/1/Storage/1", storage),
    ("/redfish/v1/Managers", |_| {
        one("/redfish/v1/Managers", "ManagerCollection", "1")
    }),
    ("/redfish/v1/Managers/1", manager),
    ("/redfish/v1/Managers/1/VirtualMedia", |_| {
        one("/redfish/v1/Managers/1/VirtualMedia", "VirtualMediaCollection", "Cd")
    }),
    ("/redfish/v1/Chassis", |_| {
        one("/redfish/v1/Chassis", "ChassisCollection", "1")
    }),
    ("/redfish/v1/Chassis/1", chassis),
    ("/redfish/v1/Chassis/1/EnvironmentMetrics", climate::metrics),
    ("/redfish/v1/Chassis/1/ThermalSubsystem", climate::subsystem),
    (
        "/redfish/v1/Chassis/1/ThermalSubsystem/ThermalMetrics",
        climate::thermal,
    ),
    ("/redfish/v1/Chassis/1/Sensors", climate::sensors),
];

/// Every read-only document that exists once per part of the machine.
pub(super) const MEMBERS: &[(&str, Member)] = &[
    ("/redfish/v1/Systems/1/Processors/{id}", processor),
    ("/redfish/v1/Systems/1/Memory/{id}", memory),
    ("/redfish/v1/Systems/1/EthernetInterfaces/{id}", ethernet_interface),
    ("/redfish/v1/Systems/1/Storage/1/Drives/{id}", drive),
    ("/redfish/v1/Chassis/1/Sensors/{id}", climate::sensor),
];

/// The service document of OData clients.
pub(super) const METADATA: &str = r#"<?xml version="1.0" encoding="UTF-8"?>
<edmx:Edmx xmlns:edmx="http://docs.oasis-open.org/odata/ns/edmx" Version="4.0">
  <edmx:Reference Uri="http://redfish.dmtf.org/schemas/v1/ServiceRoot_v1.xml">
    <edmx:Include Namespace="ServiceRoot"/>
    <edmx:Include Namespace="ServiceRoot.v1_15_0"/>
  </edmx:Reference>
  <edmx:DataServices>
    <Schema xmlns="http://docs.oasis-open.org/odata/ns/edm" Namespace="Service">
      <EntityContainer Name="Service" Extends="ServiceRoot.v1_15_0.ServiceContainer"/>
    </Schema>
  </edmx:DataServices>
</edmx:Edmx>
"#;

const OK: (&str, &str) = ("Enabled", "OK");

fn status((state, health): (&str, &str)) -> Value {
    json!({"State": state, "Health": health})
}

fn link(path: &str) -> Value {
    json!({"@odata.id": path})
}

/// A collection with the given members.
pub(super) fn collection<'a>(path: &str, kind: &str, name: &str, members: impl Iterator<Item = &'a str>) -> Value {
    let members: Vec<Value> = members.map(|id| link(&format!("{path}/{id}"))).collect();
    json!({
        "@odata.id": path,
        "@odata.type": kind,
        "Name": name,
        "Members@odata.count": members.len(),
        "Members": members,
    })
}

/// A collection with one member.
fn one(path: &str, kind: &str, member: &str) -> Option<Value> {
    several(path, kind, &[member.to_owned()])
}

fn several(path: &str, kind: &str, members: &[String]) -> Option<Value> {
    let name = path.rsplit('/').next().unwrap_or(path);
    let members = members.iter().map(String::as_str);
    Some(collection(path, &format!("#{kind}.{kind}"), name, members))
}

fn root(host: &dyn Host) -> Option<Value> {
    let machine = host.description();
    let mut body = json!({
        "@odata.id": "/redfish/v1",
        "@odata.type": "#ServiceRoot.v1_15_0.ServiceRoot",
        "Id": "RootService",
        "Name": "Root Service",
        "RedfishVersion": "1.17.0",
        "UUID": bmc_uuid(&machine),
        "Vendor": "Rackwright",
        "Product": machine.bmc_model,
        "ProtocolFeaturesSupported": {
            "ExcerptQuery": false,
            "FilterQuery": false,
            "OnlyMemberQuery": false,
            "SelectQuery": false,
            "DeepOperations": {"DeepPATCH": false, "DeepPOST": false},
            "ExpandQuery": expand::supported(),
        },
        "Systems": link("/redfish/v1/Systems"),
        "Chassis": link("/redfish/v1/Chassis"),
        "Managers": link("/redfish/v1/Managers"),
        "AccountService": link("/redfish/v1/AccountService"),
        "SessionService": link("/redfish/v1/SessionService"),
        "EventService": link(events::SERVICE),
        "Links": {"Sessions": link("/redfish/v1/SessionService/Sessions")},
    });
    if host.has_settings() {
        body["Registries"] = link("/redfish/v1/Registries");
    }
    if host.updates().is_some() {
        body["UpdateService"] = link("/redfish/v1/UpdateService");
    }
    if host.tasks().is_some() {
        body["Tasks"] = link("/redfish/v1/TaskService");
    }
    Some(body)
}

/// The BMC's own UUID: the machine's with its first digit changed.
fn bmc_uuid(machine: &Description) -> String {
    format!("b{}", machine.uuid.get(1..).unwrap_or_default())
}

fn odata(host: &dyn Host) -> Option<Value> {
    let entry = |name: &str| json!({"name": name, "kind": "Singleton", "url": format!("/redfish/v1/{name}")});
    let names = [
        "Systems",
        "Chassis",
        "Managers",
        "AccountService",
        "SessionService",
        "EventService",
    ];
    let mut value = vec![json!({"name": "Service", "kind": "Singleton", "url": "/redfish/v1/"})];
    value.extend(names.map(entry));
    if host.updates().is_some() {
        value.push(json!({"name": "UpdateService", "kind": "Singleton", "url": "/redfish/v1/UpdateService"}));
    }
    if host.tasks().is_some() {
        value.push(json!({"name": "Tasks", "kind": "Singleton", "url": "/redfish/v1/TaskService"}));
    }
    Some(json!({"@odata.context": "/redfish/v1/$metadata", "value": value}))
}

/// Privileges of the predefined role (DSP0266, table "Redfish predefined roles").
const ADMINISTRATOR: [&str; 5] = [
    "Login",
    "ConfigureManager",
    "ConfigureUsers",
    "ConfigureComponents",
    "ConfigureSelf",
];

fn roles(_: &dyn Host) -> Option<Value> {
    let members = ["Administrator", "Operator", "ReadOnly"];
    Some(collection(
        "/redfish/v1/AccountService/Roles",
        "#RoleCollection.RoleCollection",
        "Roles",
        members.into_iter(),
    ))
}

fn role(name: &str, privileges: &[&str]) -> Option<Value> {
    Some(json!({
        "@odata.id": format!("/redfish/v1/AccountService/Roles/{name}"),
        "@odata.type": "#Role.v1_3_1.Role",
        "Id": name,
        "Name": name,
        "RoleId": name,
        "IsPredefined": true,
        "AssignedPrivileges": privileges,
    }))
}

/// The system without its changing properties: power state, status, boot override.
pub(super) fn system(machine: &Description) -> Value {
    let resets: Vec<&str> = machine.reset_types.iter().copied().map(ResetType::as_str).collect();
    let cpus = || machine.processors.iter().filter(|part| part.kind == "CPU");
    let mut system = json!({
        "@odata.id": "/redfish/v1/Systems/1",
        "@odata.type": "#ComputerSystem.v1_20_0.ComputerSystem",
        "Id": "1",
        "Name": machine.name,
        "SystemType": "Physical",
        "Manufacturer": machine.manufacturer,
        "Model": machine.model,
        "SerialNumber": machine.serial,
        "UUID": machine.uuid,
        "PowerState": null,
        "Status": null,
        "Boot": null,
        "ProcessorSummary": {
            "Count": cpus().count(),
            "CoreCount": cpus().map(|part| part.cores).sum::<u32>(),
            "LogicalProcessorCount": cpus().map(|part| part.threads).sum::<u32>(),
            "Status": status(OK),
        },
        "MemorySummary": {"TotalSystemMemoryGiB": machine.memory_mib() as f64 / 1024.0, "Status": status(OK)},
        "Processors": link("/redfish/v1/Systems/1/Processors"),
        "Memory": link("/redfish/v1/Systems/1/Memory"),
        "EthernetInterfaces": link("/redfish/v1/Systems/1/EthernetInterfaces"),
        "Storage": link("/redfish/v1/Systems/1/Storage"),
        "Links": {"Chassis": [link("/redfish/v1/Chassis/1")], "ManagedBy": [link("/redfish/v1/Managers/1")]},
        "Actions": {
            "#ComputerSystem.Reset": {
                "target": "/redfish/v1/Systems/1/Actions/ComputerSystem.Reset",
                "ResetType@Redfish.AllowableValues": resets,
            },
        },
    });
    if let Some(console) = machine.console {
        system["SerialConsole"] = serial_console(console);
    }
    if machine.uefi {
        system["SecureBoot"] = link("/redfish/v1/Systems/1/SecureBoot");
    }
    if machine.tpm {
        system["TrustedModules"] = json!([{"InterfaceType": "TPM2_0", "Status": status(OK)}]);
    }
    system
}

fn serial_console(console: ConsoleKind) -> Value {
    let leave = "Press ~. to end the session";
    match console {
        ConsoleKind::Ssh(port) => json!({
            "MaxConcurrentSessions": 1,
            "SSH": {"ServiceEnabled": true, "Port": port, "SharedWithManagerCLI": false, "HotKeySequenceDisplay": leave},
        }),
        ConsoleKind::WebSocket => json!({
            "MaxConcurrentSessions": 1,
            "WebSocket": {"ServiceEnabled": true, "Interactive": true, "ConsoleURI": web_console::PATH},
        }),
        ConsoleKind::Ipmi(port) => json!({
            "MaxConcurrentSessions": 1,
            "IPMI": {"ServiceEnabled": true, "Port": port, "HotKeySequenceDisplay": leave},
        }),
    }
}

fn processor(host: &dyn Host, id: &str) -> Option<Value> {
    let part = host.description().processors.into_iter().find(|part| part.id == id)?;
    let mut body = json!({
        "@odata.id": format!("/redfish/v1/Systems/1/Processors/{id}"),
        "@odata.type": "#Processor.v1_18_0.Processor",
        "Id": id,
        "Name": "Processor",
        "Socket": id,
        "ProcessorType": part.kind,
        "Manufacturer": part.manufacturer,
        "Model": part.model,
        "Status": status(OK),
    });
    if part.kind == "CPU" {
        body["ProcessorArchitecture"] = json!("x86");
        body["InstructionSet"] = json!("x86-64");
        body["TotalCores"] = json!(part.cores);
        body["TotalThreads"] = json!(part.threads);
    }
    Some(body)
}

fn memory(host: &dyn Host, id: &str) -> Option<Value> {
    let part = host.description().memory.into_iter().find(|part| part.id == id)?;
    Some(json!({
        "@odata.id": format!("/redfish/v1/Systems/1/Memory/{id}"),
        "@odata.type": "#Memory.v1_17_0.Memory",
        "Id": id,
        "Name": id.replace("DIMM", "DIMM "),
        "MemoryType": "DRAM",
        "CapacityMiB": part.mib,
        "Manufacturer": part.manufacturer,
        "Status": status(OK),
    }))
}

fn ethernet_interface(host: &dyn Host, id: &str) -> Option<Value> {
    let part = host.description().nics.into_iter().find(|part| part.id == id)?;
    Some(json!({
        "@odata.id": format!("/redfish/v1/Systems/1/EthernetInterfaces/{id}"),
        "@odata.type": "#EthernetInterface.v1_9_0.EthernetInterface",
        "Id": id,
        "Name": id.replace("NIC", "Network interface "),
        "MACAddress": part.mac,
        "PermanentMACAddress": part.mac,
        "InterfaceEnabled": true,
        "LinkStatus": if host.state().powered { "LinkUp" } else { "LinkDown" },
        "Status": status(OK),
    }))
}

fn storage(host: &dyn Host) -> Option<Value> {
    let drives: Vec<Value> = (0..host.description().drives.len())
        .map(|n| link(&format!("/redfish/v1/Systems/1/Storage/1/Drives/{n}")))
        .collect();
    Some(json!({
        "@odata.id": "/redfish/v1/Systems/1/Storage/1",
        "@odata.type": "#Storage.v1_15_0.Storage",
        "Id": "1",
        "Name": "Storage",
        "Status": status(OK),
        "Drives@odata.count": drives.len(),
        "Drives": drives,
    }))
}

/// A drive of the machine, if it exists and is not lost.
fn drive(host: &dyn Host, id: &str) -> Option<Value> {
    let index: usize = id.parse().ok()?;
    let drive = host.description().drives.into_iter().nth(index)?;
    Some(json!({
        "@odata.id": format!("/redfish/v1/Systems/1/Storage/1/Drives/{index}"),
        "@odata.type": "#Drive.v1_17_0.Drive",
        "Id": index.to_string(),
        "Name": format!("Drive {index}"),
        "Manufacturer": drive.manufacturer,
        "Model": drive.model,
        "SerialNumber": drive.serial,
        "CapacityBytes": drive.bytes,
        "BlockSizeBytes": 512,
        "MediaType": "SSD",
        "Protocol": drive.protocol,
        "Status": status(OK),
    }))
}

fn manager(host: &dyn Host) -> Option<Value> {
    let machine = host.description();
    Some(json!({
        "@odata.id": "/redfish/v1/Managers/1",
        "@odata.type": "#Manager.v1_18_0.Manager",
        "Id": "1",
        "Name": "Manager",
        "ManagerType": "BMC",
        "Manufacturer": "Rackwright",
        "Model": machine.bmc_model,
        "FirmwareVersion": env!("CARGO_PKG_VERSION"),
        "UUID": bmc_uuid(&machine),
        "PowerState": "On",
        "DateTime": time(now_s().saturating_add_signed(host.clock_skew_s())),
        "DateTimeLocalOffset": "+00:00",
        "Status": status(OK),
        "VirtualMedia": link("/redfish/v1/Managers/1/VirtualMedia"),
        "LogServices": link(super::log::SERVICES),
        "HostInterfaces": link(super::in_band::HOST_INTERFACES),
        "Links": {
            "ManagerForServers": [link("/redfish/v1/Systems/1")],
            "ManagerForChassis": [link("/redfish/v1/Chassis/1")],
        },
    }))
}

fn chassis(host: &dyn Host) -> Option<Value> {
    let machine = host.description();
    let mut body = json!({
        "@odata.id": "/redfish/v1/Chassis/1",
        "@odata.type": "#Chassis.v1_23_0.Chassis",
        "Id": "1",
        "Name": "Chassis",
        "ChassisType": "RackMount",
        "Manufacturer": machine.manufacturer,
        "Model": machine.model,
        "SerialNumber": machine.serial,
        "PowerState": if host.state().powered { "On" } else { "Off" },
        "Status": status(OK),
        "Links": {
            "ComputerSystems": [link("/redfish/v1/Systems/1")],
            "ManagedBy": [link("/redfish/v1/Managers/1")],
        },
    });
    climate::link_into(&mut body, host);
    if let Some(actions) = host.updates().as_ref().and_then(update::chassis_actions) {
        body["Actions"] = actions;
    }
    Some(body)
}
