//! Traces and audit records of a real `rackwrightd`, as a collector receives them; and a collector that is absent.

#[path = "telemetry/collector.rs"]
mod collector;
#[path = "telemetry/daemon.rs"]
mod daemon;

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use collector::{Collector, Log, ReceivedSpan};
use daemon::Daemon;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use rackwright_api::v1;
use rackwright_api::v1::audit_service_client::AuditServiceClient;
use rackwright_api::v1::auth_service_client::AuthServiceClient;
use rackwright_api::v1::node_service_client::NodeServiceClient;
use rackwright_sim::fleet::{Fleet, FleetConfig};
use tonic::{Code, Request};

/// `traceparent` (W3C Trace Context) of trace `n`, recorded or not, and the ids in it.
fn traceparent(n: u8, is_recorded: bool) -> (String, Vec<u8>, Vec<u8>) {
    let hex = |bytes: &[u8]| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
    let (trace, parent) = (vec![n; 16], vec![n + 1; 8]);
    let header = format!("00-{}-{}-0{}", hex(&trace), hex(&parent), u8::from(is_recorded));
    (header, trace, parent)
}

fn below<T>(header: &str, message: T) -> Request<T> {
    let mut request = Request::new(message);
    let value = header.parse().expect("it is ASCII");
    request.metadata_mut().insert("traceparent", value);
    request
}

fn enrolment(fleet: &Fleet) -> v1::EnrollNodeRequest {
    let machine = fleet.node(0);
    let bmc = v1::Bmc {
        address: machine.url(),
        username: machine.user().into(),
        password: machine.password(),
        certificate_sha256: machine
            .fingerprint()
            .expect("it has a key")
            .expect("it has a TLS certificate"),
        ..v1::Bmc::default()
    };
    v1::EnrollNodeRequest {
        node_id: "n1".into(),
        spec: Some(v1::NodeSpec {
            bmc: Some(bmc),
            ..v1::NodeSpec::default()
        }),
        mutation: Some(v1::Mutation {
            idempotency_key: "enrol-n1".into(),
            ..v1::Mutation::default()
        }),
        ..v1::EnrollNodeRequest::default()
    }
}

fn attribute<'a>(received: &'a ReceivedSpan, name: &str) -> &'a str {
    received.attributes.get(name).map_or("", String::as_str)
}

