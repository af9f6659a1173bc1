//! Restoring a backup.

#![expect(clippy::disallowed_methods, reason = "a command, and no daemon")]

use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rackwright_ground::audit::local;
use rackwright_ground::clock;
use rackwright_ground::config::Config;
use rackwright_ground::local_user::LocalUser;
use rackwright_ground::start::{lock, restored};
use rackwright_identity::{KeyFiles, SystemRng};
use rackwright_store::{BackupError as CopyError, DatabaseSite, Store};

use super::create::{check_authority, check_schema};
use super::manifest::{Kind, Manifest};
use super::{BackupError, KEYS, failed, stamp};

/// Restores a backup to the place that the settings name. With `replace`, an existing site is moved aside. Returns
/// lines for the terminal.
///
/// # Errors
/// [`BackupError`]. All errors that can be detected in advance occur before the first change.
pub async fn restore(config: &Config, from: &Path, replace: bool) -> Result<String, BackupError> {
    let (keys, manifest) = checked(config, from)?;
    let data_dir = &config.data_dir;
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(data_dir)
        .map_err(failed(data_dir))?;
    // Held until the end, so no daemon starts on a half-restored site.
    let _lock = lock::take(&config.database, &keys.authority.site_id(), false)?;
    let present = present(config).await?;
    let is_occupied = present.is_some() || data_dir.join(KEYS).exists();
    if is_occupied && !replace {
        return Err(BackupError::Occupied(data_dir.display().to_string()));
    }
    let former_dir = data_dir.join(format!("before-restore-{}", stamp(clock::now())));
    if is_occupied {
        DirBuilder::new()
            .mode(0o700)
            .create(&former_dir)
            .map_err(failed(&former_dir))?;
    }
    // Stored first: after a failure of any later step, the next start still doubts every node.
    let expected = restored::expect_newer(data_dir, &manifest.database_id, manifest.age);
    expected.map_err(failed(data_dir))?;
    put_database(
        config,
        from,
        &manifest,
        present.is_some().then_some(former_dir.as_path()),
    )
    .await?;
    let set = data_dir.join(KEYS);
    if set.exists() {
        fs::rename(&set, former_dir.join(KEYS)).map_err(failed(&set))?;
    }
    KeyFiles::install_set(&from.join(KEYS), data_dir, &SystemRng)?;
    let store = Store::open(config.database.clone()).await?;
    let what = format!("the backup of {} is restored", manifest.taken);
    local::record(config, &keys, &store, &LocalUser::present(), ("restore", "site", &what)).await?;
    store.close().await;
    let moved = match is_occupied {
        true => format!("The former site is in {}.\n", former_dir.display()),
        false => String::new(),
    };
    Ok(format!(
        "The backup of {} of site {} is restored.\n{moved}\
         Start rackwrightd: every node is doubted, and no operation runs on a doubted node. `rackwright node explain` says \
         how to resolve each doubt.\n\
         A BMC password that was changed since the backup is only in a newer backup or in the BMC.\n",
        manifest.taken, manifest.site
    ))
}

/// Checks the backup before any change.
fn checked(config: &Config, from: &Path) -> Result<(KeyFiles, Manifest), BackupError> {
    let manifest = Manifest::checked(from)?;
    let settings = Kind::of(&config.database);
    if manifest.database != settings {
        return Err(BackupError::OtherKind {
            backup: manifest.database.name(),
            settings: settings.name(),
        });
    }
    let backup_site = DatabaseSite {
        authority: manifest.authority.clone(),
        id: manifest.database_id.clone(),
        age: manifest.age,
        schema: manifest.schema,
    };
    check_schema(&backup_site)?;
    let set = from.join(KEYS);
    let keys = KeyFiles::read_set(&set, Arc::new(SystemRng))?;
    check_authority(&backup_site, &keys, &set)?;
    Ok((keys, manifest))
}

/// The site in the present database; `None` if the database is empty or missing.
async fn present(config: &Config) -> Result<Option<DatabaseSite>, BackupError> {
    match config.database.site().await {
        Ok(site) => Ok(Some(site)),
        Err(CopyError::NoSite(_)) if config.database.file().is_some_and(Path::exists) => {
            // An unreadable file is still moved aside, not overwritten.
            Ok(Some(DatabaseSite {
                authority: String::new(),
                id: String::new(),
                age: 0,
                schema: 0,
            }))
        }
        Err(CopyError::NoSite(_)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Puts the database in place; the former one moves to the folder `former_dir`.
async fn put_database(
    config: &Config,
    from: &Path,
    manifest: &Manifest,
    former_dir: Option<&Path>,
) -> Result<(), BackupError> {
    let copy = from.join(manifest.database.file());
    let Some(file) = config.database.file() else {
        if let Some(former_dir) = former_dir {
            config
                .database
                .back_up(&former_dir.join(manifest.database.file()))
                .await?;
        }
        return Ok(config.database.put_back(&copy).await?);
    };
    let new = with_ending(file, ".restored");
    let copied = fs::copy(&copy, &new).and_then(|_| fs::File::open(&new)?.sync_all());
    copied.map_err(failed(&new))?;
    if let Some(former_dir) = former_dir {
        // The write-ahead log belongs to the file. If it stayed, SQLite would apply it to the restored file.
        for part in ["", "-wal", "-shm"].map(|ending| with_ending(file, ending)) {
            if part.exists() {
                let name = part.file_name().unwrap_or_default();
                fs::rename(&part, former_dir.join(name)).map_err(failed(&part))?;
            }
        }
    }
    fs::rename(&new, file).map_err(failed(file))?;
    let parent = file.parent().unwrap_or(Path::new("."));
    let synced = fs::File::open(parent).and_then(|folder| folder.sync_all());
    synced.map_err(failed(parent))
}

fn with_ending(file: &Path, ending: &str) -> PathBuf {
    let mut path = file.as_os_str().to_owned();
    path.push(ending);
    path.into()
}
