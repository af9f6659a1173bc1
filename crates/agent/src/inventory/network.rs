//! Network interfaces and InfiniBand adapters.

use std::collections::HashMap;
use std::fs;
use std::net::IpAddr;

use rackwright_api::v1::{Hca, HcaPort, Nic};

use crate::net::interfaces;
use crate::root::SysRoot;
use crate::text;

/// `ARPHRD_ETHER` and `ARPHRD_INFINIBAND` of `linux/if_arp.h`.
const TYPES: [u32; 2] = [1, 32];

/// Interfaces with a hardware device, by name.
pub fn nics(root: &SysRoot) -> Vec<Nic> {
    let addresses = interfaces::addresses();
    let folder = root.sys.join("class/net");
    text::names(&folder)
        .into_iter()
        .filter_map(|name| nic(root, name, &addresses))
        .collect()
}

fn nic(root: &SysRoot, name: String, addresses: &HashMap<String, Vec<(IpAddr, u8)>>) -> Option<Nic> {
    let folder = root.sys.join("class/net").join(&name);
    let device = folder.join("device");
    if !device.exists() || !TYPES.contains(&text::number(&folder.join("type"))?) {
        return None;
    }
    let resolved = fs::canonicalize(&folder).unwrap_or_else(|_| folder.clone());
    let own = addresses.get(&name).map(Vec::as_slice).unwrap_or_default();
    Some(Nic {
        mac: text::or_empty(&folder.join("address")).to_ascii_lowercase(),
        driver: text::link_name(&device.join("driver")).unwrap_or_default(),
        pci_address: text::pci_address(&resolved).unwrap_or_default(),
        firmware_version: String::new(),
        neighbour: String::new(),
        link_up: text::number::<u8>(&folder.join("carrier")) == Some(1),
        // sysfs reports -1 for an unknown speed; that gives 0.
        speed_mbps: text::number(&folder.join("speed")).unwrap_or(0),
        addresses: own
            .iter()
            .map(|(address, prefix)| format!("{address}/{prefix}"))
            .collect(),
        name,
    })
}

/// Reads `/sys/class/infiniband`.
pub fn hcas(root: &SysRoot) -> Vec<Hca> {
    let folder = root.sys.join("class/infiniband");
    let hca = |name: String| {
        let hca = folder.join(&name);
        let resolved = fs::canonicalize(&hca).unwrap_or_else(|_| hca.clone());
        Hca {
            node_guid: text::or_empty(&hca.join("node_guid")),
            firmware_version: text::or_empty(&hca.join("fw_ver")),
            board_id: text::or_empty(&hca.join("board_id")),
            pci_address: text::pci_address(&resolved).unwrap_or_default(),
            ports: ports(&hca),
            name,
        }
    };
    text::names(&folder).into_iter().map(hca).collect()
}

fn ports(hca: &std::path::Path) -> Vec<HcaPort> {
    let folder = hca.join("ports");
    let mut numbers: Vec<u32> = text::names(&folder)
        .into_iter()
        .filter_map(|name| name.parse().ok())
        .collect();
    numbers.sort_unstable();
    let port = |number: u32| {
        let port = folder.join(number.to_string());
        // For example "4: ACTIVE" or "5: LinkUp".
        let state = |name: &str| {
            text::or_empty(&port.join(name))
                .rsplit(": ")
                .next()
                .unwrap_or_default()
                .to_owned()
        };
        HcaPort {
            number,
            port_guid: port_guid(&text::or_empty(&port.join("gids/0"))),
            state: state("state"),
            physical_state: state("phys_state"),
            rate: text::or_empty(&port.join("rate")),
            link_layer: text::or_empty(&port.join("link_layer")),
            lid: text::hex_number(&port.join("lid")).unwrap_or(0),
        }
    };
    numbers.into_iter().map(port).collect()
}

/// The last four groups of the port's first GID are its GUID (InfiniBand architecture 1.6, 4.1.1).
fn port_guid(gid: &str) -> String {
    let groups: Vec<&str> = gid.split(':').collect();
    if groups.len() == 8 {
        groups[4..].join(":")
    } else {
        String::new()
    }
}
