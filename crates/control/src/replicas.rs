//! This replica among those of its site: it says that it lives, takes over what dead ones left open, and hears hints.
//!
//! Who is dead is a guess by the clock: a replica that is not heard of for `DEAD_S`. A wrong guess, of one that is only slow
//! or whose clock is off, costs work and nothing else: an effect that was interrupted ends once, a decision looks at the
//! machine before it acts, and what must not be done twice is done by the agent, which knows the effect's id.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rackwright_lifecycle::{EffectClass, Outcome, Timestamp, seconds};
use rackwright_store::{Change, EffectRow, StoreError};

use crate::clock;
use crate::core::Core;

/// Between two signs of life.
const ROUND: Duration = Duration::from_secs(10);
/// Without a sign of life for so long, a replica is dead. Clocks of replicas have to agree to much less than that.
const DEAD_S: i64 = 60;
/// Dead replicas are listed for so long.
const LISTED_S: i64 = 24 * 3600;

/// This replica's name: the computer's, and the data folder, which is one process's alone.
#[must_use]
pub fn name(data_dir: &Path) -> String {
    let computer = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    format!("{}:{}", computer.trim(), data_dir.display())
}

fn alive_since(now: Timestamp) -> Timestamp {
    now.plus(-seconds(DEAD_S))
}

/// Ends what a former process of this replica, and dead ones, left open, and makes its nodes due.
///
/// What the agent does goes on without us and stays open. Everything else ended with its process: whether it was done
/// is not known, so the next decision looks first.
///
/// # Errors
/// The database failed.
pub async fn recover(core: &Core) -> Result<(), StoreError> {
    let now = clock::now();
    core.store.replica_lives(&core.replica, now).await?;
    for open in core.store.open_effects_of(&core.replica).await? {
        take_over(core, &open).await?;
    }
    for orphan in core.store.orphaned_effects(alive_since(now)).await? {
        take_over(core, &orphan).await?;
    }
    // Where others are at work, nodes without an open effect become due when their lease or their wait ends.
    if core.store.replicas(alive_since(now)).await?.len() == 1 {
        let woken = core.store.wake_unfinished(now).await?;
        tracing::info!(woken, "nodes taken up again");
    }
    Ok(())
}

async fn take_over(core: &Core, open: &EffectRow) -> Result<(), StoreError> {
    let mut tx = core.store.write().await?;
    match tx.node(&open.node_id).await {
        Err(StoreError::NotFound { .. }) => return Ok(()),
        other => other?,
    };
    if open.attempt.effect.class() == EffectClass::Once {
        tx.adopt_effect(&open.id, &core.replica).await?;
    } else {
        tx.end_effect(&open.id, &Outcome::Interrupted, clock::now()).await?;
    }
    core.commit(tx).await?;
    core.wake(&open.node_id).await;
    Ok(())
}

/// Says that this replica lives, and takes over from those that do not.
async fn round(core: &Core) -> Result<(), StoreError> {
    let now = clock::now();
    // First: one whose own sign of life does not get through takes nothing over, least of all from itself.
    core.store.replica_lives(&core.replica, now).await?;
    for orphan in core.store.orphaned_effects(alive_since(now)).await? {
        tracing::info!(owner = orphan.owner, node = orphan.node_id, effect = %orphan.id, "taken over from a dead replica");
        take_over(core, &orphan).await?;
    }
    core.store.forget_replicas(now.plus(-seconds(LISTED_S))).await?;
    Ok(())
}

/// Runs until the core stops.
pub async fn run(core: Arc<Core>) {
    loop {
        if let Err(error) = round(&core).await {
            tracing::warn!(%error, "others may take this replica for dead");
        }
        tokio::select! {
            () = core.stop.cancelled() => return,
            () = tokio::time::sleep(ROUND) => {}
        }
    }
}

