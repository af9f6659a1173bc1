//! The digests of the boot files, as firmware and boot loaders measure them.

#![expect(clippy::disallowed_methods, reason = "runs in spawn_blocking")]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use rackwright_tpm::measured::Served;
use rackwright_tpm::program::authenticode;
use rackwright_tpm::sha256;

use crate::config::{Boot, Config};
use crate::core::Core;

/// Size and modification time of each file: a change makes the digests stale.
type Stamp = Vec<(PathBuf, u64, Option<SystemTime>)>;
/// The input of the digests: the files, and the authorities that the command line may name.
type Key = (Stamp, Vec<String>);
/// The digests, or why there are none.
type Digests = Result<Served, String>;

/// The digests of the served files. The files are read for the first machine, and again after a change.
#[derive(Default)]
pub struct ServedFiles(Mutex<Option<(Key, Arc<Digests>)>>);

impl ServedFiles {
    fn of(&self, config: &Config, authorities: &[String]) -> Arc<Digests> {
        let Some(boot) = &config.boot else {
            return Arc::new(Err("this control plane serves no boot files (settings: boot)".into()));
        };
        // The lock is held during the work: machines that ask meanwhile wait for the same result.
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let stamp = (stamp(boot), authorities.to_vec());
        if let Some((before, digests)) = kept.as_ref()
            && *before == stamp
        {
            return digests.clone();
        }
        let digests = Arc::new(digests(boot, authorities));
        *kept = Some((stamp, digests.clone()));
        digests
    }
}

/// What the boot services serve to machines at this moment.
pub async fn served(core: &Arc<Core>) -> Arc<Digests> {
    let core = core.clone();
    let read = tokio::task::spawn_blocking(move || {
        let authorities = core.keys.authority.announced();
        core.served_files.of(&core.config, &authorities)
    });
    read.await
        .unwrap_or_else(|error| Arc::new(Err(format!("the served boot files could not be read: {error}"))))
}

fn stamp(boot: &Boot) -> Stamp {
    let ramdisk = [&boot.ramdisk.kernel, &boot.ramdisk.initrd];
    let files = boot.network.first_stages.values().chain(ramdisk);
    let stamped = files.map(|path| match fs::metadata(path) {
        Ok(metadata) => (path.clone(), metadata.len(), metadata.modified().ok()),
        Err(_) => (path.clone(), 0, None),
    });
    stamped.collect()
}

fn digests(boot: &Boot, authorities: &[String]) -> Digests {
    let kernel = read(&boot.ramdisk.kernel)?;
    let is_kernel = |error| format!("boot.ramdisk.kernel, {}: {error}", boot.ramdisk.kernel.display());
    let mut served = Served {
        kernel: sha256(&[&kernel]),
        ramdisk: sha256(&[&read(&boot.ramdisk.initrd)?]),
        authorities: authorities.iter().cloned().collect(),
        arguments: boot
            .ramdisk
            .arguments
            .split_ascii_whitespace()
            .map(str::to_owned)
            .collect(),
        ..Served::default()
    };
    served.programs.insert(authenticode(&kernel).map_err(is_kernel)?);
    for path in boot.network.first_stages.values() {
        // Programs for BIOS have no such digest. Firmware with a supported TPM never starts them.
        if let Ok(digest) = authenticode(&read(path)?) {
            served.programs.insert(digest);
        }
    }
    Ok(served)
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    fs::read(path).map_err(|error| format!("{}: {error}", path.display()))
}
