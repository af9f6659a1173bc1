//! The rotation of the site's authority in a running daemon.
//!
//! The daemon loads the next authority from its key folder, uses it for client certificates once every live replica trusts
//! it, and drops the former authority after the database marks the rotation as ended. Connections with a certificate of a
//! dropped authority are closed.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rackwright_identity::{Authorities, KeyFileError, KeyFiles, SystemRng};
use rackwright_store::{ReplicaKeys, Store, StoreError};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::core::Core;

/// The keys of this replica do not fit the site's authority.
#[derive(Debug, thiserror::Error)]
pub enum AuthorityError {
    /// The site's authority was changed, and this replica has only older ones.
    #[error(
        "the authority of this site is {needed}, and {} does not contain this authority: copy the folder from another \
         rackwrightd of the site, or from the backup made after the last rotation",
        keys.display()
    )]
    Old {
        /// The SHA-256 of the needed authority.
        needed: String,
        /// The folder of the keys.
        keys: PathBuf,
    },
    /// The key folder cannot be changed.
    #[error("keys in {}: {source}", folder.display())]
    Keys {
        /// Its path.
        folder: PathBuf,
        /// The reason.
        #[source]
        source: KeyFileError,
    },
    /// The database failed.
    #[error(transparent)]
    Database(#[from] StoreError),
}

/// Notifies the users of an authority about the rotation.
#[derive(Debug)]
pub struct AuthorityChanges {
    /// Changes when another authority signs client or server certificates.
    changed: watch::Sender<u64>,
    /// For each authority, the token that ends the connections with its certificates.
    ends: Mutex<HashMap<String, CancellationToken>>,
}

impl Default for AuthorityChanges {
    fn default() -> Self {
        Self {
            changed: watch::Sender::new(0),
            ends: Mutex::default(),
        }
    }
}

impl AuthorityChanges {
    /// Changes when another authority signs client or server certificates.
    pub fn watch(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    fn ends(&self) -> MutexGuard<'_, HashMap<String, CancellationToken>> {
        self.ends.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The token that ends a connection with this certificate: cancelled when its authority is no longer trusted.
    #[must_use]
    pub fn end_of(&self, authorities: &Authorities, certificate: &[u8]) -> CancellationToken {
        let Some(issuer) = authorities.issuer_of(certificate) else {
            let ended = CancellationToken::new();
            ended.cancel();
            return ended;
        };
        let end = self.ends().entry(issuer.clone()).or_default().clone();
        // The authority may have been dropped, and its connections closed, since the check above.
        if !authorities.trusted().contains(&issuer) {
            end.cancel();
        }
        end
    }

    /// Closes the connections with certificates of authorities that are no longer trusted.
    fn end_others(&self, trusted: &[String]) {
        self.ends().retain(|authority, end| {
            let stays = trusted.contains(authority);
            if !stays {
                end.cancel();
            }
            stays
        });
    }
}

/// Applies a change of the loaded authorities.
pub(super) fn note_taken_up(core: &Core) {
    core.authority_changes.end_others(&core.keys.authority.trusted());
    core.authority_changes.changed.send_modify(|count| *count += 1);
}

/// Lets the next authority sign client certificates if every other live replica trusts it. Returns the replicas that do
/// not, and whether the next authority signs from now on.
pub(super) fn agree(authorities: &Authorities, replica: &str, live: &[ReplicaKeys]) -> (Vec<String>, bool) {
    let Some(next) = authorities.next() else {
        return (Vec::new(), false);
    };
    let others = live.iter().filter(|other| other.replica != replica);
    let lacking = others.filter(|other| !other.authorities.contains(&next));
    let lacking: Vec<String> = lacking.map(|other| other.replica.clone()).collect();
    let is_new = lacking.is_empty() && authorities.use_issuer(&next);
    (lacking, is_new)
}

/// Drops the authorities before the one that the last rotation ended with. Called before the daemon serves anything.
///
/// # Errors
/// The key folder does not have that authority, or cannot be changed; or the database failed.
pub async fn begin(store: &Store, keys: &KeyFiles, data_dir: &std::path::Path) -> Result<(), AuthorityError> {
    let needed = store.required_authority().await?;
    if needed.is_empty() {
        return Ok(());
    }
    let folder = data_dir.join("keys");
    if !keys.authority.has_authority(&needed) {
        return Err(AuthorityError::Old { needed, keys: folder });
    }
    retire(keys, data_dir, &needed)
        .map(drop)
        .map_err(|source| AuthorityError::Keys { folder, source })
}

/// Destroys the keys of authorities before `needed`, and stops trusting them. Returns whether there were any.
fn retire(keys: &KeyFiles, data_dir: &std::path::Path, needed: &str) -> Result<bool, KeyFileError> {
    if keys.authority.next().as_deref() != Some(needed) {
        return Ok(false);
    }
    KeyFiles::retire_authorities(data_dir, needed, Arc::new(SystemRng))?;
    keys.refresh(data_dir)?;
    Ok(true)
}

/// Ends the rotation in this process if the database marks it as ended.
pub(super) async fn follow(core: &Arc<Core>) {
    let needed = match core.store.required_authority().await {
        Ok(needed) => needed,
        Err(error) => {
            tracing::warn!(%error, "the state of the rotation of the authority cannot be read");
            return;
        }
    };
    if needed.is_empty() || core.keys.authority.trusted() == [needed.clone()] {
        return;
    }
    if !core.keys.authority.has_authority(&needed) {
        tracing::error!(
            needed,
            "the site's authority was changed, and the key folder here does not contain the new authority: copy the \
             folder from another rackwrightd of the site"
        );
        return;
    }
    let own = core.clone();
    let (dir, authority) = (core.config.data_dir.clone(), needed.clone());
    match tokio::task::spawn_blocking(move || retire(&own.keys, &dir, &authority)).await {
        Ok(Ok(true)) => {
            tracing::info!(
                authority = needed,
                "the former authority is no longer trusted, and its key is removed"
            );
            note_taken_up(core);
        }
        Ok(Ok(false)) => {}
        Ok(Err(error)) => tracing::error!(%error, "the key of the former authority cannot be removed"),
        Err(error) => tracing::error!(%error, "the key of the former authority was not removed"),
    }
}
