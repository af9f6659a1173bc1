//! One node: decide, do, decide again, until there is nothing to do.

use std::sync::Arc;
use std::time::Duration;

use rackwright_lifecycle::node::PowerRequest;
use rackwright_lifecycle::outcome::{Request, apply, power_outcome};
use rackwright_lifecycle::{
    Agent, Attempt, Decision, Edge, Effect, EffectClass, Kind, Outcome, Power, Reading, State, Timestamp, Wait, decide,
    verdict_on_open,
};
use rackwright_store::{
    EffectRow, EventRow, HistoryRow, NodeRecord, OperationRow, Permit, Readings, StoreError, WriteTx,
};
use tokio::sync::Notify;
use tonic::Code;
use tracing::Instrument as _;

use super::{Gathered, admission, gather};
use crate::clock;
use crate::core::{Core, Point};
use crate::drives;
use crate::perform::{self, Done};

/// Between two tries while the database is away: to store how an effect went, and at first to go on with a node.
const AWAY: Duration = Duration::from_secs(1);
/// At last to go on with a node.
const LONGEST_AWAY: Duration = Duration::from_secs(30);

/// Goes on until the node is at rest or this process stops.
pub async fn step_until_rest(core: Arc<Core>, node: String, nudge: Arc<Notify>) {
    let span = tracing::info_span!("step", node = %node);
    steps(core, node, nudge).instrument(span).await;
}

/// However a node's step ends, by a panic too, another one may begin after it.
struct Running<'a> {
    core: &'a Core,
    node: &'a str,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.core.runs.abandon(self.node);
    }
}

async fn steps(core: Arc<Core>, node: String, nudge: Arc<Notify>) {
    let running = Running {
        core: &core,
        node: &node,
    };
    core.point(Point::Begin, &node).await;
    let mut away = AWAY;
    loop {
        match step(&core, &node, &nudge).await {
            Ok(Next::Again) => {}
            // Somebody changed the node meanwhile: what is there now is decided anew.
            Err(StoreError::Conflict { .. } | StoreError::Contended(_)) => core.metrics.step_lost(),
            Ok(next) => {
                if core.runs.end(&node) {
                    if matches!(next, Next::Elsewhere) {
                        core.metrics.lease_lost();
                        // Due at once: whose turn it is hears of it.
                        core.wake(&node).await;
                    }
                    // Ended in order: another one may run by now.
                    std::mem::forget(running);
                    return;
                }
            }
            Err(StoreError::NotFound { .. }) => return,
            Err(error) if error.is_retryable() => {
                tracing::warn!(%error, source = ?std::error::Error::source(&error), "the step is tried again in a moment");
                core.metrics.step_failed();
                tokio::time::sleep(away).await;
                away = (away * 2).min(LONGEST_AWAY);
            }
            Err(error) => {
                tracing::error!(%error, source = ?std::error::Error::source(&error), "the step failed");
                core.metrics.step_failed();
                return;
            }
        }
    }
}

enum Next {
    Again,
    Rest,
    /// It is another replica's turn.
    Elsewhere,
}

/// A node is decided of by the replica that makes its open try; else by the one that its agent is connected to; else by
/// any. The lease asks for the same (`Store::lease_due`); meanwhile the agent may have come or gone.
fn is_our_turn(core: &Core, record: &NodeRecord, open: Option<&EffectRow>) -> bool {
    let whose = open.map_or(&record.hold.replica, |open| &open.owner);
    whose.is_empty() || *whose == core.replica
}

/// Done by the step itself, not by the agent.
fn is_ours_to_do(effect: &EffectRow) -> bool {
    effect.attempt.effect.class() != EffectClass::Once
}

