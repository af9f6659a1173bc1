//! Reads the hardware of an installed system, without a load and without a change.
//!
//! The program is copied to machines, runs once and is removed. It prints rows (`rackwright_health::facts`) and judges
//! nothing: the control plane judges. Each section is read by a process of its own (`sections`), so that a driver that hangs
//! costs one section and not the others. The driver's library for GPUs can be loaded only by a dynamically linked program,
//! which the static one carries (`embedded`).
//!
//! All files are read below a folder, which is `/` on a machine and a fixture in tests.

// A test may read clocks and files, and wait for what it started.
#![cfg_attr(test, allow(clippy::disallowed_methods))]

#[cfg(target_feature = "crt-static")]
pub mod embedded;
mod host;
mod infiniband;
mod log;
mod memory;
mod nvme;
pub mod nvml;
mod pci;
mod root;
pub mod sections;
mod smart;

pub use root::Root;

use rackwright_health::facts::Row;

/// The sections that are files, in the order of the output. The section `gpus` is the driver's library.
pub const FILE_SECTIONS: [&str; 6] = ["host", "pci", "infiniband", "nvme", "memory", "log"];

/// Reads a section of files.
///
/// # Errors
/// There is no such section, or it is not readable; text for people.
pub fn read(section: &str, root: &Root) -> Result<Vec<Row>, String> {
    match section {
        "host" => Ok(vec![host::row(root)]),
        "pci" => Ok(pci::rows(root)),
        "infiniband" => Ok(infiniband::rows(root)),
        "nvme" => Ok(nvme::rows(root)),
        "memory" => Ok(memory::rows(root)),
        "log" => log::rows(root),
        other => Err(format!(
            "there is no section {other:?}; sections are {}",
            FILE_SECTIONS.join(", ")
        )),
    }
}
