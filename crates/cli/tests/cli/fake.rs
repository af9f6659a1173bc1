//! A control plane for one test: the generated service traits over a few maps, with scripted failures. It shares no
//! code with the program under test.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use rackwright_api::v1::auth_service_server::{AuthService, AuthServiceServer};
use rackwright_api::v1::boot_service_server::{BootService, BootServiceServer};
use rackwright_api::v1::cluster_service_server::ClusterServiceServer;
use rackwright_api::v1::control_service_server::ControlServiceServer;
use rackwright_api::v1::discovery_service_server::DiscoveryServiceServer;
use rackwright_api::v1::event_service_server::{EventService, EventServiceServer};
use rackwright_api::v1::image_service_server::ImageServiceServer;
use rackwright_api::v1::metering_service_server::MeteringServiceServer;
use rackwright_api::v1::node_service_server::NodeServiceServer;
use rackwright_api::v1::operation_service_server::{OperationService, OperationServiceServer};
use rackwright_api::v1::power_service_server::PowerServiceServer;
use rackwright_api::v1::session_service_server::SessionServiceServer;
use rackwright_api::v1::settings_service_server::SettingsServiceServer;
use rackwright_api::v1::site_service_server::SiteServiceServer;
use rackwright_api::v1::*;
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::{Certificate, Identity, Server, ServerTlsConfig};
use tonic::{Request, Response, Status};

use crate::authority::Authority;
use crate::fake_clusters::Clusters;
use crate::fake_discovery::Discoveries;
use crate::fake_metering::Metering;
use crate::fake_power::Power;
use crate::fixtures;

pub type Answer<T> = Result<Response<T>, Status>;
pub type Stream<T> = Pin<Box<dyn tokio_stream::Stream<Item = Result<T, Status>> + Send>>;

/// The only valid token.
pub const TOKEN: &str = "rwt-good";

/// The fake's data and scripts.
#[derive(Default)]
pub struct State {
    pub nodes: BTreeMap<String, Node>,
    pub explanations: HashMap<String, Explanation>,
    pub reports: Vec<Report>,
    pub certificates: Vec<EraseCertificate>,
    /// Each call about an operation returns the next of its forms; the last form is repeated.
    pub operations: BTreeMap<String, VecDeque<Operation>>,
    /// The forms of operations that later calls start, in order.
    pub scripts: VecDeque<Vec<Operation>>,
    pub clusters: Clusters,
    pub metering: Metering,
    pub discoveries: Discoveries,
    pub power: Power,
    pub settings: Vec<NodeSettings>,
    pub images: Vec<Image>,
    pub spreads: Vec<ImageSpread>,
    pub uploads: Vec<StoredUpload>,
    /// The stream of a `WriteUpload` breaks after this many bytes; one entry per call.
    pub upload_cuts: VecDeque<usize>,
    pub events: Vec<Event>,
    /// An event stream breaks after this many events; one entry per call.
    pub event_cuts: VecDeque<usize>,
    /// Messages of `WatchNodes` after the current state, one list per call; the stream then stays open.
    pub watches: VecDeque<Vec<WatchNodesResponse>>,
    pub traces: HashMap<String, TraceBootResponse>,
    pub unknown: Vec<UnknownMachine>,
    pub counters: HashMap<String, u64>,
    /// Answers of a method in place of its work, in order.
    pub refusals: HashMap<&'static str, VecDeque<Status>>,
    /// The method does its work, but this many answers are lost.
    pub lost_answers: HashMap<&'static str, u32>,
    /// The calls, with their idempotency keys.
    pub calls: Vec<(&'static str, String)>,
    /// Every mutating answer by its key.
    pub answered: HashMap<String, Operation>,
    /// Requests that tests examine.
    pub deployments: Vec<(String, Deployment)>,
    pub enrolled: Vec<EnrollNodeRequest>,
    pub updates: Vec<UpdateNodeRequest>,
    pub token_redeemed: bool,
    /// The age of credentials, and their remaining lifetime.
    pub credential_age: Duration,
    pub credential_left: Option<Duration>,
    pub renewals: u32,
    /// Answers to questions about a login with a device code, before the certificate.
    pub device_answers: VecDeque<Result<FinishDeviceLoginResponse, Status>>,
    /// Questions about a login with a device code.
    pub device_questions: u32,
    /// The identity provider has no page with the code filled in.
    pub has_no_complete_url: bool,
    pub page_size: usize,
}

/// An upload and its received data.
pub struct StoredUpload {
    pub key: String,
    pub request: StartUploadRequest,
    pub data: Vec<u8>,
}

/// The running fake.
pub struct Fake {
    pub state: Arc<Mutex<State>>,
    pub authority: Arc<Authority>,
    pub address: SocketAddr,
    _runtime: tokio::runtime::Runtime,
}

#[derive(Clone)]
pub struct Service {
    pub state: Arc<Mutex<State>>,
    pub authority: Arc<Authority>,
}

impl Fake {
    pub fn start() -> Self {
        Self::start_for(&["127.0.0.1", "localhost"])
    }

