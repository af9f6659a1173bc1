//! Finding BMCs in the management network.
//!
//! A discovery is a row with its request and progress (`discoveries`), and an operation. The request only stores the
//! row. One replica at a time works on it, under a lease that each store of progress renews. The replica reads other
//! sources of addresses (`listen`), looks at each target (`scan`, `look`), and finally matches findings to machines
//! (`finish`). After a restart the discovery goes on at the first unfinished target.
//!
//! Guarantees: no password goes to an address before its service root is seen to be Redfish over TLS (on a loopback
//! address: Redfish). No BMC gets more login tries in one discovery than allowed, restarts included. No finding becomes
//! a node, and no node gets another address, without a request.

pub mod finish;
mod listen;
pub mod logins;
pub mod look;
mod scan;
pub mod spec;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rackwright_ground::clock;
use rackwright_ground::config::Config;
use rackwright_ground::core::Core;
use rackwright_ground::features::FeatureState;
use rackwright_ground::keys::purposes::secrets_purpose;
use rackwright_ground::stored;
use rackwright_lifecycle::{EventKind, OperationId, seconds};
use rackwright_store::{DiscoveryRow, EventRow, FindingRow, StoreError};
use tokio::sync::{Notify, Semaphore};
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::{Instant, MissedTickBehavior};
use tonic::Code;

use self::logins::{FactoryLogins, GivenLogins};
use self::look::Looker;
use self::scan::{LEASE_S, Scan, ScanEnd, Unstored};
use self::spec::{DiscoverySpec, Plan, Secrets, SourceResults};

/// Pause between two looks for discoveries without a worker.
const ROUND: Duration = Duration::from_secs(10);
/// Discoveries that this process works on in parallel.
const AT_ONCE: usize = 2;
/// Ended discoveries that are kept.
pub const KEPT: i64 = 50;
/// Longest duration of a discovery, in minutes.
pub const DEADLINE_MIN: i64 = 24 * 60;
/// Logins tried at one BMC by default, and at most.
pub const TRIES: u32 = 2;
/// See [`TRIES`].
pub const TRIES_MAX: u32 = 5;
/// The lease is renewed this often while findings are judged, because silent BMCs take time.
const RENEW: Duration = Duration::from_secs(20);
/// Findings stored in one transaction.
const CHUNK: usize = 500;

/// Wakes the worker of discoveries.
#[derive(Debug, Default)]
pub struct Discoveries {
    wake: Notify,
    running: Mutex<HashSet<OperationId>>,
}

impl FeatureState for Discoveries {
    fn new(_: &Config) -> Self {
        Self::default()
    }
}

impl Discoveries {
    /// Signals that a discovery may be ready to begin.
    pub fn wake(&self) {
        self.wake.notify_one();
    }

    fn begin(&self, id: &OperationId) -> bool {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        running.len() < AT_ONCE && running.insert(id.clone())
    }

    fn end(&self, id: &OperationId) {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        running.remove(id);
        self.wake();
    }
}

/// Runs discoveries until the core stops; then their progress is stored.
pub async fn run(core: Arc<Core>) {
    let mut tasks = Tasks::default();
    loop {
        if let Err(error) = take_up(&core, &mut tasks).await {
            tracing::warn!(%error, "discoveries could not be taken up; the next round tries again");
        }
        tokio::select! {
            () = core.stop.cancelled() => break,
            () = core.feature::<Discoveries>().wake.notified() => {}
            Some(ended) = tasks.running.join_next_with_id() => tasks.ended(&core, ended).await,
            () = tokio::time::sleep(ROUND) => {}
        }
    }
    while let Some(ended) = tasks.running.join_next_with_id().await {
        tasks.ended(&core, ended).await;
    }
}

#[derive(Default)]
struct Tasks {
    running: JoinSet<()>,
    discoveries: HashMap<Id, Running>,
}

/// A discovery with a task.
struct Running {
    id: OperationId,
    found: Unstored,
}

