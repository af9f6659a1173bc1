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

use crate::agents::Agents;
use crate::audit::Audit;
use crate::bmc::Bmcs;
use crate::clock;
use crate::config::Config;
use crate::features::{FeatureState, Features};
use crate::firmware_files::Files;
use crate::hall::Sites;
use crate::keys::authority::AuthorityChanges;
use crate::measured_boot::ServedFiles;
use crate::metrics::Metrics;
use crate::rights::Rights;
use crate::site_uploads::SiteUploads;
use crate::space::Space;
use crate::start::pause::Pause;
use crate::telemetry::Traces;
use crate::uploads::Uploads;
use crate::waits::Waits;
use crate::watch_status::WatchStatus;

/// Most steps that run in parallel in this process. Each step waits for a BMC most of its time, often for seconds, and takes
/// some 50 kB meanwhile. With a lower limit, a hall with all machines switched on together would wait for this process.
pub const STEPS_AT_ONCE: usize = 12_288;

/// Length of the lease of a due node or cluster, in seconds: enough for the database work of a step, and short enough that
/// another process soon continues the work of a crashed one.
const LEASE_S: i64 = 60;

/// Functions that read the present numbers of the boot services.
#[derive(Clone)]
pub struct BootCounts {
    /// Reads the counters by name.
    pub counters: Arc<dyn Fn() -> BTreeMap<String, u64> + Send + Sync>,
    /// Reads the number of boot stages that are not stored yet.
    pub stages_waiting: Arc<dyn Fn() -> usize + Send + Sync>,
    /// Reads the addresses that the DHCP of this site has given out.
    pub addresses: Arc<dyn Fn() -> Vec<Ipv4Addr> + Send + Sync>,
}

/// Open connections by listener.
#[derive(Debug, Clone)]
pub struct Listeners {
    pub api: Arc<Connections>,
    /// The image store.
    pub images: Arc<Connections>,
    /// Boot HTTP.
    pub boot: Arc<Connections>,
    /// The web console.
    pub web: Arc<Connections>,
}

impl Listeners {
    /// Listeners without connections.
    #[must_use]
    pub fn new(limits: &Limits) -> Self {
        Self {
            api: Connections::with_certificates("API", limits),
            images: Connections::with_certificates("image store", limits),
            boot: Connections::of_boot_http(limits),
            web: Connections::with_certificates("web console", limits),
        }
    }
}

/// The control plane's shared state.
///
/// Asynchronous functions hold `&Core`, so the compiler proves for each of them that threads may share the state. The state
/// is a trait object, so this proof is one step. Without the trait object, each proof walks through all fields down to the
/// clients of SSH and Redfish.
pub struct Core(Box<dyn Shared>);

/// A state that threads may share.
trait Shared: Send + Sync {
    fn state(&self) -> &State;
    fn state_mut(&mut self) -> &mut State;
}

impl Shared for State {
    fn state(&self) -> &State {
        self
    }

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

/// A test replaces parts of a new state before its first use. The daemon shares its state from the start, so that no part of
/// the state is replaced there.
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
    /// Records calls, and exports the records.
    pub audit: Audit,
    /// Clients of BMCs.
    pub bmcs: Bmcs,
    /// One permit for each BMC password change that may run now.
    pub password_changes: tokio::sync::Semaphore,
    /// Notified when a request for work at a BMC is stored.
    pub bmc_work: tokio::sync::Notify,
    /// Limits the requests of all IPMI clients together, and those to one BMC.
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
    /// The open streams and sessions of members, and whether the members still have the right to them.
    pub rights: Arc<Rights>,
    /// Firmware files, in the folder that all replicas share.
    pub firmware_files: Files,
    /// Members who are sending site files.
    pub site_uploads: SiteUploads,
    /// The site as it was last read.
    pub sites: Sites,
    /// Wakes the part that works on clusters.
    pub clusters_due: Notify,
    /// Nodes with a step running in this process.
    pub running_steps: RunningSteps,
    /// State of the watch over nodes at rest.
    pub watch: WatchStatus,
    /// Metrics for Prometheus.
    pub metrics: Metrics,
    /// Traces for the collector.
    pub traces: Traces,
    /// Digests of the boot files.
    pub served_files: ServedFiles,
    /// Counters of the boot services, if this process runs them.
    pub boot_counts: Mutex<Option<BootCounts>>,
    /// Number of commits that this process has made or has heard of, so that readers of the database look again.
    pub commits: watch::Sender<u64>,
    /// Which parts of the daemon run.
    pub health: crate::parts::Health,
    /// Whether this process only answers read calls.
    pub pause: Pause,
    /// Stops the whole daemon.
    pub stop: CancellationToken,
    /// Receives the crash points of this process, for a test that ends this process at one of them. `None` in the daemon.
    pub crash_points: Option<Arc<dyn CrashPoints>>,
    /// The states of the features above the ground.
    pub features: Features,
    /// Tasks of `Core::spawn`, for a test that ends this process. `None` in the daemon.
    pub tasks: Option<Tasks>,
}

