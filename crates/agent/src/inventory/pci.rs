//! PCI devices and their links.

use rackwright_api::v1::PciDevice;

use crate::root::SysRoot;
use crate::text;

/// Reads `/sys/bus/pci/devices`, by address.
pub fn devices(root: &SysRoot) -> Vec<PciDevice> {
    let folder = root.sys.join("bus/pci/devices");
    text::names(&folder)
        .into_iter()
        .filter(|name| text::is_pci_address(name))
        .map(|address| {
            let device = folder.join(&address);
            let hex = |name: &str| text::hex_number(&device.join(name)).unwrap_or(0);
            let width = |name: &str| text::number(&device.join(name)).unwrap_or(0);
            // sysfs reports "Unknown" for a device without a link.
            let speed = |name: &str| {
                text::trimmed(&device.join(name))
                    .filter(|s| !s.starts_with("Unknown"))
                    .unwrap_or_default()
            };
            PciDevice {
                vendor_id: hex("vendor"),
                device_id: hex("device"),
                subsystem_vendor_id: hex("subsystem_vendor"),
                subsystem_device_id: hex("subsystem_device"),
                class_code: hex("class"),
                revision: hex("revision"),
                driver: text::link_name(&device.join("driver")).unwrap_or_default(),
                numa_node: text::number(&device.join("numa_node")).unwrap_or(-1),
                link_speed: speed("current_link_speed"),
                max_link_speed: speed("max_link_speed"),
                link_width: width("current_link_width"),
                max_link_width: width("max_link_width"),
                address,
            }
        })
        .collect()
}
