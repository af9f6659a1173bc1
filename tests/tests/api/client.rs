//! Clients of the API: typed ones with the stubs, and one that calls any method with any bytes.

use std::fmt::Debug;
use std::future::Future;
use std::net::IpAddr;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bytes::Bytes;
use prost_types::FieldMask;
use rackwright_api::v1;
use rackwright_api::v1::agent_service_client::AgentServiceClient;
use rackwright_api::v1::auth_service_client::AuthServiceClient;
use rackwright_api::v1::bmc_service_client::BmcServiceClient;
use rackwright_api::v1::credential_service_client::CredentialServiceClient;
use rackwright_api::v1::discovery_service_client::DiscoveryServiceClient;
use rackwright_api::v1::event_service_client::EventServiceClient;
use rackwright_api::v1::firmware_service_client::FirmwareServiceClient;
use rackwright_api::v1::image_service_client::ImageServiceClient;
use rackwright_api::v1::metering_service_client::MeteringServiceClient;
use rackwright_api::v1::node_service_client::NodeServiceClient;
use rackwright_api::v1::operation_service_client::OperationServiceClient;
use rackwright_lab::{Lab, LabConfig, Namespace};
use rackwright_lifecycle::{NodeId, State};
use rackwright_store::Store;
pub use rackwright_tests::member::authority;
use rackwright_tests::member::identity;
use rackwright_tests::site::{Settings, Site};
use rackwright_tests::wire;
pub use rackwright_tests::wire::{Method, methods};
use tonic::body::Body;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Code, Response, Status, Streaming};
use tonic_types::StatusExt as _;
use tower::Service as _;

/// The API's address in the lab.
pub const SERVER: &str = "https://10.77.0.1:7070";
/// An address without a BMC: the node stays discovered.
pub const NO_BMC: &str = "https://10.77.0.1:9";
/// Long for everything that needs no machine.
pub const TEST_LIMIT: Duration = Duration::from_secs(15);
/// A stream that is silent for this long has no more messages.
const SILENCE: Duration = Duration::from_millis(700);

pub async fn start(namespace: &Namespace) -> (Lab, Site, Api) {
    let lab = Lab::start(namespace, LabConfig::default())
        .await
        .expect("the lab starts");
    let site = Site::start(&namespace.state_dir().join("site"), &Settings::default()).await;
    let api = Api::of_site(&site);
    (lab, site, api)
}

/// One connection, with or without a certificate.
#[derive(Debug, Clone)]
pub struct Api {
    pub channel: Channel,
}

impl Api {
    /// The first operator.
    pub fn of_site(site: &Site) -> Self {
        Self::of_cli(&site.dir().join("cli"))
    }

    /// The member that logged in with the CLI's files in `dir`.
    pub fn of_cli(dir: &Path) -> Self {
        Self::connect(&authority(dir), Some(identity(dir)))
    }

    /// Connects at the first call.
    pub fn connect(ca_pem: &str, identity: Option<Identity>) -> Self {
        Self::connect_from(None, ca_pem, identity)
    }

