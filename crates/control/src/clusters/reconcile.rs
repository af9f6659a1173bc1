//! Brings partitions to the fabric: one replica at a time, after every change and at intervals.

use std::sync::Arc;
use std::time::Duration;

use rackwright_fabric::{FabricManager, Proof};
use rackwright_lifecycle::{EventKind, Timestamp, seconds};
use rackwright_store::{EventRow, StoreError};

use super::manager::Settings;
use super::partitions::Fabric;
use super::watch;
use crate::clock;
use crate::core::Core;
use crate::text::{chain, counted};

/// Between two checks for changes by other replicas.
const LOOK: Duration = Duration::from_secs(2);
/// Another replica takes over after this time without a sign of this one, in seconds: longer than any change takes.
pub(super) const LEASE_S: i64 = 900;
/// First and longest pause after failures, in seconds.
const AGAIN_S: i64 = 2;
const LONGEST_AGAIN_S: i64 = 60;

/// The rounds of one process.
pub(crate) struct Rounds {
    settings: Settings,
    manager: Arc<dyn FabricManager>,
    last: Schedule,
    looked: watch::Schedule,
}

/// The result of the last try.
#[derive(Debug, Default)]
struct Schedule {
    failures: u32,
    next: Timestamp,
}

/// Runs until the core stops. Started only with a configured fabric manager.
pub async fn run(core: Arc<Core>, settings: Settings) {
    let manager = match settings.manager() {
        Ok(manager) => manager,
        Err(fault) => {
            tracing::error!(fault, "the fabric manager cannot be used: no partition is set up");
            return core.stop.cancelled().await;
        }
    };
    let mut rounds = Rounds::new(settings, manager);
    loop {
        tokio::select! {
            () = core.stop.cancelled() => return,
            () = core.clusters.partitions.notified() => {}
            () = tokio::time::sleep(LOOK) => {}
        }
        rounds.run(&core).await;
    }
}

impl Rounds {
    pub(crate) fn new(settings: Settings, manager: Arc<dyn FabricManager>) -> Self {
        Self {
            settings,
            manager,
            last: Schedule::default(),
            looked: watch::Schedule::default(),
        }
    }

    /// Brings wanted partitions to the fabric and compares the fabric with the site, where that is due. Logs failures.
    pub(crate) async fn run(&mut self, core: &Arc<Core>) {
        let Self {
            settings,
            manager,
            last,
            looked,
        } = self;
        match core.store.is_restored().await {
            Ok(false) => {}
            // Restored from a copy: the fabric may serve clusters that this database does not know.
            Ok(true) => return,
            Err(error) => {
                tracing::warn!(%error, "the database does not answer; partitions are not changed until it answers");
                return;
            }
        }
        if let Err(error) = run_round(core, settings, manager, last).await {
            tracing::warn!(%error, "the state of the fabric could not be read or stored");
        }
        if let Err(error) = watch::run_round(core, settings, manager, looked).await {
            tracing::warn!(%error, "the fabric could not be compared with the site");
        }
    }
}

async fn run_round(
    core: &Arc<Core>,
    settings: &Settings,
    manager: &Arc<dyn FabricManager>,
    last: &mut Schedule,
) -> Result<(), StoreError> {
    let text = core.store.hall().await?.fabric;
    // No partition was ever requested.
    if text.is_empty() {
        return Ok(());
    }
    let Ok(fabric) = Fabric::parse(&text) else {
        tracing::error!("the stored state of the fabric cannot be parsed: no partition is set up");
        return Ok(());
    };
    // Only faults of links are known: no reason to write partitions.
    if fabric.is_unused() {
        return Ok(());
    }
    let now = clock::now();
    let proof_us = seconds(settings.proof_s.into());
    let is_old = fabric.proven_at.is_none_or(|at| now.since(at) >= proof_us);
    if fabric.wanted <= fabric.applied && fabric.fault.is_empty() && !fabric.is_draining() && !is_old {
        return Ok(());
    }
    if now < last.next {
        return Ok(());
    }
    if !core
        .store
        .lease_fabric(&core.replica, now, now.plus(seconds(LEASE_S)))
        .await?
    {
        return Ok(());
    }
    apply_partitions(core, manager, fabric, last).await
}

/// Brings a version to the fabric and stores the result.
async fn apply_partitions(
    core: &Arc<Core>,
    manager: &Arc<dyn FabricManager>,
    fabric: Fabric,
    last: &mut Schedule,
) -> Result<(), StoreError> {
    let (version, wanted) = (fabric.wanted, fabric.partitions());
    let begun = clock::now();
    let applying = manager.clone();
    // A task of its own, which finishes even if this one is dropped.
    let applied = tokio::spawn(async move { applying.apply(&wanted).await }).await;
    let applied = match applied {
        Ok(applied) => applied.map_err(|error| chain(&error)),
        Err(error) => Err(format!("the fabric manager's task ended: {error}")),
    };
    let now = clock::now();
    let mut tx = core.store.write().await?;
    let text = tx.hall().await?.fabric;
    let Ok(mut fabric) = Fabric::parse(&text) else {
        return Ok(());
    };
    let was = fabric.fault.clone();
    match applied {
        Ok(applied) => {
            let is_proof = applied.reading.proof == Proof::Ports;
            fabric.record_proof(
                version,
                applied.absent,
                is_proof.then_some(&applied.reading.tables),
                now,
            );
            if applied.changed || !was.is_empty() {
                let ports = counted(applied.reading.tables.read.len(), "port");
                let ms = now.since(begun) / 1000;
                let message = format!("partitions of version {version} are in place: {ports} read in {ms} ms");
                tx.add_event(&event(EventKind::FabricProven, &message, now)).await?;
            }
            *last = Schedule::default();
            if fabric.is_draining() {
                last.next = now.plus(seconds(AGAIN_S));
            }
        }
        Err(fault) => {
            if was != fault {
                tx.add_event(&event(EventKind::FabricFault, &fault, now)).await?;
            }
            tracing::warn!(fault, "partitions are not in place");
            fabric.fault = fault;
            last.failures = last.failures.saturating_add(1);
            let pause = AGAIN_S.saturating_mul(1 << last.failures.min(5));
            last.next = now.plus(seconds(pause.min(LONGEST_AGAIN_S)));
        }
    }
    match fabric.text() {
        Ok(text) => tx.put_fabric(&text).await?,
        Err(error) => tracing::error!(%error, "the state of the fabric cannot be stored (a bug)"),
    }
    core.commit(tx).await?;
    core.store.wake_clusters(clock::now()).await?;
    core.clusters.due.notify_one();
    Ok(())
}

fn event(kind: EventKind, message: &str, at: Timestamp) -> EventRow {
    EventRow {
        at,
        kind,
        target: "fabric".to_owned(),
        message: message.to_owned(),
        ..EventRow::default()
    }
}
