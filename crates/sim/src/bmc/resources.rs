//! The documents that clients only read, after DMTF's schemas (DSP8010).

use crate::lab::{Firmware, Machine, MachineView};
use serde_json::{Value, json};

/// Makes a document, or `None` where this machine has no such resource.
pub(super) type Body = fn(&Machine) -> Option<Value>;

/// Every read-only document by its path.
pub(super) const READ_ONLY: &[(&str, Body)] = &[
    ("/redfish", |_| Some(json!({"v1": "/redfish/v1/"}))),
    ("/redfish/v1", root),
    ("/redfish/v1/odata", odata),
    ("/redfish/v1/AccountService", account_service),
    ("/redfish/v1/AccountService/Accounts", |_| {
        one("/redfish/v1/AccountService/Accounts", "ManagerAccountCollection", "1")
    }),
    ("/redfish/v1/AccountService/Accounts/1", account),
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
    ("/redfish/v1/Systems/1/Processors", |_| {
        one("/redfish/v1/Systems/1/Processors", "ProcessorCollection", "CPU0")
    }),
    ("/redfish/v1/Systems/1/Processors/CPU0", processor),
    ("/redfish/v1/Systems/1/Memory", |_| {
        one("/redfish/v1/Systems/1/Memory", "MemoryCollection", "DIMM0")
    }),
    ("/redfish/v1/Systems/1/Memory/DIMM0", memory),
    ("/redfish/v1/Systems/1/EthernetInterfaces", |_| {
        one(
            "/redfish/v1/Systems/1/EthernetInterfaces",
            "EthernetInterfaceCollection",
            "NIC0",
        )
    }),
    ("/redfish/v1/Systems/1/EthernetInterfaces/NIC0", ethernet_interface),
    ("/redfish/v1/Systems/1/Storage", |_| {
        one("/redfish/v1/Systems/1/Storage", "StorageCollection", "1")
    }),
    ("/redfish/v1/Systems/1/Storage/1", storage),
    ("/redfish/v1/Systems/1/SecureBoot", secure_boot),
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
    let name = path.rsplit('/').next().unwrap_or(path);
    Some(collection(
        path,
        &format!("#{kind}.{kind}"),
        name,
        std::iter::once(member),
    ))
}

fn root(machine: &Machine) -> Option<Value> {
    Some(json!({
        "@odata.id": "/redfish/v1",
        "@odata.type": "#ServiceRoot.v1_15_0.ServiceRoot",
        "Id": "RootService",
        "Name": "Root Service",
        "RedfishVersion": "1.17.0",
        "UUID": bmc_uuid(machine),
        "Vendor": "Rackwright",
        "Product": "Lab BMC",
        "ProtocolFeaturesSupported": {
            "ExcerptQuery": false,
            "FilterQuery": false,
            "OnlyMemberQuery": false,
            "SelectQuery": false,
            "DeepOperations": {"DeepPATCH": false, "DeepPOST": false},
            "ExpandQuery": {"ExpandAll": false, "Levels": false, "Links": false, "NoLinks": false},
        },
        "Systems": link("/redfish/v1/Systems"),
        "Chassis": link("/redfish/v1/Chassis"),
        "Managers": link("/redfish/v1/Managers"),
        "AccountService": link("/redfish/v1/AccountService"),
        "SessionService": link("/redfish/v1/SessionService"),
        "Links": {"Sessions": link("/redfish/v1/SessionService/Sessions")},
    }))
}

/// The BMC's own UUID: the machine's with its first digit changed.
fn bmc_uuid(machine: &Machine) -> String {
    format!("b{}", &machine.uuid()[1..])
}

fn odata(_: &Machine) -> Option<Value> {
    let entry = |name: &str| json!({"name": name, "kind": "Singleton", "url": format!("/redfish/v1/{name}")});
    let names = ["Systems", "Chassis", "Managers", "AccountService", "SessionService"];
    let mut value = vec![json!({"name": "Service", "kind": "Singleton", "url": "/redfish/v1/"})];
    value.extend(names.map(entry));
    Some(json!({"@odata.context": "/redfish/v1/$metadata", "value": value}))
}

