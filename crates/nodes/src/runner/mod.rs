//! Leases due nodes and performs the decisions of `decide` until each is at rest.

pub(crate) mod admission;
mod facts;
mod settle;
mod step;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use rackwright_ground::clock;
use rackwright_ground::core::{Core, STEPS_AT_ONCE};
use rackwright_store::StoreError;
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

pub use facts::{GatheredFacts, gather_facts};
pub use step::{finish_effect, step_until_rest};

/// Nodes leased with one statement.
const BATCH: i64 = 64;
/// Longest pause between checks of the table: the safety net for lost wake-ups.
const IDLE: Duration = Duration::from_secs(30);

/// Runs until `stop` is cancelled and every step has ended.
pub async fn run(core: Arc<Core>, stop: CancellationToken) {
    let mut steps = JoinSet::new();
    loop {
        let pause = match lease_and_start(&core, &mut steps).await {
            Ok(pause) => pause,
            Err(error) => {
                tracing::error!(%error, source = ?std::error::Error::source(&error), "due nodes could not be taken");
                Duration::from_secs(1)
            }
        };
        tokio::select! {
            () = stop.cancelled() => break,
            () = core.running_steps.due.notified() => {}
            Some(ended) = steps.join_next(), if !steps.is_empty() => report_panic(ended),
            () = tokio::time::sleep(pause) => {}
        }
    }
    steps.abort_all();
    while steps.join_next().await.is_some() {}
}

/// Logs a panic, which is a bug. The node is due again at the end of its lease.
fn report_panic(ended: Result<(), JoinError>) {
    if let Err(error) = ended
        && error.is_panic()
    {
        tracing::error!(%error, "a step panicked");
    }
}

/// Leases due nodes and begins their steps. Returns the pause until the next check.
pub async fn lease_and_start(core: &Arc<Core>, steps: &mut JoinSet<()>) -> Result<Duration, StoreError> {
    while let Some(ended) = steps.try_join_next() {
        report_panic(ended);
    }
    let room = STEPS_AT_ONCE.saturating_sub(steps.len());
    let limit = BATCH.min(i64::try_from(room).unwrap_or(BATCH));
    if limit == 0 {
        return Ok(IDLE);
    }
    let now = clock::now();
    let due = core
        .store
        .lease_due_nodes(&core.replica, now, core.lease_end(now), limit)
        .await?;
    let is_full = i64::try_from(due.len()).unwrap_or(limit) == limit;
    core.metrics.leased(due.len());
    for node in due {
        if let Some(nudge) = core.running_steps.begin(&node) {
            steps.spawn(step_until_rest(core.clone(), node, nudge));
        }
    }
    if is_full {
        return Ok(Duration::ZERO);
    }
    let next = core.store.next_due(&core.replica).await?;
    let until = next.map_or(IDLE, |at| {
        Duration::from_micros(u64::try_from(at.since(clock::now())).unwrap_or(0))
    });
    Ok(until.min(IDLE))
}
