//! `node inventory`: the hardware of a machine, the most important parts first.

use std::collections::BTreeMap;

use rackwright_api::v1::Inventory;
use rackwright_cli_context::error::{CliError, plural};
use rackwright_cli_context::output::{Paint, Table, Tone, clean};
use rackwright_cli_context::{Cx, names, nodes, units};

/// Shows the inventory.
pub async fn run(cx: &Cx, id: &str) -> Result<(), CliError> {
    let node = nodes::get(&*cx.client().await?, id).await?;
    let Some(inventory) = node.status.and_then(|status| status.inventory) else {
        let id = names::short("nodes", id);
        return Err(CliError::usage(
            format!("the inventory of {id} is not known yet"),
            format!("an inspection reads the inventory: see `rackwright node explain {id}`"),
        ));
    };
    let width = cx.ui.width();
    cx.ui.item(&inventory, |paint| text(&inventory, paint, width))
}

fn text(inventory: &Inventory, paint: Paint, width: Option<usize>) -> String {
    let mut text = system(inventory).render(paint, width);
    let tables = [
        ("Drives", drives(inventory)),
        ("Network", nics(inventory)),
        ("InfiniBand", hcas(inventory)),
        ("GPUs", gpus(inventory)),
        ("Memory modules", modules(inventory)),
        ("Firmware", firmware(inventory)),
    ];
    for (title, table) in tables {
        if !table.is_empty() {
            text.push_str(&format!(
                "\n{}\n{}",
                paint.tone(Tone::Strong, title),
                table.render(paint, width)
            ));
        }
    }
    text.push_str(&format!(
        "\n{} (see -o json)\n",
        plural(inventory.pci_devices.len(), "PCI device")
    ));
    text
}

/// The system without its parts.
pub fn system(inventory: &Inventory) -> Table {
    let dmi = inventory.dmi.clone().unwrap_or_default();
    let mut table = Table::pairs();
    table.row([
        "system".into(),
        format!("{} {}", dmi.system_vendor, dmi.product_name).into(),
    ]);
    table.row(["serial number".into(), dmi.serial_number.into()]);
    table.row(["UUID".into(), dmi.uuid.into()]);
    table.row([
        "BIOS".into(),
        format!("{} {} {}", dmi.bios_vendor, dmi.bios_version, dmi.bios_date).into(),
    ]);
    let secure = if inventory.secure_boot { ", Secure Boot on" } else { "" };
    table.row(["boots by".into(), format!("{}{secure}", inventory.boot_mode).into()]);
    table.row([
        "kernel".into(),
        format!("{} {}", inventory.kernel_release, inventory.architecture).into(),
    ]);
    for (model, (sockets, cores, threads)) in cpus(inventory) {
        let words = format!("{sockets} × {} ({cores} cores, {threads} threads)", clean(model));
        table.row(["CPU".into(), words.into()]);
    }
    let numa = plural(inventory.numa_nodes.len(), "NUMA node");
    table.row([
        "memory".into(),
        format!("{} in {numa}", units::memory(inventory.memory_bytes)).into(),
    ]);
    let tpm = inventory.tpm.clone().unwrap_or_default();
    let tpm = if tpm.present {
        format!("{}.x {}", tpm.major_version, tpm.manufacturer)
    } else {
        "none".to_owned()
    };
    table.row(["TPM".into(), tpm.into()]);
    table
}

/// Sockets, cores and threads by model.
fn cpus(inventory: &Inventory) -> BTreeMap<&str, (u32, u32, u32)> {
    let mut models = BTreeMap::new();
    for cpu in &inventory.cpus {
        let sum = models.entry(cpu.model.as_str()).or_insert((0u32, 0u32, 0u32));
        *sum = (
            sum.0 + 1,
            sum.1.saturating_add(cpu.cores),
            sum.2.saturating_add(cpu.threads),
        );
    }
    models
}

fn drives(inventory: &Inventory) -> Table {
    let mut table = Table::new(&["NAME", "SIZE", "KIND", "MODEL", "SERIAL", "FIRMWARE", "STRONGEST ERASE"]).indented(2);
    for drive in &inventory.drives {
        let erase = drive
            .erase_methods
            .first()
            .map(|method| super::evidence::method_name(*method));
        table.row([
            (&drive.name).into(),
            units::bytes(drive.size_bytes).into(),
            (&drive.transport).into(),
            (&drive.model).into(),
            (&drive.serial_number).into(),
            (&drive.firmware_version).into(),
            erase.unwrap_or_default().into(),
        ]);
    }
    table
}

fn nics(inventory: &Inventory) -> Table {
    let mut table = Table::new(&[
        "NAME",
        "MAC",
        "LINK",
        "SPEED",
        "DRIVER",
        "PCI",
        "SWITCH PORT",
        "ADDRESSES",
    ])
    .indented(2);
    for nic in &inventory.nics {
        let speed = if nic.speed_mbps == 0 {
            String::new()
        } else {
            format!("{} Mb/s", nic.speed_mbps)
        };
        table.row([
            (&nic.name).into(),
            (&nic.mac).into(),
            if nic.link_up { "up" } else { "down" }.into(),
            speed.into(),
            (&nic.driver).into(),
            (&nic.pci_address).into(),
            (&nic.neighbour).into(),
            nic.addresses.join(" ").into(),
        ]);
    }
    table
}

fn hcas(inventory: &Inventory) -> Table {
    let mut table = Table::new(&["HCA", "PORT", "PORT GUID", "STATE", "RATE", "LID", "FIRMWARE"]).indented(2);
    for hca in &inventory.hcas {
        for port in &hca.ports {
            table.row([
                (&hca.name).into(),
                port.number.to_string().into(),
                (&port.port_guid).into(),
                format!("{} {}", port.state, port.physical_state).into(),
                (&port.rate).into(),
                port.lid.to_string().into(),
                (&hca.firmware_version).into(),
            ]);
        }
    }
    table
}

fn gpus(inventory: &Inventory) -> Table {
    let mut table = Table::new(&["PCI", "MODEL", "ID"]).indented(2);
    for gpu in &inventory.gpus {
        let id = format!("{:04x}:{:04x}", gpu.vendor_id, gpu.device_id);
        table.row([(&gpu.pci_address).into(), (&gpu.model).into(), id.into()]);
    }
    table
}

fn modules(inventory: &Inventory) -> Table {
    let mut table = Table::new(&["SLOT", "SIZE", "SPEED", "MANUFACTURER", "PART", "SERIAL"]).indented(2);
    for module in &inventory.memory_modules {
        table.row([
            (&module.slot).into(),
            units::memory(module.size_bytes).into(),
            format!("{} MT/s", module.speed_mts).into(),
            (&module.manufacturer).into(),
            (&module.part_number).into(),
            (&module.serial_number).into(),
        ]);
    }
    table
}

fn firmware(inventory: &Inventory) -> Table {
    let versions: BTreeMap<_, _> = inventory.firmware_versions.iter().collect();
    let mut table = Table::pairs().indented(2);
    for (component, version) in versions {
        table.row([component.into(), version.into()]);
    }
    table
}
