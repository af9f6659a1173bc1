//! A control plane in this process that grants chunks: the real claim table behind the real call.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use rackwright_api::v1::agent_service_server::{AgentService, AgentServiceServer};
use rackwright_api::v1::chunk_message::Message as Up;
use rackwright_api::v1::grant_message::Message as Down;
use rackwright_api::v1::{
    AgentMessage, BeginChunks, ChunkGrant, ChunkMessage, ControlMessage, GrantMessage, PeerAgent, RegisterRequest,
    RegisterResponse,
};
use rackwright_fanout::{AgentNo, Bits, Chunk, ClaimTable, Moment, Outside, RackNo, Span, TableSettings};
use rackwright_identity::{ClientIdentity, ClientKind, identify};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tonic::transport::{Certificate, Identity, Server, ServerTlsConfig};
use tonic::{Request, Response, Status, Streaming};

use crate::site::Site;

type Sender = mpsc::Sender<Result<GrantMessage, Status>>;

/// A wrong agent, as reported: who says so, of whom, and why.
pub type Report = (String, String, String);

struct Agent {
    identity: ClientIdentity,
    at: SocketAddr,
    sender: Sender,
    stream: u64,
}

struct State {
    table: ClaimTable,
    chunks: u32,
    begun: Instant,
    agents: Vec<Agent>,
    numbers: HashMap<String, usize>,
    streams: u64,
    begins: Vec<(String, BeginChunks)>,
    reports: Vec<Report>,
    /// Claims of agents that want nothing and hold every chunk.
    idle_claims: u32,
    refusal: Option<Status>,
}

/// The control plane.
pub struct Plane {
    pub url: String,
    state: Arc<Mutex<State>>,
    tasks: [JoinHandle<()>; 2],
}

impl Drop for Plane {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

fn new_table(chunks: u32) -> ClaimTable {
    let settings = TableSettings {
        // A busy computer is slow, and a lease that ends early costs a second copy.
        expected: Span::seconds(20),
        ..TableSettings::default()
    };
    ClaimTable::new(chunks, settings, 1)
}

/// Nodes with `left` in their names are one rack, all others another.
fn rack(identity: &ClientIdentity) -> RackNo {
    RackNo(u32::from(identity.common_name.contains("left")))
}

impl State {
    fn now(&self) -> Moment {
        Moment::micros(u64::try_from(self.begun.elapsed().as_micros()).unwrap())
    }

    fn named(&self, number: usize) -> PeerAgent {
        let Agent { identity, at, .. } = &self.agents[number];
        let ClientKind::Agent { claim_generation, boot } = &identity.kind else {
            panic!("{identity} is no agent")
        };
        PeerAgent {
            node: format!("nodes/{}", identity.common_name),
            claim_generation: *claim_generation,
            boot: boot.clone(),
            address: at.to_string(),
        }
    }

    fn send(&self, to: usize, message: Down) {
        let message = GrantMessage { message: Some(message) };
        let _ = self.agents[to].sender.try_send(Ok(message));
    }

    fn begin(&mut self, identity: ClientIdentity, from: SocketAddr, begin: BeginChunks, sender: Sender) -> usize {
        let at = SocketAddr::new(from.ip(), begin.port.try_into().unwrap());
        self.streams += 1;
        let node = identity.common_name.clone();
        let agent = Agent {
            identity,
            at,
            sender,
            stream: self.streams,
        };
        let number = *self.numbers.entry(node.clone()).or_insert(self.agents.len());
        if number == self.agents.len() {
            self.agents.push(agent);
        } else {
            self.agents[number] = agent;
        }
        let held = Bits::from_bytes(self.chunks, &begin.held).unwrap();
        let fetching: Vec<Chunk> = begin.fetching.iter().map(|chunk| Chunk(*chunk)).collect();
        self.begins.push((node, begin));
        let (now, rack) = (self.now(), rack(&self.agents[number].identity));
        let mates = self
            .table
            .join(number_of(number), rack, &held, &fetching, now)
            .unwrap()
            .to_vec();
        for mate in mates
            .into_iter()
            .map(|mate| mate.0 as usize)
            .filter(|mate| *mate != number)
        {
            self.send(number, Down::Mate(self.named(mate)));
            self.send(mate, Down::Mate(self.named(number)));
        }
        number
    }

    fn message(&mut self, number: usize, message: Up) {
        let (now, agent) = (self.now(), number_of(number));
        let held = |bytes: &[u8]| Bits::from_bytes(self.chunks, bytes).unwrap();
        match message {
            Up::Begin(_) => panic!("a second begin"),
            Up::Claim(claim) => {
                let stuck: Vec<Chunk> = claim.stuck.iter().map(|chunk| Chunk(*chunk)).collect();
                let held = held(&claim.held);
                self.idle_claims += u32::from(claim.wanted == 0 && held.is_full());
                self.table.claim(agent, claim.wanted, &held, &stuck, now);
            }
            Up::Came(came) => {
                let held = held(&came.held);
                self.table.done(agent, Chunk(came.chunk), &held, now);
            }
            Up::Failed(chunk) => self.table.failed(agent, Chunk(chunk)),
            Up::Unreachable(node) => {
                let other = self.number(&node);
                self.table.away(agent, other);
            }
            Up::Wrong(wrong) => {
                let reporter = self.agents[number].identity.common_name.clone();
                let other = self.number(&wrong.node);
                self.reports.push((reporter, wrong.node, wrong.reason));
                self.table.lied(agent, other, now);
            }
            Up::IsAlone(is_alone) => {
                assert!(is_alone);
                self.table.alone(agent);
            }
        }
        self.grants();
    }

