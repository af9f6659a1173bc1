//! GPUs by their driver's library (NVML).

use super::pcie::{Device, Role};
use super::{Fault, Finding, State, plural};
use crate::component::{Component, Kind};
use crate::errors::{Remedy, Severity};
use crate::facts::{Facts, Row};
use crate::rated::{FigureKind, Figures};

/// Reasons for lower clocks that speak against a component (`nvml.h`, `nvmlClocksEventReason...`).
const REASONS: [(u64, Kind, &str); 4] = [
    (0x80, Kind::System, "power brake: the power supply asked for less load"),
    (0x40, Kind::Gpu, "the GPU is too hot (hardware)"),
    (0x20, Kind::Gpu, "the GPU is too hot (driver)"),
    (0x08, Kind::Gpu, "hardware slowdown"),
];
/// From this number of rows remapped for uncorrected errors on, a GPU is replaced: NVIDIA's limit of a memory bank's spares.
const REMAPPED_MOST: u64 = 512;
/// The checks of this module.
const CHECKS: [&str; 4] = ["gpu-presence", "gpu-memory", "gpu-clocks", "gpu-nvlink"];

fn component(gpu: &Row, kind: Kind) -> Component {
    let id = gpu
        .get("serial")
        .or(gpu.get("uuid"))
        .or(gpu.get("pci"))
        .unwrap_or_default();
    Component::new(kind, id)
}

