//! What every part of the control plane shares.

use std::collections::{BTreeMap, HashMap};
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rackwright_identity::{KeyFiles, Rng};
use rackwright_image::ChunkStore;
use rackwright_lifecycle::{EventKind, Outcome, Timestamp};
use rackwright_netboot::connections::{Connections, Limits};
use rackwright_store::{EffectRow, EventRow, NodeRecord, Store, StoreError, WriteTx};
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use crate::agent_boot::Refusals;
use crate::agents::Agents;
use crate::audit::Audit;
use crate::bmc::Bmcs;
use crate::boot::Told;
use crate::clock;
use crate::clusters::Clusters;
use crate::config::Config;
use crate::console::Consoles;
use crate::discovery::Discoveries;
use crate::ethernet::Switches;
use crate::facility::Facility;
use crate::firmware::Firmware;
use crate::firmware_settings::Wishes;
use crate::hall::Sites;
use crate::keys::authority::AuthorityChanges;
use crate::measured_boot::ServedFiles;
use crate::metrics::Metrics;
use crate::perform::Performer;
use crate::rights::Rights;
use crate::site_uploads::SiteUploads;
use crate::space::Space;
use crate::start::pause::Pause;
use crate::telemetry::Traces;
use crate::uploads::Uploads;
use crate::waits::Waits;
use crate::watch_power::Standing;

/// Steps running at once in this process. Most of them wait for a BMC, for seconds: with fewer, a hall that is switched on
/// at once would wait for us. Each takes some 50 kB while it talks to one.
pub const STEPS_AT_ONCE: usize = 12_288;

/// Reads what the boot services count.
#[derive(Clone)]
pub struct BootCounts {
    /// Counters by name.
    pub counters: Arc<dyn Fn() -> BTreeMap<String, u64> + Send + Sync>,
    /// Stages that were seen and are not stored yet.
    pub stages_waiting: Arc<dyn Fn() -> usize + Send + Sync>,
    /// Addresses that our DHCP has given out.
    pub addresses: Arc<dyn Fn() -> Vec<Ipv4Addr> + Send + Sync>,
}

/// Open connections by listener.
#[derive(Debug, Clone)]
pub struct Listeners {
    /// The API.
    pub api: Arc<Connections>,
    /// The image store.
    pub images: Arc<Connections>,
    /// Boot HTTP.
    pub boot: Arc<Connections>,
}

impl Listeners {
    /// No connection yet.
    #[must_use]
    pub fn new(limits: &Limits) -> Self {
        Self {
            api: Connections::with_certificates("API", limits),
            images: Connections::with_certificates("image store", limits),
            boot: Connections::of_boot_http(limits),
        }
    }
}

/// The control plane's shared state.
pub struct Core {
    /// What is kept.
    pub store: Store,
    /// This replica's name, the same at each of its starts.
    pub replica: String,
    /// Settings.
    pub config: Config,
    /// Authority, sealing and signing keys.
    pub keys: KeyFiles,
    /// Follows the rotation of the authority.
    pub authority_changes: AuthorityChanges,
    /// Randomness.
    pub rng: Arc<dyn Rng>,
    /// Connected agents.
    pub agents: Agents,
    /// Events about refused agents.
    pub refusals: Refusals,
    /// The audit.
    pub audit: Audit,
    /// Who does the effects.
    pub performer: Arc<dyn Performer>,
    /// Connections to BMCs.
    pub bmcs: Bmcs,
    /// Places for changes of BMC passwords: so many are made at once.
    pub changing: tokio::sync::Semaphore,
    /// Told when something is wanted of a BMC beside a node's life.
    pub bmc_work: tokio::sync::Notify,
    /// What all that ask BMCs over IPMI share.
    pub ipmi: Arc<rackwright_ipmi::Manners>,
    /// Logins to installed systems.
    pub logins: rackwright_validate::Logins,
    /// Open connections by listener.
    pub listeners: Listeners,
    /// Room on the disks that uploads are written to.
    pub space: Space,
    /// Image chunks.
    pub chunks: ChunkStore,
    /// Uploads being written and imported.
    pub uploads: Uploads,
    /// Calls that wait for operations.
    pub waits: Waits,
    /// What members have open, and whether they still may.
    pub rights: Arc<Rights>,
    /// Firmware files, and how far updates are.
    pub firmware: Firmware,
    /// Members who are sending site files.
    pub site_uploads: SiteUploads,
    /// The site that was read last.
    pub sites: Sites,
    /// Wakes who looks after clusters.
    pub clusters: Clusters,
    /// Nodes whose step runs in this process.
    pub runs: Runs,
    /// How the watch over nodes at rest stands.
    pub watch: Standing,
    /// Consoles of nodes.
    pub consoles: Consoles,
    /// Wakes who works on discoveries.
    pub discoveries: Discoveries,
    /// Power and cooling as they are measured.
    pub facility: Facility,
    /// Settings of firmware that nodes want.
    pub wishes: Wishes,
    /// The Ethernet switches whose ports are set.
    pub switches: Switches,
    /// What Prometheus is told.
    pub metrics: Metrics,
    /// What the collector of traces is told.
    pub traces: Traces,
    /// Digests of the boot files.
    pub served_files: ServedFiles,
    /// Counts of the boot services, where they run.
    pub boot_counts: Mutex<Option<BootCounts>>,
    /// Events about what machines of no node reported.
    pub unknown_reports: Mutex<Told>,
    /// Ticks when events were committed.
    pub events: watch::Sender<u64>,
    /// Which parts of the daemon run.
    pub health: crate::parts::Health,
    /// Whether this process only answers reads.
    pub pause: Pause,
    /// Ends everything.
    pub stop: CancellationToken,
    /// Where a test may end this process.
    #[cfg(test)]
    pub points: Option<Arc<dyn Points>>,
}

