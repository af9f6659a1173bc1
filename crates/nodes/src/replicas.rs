//! This replica among those of its site: it sends signs of life, takes over open work of dead replicas, and receives hints.
//!
//! Death is a guess by the clock: no sign of life for `DEAD_S`. A wrong guess about a replica that is slow, or has a wrong
//! clock, only costs work: an interrupted effect ends once, a decision looks at the machine before it acts, and the agent
//! does what must not be done twice, because it knows the effect's id.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rackwright_ground::agents::UNKNOWN_PREFIX;
use rackwright_ground::clock;
use rackwright_ground::core::Core;
use rackwright_ground::share::alive_since;
use rackwright_lifecycle::{EffectClass, Outcome, Timestamp, seconds};
use rackwright_store::{Change, EffectRow, StoreError};

use crate::agent_session::note_disconnect;

/// Between two signs of life.
const ROUND: Duration = Duration::from_secs(10);
/// After this time without the database, a replica drops its agents: before others take it for dead.
const DISCONNECT_AFTER: Duration = Duration::from_secs(30);
/// Dead replicas stay in the list for this time.
const LISTED_S: i64 = 24 * 3600;

/// Ends the open work of a former process of this replica and of dead replicas, and makes its nodes due.
///
/// An effect that the agent performs goes on and stays open. Every other effect ended with its process. Whether it was done
/// is unknown, so the next decision looks first.
pub async fn recover(core: &Core) -> Result<(), StoreError> {
    let now = clock::now();
    core.store.record_heartbeat(&core.replica, now).await?;
    core.store.disconnect_agents_of(&core.replica, now).await?;
    for open in core.store.open_effects_of(&core.replica).await? {
        take_over(core, &open).await?;
    }
    take_over_from_dead_replicas(core, now).await?;
    match core.store.begin_missing_usage().await? {
        0 => {}
        begun => tracing::info!(
            begun,
            "records of use begin for nodes that were handed over before such records existed"
        ),
    }
    // If other replicas are at work, nodes without an open effect become due at the end of their lease or wait.
    if core.store.replicas(alive_since(now)).await?.len() == 1 {
        let woken = core.store.wake_unfinished(now).await?;
        tracing::info!(woken, "nodes taken up again");
    }
    Ok(())
}

async fn take_over(core: &Core, open: &EffectRow) -> Result<(), StoreError> {
    let mut tx = core.store.write().await?;
    let record = match tx.node(&open.node_id).await {
        Err(StoreError::NotFound { .. }) => return Ok(()),
        other => other?,
    };
    let found = tx.open_effect(&open.node_id).await?;
    if found.is_none_or(|found| (found.id, found.owner) != (open.id.clone(), open.owner.clone())) {
        // Ended meanwhile, or adopted by the replica to which the agent connected.
        return Ok(());
    }
    let now = clock::now();
    let goes_on = open.attempt.effect.class() == EffectClass::Once;
    if goes_on {
        tx.adopt_effect(&open.id, &core.replica).await?;
    } else {
        tx.end_effect(&open.id, &Outcome::Interrupted, now).await?;
    }
    tx.wake(&open.node_id, now).await?;
    core.commit(tx).await?;
    if !goes_on {
        core.effect_ended(&record, open, &Outcome::Interrupted, now);
    }
    core.notify_due(&open.node_id);
    Ok(())
}

/// Takes over from dead replicas: their open effects, and the connections of their agents.
async fn take_over_from_dead_replicas(core: &Core, now: Timestamp) -> Result<(), StoreError> {
    // First: a decision about a taken-over effect depends on the state of the agent.
    let freed = core.store.disconnect_agents_of_dead(alive_since(now), now).await?;
    if freed > 0 {
        core.metrics.taken_over("agent", freed);
        tracing::info!(freed, "agents of a dead replica count as disconnected");
    }
    for orphan in core.store.orphaned_effects(alive_since(now)).await? {
        tracing::info!(owner = orphan.owner, node = orphan.node_id.as_str(), effect = %orphan.id, "taken over from a dead replica");
        take_over(core, &orphan).await?;
        core.metrics.taken_over("effect", 1);
    }
    Ok(())
}