async fn an_effect_below_its_step(collector: &mut Collector) {
    let effect = collector
        .until("an effect of a known vendor", |received| {
            received.span.name == "effect" && !attribute(received, "vendor").is_empty()
        })
        .await;
    assert_eq!(attribute(&effect, "node"), "n1");
    assert_eq!(attribute(&effect, "effect.outcome"), "succeeded", "{effect:?}");
    let of = effect.span.parent_span_id.clone();
    let step = collector
        .until("the effect's step", |received| received.span.span_id == of)
        .await;
    assert_eq!((step.span.name.as_str(), attribute(&step, "node")), ("step", "n1"));
    assert_eq!(step.span.trace_id, effect.span.trace_id);
    assert!(step.span.start_time_unix_nano <= effect.span.start_time_unix_nano);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_steps_and_effects_reach_the_collector_below_their_callers() {
    let mut collector = Collector::start().await;
    let fleet = Fleet::start(FleetConfig::default()).await.expect("a simulated machine");
    let authorities = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(&authorities, &collector.certificate).expect("it can be written");
    let settings = format!(
        "telemetry: {{otlp: \"{}\", ca_file: {}, headers: {{X-Scope: tests}}}}\n",
        collector.url,
        authorities.path().display(),
    );
    let daemon = Daemon::start(&settings).await;
    let mut nodes = NodeServiceClient::new(daemon.operator());

    // An unauthenticated client does not decide whether or under which trace a call is recorded.
    let (header, strangers_trace, _) = traceparent(1, true);
    let refused = AuthServiceClient::new(daemon.stranger())
        .who_am_i(below(&header, v1::WhoAmIRequest {}))
        .await;
    assert_eq!(
        refused.expect_err("a stranger has no name").code(),
        Code::Unauthenticated
    );
    // A member's trace is recorded if the member's own header asks for it.
    let (header, unrecorded_trace, _) = traceparent(3, false);
    let request = below(&header, v1::ListNodesRequest::default());
    nodes.list_nodes(request).await.expect("the operator may");
    let (header, trace, parent) = traceparent(5, true);
    nodes
        .enroll_node(below(&header, enrolment(&fleet)))
        .await
        .expect("a new node");

    let is = |received: &ReceivedSpan, name: &str| received.span.name == name;
    let call = collector
        .until("the enrolment", |received| {
            is(received, "rackwright.v1.NodeService/EnrollNode")
        })
        .await;
    assert_eq!((&call.span.trace_id, &call.span.parent_span_id), (&trace, &parent));
    assert_eq!(call.span.kind, SpanKind::Server as i32);
    assert!(call.span.end_time_unix_nano > call.span.start_time_unix_nano);
    for (name, value) in [
        ("rpc.system", "grpc"),
        ("rpc.service", "rackwright.v1.NodeService"),
        ("rpc.method", "EnrollNode"),
        ("rpc.grpc.status_code", "0"),
        ("caller", "operator"),
    ] {
        assert_eq!(attribute(&call, name), value, "{name} of {call:?}");
    }
    assert_eq!(call.resource["service.name"], "rackwrightd");
    assert_eq!(call.scope_header.as_deref(), Some("tests"));

    an_effect_below_its_step(&mut collector).await;

    // The latest spans are sent before the process ends.
    nodes
        .list_nodes(v1::ListNodesRequest::default())
        .await
        .expect("the operator may");
    daemon.stop();
    let last = |received: &ReceivedSpan| is(received, "rackwright.v1.NodeService/ListNodes");
    collector.until("the last call", last).await;
    let stranger = collector
        .until("the stranger's call", |received| {
            is(received, "rackwright.v1.AuthService/WhoAmI")
        })
        .await;
    assert_ne!(stranger.span.trace_id, strangers_trace);
    assert_eq!(attribute(&stranger, "rpc.grpc.status_code"), "16");
    assert!(
        collector
            .seen
            .iter()
            .all(|received| received.span.trace_id != unrecorded_trace)
    );
    fleet.stop().await;
}

fn value(metrics: &str, series: &str) -> u64 {
    let mut lines = metrics.lines().filter_map(|line| line.strip_prefix(series));
    let value = lines.next().unwrap_or_else(|| panic!("no {series} in:\n{metrics}"));
    value.trim().parse().expect("a count")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_its_collector_the_daemon_works_and_counts_dropped_records() {
    // Accepts connections without answers.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let at = listener.local_addr().expect("it has an address");
    let fleet = Fleet::start(FleetConfig::default()).await.expect("a simulated machine");
    let daemon = Daemon::start(&format!("telemetry: {{otlp: \"http://{at}\", sample: 1}}\n")).await;
    let mut nodes = NodeServiceClient::new(daemon.operator());
    nodes.enroll_node(enrolment(&fleet)).await.expect("a new node");
    let begun = Instant::now();
    loop {
        let request = v1::GetNodeRequest {
            name: "nodes/n1".into(),
            ..v1::GetNodeRequest::default()
        };
        let node = nodes.get_node(request).await.expect("the node is there").into_inner();
        if node.status.is_some_and(|status| !status.macs.is_empty()) {
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "nothing is done");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let dropped = "rackwright_spans_dropped_total{reason=\"not-sent\"}";
    while value(&daemon.metrics(), dropped) == 0 {
        assert!(begun.elapsed() < Duration::from_secs(60), "nothing is counted");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(value(&daemon.metrics(), "rackwright_spans_sent_total"), 0);
    let begun = Instant::now();
    daemon.stop();
    let ended = begun.elapsed();
    assert!(ended < Duration::from_secs(15), "it waits for its collector: {ended:?}");
    fleet.stop().await;
}

/// Waits for the next log record: the daemon tries again after 10 s.
async fn next(collector: &mut Collector) -> Log {
    let next = tokio::time::timeout(Duration::from_secs(60), collector.logs.recv()).await;
    next.expect("a record comes in time").expect("the collector runs")
}

/// The present records of the audit: position, hash and method of each.
async fn audited(daemon: &Daemon) -> Vec<(u64, String, String)> {
    let request = v1::ListAuditRequest {
        page_size: 1000,
        ..v1::ListAuditRequest::default()
    };
    let list = AuditServiceClient::new(daemon.operator()).list_audit(request).await;
    let list = list.expect("the operator may").into_inner().records;
    let mut list: Vec<_> = list
        .into_iter()
        .map(|one| (one.position, one.hash, one.method))
        .collect();
    list.sort();
    list
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_of_the_audit_reach_the_collector_in_order_and_wait_for_one_that_is_away() {
    let mut collector = Collector::start().await;
    collector.is_away.store(true, Ordering::SeqCst);
    let fleet = Fleet::start(FleetConfig::default()).await.expect("a simulated machine");
    let authorities = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(&authorities, &collector.certificate).expect("it can be written");
    let (url, authorities_file) = (&collector.url, authorities.path().display());
    // The trace of a call is known where traces are recorded.
    let settings = format!(
        "audit: {{otlp: {{url: \"{url}\", ca_file: {authorities_file}}}}}\n\
         telemetry: {{otlp: \"{url}\", ca_file: {authorities_file}}}\n"
    );
    let daemon = Daemon::start(&settings).await;
    let mut nodes = NodeServiceClient::new(daemon.operator());
    let (header, trace, _) = traceparent(5, true);
    let enrolled = nodes.enroll_node(below(&header, enrolment(&fleet))).await;
    enrolled.expect("a new node");
    let again = v1::EnrollNodeRequest {
        mutation: None,
        ..enrolment(&fleet)
    };
    nodes.enroll_node(again).await.expect_err("the node is there already");
    let begun = Instant::now();
    while value(&daemon.metrics(), "rackwright_audit_exports_failing") == 0 {
        assert!(
            begun.elapsed() < Duration::from_secs(60),
            "no metric shows that the collector is absent"
        );
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    collector.is_away.store(false, Ordering::SeqCst);
    let expected = audited(&daemon).await;
    assert!(expected.len() >= 3, "{expected:?}");
    for (position, hash, method) in &expected {
        let Log {
            record,
            attributes,
            resource,
        } = next(&mut collector).await;
        // In order, each record once, and with the same hash chain.
        assert_eq!(attributes["rackwright.audit.position"], position.to_string());
        assert_eq!(attributes["rackwright.audit.hash"], *hash);
        assert_eq!(attributes["rpc.method"], *method);
        assert_eq!(record.event_name, "rackwright.audit");
        let body = format!("{:?}", record.body);
        assert!(body.contains(hash.as_str()) && body.contains("signature"), "{body}");
        assert_eq!(resource["service.name"], "rackwrightd");
        assert_eq!(resource["service.namespace"], "traced");
        if method == "NodeService/EnrollNode" {
            let is_first = attributes["rackwright.audit.outcome"] == "OK";
            assert_eq!(record.severity_text, if is_first { "INFO" } else { "WARN" });
            if is_first {
                assert_eq!(record.trace_id, trace);
            }
        }
    }
    // The last record is sent before the process ends.
    let update = v1::RetryNodeRequest {
        name: "nodes/n1".into(),
        ..v1::RetryNodeRequest::default()
    };
    let _ = nodes.retry_node(update).await;
    let last = audited(&daemon).await;
    assert!(last.len() > expected.len());
    daemon.stop();
    let (position, hash, _) = last.last().expect("there are records");
    loop {
        let log = next(&mut collector).await;
        if log.attributes["rackwright.audit.position"] == position.to_string() {
            assert_eq!(log.attributes["rackwright.audit.hash"], *hash);
            break;
        }
    }
    fleet.stop().await;
}
