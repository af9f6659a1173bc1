//! The shared state of the control plane.

use std::collections::{BTreeMap, HashMap};
use std::net::Ipv4Addr;
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rackwright_identity::{KeyFiles, Rng};
use rackwright_image::ChunkStore;
use rackwright_lifecycle::{EventKind, NodeId, Outcome, Timestamp};
use rackwright_netboot::connections::{Connections, Limits};
use rackwright_store::{EffectRow, EventRow, NodeRecord, Store, StoreError, WriteTx};
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use crate::agent_boot::Refusals;
use crate::agents::Agents;
use crate::audit::Audit;
use crate::bmc::Bmcs;
use crate::boot::EventBudget;
use crate::clock;
use crate::clusters::Clusters;
use crate::config::Config;
use crate::console::Consoles;
use crate::discovery::Discoveries;
use crate::ethernet::Switches;
use crate::facility::Facility;
use crate::firmware::Firmware;
use crate::firmware_settings::WantedCache;
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
use crate::watch_power::WatchStatus;

/// Steps that run at once in this process. Most of them wait for a BMC, for seconds: with fewer, a hall that is switched on
/// at once would wait for the daemon. Each takes some 50 kB while it talks to a BMC.
pub const STEPS_AT_ONCE: usize = 12_288;

/// Reads the counters of the boot services.
#[derive(Clone)]
pub struct BootCounts {
    /// Counters by name.
    pub counters: Arc<dyn Fn() -> BTreeMap<String, u64> + Send + Sync>,
    /// Stages that are not stored yet.
    pub stages_waiting: Arc<dyn Fn() -> usize + Send + Sync>,
    /// Addresses that the DHCP of this site has given out.
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
    /// Listeners without connections.
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
///
/// Asynchronous functions hold `&Core`, so the compiler proves for each of them that threads may share the state. The state is a
/// trait object, so this proof is one step. Without the trait object, each proof walks through all fields down to the clients of
/// SSH and Redfish.
pub struct Core(Box<dyn Shared>);

/// A state that threads may share.
trait Shared: Send + Sync {
    fn state(&self) -> &State;
    #[cfg(test)]
    fn state_mut(&mut self) -> &mut State;
}

impl Shared for State {
    fn state(&self) -> &State {
        self
    }

    #[cfg(test)]
    fn state_mut(&mut self) -> &mut State {
        self
    }
}

impl Deref for Core {
    type Target = State;

    fn deref(&self) -> &State {
        self.0.state()
    }
}

/// Tests replace parts of a new state.
#[cfg(test)]
impl std::ops::DerefMut for Core {
    fn deref_mut(&mut self) -> &mut State {
        self.0.state_mut()
    }
}

/// The parts of [`Core`].
pub struct State {
    /// The database.
    pub store: Store,
    /// This replica's name, stable across restarts.
    pub replica: String,
    /// The checked configuration of this replica.
    pub config: Config,
    /// Authority, sealing and signing keys.
    pub keys: KeyFiles,
    /// Follows the rotation of the authority.
    pub authority_changes: AuthorityChanges,
    /// Source of random bytes.
    pub rng: Arc<dyn Rng>,
    /// Agents that are connected to this process.
    pub agents: Agents,
    /// When refused agents were last reported.
    pub refusals: Refusals,
    /// Records calls, and exports the records.
    pub audit: Audit,
    /// Performs the effects.
    pub performer: Arc<dyn Performer>,
    /// Clients of BMCs.
    pub bmcs: Bmcs,
    /// Limits the number of BMC password changes at once.
    pub changing: tokio::sync::Semaphore,
    /// Notified when a BMC work request is stored.
    pub bmc_work: tokio::sync::Notify,
    /// Shared by all IPMI clients.
    pub ipmi: Arc<rackwright_ipmi::RequestLimiter>,
    /// SSH logins to installed systems, kept between effects.
    pub logins: rackwright_validate::Logins,
    /// Open connections by listener.
    pub listeners: Listeners,
    /// Free room on the disks for uploads.
    pub space: Space,
    /// Chunks of images, in the folder that all replicas share.
    pub chunks: ChunkStore,
    /// Uploads being written and imported.
    pub uploads: Uploads,
    /// Calls that wait for operations.
    pub waits: Waits,
    /// What members have open, and whether they still have the right to it.
    pub rights: Arc<Rights>,
    /// Firmware files, and the progress of updates.
    pub firmware: Firmware,
    /// Members who are sending site files.
    pub site_uploads: SiteUploads,
    /// The site as it was last read.
    pub sites: Sites,
    /// Wakes the part that works on clusters.
    pub clusters: Clusters,
    /// Nodes with a step running in this process.
    pub running_steps: RunningSteps,
    /// State of the watch over nodes at rest.
    pub watch: WatchStatus,
    /// Consoles of nodes.
    pub consoles: Consoles,
    /// Wakes the part that works on discoveries.
    pub discoveries: Discoveries,
    /// Measured power and cooling.
    pub facility: Facility,
    /// Wanted firmware settings of nodes.
    pub wanted_settings: WantedCache,
    /// The Ethernet switches whose ports are set.
    pub switches: Switches,
    /// Metrics for Prometheus.
    pub metrics: Metrics,
    /// Traces for the collector.
    pub traces: Traces,
    /// Digests of the boot files.
    pub served_files: ServedFiles,
    /// Counters of the boot services, if this process runs them.
    pub boot_counts: Mutex<Option<BootCounts>>,
    /// Recent events about machines that belong to no node.
    pub unknown_reports: Mutex<EventBudget>,
    /// Changes with every commit.
    pub events: watch::Sender<u64>,
    /// Which parts of the daemon run.
    pub health: crate::parts::Health,
    /// Whether this process only answers read calls.
    pub pause: Pause,
    /// Stops the whole daemon.
    pub stop: CancellationToken,
    /// Hook with which a test ends this process.
    #[cfg(test)]
    pub points: Option<Arc<dyn CrashPoints>>,
    /// Tasks of `Core::spawn`, for a test that ends this process.
    #[cfg(test)]
    pub tasks: Option<Tasks>,
}

/// The tasks of a process in a test.
#[cfg(test)]
pub type Tasks = Arc<Mutex<tokio::task::JoinSet<()>>>;

/// A place where a process may end and leave the rest undone. Tests end it there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum CrashPoint {
    /// A step begins.
    Begin,
    /// A change is not committed yet.
    BeforeCommit,
    /// A change is committed.
    AfterCommit,
    /// An effect is stored and not performed yet.
    BeforeEffect,
    /// An effect was performed, and its outcome is not stored.
    AfterEffect,
}