/// Reconciles the rows about agents of this replica with the actual connections. They differ if the end of a connection
/// could not be stored, or if others took this replica for dead.
async fn compare_agents(core: &Core) -> Result<(), StoreError> {
    let held: HashMap<_, _> = core.store.connected_agents(&core.replica).await?.into_iter().collect();
    // Read after the rows: a new connection is remembered first and stored then.
    let mut connected = core.agents.sessions();
    connected.retain(|of, _| !of.as_str().starts_with(UNKNOWN_PREFIX));
    for (node, number) in &held {
        if connected.get(node) != Some(number) {
            note_disconnect(core, node, *number).await;
        }
    }
    for (node, number) in &connected {
        if held.get(node) == Some(number) {
            continue;
        }
        // Waits for a connection that is just being stored.
        let mut tx = core.store.write().await?;
        let hold = match tx.node(node).await {
            Ok(record) => Some(record.hold),
            // The node was deleted while its agent was connected.
            Err(StoreError::NotFound { .. }) => None,
            Err(error) => return Err(error),
        };
        if let Some(session) = core.agents.session(node)
            && hold.is_none_or(|hold| hold.replica != core.replica || hold.session != session.number)
        {
            tracing::warn!(
                node = node.as_str(),
                "this connection of the node's agent is not the current connection; it is ended"
            );
            session.end.cancel();
        }
    }
    Ok(())
}

/// Sends a sign of life, and takes over from dead replicas.
pub async fn round(core: &Core) -> Result<(), StoreError> {
    let now = clock::now();
    // First: a replica that cannot store its own sign of life takes nothing over, least of all from itself.
    core.store.record_heartbeat(&core.replica, now).await?;
    take_over_from_dead_replicas(core, now).await?;
    compare_agents(core).await?;
    core.store.forget_replicas(now.plus(-seconds(LISTED_S))).await?;
    Ok(())
}

/// Runs until the core stops.
pub async fn run(core: Arc<Core>) {
    let mut lived_at = Instant::now();
    loop {
        match round(&core).await {
            Ok(()) => lived_at = Instant::now(),
            Err(error) => {
                tracing::warn!(%error, "the heartbeat failed; other replicas may treat this replica as dead");
                if lived_at.elapsed() > DISCONNECT_AFTER {
                    // Another replica may still reach the database.
                    core.agents.end_all();
                }
            }
        }
        tokio::select! {
            () = core.stop.cancelled() => return,
            () = tokio::time::sleep(ROUND) => {}
        }
    }
}