/// Passes hints of other replicas on to who waits here. Runs until the core stops.
pub async fn hear(core: Arc<Core>) {
    let mut changes = core.store.changes();
    loop {
        tokio::select! {
            () = core.stop.cancelled() => return,
            change = changes.next() => match change {
                Change::Due => core.runs.due.notify_one(),
                Change::Events => core.events.send_modify(|n| *n += 1),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use rackwright_lifecycle::{Attempt, Effect, State};

    use super::*;
    use crate::testing;

    /// Two nodes with an open effect of `owner` each: one that we make, one that the agent makes.
    async fn leave_open(core: &Core, owner: &str) {
        for (node, state, effect) in [
            ("on", State::Inspecting, Effect::PowerOn),
            ("write", State::Imaging, Effect::WriteImage),
        ] {
            let id = format!("{owner}-{node}");
            testing::add(core, &testing::node(&id, state, None)).await;
            let row = EffectRow {
                id: id.clone(),
                node_id: id.clone(),
                state_since: Timestamp(1),
                number: 1,
                generation: 0,
                owner: owner.to_owned(),
                attempt: Attempt {
                    effect,
                    started_at: Timestamp(1),
                    ended_at: None,
                    deadline: clock::now().plus(seconds(3600)),
                    outcome: Outcome::Open,
                    boot_id: None,
                },
            };
            let mut tx = core.store.write().await.unwrap();
            tx.begin_effect(&row).await.unwrap();
            tx.commit().await.unwrap();
            core.store
                .rest(&id, 1, "", clock::now().plus(seconds(3600)))
                .await
                .unwrap();
        }
    }

    /// The outcomes of the two, who owns the second, and which nodes are due.
    async fn left(core: &Core, owner: &str) -> (Outcome, Outcome, String, Vec<String>) {
        let effect = async |what: &str| core.store.effect(&format!("{owner}-{what}")).await.unwrap().unwrap();
        let now = clock::now();
        let mut due = core.store.lease_due(now, now, 99).await.unwrap();
        due.retain(|node| node.starts_with(owner));
        due.sort();
        let written = effect("write").await;
        (
            effect("on").await.attempt.outcome,
            written.attempt.outcome,
            written.owner,
            due,
        )
    }

    #[tokio::test]
    async fn a_start_takes_up_what_its_former_process_and_dead_replicas_left_and_nothing_of_the_living() {
        let core = testing::core().await;
        let now = clock::now();
        core.store.replica_lives("living", now).await.unwrap();
        core.store
            .replica_lives("dead", now.plus(-seconds(DEAD_S + 1)))
            .await
            .unwrap();
        for owner in ["living", "dead", &core.replica] {
            leave_open(&core, owner).await;
        }
        recover(&core).await.unwrap();
        for owner in ["dead", &core.replica] {
            let nodes = ["on", "write"].map(|what| format!("{owner}-{what}"));
            let taken = (
                Outcome::Interrupted,
                Outcome::Open,
                core.replica.clone(),
                nodes.to_vec(),
            );
            assert_eq!(left(&core, owner).await, taken, "{owner}");
        }
        let untouched = (Outcome::Open, Outcome::Open, "living".to_owned(), Vec::new());
        assert_eq!(left(&core, "living").await, untouched);
    }

    #[tokio::test]
    async fn a_replica_that_falls_silent_is_taken_over_and_one_that_speaks_is_not() {
        let core = testing::core().await;
        leave_open(&core, &core.replica).await;
        leave_open(&core, "other").await;
        core.store.replica_lives("other", clock::now()).await.unwrap();
        round(&core).await.unwrap();
        assert_eq!(left(&core, "other").await.0, Outcome::Open);
        core.store.replica_ended("other").await.unwrap();
        round(&core).await.unwrap();
        assert_eq!(left(&core, "other").await.0, Outcome::Interrupted);
        assert_eq!(left(&core, "other").await.2, core.replica);
        assert_eq!(left(&core, &core.replica).await.0, Outcome::Open, "its own goes on");
    }

    #[tokio::test]
    async fn who_is_alone_takes_up_every_unfinished_node() {
        let core = testing::core().await;
        testing::add(&core, &testing::node("n1", State::Inspecting, None)).await;
        core.store
            .rest("n1", 1, "", clock::now().plus(seconds(3600)))
            .await
            .unwrap();
        recover(&core).await.unwrap();
        assert!(core.store.next_due().await.unwrap().unwrap() <= clock::now());
    }
}
