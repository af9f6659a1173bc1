//! The drives below `/sys/block`: all devices that [`super::excluded`] does not exclude.

use std::fs;
use std::path::{Path, PathBuf};

use rackwright_api::v1::Drive;

use super::{DriveFacts, excluded};
use crate::root::SysRoot;
use crate::text;

/// Unit of `/sys/block/*/size` in bytes, independent of the drive's own block size.
pub(super) const SIZE_UNIT_BYTES: u64 = 512;

/// Whether the device is a boot area of an eMMC, such as `mmcblk0boot0`. It shares the serial number of its drive.
pub fn is_boot_area(name: &str) -> bool {
    name.starts_with("mmcblk") && name.contains("boot")
}

/// Path of the switch that makes a boot area of an eMMC read-only.
pub(super) fn force_ro(root: &SysRoot, name: &str) -> PathBuf {
    root.sys.join("block").join(name).join("force_ro")
}

/// All drives, by name.
pub fn list(root: &SysRoot) -> Vec<DriveFacts> {
    let names = text::names(&root.sys.join("block"));
    names.into_iter().filter_map(|name| facts(root, name)).collect()
}

fn facts(root: &SysRoot, name: String) -> Option<DriveFacts> {
    let folder = root.sys.join("block").join(&name);
    if excluded::reason(root, &name).is_some() {
        return None;
    }
    let is_boot_area = is_boot_area(&name);
    // The parent of a boot area is the whole drive; the parent of that is the card.
    let device = folder.join(if is_boot_area { "device/device" } else { "device" });
    let size_bytes = excluded::size_bytes(root, &name);
    let resolved = fs::canonicalize(&folder).unwrap_or_else(|_| folder.clone());
    let transport = transport(&name, &resolved, &device);
    let first = |own: Option<&str>, of_device: &[&str]| {
        let of_device = of_device.iter().map(|path| device.join(path));
        let mut paths = own.into_iter().map(|path| folder.join(path)).chain(of_device);
        paths.find_map(|path| text::trimmed(&path)).unwrap_or_default()
    };
    let is_set = |path: &str| text::number::<u8>(&folder.join(path)) == Some(1);
    let block = |path: &str| text::number(&folder.join(path)).unwrap_or(512);
    let serial_number = text::trimmed(&folder.join("serial"))
        .or_else(|| text::trimmed(&device.join("serial")))
        .or_else(|| vpd_serial(&device.join("vpd_pg80")))
        .unwrap_or_default();
    let wwn = first(Some("wwid"), &["wwid"]);
    let pci_address = text::pci_address(&resolved).unwrap_or_default();
    let stable_id = stable_id(&transport, &serial_number, &wwn, &pci_address);
    let drive = Drive {
        model: model(&device, &transport),
        serial_number,
        firmware_version: first(None, &["firmware_rev", "rev", "fwrev"]),
        wwn,
        size_bytes,
        logical_block_bytes: block("queue/logical_block_size"),
        physical_block_bytes: block("queue/physical_block_size"),
        rotational: is_set("queue/rotational"),
        removable: is_set("removable"),
        // A boot area is read-only until an erase opens it.
        read_only: is_set("ro") && !(is_boot_area && force_ro(root, &name).exists()),
        transport,
        pci_address,
        stable_id,
        erase_methods: Vec::new(),
        native_bytes: 0,
        name,
    };
    let controller = fs::canonicalize(&device)
        .unwrap_or_else(|_| device.clone())
        .to_string_lossy()
        .into_owned();
    Some(DriveFacts {
        node: root.dev.join(&drive.name),
        drive,
        controller,
    })
}

fn model(device: &Path, transport: &str) -> String {
    // An eMMC has a name and no model.
    let model = text::trimmed(&device.join("model")).or_else(|| text::trimmed(&device.join("name")));
    let model = model.unwrap_or_default();
    let vendor = text::or_empty(&device.join("vendor"));
    match transport {
        // The vendor of a virtio device is a PCI id; the vendor of a SATA drive is "ATA".
        "virtio" if model.is_empty() => "virtio".to_owned(),
        "sata" | "nvme" | "virtio" | "mmc" => model,
        _ => format!("{vendor} {model}").trim().to_owned(),
    }
}

