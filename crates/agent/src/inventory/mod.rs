//! The machine's inventory from sysfs and procfs. Unreadable values are empty; they are never guessed and never an error.

pub mod cpu;
pub mod gpu;
pub mod network;
pub mod pci;
pub mod smbios;

use std::collections::HashMap;

use rackwright_api::v1::{Dmi, Drive, Inventory, Tpm};

use crate::drives::Drives;
use crate::efi::vars::EfiVars;
use crate::root::SysRoot;
use crate::text;

/// Reads the whole inventory.
pub fn read(root: &SysRoot, present: &dyn Drives) -> Inventory {
    let pci_devices = pci::devices(root);
    let nics = network::nics(root);
    let hcas = network::hcas(root);
    let drives = drives(present);
    let firmware_versions = firmware_versions(root, &drives, &hcas);
    Inventory {
        dmi: Some(dmi(root)),
        cpus: cpu::cpus(root),
        numa_nodes: cpu::numa_nodes(root),
        memory_bytes: cpu::memory_bytes(root),
        memory_modules: smbios::memory_modules(root),
        gpus: gpu::gpus(&pci_devices),
        pci_devices,
        nics,
        hcas,
        drives,
        excluded_devices: present.excluded(),
        tpm: Some(tpm(root)),
        firmware_versions,
        boot_mode: if root.is_uefi() { "uefi" } else { "bios" }.to_owned(),
        secure_boot: root.is_uefi() && EfiVars::new(root.efivars()).secure_boot(),
        kernel_release: text::or_empty(&root.proc.join("sys/kernel/osrelease")),
        architecture: std::env::consts::ARCH.to_owned(),
        uefi_variables: root.is_uefi().then(|| EfiVars::new(root.efivars()).recorded()),
    }
}

/// The drives with their erase methods, if they can be opened.
pub fn drives(drives: &dyn Drives) -> Vec<Drive> {
    let complete = |facts: crate::drives::DriveFacts| {
        let mut drive = facts.drive.clone();
        if let Some(raw) = drives.open(&facts).ok().filter(|_| !drive.read_only) {
            drive.erase_methods = raw.methods().into_iter().map(i32::from).collect();
            drive.native_bytes = raw.native_bytes();
        }
        drive
    };
    drives.list().into_iter().map(complete).collect()
}

fn dmi(root: &SysRoot) -> Dmi {
    let read = |name: &str| text::or_empty(&root.sys.join("class/dmi/id").join(name));
    Dmi {
        system_vendor: read("sys_vendor"),
        product_name: read("product_name"),
        serial_number: read("product_serial"),
        uuid: system_uuid(root),
        board_vendor: read("board_vendor"),
        board_name: read("board_name"),
        board_serial: read("board_serial"),
        bios_vendor: read("bios_vendor"),
        bios_version: read("bios_version"),
        bios_date: read("bios_date"),
        chassis_serial: read("chassis_serial"),
    }
}

/// The system's UUID in lower case; empty if unknown.
pub fn system_uuid(root: &SysRoot) -> String {
    text::or_empty(&root.sys.join("class/dmi/id/product_uuid")).to_ascii_lowercase()
}

fn tpm(root: &SysRoot) -> Tpm {
    let folder = root.sys.join("class/tpm/tpm0");
    if !folder.exists() {
        return Tpm::default();
    }
    // Kernels before 5.6 have no tpm_version_major; "caps" contains the manufacturer of a TPM 1.2.
    let major_version = text::number(&folder.join("tpm_version_major")).unwrap_or(0);
    let caps = text::or_empty(&folder.join("device/caps"));
    let manufacturer = caps
        .lines()
        .find_map(|line| line.strip_prefix("Manufacturer:"))
        .unwrap_or_default();
    Tpm {
        present: true,
        major_version,
        manufacturer: manufacturer.trim().to_owned(),
    }
}

fn firmware_versions(root: &SysRoot, drives: &[Drive], hcas: &[rackwright_api::v1::Hca]) -> HashMap<String, String> {
    let mut versions = HashMap::new();
    let mut add = |name: String, version: String| {
        if !version.is_empty() {
            versions.insert(name, version);
        }
    };
    let dmi = |name: &str| text::or_empty(&root.sys.join("class/dmi/id").join(name));
    add("bios".into(), dmi("bios_version"));
    // The revisions of the system firmware and of the embedded controller (BMC), SMBIOS type 0.
    add("bios_release".into(), dmi("bios_release"));
    add("ec_release".into(), dmi("ec_firmware_release"));
    for drive in drives {
        add(format!("drive {}", drive.name), drive.firmware_version.clone());
    }
    for hca in hcas {
        add(format!("hca {}", hca.name), hca.firmware_version.clone());
    }
    for cpu in cpu::cpus(root) {
        add(format!("microcode {}", cpu.socket), cpu.microcode);
    }
    versions
}

#[cfg(test)]
mod tests;
