//! What the agent finds in a simulated machine: the parts that its BMC lists.

use crate::bmc::{Description, Host as _, Processor};
use crate::fleet::node::Node;
use rackwright_agent::drives::Drives;
use rackwright_agent::inventory::drives as complete;
use rackwright_api::v1::{Cpu, Dmi, Gpu, Inventory, MemoryModule, Nic, PciDevice, Tpm};

/// NVIDIA, H100 SXM5 80GB, 3D controller (PCI ID database).
const H100: (u32, u32, u32) = (0x10de, 0x2330, 0x03_0200);
const KERNEL: &str = "6.1.0-sim";
const MIB: u64 = 1 << 20;

/// The machine as its agent sees it.
pub(in crate::fleet) fn inventory(node: &Node, drives: &dyn Drives) -> Inventory {
    let description = node.description();
    let pci_devices = gpus(&description).map(pci).collect();
    Inventory {
        cpus: cpus(&description),
        memory_bytes: description.memory_mib() * MIB,
        memory_modules: modules(&description),
        gpus: gpus(&description).map(|(n, part)| gpu(n, part)).collect(),
        pci_devices,
        nics: nics(&description),
        drives: complete(drives),
        tpm: Some(Tpm {
            present: description.tpm,
            ..Tpm::default()
        }),
        boot_mode: if description.uefi { "uefi" } else { "bios" }.to_owned(),
        secure_boot: description.secure_boot,
        kernel_release: KERNEL.to_owned(),
        architecture: std::env::consts::ARCH.to_owned(),
        dmi: Some(Dmi {
            system_vendor: description.manufacturer.to_owned(),
            product_name: description.model.to_owned(),
            serial_number: description.serial,
            uuid: description.uuid,
            ..Dmi::default()
        }),
        ..Inventory::default()
    }
}

fn cpus(description: &Description) -> Vec<Cpu> {
    let parts = description.processors.iter().filter(|part| part.kind == "CPU");
    let cpu = |(socket, part): (u32, &Processor)| Cpu {
        socket,
        model: part.model.to_owned(),
        cores: part.cores,
        threads: part.threads,
        ..Cpu::default()
    };
    (0..).zip(parts).map(cpu).collect()
}

fn modules(description: &Description) -> Vec<MemoryModule> {
    let module = |module: &crate::bmc::MemoryModule| MemoryModule {
        slot: module.id.clone(),
        size_bytes: module.mib * MIB,
        manufacturer: module.manufacturer.to_owned(),
        ..MemoryModule::default()
    };
    description.memory.iter().map(module).collect()
}

fn nics(description: &Description) -> Vec<Nic> {
    let nic = |(n, nic): (usize, &crate::bmc::Nic)| Nic {
        name: format!("net{n}"),
        mac: nic.mac.clone(),
        link_up: n == 0,
        ..Nic::default()
    };
    description.nics.iter().enumerate().map(nic).collect()
}

fn gpus(description: &Description) -> impl Iterator<Item = (usize, &Processor)> {
    let parts = description.processors.iter().filter(|part| part.kind == "GPU");
    parts.enumerate()
}

/// Its place, made up: one bus for each.
fn place(n: usize) -> String {
    format!("0000:{:02x}:00.0", 0x18 + n)
}

fn pci((n, _): (usize, &Processor)) -> PciDevice {
    let (vendor_id, device_id, class_code) = H100;
    PciDevice {
        address: place(n),
        vendor_id,
        device_id,
        class_code,
        ..PciDevice::default()
    }
}

fn gpu(n: usize, _part: &Processor) -> Gpu {
    let (vendor_id, device_id, _) = H100;
    Gpu {
        pci_address: place(n),
        vendor_id,
        device_id,
        model: "H100 SXM5 80GB".to_owned(),
    }
}
