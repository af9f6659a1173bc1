use std::collections::BTreeMap;
use std::time::Duration;

use rackwright_redfish::capabilities::Capability;
use serde_json::{Value, json};

use crate::bmc::{Bmc, SYSTEM, standard_tree};
use crate::server::Answer;

/// A machine with a few parts of each kind, some of them odd.
fn machine() -> BTreeMap<String, Value> {
    let mut tree = standard_tree();
    let link = |path: &str| json!({"@odata.id": path});
    let system = tree.get_mut(SYSTEM).unwrap();
    for (name, path) in [
        ("Processors", "/p"),
        ("Memory", "/m"),
        ("Storage", "/s"),
        ("EthernetInterfaces", "/e"),
        ("NetworkInterfaces", "/n"),
    ] {
        system[name] = link(path);
    }
    for (path, body) in [
        (
            "/p",
            json!({"Members": [link("/p/1"), link("/p/2"), link("/p/broken"), link("/p/gone")]}),
        ),
        (
            "/p/1",
            json!({"Id": "1", "ProcessorType": "CPU", "TotalCores": "32", "Model": "Xeon", "TotalThreads": 64.0}),
        ),
        ("/p/2", json!({"Id": "2", "Status": {"State": "Absent"}})),
        ("/m", json!({"Members": [link("/m/1"), link("/m/2")]})),
        (
            "/m/1",
            json!({"Id": "1", "CapacityMiB": 65536, "MemoryDeviceType": "DDR5", "DeviceLocator": "A1"}),
        ),
        ("/m/2", json!({"Id": "2", "CapacityMiB": 0})),
        ("/s", json!({"Members": [link("/s/1"), link("/s/2")]})),
        ("/s/1", json!({"Drives": [link("/d/1/"), link("/d/1"), null]})),
        ("/s/2", json!({"Drives": link("/s/2/Drives")})),
        ("/s/2/Drives", json!({"Members": [link("/d/2")]})),
        (
            "/d/1",
            json!({"Id": "1", "CapacityBytes": 1_920_383_410_176_u64, "SerialNumber": "D1", "Protocol": "NVMe"}),
        ),
        ("/d/2", json!({"Id": "2", "CapacityBytes": null})),
        ("/e", json!({"Members": [link("/e/1"), link("/e/2"), link("/e/3")]})),
        (
            "/e/1",
            json!({"Id": "1", "MACAddress": "B8:3F:D2:A4:1B:D2", "LinkStatus": "LinkUp"}),
        ),
        (
            "/e/2",
            json!({"Id": "2", "MACAddress": "02-00-00-00-00-07", "LinkStatus": "LinkDown"}),
        ),
        ("/e/3", json!({"Id": "3", "MACAddress": ""})),
        ("/n", json!({"Members": [link("/n/1")]})),
        ("/n/1", json!({"Links": {"NetworkAdapter": link("/a/1/")}})),
        (
            "/a/1",
            json!({"Id": "1", "Model": "ConnectX-7", "NetworkDeviceFunctions": link("/f"), "Ports": link("/ports")}),
        ),
        ("/f", json!({"Members": [link("/f/1")]})),
        (
            "/f/1",
            json!({"Ethernet": {"PermanentMACAddress": "b8:3f:d2:a4:1b:d2", "MACAddress": "02:00:00:00:00:09"}}),
        ),
        ("/ports", json!({"Members": [link("/ports/1")]})),
        (
            "/ports/1",
            json!({"AssociatedNetworkAddresses": ["88e9:a4ff:ff80:9da2"]}),
        ),
    ] {
        tree.insert(path.to_owned(), body);
    }
    tree
}

