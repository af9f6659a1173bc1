//! Checks of the parts: they must equal the inventory.

use std::collections::BTreeMap;

use rackwright_api::v1::{Drive, Inventory};

use super::Finding;
use crate::profile::Unexpected;
use crate::readings::{DriveReading, Readings};

/// ARPHRD number of Ethernet. IPoIB addresses are not compared: they contain a queue pair number that changes with every
/// boot, and HCAs are identified by their GUIDs.
const ETHERNET: u32 = 1;
/// Most parts that a sentence names.
const NAMED_MAX: usize = 8;

pub(super) fn cpu_count(inventory: &Inventory, readings: &Readings) -> Finding {
    let wanted: u32 = inventory
        .cpus
        .iter()
        .map(|cpu| cpu.threads)
        .fold(0, u32::saturating_add);
    let measured = readings
        .cpus
        .map_or("unreadable".to_owned(), |n| format!("{n} threads"));
    if wanted == 0 {
        return Finding::not_applicable(measured, "", "the inventory has no count of threads");
    }
    let threshold = format!("{wanted} threads");
    match readings.cpus {
        Some(found) if found == wanted => Finding::pass(measured, threshold),
        Some(found) if found < wanted => Finding::fail(
            measured,
            threshold,
            "threads are missing: offline, or switched off by the kernel command line",
        ),
        Some(_) => Finding::fail(measured, threshold, "there are more threads than the inventory has"),
        None => Finding::fail(measured, threshold, "the machine's /proc/cpuinfo is not readable"),
    }
}

pub(super) fn memory(tolerance_percent: f64, inventory: &Inventory, readings: &Readings) -> Finding {
    let wanted = inventory.memory_bytes;
    let measured = readings.memory_bytes.map_or("unreadable".to_owned(), mib);
    if wanted == 0 {
        return Finding::not_applicable(measured, "", "the inventory has no memory size");
    }
    let threshold = format!("{} ± {tolerance_percent} %", mib(wanted));
    let Some(found) = readings.memory_bytes else {
        return Finding::fail(measured, threshold, "the machine's /proc/meminfo is not readable");
    };
    let mut faults = Vec::new();
    let off_percent = (found as f64 - wanted as f64) / wanted as f64 * 100.0;
    if off_percent.abs() > tolerance_percent {
        let side = if off_percent < 0.0 { "less" } else { "more" };
        faults.push(format!("{:.1} % {side} than the inventory", off_percent.abs()));
    }
    let sizes: Vec<u64> = inventory.memory_modules.iter().map(|m| m.size_bytes).collect();
    let (wanted, found) = (sorted(sizes), sorted(readings.memory_modules.clone()));
    // Where one side cannot read the SMBIOS table, only the kernels' usable memory is compared.
    if wanted.is_empty() || found.is_empty() {
        return judged(measured, threshold, &faults);
    }
    if wanted != found {
        faults.push("the memory modules differ from the memory modules of the inventory".to_owned());
    }
    let modules = |sizes: &[u64]| format!("{} in {} modules", mib(sizes.iter().sum()), sizes.len());
    let measured = format!("{measured}, {}", modules(&found));
    judged(measured, format!("{threshold}, {}", modules(&wanted)), &faults)
}

fn sorted(mut sizes: Vec<u64>) -> Vec<u64> {
    sizes.retain(|size| *size > 0);
    sizes.sort_unstable();
    sizes
}

fn judged(measured: String, threshold: String, faults: &[String]) -> Finding {
    if faults.is_empty() {
        Finding::pass(measured, threshold)
    } else {
        Finding::fail(measured, threshold, faults.join("; "))
    }
}

/// Drives are equal if their sizes are, and their serial numbers where both sides have them. Names may differ.
pub(super) fn drives(unexpected: Unexpected, inventory: &Inventory, readings: &Readings) -> Finding {
    let wanted: Vec<&Drive> = inventory.drives.iter().filter(|drive| !drive.removable).collect();
    let mut found: Vec<&DriveReading> = readings.drives.iter().filter(|drive| !drive.removable).collect();
    let counts = (found.len(), wanted.len());
    let mut missing = Vec::new();
    // Drives with a serial number first, so that none of them is matched to another drive of the same size.
    let (named, unnamed): (Vec<&Drive>, Vec<&Drive>) = wanted
        .into_iter()
        .partition(|drive| !drive.serial_number.trim().is_empty());
    for drive in named.into_iter().chain(unnamed) {
        let serial = drive.serial_number.trim();
        let same = |other: &&DriveReading| other.size_bytes == drive.size_bytes;
        let by_serial = found
            .iter()
            .position(|other| !serial.is_empty() && other.serial == serial && same(other));
        let by_size = || {
            found
                .iter()
                .position(|other| (serial.is_empty() || other.serial.is_empty()) && same(other))
        };
        match by_serial.or_else(by_size) {
            Some(at) => {
                found.swap_remove(at);
            }
            None => missing.push(describe_drive(&drive.name, serial, drive.size_bytes)),
        }
    }
    let mut extra: Vec<String> = found
        .iter()
        .map(|drive| describe_drive(&drive.name, &drive.serial, drive.size_bytes))
        .collect();
    extra.sort();
    compare("drives", counts, &missing, &extra, unexpected)
}

