//! UEFI: the agent's boot entries, the variables that store them, and variables that installed systems leave.

pub mod entry;
mod foreign;
pub mod vars;

use std::fs::File;
use std::io;

use crate::disk::Window;
use crate::disk::fat::Fat;
use crate::disk::gpt::{Gpt, Partition, TYPE_ESP};

/// Default loader that firmware tries by itself, for the agent's machine architecture (UEFI 2.10, 3.5.1.1).
#[cfg(target_arch = "x86_64")]
const DEFAULT_LOADER: &str = "BOOTX64.EFI";
#[cfg(target_arch = "aarch64")]
const DEFAULT_LOADER: &str = "BOOTAA64.EFI";
/// Loaders of distributions, best first.
#[cfg(target_arch = "x86_64")]
const LOADERS: [&str; 3] = ["shimx64.efi", "grubx64.efi", "systemd-bootx64.efi"];
#[cfg(target_arch = "aarch64")]
const LOADERS: [&str; 3] = ["shimaa64.efi", "grubaa64.efi", "systemd-bootaa64.efi"];

/// The boot loader of an installed image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loader {
    /// The EFI system partition with the loader.
    pub partition: Partition,
    /// Path on the partition, such as `\EFI\debian\shimx64.efi`.
    pub path: String,
}

/// Searches the EFI system partitions of a disk for a loader: first a distribution's own, then the default one.
///
/// # Errors
/// Errors of reading the disk. `Ok(None)` means that there is no loader.
pub fn find_loader(disk: &File, gpt: &Gpt) -> io::Result<Option<Loader>> {
    for partition in gpt.partitions().filter(|partition| partition.type_guid == TYPE_ESP) {
        let (start, length) = gpt.extent(&partition);
        let window = Window {
            file: disk,
            start,
            length,
        };
        let Ok(fat) = Fat::open(&window) else { continue };
        if let Some(path) = loader_path(&fat)? {
            return Ok(Some(Loader { partition, path }));
        }
    }
    Ok(None)
}

fn loader_path(fat: &Fat<'_>) -> io::Result<Option<String>> {
    let entries = |folder: &str| match fat.list(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        other => other,
    };
    let mut folders: Vec<String> = entries("EFI")?
        .into_iter()
        .filter(|entry| entry.is_folder && ![".", ".."].contains(&entry.name.as_str()))
        .map(|entry| entry.name)
        .collect();
    folders.sort();
    let (default, vendors): (Vec<_>, Vec<_>) = folders.into_iter().partition(|name| name.eq_ignore_ascii_case("BOOT"));
    let wanted = vendors.iter().flat_map(|folder| LOADERS.map(|loader| (folder, loader)));
    for (folder, loader) in wanted.chain(default.iter().map(|folder| (folder, DEFAULT_LOADER))) {
        let files = entries(&format!("EFI/{folder}"))?;
        if let Some(file) = files
            .iter()
            .find(|file| !file.is_folder && file.name.eq_ignore_ascii_case(loader))
        {
            return Ok(Some(format!("\\EFI\\{folder}\\{}", file.name)));
        }
    }
    Ok(None)
}
