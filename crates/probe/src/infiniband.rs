//! InfiniBand and RoCE ports.

use rackwright_health::facts::Row;

use crate::root::{Root, names, target, text};

/// The counters that the control plane judges or shows.
const COUNTERS: [&str; 7] = [
    "symbol_error",
    "link_error_recovery",
    "link_downed",
    "excessive_buffer_overrun_errors",
    "local_link_integrity_errors",
    "port_rcv_errors",
    "port_xmit_discards",
];

pub(crate) fn rows(root: &Root) -> Vec<Row> {
    let mut rows = Vec::new();
    for device in root.names("sys/class/infiniband") {
        let folder = root.at("sys/class/infiniband").join(&device);
        let of_device = |name: &str| text(&folder.join(name));
        for port in names(&folder.join("ports")) {
            let ports = folder.join("ports").join(&port);
            let file = |name: &str| text(&ports.join(name));
            let mut row = Row::new("port")
                .with("device", &device)
                .with("port", &port)
                .with_some("pci", target(&folder.join("device")))
                .with_some("guid", guid(file("gids/0").as_deref()))
                .with_some("node_guid", of_device("node_guid"))
                .with_some("firmware", of_device("fw_ver"))
                .with_some("board", of_device("board_id"))
                .with_some("state", file("state"))
                .with_some("phys_state", file("phys_state"))
                .with_some("rate", file("rate"))
                .with_some("link_layer", file("link_layer"));
            for counter in COUNTERS {
                row = row.with_some(counter, file(&format!("counters/{counter}")));
            }
            rows.push(row);
        }
    }
    rows
}

/// The second half of a port's first address is its GUID: `fe80:...:b83f:d203:00aa:1c2e`.
fn guid(gid: Option<&str>) -> Option<String> {
    let parts: Vec<&str> = gid?.split(':').collect();
    let known = parts.len() == 8 && parts[4..].iter().any(|part| part.chars().any(|c| c != '0'));
    known.then(|| format!("0x{}", parts[4..].concat()))
}
