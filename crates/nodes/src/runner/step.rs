//! The steps of one node: decide, perform, decide again, until it is at rest.

use std::sync::Arc;
use std::time::Duration;

use rackwright_ground::clock;
use rackwright_ground::core::{Core, CrashPoint};
use rackwright_lifecycle::drives::Source;
use rackwright_lifecycle::outcome::apply;
use rackwright_lifecycle::{
    Agent, Attempt, Decision, Edge, Effect, EffectClass, EventKind, Kind, NodeId, Outcome, Power, Reading, State,
    Timestamp, Wait, decide, forced_outcome, usage,
};
use rackwright_store::{EffectRow, EventRow, HistoryRow, NodeRecord, Permit, Readings, Scope, StoreError, WriteTx};
use tokio::sync::Notify;
use tracing::Instrument as _;

use super::settle::{settle_firmware, settle_operations, settle_password, settle_power};
use super::{GatheredFacts, admission, gather_facts};
use crate::agent_boot::{self, LastBoot};
use crate::console::Consoles;
use crate::drives;
use crate::effect_result::EffectResult;
use crate::perform::{self, certify, power_event};

/// Pause between two tries while the database is unavailable: to store an effect's outcome, and at first to continue with a
/// node.
const RETRY_PAUSE: Duration = Duration::from_secs(1);
/// Longest pause to continue with a node.
const RETRY_PAUSE_MAX: Duration = Duration::from_secs(30);

/// Steps until the node is at rest or this process stops.
pub async fn step_until_rest(core: Arc<Core>, node: NodeId, nudge: Arc<Notify>) {
    let span = tracing::info_span!("step", node = %node);
    steps(core, node, nudge).instrument(span).await;
}

/// Releases the node when its step ends, also by a panic, so that another step may begin.
struct StepGuard<'a> {
    core: &'a Core,
    node: &'a NodeId,
}

impl Drop for StepGuard<'_> {
    fn drop(&mut self) {
        self.core.running_steps.abandon(self.node);
    }
}