/// Passes hints of other replicas to the waiting parts of this one. Runs until the core stops.
pub async fn forward_hints(core: Arc<Core>) {
    let mut changes = core.store.changes();
    loop {
        tokio::select! {
            () = core.stop.cancelled() => return,
            change = changes.next() => match change {
                Change::Due => core.running_steps.due.notify_one(),
                Change::Events => core.commits.send_modify(|count| *count += 1),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use rackwright_api::v1;
    use rackwright_api::v1::control_message::Message as Control;
    use rackwright_ground::testing;
    use rackwright_lifecycle::{Agent, Attempt, Effect, NodeId, Reading, State, Wait};
    use rackwright_store::{AgentSession, Readings, Scope};
    use tokio::sync::mpsc;
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::agent_session::{admit_agent, compare_ledger};
    use crate::runner::step_until_rest;

    /// Two nodes with an open effect of `owner` each: one performed by the daemon, one by the agent.
    async fn leave_open(core: &Core, owner: &str) {
        for (node, state, effect) in [
            ("on", State::Inspecting, Effect::PowerOn),
            ("write", State::Imaging, Effect::WriteImage),
        ] {
            let id = format!("{owner}-{node}");
            testing::add(core, &testing::node(&id, state, None)).await;
            let row = EffectRow {
                id: id.clone(),
                node_id: NodeId::stored(id.clone()),
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
            testing::rest(core, &id, &Wait::Rest).await;
        }
    }

    /// The outcomes of the two, the owner of the second, and the due nodes.
    async fn left(core: &Core, owner: &str) -> (Outcome, Outcome, String, Vec<NodeId>) {
        let effect = async |what: &str| core.store.effect(&format!("{owner}-{what}")).await.unwrap().unwrap();
        let now = clock::now();
        let mut due = core.store.lease_due_nodes(&core.replica, now, now, 99).await.unwrap();
        due.retain(|node| node.as_str().starts_with(owner));
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
    async fn start_takes_over_only_from_the_dead() {
        let core = testing::core().await;
        let now = clock::now();
        core.store.record_heartbeat("living", now).await.unwrap();
        core.store
            .record_heartbeat("dead", now.plus(-seconds(rackwright_ground::share::DEAD_S + 1)))
            .await
            .unwrap();
        for owner in ["living", "dead", &core.replica] {
            leave_open(&core, owner).await;
        }
        recover(&core).await.unwrap();
        for owner in ["dead", &core.replica] {
            let nodes = ["on", "write"].map(|what| NodeId::stored(format!("{owner}-{what}")));
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
    async fn only_a_silent_replica_is_taken_over() {
        let core = testing::core().await;
        leave_open(&core, &core.replica).await;
        leave_open(&core, "other").await;
        core.store.record_heartbeat("other", clock::now()).await.unwrap();
        round(&core).await.unwrap();
        assert_eq!(left(&core, "other").await.0, Outcome::Open);
        core.store.end_replica("other").await.unwrap();
        round(&core).await.unwrap();
        assert_eq!(left(&core, "other").await.0, Outcome::Interrupted);
        assert_eq!(left(&core, "other").await.2, core.replica);
        assert_eq!(
            left(&core, &core.replica).await.0,
            Outcome::Open,
            "its own effect continues"
        );
    }

    #[tokio::test]
    async fn a_single_replica_takes_up_unfinished_nodes() {
        let core = testing::core().await;
        testing::add(&core, &testing::node("n1", State::Inspecting, None)).await;
        testing::rest(&core, "n1", &Wait::Rest).await;
        recover(&core).await.unwrap();
        assert!(core.store.next_due(&core.replica).await.unwrap().unwrap() <= clock::now());
    }

    async fn hold(core: &Core, id: &str, replica: &str) -> i64 {
        let mut tx = core.store.write().await.unwrap();
        let of = AgentSession {
            generation: 0,
            boot: "boot".into(),
        };
        let session = tx
            .connect_agent(&NodeId::stored(id), replica, &of, "address only")
            .await
            .unwrap();
        let value = Agent::Present {
            boot_id: "b1".into(),
            booted_at: Timestamp(1),
        };
        let at = Timestamp(1);
        let agent = Reading::Known { value, at };
        let readings = Readings {
            agent,
            ..Readings::default()
        };
        tx.save_readings(&NodeId::stored(id), &readings, at).await.unwrap();
        tx.commit().await.unwrap();
        session
    }

    async fn presence(core: &Core, id: &str) -> Reading<Agent> {
        let record = core.store.node(&Scope::Site, &NodeId::stored(id)).await.unwrap();
        core.agents.presence(&record, clock::now())
    }

    #[tokio::test]
    async fn agents_of_dead_replicas_are_unknown() {
        let core = testing::core().await;
        let now = clock::now();
        core.store.record_heartbeat("living", now).await.unwrap();
        for id in ["living", "dead"] {
            testing::add(&core, &testing::node(id, State::Imaging, None)).await;
            hold(&core, id, id).await;
            assert!(matches!(presence(&core, id).await, Reading::Known { .. }), "{id}");
        }
        round(&core).await.unwrap();
        assert!(matches!(presence(&core, "living").await, Reading::Known { .. }));
        let Reading::Unknown { since } = presence(&core, "dead").await else {
            panic!("it is not known where that agent is")
        };
        assert!(since >= now);
        let due = core
            .store
            .lease_due_nodes(&core.replica, clock::now(), clock::now(), 9)
            .await;
        assert_eq!(due.unwrap(), ["dead"]);
    }

    #[tokio::test]
    async fn rows_and_connections_are_reconciled() {
        let core = testing::core().await;
        for id in ["lost", "taken", "good", "deleted"] {
            testing::add(&core, &testing::node(id, State::Imaging, None)).await;
        }
        hold(&core, "lost", &core.replica).await;
        let mut ends = Vec::new();
        for id in ["taken", "good", "deleted"] {
            let end = CancellationToken::new();
            let agent = crate::testing::arriving_agent(id, testing::booted(&core, id, "b1").await, "b1");
            let arrived = admit_agent(
                &core,
                &agent,
                &crate::attestation::TpmEvidence::Nothing(String::new()),
                mpsc::channel(1).0,
                end.clone(),
            )
            .await;
            ends.push((id, arrived.unwrap().unwrap().admitted_agent.number, end));
        }
        let mut tx = core.store.write().await.unwrap();
        assert!(
            tx.disconnect_agent(&"taken".into(), ends[0].1, clock::now())
                .await
                .unwrap()
        );
        let deleted = tx.node(&"deleted".into()).await.unwrap();
        tx.delete_node(&deleted).await.unwrap();
        tx.commit().await.unwrap();
        round(&core).await.unwrap();
        assert_eq!(
            core.store
                .node(&Scope::Site, &"lost".into())
                .await
                .unwrap()
                .hold
                .replica,
            ""
        );
        let ended: Vec<_> = ends
            .iter()
            .filter(|(.., end)| end.is_cancelled())
            .map(|(id, ..)| *id)
            .collect();
        assert_eq!(ended, ["taken", "deleted"]);
        assert_eq!(
            core.store
                .node(&Scope::Site, &"good".into())
                .await
                .unwrap()
                .hold
                .session,
            ends[1].1
        );
    }

    #[tokio::test]
    async fn a_step_leaves_a_node_to_its_owner() {
        let core = testing::core().await;
        testing::add(&core, &testing::node("n1", State::Available, None)).await;
        hold(&core, "n1", "other").await;
        testing::rest(&core, "n1", &Wait::PowerSettling).await;
        let nudge = core.running_steps.begin(&"n1".into()).unwrap();
        step_until_rest(core.clone(), "n1".into(), nudge).await;
        let record = core.store.node(&Scope::Site, &"n1".into()).await.unwrap();
        assert_eq!(record.wait, Wait::PowerSettling, "nothing was decided");
        assert!(core.store.next_due("other").await.unwrap().unwrap() <= clock::now());
        assert_eq!(core.store.next_due(&core.replica).await.unwrap(), None);
    }

    /// The message to an agent of claim generation 0 that connects with `boot` while an erase for `generation` is open that
    /// another replica sent to `b1`.
    async fn sent_message(boot: &str, generation: u64) -> Option<v1::ControlMessage> {
        let core = testing::core().await;
        testing::add(&core, &testing::node("n1", State::Reclaiming, None)).await;
        let row = EffectRow {
            id: "erase".into(),
            node_id: "n1".into(),
            state_since: Timestamp(1),
            number: 1,
            generation,
            owner: "other".into(),
            attempt: Attempt {
                effect: Effect::EraseDrives,
                started_at: Timestamp(1),
                ended_at: None,
                deadline: clock::now().plus(seconds(3600)),
                outcome: Outcome::Open,
                boot_id: Some("b1".into()),
            },
        };
        let agent = crate::testing::arriving_agent("n1", testing::booted(&core, "n1", boot).await, boot);
        let mut tx = core.store.write().await.unwrap();
        tx.begin_effect(&row).await.unwrap();
        tx.commit().await.unwrap();
        hold(&core, "n1", "other").await;
        let (sender, mut receiver) = mpsc::channel(9);
        let arrived = admit_agent(
            &core,
            &agent,
            &crate::attestation::TpmEvidence::Nothing(String::new()),
            sender,
            CancellationToken::new(),
        )
        .await;
        let arrived = arrived.unwrap().unwrap();
        compare_ledger(&core, &arrived.admitted_agent, &agent.hello, arrived.open)
            .await
            .unwrap();
        let owner = core.store.effect("erase").await.unwrap().unwrap().owner;
        assert_eq!(owner, core.replica, "{boot}: it is ours to judge");
        receiver.try_recv().ok().map(|message| *message)
    }

    #[tokio::test]
    async fn a_job_follows_its_agent_within_one_boot_and_one_generation() {
        let Some(Control::Job(job)) = sent_message("b1", 0).await.and_then(|m| m.message) else {
            panic!("it is notified again")
        };
        assert_eq!(job.operation, "erase");
        assert_eq!(sent_message("b2", 0).await, None);
        assert_eq!(sent_message("b1", 1).await, None);
    }
}