async fn step(core: &Core, id: &str, nudge: &Notify) -> Result<Next, StoreError> {
    let _ = core.runs.take_again(id);
    let now = clock::now();
    let record = core.store.node(id).await?;
    let Gathered { facts, rows, permits } = gather(core, &record, now).await?;
    let open = rows.iter().find(|r| r.attempt.outcome == Outcome::Open);
    if !is_our_turn(core, &record, open) {
        return Ok(Next::Elsewhere);
    }
    if let Some(open) = open.filter(|open| open.owner == core.replica && is_ours_to_do(open)) {
        // What this step does it ends before it looks again: it was begun, and the database's answer to that was lost.
        finish_effect(core, open, &Done::failed_as(Outcome::Interrupted)).await?;
        return Ok(Next::Again);
    }
    if let Some(open) = open
        && let Some(verdict) = verdict_on_open(&open.attempt, &facts, &core.config.policy, now)
    {
        give_up(core, &record, open, verdict).await?;
        // It may run on there; what comes next should find the agent free.
        perform::cancel_job(core, id, &open.id).await;
        return Ok(Next::Again);
    }
    let decision = decide(&record.node, &facts, &core.config.policy, now);
    if admission::is_over(core, &record, &permits, &decision) {
        admission::leave(core, &record, now).await?;
        return Ok(Next::Again);
    }
    match decision {
        Decision::Move { edge, reason } => {
            take_edge(core, &record, edge, &reason).await?;
            Ok(Next::Again)
        }
        Decision::Act(effect) => {
            let Some(row) = begin(core, &record, &rows, &permits, effect).await? else {
                return Ok(Next::Rest);
            };
            act(core, &record, &row, nudge).await?;
            Ok(Next::Again)
        }
        Decision::Wait { why, until } => {
            let until = wait_limit(core, &record, &facts.agent, until);
            core.metrics.waits(why.label());
            // A node at rest waits for nothing: there is nothing to tell.
            let told = if why == Wait::Rest {
                String::new()
            } else {
                why.to_string()
            };
            core.store.rest(&record, &told, until).await?;
            Ok(Next::Rest)
        }
    }
}

/// A job of an agent that is out of sight is looked at again when the grace ends, not only at the job's deadline.
fn wait_limit(core: &Core, record: &NodeRecord, agent: &Reading<Agent>, until: Timestamp) -> Timestamp {
    match agent {
        Reading::Unknown { since } if record.node.state != State::Active => {
            let grace = since.plus(core.config.policy.agent_grace_us());
            if grace > clock::now() { until.min(grace) } else { until }
        }
        _ => until,
    }
}

/// Takes an edge: node, history, event, open effect and operations in one transaction.
async fn take_edge(core: &Core, record: &NodeRecord, edge: Edge, reason: &str) -> Result<(), StoreError> {
    let now = clock::now();
    let Some(node) = apply(&record.node, edge, now) else {
        tracing::error!(node = %record.id, %edge, state = %record.node.state, "the chart has no such edge");
        let why = "an edge that the chart does not have (a bug)";
        return core.store.rest(record, why, core.lease_end(now)).await;
    };
    let mut next = record.clone();
    next.node = node;
    next.reason = reason.to_owned();
    let mut tx = core.store.write().await?;
    tx.save_node(&mut next, now).await?;
    let ended = tx.open_effect(&record.id).await?;
    if let Some(open) = &ended {
        if open.owner != core.replica {
            // Begun by another since this was decided.
            return Err(conflict(record));
        }
        tx.end_effect(&open.id, &Outcome::Interrupted, now).await?;
    }
    let row = HistoryRow {
        edge: edge.as_str().to_owned(),
        from: record.node.state,
        to: next.node.state,
        at: now,
        spent_us: now.since(record.node.since),
        reason: reason.to_owned(),
    };
    tx.add_history(&record.id, edge, &row).await?;
    tx.add_event(&edge_event(&next, edge, &row)).await?;
    settle_operations(&mut tx, &next, now).await?;
    put_away(&mut tx, record, edge).await?;
    tx.put_due(&record.id, core.lease_end(now)).await?;
    core.commit(tx).await?;
    tracing::info!(%edge, from = %row.from, to = %row.to, reason, "edge");
    core.metrics.edge(edge, row.from, row.to, row.spent_us);
    if let Some(open) = ended {
        core.effect_ended(record, &open, &Outcome::Interrupted, now);
        perform::cancel_job(core, &record.id, &open.id).await;
    }
    Ok(())
}

/// What an edge makes needless or settled beside the node itself.
async fn put_away(tx: &mut WriteTx, record: &NodeRecord, edge: Edge) -> Result<(), StoreError> {
    match (edge, &record.node.claim) {
        (Edge::Inspected, _) => tx.expect_inventory(&record.id).await,
        (Edge::Erased, _) => {
            tx.expect_inventory(&record.id).await?;
            tx.forget_deployments(&record.id).await
        }
        (Edge::Validated, Some(claim)) => {
            tx.forget_private_keys(&record.id, claim.generation, claim.deployment)
                .await
        }
        _ => Ok(()),
    }
}

fn edge_event(record: &NodeRecord, edge: Edge, row: &HistoryRow) -> EventRow {
    let because = if row.reason.is_empty() {
        String::new()
    } else {
        format!(": {}", row.reason)
    };
    EventRow {
        at: row.at,
        kind: edge.as_str().to_owned(),
        target: format!("nodes/{}", record.id),
        message: format!("{} went from {} to {}{because}", record.id, row.from, row.to),
        attributes: [
            ("from".to_owned(), row.from.to_string()),
            ("to".to_owned(), row.to.to_string()),
            ("generation".to_owned(), record.node.generation.to_string()),
        ]
        .into(),
        ..EventRow::default()
    }
}

