//! `rackwrightd rotate-keys`: changes a key of the site, on the control plane's own host, with or without a running daemon.

use std::path::PathBuf;
use std::sync::Arc;

use rackwright_identity::{KeyFileError, KeyFiles, OldSealingKeys, SystemRng, seal_header};
use rackwright_lifecycle::EventKind;
use rackwright_store::{BackupError, EventRow, Store, StoreError};

use crate::audit::local::{self, LocalError};
use crate::clock;
use crate::config::Config;
use crate::local_user::LocalUser;
use crate::share::alive_since;

/// Most members and agents named in a message.
const NAMES_SHOWN: usize = 20;

/// Why a key is not changed.
#[derive(Debug, thiserror::Error)]
pub enum RotateError {
    /// The database failed.
    #[error("the database does not answer, so no event can be stored and nothing can be checked")]
    Store(#[from] StoreError),
    /// This host has no keys of a control plane.
    #[error("{} is not a folder: run this command on a host with the keys of a control plane", .0.display())]
    NoKeys(PathBuf),
    /// The audit failed.
    #[error(transparent)]
    Audit(#[from] LocalError),
    /// The keys cannot be read or written.
    #[error(transparent)]
    Keys(#[from] KeyFileError),
    /// The database cannot be read.
    #[error(transparent)]
    Unread(#[from] BackupError),
    /// The database has no site.
    #[error(
        "the database {0} contains no site, so it has no keys to change, and nothing was changed: name the right --config"
    )]
    NoSite(String),
    /// The keys belong to another site than the database.
    #[error(
        "the database belongs to another site: its authority is {site}, and the keys in {} belong to authority {ours}",
        keys.display()
    )]
    OtherSite {
        /// The authority of the database's site.
        site: String,
        /// The authority of the keys.
        ours: String,
        /// The folder of the keys.
        keys: PathBuf,
    },
    /// There is no older key to remove.
    #[error("there is one sealing key, so there is no older one to remove; `rackwrightd rotate-keys sealing` adds one")]
    NoOlder,
    /// Secrets are still sealed under an older key.
    #[error(
        "{left} secrets are still sealed with older keys and would be lost; a running rackwrightd seals them again \
         within minutes, and its log names secrets that cannot be opened"
    )]
    InUse {
        /// Number of those secrets.
        left: i64,
    },
    /// The reason is missing or not valid.
    #[error("--reason is needed: 1 to 1000 characters without line breaks")]
    NoReason,
    /// The end of the last rotation cannot be applied.
    #[error("{0}")]
    Start(String),
    /// No rotation of the authority is under way.
    #[error("no rotation of the authority is under way; `rackwrightd rotate-keys ca --reason TEXT` begins one")]
    NoRotation,
    /// Replicas that do not issue client certificates with the next authority yet.
    #[error(
        "these replicas do not use the next authority yet: {}; a replica uses it within a minute after the file of the \
         authority is in the key folder of every replica",
        .0.join(", ")
    )]
    AuthorityBehind(Vec<String>),
    /// Members and agents that would be locked out.
    #[error(
        "these members and nodes have no certificate of the next authority yet: {}; a member gets a certificate with the \
         next command of `rackwright`, an agent within a minute; `--leave-behind` ends the rotation without them: then \
         such a member needs a new token, and such a machine boots again",
        list(.0)
    )]
    LeftBehind(Vec<String>),
    /// Replicas that may seal with an older key.
    #[error(
        "these replicas do not seal with the newest key yet: {}; a replica seals with it within a minute after the key's \
         file is in the key folder of every replica",
        .0.join(", ")
    )]
    Behind(Vec<String>),
}

/// The first names of a list, and the number of the others.
fn list(names: &[String]) -> String {
    let shown = names.len().min(NAMES_SHOWN);
    let first = names[..shown].join(", ");
    match names.len() - shown {
        0 => first,
        more => format!("{first} and {more} more"),
    }
}

pub(super) async fn open(config: &Config) -> Result<(KeyFiles, Store), RotateError> {
    let folder = config.data_dir.join("keys");
    if !folder.is_dir() {
        return Err(RotateError::NoKeys(folder));
    }
    // Read before the database is opened, which would make its tables.
    let site = config.database.authority().await?;
    let site = site.ok_or_else(|| RotateError::NoSite(config.database.to_string()))?;
    let now = clock::system_time(clock::now());
    let keys = KeyFiles::load_or_create(&config.data_dir, "", now, Arc::new(SystemRng))?;
    let ours = keys.authority.site_id();
    if site != ours {
        let keys = folder;
        return Err(RotateError::OtherSite { site, ours, keys });
    }
    Ok((keys, Store::open(config.database.clone()).await?))
}