async fn steps(core: Arc<Core>, node: NodeId, nudge: Arc<Notify>) {
    let guard = StepGuard {
        core: &core,
        node: &node,
    };
    core.reach(CrashPoint::Begin).await;
    let (mut pause, mut known) = (RETRY_PAUSE, None);
    loop {
        match step(&core, &node, &nudge, known.take()).await {
            Ok(Next::Again) => {}
            Ok(Next::With(as_it_is)) => known = Some(*as_it_is),
            // A concurrent change of the node won: decide again.
            Err(StoreError::Conflict { .. } | StoreError::Contended(_)) => core.metrics.step_lost(),
            Ok(next) => {
                if core.running_steps.end(&node) {
                    if matches!(next, Next::OtherReplica) {
                        core.metrics.lease_lost();
                        // Due at once, so that the responsible replica notices it.
                        core.wake(&node).await;
                    }
                    // Ended in order: another step may run by now.
                    std::mem::forget(guard);
                    return;
                }
            }
            Err(StoreError::NotFound { .. }) => return,
            Err(error) if error.is_retryable() => {
                tracing::warn!(%error, source = ?std::error::Error::source(&error), "the step is tried again in a moment");
                core.metrics.step_failed();
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(RETRY_PAUSE_MAX);
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
    /// Again, without another read.
    With(Box<Known>),
    Rest,
    /// Another replica is responsible.
    OtherReplica,
}

/// A node as this step left it, with the attempts of its present state. A decision from it takes effect only if the node
/// has not changed since.
struct Known {
    record: NodeRecord,
    rows: Vec<EffectRow>,
    last_boot: LastBoot,
}

impl Known {
    fn next(record: NodeRecord, rows: Vec<EffectRow>, last_boot: LastBoot) -> Next {
        Next::With(Box::new(Self {
            record,
            rows,
            last_boot,
        }))
    }
}

/// The replica responsible for a node is the owner of its open attempt; else the replica with its agent's connection; else
/// any. The lease uses the same rule (`Store::lease_due_nodes`), but the agent may have come or gone meanwhile.
fn is_our_turn(core: &Core, record: &NodeRecord, open: Option<&EffectRow>) -> bool {
    let owner = open.map_or(&record.hold.replica, |open| &open.owner);
    owner.is_empty() || *owner == core.replica
}

/// Whether the step itself performs it, and not the agent.
fn is_done_by_step(effect: &EffectRow) -> bool {
    effect.attempt.effect.class() != EffectClass::Once
}

async fn step(core: &Core, id: &NodeId, nudge: &Notify, known: Option<Known>) -> Result<Next, StoreError> {
    let is_nudged = core.running_steps.take_changed(id);
    let now = clock::now();
    let Known {
        record,
        rows,
        mut last_boot,
    } = match known.filter(|_| !is_nudged) {
        Some(known) => known,
        None => {
            let record = core.store.node(&Scope::Site, id).await?;
            let rows = core.store.attempts(id, record.node.since).await?;
            Known {
                record,
                rows,
                last_boot: LastBoot::Unread,
            }
        }
    };
    core.feature::<Consoles>().seen(&record);
    let GatheredFacts { facts, permits } = gather_facts(core, &record, &rows, &mut last_boot, now).await?;
    let open = rows.iter().find(|r| r.attempt.outcome == Outcome::Open);
    if !is_our_turn(core, &record, open) {
        return Ok(Next::OtherReplica);
    }
    if let Some(open) = open.filter(|open| open.owner == core.replica && is_done_by_step(open)) {
        // A step ends its own effects before it decides again. This one was begun, and the database's answer was lost.
        finish_effect(core, open, &EffectResult::with_outcome(Outcome::Interrupted)).await?;
        return Ok(Next::Again);
    }
    if let Some(open) = open
        && let Some(verdict) = forced_outcome(&open.attempt, &facts, &core.config.policy, now)
    {
        close_effect(core, &record, open, verdict).await?;
        // It may still run there, and the next effect needs a free agent.
        perform::cancel_job(core, id, &open.id).await;
        return Ok(Next::Again);
    }
    let decision = decide(&record.node, &facts, &core.config.policy, now);
    if admission::is_request_stale(core, &record, &permits, &decision).await {
        admission::leave(core, &record, now).await?;
        return Ok(Next::Again);
    }
    match decision {
        Decision::Move { edge, reason } => take_edge(core, &record, edge, &reason).await,
        Decision::Act(effect) => {
            let Some((record, row)) = begin(core, record, &rows, &permits, effect).await? else {
                return Ok(Next::Rest);
            };
            let known = Known {
                record,
                rows,
                last_boot,
            };
            act(core, known, row, nudge).await
        }
        Decision::Wait { why, until } => {
            let until = wait_limit(core, &record, &facts.agent, until);
            core.metrics.waits(why.label());
            core.store.rest(&record, &why, until).await?;
            if why == Wait::Cluster {
                wake_cluster_of(core, &record).await?;
            }
            Ok(Next::Rest)
        }
    }
}

/// Wakes the node's cluster: the node is checked.
async fn wake_cluster_of(core: &Core, record: &NodeRecord) -> Result<(), StoreError> {
    if let Some(cluster_claim) = record.node.claim.as_ref().and_then(|claim| claim.cluster.as_ref()) {
        core.store.wake_cluster(&cluster_claim.cluster, clock::now()).await?;
        core.clusters_due.notify_one();
    }
    Ok(())
}

/// Limits the wait for a job of an absent agent to the end of the agent's grace, before the job's deadline.
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
async fn take_edge(core: &Core, record: &NodeRecord, edge: Edge, reason: &str) -> Result<Next, StoreError> {
    let now = clock::now();
    let Some(node) = apply(&record.node, edge, now) else {
        tracing::error!(node = %record.id, %edge, state = %record.node.state, "the state chart has no such edge");
        let why = format!("the state chart has no edge {edge} from {}", record.node.state);
        core.store.rest(record, &Wait::Bug { why }, core.lease_end(now)).await?;
        return Ok(Next::Again);
    };
    let mut next = record.clone();
    next.node = node;
    next.reason = reason.to_owned();
    let mut tx = core.store.write().await?;
    if edge == Edge::Inspected {
        agent_boot::enrol_tpm(&mut tx, record, &mut next).await?;
    }
    tx.save_node(&mut next, now).await?;
    let ended = tx.open_effect(&record.id).await?;
    if let Some(open) = &ended {
        if open.owner != core.replica {
            // Begun by another replica since the decision.
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
    if let Some(effect) = usage::effect_of(edge, &record.node, &next.node) {
        tx.put_usage(&next, &effect, now).await?;
    }
    tx.add_event(&edge_event(&next, edge, &row)).await?;
    settle_operations(&mut tx, &next, now).await?;
    store_consequences(&mut tx, record, edge, now).await?;
    let cluster_claim = record.node.claim.as_ref().and_then(|claim| claim.cluster.as_ref());
    if let Some(cluster_claim) = cluster_claim {
        tx.wake_cluster(&cluster_claim.cluster, now).await?;
    }
    next.due_at = core.lease_end(now);
    tx.put_due(&record.id, next.due_at).await?;
    // The edge ends the effect, and the agent's job has to end as well.
    let session = core.agents.session(&record.id);
    core.commit(tx).await?;
    if cluster_claim.is_some() {
        core.clusters_due.notify_one();
    }
    tracing::info!(%edge, from = %row.from, to = %row.to, reason, "edge");
    core.metrics.edge(edge, row.from, row.to, row.spent_us);
    if let Some(open) = ended {
        core.effect_ended(record, &open, &Outcome::Interrupted, now);
        if let Some(session) = session {
            perform::cancel_job_at(&session, &open.id);
        }
    }
    Ok(Known::next(next, Vec::new(), LastBoot::Unread))
}

/// Takes an edge as a step does, without a decision.
#[cfg(test)]
pub(super) async fn force_edge(core: &Core, record: &NodeRecord, edge: Edge) -> Result<(), StoreError> {
    take_edge(core, record, edge, "").await.map(drop)
}

/// Stores the consequences of an edge beside the node itself.
async fn store_consequences(
    tx: &mut WriteTx,
    record: &NodeRecord,
    edge: Edge,
    now: Timestamp,
) -> Result<(), StoreError> {
    match edge {
        Edge::Inspected => {
            drives::inspected(tx, &record.id, now).await?;
            tx.expect_inventory(&record.id).await
        }
        Edge::Erased => {
            tx.delete_drive_list(&record.id, Source::Reported).await?;
            tx.expect_inventory(&record.id).await?;
            tx.forget_deployments(&record.id).await
        }
        Edge::Unclaimed => tx.forget_deployments(&record.id).await,
        // After a hand-over, and on the way to an erase, no seed is made and no login follows.
        Edge::Validated | Edge::Released | Edge::Readmitted | Edge::Condemned => {
            tx.forget_private_keys(&record.id).await
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
        kind: EventKind::Edge(edge),
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

/// Performs the stored effect and stores its outcome.
async fn act(core: &Core, known: Known, mut row: EffectRow, nudge: &Notify) -> Result<Next, StoreError> {
    let Known {
        record,
        mut rows,
        last_boot,
    } = known;
    let effect = row.attempt.effect;
    tracing::info!(effect = effect.as_str(), id = %row.id, number = row.number, "begin");
    if effect.class() == EffectClass::Once {
        // The agent's report ends it. A lost job is found by the agent's next connection or the deadline.
        perform::send_job(core, &record.id, &row).await;
        rows.push(row);
        return Ok(Known::next(record, rows, last_boot));
    }
    let limit = Duration::from_micros(u64::try_from(row.attempt.deadline.since(clock::now())).unwrap_or(0));
    core.reach(CrashPoint::BeforeEffect).await;
    let done = tokio::time::timeout(limit, perform::perform(core, &record, effect, nudge)).await;
    core.reach(CrashPoint::AfterEffect).await;
    let done = done.unwrap_or_else(|_| {
        let message = format!("{} did not end within {} s", effect.as_str(), limit.as_secs());
        EffectResult::failed_for_now("deadline", message)
    });
    let ended = match store_result(core, &record, &row, &done).await {
        // Another node was enrolled with the same machine meanwhile.
        Err(error @ StoreError::MacTaken { .. }) => {
            let done = EffectResult::failed_for_now("mac-taken", error.to_string());
            store_result(core, &record, &row, &done).await?
        }
        ended => ended?,
    };
    let Some((record, attempt)) = ended else {
        return Ok(Next::Again);
    };
    row.attempt = attempt;
    rows.push(row);
    Ok(Known::next(record, rows, last_boot))
}

/// The node after an effect, and the ended attempt.
type Ended = Option<(NodeRecord, Attempt)>;

/// Stores an effect's outcome. Repeats that while the database is unavailable or contended: only this process knows the
/// outcome, and until it is stored the node would wait for the effect's deadline.
async fn store_result(
    core: &Core,
    begun: &NodeRecord,
    row: &EffectRow,
    done: &EffectResult,
) -> Result<Ended, StoreError> {
    loop {
        match finish_own(core, begun, row, done).await {
            Err(error) if error.is_retryable() && clock::now() < row.attempt.deadline => {
                tracing::warn!(effect = %row.id, %error, "the outcome of an effect could not be stored; it is tried again");
                tokio::time::sleep(RETRY_PAUSE).await;
            }
            ended => return ended,
        }
    }
}

fn conflict(record: &NodeRecord) -> StoreError {
    StoreError::Conflict {
        kind: "node",
        id: record.id.to_string(),
    }
}

/// Transaction A: the effect's row, its permits, and the readings that become unknown. `None`: the node queues for a permit
/// and rests.
async fn begin(
    core: &Core,
    record: NodeRecord,
    rows: &[EffectRow],
    permits: &[Permit],
    effect: Effect,
) -> Result<Option<(NodeRecord, EffectRow)>, StoreError> {
    let now = clock::now();
    let boot_id = match (effect.class(), core.agents.held(&record)) {
        (EffectClass::Once, Some(session)) => Some(session.boot_id),
        // The agent was connected at the decision: decide again.
        (EffectClass::Once, None) => return Err(conflict(&record)),
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
    let writable = writable_drives(core, &record, effect).await?;
    let needs = admission::needs(core, &record, effect).await;
    let mut tx = core.store.write().await?;
    let mut current = reread_node(&mut tx, record).await?;
    if let Some(wait) = admission::hold(core, &mut tx, &current, permits, effect, now).await? {
        core.commit(tx).await?;
        core.metrics.waits(wait.label());
        return Ok(None);
    }
    if let Some(wait) = admission::admit(&mut tx, &current, permits, &needs, now).await? {
        core.commit(tx).await?;
        core.metrics.waits(wait.label());
        return Ok(None);
    }
    tx.begin_effect(&row).await?;
    let in_line_us = admission::asked_at(permits).map_or(0, |since| now.since(since).max(0));
    if !needs.is_empty() || (effect == Effect::PowerOn && !permits.is_empty()) {
        tx.use_permits(&current.id, &row.id, in_line_us).await?;
    }
    if effect == Effect::PowerOn {
        // Tokens of an earlier boot are not valid in this one.
        for mac in &current.identity.macs {
            tx.revoke_tokens("boot", mac).await?;
            tx.revoke_tokens("agent", mac).await?;
        }
    }
    invalidate_readings(&mut current.readings, effect, now);
    if ends_boot(effect) && !current.hold.replica.is_empty() {
        // The connected agent belongs to the boot that ends here.
        tx.disconnect_agent(&current.id, current.hold.session, now).await?;
        current.hold.end(now);
    }
    if effect == Effect::WriteImage {
        current.node.evidence.written_at = Some(now);
        current.node.evidence.image_digest = None;
        current.node.evidence.deployment = None;
        current.node.evidence.drives.extend(writable);
        tx.save_node(&mut current, now).await?;
    }
    if effect.class() == EffectClass::Once {
        current.due_at = core.lease_end(now);
        tx.keep_readings(&current.id, &current.readings, current.due_at).await?;
    } else {
        // Leased for the longest duration of the effect. A wish in between makes the node due at once; this process's step
        // takes it up when the effect has ended.
        current.due_at = row.attempt.deadline;
        let wait = Wait::Effect(effect);
        tx.wait(&current.id, &wait, current.due_at, &current.readings).await?;
    }
    core.commit(tx).await?;
    if let Some(kind) = Kind::of(effect).filter(|_| !needs.is_empty()) {
        core.metrics.admitted(kind, in_line_us);
    }
    Ok(Some((current, row)))
}

/// The present node, if it is unchanged or differs only in readings.
async fn reread_node(tx: &mut WriteTx, record: NodeRecord) -> Result<NodeRecord, StoreError> {
    if tx.is_unchanged(&record).await? {
        return Ok(record);
    }
    let current = tx.node(&record.id).await?;
    if (current.version, current.hold.session) != (record.version, record.hold.session) {
        return Err(conflict(&record));
    }
    Ok(current)
}

/// The drives that the next user of the machine may write to.
async fn writable_drives(core: &Core, record: &NodeRecord, effect: Effect) -> Result<Vec<String>, StoreError> {
    if effect != Effect::WriteImage {
        return Ok(Vec::new());
    }
    let inventory = drives::of_node(core, &record.id).await?;
    Ok(inventory.drives.iter().map(drives::key).collect())
}

/// Effects that end the present boot of the machine.
fn ends_boot(effect: Effect) -> bool {
    matches!(effect, Effect::PowerOn | Effect::PowerOff | Effect::UpdateFirmware)
}

/// Marks the readings that an effect makes uncertain.
fn invalidate_readings(readings: &mut Readings, effect: Effect, now: Timestamp) {
    if ends_boot(effect) {
        readings.agent = Reading::Known {
            value: Agent::Absent,
            at: now,
        };
    }
    match effect {
        Effect::PowerOn => {
            readings.power = Reading::Unknown { since: now };
            // A boot uses up a target for one boot.
            readings.boot_target = Reading::Unknown { since: now };
        }
        Effect::PowerOff => readings.power = Reading::Unknown { since: now },
        Effect::SetBoot(_) => readings.boot_target = Reading::Unknown { since: now },
        Effect::SetNetwork(_) => readings.network = Reading::Unknown { since: now },
        Effect::UpdateFirmware => {
            readings.power = Reading::Unknown { since: now };
            readings.boot_target = Reading::Unknown { since: now };
        }
        _ => {}
    }
}

/// Transaction B: the outcome and the readings, never a state. Idempotent.
pub async fn finish_effect(core: &Core, effect: &EffectRow, done: &EffectResult) -> Result<(), StoreError> {
    let mut tx = core.store.write().await?;
    match tx.node(&effect.node_id).await {
        // The node was deleted meanwhile, and its effects with it.
        Err(StoreError::NotFound { .. }) => Ok(()),
        Err(error) => Err(error),
        Ok(record) => finish_for(core, tx, record, effect, done).await,
    }
}

/// The same for the step that performed the effect: it continues with the node and keeps its lease. Returns the node after
/// the effect, or `None` if it has to be read again.
async fn finish_own(
    core: &Core,
    begun: &NodeRecord,
    effect: &EffectRow,
    done: &EffectResult,
) -> Result<Ended, StoreError> {
    let mut tx = core.store.write().await?;
    let record = if tx.is_unchanged(begun).await? {
        begun.clone()
    } else {
        match tx.node(&effect.node_id).await {
            Err(StoreError::NotFound { .. }) => return Ok(None),
            other => other?,
        }
    };
    finish(core, tx, record, effect, done, true).await
}

/// Ends an effect that can no longer succeed, unless the agent came or went since the verdict.
async fn close_effect(core: &Core, seen: &NodeRecord, effect: &EffectRow, verdict: Outcome) -> Result<(), StoreError> {
    let mut tx = core.store.write().await?;
    let record = tx.node(&effect.node_id).await?;
    if record.hold.session != seen.hold.session {
        return Err(conflict(seen));
    }
    finish_for(core, tx, record, effect, &EffectResult::with_outcome(verdict)).await
}

/// Ends an effect for the next step of the node: one that runs in this process and looks again, or a new one.
async fn finish_for(
    core: &Core,
    tx: WriteTx,
    record: NodeRecord,
    effect: &EffectRow,
    done: &EffectResult,
) -> Result<(), StoreError> {
    let has_step = core.running_steps.is_running(&effect.node_id);
    finish(core, tx, record, effect, done, has_step).await?;
    if has_step {
        // The step may have ended meanwhile.
        core.wake(&effect.node_id).await;
    } else {
        core.notify_due(&effect.node_id);
    }
    Ok(())
}

/// With `has_step`, the lease of the running step continues; else the node becomes due.
async fn finish(
    core: &Core,
    mut tx: WriteTx,
    mut record: NodeRecord,
    effect: &EffectRow,
    done: &EffectResult,
    has_step: bool,
) -> Result<Ended, StoreError> {
    let now = clock::now();
    let (node, effect_id) = (&effect.node_id, effect.id.as_str());
    if !tx.end_effect(effect_id, &done.outcome, now).await? {
        return Ok(None);
    }
    let mut is_known = true;
    if let Some(change) = &done.readings {
        let mut readings = record.readings.clone();
        change(&mut readings, now);
        // In the change that ends the operation: its caller reads the power from a BMC that answers.
        let (identity, kind) = (&record.identity, effect.attempt.effect);
        perform::seen_answering(&mut readings, identity, kind, &done.outcome, now);
        if let Some(event) = power_event(node, &record.readings.power, &readings.power, now) {
            tx.add_event(&event).await?;
        }
        if readings.power.last() == Some(&Power::Off) && !record.hold.replica.is_empty() {
            // A connection that remains is of a machine that is off.
            readings.agent = Reading::Known {
                value: Agent::Absent,
                at: now,
            };
            tx.disconnect_agent(node, record.hold.session, now).await?;
            is_known = false;
        }
        record.readings = readings;
    }
    if let Some(learned) = &done.learned {
        learned.store(&mut tx, &mut record, now).await?;
    }
    for (kind, id, body) in &done.proofs {
        tx.add_proof(*kind, id, node, body).await?;
    }
    certify::all(core, &mut tx, node, &done.erases, now).await?;
    if let Outcome::Failed { code, message, .. } = &done.outcome {
        tracing::warn!(node = node.as_str(), effect_id, code, message, "effect failed");
        tx.add_event(&failure_event(node, effect_id, code, message, now))
            .await?;
    }
    for event in &done.events {
        tx.add_event(event).await?;
    }
    if effect.attempt.effect == Effect::ChangePassword {
        settle_password(core, &mut tx, &mut record, now).await?;
    }
    if let Some(request) = record.node.wanted.power {
        settle_power(core, &mut tx, &record, request, now).await?;
    }
    if let Some(requested_at) = record.node.wanted.firmware {
        settle_firmware(core, &mut tx, &record, requested_at, now).await?;
    }
    record.due_at = if has_step { core.lease_end(now) } else { now };
    match (&done.readings, has_step) {
        (Some(_), true) => tx.keep_readings(node, &record.readings, record.due_at).await?,
        (Some(_), false) => tx.save_readings(node, &record.readings, now).await?,
        (None, true) => tx.put_due(node, record.due_at).await?,
        (None, false) => tx.wake(node, now).await?,
    }
    core.commit(tx).await?;
    core.effect_ended(&record, effect, &done.outcome, now);
    core.agents.forget_progress(node);
    let attempt = Attempt {
        ended_at: Some(now),
        outcome: done.outcome.clone(),
        ..effect.attempt.clone()
    };
    Ok(is_known.then_some((record, attempt)))
}

fn failure_event(node: &NodeId, effect_id: &str, code: &str, message: &str, now: Timestamp) -> EventRow {
    EventRow {
        at: now,
        kind: EventKind::EffectFailed,
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
