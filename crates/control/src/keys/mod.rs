//! The keys of a running daemon: it takes up new ones from its key folder, agrees with other replicas which sealing key is
//! used, and seals anew what is under another one. `rotate` is what an operator begins and ends that with.

mod reseal;
pub mod rotate;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use rackwright_identity::Sealer;
use rackwright_store::{ReplicaKeys, Store, StoreError};

use crate::clock;
use crate::core::Core;
use crate::replicas::alive_since;

/// Between looks into the key folder.
const ROUND: Duration = Duration::from_secs(20);
/// Rounds between looks for older seals once all were looked at.
const IDLE_ROUNDS: u32 = 30;
/// Rows that are sealed anew with one change.
const BATCH: i64 = 20;

/// Says which sealing keys this replica has, and seals with the newest one that all replicas have from now on: what one has
/// sealed, any other must be able to open. `seals_with` is what others are told that this replica uses; empty: nothing is
/// sure yet. Answers with the replicas that lack the newest key.
///
/// # Errors
/// The database failed.
pub async fn agree(
    store: &Store,
    sealer: &Sealer,
    replica: &str,
    seals_with: String,
) -> Result<Vec<String>, StoreError> {
    let own = ReplicaKeys {
        replica: replica.to_owned(),
        keys: sealer.key_ids(),
        seals_with,
    };
    store.put_replica_keys(&own).await?;
    let live = store.replica_keys(alive_since(clock::now())).await?;
    let others = || live.iter().filter(|other| other.replica != replica);
    let shared = own.keys.iter().find(|id| others().all(|other| other.keys.contains(id)));
    if let Some(id) = shared {
        sealer.seal_with(id);
    }
    let newest = own.keys.first();
    let lacking = others().filter(|other| newest.is_some_and(|newest| !other.keys.contains(newest)));
    Ok(lacking.map(|other| other.replica.clone()).collect())
}

/// What has been told already, and when to look again.
#[derive(Debug, Default)]
struct Told {
    /// The key under which everything is.
    done: String,
    /// The key for which every secret was looked at. Those that do not open are left then.
    looked: String,
    /// The replicas that lack the newest key.
    lacking: Vec<String>,
    idle: u32,
}

/// Runs until the core stops.
pub async fn run(core: Arc<Core>) {
    let mut told = Told::default();
    loop {
        take_up(&core).await;
        if let Err(error) = round(&core, &mut told).await {
            tracing::warn!(%error, "secrets were not all sealed anew; the next round goes on");
        }
        tokio::select! {
            () = core.stop.cancelled() => return,
            () = tokio::time::sleep(ROUND) => {}
        }
    }
}

/// Takes up keys that were added to the folder.
async fn take_up(core: &Arc<Core>) {
    let (own, dir) = (core.clone(), core.config.data_dir.clone());
    match tokio::task::spawn_blocking(move || own.keys.refresh(&dir)).await {
        Ok(Ok(new)) => {
            for key in new {
                tracing::info!("{key} is taken up");
            }
        }
        Ok(Err(error)) => tracing::error!(%error, "the key folder cannot be read; the keys of before are used"),
        Err(error) => tracing::error!(%error, "the key folder was not read"),
    }
}

async fn round(core: &Arc<Core>, told: &mut Told) -> Result<(), StoreError> {
    let sealer = &core.keys.sealer;
    // Used since the last round at least: what was sealed with another key before is stored by now.
    let mut lacking = agree(&core.store, sealer, &core.replica, sealer.seals_with()).await?;
    if sealer.key_ids().len() < 2 {
        // A replica of an older version tells none.
        lacking.clear();
    }
    if !lacking.is_empty() && told.lacking != lacking {
        tracing::warn!(
            replicas = lacking.join(", "),
            "the newest sealing key is not used before these have it: copy its file to their key folders"
        );
    }
    told.lacking = lacking;
    let (keys, present) = (sealer.key_ids(), sealer.seals_with());
    if keys.len() < 2 || keys.first() != Some(&present) {
        return Ok(());
    }
    if told.looked == present {
        told.idle += 1;
        if !told.idle.is_multiple_of(IDLE_ROUNDS) {
            return Ok(());
        }
    }
    let done = reseal::all(core, BATCH).await?;
    if done.resealed > 0 {
        tracing::info!(resealed = done.resealed, key = present, "secrets were sealed anew");
    }
    told.looked.clone_from(&present);
    if done.failed > 0 || told.done == present {
        return Ok(());
    }
    let message = format!(
        "all secrets are sealed under key {present}; `rackwrightd rotate-keys sealing --finish` removes the older keys"
    );
    core.event("security.secrets-resealed", "site", &message).await;
    told.done = present;
    Ok(())
}