/// Interfaces are equal if their MAC addresses are.
pub(super) fn nics(unexpected: Unexpected, inventory: &Inventory, readings: &Readings) -> Finding {
    let is_mac = |mac: &str| mac.len() == 17;
    let mut found: BTreeMap<&str, &str> = readings
        .nics
        .iter()
        .filter(|nic| nic.kind == ETHERNET && is_mac(&nic.mac))
        .map(|nic| (nic.mac.as_str(), nic.name.as_str()))
        .collect();
    let wanted: BTreeMap<String, &str> = inventory
        .nics
        .iter()
        .filter(|nic| is_mac(&nic.mac))
        .map(|nic| (nic.mac.to_ascii_lowercase(), nic.name.as_str()))
        .collect();
    let counts = (found.len(), wanted.len());
    let mut missing = Vec::new();
    for (mac, name) in &wanted {
        if found.remove(mac.as_str()).is_none() {
            missing.push(format!("{mac} ({name})"));
        }
    }
    let extra: Vec<String> = found.iter().map(|(mac, name)| format!("{mac} ({name})")).collect();
    compare("network interfaces", counts, &missing, &extra, unexpected)
}

/// PCI devices are equal if the counts of each vendor and device id are. Virtual functions are ignored, and so are devices
/// behind bridges that only a driver of the installed system opens (domains beyond ffff).
pub(super) fn pci_devices(unexpected: Unexpected, inventory: &Inventory, readings: &Readings) -> Finding {
    let plain = |address: &str| address.find(':').is_none_or(|digits| digits <= 4);
    let mut balance: BTreeMap<(u32, u32), i64> = BTreeMap::new();
    let mut counts = (0, 0);
    for device in readings
        .pci_devices
        .iter()
        .filter(|d| !d.virtual_function && plain(&d.address))
    {
        *balance.entry((device.vendor_id, device.device_id)).or_default() += 1;
        counts.0 += 1;
    }
    for device in inventory.pci_devices.iter().filter(|d| plain(&d.address)) {
        *balance.entry((device.vendor_id, device.device_id)).or_default() -= 1;
        counts.1 += 1;
    }
    let describe = |((vendor, device), n): (&(u32, u32), &i64)| format!("{}× {vendor:04x}:{device:04x}", n.abs());
    let missing: Vec<String> = balance.iter().filter(|(_, n)| **n < 0).map(describe).collect();
    let extra: Vec<String> = balance.iter().filter(|(_, n)| **n > 0).map(describe).collect();
    compare("PCI devices", counts, &missing, &extra, unexpected)
}

fn compare(
    what: &str,
    (found, wanted): (usize, usize),
    missing: &[String],
    extra: &[String],
    unexpected: Unexpected,
) -> Finding {
    let (measured, threshold) = (format!("{found} {what}"), format!("the {wanted} of the inventory"));
    if wanted == 0 {
        return Finding::not_applicable(measured, "", format!("the inventory has no {what}"));
    }
    let mut sentences = Vec::new();
    if !missing.is_empty() {
        sentences.push(format!(
            "missing: {} (broken, or the image has no driver)",
            named(missing)
        ));
    }
    if !extra.is_empty() {
        sentences.push(format!("not in the inventory: {}", named(extra)));
    }
    let fails = !missing.is_empty() || (!extra.is_empty() && unexpected == Unexpected::Fail);
    let mut finding = if fails {
        Finding::fail(measured, threshold, "")
    } else {
        Finding::pass(measured, threshold)
    };
    finding.detail = sentences.join("; ");
    finding
}

fn named(parts: &[String]) -> String {
    let shown = parts
        .iter()
        .take(NAMED_MAX)
        .map(String::as_str)
        .collect::<Vec<_>>()
        .join(", ");
    match parts.len().saturating_sub(NAMED_MAX) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

fn describe_drive(name: &str, serial: &str, size_bytes: u64) -> String {
    let serial = if serial.is_empty() { "no serial number" } else { serial };
    format!("{name} ({serial}, {size_bytes} bytes)")
}

fn mib(bytes: u64) -> String {
    format!("{} MiB", bytes >> 20)
}
