//! Block devices and storage areas that are not erased, each with its reason.

use rackwright_api::v1::ExcludedDevice;

use super::sysfs::SIZE_UNIT_BYTES;
use crate::root::SysRoot;
use crate::text;

/// Maximum number of entries in a report.
const MAX_DEVICES: usize = 64;
/// Kernel name prefixes of devices that are not drives, and why they contain no customer data of their own.
const KINDS: [(&str, &str); 10] = [
    ("loop", "a file, or a drive that is listed separately"),
    ("ram", "a RAM disk of the running system"),
    ("zram", "a RAM disk of the running system"),
    ("dm-", "built on listed drives"),
    ("md", "built on listed drives"),
    ("zd", "built on listed drives"),
    ("nbd", "a drive of another machine"),
    ("rbd", "a drive of another machine"),
    ("sr", "an optical drive; it is not writable"),
    ("fd", "a floppy drive; it is not erased"),
];

/// Why a block device is not a drive; `None` if it is a drive.
pub fn reason(root: &SysRoot, name: &str) -> Option<String> {
    let folder = root.sys.join("block").join(name);
    if let Some((_, why)) = KINDS.iter().find(|(kind, _)| name.starts_with(kind)) {
        return Some((*why).to_owned());
    }
    if is_rpmb(name) {
        return Some(RPMB.to_owned());
    }
    if text::number::<u8>(&folder.join("hidden")) == Some(1) {
        return Some("another path to a listed drive".to_owned());
    }
    if !folder.join("device").exists() {
        return Some("a virtual device of the kernel, without hardware".to_owned());
    }
    if size_bytes(root, name) == 0 {
        let is_removable = text::number::<u8>(&folder.join("removable")) == Some(1);
        let why = if is_removable {
            "the drive has no medium"
        } else {
            "the device reports no size and cannot be read or erased: if it contains a drive, remove and destroy the drive"
        };
        return Some(why.to_owned());
    }
    None
}

const RPMB: &str = "a replay-protected memory block (RPMB): it cannot be erased; only the holder of its key can write \
                    to it, and anyone can read it";

fn is_rpmb(name: &str) -> bool {
    name.starts_with("mmcblk") && name.contains("rpmb")
}

/// Size from sysfs in bytes; 0 if unknown.
pub fn size_bytes(root: &SysRoot, name: &str) -> u64 {
    let units = text::number::<u64>(&root.sys.join("block").join(name).join("size")).unwrap_or(0);
    units.saturating_mul(SIZE_UNIT_BYTES)
}

/// The excluded devices. Omits RAM disks, and devices with neither a size nor hardware.
pub fn list(root: &SysRoot) -> Vec<ExcludedDevice> {
    let blocks = text::names(&root.sys.join("block")).into_iter();
    let blocks = blocks.filter_map(|name| {
        let reason = reason(root, &name)?;
        let size_bytes = size_bytes(root, &name);
        let is_idle = size_bytes == 0 && !root.sys.join("block").join(&name).join("device").exists();
        (!is_idle && !name.starts_with("ram")).then_some(ExcludedDevice {
            name,
            size_bytes,
            reason,
        })
    });
    // Since Linux 4.15 this area is a character device.
    let areas = text::names(&root.sys.join("bus/mmc_rpmb/devices")).into_iter();
    let areas = areas.map(|name| ExcludedDevice {
        name,
        size_bytes: 0,
        reason: RPMB.to_owned(),
    });
    blocks.chain(areas).take(MAX_DEVICES).collect()
}
