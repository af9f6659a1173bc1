//! Invariants after every commit and at the end of a run.

use std::collections::BTreeMap;

use rackwright_api::v1::control_message::Message as Control;
use rackwright_ground::clock;
use rackwright_lifecycle::{Edge, Effect, EventKind, NodeId, OperationKind, Outcome, State};
use rackwright_store::{EventRow, NodeRecord, OperationRow, Scope, Store};
use tonic::Code;

use super::performer::Fake;
use super::world::{Content, PlannedEvent, Sent};
use crate::test_calls::NodeRequest;

/// Follows the events from its own position, through every kill, as a watcher does.
#[derive(Debug, Default)]
pub struct EventFollower {
    position: i64,
    /// The edges of each node in the order of their events: name, from, to.
    seen: BTreeMap<String, Vec<(String, String, String)>>,
}

impl EventFollower {
    /// Reads new events and compares them with the machines.
    pub async fn follow(&mut self, store: &Store, fake: &Fake) {
        let events = store.events(&Scope::Site, self.position, "", 1000).await;
        let events = events.expect("events can be read");
        for event in events {
            if event.position <= self.position {
                fake.world()
                    .wrong
                    .push(format!("position {} came again", event.position));
            }
            self.position = event.position;
            if let Some(wrong) = lost(store, &event).await {
                fake.world().wrong.push(wrong);
            }
            let proof = match event.target.strip_prefix("nodes/") {
                Some(id) => store
                    .node_settings(&NodeId::stored(id))
                    .await
                    .expect("settings can be read"),
                None => None,
            };
            let mut world = fake.world();
            let (Some(from), Some(to)) = (event.attributes.get("from"), event.attributes.get("to")) else {
                continue;
            };
            let Some(id) = event.target.strip_prefix("nodes/") else {
                continue;
            };
            // An inspection or an erase leads to the pool only if the node's settings were proven after the state began.
            let by_us = matches!(event.kind, EventKind::Edge(Edge::Inspected | Edge::Erased));
            if world.wants_settings && by_us {
                let is_set = world.machine(id).is_set;
                let is_proven = proof.is_some_and(|row| row.verified_at.is_some() && row.drifted_at.is_none());
                if !is_set || !is_proven {
                    world.wrong.push(format!(
                        "{id} is available, settings as wanted: {is_set}, proven: {is_proven}"
                    ));
                }
            }
            if event.kind == EventKind::Edge(Edge::Erased) && world.machine(id).has_back_door {
                let wrong = format!("{id} is available, and its former customer's account is on its BMC");
                world.wrong.push(wrong);
            }
            let content = &world.machine(id).content;
            let generation = event.attributes.get("generation").and_then(|g| g.parse::<u64>().ok());
            let is_right = match to.as_str() {
                "available" => *content == Content::Clean,
                "active" => matches!(content, Content::Image(of, _) if Some(*of) == generation),
                _ => true,
            };
            if !is_right {
                let wrong = format!("{id} went from {from} to {to} (generation {generation:?}) with {content:?} on it");
                world.wrong.push(wrong);
            }
            let edge = (event.kind.to_string(), from.clone(), to.clone());
            self.seen.entry(id.to_owned()).or_default().push(edge);
        }
    }

    /// Number of edges seen.
    pub fn edges(&self) -> u64 {
        self.seen.values().map(|edges| edges.len() as u64).sum()
    }

    /// Compares the events with the stored history.
    pub async fn compare(&self, store: &Store) -> Vec<String> {
        let mut wrong = Vec::new();
        for record in records(store).await {
            let history = store.history(&record.id, 100_000).await;
            let mut history = history.expect("history can be read");
            history.reverse();
            let history: Vec<_> = history
                .iter()
                .map(|row| (row.edge.clone(), row.from.to_string(), row.to.to_string()))
                .collect();
            let seen = self.seen.get(record.id.as_str()).cloned().unwrap_or_default();
            if history != seen {
                wrong.push(format!("{}: history {history:?}, watched {seen:?}", record.id));
            }
            let chained = history.windows(2).all(|pair| pair[0].2 == pair[1].1);
            let ends = history
                .last()
                .is_none_or(|last| last.2 == record.node.state.to_string());
            if !chained || !ends {
                wrong.push(format!("{}: a broken history {history:?}", record.id));
            }
        }
        wrong
    }
}

/// An agent is not lost if it is connected and has not booted since it got its job.
async fn lost(store: &Store, event: &EventRow) -> Option<String> {
    if event.attributes.get("code")? != "agent-lost" {
        return None;
    }
    let effect = store.effect(event.attributes.get("effect")?).await;
    let effect = effect.expect("effects can be read")?;
    let record = store
        .node(&Scope::Site, &effect.node_id)
        .await
        .expect("the node is there");
    let boot = record.readings.boot.map(|(boot_id, _)| boot_id);
    let is_there = !record.hold.replica.is_empty() && boot == effect.attempt.boot_id;
    is_there.then(|| format!("{effect:?} was given up, and its agent is with {:?}", record.hold))
}