    /// A fake with the three nodes of the fixtures.
    pub fn with_nodes() -> Self {
        let fake = Self::start();
        for node in fixtures::nodes() {
            fake.state().nodes.insert(node.name.clone(), node);
        }
        fake
    }

    /// Starts with a certificate for these names.
    pub fn start_for(names: &[&str]) -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let authority = Arc::new(Authority::new("rackwright test CA"));
        let state = Arc::new(Mutex::new(State::default()));
        let service = Service {
            state: state.clone(),
            authority: authority.clone(),
        };
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        let (certificate, key) = authority.server(names);
        let tls = ServerTlsConfig::new()
            .identity(Identity::from_pem(format!("{certificate}{}", authority.pem), key))
            .client_ca_root(Certificate::from_pem(&authority.pem))
            .client_auth_optional(true);
        let server = Server::builder()
            .tls_config(tls)
            .unwrap()
            .add_service(AuthServiceServer::new(service.clone()))
            .add_service(BootServiceServer::new(service.clone()))
            .add_service(EventServiceServer::new(service.clone()))
            .add_service(ImageServiceServer::new(service.clone()))
            .add_service(NodeServiceServer::new(service.clone()))
            .add_service(ClusterServiceServer::new(service.clone()))
            .add_service(MeteringServiceServer::new(service.clone()))
            .add_service(DiscoveryServiceServer::new(service.clone()))
            .add_service(PowerServiceServer::new(service.clone()))
            .add_service(ControlServiceServer::new(service.clone()))
            .add_service(SessionServiceServer::new(service.clone()))
            .add_service(SettingsServiceServer::new(service.clone()))
            .add_service(SiteServiceServer::new(service.clone()))
            .add_service(OperationServiceServer::new(service))
            .serve_with_incoming(TcpListenerStream::new(listener));
        runtime.spawn(server);
        Self {
            state,
            authority,
            address,
            _runtime: runtime,
        }
    }

    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// The idempotency keys of a method's calls.
    pub fn keys(&self, method: &str) -> Vec<String> {
        self.state()
            .calls
            .iter()
            .filter(|(name, _)| *name == method)
            .map(|(_, key)| key.clone())
            .collect()
    }

    pub fn refuse(&self, method: &'static str, status: Status) {
        self.state().refusals.entry(method).or_default().push_back(status);
    }
}

impl Service {
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// Counts the call, requires a client certificate, and returns a scripted refusal.
    pub fn enter<T>(&self, method: &'static str, request: &Request<T>, key: &str) -> Result<(), Status> {
        let known = request
            .peer_certs()
            .is_some_and(|certificates| !certificates.is_empty());
        let mut state = self.state();
        state.calls.push((method, key.to_owned()));
        if !known {
            return Err(Status::unauthenticated("a client certificate is needed"));
        }
        match state.refusals.get_mut(method).and_then(VecDeque::pop_front) {
            Some(status) => Err(status),
            None => Ok(()),
        }
    }

