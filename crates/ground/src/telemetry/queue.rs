//! The bounded queue between finished spans and the collector, and the task that sends the spans.

use std::time::Duration;

use opentelemetry::Context;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_client::TraceServiceClient;
use opentelemetry_proto::transform::common::tonic::ResourceAttributesWithSchema;
use opentelemetry_proto::transform::trace::tonic::group_spans_by_resource_and_scope;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{Span, SpanData, SpanProcessor};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tonic::metadata::MetadataMap;
use tonic::transport::Channel;
use tonic::{Extensions, Request};

use crate::metrics::SpanCounts;

/// Spans in the queue; about 5 MiB.
const QUEUE: usize = 8192;
/// Spans per batch.
const BATCH: usize = 512;
/// Longest wait for a batch to fill.
const PAUSE: Duration = Duration::from_secs(1);

/// Receives finished spans.
#[derive(Debug)]
pub(super) struct Queue {
    queue: mpsc::Sender<SpanData>,
    counts: SpanCounts,
}

impl Queue {
    pub(super) fn new(counts: SpanCounts) -> (Self, mpsc::Receiver<SpanData>) {
        let (queue, waiting) = mpsc::channel(QUEUE);
        (Self { queue, counts }, waiting)
    }
}

impl SpanProcessor for Queue {
    fn on_start(&self, _: &mut Span, _: &Context) {}

    fn on_end(&self, span: SpanData) {
        if self.queue.try_send(span).is_err() {
            self.counts.queue_full.inc();
        }
    }

    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    /// Does nothing: `Telemetry::end` stops the sender's task.
    fn shutdown_with_timeout(&self, _: Duration) -> OTelSdkResult {
        Ok(())
    }
}

/// Sends batches to the collector.
pub(super) struct Sender {
    pub(super) client: TraceServiceClient<Channel>,
    pub(super) metadata: MetadataMap,
    pub(super) resource: ResourceAttributesWithSchema,
    pub(super) counts: SpanCounts,
    /// Whether the last batch failed.
    pub(super) has_failed: bool,
}

impl Sender {
    /// Sends until `stop`, and then the remaining spans.
    pub(super) async fn run(mut self, mut waiting: mpsc::Receiver<SpanData>, stop: CancellationToken) {
        let mut batch = Vec::with_capacity(BATCH);
        loop {
            tokio::select! {
                () = stop.cancelled(), if !waiting.is_closed() => waiting.close(),
                received = waiting.recv_many(&mut batch, BATCH) => if received == 0 { return },
            }
            let fill = async {
                while let room @ 1.. = BATCH - batch.len()
                    && waiting.recv_many(&mut batch, room).await > 0
                {}
            };
            tokio::select! {
                () = fill => {}
                () = tokio::time::sleep(PAUSE) => {}
                () = stop.cancelled() => {}
            }
            if !batch.is_empty() {
                self.send(std::mem::replace(&mut batch, Vec::with_capacity(BATCH)))
                    .await;
            }
        }
    }

    /// Sends a batch once. After a failure the batch is dropped.
    async fn send(&mut self, batch: Vec<SpanData>) {
        let spans = batch.len() as u64;
        let resource_spans = group_spans_by_resource_and_scope(batch, &self.resource);
        let request = ExportTraceServiceRequest { resource_spans };
        let request = Request::from_parts(self.metadata.clone(), Extensions::default(), request);
        match self.client.export(request).await {
            Ok(answer) => {
                let partial = answer.into_inner().partial_success.unwrap_or_default();
                let rejected = u64::try_from(partial.rejected_spans).unwrap_or(0).min(spans);
                if rejected > 0 {
                    tracing::warn!(rejected, why = partial.error_message, "the collector refused spans");
                }
                self.counts.rejected.inc_by(rejected);
                self.counts.sent.inc_by(spans - rejected);
                if std::mem::take(&mut self.has_failed) {
                    tracing::info!("the collector accepts spans again");
                }
            }
            Err(status) => {
                self.counts.not_sent.inc_by(spans);
                if !std::mem::replace(&mut self.has_failed, true) {
                    tracing::warn!(
                        error = %status,
                        "the collector accepts no spans; spans are dropped until it accepts them again"
                    );
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use opentelemetry::trace::{Span as _, Tracer as _, TracerProvider as _};
    use opentelemetry_sdk::trace::SdkTracerProvider;

    use super::*;

    #[test]
    fn a_full_queue_blocks_no_caller_and_dropped_records_are_counted() {
        let counts = SpanCounts::default();
        let (queue, waiting) = Queue::new(counts.clone());
        let provider = SdkTracerProvider::builder().with_span_processor(queue).build();
        let tracer = provider.tracer("tests");
        for _ in 0..QUEUE + 3 {
            tracer.start("some").end();
        }
        assert_eq!((waiting.len(), counts.queue_full.get()), (QUEUE, 3));
        // The sender's end of the queue is closed.
        drop(waiting);
        tracer.start("one more").end();
        assert_eq!(counts.queue_full.get(), 4);
    }
}
