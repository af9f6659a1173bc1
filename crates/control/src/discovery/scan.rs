//! Looks at the targets, many in parallel and at a limited rate, and stores findings and progress on the way. A restart
//! continues from the stored progress.

use std::collections::{BTreeSet, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rackwright_ground::clock;
use rackwright_ground::core::Core;
use rackwright_lifecycle::seconds;
use rackwright_store::{DiscoveryRow, FindingRow, StoreError};
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, sleep, sleep_until};

use super::look::{LookResult, Looker};
use super::spec::Plan;

/// Pause between two stores of the progress.
const FLUSH: Duration = Duration::from_secs(1);
/// Number of findings after which the progress is stored early.
const FINDINGS: usize = 200;
/// Length of the lease in seconds: other replicas leave a discovery alone this long after its last store.
pub(super) const LEASE_S: i64 = 60;
/// Connections that may begin together after a pause.
const BURST: u32 = 64;
/// Tries of a target while this process cannot open a connection, and the pause between them.
const LOCAL_TRIES: u32 = 40;
const LOCAL_PAUSE: Duration = Duration::from_millis(250);

/// Why a scan ends.
#[derive(Debug)]
pub enum ScanEnd {
    /// All targets are done.
    Done,
    /// A caller cancelled it.
    Cancelled,
    /// Its operation ended because it took too long.
    Overdue,
    /// Another replica has it.
    Lost,
    /// This process ends; the next one continues.
    Stopped,
    /// It cannot continue, for this reason.
    Failed(String),
}

/// The result of a look, with the number of its target.
pub type Look = (u64, LookResult);

/// The rate of new connections: even, with a short burst after a pause.
struct Pace {
    interval: Duration,
    next: Instant,
}

impl Pace {
    fn new(per_second: u32) -> Self {
        Self {
            interval: Duration::from_secs(1) / per_second.max(1),
            next: Instant::now(),
        }
    }

    /// The moment at which the next connection may begin.
    fn take(&mut self) -> Instant {
        let now = Instant::now();
        let earliest = now.checked_sub(self.interval * BURST).unwrap_or(now);
        let at = self.next.max(earliest);
        self.next = at + self.interval;
        at
    }
}

/// Waits until that moment. A moment in the past returns at once: the timer would take a millisecond.
async fn due(at: Instant) {
    if Instant::now() < at {
        sleep_until(at).await;
    }
}

/// Findings that are not stored yet. The owner of a discovery's task shares them, so they outlive a panic of the task.
#[derive(Debug, Clone, Default)]
pub struct Unstored(Arc<Mutex<Vec<FindingRow>>>);

impl Unstored {
    fn rows(&self) -> MutexGuard<'_, Vec<FindingRow>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A copy of all findings, oldest first.
    pub fn copy(&self) -> Vec<FindingRow> {
        self.rows().clone()
    }
}

/// A discovery in progress.
pub struct Scan {
    /// The control plane.
    pub core: Arc<Core>,
    /// Its stored row.
    pub row: DiscoveryRow,
    /// The targets.
    pub plan: Plan,
    /// Looks at one target.
    pub looker: Arc<Looker>,
    /// Places that a former process finished. No more logins are tried there.
    done: HashSet<String>,
    open: BTreeSet<u64>,
    /// Silent targets that are not counted yet.
    silent: BTreeSet<u64>,
    found: Unstored,
}

impl Scan {
    /// Continues the stored discovery. `done` are the places that have findings already; `found` receives the new findings.
    pub fn new(
        core: Arc<Core>,
        row: DiscoveryRow,
        plan: Plan,
        looker: Looker,
        done: HashSet<String>,
        found: Unstored,
    ) -> Self {
        Self {
            core,
            row,
            plan,
            looker: Arc::new(looker),
            done,
            open: BTreeSet::new(),
            silent: BTreeSet::new(),
            found,
        }
    }

