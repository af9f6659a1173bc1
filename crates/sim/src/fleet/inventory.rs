//! The hardware of a machine as software on it sees it, in the form of the agent's report.

use super::node::Node;
use rackwright_agent::drives::Drives;
use rackwright_agent::inventory::drives as complete;
use rackwright_api::v1::{Cpu, Dmi, Gpu, Inventory, MemoryModule, Nic, PciDevice, Tpm};
use rackwright_sim_bmc::{Description, Host as _, Processor};

/// The part of its memory that a kernel reserves; an estimate, for large machines.
const KERNEL_KEEPS: f64 = 0.016;

/// The agent's kernel.
const KERNEL: &str = "6.1.0-sim";

/// Vendor and device of the PCI ID database (pci-ids.ucw.cz).
struct PciKind(u32, u32);

const ROOT: PciKind = PciKind(0x8086, 0x1bf7);
const H100: PciKind = PciKind(0x10de, 0x2330);
const CONNECT_X7: PciKind = PciKind(0x15b3, 0x1021);
const VIRTIO_NET: PciKind = PciKind(0x1af4, 0x1041);
const SAMSUNG_NVME: PciKind = PciKind(0x144d, 0xa80a);
const QEMU_NVME: PciKind = PciKind(0x1b36, 0x0010);

/// The machine as a system on it sees it.
pub(super) fn inventory(node: &Node, drives: &dyn Drives) -> Inventory {
    let described = &node.description();
    let modules = described.memory.iter().map(|module| MemoryModule {
        slot: module.id.clone(),
        size_bytes: module.mib << 20,
        manufacturer: module.manufacturer.to_owned(),
        ..MemoryModule::default()
    });
    let modules: Vec<MemoryModule> = modules.collect();
    let whole: u64 = modules.iter().map(|module| module.size_bytes).sum();
    Inventory {
        dmi: Some(Dmi {
            system_vendor: described.manufacturer.to_owned(),
            product_name: described.model.to_owned(),
            serial_number: described.serial.clone(),
            uuid: described.uuid.clone(),
            ..Dmi::default()
        }),
        cpus: cpus(&described.processors),
        memory_bytes: (whole as f64 * (1.0 - KERNEL_KEEPS)) as u64 & !0xfff,
        memory_modules: modules,
        pci_devices: pci_devices(described),
        nics: nics(described),
        drives: complete(drives),
        gpus: gpus(described),
        tpm: Some(Tpm {
            present: described.tpm,
            ..Tpm::default()
        }),
        boot_mode: if described.uefi { "uefi" } else { "bios" }.to_owned(),
        secure_boot: described.secure_boot,
        kernel_release: KERNEL.to_owned(),
        architecture: "x86_64".to_owned(),
        uefi_variables: node.efivars().map(|variables| variables.recorded()),
        ..Inventory::default()
    }
}

fn cpus(processors: &[Processor]) -> Vec<Cpu> {
    let cpus = processors.iter().filter(|part| part.kind == "CPU");
    let cpu = |(socket, part): (u32, &Processor)| Cpu {
        socket,
        model: part.model.to_owned(),
        cores: part.cores,
        threads: part.threads,
        ..Cpu::default()
    };
    (0..).zip(cpus).map(cpu).collect()
}

fn pci_devices(described: &Description) -> Vec<PciDevice> {
    let large = described.processors.iter().any(|part| part.kind == "GPU");
    let gpus = described.processors.iter().filter(|part| part.kind == "GPU");
    let (nic, drive) = if large {
        (CONNECT_X7, SAMSUNG_NVME)
    } else {
        (VIRTIO_NET, QEMU_NVME)
    };
    let kinds = std::iter::once(&ROOT)
        .chain(gpus.map(|_| &H100))
        .chain(described.nics.iter().map(|_| &nic))
        .chain(described.drives.iter().map(|_| &drive));
    let device = |(bus, kind): (u32, &PciKind)| PciDevice {
        address: address(bus),
        vendor_id: kind.0,
        device_id: kind.1,
        ..PciDevice::default()
    };
    (0..).zip(kinds).map(device).collect()
}

/// An invented PCI address: one bus per device.
fn address(bus: u32) -> String {
    format!("0000:{bus:02x}:00.0")
}

/// The GPUs are the first devices behind the root.
fn gpus(described: &Description) -> Vec<Gpu> {
    let parts = described.processors.iter().filter(|part| part.kind == "GPU");
    let gpu = |(bus, part): (u32, &Processor)| Gpu {
        pci_address: address(bus),
        vendor_id: H100.0,
        device_id: H100.1,
        model: part.model.to_owned(),
    };
    (1..).zip(parts).map(gpu).collect()
}

fn nics(described: &Description) -> Vec<Nic> {
    let nic = |(n, nic): (usize, &rackwright_sim_bmc::Nic)| Nic {
        name: format!("net{n}"),
        mac: nic.mac.clone(),
        link_up: n == 0,
        ..Nic::default()
    };
    described.nics.iter().enumerate().map(nic).collect()
}