    /// Connects from an address of this host.
    pub fn connect_from(address: Option<IpAddr>, ca_pem: &str, identity: Option<Identity>) -> Self {
        let mut tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(ca_pem));
        if let Some(identity) = identity {
            tls = tls.identity(identity);
        }
        let endpoint = Endpoint::from_static(SERVER)
            .local_address(address)
            .tls_config(tls)
            .expect("the files are PEM");
        Self {
            channel: endpoint.timeout(TEST_LIMIT).connect_lazy(),
        }
    }

    pub fn nodes(&self) -> NodeServiceClient<Channel> {
        NodeServiceClient::new(self.channel.clone())
    }

    pub fn operations(&self) -> OperationServiceClient<Channel> {
        OperationServiceClient::new(self.channel.clone())
    }

    pub fn events(&self) -> EventServiceClient<Channel> {
        EventServiceClient::new(self.channel.clone())
    }

    pub fn firmware(&self) -> FirmwareServiceClient<Channel> {
        FirmwareServiceClient::new(self.channel.clone())
    }

    pub fn images(&self) -> ImageServiceClient<Channel> {
        ImageServiceClient::new(self.channel.clone())
    }

    pub fn credentials(&self) -> CredentialServiceClient<Channel> {
        CredentialServiceClient::new(self.channel.clone())
    }

    pub fn bmc(&self) -> BmcServiceClient<Channel> {
        BmcServiceClient::new(self.channel.clone())
    }

    pub fn metering(&self) -> MeteringServiceClient<Channel> {
        MeteringServiceClient::new(self.channel.clone())
    }

    pub fn discovery(&self) -> DiscoveryServiceClient<Channel> {
        DiscoveryServiceClient::new(self.channel.clone())
    }

    pub fn auth(&self) -> AuthServiceClient<Channel> {
        AuthServiceClient::new(self.channel.clone())
    }

    pub fn agent(&self) -> AgentServiceClient<Channel> {
        AgentServiceClient::new(self.channel.clone())
    }

    /// Sends one message to any method and returns the code and the first message of the answer. A stream that
    /// opens and stays silent counts as answered.
    pub async fn call(&self, path: &str, message: Vec<u8>) -> Result<Vec<u8>, Status> {
        wire::call(self.channel.clone(), path, message).await
    }

    /// Sends a `POST` request with this content type and body.
    pub async fn post(&self, path: &str, content_type: &str, body: impl Into<Bytes>) -> http::Response<Body> {
        self.send("POST", path, content_type, body).await
    }

    /// Sends an HTTP request with this verb, content type and body.
    pub async fn send(
        &self,
        verb: &str,
        path: &str,
        content_type: &str,
        body: impl Into<Bytes>,
    ) -> http::Response<Body> {
        let request = http::Request::builder().method(verb).uri(format!("{SERVER}{path}"));
        let request = request.header("content-type", content_type);
        let request = request.body(Body::new(http_body_util::Full::new(body.into())));
        let mut channel = self.channel.clone();
        std::future::poll_fn(|context| channel.poll_ready(context))
            .await
            .expect("a connection");
        let answer = channel.call(request.expect("a request"));
        tokio::time::timeout(TEST_LIMIT, answer)
            .await
            .expect("an answer in time")
            .expect("an answer")
    }
}

