//! Does the BMC work that operators request apart from a node's life: reads and clears event logs, and runs AC cycles. One
//! replica leases each request from the store. If that replica dies, another takes over at the end of the lease.

use std::sync::Arc;
use std::time::Duration;

use rackwright_ground::bmc::BmcError;
use rackwright_ground::clock;
use rackwright_ground::core::Core;
use rackwright_ground::text::{SENTENCE_MAX, cut};
use rackwright_lifecycle::{EventKind, Timestamp, seconds};
use rackwright_redfish::EventLog;
use rackwright_store::{BmcLogRow, EventRow, NodeRecord, Scope, StoreError};
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

/// Between two checks for requests that other replicas have stored. This replica's own requests notify it at once.
const TICK: Duration = Duration::from_secs(1);
/// Requests in progress at once.
const AT_ONCE: usize = 64;
/// Longest time for one request, including an AC cycle with the return of a slow BMC.
const LIMIT: Duration = Duration::from_secs(1200);
/// Length of the lease: longer than a request may take.
const LEASE_S: i64 = 1260;
/// How long a BMC may be unreachable in an AC cycle.
const AC_CYCLE_MAX: Duration = Duration::from_secs(600);
/// Entries kept for a node, the newest.
const ENTRIES: usize = 2000;

/// Runs until the core stops.
pub async fn run(core: Arc<Core>) {
    let mut work = JoinSet::new();
    let mut tick = tokio::time::interval(TICK);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = core.stop.cancelled() => break,
            () = core.bmc_work.notified() => {}
            _ = tick.tick() => {}
            Some(ended) = work.join_next(), if !work.is_empty() => {
                if let Err(error) = ended {
                    tracing::error!(%error, "a requested BMC task panicked");
                }
            }
        }
        let room = AT_ONCE.saturating_sub(work.len());
        match take(&core, room).await {
            Ok(rows) => rows
                .into_iter()
                .for_each(|row| drop(work.spawn(perform(core.clone(), row)))),
            Err(error) => tracing::warn!(%error, "the requested BMC tasks cannot be read"),
        }
    }
    work.shutdown().await;
}

async fn take(core: &Core, room: usize) -> Result<Vec<BmcLogRow>, StoreError> {
    let now = clock::now();
    if room == 0 || !core.store.is_bmc_work_due(now).await? {
        return Ok(Vec::new());
    }
    let mut tx = core.store.write().await?;
    let limit = i64::try_from(room).unwrap_or(i64::MAX);
    let rows = tx.take_bmc_work(now, now.plus(seconds(LEASE_S)), limit).await?;
    core.commit(tx).await?;
    Ok(rows)
}

/// What was done, in words, and the log that was read.
struct Outcome {
    done: String,
    log: Option<EventLog>,
}

async fn perform(core: Arc<Core>, row: BmcLogRow) {
    let outcome = match tokio::time::timeout(LIMIT, attempt(&core, &row)).await {
        Ok(outcome) => outcome,
        Err(_) => Err((
            format!("the task took longer than {} s and was stopped", LIMIT.as_secs()),
            None,
        )),
    };
    if let Err(error) = keep(&core, row, outcome).await {
        tracing::warn!(%error, "the result of a BMC task could not be stored; the task is taken up again");
    }
}

/// Why it was not done, and the security event, if any.
type Failure = (String, Option<Box<EventRow>>);

