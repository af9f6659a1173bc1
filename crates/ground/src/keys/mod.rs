//! The keys of a running daemon: it loads new keys from its key folder, agrees with other replicas on the sealing key and
//! the authority to use, and reseals secrets that are under another key. An operator begins and ends a rotation with
//! `rotate` and `rotate_ca`.

pub mod authority;
pub mod purposes;
mod reseal;
pub mod rotate;
pub mod rotate_ca;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use rackwright_identity::KeyFiles;
use rackwright_lifecycle::EventKind;
use rackwright_store::{ReplicaKeys, Store, StoreError};

use crate::clock;
use crate::core::Core;
use crate::share::alive_since;

/// Time between two reads of the key folder.
const ROUND: Duration = Duration::from_secs(20);
/// Rounds between two searches for older seals, once every secret was checked.
const IDLE_ROUNDS: u32 = 30;
/// Rows resealed in one change.
const BATCH: i64 = 20;

/// The agreement of the replicas.
#[derive(Debug, Default)]
pub struct KeyAgreement {
    /// Replicas without the newest sealing key.
    pub lack_key: Vec<String>,
    /// Replicas that do not trust the next authority.
    pub lack_authority: Vec<String>,
    /// Whether the next authority signs client certificates from this round on.
    pub issues_anew: bool,
}

/// Stores the keys of this replica. Seals with the newest sealing key of all live replicas, because each replica must be
/// able to open the others' secrets. Issues client certificates with the newest authority that all of them trust.
/// `seals_with` is the key that this replica is known to use; empty: unknown yet.
pub async fn agree(
    store: &Store,
    keys: &KeyFiles,
    replica: &str,
    seals_with: String,
) -> Result<KeyAgreement, StoreError> {
    let sealer = &keys.sealer;
    let own = ReplicaKeys {
        replica: replica.to_owned(),
        keys: sealer.key_ids(),
        seals_with,
        authorities: keys.authority.trusted(),
        issues_with: keys.authority.issues_with(),
    };
    store.put_replica_keys(&own).await?;
    let live = store.replica_keys(alive_since(clock::now())).await?;
    let others = || live.iter().filter(|other| other.replica != replica);
    let shared = own.keys.iter().find(|id| others().all(|other| other.keys.contains(id)));
    if let Some(id) = shared {
        sealer.use_sealing_key(id);
    }
    let newest = own.keys.first();
    let lacking = others().filter(|other| newest.is_some_and(|newest| !other.keys.contains(newest)));
    let lack_key = lacking.map(|other| other.replica.clone()).collect();
    let (lack_authority, issues_anew) = authority::agree(&keys.authority, replica, &live);
    if issues_anew {
        let issues_with = keys.authority.issues_with();
        store.put_replica_keys(&ReplicaKeys { issues_with, ..own }).await?;
    }
    Ok(KeyAgreement {
        lack_key,
        lack_authority,
        issues_anew,
    })
}

/// What was already reported, and when to search again.
#[derive(Debug, Default)]
struct ReportedState {
    /// The key under which everything is sealed.
    done: String,
    /// The key for which every secret was checked. Secrets that cannot be opened remain.
    looked: String,
    /// Replicas without the newest key.
    lacking: Vec<String>,
    /// Replicas that do not trust the next authority.
    lack_authority: Vec<String>,
    idle: u32,
}

/// Runs until the core stops.
pub async fn run(core: Arc<Core>) {
    let mut reported = ReportedState::default();
    loop {
        take_up(&core).await;
        authority::follow(&core).await;
        if let Err(error) = round(&core, &mut reported).await {
            tracing::warn!(%error, "not all secrets were sealed again; the next round continues");
        }
        tokio::select! {
            () = core.stop.cancelled() => return,
            () = tokio::time::sleep(ROUND) => {}
        }
    }
}

/// Loads keys that were added to the folder.
async fn take_up(core: &Arc<Core>) {
    let (own, dir) = (core.clone(), core.config.data_dir.clone());
    match tokio::task::spawn_blocking(move || own.keys.refresh(&dir)).await {
        Ok(Ok(new)) => {
            if !new.is_empty() {
                authority::note_taken_up(core);
            }
            for key in new {
                tracing::info!("{key} is loaded");
            }
        }
        Ok(Err(error)) => tracing::error!(%error, "the key folder cannot be read; the former keys stay in use"),
        Err(error) => tracing::error!(%error, "the key folder was not read"),
    }
}

async fn round(core: &Arc<Core>, reported: &mut ReportedState) -> Result<(), StoreError> {
    let sealer = &core.keys.sealer;
    // This key has been in use since the last round at least, so everything sealed with another key is stored by now.
    let agreed = agree(&core.store, &core.keys, &core.replica, sealer.seals_with()).await?;
    if agreed.issues_anew {
        authority::note_taken_up(core);
        tracing::info!(
            authority = core.keys.authority.issues_with(),
            "the next authority signs client certificates"
        );
    }
    if !agreed.lack_authority.is_empty() && reported.lack_authority != agreed.lack_authority {
        tracing::warn!(
            replicas = agreed.lack_authority.join(", "),
            "the next authority is not used until these replicas trust it: copy its file to their key folders"
        );
    }
    reported.lack_authority = agreed.lack_authority;
    let mut lacking = agreed.lack_key;
    if sealer.key_ids().len() < 2 {
        // A replica of an older version does not report its keys.
        lacking.clear();
    }
    if !lacking.is_empty() && reported.lacking != lacking {
        tracing::warn!(
            replicas = lacking.join(", "),
            "the newest sealing key is not used until these replicas have it: copy its file to their key folders"
        );
    }
    reported.lacking = lacking;
    let (keys, present) = (sealer.key_ids(), sealer.seals_with());
    if keys.len() < 2 || keys.first() != Some(&present) {
        return Ok(());
    }
    if reported.looked == present {
        reported.idle += 1;
        if !reported.idle.is_multiple_of(IDLE_ROUNDS) {
            return Ok(());
        }
    }
    let done = reseal::all(core, BATCH).await?;
    if done.resealed > 0 {
        tracing::info!(resealed = done.resealed, key = present, "secrets were sealed again");
    }
    reported.looked.clone_from(&present);
    if done.failed > 0 || reported.done == present {
        return Ok(());
    }
    let message = format!(
        "all secrets are sealed with key {present}; `rackwrightd rotate-keys sealing --finish` removes the older keys"
    );
    core.event(EventKind::SecuritySecretsResealed, "site", &message).await;
    reported.done = present;
    Ok(())
}
