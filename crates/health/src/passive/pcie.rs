//! PCIe: width and speed of links, and the error counters of devices.

use super::{Fault, Finding, State, plural, unread};
use crate::component::{Component, Kind};
use crate::errors::{Remedy, Severity};
use crate::facts::{Facts, Row};

/// Vendors of emulated devices: Red Hat's two numbers. Their links are not real.
const EMULATED: [&str; 2] = ["0x1af4", "0x1b36"];
/// More corrected errors than this are reported, and do not fail a node: the link has repeated the packets.
const CORRECTED_MANY: u64 = 1000;

/// The role of a PCIe device in a GPU node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    Gpu,
    /// An NVLink switch.
    NvSwitch,
    /// An InfiniBand or RoCE adapter.
    Hca,
    /// An NVMe drive.
    Nvme,
    /// A bridge on the path of one of the others.
    Bridge,
}

/// A PCIe device with a role.
#[derive(Debug, Clone, Copy)]
pub struct Device<'a> {
    pub role: Role,
    /// Its facts.
    pub row: &'a Row,
}

impl<'a> Device<'a> {
    fn of(row: &'a Row) -> Option<Self> {
        let (class, vendor) = (row.text("class"), row.text("vendor"));
        let role = match (class.get(..6)?, vendor) {
            ("0x0300" | "0x0302" | "0x0380" | "0x1200", "0x10de" | "0x1002") => Role::Gpu,
            ("0x0680", "0x10de") => Role::NvSwitch,
            ("0x0207", _) | ("0x0200", "0x15b3") => Role::Hca,
            ("0x0108", _) => Role::Nvme,
            ("0x0604", _) => Role::Bridge,
            _ => return None,
        };
        Some(Self { role, row })
    }

    /// Domain:bus:device.function.
    #[must_use]
    pub fn address(&self) -> &'a str {
        self.row.text("address")
    }

    /// Whether a hypervisor emulates the device.
    #[must_use]
    pub fn is_emulated(&self) -> bool {
        EMULATED.contains(&self.row.text("vendor"))
    }

    /// The component, by the best known id.
    #[must_use]
    pub fn component(&self, facts: &Facts) -> Component {
        let address = self.address();
        let of = |key: &str, field: &str| {
            let row = facts.rows(key).find(|row| row.get("pci") == Some(address))?;
            row.get(field).map(str::to_owned)
        };
        let (kind, id) = match self.role {
            Role::Gpu => (Kind::Gpu, of("gpu", "serial").or_else(|| of("gpu", "uuid"))),
            Role::NvSwitch => (Kind::NvSwitch, None),
            Role::Hca => (Kind::Hca, of("port", "guid")),
            Role::Nvme => (Kind::Nvme, of("nvme", "serial")),
            Role::Bridge => (Kind::Slot, None),
        };
        Component::new(kind, id.unwrap_or_else(|| address.to_owned()))
    }
}

/// The devices with a role, GPUs first.
pub(super) fn devices(facts: &Facts) -> Vec<Device<'_>> {
    let mut devices: Vec<Device<'_>> = facts.rows("pci").filter_map(Device::of).collect();
    devices.sort_by_key(|device| device.role);
    devices
}

/// The component at an address, also of a function that a driver names without its function's number.
pub(super) fn component_at(facts: &Facts, address: &str, kind: Kind) -> Component {
    let devices = devices(facts);
    let found = devices.iter().find(|device| device.address().starts_with(address));
    match found.map(|device| device.component(facts)) {
        Some(component) => Component { kind, ..component },
        None => Component::new(kind, address),
    }
}

/// `32.0 GT/s PCIe` as 32.0.
fn speed(row: &Row, field: &str) -> Option<f64> {
    row.get(field)?.split(' ').next()?.parse().ok()
}

fn width(row: &Row, field: &str) -> Option<u32> {
    row.number(field).filter(|lanes| *lanes > 0)
}