/// Receives each point that a process reaches, and can hold the process there.
#[cfg(test)]
pub trait CrashPoints: Send + Sync {
    /// Returns when the process may go on.
    fn reach(&self, point: CrashPoint, what: &str) -> std::pin::Pin<Box<dyn Future<Output = ()> + Send>>;
}

impl std::fmt::Debug for Core {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Core")
    }
}

impl Core {
    /// Shares a state.
    #[must_use]
    pub fn new(state: State) -> Self {
        Self(Box::new(state))
    }

    /// A new id, ordered by time.
    #[must_use]
    pub fn new_id(&self) -> String {
        clock::new_id(self.rng.as_ref())
    }

    /// Commits a change, notifies the readers of events, and wakes the nodes that the change called.
    ///
    /// # Errors
    /// The database failed. Nothing of the change stays.
    pub async fn commit(&self, mut tx: WriteTx) -> Result<(), StoreError> {
        let (next_in_line, ended) = (tx.take_next_in_line(), tx.take_ended_operations());
        let changes_members = tx.changes_members();
        let ended_sessions = tx.take_ended_sessions();
        self.point(CrashPoint::BeforeCommit, "").await;
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
        for (node, session) in &ended_sessions {
            self.agents.end_earlier(node, *session);
        }
        self.point(CrashPoint::AfterCommit, "").await;
        for node in next_in_line {
            self.wake(&node).await;
        }
        Ok(())
    }

    /// Ticks for a reader of the database: at most one in each `pause`.
    #[must_use]
    pub fn change_ticks(&self, pause: Duration) -> ChangeTicks {
        ChangeTicks {
            changes: self.events.subscribe(),
            pause,
            next: tokio::time::Instant::now(),
        }
    }

    /// A point where tests may end the process. It does nothing outside tests.
    #[cfg_attr(not(test), allow(clippy::unused_async, clippy::unused_self))]
    pub async fn point(&self, point: CrashPoint, what: &str) {
        #[cfg(test)]
        if let Some(points) = &self.points {
            points.reach(point, what).await;
        }
        #[cfg(not(test))]
        let _ = (point, what);
    }

