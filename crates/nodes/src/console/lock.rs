//! The lock of a node's console. One replica at a time holds the lock: BMCs allow few connections, and two replicas would
//! record each output twice.
//!
//! The lock is a file lock in the node's folder, which all replicas share. The end of the process releases the lock.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{Read as _, Seek as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// Name of the lock file. The file contains the name of the replica that took the lock last.
const LOCK_FILE: &str = "line.lock";
/// Maximum number of bytes that are read of a replica's name.
const REPLICA_BYTES_MAX: u64 = 256;

/// A console that this process holds. Dropping it releases the lock.
#[derive(Debug)]
pub struct ConsoleLock {
    _file: File,
}

impl ConsoleLock {
    /// Locks the console of the node with this folder for a replica.
    ///
    /// # Errors
    /// A text for the operator: another replica holds the console, or a call to the file system failed.
    pub async fn take(folder: PathBuf, replica: String) -> Result<Self, String> {
        let taken = tokio::task::spawn_blocking(move || Self::take_blocking(&folder, &replica));
        taken
            .await
            .unwrap_or_else(|_| Err("the console's lock was not taken".into()))
    }

    #[expect(clippy::disallowed_methods, reason = "runs in spawn_blocking")]
    fn take_blocking(folder: &Path, replica: &str) -> Result<Self, String> {
        let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder)
            .map_err(failed)?;
        let mut options = OpenOptions::new();
        let options = options.create(true).truncate(false).read(true).write(true).mode(0o600);
        let mut file = options.open(folder.join(LOCK_FILE)).map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut holder = String::new();
                let _ = file.take(REPLICA_BYTES_MAX).read_to_string(&mut holder);
                return Err(format!(
                    "replica {} holds this console: attach there, or wait until that replica releases the console",
                    rackwright_ground::text::cut(&holder, 80)
                ));
            }
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        let written = file
            .set_len(0)
            .and_then(|()| file.rewind())
            .and_then(|()| file.write_all(replica.as_bytes()));
        written.map_err(failed)?;
        Ok(Self { _file: file })
    }
}
