//! Traces for a collector, by OTLP over gRPC, if the configuration names one: a span for each call, each run of a
//! node's steps and each effect. The code that makes a span never waits: if the queue is full the span is dropped and
//! counted.

mod collector;
mod queue;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use opentelemetry::KeyValue;
use opentelemetry::trace::{Span as _, SpanBuilder, Status, TraceContextExt as _, TracerProvider as _};
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_client::TraceServiceClient;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{Sampler, SdkTracer, SdkTracerProvider};
use rackwright_lifecycle::{Outcome, Timestamp};
use rackwright_store::{EffectRow, NodeRecord};
use secrecy::SecretString;
use serde::Deserialize;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::Subscriber;
use tracing::level_filters::LevelFilter;
use tracing_opentelemetry::OpenTelemetrySpanExt as _;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::registry::LookupSpan;

use crate::clock;
use crate::config::Config;
use crate::metrics::SpanCounts;
use crate::share::replica_name;
pub use collector::{Collector, CollectorError};
use queue::{Queue, Sender};

/// Prefix of the crates with exported spans. Spans of the exporting HTTP/2 connection itself are not exported.
const OURS: &str = "rackwright";
/// Longest time for sending the remaining spans when the process ends.
const FLUSH: Duration = Duration::from_secs(5);

/// Destination of traces in the settings.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// URL of the collector's OTLP/gRPC port.
    otlp: String,
    /// PEM file with the authorities that may sign the collector's certificate.
    #[serde(default)]
    ca_file: Option<PathBuf>,
    /// Headers of each batch.
    #[serde(default)]
    headers: BTreeMap<String, SecretString>,
    /// Fraction of traces that are recorded, from 0 to 1, for traces that begin here. A caller's trace is recorded if
    /// the caller records it.
    #[serde(default = "everything")]
    sample: f64,
}

fn everything() -> f64 {
    1.0
}

impl Settings {
    /// Adds one line to `faults` for each invalid setting.
    pub(crate) fn check(&self, faults: &mut Vec<String>) {
        self.collector().check("telemetry", "otlp", faults);
        if !(0.0..=1.0).contains(&self.sample) {
            faults.push("telemetry.sample: must be from 0 to 1".into());
        }
    }

    fn collector(&self) -> Collector {
        Collector {
            url: self.otlp.clone(),
            ca_file: self.ca_file.clone(),
            headers: self.headers.clone(),
        }
    }
}

