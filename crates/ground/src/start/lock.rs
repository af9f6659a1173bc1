//! Ensures one daemon on one SQLite database.
//!
//! A lock on a file beside the database excludes a second daemon on the same folder. A kernel name made from the site's
//! authority excludes a daemon on a copy of the folder on the same computer. Both end with the process, however it ends.
//! Commands that work beside a running daemon, such as `bmc-password`, take neither. Replicas on PostgreSQL need neither.

#![expect(clippy::disallowed_methods, reason = "called at the start")]

use std::fs::{File, TryLockError};
use std::io::{Read as _, Write as _};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};

use rackwright_store::Database;

/// Longest description of the holder, in bytes.
const WORDS_MAX: u64 = 200;

/// The right to be the only daemon of a SQLite database. Dropping it releases it.
#[derive(Debug)]
pub struct Lock {
    _file: File,
    authority: String,
    name: Option<UnixListener>,
}

/// Why the right was not granted.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another daemon has the database.
    #[error(
        "another rackwrightd uses the database {}: {holder}. Only one daemon may use a SQLite database: stop the other \
         daemon first, or use a PostgreSQL database, which several daemons can share", database.display()
    )]
    Held {
        /// The file of the database.
        database: PathBuf,
        /// The other daemon's description of itself.
        holder: String,
    },
    /// Another daemon has the site's keys.
    #[error(
        "another rackwrightd on this host uses the keys of this site with a SQLite database: one of the two data folders \
         is a copy of the other. Stop the other daemon first, or inspect the copy with `rackwrightd serve --paused`"
    )]
    Copy,
    /// The file cannot be used.
    #[error("{}: {source}", path.display())]
    File {
        path: PathBuf,
        /// The reason.
        #[source]
        source: std::io::Error,
    },
}

fn lock_file(database: &Path) -> PathBuf {
    let mut path = database.as_os_str().to_owned();
    path.push(".lock");
    path.into()
}

/// Takes the right to be the only daemon on a SQLite database of a site with this authority. `None` for PostgreSQL. A
/// paused daemon may read a copy while the original serves: it takes the name with [`Lock::claim_name`] when it is resumed.
///
/// # Errors
/// Another daemon has the right.
pub fn take(database: &Database, authority: &str, is_paused: bool) -> Result<Option<Lock>, LockError> {
    let Database::File(database) = database else {
        return Ok(None);
    };
    let path = lock_file(database);
    let failed = |source| LockError::File {
        path: path.clone(),
        source,
    };
    let mut options = File::options();
    options.read(true).write(true).create(true).truncate(false);
    let mut file = match options.open(&path) {
        // There is no folder, and so no database: opening the database gives a better message.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(failed)?,
    };
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let mut holder = String::new();
            // Only text for the operator: a holder that is just starting has not written it yet.
            let _ = (&file).take(WORDS_MAX).read_to_string(&mut holder);
            return Err(LockError::Held {
                database: database.clone(),
                holder: holder.trim().replace(char::is_control, " "),
            });
        }
        Err(TryLockError::Error(source)) => return Err(failed(source)),
    }
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let words = format!("process {} on {}\n", std::process::id(), host.trim());
    let written = file.set_len(0).and_then(|()| file.write_all(words.as_bytes()));
    written.map_err(failed)?;
    let mut lock = Lock {
        _file: file,
        authority: authority.to_owned(),
        name: None,
    };
    if !is_paused {
        lock.claim_name()?;
    }
    Ok(Some(lock))
}

impl Lock {
    /// Takes the kernel name that only one daemon with these keys and a SQLite database can have on this computer.
    ///
    /// # Errors
    /// Another daemon has the name.
    pub fn claim_name(&mut self) -> Result<(), LockError> {
        if self.name.is_some() {
            return Ok(());
        }
        let name = format!("rackwright/{}/sqlite", self.authority);
        let bound = SocketAddr::from_abstract_name(&name).and_then(|address| UnixListener::bind_addr(&address));
        let bound = bound.map_err(|source| match source.kind() {
            std::io::ErrorKind::AddrInUse => LockError::Copy,
            _ => LockError::File {
                path: name.into(),
                source,
            },
        })?;
        self.name = Some(bound);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_daemon_is_refused_on_the_same_database_and_on_a_copy_until_the_first_has_ended() {
        let dir = tempfile::tempdir().unwrap();
        let authority = dir.path().display().to_string();
        let [original, copy] = ["a.db", "b.db"].map(|name| Database::from(&dir.path().join(name)));
        let first = take(&original, &authority, false).unwrap();
        let refused = take(&original, "another", false).unwrap_err().to_string();
        let me = format!("process {}", std::process::id());
        assert!(refused.contains(&me) && refused.contains("a.db"), "{refused}");
        let refused = take(&copy, &authority, false).unwrap_err();
        assert!(matches!(refused, LockError::Copy), "{refused}");
        let mut paused = take(&copy, &authority, true).unwrap().unwrap();
        assert!(paused.claim_name().is_err());
        drop(first);
        paused.claim_name().unwrap();
        assert!(take(&original, &authority, false).is_err());
    }
}