/// Where a process may end, and leave the rest undone: tests have it end there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Point {
    /// A step begins.
    Begin,
    /// What was changed is not stored yet.
    BeforeCommit,
    /// It is.
    AfterCommit,
    /// An effect is written down and not done.
    BeforeEffect,
    /// It is done, and how it went is not stored.
    AfterEffect,
}

/// Who is told that a process has come to a point, and keeps it there.
#[cfg(test)]
pub trait Points: Send + Sync {
    /// Returns when the process goes on.
    fn reach(&self, point: Point, what: &str) -> std::pin::Pin<Box<dyn Future<Output = ()> + Send>>;
}

impl std::fmt::Debug for Core {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Core")
    }
}

impl Core {
    /// A new id, ordered by time.
    #[must_use]
    pub fn new_id(&self) -> String {
        clock::new_id(self.rng.as_ref())
    }

    /// Commits a change, tells who follows events, and wakes whose turn it has become by it.
    ///
    /// # Errors
    /// The database failed; nothing of the change stays.
    pub async fn commit(&self, mut tx: WriteTx) -> Result<(), StoreError> {
        let (called, ended) = (tx.take_called(), tx.take_ended());
        let changes_members = tx.changes_members();
        let parted = tx.take_parted();
        self.point(Point::BeforeCommit, "").await;
        // The last lock before the commit.
        let audited = self.audit_with(&mut tx).await?;
        let begun = Instant::now();
        tx.commit().await?;
        self.metrics.committed(begun.elapsed());
        if let Some((added, call)) = audited {
            self.audit.stored(&added);
            call.written();
        }
        self.events.send_modify(|n| *n += 1);
        if changes_members {
            self.rights.changed();
        }
        ended.iter().for_each(|operation| self.waits.ended(operation));
        for (node, session) in &parted {
            self.agents.part(node, *session);
        }
        self.point(Point::AfterCommit, "").await;
        for node in called {
            self.wake(&node).await;
        }
        Ok(())
    }

    /// Occasions to look into the database again, at most one in `pause`.
    #[must_use]
    pub fn ticks(&self, pause: Duration) -> Ticks {
        Ticks {
            changes: self.events.subscribe(),
            pause,
            next: tokio::time::Instant::now(),
        }
    }

    /// A point where tests may end the process. Nothing else does.
    #[cfg_attr(not(test), allow(clippy::unused_async, clippy::unused_self))]
    pub async fn point(&self, point: Point, what: &str) {
        #[cfg(test)]
        if let Some(points) = &self.points {
            points.reach(point, what).await;
        }
        #[cfg(not(test))]
        let _ = (point, what);
    }

    /// Has a node looked at again, soon: by the step that runs for it, or by a new one. For what no change has stored: what
    /// one has makes its nodes due itself, or it would be forgotten with this process.
    pub async fn wake(&self, node: &str) {
        if self.runs.nudge(node) {
            return;
        }
        if let Err(error) = self.store.wake(node, clock::now()).await {
            tracing::warn!(node, %error, "the node could not be made due; its lease's end will find it");
        }
        self.runs.due.notify_one();
    }