impl Tasks {
    /// Frees the place of a discovery after the end of its task. If the task panicked, its findings are stored and the
    /// discovery fails, because the next task would panic again.
    async fn ended(&mut self, core: &Core, ended: Result<(Id, ()), JoinError>) {
        let (task, panicked) = match ended {
            Ok((task, ())) => (task, None),
            Err(error) => (error.id(), Some(error)),
        };
        let Some(Running { id, found }) = self.discoveries.remove(&task) else {
            return;
        };
        if let Some(error) = panicked {
            tracing::error!(discovery = id.as_str(), %error, "a discovery panicked");
            let why = "an internal fault of the control plane ended the discovery; its log has the details".to_owned();
            if let Err(error) = fail(core, &id, &found, why).await {
                tracing::warn!(discovery = id.as_str(), %error, "the failure of a discovery could not be stored");
            }
        }
        core.feature::<Discoveries>().end(&id);
    }
}

/// Stores the findings of a discovery without a task, and ends the discovery.
async fn fail(core: &Core, id: &OperationId, found: &Unstored, why: String) -> Result<(), StoreError> {
    let mut row = core.store.discovery(id).await?;
    if save(core, &mut row, &found.copy()).await? {
        end(core, row, &ScanEnd::Failed(why)).await?;
    }
    Ok(())
}

async fn take_up(core: &Arc<Core>, tasks: &mut Tasks) -> Result<(), StoreError> {
    // A restored database may list discoveries that ended after the backup.
    if core.store.is_restored().await? {
        return Ok(());
    }
    for id in core.store.claimable_discoveries(&core.replica, clock::now()).await? {
        if !core.feature::<Discoveries>().begin(&id) {
            continue;
        }
        let now = clock::now();
        let until = now.plus(seconds(LEASE_S));
        match core.store.lease_discovery(&id, &core.replica, now, until).await {
            Ok(true) => {}
            other => {
                core.feature::<Discoveries>().end(&id);
                other?;
                continue;
            }
        }
        let running = Running {
            id: id.clone(),
            found: Unstored::default(),
        };
        let (core, found) = (core.clone(), running.found.clone());
        let task = tasks.running.spawn(async move {
            if let Err(error) = work(&core, &id, found).await {
                tracing::warn!(discovery = id.as_str(), %error, "a discovery was interrupted; it is taken up again");
                // A pause before the next try: the database is unavailable.
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        });
        tasks.discoveries.insert(task.id(), running);
    }
    Ok(())
}

async fn work(core: &Arc<Core>, id: &OperationId, found: Unstored) -> Result<(), StoreError> {
    let mut row = core.store.discovery(id).await?;
    let max = core.config.discovery.max_addresses;
    let (spec, secrets) = match opened(core, &row) {
        Ok(opened) => opened,
        Err(why) => return end(core, row, &ScanEnd::Failed(why)).await,
    };
    if row.phase == "listening" {
        let boot = core.boot_counts.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let given = boot.map(|boot| (boot.addresses)());
        let heard = listen::listen(&spec, &core.config.discovery, given).await;
        row.heard = serde_json::to_string(&heard).unwrap_or_default();
        row.total = i64::try_from(Plan::new(&spec, &heard, max).count()).unwrap_or(i64::MAX);
        "looking".clone_into(&mut row.phase);
        if !save(core, &mut row, &[]).await? {
            return Ok(());
        }
    }
    if row.phase == "looking" {
        let heard: SourceResults = stored::json("discovery", id.as_str(), &row.heard)?;
        let plan = Plan::new(&spec, &heard, max);
        let looker = Looker {
            core: core.clone(),
            discovery: row.id.clone(),
            logins: match spec.factory_credentials {
                true => Box::new(FactoryLogins::new(core.clone(), secrets)),
                false => Box::new(GivenLogins(secrets)),
            },
            tries: i64::from(spec.login_tries.clamp(1, TRIES_MAX)),
            tried: core.store.finding_tries(id).await?,
            nodes: finish::nodes(core)
                .await?
                .known
                .into_iter()
                .map(|node| node.address)
                .collect(),
            turns: Semaphore::new(core.config.discovery.bmcs_at_once),
        };
        let done = core.store.finding_places(id).await?;
        let mut scan = Scan::new(core.clone(), row, plan, looker, done, found);
        let how = scan.run().await?;
        row = scan.row;
        match how {
            ScanEnd::Lost | ScanEnd::Stopped => return Ok(()),
            ScanEnd::Done => {}
            // The findings so far are judged, too.
            other => {
                if judge(core, &mut row).await? {
                    end(core, row, &other).await?;
                }
                return Ok(());
            }
        }
        "judging".clone_into(&mut row.phase);
        if !save(core, &mut row, &[]).await? {
            return Ok(());
        }
    }
    if !judge(core, &mut row).await? {
        return Ok(());
    }
    end(core, row, &ScanEnd::Done).await
}

/// Judges the findings and stores the result, under a lease that is renewed meanwhile. False: another replica has the
/// discovery now.
async fn judge(core: &Core, row: &mut DiscoveryRow) -> Result<bool, StoreError> {
    let id = row.id.clone();
    match with_renewed_lease(core, row, RENEW, finish::judge_all(core, &id)).await? {
        Some(judged) => store_all(core, row, &judged).await,
        None => Ok(false),
    }
}

/// Runs `work` under a lease that is renewed after each `every`. `None`: another replica has the discovery now.
async fn with_renewed_lease<T>(
    core: &Core,
    row: &mut DiscoveryRow,
    every: Duration,
    work: impl Future<Output = Result<T, StoreError>>,
) -> Result<Option<T>, StoreError> {
    let mut work = std::pin::pin!(work);
    let mut renew = tokio::time::interval_at(Instant::now() + every, every);
    renew.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            done = &mut work => return done.map(Some),
            _ = renew.tick() => if !save(core, row, &[]).await? {
                return Ok(None);
            },
        }
    }
}