    /// Looks at all remaining targets. On return the findings are stored, unless another replica has the discovery.
    pub async fn run(&mut self) -> Result<ScanEnd, StoreError> {
        let settings = &self.core.config.discovery;
        let (at_once, mut pace) = (settings.at_once, Pace::new(settings.connections_per_s));
        let (mut next, total) = (u64::try_from(self.row.reached).unwrap_or(0), self.plan.count());
        let mut looks = JoinSet::new();
        let mut flush_at = Instant::now() + FLUSH;
        let mut begin_at = pace.take();
        let stop = self.core.stop.clone();
        loop {
            let may_begin = next < total && looks.len() < at_once;
            tokio::select! {
                biased;
                () = stop.cancelled() => return self.end(ScanEnd::Stopped, next, &mut looks).await,
                () = sleep_until(flush_at) => {
                    if let Some(end) = self.flush(next).await? {
                        return self.end(end, next, &mut looks).await;
                    }
                    flush_at = Instant::now() + FLUSH;
                }
                Some(ended) = looks.join_next() => {
                    if let Some(end) = self.take(ended, next, &mut looks).await? {
                        return Ok(end);
                    }
                    if self.found.rows().len() >= FINDINGS {
                        flush_at = Instant::now();
                    }
                }
                () = due(begin_at), if may_begin => {
                    let target = self.plan.nth(next);
                    if let Some(target) = target.filter(|target| !self.done.contains(&target.place)) {
                        self.open.insert(next);
                        let (looker, index) = (self.looker.clone(), next);
                        looks.spawn(async move { (index, look_with_retries(&looker, &target).await) });
                        begin_at = pace.take();
                    }
                    next += 1;
                }
                else => break,
            }
            if next >= total && looks.is_empty() {
                break;
            }
        }
        Ok(self.flush(next).await?.unwrap_or(ScanEnd::Done))
    }

    /// Takes the result of a look that has ended. Returns the reason if the scan has to end; the findings are stored then.
    pub(super) async fn take(
        &mut self,
        ended: Result<Look, JoinError>,
        next: u64,
        looks: &mut JoinSet<Look>,
    ) -> Result<Option<ScanEnd>, StoreError> {
        let end = match ended {
            Ok((index, result)) => self.note(index, result),
            Err(error) => Some(ScanEnd::Failed(format!("the scan of a target ended early: {error}"))),
        };
        match end {
            Some(end) => self.end(end, next, looks).await.map(Some),
            None => Ok(None),
        }
    }

    /// Stores everything that was found, also by looks that ended a moment ago, before the scan ends for this reason.
    async fn end(&mut self, end: ScanEnd, next: u64, looks: &mut JoinSet<Look>) -> Result<ScanEnd, StoreError> {
        while let Some(ended) = looks.try_join_next() {
            if let Ok((index, result)) = ended {
                // The scan ends whatever this look says.
                let _ = self.note(index, result);
            }
        }
        self.flush(next).await?;
        Ok(end)
    }

    fn note(&mut self, index: u64, result: LookResult) -> Option<ScanEnd> {
        self.open.remove(&index);
        match result {
            LookResult::Silent => {
                self.silent.insert(index);
            }
            LookResult::Found(row) => self.found.rows().push(*row),
            LookResult::Local(error) => {
                self.open.insert(index);
                let why = format!(
                    "this host cannot open more connections: {error}; lower discovery.at_once, or give rackwrightd more \
                     file descriptors"
                );
                return Some(ScanEnd::Failed(why));
            }
        }
        None
    }

    /// Stores the progress. Returns the reason if the scan has to end.
    async fn flush(&mut self, next: u64) -> Result<Option<ScanEnd>, StoreError> {
        let reached = self.open.first().copied().unwrap_or(next);
        let later = self.silent.split_off(&reached);
        let silent = std::mem::replace(&mut self.silent, later).len();
        self.row.reached = i64::try_from(reached).unwrap_or(i64::MAX);
        self.row.silent += i64::try_from(silent).unwrap_or(0);
        self.row.lease_until = clock::now().plus(seconds(LEASE_S));
        // Removed only after the commit: a panic before it loses nothing.
        let found = self.found.copy();
        let mut tx = self.core.store.write().await?;
        if !tx.save_discovery(&self.row).await? {
            return Ok(Some(ScanEnd::Lost));
        }
        tx.put_findings(&found).await?;
        let operation = tx.operation(&self.row.id).await?;
        self.core.commit(tx).await?;
        self.found.rows().drain(..found.len());
        Ok(match (operation.ended_at, operation.cancel_requested) {
            (Some(_), _) => Some(ScanEnd::Overdue),
            (None, true) => Some(ScanEnd::Cancelled),
            _ => None,
        })
    }
}

/// Looks at a target, and tries again while this process cannot open a connection.
async fn look_with_retries(looker: &Looker, target: &super::spec::Target) -> LookResult {
    for _ in 0..LOCAL_TRIES {
        match looker.look(target).await {
            LookResult::Local(error) => tracing::debug!(%error, "no connection to spare"),
            result => return result,
        }
        sleep(LOCAL_PAUSE).await;
    }
    looker.look(target).await
}