    fn number(&self, node: &str) -> AgentNo {
        number_of(self.numbers[node.strip_prefix("nodes/").unwrap()])
    }

    fn grants(&mut self) {
        let now = self.now();
        self.table.expire(now);
        for grant in self.table.grants(now) {
            let source = match grant.from {
                Outside::Origin => None,
                Outside::Agent(number) => Some(self.named(number.0 as usize)),
            };
            let lease_ms = grant.lease.since(now).as_micros() / 1000;
            let granted = ChunkGrant {
                chunk: grant.chunk.0,
                source,
                lease_ms: lease_ms.try_into().unwrap(),
            };
            self.send(grant.agent.0 as usize, Down::Grant(granted));
        }
    }

    fn ended(&mut self, number: usize, stream: u64) {
        if self.agents[number].stream == stream {
            self.table.lost(number_of(number));
            self.grants();
        }
    }
}

fn number_of(number: usize) -> AgentNo {
    AgentNo(number.try_into().unwrap())
}

impl Plane {
    /// Begins to serve on 127.0.0.1.
    pub async fn start(site: &Site, chunks: u32) -> Self {
        let state = Arc::new(Mutex::new(State {
            table: new_table(chunks),
            chunks,
            begun: Instant::now(),
            agents: Vec::new(),
            numbers: HashMap::new(),
            streams: 0,
            begins: Vec::new(),
            reports: Vec::new(),
            idle_claims: 0,
            refusal: None,
        }));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://{}", listener.local_addr().unwrap());
        let (certificate, key) = site.server_pem();
        let tls = ServerTlsConfig::new()
            .identity(Identity::from_pem(certificate, key))
            .client_ca_root(Certificate::from_pem(&site.ca_pem));
        let service = AgentServiceServer::new(Service(state.clone()));
        let router = Server::builder().tls_config(tls).unwrap().add_service(service);
        let serving = async move {
            router
                .serve_with_incoming(TcpListenerStream::new(listener))
                .await
                .unwrap();
        };
        let expiring = state.clone();
        let expire = async move {
            // Leases end without a message.
            loop {
                tokio::time::sleep(Duration::from_millis(50)).await;
                expiring.lock().unwrap().grants();
            }
        };
        Self {
            url,
            state,
            tasks: [tokio::spawn(serving), tokio::spawn(expire)],
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// Refuses all further streams, and ends the open ones with the same status.
    pub fn refuse(&self, status: &Status) {
        let mut state = self.state();
        state.refusal = Some(status.clone());
        for agent in &mut state.agents {
            let _ = agent.sender.try_send(Err(status.clone()));
        }
    }

    /// Claims so far of agents that want nothing and hold every chunk.
    pub fn idle_claims(&self) -> u32 {
        self.state().idle_claims
    }

    /// Loses the table and all streams, as a restart does.
    pub fn restart(&self) {
        let mut state = self.state();
        state.table = new_table(state.chunks);
        for agent in &mut state.agents {
            agent.stream = 0;
            let _ = agent
                .sender
                .try_send(Err(Status::unavailable("the control plane restarts")));
            // The stream ends with its sender.
            agent.sender = mpsc::channel(1).0;
        }
    }

    pub fn reports(&self) -> Vec<Report> {
        self.state().reports.clone()
    }

    pub fn begins(&self) -> Vec<(String, BeginChunks)> {
        self.state().begins.clone()
    }

    /// Chunks that the table has let the image servers give.
    pub fn origin_chunks(&self) -> u64 {
        self.state().table.origin().chunks
    }
}

struct Service(Arc<Mutex<State>>);

#[tonic::async_trait]
impl AgentService for Service {
    async fn register(&self, _: Request<RegisterRequest>) -> Result<Response<RegisterResponse>, Status> {
        Err(Status::unimplemented("not in this test"))
    }

    type ConnectStream = Pin<Box<ReceiverStream<Result<ControlMessage, Status>>>>;

    async fn connect(&self, _: Request<Streaming<AgentMessage>>) -> Result<Response<Self::ConnectStream>, Status> {
        Err(Status::unimplemented("not in this test"))
    }

    type ClaimChunksStream = Pin<Box<ReceiverStream<Result<GrantMessage, Status>>>>;

    async fn claim_chunks(
        &self,
        request: Request<Streaming<ChunkMessage>>,
    ) -> Result<Response<Self::ClaimChunksStream>, Status> {
        let identity = identify(&request.peer_certs().unwrap()[0]).unwrap();
        let from = request.remote_addr().unwrap();
        let state = self.0.clone();
        if let Some(status) = &state.lock().unwrap().refusal {
            return Err(status.clone());
        }
        let mut messages = request.into_inner();
        let (sender, queue) = mpsc::channel(1024);
        tokio::spawn(async move {
            let first = messages.message().await.ok().flatten().and_then(|first| first.message);
            let Some(Up::Begin(begin)) = first else { return };
            let (number, stream) = {
                let mut state = state.lock().unwrap();
                let number = state.begin(identity, from, begin, sender);
                (number, state.streams)
            };
            while let Ok(Some(message)) = messages.message().await {
                let mut state = state.lock().unwrap();
                if state.agents[number].stream == stream {
                    state.message(number, message.message.unwrap());
                }
            }
            state.lock().unwrap().ended(number, stream);
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(queue))))
    }
}