    /// Starts an operation, once for each key.
    pub fn start(&self, method: &'static str, key: &str, kind: &str, target: &str) -> Answer<Operation> {
        let mut state = self.state();
        if let Some(operation) = state.answered.get(key) {
            return Ok(Response::new(operation.clone()));
        }
        let name = format!("operations/00000000-0000-4000-8000-{:012}", state.operations.len() + 1);
        let forms = state.scripts.pop_front().unwrap_or_else(fixtures::quick);
        let forms: VecDeque<Operation> = forms
            .into_iter()
            .map(|form| Operation {
                name: name.clone(),
                kind: kind.to_owned(),
                target: target.to_owned(),
                ..form
            })
            .collect();
        let first = forms.front().cloned().unwrap_or_default();
        state.operations.insert(name, forms);
        state.answered.insert(key.to_owned(), first.clone());
        if let Some(lost) = state.lost_answers.get_mut(method).filter(|lost| **lost > 0) {
            *lost -= 1;
            return Err(Status::unavailable("the answer was lost"));
        }
        Ok(Response::new(first))
    }
}

pub fn key(mutation: &Option<Mutation>) -> String {
    mutation
        .as_ref()
        .map(|mutation| mutation.idempotency_key.clone())
        .unwrap_or_default()
}

#[tonic::async_trait]
impl AuthService for Service {
    async fn redeem_token(&self, request: Request<RedeemTokenRequest>) -> Answer<Credential> {
        let request = request.into_inner();
        let mut state = self.state();
        if request.token != TOKEN || state.token_redeemed {
            return Err(Status::unauthenticated(
                "the token is not known, was used already, or has ended",
            ));
        }
        state.token_redeemed = true;
        let (age, left) = (
            state.credential_age,
            state.credential_left.unwrap_or(Duration::from_secs(86400)),
        );
        drop(state);
        self.issue(&request.csr_pem, age, left)
    }

    async fn begin_device_login(&self, request: Request<BeginDeviceLoginRequest>) -> Answer<BeginDeviceLoginResponse> {
        let refusal = self
            .state()
            .refusals
            .get_mut("BeginDeviceLogin")
            .and_then(VecDeque::pop_front);
        if let Some(status) = refusal {
            return Err(status);
        }
        let page = "https://login.example/activate";
        let complete = format!("{page}?user_code=WDJB-MJHT");
        Ok(Response::new(BeginDeviceLoginResponse {
            // The real text is sealed; its content is not for the client.
            login: request.into_inner().csr_pem,
            provider: "the \u{1b}[31mlab".to_owned(),
            verification_url: page.to_owned(),
            complete_verification_url: match self.state().has_no_complete_url {
                true => String::new(),
                false => complete,
            },
            user_code: "WDJB-MJHT".to_owned(),
            interval: Some(prost_types::Duration {
                seconds: 0,
                nanos: 10_000_000,
            }),
            expire_time: Some(fixtures::FIXED),
        }))
    }

    async fn finish_device_login(
        &self,
        request: Request<FinishDeviceLoginRequest>,
    ) -> Answer<FinishDeviceLoginResponse> {
        let answer = {
            let mut state = self.state();
            state.device_questions += 1;
            state.device_answers.pop_front()
        };
        if let Some(answer) = answer {
            return answer.map(Response::new);
        }
        let left = self.state().credential_left.unwrap_or(Duration::from_secs(7200));
        let issued = self.issue(&request.into_inner().login, Duration::ZERO, left)?;
        Ok(Response::new(FinishDeviceLoginResponse {
            credential: Some(issued.into_inner()),
            slow_down: false,
        }))
    }

    async fn renew_credential(&self, request: Request<RenewCredentialRequest>) -> Answer<Credential> {
        self.enter("RenewCredential", &request, "")?;
        self.state().renewals += 1;
        self.issue(
            &request.into_inner().csr_pem,
            Duration::ZERO,
            Duration::from_secs(86400),
        )
    }

    async fn create_token(&self, request: Request<CreateTokenRequest>) -> Answer<CreateTokenResponse> {
        self.enter("CreateToken", &request, &key(&request.get_ref().mutation))?;
        Ok(Response::new(CreateTokenResponse {
            token: "rwt-new".to_owned(),
            ca_sha256: self.authority.pin(),
            expire_time: Some(fixtures::FIXED),
        }))
    }

