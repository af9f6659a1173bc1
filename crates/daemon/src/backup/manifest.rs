//! The manifest of a backup, and the check that the backup is complete.

#![expect(clippy::disallowed_methods, reason = "a command, and no daemon")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use rackwright_ground::firmware_files::digest_of;
use rackwright_store::Database;
use serde::{Deserialize, Serialize};

use super::{BackupError, KEYS, failed};

/// Name of the manifest file.
pub const FILE: &str = "manifest.json";
/// Version of the format.
const VERSION: u32 = 1;
/// Largest manifest that is read, in bytes.
const BYTES_MAX: u64 = 1 << 20;

/// The kind of a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A file of SQLite.
    Sqlite,
    /// An archive that `pg_dump --format=custom` made.
    Postgresql,
}

impl Kind {
    /// The kind of the database in the settings.
    pub fn of(database: &Database) -> Self {
        match database.file() {
            Some(_) => Self::Sqlite,
            None => Self::Postgresql,
        }
    }

    /// Name of the kind in messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sqlite => "SQLite",
            Self::Postgresql => "PostgreSQL",
        }
    }

    /// Name of the database file in a backup.
    pub fn file(self) -> &'static str {
        match self {
            Self::Sqlite => "database.sqlite",
            Self::Postgresql => "database.pgdump",
        }
    }
}

/// Size and digest of a file in a backup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// Size in bytes.
    pub bytes: u64,
    /// SHA-256 of the file: `sha256:` and 64 hex digits.
    pub digest: String,
}

/// The description of a backup, stored as `manifest.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    version: u32,
    /// Version of the rackwrightd that took the backup.
    pub rackwrightd: String,
    /// Time of the backup, as in its name.
    pub taken: String,
    /// Name of the site, for people.
    pub site: String,
    /// SHA-256 of the certificate of the site's authority.
    pub authority: String,
    /// Kind of the database.
    pub database: Kind,
    /// Identifier of the database.
    pub database_id: String,
    /// Age of the database.
    pub age: i64,
    /// Version of the schema.
    pub schema: i64,
    /// All files except the manifest, by their names in the backup.
    pub files: BTreeMap<String, Entry>,
}

impl Manifest {
    /// The manifest of the files in a folder.
    pub fn of(folder: &Path, facts: ManifestFacts<'_>) -> Result<Self, BackupError> {
        let mut files = BTreeMap::new();
        for name in names(folder)? {
            files.insert(name.clone(), entry(&folder.join(&name))?);
        }
        let ManifestFacts {
            taken,
            site,
            kind,
            found,
        } = facts;
        Ok(Self {
            version: VERSION,
            rackwrightd: env!("CARGO_PKG_VERSION").to_owned(),
            taken: taken.to_owned(),
            site: site.to_owned(),
            authority: found.authority,
            database: kind,
            database_id: found.id,
            age: found.age,
            schema: found.schema,
            files,
        })
    }

    /// Reads the manifest of a backup and checks its files: each must be present and unchanged, and no other file may
    /// exist.
    pub fn checked(folder: &Path) -> Result<Self, BackupError> {
        let broken = |fault: String| BackupError::Broken {
            folder: folder.to_owned(),
            fault,
        };
        let path = folder.join(FILE);
        let mut text = Vec::new();
        let file = fs::File::open(&path).map_err(failed(&path))?;
        file.take(BYTES_MAX).read_to_end(&mut text).map_err(failed(&path))?;
        let manifest: Self = serde_json::from_slice(&text).map_err(|error| broken(format!("{FILE}: {error}")))?;
        if manifest.version != VERSION {
            let version = manifest.version;
            return Err(broken(format!(
                "{FILE} has version {version}, and this rackwrightd reads {VERSION}"
            )));
        }
        let (present, listed) = (names(folder)?, manifest.files.keys().cloned().collect());
        if let Some(name) = present.symmetric_difference(&listed).next() {
            let what = if listed.contains(name) {
                "is missing"
            } else {
                "is not in the manifest"
            };
            return Err(broken(format!("{name} {what}")));
        }
        let wanted = manifest.database.file();
        if !listed.contains(wanted) {
            return Err(broken(format!("{wanted} is not in the manifest")));
        }
        // The file of the first authority or of a later one.
        let is_authority = |name: &String| name.starts_with(&format!("{KEYS}/authority")) && name.ends_with(".pem");
        if !listed.iter().any(is_authority) {
            return Err(broken(format!("{KEYS}/authority.pem is not in the manifest")));
        }
        for (name, listed) in &manifest.files {
            if entry(&folder.join(name))? != *listed {
                return Err(broken(format!(
                    "{name} differs from the file that was backed up: its digest is different"
                )));
            }
        }
        Ok(manifest)
    }
}

/// The facts in a manifest other than its files.
pub struct ManifestFacts<'a> {
    /// Time of the backup, as in its name.
    pub taken: &'a str,
    /// Name of the site.
    pub site: &'a str,
    /// Kind of the database.
    pub kind: Kind,
    /// Identity, age and schema of the database.
    pub found: rackwright_store::DatabaseSite,
}

fn entry(path: &Path) -> Result<Entry, BackupError> {
    let (digest, bytes) = digest_of(path).map_err(failed(path))?;
    Ok(Entry { bytes, digest })
}

/// Names of the regular files in a backup, except the manifest. Other entries, such as links, are refused.
fn names(folder: &Path) -> Result<BTreeSet<String>, BackupError> {
    let mut names = BTreeSet::new();
    for (below, prefix) in [(folder.to_owned(), ""), (folder.join(KEYS), "keys/")] {
        for path in entries(&below)? {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let kind = fs::symlink_metadata(&path).map_err(failed(&path))?.file_type();
            match (prefix, name.as_str()) {
                ("", FILE) => {}
                ("", KEYS) if kind.is_dir() => {}
                _ if kind.is_file() => drop(names.insert(format!("{prefix}{name}"))),
                _ => {
                    return Err(BackupError::Broken {
                        folder: folder.to_owned(),
                        fault: format!("{prefix}{name} is not a regular file"),
                    });
                }
            }
        }
    }
    Ok(names)
}

fn entries(folder: &Path) -> Result<Vec<PathBuf>, BackupError> {
    let entries = fs::read_dir(folder).map_err(failed(folder))?;
    entries.map(|entry| Ok(entry.map_err(failed(folder))?.path())).collect()
}
