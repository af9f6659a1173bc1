//! Which replica holds a node's console: BMCs allow few connections, and two recorders would write everything twice.
//!
//! A lock on a file in the node's folder, which all replicas share. It ends with the process that holds it.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{Read as _, Seek as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// Name of the lock file.
const NAME: &str = "line.lock";
/// Longest replica name that is read, in bytes.
const REPLICA_MAX: u64 = 256;

/// A console that this process holds. Dropping it releases the lock.
#[derive(Debug)]
pub struct ConsoleLock {
    _file: File,
}

impl ConsoleLock {
    /// Locks a console for a replica.
    ///
    /// # Errors
    /// Another replica holds the console, or the folder cannot be made; a sentence.
    pub async fn take(folder: PathBuf, replica: String) -> Result<Self, String> {
        let taken = tokio::task::spawn_blocking(move || Self::take_now(&folder, &replica));
        taken
            .await
            .unwrap_or_else(|_| Err("the console's lock was not taken".into()))
    }

    #[expect(clippy::disallowed_methods, reason = "runs in spawn_blocking")]
    fn take_now(folder: &Path, replica: &str) -> Result<Self, String> {
        let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder)
            .map_err(failed)?;
        let mut options = OpenOptions::new();
        let options = options.create(true).truncate(false).read(true).write(true).mode(0o600);
        let mut file = options.open(folder.join(NAME)).map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut holder = String::new();
                let _ = file.take(REPLICA_MAX).read_to_string(&mut holder);
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