pub(super) fn event(message: &str) -> EventRow {
    EventRow {
        at: clock::now(),
        kind: EventKind::SecurityKeysRotated,
        target: "site".into(),
        message: message.to_owned(),
        ..EventRow::default()
    }
}

pub(super) async fn record(config: &Config, keys: &KeyFiles, store: &Store, message: &str) -> Result<(), LocalError> {
    local::record(
        config,
        keys,
        store,
        &LocalUser::present(),
        ("rotate-keys", "site", message),
    )
    .await
}

pub(super) async fn write_down(store: &Store, message: &str) -> Result<(), StoreError> {
    let mut tx = store.write().await?;
    tx.add_event(&event(message)).await?;
    tx.commit().await
}

/// Adds a sealing key after an event about it was stored. Returns the next steps for the operator.
///
/// # Errors
/// [`RotateError`]. Without the event, no key is made.
pub async fn sealing(config: &Config) -> Result<String, RotateError> {
    let (keys, store) = open(config).await?;
    record(config, &keys, &store, "a sealing key is added").await?;
    write_down(&store, "a new sealing key is made on the control plane's host").await?;
    let (file, id) = KeyFiles::rotate_sealing_key(&config.data_dir, &SystemRng)?;
    store.close().await;
    Ok(format!(
        "sealing key {id} was added: {}\n\
         1. Back up the key folder. With several rackwrightd, copy the file to the key folder of each, with owner and mode.\n\
         2. Each running rackwrightd loads the key within a minute and seals all secrets again. The event\n   \
         security.secrets-resealed reports the end; a stopped rackwrightd does this after its next start.\n\
         3. rackwrightd rotate-keys sealing --finish   # on each host: removes the older keys when nothing needs them\n",
        file.display()
    ))
}

/// Removes the older sealing keys if no secret is sealed under them, after an event about it was stored.
///
/// # Errors
/// [`RotateError`]. Then all keys are still there.
pub async fn finish_sealing(config: &Config) -> Result<String, RotateError> {
    let (keys, store) = open(config).await?;
    let old = OldSealingKeys::of(&config.data_dir)?;
    if old.files().is_empty() {
        return Err(RotateError::NoOlder);
    }
    let newest = old.newest().to_owned();
    let live = store.replica_keys(alive_since(clock::now())).await?;
    let behind = live.into_iter().filter(|one| one.seals_with != newest);
    let behind: Vec<String> = behind.map(|one| one.replica).collect();
    if !behind.is_empty() {
        return Err(RotateError::Behind(behind));
    }
    record(
        config,
        &keys,
        &store,
        "older sealing keys are removed if nothing needs them",
    )
    .await?;
    let mut tx = store.write().await?;
    let header = seal_header(&newest).unwrap_or_default();
    let left = tx.count_to_reseal(&header).await?;
    if left > 0 {
        return Err(RotateError::InUse { left });
    }
    tx.require_sealing_key(&newest).await?;
    let count = old.files().len();
    let message = format!("{count} older sealing keys are removed on the control plane's host; {newest} stays");
    tx.add_event(&event(&message)).await?;
    tx.commit().await?;
    old.remove()?;
    store.close().await;
    Ok(format!(
        "{count} older sealing keys were removed; sealing key {newest} stays. Earlier backups of the key folder still \
         contain the older keys.\n"
    ))
}

/// Adds a signing key and retires the present one, after an event about it was stored. Returns the next steps for the
/// operator.
///
/// # Errors
/// [`RotateError`]. Without the event, no key is made.
pub async fn signing(config: &Config) -> Result<String, RotateError> {
    let (keys, store) = open(config).await?;
    record(config, &keys, &store, "a signing key is added").await?;
    write_down(&store, "a new signing key is made on the control plane's host").await?;
    let (file, key) = KeyFiles::rotate_signing_key(&config.data_dir, &SystemRng)?;
    store.close().await;
    let (number, public_key) = (key.number, hex(&key.public_key));
    Ok(format!(
        "signing key {number} was added: {}\n\
         public key {public_key}, signed by the previous key\n\
         1. Back up the key folder. With several rackwrightd, copy it to each, with owner and modes.\n\
         2. Each running rackwrightd signs with it within a minute. Certificates of older keys stay valid.\n",
        file.display()
    ))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
