//! Compares the responsible replica of each node with the actions of the replicas.

use std::collections::BTreeSet;

use rackwright_ground::clock;
use rackwright_lifecycle::{Decision, EffectClass, Outcome, decide, forced_outcome};
use rackwright_nodes::agent_boot::LastBoot;
use rackwright_nodes::runner::{GatheredFacts, gather_facts};
use rackwright_store::{AgentConnection, Store};

use super::bounds;
use super::checks::records;
use super::performer::Fake;
use super::process::Process;

/// Checks after every commit.
#[derive(Debug, Default)]
pub struct OwnershipCheck {
    /// Open effects at the last check.
    known: BTreeSet<String>,
    /// A living replica was taken for dead: connections may exist that no longer count.
    pub has_wrong_takeover: bool,
}

impl OwnershipCheck {
    /// Checks three rules: a replica begins an effect only if it has the agent or no replica has; an agent's effect belongs
    /// to the replica with the agent; rows name the actual connections.
    pub async fn look(&mut self, store: &Store, processes: &[Process], fake: &Fake) -> Vec<String> {
        let mut wrong = Vec::new();
        let records = records(store).await;
        let holder = |id: &str| {
            let record = records.iter().find(|r| r.id == id);
            record.map(|r| r.hold.clone()).unwrap_or_default()
        };
        let open = store.open_effects().await.expect("effects can be read");
        for effect in &open {
            let AgentConnection { replica, .. } = holder(effect.node_id.as_str());
            let is_new = !self.known.contains(&effect.id);
            let is_once = effect.attempt.effect.class() == EffectClass::Once;
            let is_its = match (is_once, replica.as_str()) {
                (true, "") => !is_new,
                (false, "") => true,
                (true, holder) => holder == effect.owner,
                (false, holder) => holder == effect.owner || !is_new,
            };
            if !is_its {
                wrong.push(format!(
                    "{effect:?} is new: {is_new}, and its agent is with {replica:?}"
                ));
            }
        }
        self.known = open.into_iter().map(|effect| effect.id).collect();
        for (id, machine) in &fake.world().machines {
            let Some(connection) = machine
                .connection
                .as_ref()
                .filter(|c| c.number != 0 && !self.has_wrong_takeover)
            else {
                continue;
            };
            let (hold, replica) = (holder(id), &processes[connection.process].core.replica);
            if hold.replica.is_empty() && hold.session > connection.number {
                // A change has ended it, and its replica closes the connection within moments.
                continue;
            }
            if (&hold.replica, hold.session) != (replica, connection.number) {
                wrong.push(format!(
                    "{id} is connected to {replica} by {}, and its row says {hold:?}",
                    connection.number
                ));
            }
        }
        wrong
    }
}

/// Checks, when nothing happens, that no node rests although its replica could act on it now.
pub async fn overdue_nodes(store: &Store, processes: &[Process]) -> Vec<String> {
    let (mut wrong, now) = (Vec::new(), clock::now());
    for record in records(store).await {
        let open = store.open_effects().await.expect("effects can be read");
        let open = open.into_iter().find(|effect| effect.node_id == record.id);
        let owner = open.as_ref().map_or(&record.hold.replica, |effect| &effect.owner);
        let is_it = |p: &&Process| p.answers() && p.is_quiet() && (owner.is_empty() || *owner == p.core.replica);
        let Some(process) = processes.iter().find(is_it) else {
            continue;
        };
        let core = &process.core;
        let rows = store
            .attempts(&record.id, record.node.since)
            .await
            .expect("tries can be read");
        let gathered = gather_facts(core, &record, &rows, &mut LastBoot::Unread, now).await;
        let GatheredFacts { facts, .. } = gathered.expect("facts can be read");
        let open = rows.iter().find(|row| row.attempt.outcome == Outcome::Open);
        let policy = &core.config.policy;
        let verdict = open.and_then(|row| forced_outcome(&row.attempt, &facts, policy, now));
        let decision = decide(&record.node, &facts, policy, now);
        // The lease of a dead replica ends within a minute.
        let is_soon = record.due_at <= core.lease_end(now);
        if verdict.is_none() && bounds::is_in_line(store, record.id.as_str(), processes).await {
            continue;
        }
        if !is_soon && (verdict.is_some() || !matches!(decision, Decision::Wait { .. })) {
            let (id, why, left_s) = (&record.id, &record.wait, record.wait_until.since(now) / 1_000_000);
            wrong.push(format!(
                "{id} waits {left_s} s for {why:?}, and there is to do: {verdict:?}, {decision:?}"
            ));
        }
    }
    wrong
}
