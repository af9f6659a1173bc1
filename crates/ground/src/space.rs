//! Free room on disks: uploads stop before a disk is so full that the database cannot write.

use std::io::ErrorKind;
use std::path::Path;

use nix::sys::statvfs::statvfs;
use serde::Deserialize;

const MIB: u64 = 1 << 20;
/// The default reserve: a twentieth of the file system, within these bounds.
const RESERVE_MIN: u64 = 256 * MIB;
const RESERVE_MAX: u64 = 10 * 1024 * MIB;
const RESERVE_SHARE: u64 = 20;

/// The settings block `storage`.
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// MiB that uploads leave free on the file systems of `data_dir` and `shared_dir`. `None`: 5 % of the file system, at
    /// least 256 MiB and at most 10 GiB.
    pub reserve_mib: Option<u64>,
    /// Most MiB for all site files together.
    pub site_files_mib: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            reserve_mib: None,
            site_files_mib: rackwright_site::file::MAX_TOTAL_BYTES >> 20,
        }
    }
}

impl Settings {
    /// Adds each fault of the settings to `faults`.
    pub fn check(&self, faults: &mut Vec<String>) {
        let most = rackwright_site::file::MAX_TOTAL_BYTES >> 20;
        if !(1..=most).contains(&self.site_files_mib) {
            faults.push(format!("storage.site_files_mib: must be 1 to {most}"));
        }
    }
}

/// Checks for free room before a write.
#[derive(Debug)]
pub struct Space {
    reserve: Option<u64>,
}

/// A disk has no room for a write.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the file system of {folder} has {} MiB free and keeps a reserve of {} MiB: there is no room for {} MiB more",
    free / MIB,
    reserve / MIB,
    needed.div_ceil(MIB)
)]
pub struct NoRoom {
    /// A folder on that disk.
    pub folder: String,
    /// Free bytes.
    pub free: u64,
    /// Bytes that have to stay free.
    pub reserve: u64,
    /// Bytes of the write.
    pub needed: u64,
}

/// The remedy when a disk has no room.
pub const HINT: &str = "delete images that are not needed (`rackwright image delete`) or other files of that file \
                        system, or enlarge the file system; `storage.reserve_mib` in rackwrightd.yaml sets the reserve";

impl NoRoom {
    /// The same for a write that the file system itself refused. `None`: the write failed for another reason.
    #[must_use]
    pub fn of_error(folder: &Path, needed: u64, error: &std::io::Error) -> Option<Self> {
        let is_full = matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded);
        is_full.then(|| Self {
            folder: folder.display().to_string(),
            free: 0,
            reserve: 0,
            needed,
        })
    }
}

impl Space {
    /// Checks with these settings.
    #[must_use]
    pub fn new(settings: &Settings) -> Self {
        Self {
            reserve: settings.reserve_mib.map(|mib| mib.saturating_mul(MIB)),
        }
    }

    /// Checks that `needed` more bytes in `folder` leave the reserve free.
    ///
    /// # Errors
    /// They do not.
    pub fn check(&self, folder: &Path, needed: u64) -> Result<(), NoRoom> {
        let stat = match statvfs(folder) {
            Ok(stat) => stat,
            Err(error) => {
                tracing::warn!(folder = %folder.display(), %error, "the free space of a folder cannot be read");
                return Ok(());
            }
        };
        let (total, free) = (
            stat.blocks() * stat.fragment_size(),
            stat.blocks_available() * stat.fragment_size(),
        );
        let reserve = self
            .reserve
            .unwrap_or_else(|| (total / RESERVE_SHARE).clamp(RESERVE_MIN, RESERVE_MAX));
        if free >= reserve.saturating_add(needed) {
            return Ok(());
        }
        let folder = folder.display().to_string();
        Err(NoRoom {
            folder,
            free,
            reserve,
            needed,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn space(reserve_mib: Option<u64>) -> Space {
        Space::new(&Settings {
            reserve_mib,
            ..Settings::default()
        })
    }

    #[test]
    fn the_reserve_is_kept_free() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(space(Some(0)).check(dir.path(), 1), Ok(()));
        let full = space(Some(u64::MAX)).check(dir.path(), 1).unwrap_err();
        let text = full.to_string();
        assert!(text.contains(&dir.path().display().to_string()), "{text}");
        assert!(text.contains("no room for 1 MiB more"), "{text}");
        // More than any disk has.
        assert!(space(Some(0)).check(dir.path(), u64::MAX).is_err());
        let default = space(None).check(dir.path(), u64::MAX).unwrap_err();
        assert!((RESERVE_MIN..=RESERVE_MAX).contains(&default.reserve), "{default}");
    }
}