    /// Begins a task that goes on when its caller has ended. A test that ends this process drops the task.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        #[cfg(test)]
        if let Some(tasks) = &self.tasks {
            tasks.lock().unwrap_or_else(PoisonError::into_inner).spawn(task);
            return;
        }
        tokio::spawn(task);
    }

    /// Makes a node due, for a reason that no change has stored: its running step looks again, or a new step begins. A
    /// stored change makes its nodes due itself, so that the wish survives this process.
    pub async fn wake(&self, node: &NodeId) {
        if self.running_steps.nudge(node) {
            return;
        }
        if let Err(error) = self.store.wake(node, clock::now()).await {
            tracing::warn!(node = node.as_str(), %error, "the node could not be made due; it becomes due at the end of its lease");
        }
        self.running_steps.due.notify_one();
    }

    /// Announces that a change has made a node due: its running step looks again, or a new step begins.
    pub fn notify_due(&self, node: &NodeId) {
        if !self.running_steps.nudge(node) {
            self.running_steps.due.notify_one();
        }
    }

    /// Counts and traces an effect after its outcome is stored.
    pub fn effect_ended(&self, record: &NodeRecord, effect: &EffectRow, outcome: &Outcome, now: Timestamp) {
        let took_us = now.since(effect.attempt.started_at);
        let vendor = &record.identity.vendor;
        self.metrics
            .effect_ended(effect.attempt.effect, outcome, vendor, took_us);
        self.traces.effect_ended(record, effect, outcome, now);
    }

    /// Stores one event in a change of its own.
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

    /// The end of a lease that begins now: long enough for the database work of a step, short enough after a crash.
    #[must_use]
    pub fn lease_end(&self, now: Timestamp) -> Timestamp {
        now.plus(rackwright_lifecycle::seconds(60))
    }
}

/// Reports to a reader of the database that there may be something new.
#[derive(Debug)]
pub struct ChangeTicks {
    changes: watch::Receiver<u64>,
    pause: Duration,
    next: tokio::time::Instant,
}

impl ChangeTicks {
    /// From now on, at most one tick in each `pause`.
    pub fn slow_to(&mut self, pause: Duration) {
        self.pause = pause;
    }

    /// Waits for a commit since the last call: returns at once after a quiet time, and once for many changes in a storm.
    /// Returns false when nothing will be stored any more.
    pub async fn next(&mut self) -> bool {
        tokio::time::sleep_until(self.next).await;
        let is_open = self.changes.changed().await.is_ok();
        self.next = tokio::time::Instant::now() + self.pause;
        is_open
    }
}

/// Nodes with a step running in this process: one step for each node. A request to look again meanwhile sets a flag; it is
/// not queued.
#[derive(Debug, Default)]
pub struct RunningSteps {
    running: Mutex<HashMap<NodeId, RunningStep>>,
    /// A node became due.
    pub due: Notify,
}

#[derive(Debug)]
struct RunningStep {
    again: bool,
    nudge: Arc<Notify>,
}

impl RunningSteps {
    fn lock(&self) -> MutexGuard<'_, HashMap<NodeId, RunningStep>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Number of running steps.
    #[must_use]
    pub fn count(&self) -> usize {
        self.lock().len()
    }

    /// Whether a node has a running step.
    #[must_use]
    pub fn has(&self, node: &NodeId) -> bool {
        self.lock().contains_key(node)
    }

    /// Begins a node's step. `None`: one runs already, and will look again.
    #[must_use]
    pub fn begin(&self, node: &NodeId) -> Option<Arc<Notify>> {
        let mut running = self.lock();
        if let Some(run) = running.get_mut(node) {
            // Another replica may have made the node due, and cannot notify this step.
            run.again = true;
            run.nudge.notify_one();
            return None;
        }
        let nudge = Arc::new(Notify::new());
        running.insert(
            node.to_owned(),
            RunningStep {
                again: false,
                nudge: nudge.clone(),
            },
        );
        Some(nudge)
    }

    /// Notifies a running step of a change. Returns false when none runs.
    pub fn nudge(&self, node: &NodeId) -> bool {
        let mut running = self.lock();
        let Some(run) = running.get_mut(node) else { return false };
        run.again = true;
        run.nudge.notify_one();
        true
    }

    /// Whether something changed since the last call; clears the flag.
    #[must_use]
    pub fn take_changed(&self, node: &NodeId) -> bool {
        self.lock()
            .get_mut(node)
            .is_some_and(|run| std::mem::take(&mut run.again))
    }

    /// Ends a node's step. If something changed meanwhile, returns false, and the step goes on.
    #[must_use]
    pub fn end(&self, node: &NodeId) -> bool {
        let mut running = self.lock();
        if running.get(node).is_some_and(|run| run.again) {
            return false;
        }
        running.remove(node);
        true
    }

    /// Ends a node's step even if something changed; the node is due again at the end of its lease.
    pub fn abandon(&self, node: &NodeId) {
        self.lock().remove(node);
    }
}
