//! Creation of a backup.

#![expect(clippy::disallowed_methods, reason = "a command, and no daemon")]

use std::fs::{self, DirBuilder};
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rackwright_ground::audit::local;
use rackwright_ground::clock;
use rackwright_ground::config::Config;
use rackwright_ground::local_user::LocalUser;
use rackwright_identity::{KeyFiles, LockedKeys, SystemRng};
use rackwright_lifecycle::EventKind;
use rackwright_store::{Database, DatabaseSite, EventRow, Store};

use super::manifest::{FILE, Kind, Manifest, ManifestFacts};
use super::{BackupError, KEYS, failed, stamp};

/// Backs the site up into a new folder below `to`, while daemons run. Returns lines for the terminal.
///
/// # Errors
/// [`BackupError`]; no part of the backup remains.
pub async fn create(config: &Config, to: &Path) -> Result<String, BackupError> {
    let site = config.database.site().await?;
    check_schema(&site)?;
    let taken = stamp(clock::now());
    let target = to.join(format!("rackwright-backup-{taken}"));
    record_backup(config, &target).await?;
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(to)
        .map_err(failed(to))?;
    let partial = Partial::new(to.join(format!(".rackwright-backup-{taken}.partial")))?;
    let folder = &partial.0;
    let kind = Kind::of(&config.database);
    let found = copy(config, kind, folder).await?;
    let facts = ManifestFacts {
        taken: &taken,
        site: &config.site,
        kind,
        found,
    };
    let manifest = Manifest::of(folder, facts)?;
    write_manifest(folder, &manifest)?;
    partial.finish(&target)?;
    let bytes: u64 = manifest.files.values().map(|entry| entry.bytes).sum();
    Ok(format!(
        "{}: {} files, {bytes} bytes\n\
         This folder gives access to every secret of the site: protect it like the key folder.\n\
         Images, firmware files and console records are not in the backup; they are below {}.\n",
        target.display(),
        manifest.files.len() + 1,
        config.shared_dir.display()
    ))
}

pub(super) fn check_schema(site: &DatabaseSite) -> Result<(), BackupError> {
    let known = Database::newest_schema();
    match site.schema == known {
        true => Ok(()),
        false => Err(BackupError::Schema {
            found: site.schema,
            known,
        }),
    }
}

/// Stores an audit record and an event, because a backup contains every secret.
async fn record_backup(config: &Config, target: &Path) -> Result<(), BackupError> {
    let set = config.data_dir.join(KEYS);
    let keys = KeyFiles::read_set(&set, Arc::new(SystemRng))?;
    check_authority(&config.database.site().await?, &keys, &set)?;
    let store = Store::open(config.database.clone()).await?;
    let what = ("backup", "site", &*target.display().to_string());
    local::record(config, &keys, &store, &LocalUser::present(), what).await?;
    let mut tx = store.write().await?;
    tx.add_event(&EventRow {
        at: clock::now(),
        kind: EventKind::SecurityBackedUp,
        target: "site".into(),
        message: format!(
            "a backup of database and keys is taken on the control plane's host: {}",
            target.display()
        ),
        ..EventRow::default()
    })
    .await?;
    tx.commit().await?;
    store.close().await;
    Ok(())
}

/// Copies database and keys. The key folder is locked meanwhile, so the copied keys match the secrets in the database.
async fn copy(config: &Config, kind: Kind, folder: &Path) -> Result<DatabaseSite, BackupError> {
    let data_dir = config.data_dir.clone();
    let locked = tokio::task::spawn_blocking(move || LockedKeys::of(&data_dir)).await;
    let keys = locked.map_err(|error| failed(&config.data_dir)(std::io::Error::other(error)))??;
    let database = folder.join(kind.file());
    config.database.back_up(&database).await?;
    // An SQLite file contains the age of its copy. For a server's archive the age is read after the copy: an upper
    // bound, so a restore doubts more, not less.
    let found = match kind {
        Kind::Sqlite => Database::from(&database).site().await?,
        Kind::Postgresql => config.database.site().await?,
    };
    let set = folder.join(KEYS);
    keys.copy_to(&set)?;
    let copied = KeyFiles::read_set(&set, Arc::new(SystemRng))?;
    check_authority(&found, &copied, &config.data_dir.join(KEYS))?;
    Ok(found)
}

pub(super) fn check_authority(found: &DatabaseSite, keys: &KeyFiles, folder: &Path) -> Result<(), BackupError> {
    let ours = keys.authority.site_id();
    match found.authority == ours {
        true => Ok(()),
        false => Err(BackupError::OtherSite {
            database: found.authority.clone(),
            keys: ours,
            folder: folder.to_owned(),
        }),
    }
}

fn write_manifest(folder: &Path, manifest: &Manifest) -> Result<(), BackupError> {
    let path = folder.join(FILE);
    let mut options = fs::OpenOptions::new();
    let file = options.write(true).create_new(true).mode(0o600).open(&path);
    let mut file = file.map_err(failed(&path))?;
    let text = serde_json::to_vec_pretty(manifest).map_err(|error| failed(&path)(error.into()))?;
    file.write_all(&text)
        .and_then(|()| file.sync_all())
        .map_err(failed(&path))
}

/// A folder that is removed on drop, unless the backup was finished.
struct Partial(PathBuf);

impl Partial {
    fn new(path: PathBuf) -> Result<Self, BackupError> {
        DirBuilder::new().mode(0o700).create(&path).map_err(failed(&path))?;
        Ok(Self(path))
    }

    fn finish(&self, target: &Path) -> Result<(), BackupError> {
        let synced = fs::File::open(&self.0).and_then(|folder| folder.sync_all());
        synced.map_err(failed(&self.0))?;
        fs::rename(&self.0, target).map_err(failed(target))?;
        let parent = target.parent().unwrap_or(Path::new("."));
        let synced = fs::File::open(parent).and_then(|folder| folder.sync_all());
        synced.map_err(failed(parent))
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