    async fn list_tokens(&self, request: Request<ListTokensRequest>) -> Answer<ListTokensResponse> {
        self.enter("ListTokens", &request, "")?;
        // One token per page: the client must read further pages.
        let number: usize = request.get_ref().page_token.parse().unwrap_or(0);
        let all = fixtures::member_tokens();
        Ok(Response::new(ListTokensResponse {
            tokens: all.get(number).into_iter().cloned().collect(),
            next_page_token: match number + 1 < all.len() {
                true => (number + 1).to_string(),
                false => String::new(),
            },
        }))
    }

    async fn delete_token(&self, request: Request<DeleteTokenRequest>) -> Answer<()> {
        self.enter("DeleteToken", &request, &key(&request.get_ref().mutation))?;
        let name = request.into_inner().name;
        match fixtures::member_tokens().iter().any(|token| token.name == name) {
            true => Ok(Response::new(())),
            false => Err(Status::not_found(format!("{name} does not exist"))),
        }
    }

    async fn list_members(&self, request: Request<ListMembersRequest>) -> Answer<ListMembersResponse> {
        self.enter("ListMembers", &request, "")?;
        Ok(Response::new(ListMembersResponse {
            members: fixtures::members(),
            next_page_token: String::new(),
        }))
    }

    async fn set_member_role(&self, request: Request<SetMemberRoleRequest>) -> Answer<Member> {
        self.enter("SetMemberRole", &request, &key(&request.get_ref().mutation))?;
        let request = request.into_inner();
        let mut member = member(&request.name)?;
        member.role = request.role;
        Ok(Response::new(member))
    }

    async fn revoke_member(&self, request: Request<RevokeMemberRequest>) -> Answer<Member> {
        self.enter("RevokeMember", &request, &key(&request.get_ref().mutation))?;
        Ok(Response::new(member(&request.into_inner().name)?))
    }

    async fn delete_member(&self, request: Request<DeleteMemberRequest>) -> Answer<()> {
        self.enter("DeleteMember", &request, &key(&request.get_ref().mutation))?;
        member(&request.into_inner().name)?;
        Ok(Response::new(()))
    }

    async fn who_am_i(&self, request: Request<WhoAmIRequest>) -> Answer<WhoAmIResponse> {
        self.enter("WhoAmI", &request, "")?;
        let expire_time = Some(fixtures::ahead(7200 + 1800));
        Ok(Response::new(WhoAmIResponse {
            control_paused: false,
            member: "ann".to_owned(),
            role: Role::Operator as i32,
            expire_time,
            customer: String::new(),
        }))
    }
}

fn member(name: &str) -> Result<Member, Status> {
    let found = fixtures::members().into_iter().find(|member| member.name == name);
    found.ok_or_else(|| Status::not_found(format!("{name} does not exist")))
}

impl Service {
    fn issue(&self, csr_pem: &str, age: Duration, left: Duration) -> Answer<Credential> {
        let certificate = self.authority.client(csr_pem, "ann", age, left);
        Ok(Response::new(Credential {
            certificate_pem: certificate.ok_or_else(|| Status::invalid_argument("no CSR"))?,
            ca_certificate_pem: self.authority.pem.clone(),
            expire_time: Some(fixtures::ahead(left.as_secs() as i64)),
            member: "ann".to_owned(),
            role: Role::Operator as i32,
            customer: String::new(),
        }))
    }
}

#[tonic::async_trait]
impl OperationService for Service {
    async fn get_operation(&self, request: Request<GetOperationRequest>) -> Answer<Operation> {
        self.enter("GetOperation", &request, "")?;
        self.next_form(&request.into_inner().name)
    }

    async fn wait_operation(&self, request: Request<WaitOperationRequest>) -> Answer<Operation> {
        self.enter("WaitOperation", &request, "")?;
        tokio::time::sleep(Duration::from_millis(20)).await;
        self.next_form(&request.into_inner().name)
    }