async fn attempt(core: &Core, row: &BmcLogRow) -> Result<Outcome, Failure> {
    let plain = |error: StoreError| (error.to_string(), None);
    let record = core.store.node(&Scope::Site, &row.node).await.map_err(plain)?;
    let description = |error: BmcError| {
        let message = error.description(&record.spec.bmc_address);
        // The next part that is refused marks and reports the refusal: it holds the node's own row.
        let event = match error.is_refusal() {
            true => None,
            false => error.security_event(&record.id, &message, clock::now()),
        };
        (message, event.map(Box::new))
    };
    if row.wanted == "ac-cycle" && row.due_at != row.wanted_at {
        let why =
            "the control plane stopped during the AC cycle; check the state of the machine, then request it again";
        return Err((why.to_owned(), None));
    }
    if row.wanted == "ac-cycle" && row.argument.is_empty() {
        // The node may have been claimed since the request.
        check_free(&record).map_err(|why| (why, None))?;
        if core.store.firmware_update(&row.node).await.map_err(plain)?.is_some() {
            return Err(("an update of its firmware is under way".to_owned(), None));
        }
    }
    let client = core
        .bmcs
        .client(&record, &core.keys.sealer)
        .await
        .map_err(description)?;
    let description = |error| description(BmcError::Redfish(error));
    match row.wanted.as_str() {
        "ac-cycle" => {
            let cycled = client.ac_cycle(AC_CYCLE_MAX).await.map_err(description)?;
            let (away_s, power) = (cycled.away.as_secs(), cycled.power);
            let done = format!(
                "AC cycle by {}: the BMC was away for {away_s} s; the machine is {power}",
                cycled.action
            );
            Ok(Outcome { done, log: None })
        }
        "clear" => {
            let log = Some(row.argument.as_str()).filter(|log| !log.is_empty());
            let cleared = client.clear_event_log(log).await.map_err(description)?;
            let log = client.event_log(ENTRIES).await.map_err(description)?;
            let done = format!("cleared {}", cleared.join(", "));
            Ok(Outcome { done, log: Some(log) })
        }
        _ => {
            let log = client.event_log(ENTRIES).await.map_err(description)?;
            let done = format!("read {} entries of {} logs", log.entries.len(), log.logs.len());
            Ok(Outcome { done, log: Some(log) })
        }
    }
}

async fn keep(core: &Core, mut row: BmcLogRow, outcome: Result<Outcome, Failure>) -> Result<(), StoreError> {
    let now = clock::now();
    let mut events = Vec::new();
    row.done_at = now;
    match outcome {
        Ok(outcome) => {
            if row.wanted != "read" {
                events.push(event(&row, now, &outcome.done));
            }
            row.done = cut(&outcome.done, SENTENCE_MAX);
            row.error = String::new();
            if let Some(log) = outcome.log {
                row.read_at = now;
                row.body = serde_json::to_string(&log).unwrap_or_default();
            }
        }
        Err((why, security)) => {
            row.done = String::new();
            events.extend(security.map(|event| *event));
            if row.wanted != "read" {
                events.push(event(&row, now, &format!("{} was not done: {why}", row.wanted)));
            }
            row.error = cut(&why, SENTENCE_MAX);
        }
    }
    let mut tx = core.store.write().await?;
    if !tx.end_bmc_work(&row).await? {
        return Ok(());
    }
    for event in &events {
        tx.add_event(event).await?;
    }
    core.commit(tx).await
}

fn event(row: &BmcLogRow, at: Timestamp, message: &str) -> EventRow {
    EventRow {
        at,
        kind: EventKind::parse(&format!("bmc.{}", row.wanted)),
        target: format!("nodes/{}", row.node),
        message: cut(message, SENTENCE_MAX),
        attributes: [("asked_by".to_owned(), row.wanted_by.clone())].into(),
        ..EventRow::default()
    }
}

/// Refuses a node that must not lose power without force: a claimed node, or a node in a state of work.
///
/// # Errors
/// The reason, for people.
pub fn check_free(record: &NodeRecord) -> Result<(), String> {
    let Some(claim) = &record.node.claim else {
        return match record.node.state.is_at_rest() {
            true => Ok(()),
            false => Err(format!(
                "{} is {}: an operation is in progress on the node",
                record.id, record.node.state
            )),
        };
    };
    let holder = if claim.customer.is_empty() {
        "claimed"
    } else {
        "claimed by a customer"
    };
    Err(format!(
        "{} is {holder} ({}): an AC cycle stops everything that runs on it",
        record.id, record.node.state
    ))
}