/// The width and speed of the links of GPUs, adapters and drives.
pub(super) fn links(facts: &Facts, devices: &[Device<'_>]) -> Finding {
    const CHECK: &str = "pcie-links";
    if let Some(unread) = unread(facts, "pci", CHECK) {
        return unread;
    }
    let ends: Vec<&Device<'_>> = devices.iter().filter(|device| device.role != Role::Bridge).collect();
    let (real, emulated): (Vec<_>, Vec<_>) = ends.into_iter().partition(|device| !device.is_emulated());
    if real.is_empty() {
        let why = "there is no GPU, adapter or NVMe drive with a real link".to_owned();
        let measured = plural(emulated.len(), "emulated device");
        return Finding::without(CHECK, State::NotApplicable(why), measured);
    }
    let (mut faults, mut unknown, mut idle) = (Vec::new(), Vec::new(), 0);
    for device in &real {
        match slow_link(facts, device) {
            Link::Full => {}
            Link::Slow(words) => {
                let component = device.component(facts);
                faults.push(Fault::new(component, Severity::Degraded, Remedy::Inspect, words));
            }
            Link::Idle => idle += 1,
            Link::Unknown => unknown.push(device.address()),
        }
    }
    let mut measured = format!("{}, {} below the maximum", plural(real.len(), "device"), faults.len());
    if idle > 0 {
        measured.push_str(&format!(", {} idle at a lower speed", plural(idle, "GPU")));
    }
    let threshold = "width and speed of the device and of its slot";
    let mut finding = Finding::of(CHECK, measured, threshold, "the device and the bridge above it", faults);
    if finding.faults.is_empty() && !unknown.is_empty() {
        finding.state = State::NotProven(format!(
            "the kernel states no width or speed for {}",
            unknown.join(", ")
        ));
    }
    finding
}

enum Link {
    Full,
    Slow(String),
    Idle,
    Unknown,
}

fn slow_link(facts: &Facts, device: &Device<'_>) -> Link {
    let row = device.row;
    let above = facts
        .rows("pci")
        .find(|above| row.get("parent").is_some() && above.get("address") == row.get("parent"));
    let Some(lanes) = row.number::<u32>("width") else {
        return Link::Unknown;
    };
    let (Some(mut most_lanes), Some(mut most_rate)) = (width(row, "max_width"), speed(row, "max_speed")) else {
        return Link::Unknown;
    };
    if let Some(above) = above {
        most_lanes = width(above, "max_width").map_or(most_lanes, |lanes| lanes.min(most_lanes));
        most_rate = speed(above, "max_speed").map_or(most_rate, |rate| rate.min(most_rate));
    }
    let rate = speed(row, "speed");
    // The kernel has no number for the speed of a link that is down, or of one that is faster than it knows.
    let shown = rate.map_or_else(|| "of unknown speed".to_owned(), |rate| format!("{rate} GT/s"));
    let words = format!("PCIe link at x{lanes} {shown} of x{most_lanes} {most_rate} GT/s");
    if lanes < most_lanes {
        return Link::Slow(words);
    }
    let Some(rate) = rate else {
        return Link::Unknown;
    };
    if rate >= most_rate {
        return Link::Full;
    }
    // An idle GPU lowers the speed of its link. Without the driver's library the state is unknown.
    let gpu = facts.rows("gpu").find(|gpu| gpu.get("pci") == Some(device.address()));
    match (device.role, gpu.and_then(|gpu| gpu.number::<u32>("pstate"))) {
        (Role::Gpu, Some(1..)) => Link::Idle,
        (Role::Gpu, None) => Link::Unknown,
        _ => Link::Slow(words),
    }
}

/// The error counters (AER) of devices and of the bridges above them.
pub(super) fn errors(facts: &Facts, devices: &[Device<'_>]) -> Finding {
    const CHECK: &str = "pcie-errors";
    if let Some(unread) = unread(facts, "pci", CHECK) {
        return unread;
    }
    let counted = |device: &&Device<'_>| device.row.get("aer_fatal").is_some();
    let counted: Vec<&Device<'_>> = devices.iter().filter(counted).collect();
    if counted.is_empty() {
        let why = "no device has error counters (AER)".to_owned();
        return Finding::without(CHECK, State::NotApplicable(why), plural(devices.len(), "device"));
    }
    let (mut faults, mut corrected, mut many) = (Vec::new(), 0, Vec::new());
    for device in &counted {
        let count = |field: &str| device.row.number::<u64>(field).unwrap_or_default();
        let (fatal, other) = (count("aer_fatal"), count("aer_nonfatal"));
        if fatal + other > 0 {
            let severity = if fatal > 0 { Severity::Fatal } else { Severity::Degraded };
            let words = format!("{fatal} fatal and {other} other uncorrected PCIe errors");
            faults.push(Fault::new(device.component(facts), severity, Remedy::Inspect, words));
        }
        corrected += count("aer_correctable");
        if count("aer_correctable") > CORRECTED_MANY {
            many.push(device.address());
        }
    }
    let mut measured = format!("{}, {corrected} corrected errors", plural(counted.len(), "device"));
    if !many.is_empty() {
        measured.push_str(&format!(", most at {}", many.join(", ")));
    }
    Finding::of(
        CHECK,
        measured,
        "no uncorrected error",
        "PCI Express, advanced error reporting",
        faults,
    )
}