/// The four checks of GPUs.
pub(super) fn judge(facts: &Facts, devices: &[Device<'_>], figures: &Figures) -> Vec<Finding> {
    let on_bus: Vec<&Device<'_>> = devices.iter().filter(|device| device.role == Role::Gpu).collect();
    let all = |state: &State, measured: &str| -> Vec<Finding> {
        CHECKS
            .iter()
            .map(|check| Finding::without(check, state.clone(), measured))
            .collect()
    };
    if let Some(why) = facts.missing("pci") {
        return all(&State::NotProven(why), "not read");
    }
    let nvml = facts.row("nvml");
    let driver = nvml.and_then(|row| row.get("driver"));
    if on_bus.is_empty() {
        return all(&State::NotApplicable("no GPU".to_owned()), "0 GPUs");
    }
    let measured = plural(on_bus.len(), "GPU");
    if on_bus.iter().all(|device| device.row.get("vendor") == Some("0x1002")) {
        let why = "AMD's library is not read yet".to_owned();
        return all(&State::NotProven(why), &measured);
    }
    if let Some(why) = facts.missing("gpus") {
        return all(&State::NotProven(why), &measured);
    }
    let Some(driver) = driver else {
        let why = nvml.map_or("the driver's library gave no answer", |row| row.text("why"));
        return all(&State::NotProven(why.to_owned()), &measured);
    };
    let gpus: Vec<&Row> = facts.rows("gpu").collect();
    vec![
        presence(&gpus, &on_bus, driver),
        memory(&gpus),
        clocks(&gpus),
        nvlink(&gpus, figures),
    ]
}

/// Every GPU on the bus answers its driver.
fn presence(gpus: &[&Row], on_bus: &[&Device<'_>], driver: &str) -> Finding {
    let answers = |device: &&&Device<'_>| {
        let found = gpus.iter().find(|gpu| gpu.get("pci") == Some(device.address()));
        found.is_some_and(|gpu| gpu.get("error").is_none())
    };
    let silent = on_bus.iter().filter(|device| !answers(device));
    let mut faults: Vec<Fault> = silent
        .map(|device| {
            let found = gpus.iter().find(|gpu| gpu.get("pci") == Some(device.address()));
            let words = found.map_or("its driver does not list it", |gpu| gpu.text("error"));
            let component = Component::new(Kind::Gpu, device.address());
            Fault::new(component, Severity::Fatal, Remedy::PowerCycle, words)
        })
        .collect();
    // A lost GPU may have left the bus and still be listed.
    let listed = gpus.iter().filter(|gpu| gpu.get("error").is_some());
    let gone = listed.filter(|gpu| !on_bus.iter().any(|device| gpu.get("pci") == Some(device.address())));
    faults.extend(gone.map(|gpu| {
        let id = gpu
            .get("pci")
            .map_or_else(|| format!("number {}", gpu.text("index")), str::to_owned);
        Fault::new(
            Component::new(Kind::Gpu, id),
            Severity::Fatal,
            Remedy::PowerCycle,
            gpu.text("error"),
        )
    }));
    let names: Vec<&str> = gpus.iter().filter_map(|gpu| gpu.get("name")).collect();
    let same = names.first().filter(|first| names.iter().all(|name| name == *first));
    let names = same.map_or_else(|| names.join(", "), |name| (*name).to_owned());
    let answering = on_bus.iter().filter(answers).count();
    let measured = format!(
        "{answering} of {} answer, {names}, driver {driver}",
        plural(on_bus.len(), "GPU")
    );
    Finding::of(
        "gpu-presence",
        measured,
        "every GPU on the bus answers its driver",
        "PCI devices",
        faults,
    )
}

/// Fields that the driver did not report make a check unproven, if nothing is at fault.
fn needs(mut finding: Finding, gpus: &[&Row], field: &str, what: &str) -> Finding {
    let working = gpus.iter().filter(|gpu| gpu.get("error").is_none());
    let lacking: Vec<&str> = working
        .filter(|gpu| gpu.get(field).is_none())
        .map(|gpu| gpu.text("pci"))
        .collect();
    if finding.faults.is_empty() && !lacking.is_empty() {
        finding.state = State::NotProven(format!("the driver reports no {what} of {}", lacking.join(", ")));
    }
    finding
}

fn memory(gpus: &[&Row]) -> Finding {
    let mut faults = Vec::new();
    let mut corrected = 0;
    for gpu in gpus {
        let count = |field: &str| gpu.number::<u64>(field).unwrap_or_default();
        let mut fault = |severity, remedy, words: String| {
            faults.push(Fault::new(component(gpu, Kind::GpuMemory), severity, remedy, words));
        };
        corrected += count("ecc_corrected");
        if count("remap_failed") > 0 {
            fault(
                Severity::Fatal,
                Remedy::Replace,
                "a memory row could not be remapped".to_owned(),
            );
        } else if count("remap_uncorrected") >= REMAPPED_MOST {
            let words = format!("{} rows remapped for uncorrected errors", count("remap_uncorrected"));
            fault(Severity::Fatal, Remedy::Replace, words);
        } else if count("remap_pending") > 0 {
            let words = "a memory row waits for its remapping".to_owned();
            fault(Severity::Degraded, Remedy::ResetGpu, words);
        } else if count("ecc_uncorrected") > 0 {
            let words = format!(
                "{} uncorrected memory errors since the driver's start",
                count("ecc_uncorrected")
            );
            fault(Severity::Fatal, Remedy::ResetGpu, words);
        }
    }
    let measured = format!("{}, {corrected} corrected errors", plural(gpus.len(), "GPU"));
    let threshold =
        format!("no uncorrected error, no pending or failed remapping, less than {REMAPPED_MOST} remapped rows");
    let finding = Finding::of(
        "gpu-memory",
        measured,
        &threshold,
        "NVIDIA, GPU memory error management",
        faults,
    );
    needs(finding, gpus, "ecc_uncorrected", "memory errors (is ECC off?)")
}

fn clocks(gpus: &[&Row]) -> Finding {
    let mut faults = Vec::new();
    let mut hottest = 0;
    for gpu in gpus {
        hottest = hottest.max(gpu.number::<u32>("temperature").unwrap_or_default());
        let reasons: u64 = gpu.number("clock_reasons").unwrap_or_default();
        let active = REASONS.iter().find(|(bit, ..)| reasons & bit != 0);
        if let Some((_, kind, words)) = active {
            let words = format!("{words}; GPU at {}", gpu.text("pci"));
            let component = if *kind == Kind::System {
                Component::new(Kind::System, "power supply")
            } else {
                component(gpu, *kind)
            };
            faults.push(Fault::new(component, Severity::Degraded, Remedy::Inspect, words));
        }
        let watt = |field: &str| gpu.number::<f64>(field);
        if let (Some(limit), Some(default)) = (watt("power_limit_w"), watt("power_default_w"))
            && limit < default
        {
            faults.push(Fault {
                component: component(gpu, Kind::Gpu),
                severity: Severity::Degraded,
                remedy: format!("nvidia-smi -i {} -pl {default}", gpu.text("pci")),
                words: format!("power limit {limit} W, default {default} W"),
            });
        }
    }
    let measured = format!("{}, hottest at {hottest} °C", plural(gpus.len(), "GPU"));
    let threshold = "no slowdown by heat or power, power limit as the maker set it";
    let finding = Finding::of("gpu-clocks", measured, threshold, "NVML, reasons of clocks", faults);
    needs(finding, gpus, "clock_reasons", "reasons of clocks")
}

fn nvlink(gpus: &[&Row], figures: &Figures) -> Finding {
    const CHECK: &str = "gpu-nvlink";
    let (mut faults, mut wanted_any, mut unknown) = (Vec::new(), None, Vec::new());
    for gpu in gpus.iter().filter(|gpu| gpu.get("error").is_none()) {
        let Some(sku) = figures.sku_of(gpu.text("name")) else {
            unknown.push(gpu.text("name"));
            continue;
        };
        let Some(wanted) = figures.get(sku, "nvlink-links", FigureKind::Floor) else {
            continue;
        };
        wanted_any = Some(wanted);
        let link = |link: &str| Component::new(Kind::NvLink, format!("{} link {link}", component(gpu, Kind::Gpu).id));
        for (number, state) in gpu.all("link_") {
            let errors: u64 = gpu.number(&format!("errors_{number}")).unwrap_or_default();
            if state != "up" {
                faults.push(Fault::new(
                    link(number),
                    Severity::Fatal,
                    Remedy::Inspect,
                    "the link is down",
                ));
            } else if errors > 0 {
                let words = format!("{errors} errors that forced a repetition or a recovery");
                faults.push(Fault::new(link(number), Severity::Degraded, Remedy::Inspect, words));
            }
        }
        let known = gpu.all("link_").count();
        if (known as f64) < wanted.value {
            let words = format!("{known} of {} links are listed", wanted.value);
            faults.push(Fault::new(
                component(gpu, Kind::Gpu),
                Severity::Fatal,
                Remedy::ResetGpu,
                words,
            ));
        }
    }
    let measured = format!(
        "{}, {} at fault",
        plural(gpus.len(), "GPU"),
        plural(faults.len(), "link")
    );
    if let Some(wanted) = wanted_any {
        let threshold = format!("{} {} of each GPU, no error", wanted.value, wanted.unit);
        return Finding::of(CHECK, measured, &threshold, &wanted.source, faults);
    }
    let state = if unknown.is_empty() {
        State::NotApplicable("these GPUs have no NVLink".to_owned())
    } else {
        State::NotProven(format!("there are no figures for {}", unknown.join(", ")))
    };
    Finding::without(CHECK, state, measured)
}