fn opened(core: &Core, row: &DiscoveryRow) -> Result<(DiscoverySpec, Secrets), String> {
    let spec = serde_json::from_str(&row.spec).map_err(|e| format!("the request cannot be read: {e}"))?;
    let text = core.keys.sealer.open(&row.secrets, &secrets_purpose(&row.id));
    let text = text.map_err(|e| format!("the logins that were given cannot be opened: {e}"))?;
    let secrets = serde_json::from_str(secrecy::ExposeSecret::expose_secret(&text));
    // The error's message would show a part of the logins.
    let secrets = secrets.map_err(|_| "the logins that were given cannot be read".to_owned())?;
    Ok((spec, secrets))
}

async fn save(core: &Core, row: &mut DiscoveryRow, findings: &[FindingRow]) -> Result<bool, StoreError> {
    row.lease_until = clock::now().plus(seconds(LEASE_S));
    let mut tx = core.store.write().await?;
    if !tx.save_discovery(row).await? {
        return Ok(false);
    }
    tx.put_findings(findings).await?;
    core.commit(tx).await?;
    Ok(true)
}

async fn store_all(core: &Core, row: &mut DiscoveryRow, findings: &[FindingRow]) -> Result<bool, StoreError> {
    for some in findings.chunks(CHUNK) {
        if !save(core, row, some).await? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Ends a discovery and its operation, and deletes its logins.
async fn end(core: &Core, mut row: DiscoveryRow, how: &ScanEnd) -> Result<(), StoreError> {
    let now = clock::now();
    let (code, message) = match how {
        ScanEnd::Cancelled => (
            Code::Cancelled,
            "the discovery was cancelled; the findings until then are listed".to_owned(),
        ),
        ScanEnd::Overdue => (
            Code::DeadlineExceeded,
            "the discovery did not end before its deadline".to_owned(),
        ),
        ScanEnd::Failed(why) => (Code::Unavailable, why.clone()),
        ScanEnd::Done | ScanEnd::Lost | ScanEnd::Stopped => (Code::Ok, String::new()),
    };
    "done".clone_into(&mut row.phase);
    row.message.clone_from(&message);
    row.ended_at = Some(now);
    let counts = core.store.finding_counts(&row.id).await?;
    let mut tx = core.store.write().await?;
    if !tx.save_discovery(&row).await? {
        return Ok(());
    }
    tx.forget_discovery_secrets(&row.id).await?;
    tx.end_operation(&row.id, code as i32, &message, now).await?;
    let found: Vec<String> = counts.iter().map(|(state, count)| format!("{count} {state}")).collect();
    let event = EventRow {
        at: now,
        kind: EventKind::DiscoveryEnded,
        target: format!("discoveries/{}", row.id),
        message: format!(
            "{} of {} targets scanned, {} silent; found: {}",
            row.reached,
            row.total,
            row.silent,
            if found.is_empty() {
                "nothing".to_owned()
            } else {
                found.join(", ")
            }
        ),
        ..EventRow::default()
    };
    tx.add_event(&event).await?;
    core.commit(tx).await
}

#[cfg(test)]
mod tests;