/// What somebody asked of the node ends when the node gets there, or to where it cannot be got to any more.
async fn settle_operations(tx: &mut WriteTx, record: &NodeRecord, now: Timestamp) -> Result<(), StoreError> {
    for operation in tx.open_operations(&format!("nodes/{}", record.id)).await? {
        let request = match operation.kind.as_str() {
            "enroll" => Request::Enroll,
            "deploy" | "reimage" => Request::Deploy,
            "release" | "readmit" => Request::Release,
            "resume" | "retry" => Request::Resume,
            // The power of a node at rest: whatever moved the node ended that.
            _ => {
                let message = format!("the node went to {} meanwhile", record.node.state);
                tx.end_operation(&operation.id, Code::Aborted as i32, &message, now)
                    .await?;
                continue;
            }
        };
        match request.ended(record.node.state) {
            None => {}
            Some(Ok(())) => {
                tx.end_operation(&operation.id, Code::Ok as i32, "", now).await?;
            }
            Some(Err(state)) => end_badly(tx, record, &operation, state, now).await?,
        }
    }
    Ok(())
}

async fn end_badly(
    tx: &mut WriteTx,
    record: &NodeRecord,
    operation: &OperationRow,
    state: State,
    now: Timestamp,
) -> Result<(), StoreError> {
    let (code, message) = if operation.cancel_requested {
        (
            Code::Cancelled,
            "cancelled; the node is being brought to a safe state".to_owned(),
        )
    } else if record.reason.is_empty() {
        (Code::Aborted, format!("{} went to {state}", record.id))
    } else {
        (
            Code::FailedPrecondition,
            format!("{} went to {state}: {}", record.id, record.reason),
        )
    };
    tx.end_operation(&operation.id, code as i32, &message, now).await?;
    Ok(())
}

/// Does the effect that was written down, and stores how it went.
async fn act(core: &Core, record: &NodeRecord, row: &EffectRow, nudge: &Notify) -> Result<(), StoreError> {
    let effect = row.attempt.effect;
    tracing::info!(effect = effect.as_str(), id = %row.id, number = row.number, "begin");
    if effect.class() == EffectClass::Once {
        // The agent ends it; a failure to tell the agent is found by its reconnection or the deadline.
        perform::send_job(core, &record.id, row).await;
        return Ok(());
    }
    let limit = Duration::from_micros(u64::try_from(row.attempt.deadline.since(clock::now())).unwrap_or(0));
    core.point(Point::BeforeEffect, &record.id).await;
    let done = tokio::time::timeout(limit, perform::perform(core, record, effect, nudge)).await;
    core.point(Point::AfterEffect, &record.id).await;
    let done = done.unwrap_or_else(|_| {
        let message = format!("{} did not end within {} s", effect.as_str(), limit.as_secs());
        Done::failed("deadline", message, true)
    });
    match stored(core, row, &done).await {
        // Somebody else was enrolled with the same machine in the meantime.
        Err(error @ StoreError::MacTaken { .. }) => {
            let done = Done::failed("mac-taken", error.to_string(), true);
            stored(core, row, &done).await
        }
        ended => ended,
    }
}

/// Stores how an effect went. While the database is away or others are in the way, again and again: nobody else knows it,
/// and until it is stored the node would wait for the effect's deadline.
async fn stored(core: &Core, row: &EffectRow, done: &Done) -> Result<(), StoreError> {
    loop {
        match finish_effect(core, row, done).await {
            Err(error) if error.is_retryable() && clock::now() < row.attempt.deadline => {
                tracing::warn!(effect = %row.id, %error, "how the effect went could not be stored; tried again in a moment");
                tokio::time::sleep(AWAY).await;
            }
            ended => return ended,
        }
    }
}

fn conflict(record: &NodeRecord) -> StoreError {
    StoreError::Conflict {
        kind: "node",
        id: record.id.clone(),
    }
}

