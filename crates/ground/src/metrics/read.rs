//! Metrics that are read at a scrape: from the database at most every few seconds, and from this process.

use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use rackwright_lifecycle::{Kind, State, Wait};
use rackwright_store::StoreError;
use tokio::sync::Mutex;

use super::{KindLabel, StateLabel, seconds};
use crate::clock;
use crate::core::Core;
use crate::core::STEPS_AT_ONCE;
use crate::rights::CERTIFICATE_WARNING_S;

/// A certificate that ends within this time counts as ending.
const ENDING_US: i64 = CERTIFICATE_WARNING_S * 1_000_000;
/// A member that has called within this time uses its certificate.
const IN_USE_US: i64 = 86_400 * 1_000_000;
/// Lifetime of values from the database.
pub(super) const FRESH: Duration = Duration::from_secs(5);

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WaitLabels {
    state: &'static str,
    /// Name of the `Wait` kind.
    reason: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct EventLabel {
    event: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ListenerLabel {
    listener: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ConnectionLabels {
    listener: &'static str,
    /// "known" or "unknown".
    peer: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct BuildLabels {
    version: &'static str,
}

/// The values of the last read.
#[derive(Debug, Default)]
pub(super) struct Gauges {
    /// Time of the last read of the database. The lock is held during a scrape.
    asked_at: Mutex<Option<Instant>>,
    nodes: Family<StateLabel, Gauge>,
    waiting: Family<WaitLabels, Gauge>,
    oldest: Family<StateLabel, Gauge<f64, AtomicU64>>,
    permits: Family<KindLabel, Gauge>,
    in_line: Family<KindLabel, Gauge>,
    breaches: Gauge,
    ending_certificates: Gauge,
    due: Gauge,
    overdue: Gauge<f64, AtomicU64>,
    events: Gauge,
    agents: Gauge,
    steps: Gauge,
    followers: Gauge,
    bmcs: Gauge,
    stages: Gauge,
    watched: Gauge,
    streams: Gauge,
    watch_lag: Gauge<f64, AtomicU64>,
    boot: Family<EventLabel, Counter>,
    connections: Family<ConnectionLabels, Gauge>,
    connections_refused: Family<ListenerLabel, Counter>,
    connections_closed: Family<ListenerLabel, Counter>,
    cpu: Counter<f64, AtomicU64>,
    memory: Gauge,
}

impl Gauges {
    pub(super) fn register(&self, r: &mut Registry) {
        self.register_nodes(r);
        let build = Family::<BuildLabels, Gauge>::default();
        let version = env!("CARGO_PKG_VERSION");
        build.get_or_create(&BuildLabels { version }).set(1);
        r.register("build_info", "Always 1; the label says which version runs", build);
        let agents = self.agents.clone();
        r.register("agents_connected", "Agents connected to this process", agents);
        r.register("steps_running", "Steps that run in this process", self.steps.clone());
        let limit = Gauge::<i64>::default();
        limit.set(as_gauge(STEPS_AT_ONCE));
        r.register("steps_limit", "Steps that may run in this process at once", limit);
        r.register("event_position", "Position of the newest event", self.events.clone());
        let followers = self.followers.clone();
        r.register("followers", "Calls that wait for events here", followers);
        r.register("bmc_clients", "BMCs with a session of this process", self.bmcs.clone());
        let stages = self.stages.clone();
        r.register("boot_stages_waiting", "Boot stages seen and not stored yet", stages);
        r.register("boot", "Events of network boot", self.boot.clone());
        r.register(
            "power_watched",
            "Nodes at rest whose power this process watches",
            self.watched.clone(),
        );
        r.register(
            "bmc_streams",
            "Streams of events of BMCs that are open to this process",
            self.streams.clone(),
        );
        r.register(
            "power_watch_lag_seconds",
            "Longest time that a node at rest has waited for a due power reading by this process",
            self.watch_lag.clone(),
        );
        r.register(
            "connections",
            "Open connections by listener, and whether the peer has shown a certificate or registered",
            self.connections.clone(),
        );
        r.register(
            "connections_refused",
            "Connections refused because their address has too many without a certificate",
            self.connections_refused.clone(),
        );
        r.register(
            "connections_closed",
            "Connections without a certificate closed because they were idle",
            self.connections_closed.clone(),
        );
        let cpu = self.cpu.clone();
        r.register("process_cpu_seconds", "Processor time of this process", cpu);
        r.register("process_resident_bytes", "Memory of this process", self.memory.clone());
    }

    /// Metrics from the database: all replicas report the same values.
    fn register_nodes(&self, r: &mut Registry) {
        r.register("nodes", "Nodes by state", self.nodes.clone());
        let waiting = self.waiting.clone();
        r.register("nodes_waiting", "Nodes by state and what they wait for", waiting);
        r.register(
            "oldest_in_state_seconds",
            "Longest time that a node has been in the state",
            self.oldest.clone(),
        );
        r.register(
            "permits_in_use",
            "Nodes that hold a permit for a limited action, by kind",
            self.permits.clone(),
        );
        r.register(
            "nodes_in_line",
            "Nodes that wait in line for a permit for a limited action, by kind",
            self.in_line.clone(),
        );
        r.register(
            "fabric_breaches_open",
            "Breaches of the isolation of clusters that are not proven to be over",
            self.breaches.clone(),
        );
        r.register(
            "member_certificates_ending",
            "Members that used a certificate within a day which ends within a week, and did not renew it",
            self.ending_certificates.clone(),
        );
        r.register(
            "nodes_due",
            "Nodes that are due and not leased by a replica",
            self.due.clone(),
        );
        r.register(
            "overdue_seconds",
            "Longest time that a node has been due",
            self.overdue.clone(),
        );
    }

    async fn read_database(&self, core: &Core) -> Result<(), StoreError> {
        let counts = core.store.count_by_state().await?;
        let waiting = core.store.count_waiting().await?;
        let oldest = core.store.oldest_by_state().await?;
        let now = clock::now();
        self.due.set(core.store.count_due(now).await?);
        let due = core.store.next_due(&core.replica).await?;
        self.overdue.set(due.map_or(0.0, |due| seconds(now.since(due))));
        self.events.set(core.store.event_range().await?.1);
        self.breaches.set(core.store.count_open_breaches().await?);
        let (until, since) = (now.plus(ENDING_US), now.plus(-IN_USE_US));
        let ending = core.store.count_ending_in_use(now, until, since).await?;
        self.ending_certificates.set(ending);
        let permits = core.store.count_permits(now).await?;
        for kind in Kind::ALL.iter().map(|kind| kind.as_str()) {
            let of_kind = permits.iter().find(|(name, ..)| name == kind);
            let (taken, waiting) = of_kind.map_or((0, 0), |(_, taken, waiting)| (*taken, *waiting));
            let label = KindLabel { kind };
            self.permits.get_or_create(&label).set(taken);
            self.in_line.get_or_create(&label).set(waiting);
        }
        // Removes reasons without waiting nodes.
        self.waiting.clear();
        for state in State::ALL {
            let state = state.as_str();
            let label = StateLabel { state };
            let nodes = counts.iter().find(|(name, _)| name == state).map_or(0, |(_, n)| *n);
            self.nodes.get_or_create(&label).set(nodes);
            let since = oldest.iter().find(|(name, _)| name == state);
            let longest = since.map_or(0.0, |(_, since)| seconds(now.since(*since)));
            self.oldest.get_or_create(&label).set(longest);
            let mut at_rest = nodes;
            for (_, kind, n) in waiting.iter().filter(|(name, ..)| name == state) {
                let reason = kind.clone();
                self.waiting.get_or_create(&WaitLabels { state, reason }).set(*n);
                at_rest -= n;
            }
            if at_rest > 0 {
                let reason = Wait::Rest.label().to_owned();
                self.waiting.get_or_create(&WaitLabels { state, reason }).set(at_rest);
            }
        }
        Ok(())
    }

    /// Makes the next scrape read the database.
    #[cfg(test)]
    pub(super) async fn forget(&self) {
        *self.asked_at.lock().await = None;
    }

    async fn read_process(&self, core: &Core) {
        self.agents.set(as_gauge(core.agents.count("")));
        self.steps.set(as_gauge(core.running_steps.count()));
        self.followers.set(as_gauge(core.commits.receiver_count()));
        self.bmcs.set(as_gauge(core.bmcs.count().await));
        self.watched.set(as_gauge(core.watch.watched()));
        self.streams.set(as_gauge(core.watch.streams()));
        self.watch_lag.set(seconds(core.watch.lag_us()));
        let listeners = &core.listeners;
        for connections in [&listeners.api, &listeners.images, &listeners.boot, &listeners.web] {
            let (listener, counts) = (connections.listener(), connections.counts());
            for (peer, open) in [("known", counts.known), ("unknown", counts.unknown)] {
                let labels = ConnectionLabels { listener, peer };
                self.connections.get_or_create(&labels).set(as_gauge(open));
            }
            let label = ListenerLabel { listener };
            let store = |family: &Family<ListenerLabel, Counter>, n| {
                family.get_or_create(&label).inner().store(n, Ordering::Relaxed);
            };
            store(&self.connections_refused, counts.refused);
            store(&self.connections_closed, counts.closed);
        }
        let boot = core.boot_counts.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(boot) = boot {
            self.stages.set(as_gauge((boot.stages_waiting)()));
            for (name, value) in (boot.counters)() {
                let event = name.trim_end_matches("_total").to_owned();
                let counter = self.boot.get_or_create_owned(&EventLabel { event });
                counter.inner().store(value, Ordering::Relaxed);
            }
        }
        let (cpu_s, resident) = process();
        self.cpu.inner().store(cpu_s.to_bits(), Ordering::Relaxed);
        self.memory.set(resident);
    }
}

fn as_gauge(n: usize) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

/// User and system CPU time in seconds, and resident memory in bytes, of this process (proc(5)); zeros if the kernel
/// does not report them.
#[expect(clippy::disallowed_methods, reason = "procfs answers from memory")]
fn process() -> (f64, i64) {
    /// `USER_HZ`, which is 100 on every supported architecture (man 7 time).
    const TICKS_A_SECOND: f64 = 100.0;
    /// Index of utime in `/proc/self/stat`, after the name's closing bracket; stime follows.
    const UTIME: usize = 11;
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |n: usize| fields.get(n).and_then(|f| f.parse::<f64>().ok()).unwrap_or(0.0);
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = resident.and_then(|text| text.trim().trim_end_matches(" kB").parse::<i64>().ok());
    (
        (ticks(UTIME) + ticks(UTIME + 1)) / TICKS_A_SECOND,
        kib.unwrap_or(0) * 1024,
    )
}

/// All metrics as of now, in the OpenMetrics text format.
///
/// # Errors
/// The database failed.
pub async fn scrape(core: &Core) -> Result<String, StoreError> {
    let gauges = &core.metrics.gauges;
    let mut asked_at = gauges.asked_at.lock().await;
    if asked_at.is_none_or(|at| at.elapsed() >= FRESH) {
        gauges.read_database(core).await?;
        *asked_at = Some(Instant::now());
    }
    gauges.read_process(core).await;
    let mut text = String::new();
    if let Err(error) = encode(&mut text, &core.metrics.registry) {
        tracing::error!(%error, "the metrics could not be written");
    }
    Ok(text)
}
