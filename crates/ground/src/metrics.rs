//! Metrics for Prometheus. Counters and histograms cover this process since its start; figures from the database are read
//! at each scrape. Labels never hold a node, an address or another value that can be invented: the number of series is
//! bounded.

mod read;

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use rackwright_lifecycle::{Edge, Effect, Kind, Outcome, State};

use crate::text::{CODE_MAX, cut};
use read::Gauges;
pub use read::scrape;

/// Media type of a scrape.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// In seconds: from a BMC's answer to the erase of a large drive.
const EFFECT_BUCKETS: [f64; 16] = [
    0.01, 0.05, 0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0, 14400.0,
];
/// A commit, in seconds.
const COMMIT_BUCKETS: [f64; 10] = [0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.05, 0.1, 0.5, 2.0];
/// Most distinct vendors and failure codes. Later ones become "other", because a BMC can report any name.
const LABEL_VALUES_MAX: usize = 32;

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
struct TakenLabel {
    what: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabel {
    /// "power-on" or "image".
    kind: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LookLabel {
    /// "same", "changed", "silent", "refused" or "unsettled".
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SourceLabel {
    /// "servers" or "racks".
    source: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StatusLabel {
    status: u16,
}

/// Label values from outside: the first few are kept apart.
#[derive(Debug, Default)]
struct LabelValues(Mutex<BTreeSet<String>>);

impl LabelValues {
    fn label(&self, text: &str) -> String {
        let word = cut(text.trim(), CODE_MAX).to_ascii_lowercase();
        if word.is_empty() {
            return "unknown".to_owned();
        }
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() < LABEL_VALUES_MAX {
            known.insert(word.clone());
        }
        if known.contains(&word) {
            word
        } else {
            "other".to_owned()
        }
    }
}

/// Spans by their fate.
#[derive(Debug, Clone)]
pub struct SpanCounts {
    /// Accepted by the collector.
    pub sent: Counter,
    /// Dropped: more spans ended than could be sent.
    pub queue_full: Counter,
    /// Dropped: the collector could not be reached or failed.
    pub not_sent: Counter,
    /// Dropped: the collector rejected them.
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
type LineHistograms = Family<KindLabel, Histogram, fn() -> Histogram>;
type StateHistograms = Family<StateLabel, Histogram, fn() -> Histogram>;

/// All metrics.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    edges: Family<EdgeLabels, Counter>,
    time_in_state: StateHistograms,
    effects: EffectHistograms,
    effect_failures: Family<FailureLabels, Counter>,
    bmc_errors: Family<BmcLabels, Counter>,
    waits: Family<ReasonLabel, Counter>,
    lines: LineHistograms,
    leases: Counter,
    leases_lost: Counter,
    takeovers: Family<TakenLabel, Counter>,
    steps_lost: Counter,
    steps_failed: Counter,
    commits: Histogram,
    agent_messages: Counter,
    looks: Family<LookLabel, Counter>,
    image_requests: Family<StatusLabel, Counter>,
    image_bytes: Counter,
    spread_grants: Family<SourceLabel, Counter>,
    spread_wrong_bytes: Counter,
    /// Agents that write images with the help of others, and ask this process for chunks.
    pub spread_agents: Gauge,
    calls_refused: Counter,
    breaches: Counter,
    /// Audit exports that are failing now.
    pub audit_exports_failing: Gauge,
    vendors: LabelValues,
    codes: LabelValues,
    gauges: Gauges,
}

fn effect_histogram() -> Histogram {
    Histogram::new(EFFECT_BUCKETS)
}

/// Microseconds as seconds.
fn seconds(us: i64) -> f64 {
    us.max(0) as f64 / 1e6
}

impl Metrics {
    /// Metrics at zero.
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
            lines: Family::new_with_constructor(effect_histogram),
            leases: Counter::default(),
            leases_lost: Counter::default(),
            takeovers: Family::default(),
            steps_lost: Counter::default(),
            steps_failed: Counter::default(),
            commits: Histogram::new(COMMIT_BUCKETS),
            agent_messages: Counter::default(),
            looks: Family::default(),
            image_requests: Family::default(),
            image_bytes: Counter::default(),
            spread_grants: Family::default(),
            spread_wrong_bytes: Counter::default(),
            spread_agents: Gauge::default(),
            calls_refused: Counter::default(),
            breaches: Counter::default(),
            audit_exports_failing: Gauge::default(),
            vendors: LabelValues::default(),
            codes: LabelValues::default(),
            gauges: Gauges::default(),
        };
        metrics.register_counted();
        metrics.register_turns();
        metrics.register_spread();
        metrics.gauges.register(&mut metrics.registry);
        metrics.register_spans(spans);
        metrics
    }

    fn register_counted(&mut self) {
        let r = &mut self.registry;
        r.register("edges", "State transitions of nodes", self.edges.clone());
        r.register(
            "time_in_state_seconds",
            "Time that nodes spent in a state, measured when they leave it",
            self.time_in_state.clone(),
        );
        r.register(
            "effect_seconds",
            "Duration of effects, measured at their end",
            self.effects.clone(),
        );
        r.register(
            "effect_failures",
            "Failed effects by their code",
            self.effect_failures.clone(),
        );
        r.register("bmc_errors", "Failed requests to BMCs", self.bmc_errors.clone());
        r.register("waits", "Decisions to wait, by reason", self.waits.clone());
        r.register(
            "line_seconds",
            "Time that nodes waited in line before a power-on or image write that the settings limit",
            self.lines.clone(),
        );
        r.register(
            "commit_seconds",
            "Duration of commits to the database",
            self.commits.clone(),
        );
        r.register("agent_messages", "Messages of agents", self.agent_messages.clone());
        r.register(
            "power_looks",
            "Power readings of nodes at rest, by result",
            self.looks.clone(),
        );
        r.register(
            "image_requests",
            "Requests to the image store by HTTP status",
            self.image_requests.clone(),
        );
        r.register(
            "image_bytes",
            "Bytes that the image store sent",
            self.image_bytes.clone(),
        );
        r.register(
            "calls_refused",
            "Calls of the API that were refused before they were read",
            self.calls_refused.clone(),
        );
        r.register(
            "fabric_breaches_begun",
            "Breaches of the isolation of clusters that this process found",
            self.breaches.clone(),
        );
        r.register(
            "audit_exports_failing",
            "Exports of the audit that fail now; their records stay in the database",
            self.audit_exports_failing.clone(),
        );
    }

    /// Registers the metrics of leases and steps.
    fn register_turns(&mut self) {
        let r = &mut self.registry;
        r.register("leases", "Due nodes that this process leased", self.leases.clone());
        r.register(
            "steps_lost",
            "Steps started again because the node changed meanwhile",
            self.steps_lost.clone(),
        );
        r.register(
            "steps_failed",
            "Steps stopped until the end of the lease because the database failed",
            self.steps_failed.clone(),
        );
        r.register(
            "leases_lost",
            "Leases of this process that another replica took",
            self.leases_lost.clone(),
        );
        r.register(
            "takeovers",
            "Effects and agents that this process took over from dead replicas",
            self.takeovers.clone(),
        );
    }

    /// Registers the metrics of the fan-out of images between agents.
    fn register_spread(&mut self) {
        let r = &mut self.registry;
        r.register(
            "spread_grants",
            "Chunks of images that this process granted to agents, by source: image servers, or an agent of another rack",
            self.spread_grants.clone(),
        );
        r.register(
            "spread_wrong_bytes",
            "Reports of agents that another agent sent wrong bytes",
            self.spread_wrong_bytes.clone(),
        );
        r.register(
            "spread_agents",
            "Agents that write images with the help of others, and ask this process for chunks",
            self.spread_agents.clone(),
        );
    }

    fn register_spans(&mut self, spans: &SpanCounts) {
        self.registry.register(
            "spans_sent",
            "Spans that the collector of traces accepted",
            spans.sent.clone(),
        );
        self.registry.register(
            "spans_dropped",
            "Spans that never reached the collector of traces",
            spans.dropped.clone(),
        );
    }

    /// Counts an edge of a node. `spent_us` is the time in the former state, in microseconds.
    pub fn edge(&self, edge: Edge, from: State, to: State, spent_us: i64) {
        let (edge, from, to) = (edge.as_str(), from.as_str(), to.as_str());
        self.edges.get_or_create(&EdgeLabels { edge, from, to }).inc();
        let label = StateLabel { state: from };
        self.time_in_state.get_or_create(&label).observe(seconds(spent_us));
    }

    /// Counts the end of an effect. `took_us` is its duration, in microseconds.
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

    /// Counts a failed conversation with a BMC.
    pub fn bmc_failed(&self, kind: &'static str, vendor: &str) {
        let vendor = self.vendors.label(vendor);
        self.bmc_errors.get_or_create(&BmcLabels { kind, vendor }).inc();
    }

    /// Counts a decision to wait.
    pub fn waits(&self, reason: &'static str) {
        self.waits.get_or_create(&ReasonLabel { reason }).inc();
    }

    /// Counts an admission to limited work. `in_line_us` is the time in the queue, in microseconds.
    pub fn admitted(&self, kind: Kind, in_line_us: i64) {
        let kind = kind.as_str();
        self.lines
            .get_or_create(&KindLabel { kind })
            .observe(seconds(in_line_us));
    }

    /// Counts leased nodes.
    pub fn leased(&self, nodes: usize) {
        self.leases.inc_by(nodes as u64);
    }

    /// Counts a leased node that turned out to be another replica's turn.
    pub fn lease_lost(&self) {
        self.leases_lost.inc();
    }

    /// Counts takeovers from a dead replica. `what` is "effect" or "agent".
    pub fn taken_over(&self, what: &'static str, count: u64) {
        self.takeovers.get_or_create(&TakenLabel { what }).inc_by(count);
    }

    /// Counts a step that began anew.
    pub fn step_lost(&self) {
        self.steps_lost.inc();
    }

    /// Counts a step that was given up.
    pub fn step_failed(&self) {
        self.steps_failed.inc();
    }

    /// Counts a commit of the database.
    pub fn committed(&self, took: Duration) {
        self.commits.observe(took.as_secs_f64());
    }

    /// Counts a message of an agent.
    pub fn note_agent_message(&self) {
        self.agent_messages.inc();
    }

    /// Counts a power reading of a node at rest.
    pub fn looked(&self, outcome: &'static str) {
        self.looks.get_or_create(&LookLabel { outcome }).inc();
    }

    /// The counter of calls that are refused before they are read.
    #[must_use]
    pub fn calls_refused(&self) -> Counter {
        self.calls_refused.clone()
    }

    /// Counts new breaches of the isolation of clusters.
    pub fn fabric_breaches_begun(&self, count: u64) {
        self.breaches.inc_by(count);
    }

    /// Counts a chunk that an agent may fetch from outside its rack. `source` is "servers" or "racks".
    pub fn spread_granted(&self, source: &'static str) {
        self.spread_grants.get_or_create(&SourceLabel { source }).inc();
    }

    /// Counts a report that an agent sent wrong bytes to another one.
    pub fn spread_wrong_bytes(&self) {
        self.spread_wrong_bytes.inc();
    }

    /// Counts an answer of the image store.
    pub fn image_answered(&self, status: u16, bytes: u64) {
        self.image_requests.get_or_create(&StatusLabel { status }).inc();
        self.image_bytes.inc_by(bytes);
    }
}

#[cfg(test)]
mod tests;
