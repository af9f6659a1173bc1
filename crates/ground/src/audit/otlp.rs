//! Export to a collector, by OTLP logs over gRPC. Each record is a log record; its body is the line of a file export.
//!
//! Written from the OpenTelemetry protocol (OTLP 1.5) and the logs data model.

use std::io;

use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::logs::v1::logs_service_client::LogsServiceClient;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::logs::v1::{LogRecord, ResourceLogs, ScopeLogs, SeverityNumber};
use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::Message as _;
use rackwright_store::AuditRow;
use tokio::runtime::Handle;
use tonic::transport::Channel;
use tonic::{Extensions, Request, Status};

use super::export::{ExportPosition, Last, Line, RecordLine, Target, line};
use crate::config::Config;
use crate::core::Core;
use crate::telemetry::{self, Collector};

/// Event name of the audit's log records.
const EVENT: &str = "rackwright.audit";
/// Approximate size of a batch in bytes; collectors accept 4 MiB by default.
const BATCH_BYTES: usize = 1 << 20;

/// A collector. A file in the data folder stores the position of the export.
pub(super) struct ToOtlp {
    collector: Collector,
    resource: Resource,
    exported: ExportPosition,
    client: Option<LogsServiceClient<Channel>>,
}

impl ToOtlp {
    pub(super) fn new(collector: Collector, config: &Config) -> Self {
        let attributes = telemetry::attributes(config);
        Self {
            collector,
            resource: Resource {
                attributes: attributes.map(|(name, value)| text(name, &value)).to_vec(),
                ..Resource::default()
            },
            exported: ExportPosition(config.data_dir.join("audit-otlp")),
            client: None,
        }
    }

    fn client(&mut self) -> io::Result<LogsServiceClient<Channel>> {
        if let Some(client) = &self.client {
            return Ok(client.clone());
        }
        let channel = self.collector.channel().map_err(io::Error::other)?;
        Ok(self.client.insert(LogsServiceClient::new(channel)).clone())
    }

    /// Sends one batch of records. Records that the collector rejects are logged.
    fn send(&mut self, log_records: Vec<LogRecord>) -> io::Result<()> {
        let mut client = self.client()?;
        let metadata = self.collector.metadata().map_err(io::Error::other)?;
        let logs = ResourceLogs {
            resource: Some(self.resource.clone()),
            scope_logs: vec![ScopeLogs {
                scope: Some(InstrumentationScope {
                    name: EVENT.to_owned(),
                    version: env!("CARGO_PKG_VERSION").to_owned(),
                    ..InstrumentationScope::default()
                }),
                log_records,
                ..ScopeLogs::default()
            }],
            ..ResourceLogs::default()
        };
        let request = ExportLogsServiceRequest {
            resource_logs: vec![logs],
        };
        let request = Request::from_parts(metadata, Extensions::default(), request);
        let answer = Handle::current().block_on(client.export(request));
        let partial = answer.map_err(|status| refused(&status))?.into_inner().partial_success;
        if let Some(partial) = partial.filter(|partial| partial.rejected_log_records > 0) {
            // The protocol forbids sending rejected records again.
            tracing::error!(
                rejected = partial.rejected_log_records,
                why = partial.error_message,
                "the collector refused records of the audit; they stay in the database, and `audit export` shows them"
            );
        }
        Ok(())
    }
}

fn refused(status: &Status) -> io::Error {
    io::Error::other(format!("{:?}: {}", status.code(), status.message()))
}

impl Target for ToOtlp {
    fn name(&self) -> String {
        format!("collector {}", self.collector.url)
    }

    fn last(&mut self) -> io::Result<Last> {
        self.exported.last()
    }

    fn add(&mut self, _: &Core, rows: &[AuditRow]) -> io::Result<()> {
        let (mut batch, mut bytes) = (Vec::new(), 0);
        for (number, row) in rows.iter().enumerate() {
            let record = log_record(line(row)?)?;
            bytes += record.encoded_len();
            batch.push(record);
            if bytes >= BATCH_BYTES || number + 1 == rows.len() {
                self.send(std::mem::take(&mut batch))?;
                self.exported.keep(row)?;
                bytes = 0;
            }
        }
        Ok(())
    }
}