/// Checks a destructive job. It was stored before, for this node and the present claim generation. It comes from the
/// replica with the agent's connection. It goes to the boot and the generation for which it was stored.
pub async fn job(store: &Store, sent: &Sent, sender: &str) -> Option<String> {
    let (id, certificate) = (sent.id.as_str(), &sent.certificate);
    let Some(Control::Job(job)) = &sent.message.message else {
        return None;
    };
    let record = store
        .node(&Scope::Site, &NodeId::stored(id))
        .await
        .expect("the node is there");
    let hold = &record.hold;
    if hold.replica != sender {
        return Some(format!(
            "{id} gets {} by {sender}, but its agent is connected to {hold:?}",
            job.operation
        ));
    }
    let effect = store.effect(&job.operation).await.expect("effects can be read");
    let Some(effect) = effect.filter(|e| e.node_id == id) else {
        return Some(format!("{id} gets {} that was never stored for it", job.operation));
    };
    let rows = store
        .attempts(&NodeId::stored(id), effect.state_since)
        .await
        .expect("effects can be read");
    let mut before = rows
        .iter()
        .filter(|row| row.attempt.started_at <= effect.attempt.started_at);
    let boot = before
        .rfind(|row| row.attempt.effect == Effect::PowerOn)
        .map(|row| row.id.as_str());
    let is_its_boot = boot == Some(certificate.of.boot.as_str())
        && effect.generation == certificate.of.generation
        && effect.attempt.boot_id.as_deref() == Some(certificate.kernel_boot_id.as_str());
    if !is_its_boot {
        return Some(format!("{effect:?} of boot {boot:?} is sent to {certificate:?}"));
    }
    let in_force = record.node.generation;
    let is_open = effect.attempt.outcome == Outcome::Open;
    (effect.generation != job.claim_generation || (is_open && in_force != job.claim_generation)).then(|| {
        let (sent, written) = (job.claim_generation, effect.generation);
        format!(
            "{id} gets {} of generation {sent}, stored as {written}, at {in_force}",
            job.operation
        )
    })
}

pub async fn records(store: &Store) -> Vec<NodeRecord> {
    store
        .nodes(&Scope::Site, &Vec::new(), "", 1000)
        .await
        .expect("nodes can be read")
}

fn is_rest(state: State) -> bool {
    matches!(
        state,
        State::Available | State::Active | State::Failed | State::Quarantined | State::Maintenance
    )
}

/// Every node is in a state of rest, and nothing is due within `rest_us` microseconds.
pub async fn all_rest(store: &Store, replicas: &[String], rest_us: i64) -> bool {
    for replica in replicas {
        let due = store.next_due(replica).await.expect("the database answers");
        if due.is_some_and(|due| due <= clock::now().plus(rest_us)) {
            return false;
        }
    }
    records(store).await.iter().all(|r| is_rest(r.node.state))
}

/// Nothing happens any more, except refusals of agents that return although their nodes expect none: their machines wait
/// for an operator.
pub async fn is_nothing_planned(store: &Store, fake: &Fake) -> bool {
    let records = records(store).await;
    let world = fake.world();
    world.planned.values().all(|(id, planned)| {
        let record = records.iter().find(|record| record.id == *id);
        matches!(planned, PlannedEvent::Connect { .. }) && record.is_some_and(|record| is_rest(record.node.state))
    })
}

/// All nodes and their states, in words.
pub async fn all_states(store: &Store) -> String {
    let now = clock::now();
    let word = |r: &NodeRecord| {
        let (state, left_s) = (r.node.state, r.wait_until.since(now) / 1_000_000);
        format!("{} {state} ({}), waits {left_s} s for {:?}", r.id, r.reason, r.wait)
    };
    records(store).await.iter().map(word).collect::<Vec<_>>().join("; ")
}

/// An operator's request for each node outside the pool.
pub async fn requests_to_pool(store: &Store) -> Vec<(String, NodeRequest)> {
    let path = |r: &NodeRecord| match (r.node.state, &r.node.claim) {
        (State::Active, _) | (State::Failed, Some(_)) => Some(NodeRequest::Release),
        (State::Maintenance, Some(_)) => Some(NodeRequest::Resume),
        (State::Maintenance, None) if r.node.evidence.is_untouched() => Some(NodeRequest::Resume),
        (State::Failed, None) if r.node.evidence.is_untouched() => Some(NodeRequest::Retry),
        (State::Quarantined | State::Maintenance | State::Failed, _) => Some(NodeRequest::Readmit),
        _ => None,
    };
    let records = records(store).await;
    records
        .iter()
        .filter_map(|r| Some((r.id.to_string(), path(r)?)))
        .collect()
}

/// Faults after everything was returned to the pool.
pub async fn violations(store: &Store, fake: &Fake) -> Vec<String> {
    let mut wrong = Vec::new();
    for record in records(store).await {
        let content = fake.world().machine(record.id.as_str()).content.clone();
        if record.node.state != State::Available || content != Content::Clean {
            let (state, reason) = (record.node.state, &record.reason);
            wrong.push(format!(
                "{} ended as {state} ({reason}) with {content:?} on it",
                record.id
            ));
        }
    }
    for effect in store.open_effects().await.expect("effects can be read") {
        wrong.push(format!("{} is open for ever: {:?}", effect.id, effect.attempt));
    }
    wrong
}

/// Every operation has ended, and no cancelled deploy was handed over. Returns the number of cancelled ones.
pub async fn operations(store: &Store) -> (u64, Vec<String>) {
    let rows = store.operations(&Scope::Site, &Vec::new(), "", 100_000).await;
    let rows = rows.expect("operations can be read");
    let open = rows.iter().filter(|row| row.ended_at.is_none());
    let mut wrong: Vec<String> = open.map(|row| format!("never ended: {row:?}")).collect();
    let is_cancelled = |row: &&OperationRow| row.cancel_requested && row.kind == OperationKind::Deploy;
    let cancelled: Vec<_> = rows.iter().filter(is_cancelled).collect();
    let others = cancelled.iter().filter(|row| row.code != Code::Cancelled as i32);
    wrong.extend(others.map(|row| format!("cancelled, and ended otherwise: {row:?}")));
    (cancelled.len() as u64, wrong)
}