#[tokio::test]
async fn everything_is_found_and_failures_are_named() {
    let bmc = Bmc::start_with(machine(), Duration::ZERO, |request, _| {
        request.is("GET", "/p/broken").then(|| Answer::text(200, "{\"Id\": "))
    })
    .await;
    let client = bmc.connect().await;
    let found = client.inventory().await.unwrap();
    assert_eq!(found.processors.len(), 1);
    assert_eq!(
        (found.processors[0].cores, found.processors[0].threads),
        (Some(32), Some(64))
    );
    assert_eq!(found.memory.len(), 1);
    assert_eq!(found.memory[0].capacity_mib, Some(65_536));
    let drives: Vec<_> = found
        .drives
        .iter()
        .map(|drive| (drive.id.as_str(), drive.capacity_bytes))
        .collect();
    assert_eq!(drives, [("1", Some(1_920_383_410_176)), ("2", None)]);
    assert_eq!(client.drives().await.unwrap(), (found.drives.clone(), Vec::new()));
    let nics: Vec<_> = found.nics.iter().map(|nic| (nic.path.as_str(), nic.link_up)).collect();
    assert_eq!(nics, [("/a/1/", Some(true)), ("/e/2", Some(false)), ("/e/3", None)]);
    assert_eq!(found.nics[0].port_guids, ["88e9a4ffff809da2"]);
    let (adapters, gaps) = client.adapters().await.unwrap();
    let adapters: Vec<_> = adapters
        .iter()
        .map(|nic| (nic.path.as_str(), &nic.port_guids))
        .collect();
    assert_eq!(
        (adapters, gaps),
        (vec![("/a/1/", &found.nics[0].port_guids)], Vec::new())
    );
    let gaps: Vec<_> = found.gaps.iter().map(|gap| gap.path.as_str()).collect();
    assert_eq!(gaps, ["/p/broken", "/p/gone"]);
    let macs: Vec<_> = client.macs().await.unwrap().iter().map(ToString::to_string).collect();
    assert_eq!(macs, ["b8:3f:d2:a4:1b:d2", "02:00:00:00:00:07"]);
}

#[tokio::test]
async fn a_machine_without_data_has_an_empty_inventory() {
    let bmc = Bmc::plain().await;
    let client = bmc.connect().await;
    assert_eq!(
        client.inventory().await.unwrap(),
        rackwright_redfish::BmcInventory::default()
    );
    assert!(client.macs().await.unwrap().is_empty());
}

/// A machine as NVIDIA's OpenBMC shows a Grace one: no Ethernet interfaces, and the cards in its boot options.
fn grace(options: &[(&str, &str)]) -> BTreeMap<String, Value> {
    const OPTIONS: &str = "/redfish/v1/Systems/1/BootOptions";
    let mut tree = standard_tree();
    tree.get_mut(SYSTEM).unwrap()["Boot"]["BootOptions"] = json!({"@odata.id": OPTIONS});
    let path = |id: &str| format!("{OPTIONS}/{id}");
    let members: Vec<Value> = options.iter().map(|&(id, _)| json!({"@odata.id": path(id)})).collect();
    tree.insert(OPTIONS.to_owned(), json!({"Members": members}));
    for &(id, device) in options {
        let body = json!({"Id": id, "BootOptionReference": id, "UefiDevicePath": device});
        tree.insert(path(id), body);
    }
    tree
}

#[tokio::test]
async fn a_machine_without_interfaces_shows_its_cards_in_its_boot_options() {
    let gone = "/redfish/v1/Systems/1/BootOptions/Boot000C";
    let mut tree = grace(&[
        (
            "Boot0000",
            r"HD(1,GPT,A04D0F1E,0x800,0x100000)/\EFI\ubuntu\shimaa64.efi",
        ),
        (
            "Boot000A",
            "PciRoot(0x0)/Pci(0x0,0x0)/MAC(946DAE570DD6,0x1)/IPv4(0.0.0.0)",
        ),
        (
            "Boot000B",
            "PciRoot(0x0)/Pci(0x0,0x0)/MAC(946DAE570DD6,0x1)/IPv4(0.0.0.0)/Uri()",
        ),
        (
            "Boot000C",
            "PciRoot(0x0)/Pci(0x0,0x0)/MAC(946DAE570DD7,0x1)/IPv4(0.0.0.0)",
        ),
        (
            "Boot000D",
            "PciRoot(0x3)/USB(0x1,0x0)/MAC(58A2E1BBB10F,0x1)/IPv4(0.0.0.0)",
        ),
        ("Boot000E", ""),
    ]);
    tree.remove(gone);
    let bmc = Bmc::start_with(tree, Duration::ZERO, |_, _| None).await;
    let client = bmc.connect().await;
    assert!(client.machine().await.unwrap().macs.is_empty());
    let (macs, gaps) = client.boot_option_macs().await.unwrap();
    let macs: Vec<_> = macs.iter().map(ToString::to_string).collect();
    assert_eq!(macs, ["94:6d:ae:57:0d:d6"], "once for each card");
    let gaps: Vec<_> = gaps.iter().map(|gap| gap.path.as_str()).collect();
    assert_eq!(gaps, [gone]);
    let report = client.probe().await.unwrap();
    assert_eq!(report.finding(Capability::Macs).unwrap().detail, "1 known");
}

#[tokio::test]
async fn a_machine_without_boot_options_has_no_cards_in_them() {
    let bmc = Bmc::plain().await;
    let client = bmc.connect().await;
    let (macs, gaps) = client.boot_option_macs().await.unwrap();
    assert!(macs.is_empty() && gaps.is_empty(), "{macs:?} {gaps:?}");
}