fn text(key: &str, value: &str) -> KeyValue {
    attribute(key, Value::StringValue(value.to_owned()))
}

fn attribute(key: &str, value: Value) -> KeyValue {
    KeyValue {
        key: key.to_owned(),
        value: Some(AnyValue { value: Some(value) }),
        ..KeyValue::default()
    }
}

/// An audit record as a log record. Empty fields are left out.
fn log_record(line: RecordLine) -> io::Result<LogRecord> {
    let time_unix_nano = u64::try_from(line.time_us).unwrap_or(0).saturating_mul(1000);
    let severity = if line.outcome == "OK" {
        SeverityNumber::Info
    } else {
        SeverityNumber::Warn
    };
    let texts = [
        ("client.address", &line.address),
        ("user_agent.original", &line.client),
        ("rpc.method", &line.method),
        ("rackwright.audit.call", &line.call),
        ("rackwright.audit.caller", &line.caller),
        ("rackwright.audit.customer", &line.customer),
        ("rackwright.audit.hash", &line.hash),
        ("rackwright.audit.outcome", &line.outcome),
        ("rackwright.audit.role", &line.role),
        ("rackwright.audit.site", &line.site),
        ("rackwright.audit.target", &line.target),
    ];
    let filled = texts.into_iter().filter(|(_, value)| !value.is_empty());
    let mut attributes: Vec<KeyValue> = filled.map(|(name, value)| text(name, value)).collect();
    let position = i64::try_from(line.position).unwrap_or(i64::MAX);
    attributes.push(attribute("rackwright.audit.position", Value::IntValue(position)));
    let trace_id = u128::from_str_radix(&line.trace, 16)
        .ok()
        .filter(|_| line.trace.len() == 32);
    let body = serde_json::to_string(&Line::Record(Box::new(line)))?;
    Ok(LogRecord {
        time_unix_nano,
        observed_time_unix_nano: time_unix_nano,
        severity_number: severity.into(),
        severity_text: if severity == SeverityNumber::Info {
            "INFO"
        } else {
            "WARN"
        }
        .to_owned(),
        body: Some(AnyValue {
            value: Some(Value::StringValue(body)),
        }),
        attributes,
        trace_id: trace_id.map(|id| id.to_be_bytes().to_vec()).unwrap_or_default(),
        event_name: EVENT.to_owned(),
        ..LogRecord::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_of_the_audit_is_a_log_record_with_its_line() {
        let line = RecordLine {
            position: 7,
            time_us: 1_790_000_000_123_456,
            caller: "members/ann".into(),
            outcome: "PERMISSION_DENIED".into(),
            trace: "0af7651916cd43dd8448eb211c80319c".into(),
            hash: "ab".into(),
            ..RecordLine::default()
        };
        let record = log_record(line.clone()).unwrap();
        assert_eq!(record.time_unix_nano, 1_790_000_000_123_456_000);
        assert_eq!((record.severity_number, record.severity_text.as_str()), (13, "WARN"));
        assert_eq!(super::super::head::hex(&record.trace_id), line.trace);
        assert_eq!(record.event_name, EVENT);
        let Some(Value::StringValue(body)) = record.body.unwrap().value else {
            panic!("the body is no text")
        };
        let Line::Record(read) = serde_json::from_str(&body).unwrap() else {
            panic!("the body is no record")
        };
        assert_eq!(read.hash, "ab");
        let named = |name: &str| record.attributes.iter().find(|one| one.key == name);
        let value = |name: &str| named(name).and_then(|one| one.value.clone()?.value);
        assert_eq!(value("rackwright.audit.position"), Some(Value::IntValue(7)));
        assert_eq!(
            value("rackwright.audit.caller"),
            Some(Value::StringValue("members/ann".into()))
        );
        assert!(named("rackwright.audit.customer").is_none(), "there is none");
        let right = RecordLine {
            outcome: "OK".into(),
            trace: "odd".into(),
            ..line
        };
        let record = log_record(right).unwrap();
        assert_eq!(record.severity_number, 9);
        assert!(record.trace_id.is_empty());
    }
}