/// The tasks of a process in a test.
pub type Tasks = Arc<Mutex<tokio::task::JoinSet<()>>>;

/// A place where a crash of the process leaves work half done. Tests end the process there.
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

/// Receives each point that a process reaches, and can hold the process there. Only tests implement this trait.
pub trait CrashPoints: Send + Sync {
    /// Completes when the process may go on.
    fn reach(&self, point: CrashPoint) -> std::pin::Pin<Box<dyn Future<Output = ()> + Send>>;
}

impl State {
    /// The state of one feature.
    pub fn feature<T: FeatureState>(&self) -> &T {
        self.features.get(&self.config)
    }

    /// Puts another state of a feature in the place of the present one, for a test.
    pub fn replace_feature<T: FeatureState>(&mut self, state: T) {
        self.features.replace(state);
    }
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

    /// Commits a change, together with the audit record of the call that makes the change. Then the waiting parts of this
    /// process learn of the change, the runner takes the nodes that the change made due, and the nodes at the head of a
    /// queue wake.
    ///
    /// # Errors
    /// The database failed. Nothing of the change stays.
    pub async fn commit(&self, mut tx: WriteTx) -> Result<(), StoreError> {
        let next_in_line = tx.take_next_in_line();
        let ended_operations = tx.take_ended_operations();
        let ended_sessions = tx.take_ended_sessions();
        let changes_members = tx.changes_members();
        let makes_nodes_due = tx.makes_nodes_due();
        self.reach(CrashPoint::BeforeCommit).await;
        // The audit's head is the last lock that a change takes.
        let audited = self.audit_with(&mut tx).await?;
        let begun = Instant::now();
        tx.commit().await?;
        self.metrics.committed(begun.elapsed());
        if let Some((record, call)) = audited {
            self.audit.stored(&record);
            call.mark_written();
        }
        self.commits.send_modify(|count| *count += 1);
        if changes_members {
            self.rights.changed();
        }
        for operation in &ended_operations {
            self.waits.ended(operation);
        }
        for (node, session) in &ended_sessions {
            self.agents.end_earlier(node, *session);
        }
        if makes_nodes_due {
            self.running_steps.due.notify_one();
        }
        self.reach(CrashPoint::AfterCommit).await;
        for node in next_in_line {
            self.wake(&node).await;
        }
        Ok(())
    }

    /// Ticks after commits, for a reader of the database: at most one in each `pause`.
    #[must_use]
    pub fn change_ticks(&self, pause: Duration) -> ChangeTicks {
        ChangeTicks {
            commits: self.commits.subscribe(),
            pause,
            earliest: tokio::time::Instant::now(),
        }
    }

    /// Reaches a point where a test may end the process; does nothing outside of tests.
    pub async fn reach(&self, point: CrashPoint) {
        if let Some(crash_points) = &self.crash_points {
            crash_points.reach(point).await;
        }
    }

    /// Begins a task that goes on when its caller has ended. A test that ends this process drops the task.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        if let Some(tasks) = &self.tasks {
            tasks.lock().unwrap_or_else(PoisonError::into_inner).spawn(task);
            return;
        }
        tokio::spawn(task);
    }

    /// Makes a node due: its running step looks again, or the node becomes due in the database and a new step begins. A
    /// stored change makes its nodes due in the same transaction; its caller needs [`notify_due`](Self::notify_due) only.
    pub async fn wake(&self, node: &NodeId) {
        if self.running_steps.nudge(node) {
            return;
        }
        if let Err(error) = self.store.wake(node, clock::now()).await {
            tracing::warn!(
                node = node.as_str(),
                %error,
                "the node could not be made due; it becomes due at the end of its lease"
            );
        }
        self.running_steps.due.notify_one();
    }

    /// Announces a node that a stored change has made due: its running step looks again at once, or a new step begins.
    /// Without this call the step looks again when the runner has read the database, which each commit makes it do.
    pub fn notify_due(&self, node: &NodeId) {
        if !self.running_steps.nudge(node) {
            self.running_steps.due.notify_one();
        }
    }

    /// Adds an effect with a stored outcome to the metrics and the traces.
    pub fn effect_ended(&self, record: &NodeRecord, effect: &EffectRow, outcome: &Outcome, now: Timestamp) {
        let took_us = now.since(effect.attempt.started_at);
        let vendor = &record.identity.vendor;
        self.metrics
            .effect_ended(effect.attempt.effect, outcome, vendor, took_us);
        self.traces.effect_ended(record, effect, outcome, now);
    }

    /// Stores one event in a change of its own; a failure is logged only.
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

    /// The end of the lease of a due node or cluster, if the lease begins now.
    #[must_use]
    pub fn lease_end(&self, now: Timestamp) -> Timestamp {
        now.plus(rackwright_lifecycle::seconds(LEASE_S))
    }
}