fn transport(name: &str, resolved: &Path, device: &Path) -> String {
    let path = resolved.to_string_lossy();
    let vendor = text::or_empty(&device.join("vendor"));
    let transport = if name.starts_with("nvme") {
        "nvme"
    } else if name.starts_with("vd") {
        "virtio"
    } else if name.starts_with("mmcblk") {
        "mmc"
    } else if path.contains("/usb") {
        "usb"
    } else if vendor == "ATA" || path.contains("/ata") {
        "sata"
    } else if path.contains("/end_device-") || path.contains("/sas_") {
        "sas"
    } else {
        "other"
    };
    transport.to_owned()
}

/// The unit serial number of a SCSI drive from vital product data page 0x80: a header of four bytes, then text.
fn vpd_serial(path: &Path) -> Option<String> {
    let page = text::bytes(path)?;
    let length = usize::from(*page.get(3)?);
    let serial = page.get(4..).map(|rest| &rest[..rest.len().min(length)])?;
    let serial = String::from_utf8_lossy(serial)
        .trim_matches(|c: char| c.is_whitespace() || c == '\0')
        .to_owned();
    (!serial.is_empty()).then_some(serial)
}

/// The link that udev creates for the drive.
fn stable_id(transport: &str, serial: &str, wwn: &str, pci_address: &str) -> String {
    /// udev uses this many characters of a virtio serial, which is its whole length.
    const VIRTIO_SERIAL: usize = 20;
    match transport {
        "nvme" if !wwn.is_empty() => format!("/dev/disk/by-id/nvme-{wwn}"),
        "virtio" if !serial.is_empty() => {
            format!(
                "/dev/disk/by-id/virtio-{}",
                serial.chars().take(VIRTIO_SERIAL).collect::<String>()
            )
        }
        "virtio" if !pci_address.is_empty() => format!("/dev/disk/by-path/pci-{pci_address}"),
        _ => wwn
            .strip_prefix("naa.")
            .map(|naa| format!("/dev/disk/by-id/wwn-0x{naa}"))
            .unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// Creates `/sys/block/NAME` as a link to a folder below `/sys/devices`, as in the kernel.
    fn block(root: &SysRoot, devices: &str, name: &str, files: &[(&str, &str)]) {
        let folder = root.sys.join("devices").join(devices).join("block").join(name);
        fs::create_dir_all(folder.join("queue")).unwrap();
        fs::create_dir_all(root.sys.join("block")).unwrap();
        symlink(&folder, root.sys.join("block").join(name)).unwrap();
        symlink("../..", folder.join("device")).unwrap();
        for (path, content) in files {
            fs::write(folder.join(path), content).unwrap();
        }
    }

    #[test]
    fn fixture() {
        let dir = tempfile::tempdir().unwrap();
        let root = SysRoot::below(dir.path());
        let common = [
            ("size", "2048\n"),
            ("removable", "0\n"),
            ("ro", "0\n"),
            ("queue/rotational", "0\n"),
        ];
        let with = |more: &[(&'static str, &'static str)]| [&common[..], more].concat();
        block(
            &root,
            "pci0000:00/0000:00:04.0/virtio1",
            "vda",
            &with(&[("serial", "disk-0"), ("device/vendor", "0x1af4\n")]),
        );
        let nvme = [
            ("wwid", "eui.0025388b01\n"),
            ("device/model", "SAMSUNG MZQL2    "),
            ("device/serial", "S64G  \n"),
            ("device/firmware_rev", "GDC5"),
            ("queue/logical_block_size", "4096\n"),
        ];
        block(&root, "pci0000:3a/0000:3b:00.0/nvme/nvme0", "nvme0n1", &with(&nvme));
        let sata = [
            ("device/vendor", "ATA     "),
            ("device/model", "ST4000"),
            ("device/vpd_pg80", "\0\u{0}\0\u{8}  ZDH1AB"),
            ("device/wwid", "naa.5000c500a1b2c3d4"),
        ];
        block(
            &root,
            "pci0000:00/0000:00:17.0/ata1/host0/target0:0:0/0:0:0:0",
            "sda",
            &with(&sata),
        );
        block(
            &root,
            "pci0000:00/0000:00:14.0/usb1/1-1/host1",
            "sdb",
            &[("size", "64"), ("removable", "1"), ("ro", "1")],
        );
        block(&root, "pci0000:00/0000:00:05.0/empty", "sdc", &[("size", "0")]);
        block(&root, "virtual", "loop0", &common);
        let drives = list(&root);
        let names: Vec<&str> = drives.iter().map(|d| d.drive.name.as_str()).collect();
        assert_eq!(names, ["nvme0n1", "sda", "sdb", "vda"]);
        let [nvme, sata, usb, virtio] = &drives[..] else {
            panic!()
        };
        assert_eq!(
            (nvme.drive.serial_number.as_str(), nvme.drive.model.as_str()),
            ("S64G", "SAMSUNG MZQL2")
        );
        assert_eq!(
            (nvme.drive.pci_address.as_str(), nvme.drive.logical_block_bytes),
            ("0000:3b:00.0", 4096)
        );
        assert_eq!(nvme.drive.stable_id, "/dev/disk/by-id/nvme-eui.0025388b01");
        assert_eq!(
            (sata.drive.transport.as_str(), sata.drive.serial_number.as_str()),
            ("sata", "ZDH1AB")
        );
        assert_eq!(sata.drive.stable_id, "/dev/disk/by-id/wwn-0x5000c500a1b2c3d4");
        assert_eq!(
            (usb.drive.transport.as_str(), usb.drive.removable, usb.drive.read_only),
            ("usb", true, true)
        );
        assert_eq!(
            (virtio.drive.serial_number.as_str(), virtio.drive.transport.as_str()),
            ("disk-0", "virtio")
        );
        assert_eq!(
            (virtio.drive.size_bytes, virtio.drive.stable_id.as_str()),
            (1 << 20, "/dev/disk/by-id/virtio-disk-0")
        );
        assert_eq!(virtio.node, root.dev.join("vda"));
    }

    #[test]
    fn boot_areas_are_drives_and_skipped_devices_have_a_reason() {
        let dir = tempfile::tempdir().unwrap();
        let root = SysRoot::below(dir.path());
        let common = [("size", "2048\n"), ("removable", "0\n"), ("ro", "0\n")];
        let with = |more: &[(&'static str, &'static str)]| [&common[..], more].concat();
        block(&root, "pci0000:00/0000:00:05.0/empty", "sdc", &[("size", "0")]);
        block(&root, "virtual", "loop0", &common);
        let emmc = [("device/serial", "0x5a1b\n"), ("device/name", "DG4008\n")];
        block(
            &root,
            "pci0000:00/0000:00:1a.0/mmc_host/mmc0/mmc0:0001",
            "mmcblk0",
            &with(&emmc),
        );
        let card = "pci0000:00/0000:00:1a.0/mmc_host/mmc0/mmc0:0001/block/mmcblk0";
        let boot = root.sys.join("devices").join(card).join("mmcblk0boot0");
        fs::create_dir_all(&boot).unwrap();
        symlink(&boot, root.sys.join("block/mmcblk0boot0")).unwrap();
        symlink("..", boot.join("device")).unwrap();
        for (file, text) in [("size", "8192"), ("ro", "1"), ("force_ro", "1")] {
            fs::write(boot.join(file), text).unwrap();
        }
        fs::create_dir_all(root.sys.join("bus/mmc_rpmb/devices/mmcblk0rpmb")).unwrap();
        block(&root, "pci0000:00/0000:00:17.0/ata2/host1", "sr0", &common);
        block(
            &root,
            "pci0000:00/0000:00:14.0/usb1/1-2/host2",
            "sdd",
            &[("size", "0"), ("removable", "1")],
        );
        let emmc = list(&root);
        let [whole, boot] = &emmc[..] else { panic!("{emmc:?}") };
        assert_eq!(
            (whole.drive.name.as_str(), boot.drive.name.as_str()),
            ("mmcblk0", "mmcblk0boot0")
        );
        for area in [whole, boot] {
            assert_eq!(
                (area.drive.serial_number.as_str(), area.drive.model.as_str()),
                ("0x5a1b", "DG4008")
            );
            assert!(!area.drive.read_only && !area.drive.removable);
        }
        assert_eq!((boot.drive.size_bytes, &boot.controller), (4 << 20, &whole.controller));
        let left_out = excluded::list(&root);
        let left_out: Vec<(&str, &str)> = left_out.iter().map(|d| (d.name.as_str(), d.reason.as_str())).collect();
        let why = |name: &str| {
            left_out
                .iter()
                .find(|(of, _)| *of == name)
                .map(|(_, why)| *why)
                .unwrap()
        };
        assert!(
            why("sdc").contains("reports no size") && why("sdd").contains("no medium"),
            "{left_out:?}"
        );
        assert!(
            why("sr0").contains("optical") && why("mmcblk0rpmb").contains("cannot be erased"),
            "{left_out:?}"
        );
        assert_eq!(left_out.len(), 5, "{left_out:?}");
    }

    #[test]
    fn a_tree_without_drives() {
        let dir = tempfile::tempdir().unwrap();
        assert!(list(&SysRoot::below(dir.path())).is_empty());
    }
}
