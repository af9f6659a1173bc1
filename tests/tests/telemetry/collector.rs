//! A collector of traces and logs, over TLS, that stores what it receives.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use opentelemetry_proto::tonic::collector::logs::v1::logs_service_server::{LogsService, LogsServiceServer};
use opentelemetry_proto::tonic::collector::logs::v1::{ExportLogsServiceRequest, ExportLogsServiceResponse};
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{TraceService, TraceServiceServer};
use opentelemetry_proto::tonic::collector::trace::v1::{ExportTraceServiceRequest, ExportTraceServiceResponse};
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::logs::v1::LogRecord;
use opentelemetry_proto::tonic::trace::v1::Span;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::{Identity, Server, ServerTlsConfig};
use tonic::{Request, Response, Status};

struct Inbox(mpsc::UnboundedSender<Vec<ReceivedSpan>>);

/// A span, and the process that sent it.
#[derive(Debug, Clone)]
pub struct ReceivedSpan {
    pub span: Span,
    pub attributes: BTreeMap<String, String>,
    pub resource: BTreeMap<String, String>,
    pub scope_header: Option<String>,
}

/// A log record, and the process that sent it.
#[derive(Debug, Clone)]
pub struct Log {
    pub record: LogRecord,
    pub attributes: BTreeMap<String, String>,
    pub resource: BTreeMap<String, String>,
}

struct Logs {
    sender: mpsc::UnboundedSender<Log>,
    is_away: Arc<AtomicBool>,
}

#[tonic::async_trait]
impl LogsService for Logs {
    async fn export(
        &self,
        request: Request<ExportLogsServiceRequest>,
    ) -> Result<Response<ExportLogsServiceResponse>, Status> {
        if self.is_away.load(Ordering::SeqCst) {
            return Err(Status::unavailable("this collector is being restarted"));
        }
        for logs in request.into_inner().resource_logs {
            let resource = texts(&logs.resource.unwrap_or_default().attributes);
            for record in logs.scope_logs.into_iter().flat_map(|scope| scope.log_records) {
                let _ = self.sender.send(Log {
                    attributes: texts(&record.attributes),
                    record,
                    resource: resource.clone(),
                });
            }
        }
        Ok(Response::new(ExportLogsServiceResponse::default()))
    }
}

fn texts(attributes: &[KeyValue]) -> BTreeMap<String, String> {
    let text = |attribute: &KeyValue| match attribute.value.clone()?.value? {
        Value::StringValue(text) => Some(text),
        Value::IntValue(number) => Some(number.to_string()),
        other => Some(format!("{other:?}")),
    };
    let pair = |a: &KeyValue| Some((a.key.clone(), text(a)?));
    attributes.iter().filter_map(pair).collect()
}

#[tonic::async_trait]
impl TraceService for Inbox {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        let header = request.metadata().get("x-scope").and_then(|value| value.to_str().ok());
        let scope_header = header.map(str::to_owned);
        let mut received = Vec::new();
        for resource_spans in request.into_inner().resource_spans {
            let resource = texts(&resource_spans.resource.unwrap_or_default().attributes);
            for span in resource_spans.scope_spans.into_iter().flat_map(|scope| scope.spans) {
                received.push(ReceivedSpan {
                    attributes: texts(&span.attributes),
                    span,
                    resource: resource.clone(),
                    scope_header: scope_header.clone(),
                });
            }
        }
        let _ = self.0.send(received);
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

/// The received data, in order.
pub struct Collector {
    pub url: String,
    /// Its certificate, in PEM.
    pub certificate: String,
    inbox: mpsc::UnboundedReceiver<Vec<ReceivedSpan>>,
    pub seen: Vec<ReceivedSpan>,
    /// Log records, in order of arrival.
    pub logs: mpsc::UnboundedReceiver<Log>,
    /// While true, log records are refused.
    pub is_away: Arc<AtomicBool>,
}

impl Collector {
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let url = format!("https://{}", listener.local_addr().expect("it has an address"));
        let (sender, inbox) = mpsc::unbounded_channel();
        let (log_sender, logs) = mpsc::unbounded_channel();
        let is_away = Arc::new(AtomicBool::new(false));
        let logs_service = Logs {
            sender: log_sender,
            is_away: is_away.clone(),
        };
        let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).expect("a certificate");
        let certificate = made.cert.pem();
        let identity = Identity::from_pem(&certificate, made.signing_key.serialize_pem());
        let tls = ServerTlsConfig::new().identity(identity);
        let serve = Server::builder()
            .tls_config(tls)
            .expect("TLS can be set up")
            .add_service(TraceServiceServer::new(Inbox(sender)))
            .add_service(LogsServiceServer::new(logs_service))
            .serve_with_incoming(TcpListenerStream::new(listener));
        tokio::spawn(serve);
        Self {
            url,
            certificate,
            inbox,
            seen: Vec::new(),
            logs,
            is_away,
        }
    }

    /// Waits for the first span that `wanted` accepts.
    pub async fn until(&mut self, what: &str, wanted: impl Fn(&ReceivedSpan) -> bool) -> ReceivedSpan {
        let limit = std::time::Duration::from_secs(60);
        let found = async {
            loop {
                if let Some(received) = self.seen.iter().find(|received| wanted(received)) {
                    return received.clone();
                }
                let more = self.inbox.recv().await.expect("the collector runs");
                self.seen.extend(more);
            }
        };
        match tokio::time::timeout(limit, found).await {
            Ok(received) => received,
            Err(_) => panic!("{what} did not come; what came: {:#?}", self.seen),
        }
    }
}
