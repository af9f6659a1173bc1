//! PCI devices: links, error counters, access control of bridges, size of read requests.

use std::fs;
use std::path::Path;

use rackwright_health::facts::Row;

use crate::root::{Root, bytes, text};

/// The configuration space of a PCI Express device.
const CONFIG_BYTES: u64 = 4096;
/// Capability "PCI Express".
const EXPRESS: u8 = 0x10;
/// Extended capability "access control services".
const ACCESS_CONTROL: u16 = 0x000d;
/// Most capabilities of a list: a broken device may have a circle.
const CAPABILITIES_MAX: usize = 64;

/// The devices with a role in a GPU node (display, 3D, accelerator, network, InfiniBand, NVMe, NVLink switch) and all
/// bridges.
pub(crate) fn rows(root: &Root) -> Vec<Row> {
    let folder = root.at("sys/bus/pci/devices");
    let names = root.names("sys/bus/pci/devices");
    names.iter().filter_map(|name| row(&folder.join(name), name)).collect()
}

fn row(device: &Path, address: &str) -> Option<Row> {
    let class = text(&device.join("class"))?;
    let kinds = ["0x03", "0x02", "0x0108", "0x1200", "0x0680", "0x0604"];
    // A virtual function has no link and no capabilities of its own.
    if !kinds.iter().any(|kind| class.starts_with(kind)) || device.join("physfn").exists() {
        return None;
    }
    let file = |name: &str| text(&device.join(name));
    let mut row = Row::new("pci").with("address", address).with("class", &class);
    for (field, name) in [
        ("vendor", "vendor"),
        ("device", "device"),
        ("numa", "numa_node"),
        ("speed", "current_link_speed"),
        ("max_speed", "max_link_speed"),
        ("width", "current_link_width"),
        ("max_width", "max_link_width"),
    ] {
        row = row.with_some(field, file(name));
    }
    for (field, name) in [
        ("aer_correctable", "aer_dev_correctable"),
        ("aer_nonfatal", "aer_dev_nonfatal"),
        ("aer_fatal", "aer_dev_fatal"),
    ] {
        row = row.with_some(field, file(name).as_deref().and_then(aer_total));
    }
    let config = bytes(&device.join("config"), CONFIG_BYTES).unwrap_or_default();
    // Only root sees more than the first 64 bytes; without PCI Express there are 256.
    let config_kind = match config.len() {
        0..256 => "short",
        256..4096 => "conventional",
        _ => "full",
    };
    let control = access_control(&config).map(|bits| format!("{bits:#06x}"));
    Some(
        row.with("config", config_kind)
            .with_some("acs", control)
            .with_some("read_request", read_request(&config))
            .with_some("parent", parent(device)),
    )
}

/// The last line, `TOTAL_ERR_COR 12`.
fn aer_total(text: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.starts_with("TOTAL_ERR_"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

/// The bridge above a device: the parent of the device's folder.
fn parent(device: &Path) -> Option<String> {
    let own = fs::canonicalize(device).ok()?;
    let above = own.parent()?.file_name()?.to_string_lossy().into_owned();
    // The root of a bus is `pci0000:00`.
    (above.contains('.') && above.contains(':')).then_some(above)
}

fn u16_at(config: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(config.get(at..at + 2)?.try_into().ok()?))
}

/// Bytes of a read request, from the device's control register.
fn read_request(config: &[u8]) -> Option<u32> {
    // Status register: there is a list of capabilities.
    if u16_at(config, 0x06)? & 0x10 == 0 {
        return None;
    }
    let mut at = usize::from(*config.get(0x34)? & 0xfc);
    for _ in 0..CAPABILITIES_MAX {
        if at < 0x40 {
            return None;
        }
        if *config.get(at)? == EXPRESS {
            let size = (u16_at(config, at + 8)? >> 12) & 0x7;
            return Some(128 << size);
        }
        at = usize::from(*config.get(at + 1)? & 0xfc);
    }
    None
}

/// The control register of the access control services.
fn access_control(config: &[u8]) -> Option<u16> {
    let mut at = 0x100;
    for _ in 0..CAPABILITIES_MAX {
        let head = u32::from_le_bytes(config.get(at..at + 4)?.try_into().ok()?);
        if head & 0xffff == u32::from(ACCESS_CONTROL) {
            return u16_at(config, at + 6);
        }
        at = (head >> 20) as usize & 0xffc;
        if at < 0x100 {
            return None;
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_are_found_and_circles_end() {
        let mut config = vec![0; 4096];
        config[0x06] = 0x10;
        config[0x34] = 0x40;
        config[0x40..0x42].copy_from_slice(&[0x01, 0x60]);
        config[0x60..0x62].copy_from_slice(&[EXPRESS, 0x00]);
        config[0x68..0x6a].copy_from_slice(&0x5000_u16.to_le_bytes());
        config[0x100..0x104].copy_from_slice(&(0x0001_u32 | 1 << 16 | 0x148 << 20).to_le_bytes());
        config[0x148..0x14c].copy_from_slice(&(0x000d_u32 | 1 << 16).to_le_bytes());
        config[0x14e..0x150].copy_from_slice(&0x001d_u16.to_le_bytes());
        assert_eq!(
            (read_request(&config), access_control(&config)),
            (Some(4096), Some(0x1d))
        );
        // The lists lead to themselves.
        config[0x60..0x62].copy_from_slice(&[0x05, 0x40]);
        config[0x148..0x14c].copy_from_slice(&(0x0002_u32 | 0x100 << 20).to_le_bytes());
        assert_eq!((read_request(&config), access_control(&config)), (None, None));
        for length in [0, 7, 0x34, 0x41, 0x69, 64, 256, 0x14b] {
            let _ = (read_request(&config[..length]), access_control(&config[..length]));
        }
        assert_eq!(aer_total("RxErr 2\nTOTAL_ERR_COR 3\n"), Some(3));
        assert_eq!(aer_total("RxErr 2\n"), None);
    }
}