/// Transaction A: the row, what it takes of what others share, and what is not known any more from here on. None: the node
/// stands in line for what it needs, and rests.
async fn begin(
    core: &Core,
    record: &NodeRecord,
    rows: &[EffectRow],
    permits: &[Permit],
    effect: Effect,
) -> Result<Option<EffectRow>, StoreError> {
    let now = clock::now();
    let boot_id = match (effect.class(), core.agents.held(record)) {
        (EffectClass::Once, Some(session)) => Some(session.boot_id),
        // It was there when this was decided: decide again.
        (EffectClass::Once, None) => return Err(conflict(record)),
        _ => None,
    };
    let number = rows.iter().filter(|r| r.attempt.effect == effect).count() + 1;
    let row = EffectRow {
        id: core.new_id(),
        node_id: record.id.clone(),
        state_since: record.node.since,
        number: i64::try_from(number).unwrap_or(i64::MAX),
        generation: record.node.generation,
        owner: core.replica.clone(),
        attempt: Attempt {
            effect,
            started_at: now,
            ended_at: None,
            deadline: now.plus(core.config.policy.effect_us(effect)),
            outcome: Outcome::Open,
            boot_id,
        },
    };
    let writable = writable_drives(core, record, effect).await?;
    let mut tx = core.store.write().await?;
    let mut current = tx.node(&record.id).await?;
    if (current.version, current.hold.session) != (record.version, record.hold.session) {
        return Err(conflict(record));
    }
    let needs = admission::needs(core, &current, effect);
    if let Some(wait) = admission::admit(&mut tx, &current, permits, &needs, now).await? {
        core.commit(tx).await?;
        core.metrics.waits(wait.label());
        return Ok(None);
    }
    tx.begin_effect(&row).await?;
    let in_line_us = admission::asked_at(permits).map_or(0, |asked| now.since(asked).max(0));
    if !needs.is_empty() {
        tx.use_permits(&record.id, &row.id, in_line_us).await?;
    }
    if effect == Effect::PowerOn {
        // What the machine was given for an earlier boot opens nothing in this one.
        for mac in &record.identity.macs {
            tx.revoke_tokens("boot", mac).await?;
            tx.revoke_tokens("agent", mac).await?;
        }
    }
    let mut readings = current.readings.clone();
    disturb(&mut readings, effect, now);
    if readings != current.readings {
        tx.save_readings(&record.id, &readings, now).await?;
    }
    if effect == Effect::WriteImage {
        current.node.evidence.written_at = Some(now);
        current.node.evidence.image_digest = None;
        current.node.evidence.deployment = None;
        current.node.evidence.drives.extend(writable);
        tx.save_node(&mut current, now).await?;
    }
    if effect.class() == EffectClass::Once {
        tx.put_due(&record.id, core.lease_end(now)).await?;
    } else {
        // Leased for as long as the effect may take. A wish that comes meanwhile makes it due at once; the step that runs
        // here takes it up when the effect has ended.
        let why = Wait::Effect(effect).to_string();
        tx.wait(&record.id, &why, row.attempt.deadline).await?;
    }
    core.commit(tx).await?;
    if let Some(kind) = Kind::of(effect).filter(|_| !needs.is_empty()) {
        core.metrics.admitted(kind, in_line_us);
    }
    Ok(Some(row))
}

/// The drives that whoever gets the machine may write to.
async fn writable_drives(core: &Core, record: &NodeRecord, effect: Effect) -> Result<Vec<String>, StoreError> {
    if effect != Effect::WriteImage {
        return Ok(Vec::new());
    }
    let inventory = drives::of_node(core, &record.id).await?;
    Ok(drives::fixed(&inventory).map(drives::key).collect())
}

/// What an effect makes uncertain.
fn disturb(readings: &mut Readings, effect: Effect, now: Timestamp) {
    match effect {
        Effect::PowerOn => {
            readings.power = Reading::Unknown { since: now };
            // A target for one boot is used up by it.
            readings.boot_target = Reading::Unknown { since: now };
        }
        Effect::PowerOff => readings.power = Reading::Unknown { since: now },
        Effect::SetBoot(_) => readings.boot_target = Reading::Unknown { since: now },
        _ => {}
    }
}

/// Transaction B: how it went and what was seen, never a state. Ending it twice does nothing.
///
/// # Errors
/// The database failed.
pub async fn finish_effect(core: &Core, effect: &EffectRow, done: &Done) -> Result<(), StoreError> {
    let mut tx = core.store.write().await?;
    match tx.node(&effect.node_id).await {
        // Forgotten meanwhile, and its effects with it.
        Err(StoreError::NotFound { .. }) => Ok(()),
        Err(error) => Err(error),
        Ok(record) => finish(core, tx, record, effect, done).await,
    }
}