/// The attributes of this process for a collector.
pub(crate) fn attributes(config: &Config) -> [(&'static str, String); 4] {
    [
        ("service.name", "rackwrightd".to_owned()),
        ("service.namespace", config.site.clone()),
        ("service.version", env!("CARGO_PKG_VERSION").to_owned()),
        ("service.instance.id", replica_name(&config.data_dir)),
    ]
}

/// Makes spans of past work; none without a collector.
#[derive(Debug, Clone, Default)]
pub struct Traces {
    tracer: Option<SdkTracer>,
    /// Counts of spans by result.
    pub counts: SpanCounts,
    /// Cancelled when the sender of the spans ends.
    ended: CancellationToken,
}

/// The connection from spans to the collector; empty without a collector.
#[derive(Debug, Default)]
pub struct Telemetry {
    traces: Traces,
    sending: Option<SenderTask>,
}

#[derive(Debug)]
struct SenderTask {
    /// Keeps the provider of spans alive.
    _provider: SdkTracerProvider,
    stop: CancellationToken,
    sender: JoinHandle<()>,
}

impl Telemetry {
    /// Starts the export if a collector is configured. The connection opens at the first send.
    ///
    /// # Errors
    /// The settings of the collector are invalid, or its authorities cannot be read.
    pub fn start(config: &Config) -> Result<Self, CollectorError> {
        let counts = SpanCounts::default();
        let Some(settings) = &config.telemetry else {
            return Ok(Self::default());
        };
        let collector = settings.collector();
        let resource = Resource::builder_empty()
            .with_attributes(attributes(config).map(|(name, value)| KeyValue::new(name, value)))
            .build();
        let stop = CancellationToken::new();
        let (queue, waiting) = Queue::new(counts.clone());
        let sender = Sender {
            client: TraceServiceClient::new(collector.channel()?),
            metadata: collector.metadata()?,
            resource: (&resource).into(),
            counts: counts.clone(),
            has_failed: false,
        };
        let ended = CancellationToken::new();
        let (guard, stopping) = (ended.clone().drop_guard(), stop.clone());
        let sender = tokio::spawn(async move {
            let _guard = guard;
            sender.run(waiting, stopping).await;
        });
        let sampler = Sampler::ParentBased(Box::new(Sampler::TraceIdRatioBased(settings.sample)));
        let provider = SdkTracerProvider::builder()
            .with_resource(resource)
            .with_sampler(sampler)
            .with_span_processor(queue)
            .build();
        let traces = Traces {
            tracer: Some(provider.tracer(OURS)),
            counts,
            ended,
        };
        let sending = Some(SenderTask {
            _provider: provider,
            stop,
            sender,
        });
        Ok(Self { traces, sending })
    }

    /// A handle for code that makes spans of past work.
    #[must_use]
    pub fn traces(&self) -> Traces {
        self.traces.clone()
    }

    /// The layer for this process's subscriber that collects spans.
    pub fn layer<S>(&self) -> Option<impl Layer<S> + use<S>>
    where
        S: Subscriber + for<'a> LookupSpan<'a>,
    {
        let tracer = self.traces.tracer.clone()?;
        let layer = tracing_opentelemetry::layer()
            .with_tracer(tracer)
            .with_context_activation(false)
            .with_location(false)
            .with_target(false)
            .with_threads(false)
            .with_tracked_inactivity(false);
        Some(layer.with_filter(Targets::new().with_target(OURS, LevelFilter::INFO)))
    }

    /// Sends the remaining spans, for a few seconds at most.
    pub async fn end(self) {
        let Some(sending) = self.sending else { return };
        sending.stop.cancel();
        let mut sender = sending.sender;
        if tokio::time::timeout(FLUSH, &mut sender).await.is_err() {
            tracing::warn!(
                "the collector did not accept the last spans within {} s",
                FLUSH.as_secs()
            );
            sender.abort();
        }
    }
}

impl Traces {
    /// Waits until the sender of the spans has ended, also by a panic; forever without a collector.
    pub async fn ended(self) {
        self.ended.cancelled().await;
    }

    /// Adds a span for an ended effect, below the current step or call. The span is made at the end, because an agent's
    /// effect may begin in one process and end in another.
    pub fn effect_ended(&self, record: &NodeRecord, effect: &EffectRow, outcome: &Outcome, now: Timestamp) {
        let Some(tracer) = &self.tracer else { return };
        let parent = tracing::Span::current().context();
        let above = parent.span().span_context().clone();
        if above.is_valid() && !above.is_sampled() {
            return;
        }
        let (word, status) = match outcome {
            Outcome::Succeeded => ("succeeded", Status::Ok),
            Outcome::Open | Outcome::Interrupted => ("interrupted", Status::Unset),
            Outcome::Failed { message, .. } => ("failed", Status::error(message.clone())),
        };
        let attempt = &effect.attempt;
        let mut attributes = vec![
            KeyValue::new("effect.kind", attempt.effect.as_str()),
            KeyValue::new("effect.id", effect.id.clone()),
            KeyValue::new("effect.number", effect.number),
            KeyValue::new("effect.outcome", word),
            KeyValue::new("node", record.id.to_string()),
            KeyValue::new("state", record.node.state.as_str()),
        ];
        if let Outcome::Failed { code, .. } = outcome {
            attributes.push(KeyValue::new("effect.code", code.clone()));
        }
        if !record.identity.vendor.is_empty() {
            attributes.push(KeyValue::new("vendor", record.identity.vendor.clone()));
        }
        let span = SpanBuilder::from_name("effect").with_start_time(clock::system_time(attempt.started_at));
        let mut span = span.with_attributes(attributes).start_with_context(tracer, &parent);
        span.set_status(status);
        span.end_with_timestamp(clock::system_time(now));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    #[tokio::test]
    async fn the_end_of_the_sender_is_noticed_and_nothing_ends_without_a_collector() {
        let core = testing::core_with("telemetry: {otlp: \"http://127.0.0.1:1\"}\n").await;
        let telemetry = Telemetry::start(&core.config).unwrap();
        let moment = Duration::from_millis(20);
        let wait = |traces: Traces| tokio::time::timeout(moment, traces.ended());
        assert!(wait(telemetry.traces()).await.is_err(), "the sender runs");
        telemetry.sending.as_ref().unwrap().sender.abort();
        telemetry.traces().ended().await;
        assert!(wait(Traces::default()).await.is_err());
    }
}
