//! Looks at one target after the other, many at once and not too quickly, and stores what was found as it goes. What is stored
//! says from where to go on.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;

use rackwright_lifecycle::seconds;
use rackwright_store::{DiscoveryRow, FindingRow, StoreError};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use super::look::{Looked, Looker};
use super::wanted::Plan;
use crate::clock;
use crate::core::Core;

/// Between two stores of how far it is.
const FLUSH: Duration = Duration::from_secs(1);
/// Findings after which it is stored sooner.
const FINDINGS: usize = 200;
/// Nobody else takes a discovery up for so long after it was stored last.
pub(super) const LEASE_S: i64 = 60;
/// Connections that may begin together after a pause.
const BURST: u32 = 64;
/// How often a target is tried again when this process can open no connection, and the pause before.
const LOCAL_TRIES: u32 = 40;
const LOCAL_PAUSE: Duration = Duration::from_millis(250);

/// Why a discovery goes on no more.
#[derive(Debug)]
pub enum End {
    /// All is looked at.
    Done,
    /// Somebody asked for it.
    Cancelled,
    /// Its operation ended: it took too long.
    Overdue,
    /// It is another replica's.
    Lost,
    /// This process ends; the next one goes on.
    Stopped,
    /// It cannot go on, and why.
    Failed(String),
}

/// When the next connection may begin: evenly, with a few at once after a pause.
struct Pace {
    each: Duration,
    next: Instant,
}

impl Pace {
    fn new(per_second: u32) -> Self {
        Self {
            each: Duration::from_secs(1) / per_second.max(1),
            next: Instant::now(),
        }
    }

    /// The moment at which one more may begin.
    fn take(&mut self) -> Instant {
        let now = Instant::now();
        let earliest = now.checked_sub(self.each * BURST).unwrap_or(now);
        let at = self.next.max(earliest);
        self.next = at + self.each;
        at
    }
}

/// At that moment; at once when it has passed, which the timer would tell a millisecond later.
async fn due(at: Instant) {
    if Instant::now() < at {
        sleep_until(at).await;
    }
}

/// A discovery under way.
pub struct Scan {
    /// The control plane.
    pub core: Arc<Core>,
    /// What is stored of it.
    pub row: DiscoveryRow,
    /// What it looks at.
    pub plan: Plan,
    /// How.
    pub looker: Arc<Looker>,
    /// Places that a former process finished. No more logins are tried there.
    done: HashSet<String>,
    open: BTreeSet<u64>,
    /// Targets that did not answer and are not counted yet.
    silent: BTreeSet<u64>,
    found: Vec<FindingRow>,
}

impl Scan {
    /// Goes on with what is stored, which has findings of these places already.
    pub fn new(core: Arc<Core>, row: DiscoveryRow, plan: Plan, looker: Looker, done: HashSet<String>) -> Self {
        Self {
            core,
            row,
            plan,
            looker: Arc::new(looker),
            done,
            open: BTreeSet::new(),
            silent: BTreeSet::new(),
            found: Vec::new(),
        }
    }

    /// Looks at all that is left. What was found is stored when it returns, unless it is another's.
    ///
    /// # Errors
    /// The database failed.
    pub async fn run(&mut self) -> Result<End, StoreError> {
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
                () = stop.cancelled() => {
                    self.flush(next).await?;
                    return Ok(End::Stopped);
                }
                () = sleep_until(flush_at) => {
                    if let Some(end) = self.flush(next).await? {
                        return Ok(end);
                    }
                    flush_at = Instant::now() + FLUSH;
                }
                Some(looked) = looks.join_next() => match looked {
                    Ok((index, looked)) => {
                        if let Some(end) = self.note(index, looked) {
                            self.flush(next).await?;
                            return Ok(end);
                        }
                        if self.found.len() >= FINDINGS {
                            flush_at = Instant::now();
                        }
                    }
                    Err(error) => return Ok(End::Failed(format!("a look ended in the middle: {error}"))),
                },
                () = due(begin_at), if may_begin => {
                    let target = self.plan.nth(next);
                    if let Some(target) = target.filter(|target| !self.done.contains(&target.place)) {
                        self.open.insert(next);
                        let (looker, index) = (self.looker.clone(), next);
                        looks.spawn(async move { (index, patiently(&looker, &target).await) });
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
        Ok(self.flush(next).await?.unwrap_or(End::Done))
    }

    fn note(&mut self, index: u64, looked: Looked) -> Option<End> {
        self.open.remove(&index);
        match looked {
            Looked::Silent => {
                self.silent.insert(index);
            }
            Looked::Found(row) => self.found.push(*row),
            Looked::Local(error) => {
                self.open.insert(index);
                let why = format!(
                    "this machine can open no more connections: {error}; lower discovery.at_once, or give rackwrightd more \
                     file descriptors"
                );
                return Some(End::Failed(why));
            }
        }
        None
    }

    /// Stores how far it is. Answers why it has to end, if it has.
    async fn flush(&mut self, next: u64) -> Result<Option<End>, StoreError> {
        let reached = self.open.first().copied().unwrap_or(next);
        let later = self.silent.split_off(&reached);
        let silent = std::mem::replace(&mut self.silent, later).len();
        self.row.reached = i64::try_from(reached).unwrap_or(i64::MAX);
        self.row.silent += i64::try_from(silent).unwrap_or(0);
        self.row.lease_until = clock::now().plus(seconds(LEASE_S));
        let found = std::mem::take(&mut self.found);
        let mut tx = self.core.store.write().await?;
        if !tx.save_discovery(&self.row).await? {
            return Ok(Some(End::Lost));
        }
        tx.put_findings(&found).await?;
        let operation = tx.operation(&self.row.id).await?;
        self.core.commit(tx).await?;
        Ok(match (operation.ended_at, operation.cancel_requested) {
            (Some(_), _) => Some(End::Overdue),
            (None, true) => Some(End::Cancelled),
            _ => None,
        })
    }
}

/// Looks, and again when this process has no connection to spare just now.
async fn patiently(looker: &Looker, target: &super::wanted::Target) -> Looked {
    for _ in 0..LOCAL_TRIES {
        match looker.look(target).await {
            Looked::Local(error) => tracing::debug!(%error, "no connection to spare"),
            looked => return looked,
        }
        sleep(LOCAL_PAUSE).await;
    }
    looker.look(target).await
}