/// Ticks that let a reader of the database look for changes.
#[derive(Debug)]
pub struct ChangeTicks {
    commits: watch::Receiver<u64>,
    /// Least time between two ticks.
    pause: Duration,
    /// When the next tick may come.
    earliest: tokio::time::Instant,
}

impl ChangeTicks {
    /// From now on, at most one tick in each `pause`.
    pub fn slow_to(&mut self, pause: Duration) {
        self.pause = pause;
    }

    /// Waits until `pause` has passed since the last tick and a commit has followed it. Many commits in one pause are one
    /// tick. Returns false when nothing will be stored any more.
    pub async fn next(&mut self) -> bool {
        tokio::time::sleep_until(self.earliest).await;
        let is_open = self.commits.changed().await.is_ok();
        self.earliest = tokio::time::Instant::now() + self.pause;
        is_open
    }
}

/// The nodes with a step running in this process: at most one step for each node. A change during a step sets a flag of the
/// step, which then looks at its node again.
#[derive(Debug, Default)]
pub struct RunningSteps {
    running: Mutex<HashMap<NodeId, RunningStep>>,
    /// Notified when a node without a running step is due.
    pub due: Notify,
}

#[derive(Debug)]
struct RunningStep {
    /// Something changed since the step last looked at its node.
    has_changed: bool,
    /// Ends the step's waits.
    nudge: Arc<Notify>,
}

impl RunningStep {
    fn look_again(&mut self) {
        self.has_changed = true;
        self.nudge.notify_one();
    }
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
    pub fn is_running(&self, node: &NodeId) -> bool {
        self.lock().contains_key(node)
    }

    /// Begins a node's step, and returns the notification that ends its waits. `None`: the node has a running step, which
    /// looks again.
    #[must_use]
    pub fn begin(&self, node: &NodeId) -> Option<Arc<Notify>> {
        let mut running = self.lock();
        if let Some(step) = running.get_mut(node) {
            // Another replica may have made the node due, and cannot notify this step.
            step.look_again();
            return None;
        }
        let nudge = Arc::new(Notify::new());
        running.insert(
            node.to_owned(),
            RunningStep {
                has_changed: false,
                nudge: nudge.clone(),
            },
        );
        Some(nudge)
    }

    /// Lets a node's running step look again. Returns false when the node has no running step.
    pub fn nudge(&self, node: &NodeId) -> bool {
        let mut running = self.lock();
        let Some(step) = running.get_mut(node) else {
            return false;
        };
        step.look_again();
        true
    }

    /// Whether something changed since the step last looked at its node; clears the flag.
    #[must_use]
    pub fn take_changed(&self, node: &NodeId) -> bool {
        self.lock()
            .get_mut(node)
            .is_some_and(|step| std::mem::take(&mut step.has_changed))
    }

    /// Ends a node's step and returns true. If something changed since the step last looked, the step goes on: returns
    /// false.
    #[must_use]
    pub fn end(&self, node: &NodeId) -> bool {
        let mut running = self.lock();
        if running.get(node).is_some_and(|step| step.has_changed) {
            return false;
        }
        running.remove(node);
        true
    }

    /// Ends a node's step even if something changed; the node becomes due again at the end of its lease.
    pub fn abandon(&self, node: &NodeId) {
        self.lock().remove(node);
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Waker};

    use rackwright_lifecycle::State;

    use super::*;
    use crate::testing;

    #[tokio::test]
    async fn a_commit_announces_nodes_that_it_makes_due_and_no_others() {
        let core = testing::core().await;
        let record = testing::node("n1", State::Imaging, None);
        testing::add(&core, &record).await;
        let mut due = pin!(core.running_steps.due.notified());
        let mut is_announced = || due.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready();

        let mut tx = core.store.write().await.unwrap();
        tx.put_due(&record.id, clock::now().plus(1_000_000)).await.unwrap();
        core.commit(tx).await.unwrap();
        assert!(!is_announced(), "the change keeps the lease of a step");

        let mut tx = core.store.write().await.unwrap();
        tx.wake(&record.id, clock::now()).await.unwrap();
        core.commit(tx).await.unwrap();
        assert!(is_announced(), "the runner reads the database at once");
    }
}
