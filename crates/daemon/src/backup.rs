//! `rackwrightd backup` and `rackwrightd restore`: the database and the keys of a site, as one folder.
//!
//! ```text
//! rackwright-backup-20261124T101500Z/   0700
//!   manifest.json                       the origin of the backup, and the SHA-256 of each file
//!   database.sqlite or database.pgdump
//!   keys/                               as in the data folder
//! ```
//!
//! A backup is taken while daemons run. A restore puts a backup in the place of a site, and makes the next start doubt every
//! node, because the database lacks all changes after the backup.

mod create;
mod manifest;
mod restore;

use std::path::{Path, PathBuf};

use rackwright_ground::audit::local::LocalError;
use rackwright_ground::start::lock::LockError;
use rackwright_identity::KeyFileError;
use rackwright_lifecycle::Timestamp;
use rackwright_store::{BackupError as CopyError, StoreError};

pub use create::create;
pub use restore::restore;

/// The folder of the keys, both in a backup and in the data folder.
const KEYS: &str = "keys";

/// Why a backup was not taken or not restored.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// The database could not be copied or restored.
    #[error(transparent)]
    Copy(#[from] CopyError),
    /// The database failed.
    #[error("the database does not answer, so the event cannot be stored")]
    Store(#[from] StoreError),
    /// The audit failed.
    #[error(transparent)]
    Audit(#[from] LocalError),
    /// The keys cannot be read or written.
    #[error(transparent)]
    Keys(#[from] KeyFileError),
    /// A daemon is running.
    #[error(transparent)]
    Running(#[from] LockError),
    /// A file or folder failed.
    #[error("{}: {source}", path.display())]
    File {
        path: PathBuf,
        /// The reason.
        #[source]
        source: std::io::Error,
    },
    /// Keys and database belong to two sites.
    #[error(
        "the database belongs to the site with authority {database}, and the keys in {} belong to authority {keys}",
        folder.display()
    )]
    OtherSite {
        /// The authority of the database's site.
        database: String,
        /// The authority of the keys.
        keys: String,
        /// The folder of the keys.
        folder: PathBuf,
    },
    /// The database has another schema version.
    #[error(
        "the database has schema {found}, and this rackwrightd has {known}: use the rackwrightd version that serves the \
         site"
    )]
    Schema {
        /// The version of the database.
        found: i64,
        /// The version of this program.
        known: i64,
    },
    /// The folder does not hold a complete backup.
    #[error("{} is not a complete backup: {fault}", folder.display())]
    Broken { folder: PathBuf, fault: String },
    /// The settings name a database of another kind than the backup has.
    #[error("the backup has a {backup} database, and the settings name a {settings} database")]
    OtherKind {
        /// The kind in the backup.
        backup: &'static str,
        /// The kind in the settings.
        settings: &'static str,
    },
    /// The place already holds a site.
    #[error(
        "{0} holds a site: pass --replace to put the backup in its place. The present site is moved to \
         DATA/before-restore-TIME"
    )]
    Occupied(String),
}

fn failed(path: &Path) -> impl FnOnce(std::io::Error) -> BackupError {
    let path = path.to_owned();
    move |source| BackupError::File { path, source }
}

/// The time in a name: `20261124T101500Z`.
fn stamp(now: Timestamp) -> String {
    let second = now.0.div_euclid(1_000_000).rem_euclid(86_400);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{}T{hour:02}{minute:02}{second:02}Z", now.date()[..10].replace('-', ""))
}

#[cfg(test)]
mod tests;