fn account_service(_: &Machine) -> Option<Value> {
    Some(json!({
        "@odata.id": "/redfish/v1/AccountService",
        "@odata.type": "#AccountService.v1_13_0.AccountService",
        "Id": "AccountService",
        "Name": "Account Service",
        "Status": status(OK),
        "ServiceEnabled": true,
        "MinPasswordLength": 8,
        "MaxPasswordLength": 20,
        "Accounts": link("/redfish/v1/AccountService/Accounts"),
        "Roles": link("/redfish/v1/AccountService/Roles"),
    }))
}

fn account(machine: &Machine) -> Option<Value> {
    Some(json!({
        "@odata.id": "/redfish/v1/AccountService/Accounts/1",
        "@odata.type": "#ManagerAccount.v1_10_0.ManagerAccount",
        "Id": "1",
        "Name": "User Account",
        "UserName": machine.bmc().user,
        "Password": null,
        "RoleId": "Administrator",
        "Enabled": true,
        "Locked": false,
        "AccountTypes": ["Redfish"],
        "Links": {"Role": link("/redfish/v1/AccountService/Roles/Administrator")},
    }))
}

/// Privileges of the predefined role (DSP0266, table "Redfish predefined roles").
const ADMINISTRATOR: [&str; 5] = [
    "Login",
    "ConfigureManager",
    "ConfigureUsers",
    "ConfigureComponents",
    "ConfigureSelf",
];

