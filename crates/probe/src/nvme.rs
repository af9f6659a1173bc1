//! NVMe drives, with their SMART log.

use rackwright_health::facts::Row;

use crate::root::{Root, target, text};
use crate::smart;

pub(crate) fn rows(root: &Root) -> Vec<Row> {
    let drives = root.names("sys/class/nvme");
    drives.iter().map(|name| row(root, name)).collect()
}

fn row(root: &Root, name: &str) -> Row {
    let folder = root.at("sys/class/nvme").join(name);
    let file = |name: &str| text(&folder.join(name));
    let transport = file("transport");
    let row = Row::new("nvme")
        .with("name", name)
        .with_some("serial", file("serial"))
        .with_some("model", file("model"))
        .with_some("firmware", file("firmware_rev"))
        .with_some("state", file("state"))
        .with_some("pci", target(&folder.join("device")))
        .with_some("transport", transport.as_deref());
    // A drive over a network belongs to another machine.
    if transport.is_some_and(|transport| transport != "pcie") {
        return row.with("smart_error", "the drive belongs to another machine");
    }
    match smart::log_page(&root.at("dev").join(name)) {
        Ok(page) => with_page(row, &page),
        Err(error) => row.with("smart_error", error),
    }
}

/// NVM Express base specification, log page 02h: offsets in bytes.
fn with_page(row: Row, page: &[u8; smart::PAGE_BYTES]) -> Row {
    // The counters have 16 bytes; no drive reaches the upper 8.
    let wide = |at: usize| u64::from_le_bytes(page[at..at + 8].try_into().unwrap_or_default());
    let kelvin = u16::from_le_bytes([page[1], page[2]]);
    row.with("critical_warning", page[0])
        .with("temperature", i32::from(kelvin) - 273)
        .with("spare_percent", page[3])
        .with("percentage_used", page[5])
        .with("media_errors", wide(160))
}