    async fn list_operations(&self, request: Request<ListOperationsRequest>) -> Answer<ListOperationsResponse> {
        self.enter("ListOperations", &request, "")?;
        let filter = request.into_inner().filter;
        let state = self.state();
        let operations = state.operations.values().filter_map(VecDeque::front);
        let operations = operations
            .filter(|o| !filter.contains("done = false") || !o.done)
            .filter(|o| !filter.contains("result = failed") || o.error.is_some())
            .filter(|o| !filter.contains("target") || filter.contains(&format!("target = \"{}\"", o.target)));
        Ok(Response::new(ListOperationsResponse {
            operations: operations.cloned().collect(),
            ..Default::default()
        }))
    }

    async fn cancel_operation(&self, request: Request<CancelOperationRequest>) -> Answer<Operation> {
        self.enter("CancelOperation", &request, &key(&request.get_ref().mutation))?;
        let mut answer = self.next_form(&request.into_inner().name)?;
        answer.get_mut().cancel_requested = true;
        Ok(answer)
    }
}

impl Service {
    fn next_form(&self, name: &str) -> Answer<Operation> {
        let mut state = self.state();
        let forms = state
            .operations
            .get_mut(name)
            .ok_or_else(|| Status::not_found(format!("{name} is not known")))?;
        let form = if forms.len() > 1 {
            forms.pop_front()
        } else {
            forms.front().cloned()
        };
        Ok(Response::new(form.unwrap_or_default()))
    }
}

#[tonic::async_trait]
impl EventService for Service {
    type StreamEventsStream = Stream<Event>;

    async fn stream_events(&self, request: Request<StreamEventsRequest>) -> Answer<Self::StreamEventsStream> {
        self.enter("StreamEvents", &request, "")?;
        let request = request.into_inner();
        let mut state = self.state();
        let cut = state.event_cuts.pop_front();
        let mut events: Vec<_> = state
            .events
            .iter()
            .filter(|e| request.newest > 0 || e.position > request.after_position)
            .filter(|e| request.target.is_empty() || e.target == request.target)
            .filter(|e| request.kinds.is_empty() || request.kinds.contains(&e.kind))
            .filter(|e| e.severity >= request.min_severity)
            .collect();
        if request.newest > 0 {
            events.drain(..events.len().saturating_sub(request.newest as usize));
        }
        let events: Vec<_> = events
            .into_iter()
            .take(cut.unwrap_or(usize::MAX))
            .cloned()
            .map(Ok)
            .collect();
        let end = cut.map(|_| Err(Status::unavailable("the stream broke")));
        let last: Stream<Event> = match end {
            Some(error) => Box::pin(tokio_stream::once(error)),
            None if request.until_now => Box::pin(tokio_stream::empty()),
            None => Box::pin(tokio_stream::pending()),
        };
        use tokio_stream::StreamExt as _;
        Ok(Response::new(Box::pin(tokio_stream::iter(events).chain(last))))
    }
}

#[tonic::async_trait]
impl BootService for Service {
    async fn trace_boot(&self, request: Request<TraceBootRequest>) -> Answer<TraceBootResponse> {
        self.enter("TraceBoot", &request, "")?;
        let mac = request.into_inner().mac;
        let trace = self.state().traces.get(&mac).cloned();
        Ok(Response::new(trace.unwrap_or(TraceBootResponse {
            mac,
            ..Default::default()
        })))
    }

    async fn list_unknown_machines(
        &self,
        request: Request<ListUnknownMachinesRequest>,
    ) -> Answer<ListUnknownMachinesResponse> {
        self.enter("ListUnknownMachines", &request, "")?;
        // One machine per page: the client must read further pages.
        let number: usize = request.get_ref().page_token.parse().unwrap_or(0);
        let all = self.state().unknown.clone();
        Ok(Response::new(ListUnknownMachinesResponse {
            machines: all.get(number).into_iter().cloned().collect(),
            next_page_token: match number + 1 < all.len() {
                true => (number + 1).to_string(),
                false => String::new(),
            },
        }))
    }

    async fn get_counters(&self, request: Request<GetCountersRequest>) -> Answer<GetCountersResponse> {
        self.enter("GetCounters", &request, "")?;
        Ok(Response::new(GetCountersResponse {
            counters: self.state().counters.clone(),
        }))
    }
}
