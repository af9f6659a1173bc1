//! Removes unreferenced images and chunks.

use std::collections::HashSet;
use std::fs::{self, File};
use std::path::Path;

use super::{ChunkStore, StoreError, failed, file_names, sync_dir};
use crate::digest::{ChunkDigest, ImageDigest};

/// Result of a collection.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GcReport {
    pub images_removed: u64,
    pub chunks_removed: u64,
    /// Removed leftovers of interrupted imports.
    pub temporary_removed: u64,
    /// Total size of the removed files in bytes.
    pub bytes_freed: u64,
    /// Remaining chunks.
    pub chunks_kept: u64,
}

/// A collection in progress. No process can add to the store while this value exists.
#[derive(Debug)]
pub struct Gc<'store> {
    store: &'store ChunkStore,
    _lock: File,
}

impl<'store> Gc<'store> {
    pub(super) fn new(store: &'store ChunkStore, lock: File) -> Self {
        Self { store, _lock: lock }
    }

    /// Removes every image that is not in `referenced`, and every chunk that no remaining image names.
    ///
    /// Fails before removing anything if the index of a referenced image is damaged or missing, because the chunks of that
    /// image are then unknown.
    pub fn sweep(self, referenced: &HashSet<ImageDigest>) -> Result<GcReport, StoreError> {
        let mut kept = HashSet::new();
        for image in referenced {
            kept.extend(self.store.index(image)?.data().iter().map(|chunk| chunk.digest));
        }
        let mut report = GcReport::default();
        // Images first: no visible image ever lacks a chunk, even if the process is killed halfway.
        let images = self.store.root().join("images");
        for image in self.store.images()? {
            if !referenced.contains(&image) {
                report.bytes_freed += remove(&self.store.image_path(&image))?;
                report.images_removed += 1;
            }
        }
        sync_dir(&images)?;
        for byte in 0..=255u8 {
            self.sweep_folder(byte, &kept, &mut report)?;
        }
        let temporary = self.store.root().join("tmp");
        for name in file_names(&temporary)? {
            report.bytes_freed += remove(&temporary.join(name))?;
            report.temporary_removed += 1;
        }
        Ok(report)
    }

    fn sweep_folder(&self, byte: u8, kept: &HashSet<ChunkDigest>, report: &mut GcReport) -> Result<(), StoreError> {
        let folder = self.store.root().join(format!("chunks/{byte:02x}"));
        for name in file_names(&folder)? {
            let Some(digest) = name
                .strip_suffix(".zst")
                .and_then(|hex| hex.parse::<ChunkDigest>().ok())
            else {
                continue;
            };
            if kept.contains(&digest) {
                report.chunks_kept += 1;
            } else {
                report.bytes_freed += remove(&folder.join(&name))?;
                report.chunks_removed += 1;
            }
        }
        Ok(())
    }
}

fn remove(path: &Path) -> Result<u64, StoreError> {
    let length = fs::metadata(path).map_err(failed("read", path))?.len();
    fs::remove_file(path).map_err(failed("remove", path))?;
    Ok(length)
}
