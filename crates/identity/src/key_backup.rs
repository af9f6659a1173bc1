//! Backup and restore of the key set.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::key_files::{
    KeyFileError, KeyFiles, NEW_SET_PREFIX, SET, io_error, lock, read_private, sync_directory, write_private,
};
use crate::rng::{Rng, random};

/// The key set of a data folder. While this value exists, no process adds or removes a key.
#[derive(Debug)]
pub struct LockedKeys {
    _lock: fs::File,
    set: PathBuf,
}

impl LockedKeys {
    /// Waits until no other process changes the keys.
    pub fn of(data_dir: &Path) -> Result<Self, KeyFileError> {
        let set = data_dir.join(SET);
        if !set.is_dir() {
            return Err(KeyFileError::Missing(set));
        }
        Ok(Self {
            _lock: lock(data_dir)?,
            set,
        })
    }

    /// Copies each file into a new folder. Returns the file names.
    pub fn copy_to(&self, folder: &Path) -> Result<Vec<String>, KeyFileError> {
        copy_set(&self.set, folder)
    }
}

impl KeyFiles {
    /// Reads a key set from any folder, for example from a backup, and checks that it is complete.
    pub fn read_set(set: &Path, rng: Arc<dyn Rng>) -> Result<Self, KeyFileError> {
        Self::load(set, rng, false)
    }

    /// Puts a copy of a key set into a data folder that has none. The copy appears complete or not at all.
    pub fn install_set(from: &Path, data_dir: &Path, rng: &dyn Rng) -> Result<(), KeyFileError> {
        let _lock = lock(data_dir)?;
        let new = data_dir.join(format!("{NEW_SET_PREFIX}{}", hex::encode(random::<8>(rng)?)));
        copy_set(from, &new)?;
        let set = data_dir.join(SET);
        // `rename` fails if a set exists: it does not replace a folder that contains files.
        fs::rename(&new, &set).map_err(io_error("rename to", &set))?;
        sync_directory(data_dir)
    }
}

fn copy_set(from: &Path, to: &Path) -> Result<Vec<String>, KeyFileError> {
    crate::key_files::private_directory(to)?;
    let mut names = Vec::new();
    for entry in fs::read_dir(from).map_err(io_error("list", from))? {
        let name = entry.map_err(io_error("list", from))?.file_name();
        let name = name.to_string_lossy().into_owned();
        // Files of an unfinished rotation are not keys yet.
        if !name.starts_with('.') {
            write_private(&to.join(&name), &read_private(&from.join(&name))?)?;
            names.push(name);
        }
    }
    sync_directory(to)?;
    names.sort();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;
    use crate::SystemRng;

    #[test]
    fn a_copy_opens_what_the_original_has_sealed_and_replaces_no_other_set() {
        let (dir, copies, other) = (
            tempfile::tempdir().unwrap(),
            tempfile::tempdir().unwrap(),
            tempfile::tempdir().unwrap(),
        );
        let now = UNIX_EPOCH + Duration::from_secs(1_790_000_000);
        let keys = KeyFiles::load_or_create(dir.path(), "Rackwright test", now, Arc::new(SystemRng)).unwrap();
        KeyFiles::rotate_sealing_key(dir.path(), &SystemRng).unwrap();
        let copy = copies.path().join("keys");
        let names = LockedKeys::of(dir.path()).unwrap().copy_to(&copy).unwrap();
        assert_eq!(
            names,
            ["authority.pem", "sealing-0001.key", "sealing-0002.key", "signing.key"]
        );
        KeyFiles::install_set(&copy, other.path(), &SystemRng).unwrap();
        let put = KeyFiles::load_or_create(other.path(), "", now, Arc::new(SystemRng)).unwrap();
        assert!(!put.created);
        assert_eq!(put.authority.ca_sha256(), keys.authority.ca_sha256());
        assert_eq!(put.sealer.key_ids().len(), 2);
        assert!(
            KeyFiles::install_set(&copy, other.path(), &SystemRng).is_err(),
            "there is a set"
        );

        fs::remove_file(copy.join("signing.key")).unwrap();
        assert!(
            KeyFiles::read_set(&copy, Arc::new(SystemRng)).is_err(),
            "a copy with a gap"
        );
        assert!(LockedKeys::of(copies.path()).is_ok() && LockedKeys::of(&copy).is_err());
    }
}
