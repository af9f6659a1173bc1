//! GPUs by NVML, the library of NVIDIA's driver.

mod sys;

use rackwright_health::facts::Row;

use sys::{Device, Library};

/// The library's name. The name without a version belongs to packages for developers.
pub const LIBRARY: &str = "libnvidia-ml.so.1";
/// Most GPUs of a node that are read.
const GPUS_MAX: u32 = 64;
/// NVML lists at most this many links (`NVML_NVLINK_MAX_LINKS`).
const LINKS_MAX: u32 = 18;

/// The rows of all GPUs: `nvml` and one `gpu` for each. Without the library, the row `nvml` has the reason.
#[must_use]
pub fn rows(file: &str) -> Vec<Row> {
    let library = match Library::open(file) {
        Ok(library) => library,
        Err(why) => return vec![Row::new("nvml").with("why", why)],
    };
    let mut nvml = Row::new("nvml").with_some("driver", library.driver());
    let count = match library.count() {
        Ok(count) => count.min(GPUS_MAX),
        Err(why) => return vec![Row::new("nvml").with("why", why)],
    };
    nvml = nvml.with("count", count);
    let gpus = (0..count).map(|index| match library.device(index) {
        Ok(device) => gpu(&library, device, index),
        Err(why) => Row::new("gpu").with("index", index).with("error", why),
    });
    std::iter::once(nvml).chain(gpus).collect()
}

fn gpu(library: &Library, device: Device, index: u32) -> Row {
    let number = |name: &str| library.number(name, device);
    let text = |name: &str| library.text(name, device);
    let mut row = Row::new("gpu")
        .with("index", index)
        .with_some("pci", library.address(device))
        .with_some("name", text("nvmlDeviceGetName"))
        .with_some("serial", text("nvmlDeviceGetSerial"))
        .with_some("uuid", text("nvmlDeviceGetUUID"))
        .with_some("vbios", text("nvmlDeviceGetVbiosVersion"))
        .with_some("pstate", number("nvmlDeviceGetPerformanceState"))
        .with_some("temperature", library.temperature(device))
        .with_some("power_limit_w", number("nvmlDeviceGetPowerManagementLimit").map(watt))
        .with_some(
            "power_default_w",
            number("nvmlDeviceGetPowerManagementDefaultLimit").map(watt),
        )
        .with_some("pcie_replays", number("nvmlDeviceGetPcieReplayCounter"))
        .with_some("ecc_corrected", library.memory_errors(device, sys::CORRECTED))
        .with_some("ecc_uncorrected", library.memory_errors(device, sys::UNCORRECTED));
    row = row.with_some("clock_reasons", library.clock_reasons(device));
    if let Some([corrected, uncorrected, pending, failed]) = library.remapped_rows(device) {
        row = row
            .with("remap_corrected", corrected)
            .with("remap_uncorrected", uncorrected)
            .with("remap_pending", pending)
            .with("remap_failed", failed);
    }
    for link in 0..LINKS_MAX {
        let Some(up) = library.link_is_up(device, link) else {
            continue;
        };
        row = row
            .with(&format!("link_{link}"), if up { "up" } else { "down" })
            .with_some(&format!("errors_{link}"), library.link_errors(device, link));
    }
    match library.lost(device) {
        Some(why) => row.with("error", why),
        None => row,
    }
}

/// NVML counts in thousandths.
fn watt(milliwatt: u32) -> f64 {
    f64::from(milliwatt) / 1000.0
}