    /// Has a node looked at that a change has made due: by the step that runs for it, or by a new one.
    pub fn is_due(&self, node: &str) {
        if !self.runs.nudge(node) {
            self.runs.due.notify_one();
        }
    }

    /// An effect has ended, and that is stored.
    pub fn effect_ended(&self, record: &NodeRecord, effect: &EffectRow, outcome: &Outcome, now: Timestamp) {
        let took_us = now.since(effect.attempt.started_at);
        let vendor = &record.identity.vendor;
        self.metrics
            .effect_ended(effect.attempt.effect, outcome, vendor, took_us);
        self.traces.effect_ended(record, effect, outcome, now);
    }

    /// Stores one event by itself.
    pub async fn event(&self, kind: EventKind, target: &str, message: &str) {
        let event = EventRow {
            at: clock::now(),
            kind,
            target: target.to_owned(),
            message: message.to_owned(),
            ..EventRow::default()
        };
        let stored = async {
            let mut tx = self.store.write().await?;
            tx.add_event(&event).await?;
            self.commit(tx).await
        };
        if let Err(error) = stored.await {
            tracing::error!(kind = %event.kind, target, message, %error, "an event could not be stored");
        }
    }

    /// An instant as the lease's end: long enough for a step's own database work, short enough for a crash.
    #[must_use]
    pub fn lease_end(&self, now: Timestamp) -> Timestamp {
        now.plus(rackwright_lifecycle::seconds(60))
    }
}

/// Tells whoever follows what is stored that there may be something new.
#[derive(Debug)]
pub struct Ticks {
    changes: watch::Receiver<u64>,
    pause: Duration,
    next: tokio::time::Instant,
}

impl Ticks {
    /// From now on at most one in `pause`.
    pub fn slow_to(&mut self, pause: Duration) {
        self.pause = pause;
    }

    /// Waits until something was stored since the last call: at once after a quiet time, and in a storm for many changes
    /// together. False when nothing will be stored any more.
    pub async fn next(&mut self) -> bool {
        tokio::time::sleep_until(self.next).await;
        let is_open = self.changes.changed().await.is_ok();
        self.next = tokio::time::Instant::now() + self.pause;
        is_open
    }
}

/// Nodes whose step runs in this process. One step a node; a wish to look again meanwhile is kept, not queued.
#[derive(Debug, Default)]
pub struct Runs {
    running: Mutex<HashMap<String, Run>>,
    /// Somebody became due.
    pub due: Notify,
}

#[derive(Debug)]
struct Run {
    again: bool,
    nudge: Arc<Notify>,
}

impl Runs {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Run>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many steps run.
    #[must_use]
    pub fn count(&self) -> usize {
        self.lock().len()
    }

    /// Whether a node's step runs.
    #[must_use]
    pub fn has(&self, node: &str) -> bool {
        self.lock().contains_key(node)
    }

    /// Begins a node's step. None when one runs already: that one will look again.
    #[must_use]
    pub fn begin(&self, node: &str) -> Option<Arc<Notify>> {
        let mut running = self.lock();
        if let Some(run) = running.get_mut(node) {
            // It was made due, by another replica perhaps, which cannot tell the step itself.
            run.again = true;
            run.nudge.notify_one();
            return None;
        }
        let nudge = Arc::new(Notify::new());
        running.insert(
            node.to_owned(),
            Run {
                again: false,
                nudge: nudge.clone(),
            },
        );
        Some(nudge)
    }

    /// Tells a running step that something changed. False when none runs.
    pub fn nudge(&self, node: &str) -> bool {
        let mut running = self.lock();
        let Some(run) = running.get_mut(node) else { return false };
        run.again = true;
        run.nudge.notify_one();
        true
    }

    /// True once if something changed since the last call.
    #[must_use]
    pub fn take_again(&self, node: &str) -> bool {
        self.lock()
            .get_mut(node)
            .is_some_and(|run| std::mem::take(&mut run.again))
    }

    /// Ends a node's step, unless something changed: then answers false and the step goes on.
    #[must_use]
    pub fn end(&self, node: &str) -> bool {
        let mut running = self.lock();
        if running.get(node).is_some_and(|run| run.again) {
            return false;
        }
        running.remove(node);
        true
    }

    /// Ends a node's step, whatever changed; the lease's end will find it.
    pub fn abandon(&self, node: &str) {
        self.lock().remove(node);
    }
}
