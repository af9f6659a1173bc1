//! What Prometheus is told. Counters and histograms are of this process, since it started; what the database knows is
//! read when somebody asks. Nothing is labelled with a node, an address or anything else that can be made up: the
//! number of series is bounded.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use rackwright_lifecycle::{Edge, Effect, Outcome, State};
use rackwright_store::StoreError;

use crate::clock;
use crate::core::Core;
use crate::text::{CODE_MAX, cut};

/// Media type of a scrape.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// From a BMC's answer to the erasing of a large drive, in seconds.
const EFFECT_BUCKETS: [f64; 16] = [
    0.01, 0.05, 0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0, 14400.0,
];
/// A commit, in seconds.
const COMMIT_BUCKETS: [f64; 10] = [0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.05, 0.1, 0.5, 2.0];
/// Vendors and failure codes that are told apart; those that come later are "other". A BMC can call itself anything.
const WORDS: usize = 32;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct EdgeLabels {
    edge: &'static str,
    from: &'static str,
    to: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StateLabel {
    state: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct EffectLabels {
    effect: &'static str,
    /// "succeeded", "interrupted" or "failed".
    outcome: &'static str,
    vendor: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct FailureLabels {
    effect: &'static str,
    code: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct BmcLabels {
    kind: &'static str,
    vendor: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabel {
    reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StatusLabel {
    status: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct EventLabel {
    event: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct BuildLabels {
    version: &'static str,
}

/// Text from outside as a label: the first few words are told apart.
#[derive(Debug, Default)]
struct Words(Mutex<BTreeSet<String>>);

impl Words {
    fn label(&self, text: &str) -> String {
        let word = cut(text.trim(), CODE_MAX).to_ascii_lowercase();
        if word.is_empty() {
            return "unknown".to_owned();
        }
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() < WORDS {
            known.insert(word.clone());
        }
        if known.contains(&word) {
            word
        } else {
            "other".to_owned()
        }
    }
}

/// How many spans went which way.
#[derive(Debug, Clone)]
pub struct SpanCounts {
    /// The collector has them.
    pub sent: Counter,
    /// Dropped: more ended than could be sent.
    pub queue_full: Counter,
    /// Dropped: the collector did not take them.
    pub not_sent: Counter,
    /// Dropped: the collector did not want them.
    pub rejected: Counter,
    dropped: Family<ReasonLabel, Counter>,
}

impl Default for SpanCounts {
    fn default() -> Self {
        let dropped = Family::default();
        let because = |reason| Family::get_or_create_owned(&dropped, &ReasonLabel { reason });
        Self {
            sent: Counter::default(),
            queue_full: because("queue-full"),
            not_sent: because("not-sent"),
            rejected: because("rejected"),
            dropped,
        }
    }
}

type EffectHistograms = Family<EffectLabels, Histogram, fn() -> Histogram>;
type StateHistograms = Family<StateLabel, Histogram, fn() -> Histogram>;

/// All that is counted.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    edges: Family<EdgeLabels, Counter>,
    time_in_state: StateHistograms,
    effects: EffectHistograms,
    effect_failures: Family<FailureLabels, Counter>,
    bmc_errors: Family<BmcLabels, Counter>,
    waits: Family<ReasonLabel, Counter>,
    leases: Counter,
    steps_lost: Counter,
    steps_failed: Counter,
    commits: Histogram,
    agent_messages: Counter,
    image_requests: Family<StatusLabel, Counter>,
    image_bytes: Counter,
    vendors: Words,
    codes: Words,
    /// Read when somebody asks.
    nodes: Family<StateLabel, Gauge>,
    overdue: Gauge<f64, AtomicU64>,
    agents: Gauge,
    steps: Gauge,
    events: Gauge,
    boot: Family<EventLabel, Counter>,
    cpu: Counter<f64, AtomicU64>,
    memory: Gauge,
}

fn effect_histogram() -> Histogram {
    Histogram::new(EFFECT_BUCKETS)
}

/// Microseconds as seconds.
fn seconds(us: i64) -> f64 {
    us.max(0) as f64 / 1e6
}

impl Metrics {
    /// Nothing counted yet.
    #[must_use]
    pub fn new(spans: &SpanCounts) -> Self {
        let mut metrics = Self {
            registry: Registry::with_prefix("rackwright"),
            edges: Family::default(),
            time_in_state: Family::new_with_constructor(effect_histogram),
            effects: Family::new_with_constructor(effect_histogram),
            effect_failures: Family::default(),
            bmc_errors: Family::default(),
            waits: Family::default(),
            leases: Counter::default(),
            steps_lost: Counter::default(),
            steps_failed: Counter::default(),
            commits: Histogram::new(COMMIT_BUCKETS),
            agent_messages: Counter::default(),
            image_requests: Family::default(),
            image_bytes: Counter::default(),
            vendors: Words::default(),
            codes: Words::default(),
            nodes: Family::default(),
            overdue: Gauge::default(),
            agents: Gauge::default(),
            steps: Gauge::default(),
            events: Gauge::default(),
            boot: Family::default(),
            cpu: Counter::default(),
            memory: Gauge::default(),
        };
        metrics.register_counted();
        metrics.register_read();
        metrics.register_spans(spans);
        metrics
    }

    fn register_counted(&mut self) {
        let r = &mut self.registry;
        r.register("edges", "Edges of the chart that nodes took", self.edges.clone());
        r.register(
            "time_in_state_seconds",
            "Time nodes spent in a state, when they left it",
            self.time_in_state.clone(),
        );
        r.register(
            "effect_seconds",
            "How long effects took, as they ended",
            self.effects.clone(),
        );
        r.register(
            "effect_failures",
            "Failed effects by their code",
            self.effect_failures.clone(),
        );
        r.register(
            "bmc_errors",
            "Conversations with BMCs that failed",
            self.bmc_errors.clone(),
        );
        r.register("waits", "Decisions to wait, by what for", self.waits.clone());
        r.register("leases", "Nodes taken because they were due", self.leases.clone());
        r.register(
            "steps_lost",
            "Steps begun anew because the node changed meanwhile",
            self.steps_lost.clone(),
        );
        r.register(
            "steps_failed",
            "Steps given up until the lease ends: the database failed",
            self.steps_failed.clone(),
        );
        r.register(
            "commit_seconds",
            "How long the database took to commit",
            self.commits.clone(),
        );
        r.register("agent_messages", "Messages of agents", self.agent_messages.clone());
        r.register(
            "image_requests",
            "Requests to the image store by HTTP status",
            self.image_requests.clone(),
        );
        r.register(
            "image_bytes",
            "Bytes that the image store answered with",
            self.image_bytes.clone(),
        );
    }

    fn register_read(&mut self) {
        let build = Family::<BuildLabels, Gauge>::default();
        let version = env!("CARGO_PKG_VERSION");
        build.get_or_create(&BuildLabels { version }).set(1);
        let r = &mut self.registry;
        r.register("build_info", "Always 1; the label says which version runs", build);
        r.register("nodes", "Nodes by state", self.nodes.clone());
        r.register(
            "overdue_seconds",
            "How long the longest waiting due node has been due",
            self.overdue.clone(),
        );
        r.register(
            "agents_connected",
            "Agents connected to this process",
            self.agents.clone(),
        );
        r.register("steps_running", "Steps that run in this process", self.steps.clone());
        r.register("event_position", "Position of the newest event", self.events.clone());
        r.register("boot", "What network boot has seen", self.boot.clone());
        r.register(
            "process_cpu_seconds",
            "Processor time of this process",
            self.cpu.clone(),
        );
        r.register("process_resident_bytes", "Memory of this process", self.memory.clone());
    }

    fn register_spans(&mut self, spans: &SpanCounts) {
        self.registry.register(
            "spans_sent",
            "Spans that the collector of traces took",
            spans.sent.clone(),
        );
        self.registry.register(
            "spans_dropped",
            "Spans that never reached the collector of traces",
            spans.dropped.clone(),
        );
    }

    /// A node took an edge after so many microseconds in its former state.
    pub fn edge(&self, edge: Edge, from: State, to: State, spent_us: i64) {
        let (edge, from, to) = (edge.as_str(), from.as_str(), to.as_str());
        self.edges.get_or_create(&EdgeLabels { edge, from, to }).inc();
        let label = StateLabel { state: from };
        self.time_in_state.get_or_create(&label).observe(seconds(spent_us));
    }

    /// An effect ended after so many microseconds.
    pub fn effect_ended(&self, effect: Effect, outcome: &Outcome, vendor: &str, took_us: i64) {
        let effect = effect.as_str();
        let outcome = match outcome {
            Outcome::Succeeded => "succeeded",
            Outcome::Open | Outcome::Interrupted => "interrupted",
            Outcome::Failed { code, .. } => {
                let code = self.codes.label(code);
                self.effect_failures
                    .get_or_create(&FailureLabels { effect, code })
                    .inc();
                "failed"
            }
        };
        let vendor = self.vendors.label(vendor);
        let labels = EffectLabels {
            effect,
            outcome,
            vendor,
        };
        self.effects.get_or_create(&labels).observe(seconds(took_us));
    }

    /// A conversation with a BMC failed.
    pub fn bmc_failed(&self, kind: &'static str, vendor: &str) {
        let vendor = self.vendors.label(vendor);
        self.bmc_errors.get_or_create(&BmcLabels { kind, vendor }).inc();
    }

    /// It was decided to wait.
    pub fn waits(&self, reason: &'static str) {
        self.waits.get_or_create(&ReasonLabel { reason }).inc();
    }

    /// Nodes were taken.
    pub fn leased(&self, nodes: usize) {
        self.leases.inc_by(nodes as u64);
    }

    /// A step began anew.
    pub fn step_lost(&self) {
        self.steps_lost.inc();
    }

    /// A step was given up.
    pub fn step_failed(&self) {
        self.steps_failed.inc();
    }

    /// The database committed.
    pub fn committed(&self, took: Duration) {
        self.commits.observe(took.as_secs_f64());
    }

    /// An agent said something.
    pub fn agent_said(&self) {
        self.agent_messages.inc();
    }

    /// The image store answered.
    pub fn image_answered(&self, status: u16, bytes: u64) {
        self.image_requests.get_or_create(&StatusLabel { status }).inc();
        self.image_bytes.inc_by(bytes);
    }
}

/// User and system time, and resident memory, of this process (proc(5)); zeros where the kernel does not tell.
fn process() -> (f64, i64) {
    /// `USER_HZ`, which is 100 on every architecture of ours (man 7 time).
    const TICKS_A_SECOND: f64 = 100.0;
    /// In `/proc/self/stat` behind the name's closing bracket: utime and stime.
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

/// Everything as it is now, in OpenMetrics' text format.
///
/// # Errors
/// The database failed.
pub async fn scrape(core: &Core) -> Result<String, StoreError> {
    let metrics = &core.metrics;
    let counts = core.store.count_by_state().await?;
    for state in State::ALL {
        let state = state.as_str();
        let found = counts.iter().find(|(name, _)| name == state);
        metrics
            .nodes
            .get_or_create(&StateLabel { state })
            .set(found.map_or(0, |(_, n)| *n));
    }
    let now = clock::now();
    let due = core.store.next_due(&core.replica).await?;
    metrics.overdue.set(due.map_or(0.0, |due| seconds(now.since(due))));
    metrics.events.set(core.store.event_range().await?.1);
    let whole = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
    metrics.agents.set(whole(core.agents.count("")));
    metrics.steps.set(whole(core.runs.count()));
    let read = core
        .boot_counters
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .clone();
    for (name, value) in read.map(|read| read()).unwrap_or_default() {
        let event = name.trim_end_matches("_total").to_owned();
        let counter = metrics.boot.get_or_create_owned(&EventLabel { event });
        counter.inner().store(value, Ordering::Relaxed);
    }
    let (cpu_s, resident) = process();
    metrics.cpu.inner().store(cpu_s.to_bits(), Ordering::Relaxed);
    metrics.memory.set(resident);
    let mut text = String::new();
    if let Err(error) = encode(&mut text, &metrics.registry) {
        tracing::error!(%error, "the metrics could not be written");
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::testing;

    /// A scrape after each thing happened once.
    async fn everything() -> String {
        let core = testing::core().await;
        testing::add(&core, &testing::node("n1", State::Available, None)).await;
        let failed = Outcome::Failed {
            code: "bmc-unreachable".into(),
            message: "the sentence is not told".into(),
            retryable: true,
        };
        let metrics = &core.metrics;
        metrics.edge(Edge::Claimed, State::Available, State::Allocated, 1_500_000);
        metrics.effect_ended(Effect::PowerOn, &failed, "Vendor", 2_000_000);
        metrics.bmc_failed("bmc-unreachable", "Vendor");
        metrics.waits("rest");
        metrics.leased(1);
        metrics.step_lost();
        metrics.step_failed();
        metrics.committed(Duration::from_millis(3));
        metrics.agent_said();
        metrics.image_answered(206, 4096);
        let read: crate::core::ReadCounters = std::sync::Arc::new(|| [("dhcp_offer_total".to_owned(), 7)].into());
        *core.boot_counters.lock().unwrap() = Some(read);
        scrape(&core).await.unwrap()
    }

    /// Names of metrics in a text: what begins with our prefix.
    fn names(text: &str) -> BTreeSet<String> {
        let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
        text.split(|c| !is_part(c))
            .filter(|word| word.starts_with("rackwright_"))
            .map(str::to_owned)
            .collect()
    }

    #[tokio::test]
    async fn every_panel_and_every_alert_asks_for_what_there_is() {
        let told = names(&everything().await);
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/monitoring");
        for file in ["grafana.json", "alerts.yaml"] {
            let text = std::fs::read_to_string(folder.join(file)).unwrap();
            let asked = names(&text);
            assert!(asked.len() >= 5, "{file}: {asked:?}");
            let missing: Vec<_> = asked.difference(&told).collect();
            assert!(missing.is_empty(), "{file} asks for {missing:?}, which nobody tells");
            if file == "grafana.json" {
                let base = |name: &String| name.trim_end_matches("_bucket").to_owned();
                let shown: BTreeSet<String> = asked.iter().map(base).collect();
                let hidden: Vec<_> = told
                    .iter()
                    .filter(|name| is_series(name, &told) && !shown.contains(&base(name)))
                    .collect();
                assert!(hidden.is_empty(), "no panel shows {hidden:?}");
            }
        }
    }

    /// HELP and TYPE lines name counters and histograms without their suffix: those are no series. Sums and counts are
    /// told beside the buckets.
    fn is_series(name: &str, told: &BTreeSet<String>) -> bool {
        let is_beside = name.ends_with("_sum") || name.ends_with("_count");
        !is_beside && !told.contains(&format!("{name}_total")) && !told.contains(&format!("{name}_bucket"))
    }

    #[tokio::test]
    async fn what_happened_is_told_and_nothing_that_could_be_made_up() {
        let told = everything().await;
        for line in [
            "rackwright_edges_total{edge=\"claimed\",from=\"available\",to=\"allocated\"} 1",
            "rackwright_time_in_state_seconds_sum{state=\"available\"} 1.5",
            "rackwright_effect_seconds_count{effect=\"power-on\",outcome=\"failed\",vendor=\"vendor\"} 1",
            "rackwright_effect_failures_total{effect=\"power-on\",code=\"bmc-unreachable\"} 1",
            "rackwright_nodes{state=\"available\"} 1",
            "rackwright_nodes{state=\"active\"} 0",
            "rackwright_boot_total{event=\"dhcp_offer\"} 7",
            "rackwright_image_bytes_total 4096",
        ] {
            assert!(told.lines().any(|l| l == line), "{line:?} is not in\n{told}");
        }
        assert!(!told.contains("n1") && !told.contains("sentence"), "{told}");
        assert!(told.ends_with("# EOF\n"));
    }

    #[test]
    fn words_from_outside_are_bounded() {
        let words = Words::default();
        for n in 0..WORDS {
            assert_eq!(words.label(&format!("Vendor {n}")), format!("vendor {n}"));
        }
        assert_eq!(words.label("one more"), "other");
        assert_eq!(words.label(" VENDOR 3\n"), "vendor 3");
        assert_eq!(words.label(""), "unknown");
        assert!(words.label(&"x".repeat(10_000)).len() <= CODE_MAX);
    }
}