/// An unused key.
fn key() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    format!("key-{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// The envelope of a new request.
pub fn fresh() -> Option<v1::Mutation> {
    seen("")
}

/// The envelope of a new request by a client that has seen that version.
pub fn seen(resource_version: &str) -> Option<v1::Mutation> {
    Some(v1::Mutation {
        idempotency_key: key(),
        resource_version: resource_version.to_owned(),
    })
}

/// A node with an unreachable BMC.
pub fn enrolment(id: &str, labels: &[(&str, &str)]) -> v1::EnrollNodeRequest {
    let bmc = v1::Bmc {
        address: NO_BMC.into(),
        username: "admin".into(),
        password: "guess-this-one".into(),
        ..v1::Bmc::default()
    };
    v1::EnrollNodeRequest {
        node_id: id.into(),
        spec: Some(v1::NodeSpec {
            bmc: Some(bmc),
            ..v1::NodeSpec::default()
        }),
        labels: labels.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
        mutation: fresh(),
        ..v1::EnrollNodeRequest::default()
    }
}

pub fn mask(paths: &[&str]) -> Option<FieldMask> {
    Some(FieldMask {
        paths: paths.iter().map(|p| (*p).to_owned()).collect(),
    })
}

pub async fn node(api: &Api, id: &str) -> v1::Node {
    let name = format!("nodes/{id}");
    let request = v1::GetNodeRequest { name, read_mask: None };
    api.nodes()
        .get_node(request)
        .await
        .expect("the node is there")
        .into_inner()
}

pub fn version(node: &v1::Node) -> String {
    node.metadata.clone().unwrap_or_default().resource_version
}

/// The error, which must have that code.
#[track_caller]
pub fn refused<T: Debug>(answer: Result<Response<T>, Status>, code: Code) -> Status {
    match answer {
        Err(status) if status.code() == code => status,
        other => panic!("not {code:?}: {other:?}"),
    }
}

/// The request fields that an error names.
pub fn fields(status: &Status) -> Vec<String> {
    let violations = status.get_details_bad_request().map(|b| b.field_violations);
    violations.unwrap_or_default().into_iter().map(|v| v.field).collect()
}

/// The advice of an error.
pub fn hint(status: &Status) -> String {
    let message = status.get_details_localized_message();
    message.map(|m| m.message).unwrap_or_default()
}

/// Checks that an error concerns the state of `subject` and contains advice.
#[track_caller]
pub fn precondition<T: Debug>(answer: Result<Response<T>, Status>, subject: &str, advice: &str) {
    let status = refused(answer, Code::FailedPrecondition);
    let violations = status.get_details_precondition_failure().map(|f| f.violations);
    let subjects: Vec<_> = violations.iter().flatten().map(|v| v.subject.as_str()).collect();
    assert_eq!(subjects, [subject], "{status:?}");
    assert!(
        hint(&status).contains(advice),
        "{advice:?} is not in {:?}",
        hint(&status)
    );
}

/// Repeats `ask` until it returns an answer.
pub async fn until<T, F: Future<Output = Option<T>>>(what: &str, ask: impl Fn() -> F) -> T {
    let deadline = tokio::time::Instant::now() + TEST_LIMIT;
    loop {
        if let Some(answer) = ask().await {
            return answer;
        }
        assert!(
            tokio::time::Instant::now() < deadline,
            "{what}: not within {TEST_LIMIT:?}"
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

pub async fn until_state(api: &Api, id: &str, state: v1::NodeState) -> v1::Node {
    until(&format!("{id} is {state:?}"), async || {
        let node = node(api, id).await;
        let is_there = node.status.as_ref().is_some_and(|s| s.state() == state);
        is_there.then_some(node)
    })
    .await
}

/// Sets a node to available in the database, without the inspection of a machine.
pub async fn make_available(site: &mut Site, id: &str) {
    site.kill().await;
    let store = Store::open(&site.dir().join("data/rackwright.db"))
        .await
        .expect("the database opens");
    let mut tx = store.write().await.expect("a change begins");
    let mut record = tx.node(&NodeId::stored(id)).await.expect("the node is there");
    record.node.state = State::Available;
    let now = record.updated_at;
    tx.save_node(&mut record, now).await.expect("the node is written");
    tx.commit().await.expect("the change stays");
    store.close().await;
    site.restart().await;
}

/// Waits for the end of an operation.
pub async fn done(api: &Api, operation: &v1::Operation) -> v1::Operation {
    let timeout = prost_types::Duration { seconds: 12, nanos: 0 };
    let request = v1::WaitOperationRequest {
        name: operation.name.clone(),
        timeout: Some(timeout),
    };
    let ended = api.operations().wait_operation(request).await;
    let ended = ended.expect("the operation is there").into_inner();
    assert!(ended.done, "not done within 12 s: {ended:?}");
    ended
}

/// The events of a stream until it is silent or there are enough: nodes without a BMC fail again and again.
pub async fn drain(stream: &mut Streaming<v1::Event>) -> Vec<v1::Event> {
    let mut events = Vec::new();
    let enough = tokio::time::Instant::now() + Duration::from_secs(2);
    while tokio::time::Instant::now() < enough {
        let Ok(next) = tokio::time::timeout(SILENCE, stream.message()).await else {
            break;
        };
        events.push(next.expect("the stream goes on").expect("the stream does not end"));
    }
    events
}

/// The stored events after a position.
pub async fn events(api: &Api, after_position: u64) -> Vec<v1::Event> {
    let request = v1::StreamEventsRequest {
        after_position,
        until_now: true,
        ..Default::default()
    };
    let stream = api.events().stream_events(request).await;
    let mut stream = stream.expect("the stream opens").into_inner();
    let mut events = Vec::new();
    while let Some(event) = stream.message().await.expect("the stream goes on to its end") {
        events.push(event);
    }
    events
}