fn roles(_: &Machine) -> Option<Value> {
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

/// The system without what changes: power state, status, boot override.
pub(super) fn system(machine: &Machine) -> Value {
    let mut system = json!({
        "@odata.id": "/redfish/v1/Systems/1",
        "@odata.type": "#ComputerSystem.v1_20_0.ComputerSystem",
        "Id": "1",
        "Name": machine.name(),
        "SystemType": "Physical",
        "Manufacturer": crate::lab::MANUFACTURER,
        "Model": crate::lab::MODEL,
        "SerialNumber": machine.serial(),
        "UUID": machine.uuid(),
        "PowerState": null,
        "Status": null,
        "Boot": null,
        "ProcessorSummary": {"Count": 1, "CoreCount": 1, "LogicalProcessorCount": 1, "Status": status(OK)},
        "MemorySummary": {"TotalSystemMemoryGiB": machine.memory_mb() as f64 / 1024.0, "Status": status(OK)},
        "Processors": link("/redfish/v1/Systems/1/Processors"),
        "Memory": link("/redfish/v1/Systems/1/Memory"),
        "EthernetInterfaces": link("/redfish/v1/Systems/1/EthernetInterfaces"),
        "Storage": link("/redfish/v1/Systems/1/Storage"),
        "Links": {"Chassis": [link("/redfish/v1/Chassis/1")], "ManagedBy": [link("/redfish/v1/Managers/1")]},
        "Actions": {
            "#ComputerSystem.Reset": {
                "target": "/redfish/v1/Systems/1/Actions/ComputerSystem.Reset",
                "ResetType@Redfish.AllowableValues": crate::lab::ResetType::ALL.map(crate::lab::ResetType::as_str),
            },
        },
    });
    if machine.firmware().is_uefi() {
        system["SecureBoot"] = link("/redfish/v1/Systems/1/SecureBoot");
    }
    if machine.tpm() {
        system["TrustedModules"] = json!([{"InterfaceType": "TPM2_0", "Status": status(OK)}]);
    }
    system
}

fn processor(_: &Machine) -> Option<Value> {
    Some(json!({
        "@odata.id": "/redfish/v1/Systems/1/Processors/CPU0",
        "@odata.type": "#Processor.v1_18_0.Processor",
        "Id": "CPU0",
        "Name": "Processor",
        "Socket": "CPU0",
        "ProcessorType": "CPU",
        "ProcessorArchitecture": "x86",
        "InstructionSet": "x86-64",
        "Manufacturer": "QEMU",
        "Model": "QEMU Virtual CPU",
        "TotalCores": 1,
        "TotalThreads": 1,
        "Status": status(OK),
    }))
}

fn memory(machine: &Machine) -> Option<Value> {
    Some(json!({
        "@odata.id": "/redfish/v1/Systems/1/Memory/DIMM0",
        "@odata.type": "#Memory.v1_17_0.Memory",
        "Id": "DIMM0",
        "Name": "DIMM 0",
        "MemoryType": "DRAM",
        "CapacityMiB": machine.memory_mb(),
        "Manufacturer": "QEMU",
        "Status": status(OK),
    }))
}

fn ethernet_interface(machine: &Machine) -> Option<Value> {
    let on = machine.view().pid.is_some();
    Some(json!({
        "@odata.id": "/redfish/v1/Systems/1/EthernetInterfaces/NIC0",
        "@odata.type": "#EthernetInterface.v1_9_0.EthernetInterface",
        "Id": "NIC0",
        "Name": "Network interface 0",
        "MACAddress": machine.mac(),
        "PermanentMACAddress": machine.mac(),
        "InterfaceEnabled": true,
        "LinkStatus": if on { "LinkUp" } else { "LinkDown" },
        "Status": status(OK),
    }))
}

fn storage(machine: &Machine) -> Option<Value> {
    let view = machine.view();
    let drives: Vec<Value> = (0..view.drives.len())
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

/// A drive of the machine, if it is (still) there.
pub(super) fn drive(view: &MachineView, index: usize) -> Option<Value> {
    let drive = view.drives.get(index)?;
    Some(json!({
        "@odata.id": format!("/redfish/v1/Systems/1/Storage/1/Drives/{index}"),
        "@odata.type": "#Drive.v1_17_0.Drive",
        "Id": index.to_string(),
        "Name": format!("Drive {index}"),
        "Manufacturer": "QEMU",
        "Model": drive.bus.model(),
        "SerialNumber": drive.serial,
        "CapacityBytes": drive.bytes,
        "BlockSizeBytes": 512,
        "MediaType": "SSD",
        "Protocol": drive.bus.protocol(),
        "Status": status(OK),
    }))
}

fn secure_boot(machine: &Machine) -> Option<Value> {
    if !machine.firmware().is_uefi() {
        return None;
    }
    let enabled = machine.firmware() == Firmware::UefiSecureBoot;
    Some(json!({
        "@odata.id": "/redfish/v1/Systems/1/SecureBoot",
        "@odata.type": "#SecureBoot.v1_1_0.SecureBoot",
        "Id": "SecureBoot",
        "Name": "UEFI Secure Boot",
        "SecureBootEnable": enabled,
        "SecureBootCurrentBoot": if enabled { "Enabled" } else { "Disabled" },
        "SecureBootMode": if enabled { "UserMode" } else { "SetupMode" },
    }))
}

fn manager(machine: &Machine) -> Option<Value> {
    Some(json!({
        "@odata.id": "/redfish/v1/Managers/1",
        "@odata.type": "#Manager.v1_18_0.Manager",
        "Id": "1",
        "Name": "Manager",
        "ManagerType": "BMC",
        "Manufacturer": "Rackwright",
        "Model": "Lab BMC",
        "FirmwareVersion": env!("CARGO_PKG_VERSION"),
        "UUID": bmc_uuid(machine),
        "PowerState": "On",
        "Status": status(OK),
        "VirtualMedia": link("/redfish/v1/Managers/1/VirtualMedia"),
        "Links": {
            "ManagerForServers": [link("/redfish/v1/Systems/1")],
            "ManagerForChassis": [link("/redfish/v1/Chassis/1")],
        },
    }))
}

fn chassis(machine: &Machine) -> Option<Value> {
    Some(json!({
        "@odata.id": "/redfish/v1/Chassis/1",
        "@odata.type": "#Chassis.v1_23_0.Chassis",
        "Id": "1",
        "Name": "Chassis",
        "ChassisType": "RackMount",
        "Manufacturer": crate::lab::MANUFACTURER,
        "Model": crate::lab::MODEL,
        "SerialNumber": machine.serial(),
        "PowerState": if machine.view().pid.is_some() { "On" } else { "Off" },
        "Status": status(OK),
        "Links": {
            "ComputerSystems": [link("/redfish/v1/Systems/1")],
            "ManagedBy": [link("/redfish/v1/Managers/1")],
        },
    }))
}
