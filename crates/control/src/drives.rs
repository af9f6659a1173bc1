//! Which drives of a machine may hold what its users wrote, and what tells one from another.

use prost::Message as _;
use rackwright_api::v1::{Drive, Inventory};
use rackwright_store::StoreError;

use crate::core::Core;

/// What the agent last reported of a node; empty when it never did.
///
/// # Errors
/// The database failed.
pub async fn of_node(core: &Core, node: &str) -> Result<Inventory, StoreError> {
    let bytes = core.store.inventory(node).await?.unwrap_or_default();
    Ok(Inventory::decode(bytes.as_slice()).unwrap_or_default())
}

/// Drives that stay in the machine. One that cannot be written to just now counts: it may have been different before.
pub fn fixed(inventory: &Inventory) -> impl Iterator<Item = &Drive> {
    inventory.drives.iter().filter(|d| !d.removable)
}

/// A name that stays with the drive wherever it goes: serial number and WWN, because NVMe namespaces share the former;
/// for drives without either, where they are.
#[must_use]
pub fn key(drive: &Drive) -> String {
    match (drive.serial_number.as_str(), drive.wwn.as_str()) {
        ("", "") if drive.stable_id.is_empty() => drive.name.clone(),
        ("", "") => drive.stable_id.clone(),
        (serial, "") => serial.to_owned(),
        ("", wwn) => wwn.to_owned(),
        (serial, wwn) => format!("{serial} ({wwn})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drives_are_told_apart_by_what_stays_with_them() {
        let drive = |serial: &str, wwn: &str, stable: &str| Drive {
            name: "sda".into(),
            serial_number: serial.into(),
            wwn: wwn.into(),
            stable_id: stable.into(),
            ..Drive::default()
        };
        assert_eq!(key(&drive("S1", "", "by-path/1")), "S1");
        assert_ne!(key(&drive("S1", "eui.1", "")), key(&drive("S1", "eui.2", "")));
        assert_eq!(key(&drive("", "", "by-path/1")), "by-path/1");
        assert_eq!(key(&drive("", "", "")), "sda");
    }

    #[test]
    fn a_drive_that_went_read_only_still_counts() {
        let inventory = Inventory {
            drives: vec![
                Drive {
                    name: "nvme0n1".into(),
                    read_only: true,
                    ..Drive::default()
                },
                Drive {
                    name: "sr0".into(),
                    removable: true,
                    ..Drive::default()
                },
            ],
            ..Inventory::default()
        };
        let names: Vec<&str> = fixed(&inventory).map(|d| d.name.as_str()).collect();
        assert_eq!(names, ["nvme0n1"]);
    }
}