/// Closes what cannot be ended any more, unless the agent came or went since that was found.
async fn give_up(core: &Core, seen: &NodeRecord, effect: &EffectRow, verdict: Outcome) -> Result<(), StoreError> {
    let mut tx = core.store.write().await?;
    let record = tx.node(&effect.node_id).await?;
    if record.hold.session != seen.hold.session {
        return Err(conflict(seen));
    }
    finish(core, tx, record, effect, &Done::failed_as(verdict)).await
}

async fn finish(
    core: &Core,
    mut tx: WriteTx,
    mut record: NodeRecord,
    effect: &EffectRow,
    done: &Done,
) -> Result<(), StoreError> {
    let now = clock::now();
    let (node, effect_id) = (effect.node_id.as_str(), effect.id.as_str());
    if !tx.end_effect(effect_id, &done.outcome, now).await? {
        return Ok(());
    }
    if let Some(change) = &done.readings {
        let mut readings = record.readings.clone();
        change(&mut readings, now);
        tx.save_readings(node, &readings, now).await?;
        if let Some(event) = power_event(node, &record.readings.power, &readings.power, now) {
            tx.add_event(&event).await?;
        }
        if readings.agent.last() == Some(&Agent::Absent) && !record.hold.replica.is_empty() {
            // Seen off: whoever has the connection has that of a machine that is gone.
            tx.release_agent(node, record.hold.session, now).await?;
        }
        record.readings = readings;
    }
    if let Some(learned) = &done.learned {
        learned.store(&mut tx, &mut record, now).await?;
    }
    for (kind, id, body) in &done.proofs {
        tx.add_proof(*kind, id, node, body).await?;
    }
    if let Outcome::Failed { code, message, .. } = &done.outcome {
        tracing::warn!(node, effect_id, code, message, "effect failed");
        tx.add_event(&failure_event(node, effect_id, code, message, now))
            .await?;
    }
    for event in &done.events {
        tx.add_event(event).await?;
    }
    if let Some(wish) = record.node.wanted.power {
        settle_power(core, &mut tx, &record, wish, now).await?;
    }
    // A step that runs here goes on with it, and keeps its lease.
    let has_step = core.runs.has(node);
    if has_step {
        tx.put_due(node, core.lease_end(now)).await?;
    } else {
        tx.wake(node, now).await?;
    }
    core.commit(tx).await?;
    core.effect_ended(&record, effect, &done.outcome, now);
    core.agents.forget_progress(node);
    if has_step {
        // It may have ended meanwhile.
        core.wake(node).await;
    } else {
        core.is_due(node);
    }
    Ok(())
}

/// Whoever watches the node is told when its power is seen to be another, or anew after we changed it.
pub fn power_event(node: &str, before: &Reading<Power>, after: &Reading<Power>, now: Timestamp) -> Option<EventRow> {
    let power = after.last().filter(|power| before.last() != Some(power))?;
    let word = match power {
        Power::On => "on",
        Power::Off => "off",
        Power::Changing => return None,
    };
    Some(EventRow {
        at: now,
        kind: format!("power.{word}"),
        target: format!("nodes/{node}"),
        message: format!("{node} is {word}"),
        ..EventRow::default()
    })
}

fn failure_event(node: &str, effect_id: &str, code: &str, message: &str, now: Timestamp) -> EventRow {
    EventRow {
        at: now,
        kind: "effect.failed".into(),
        target: format!("nodes/{node}"),
        message: message.to_owned(),
        attributes: [
            ("code".to_owned(), code.to_owned()),
            ("effect".to_owned(), effect_id.to_owned()),
        ]
        .into(),
        ..EventRow::default()
    }
}

async fn settle_power(
    core: &Core,
    tx: &mut WriteTx,
    record: &NodeRecord,
    wish: PowerRequest,
    now: Timestamp,
) -> Result<(), StoreError> {
    let attempts = tx.attempts(&record.id, record.node.since).await?;
    let facts = rackwright_lifecycle::Facts {
        attempts,
        ..Default::default()
    };
    let tries = core.config.policy.tries as usize;
    let Some(ended) = power_outcome(&facts, wish.goal, wish.at, tries) else {
        return Ok(());
    };
    for operation in tx.open_operations(&format!("nodes/{}", record.id)).await? {
        if operation.kind == "power" {
            let (code, message) = match &ended {
                _ if operation.created_at < wish.at => (Code::Aborted, "a later request took its place".to_owned()),
                Ok(()) => (Code::Ok, String::new()),
                Err(message) => (Code::Unavailable, format!("gave up after {tries} tries: {message}")),
            };
            tx.end_operation(&operation.id, code as i32, &message, now).await?;
        }
    }
    Ok(())
}
