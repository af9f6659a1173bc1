//! A control plane in this process that grants chunks: the real claim table behind the real call. The tests of
//! `crates/agent` use this file, too.

// Each of the two users needs a part.
#![allow(dead_code)]

use std::collections::HashMap;
use std::io;
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
use rackwright_fanout::{AgentNo, Bits, Chunk, ClaimTable, Moment, Outside, RackNo, TableSettings};
use rackwright_identity::{ClientIdentity, ClientKind, identify};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tonic::transport::{Certificate, Identity, Server, ServerTlsConfig};
use tonic::{Request, Response, Status, Streaming};

use super::keys::Pem;

type Sender = mpsc::Sender<Result<GrantMessage, Status>>;

/// A wrong agent, as reported: who says so, of whom, and why.
pub type Report = (String, String, String);

/// How a control plane serves.
pub struct PlaneSettings {
    pub ca_pem: String,
    /// Its certificate, for the address of its listener.
    pub server: Pem,
    /// Chunks of the image with data.
    pub chunks: u32,
    pub table: TableSettings,
    /// The rack of a node, by the node's name.
    pub rack: fn(&str) -> u32,
}

struct Agent {
    identity: ClientIdentity,
    at: SocketAddr,
    sender: Sender,
    stream: u64,
}

struct State {
    table: ClaimTable,
    settings: TableSettings,
    rack: fn(&str) -> u32,
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

impl State {
    fn now(&self) -> Moment {
        Moment::micros(u64::try_from(self.begun.elapsed().as_micros()).unwrap_or(u64::MAX))
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
        let at = SocketAddr::new(from.ip(), begin.port.try_into().expect("a port"));
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
        let held = Bits::from_bytes(self.chunks, &begin.held).expect("a set of the image's chunks");
        let fetching: Vec<Chunk> = begin.fetching.iter().map(|chunk| Chunk(*chunk)).collect();
        self.begins.push((node, begin));
        let (now, rack) = (
            self.now(),
            RackNo((self.rack)(&self.agents[number].identity.common_name)),
        );
        let joined = self.table.join(number_of(number), rack, &held, &fetching, now);
        let mates = joined.expect("a place in the table").to_vec();
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
        let held = |bytes: &[u8]| Bits::from_bytes(self.chunks, bytes).expect("a set of the image's chunks");
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
        let known = node.strip_prefix("nodes/").and_then(|node| self.numbers.get(node));
        number_of(*known.expect("a node that was named"))
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
                lease_ms: lease_ms.try_into().unwrap_or(u32::MAX),
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
    AgentNo(number.try_into().expect("few agents"))
}

impl Plane {
    /// Begins to serve.
    pub fn start(listener: TcpListener, settings: PlaneSettings) -> io::Result<Self> {
        let PlaneSettings {
            ca_pem,
            server,
            chunks,
            table,
            rack,
        } = settings;
        let state = Arc::new(Mutex::new(State {
            table: ClaimTable::new(chunks, table.clone(), 1),
            settings: table,
            rack,
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
        let url = format!("https://{}", listener.local_addr()?);
        let tls = ServerTlsConfig::new()
            .identity(Identity::from_pem(server.certificate, server.key))
            .client_ca_root(Certificate::from_pem(ca_pem));
        let service = AgentServiceServer::new(Service(state.clone()));
        let mut builder = Server::builder().tls_config(tls).map_err(io::Error::other)?;
        let router = builder.add_service(service);
        let serving = async move {
            let served = router.serve_with_incoming(TcpListenerStream::new(listener)).await;
            served.expect("the control plane serves");
        };
        let expiring = state.clone();
        let expire = async move {
            // Leases end without a message.
            loop {
                tokio::time::sleep(Duration::from_millis(50)).await;
                lock(&expiring).grants();
            }
        };
        Ok(Self {
            url,
            state,
            tasks: [tokio::spawn(serving), tokio::spawn(expire)],
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
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
        state.table = ClaimTable::new(state.chunks, state.settings.clone(), 1);
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

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().expect("no message broke the table")
}

struct Service(Arc<Mutex<State>>);

#[tonic::async_trait]
impl AgentService for Service {
    async fn register(&self, _: Request<RegisterRequest>) -> Result<Response<RegisterResponse>, Status> {
        Err(Status::unimplemented("not here"))
    }

    type ConnectStream = Pin<Box<ReceiverStream<Result<ControlMessage, Status>>>>;

    async fn connect(&self, _: Request<Streaming<AgentMessage>>) -> Result<Response<Self::ConnectStream>, Status> {
        Err(Status::unimplemented("not here"))
    }

    type ClaimChunksStream = Pin<Box<ReceiverStream<Result<GrantMessage, Status>>>>;

    async fn claim_chunks(
        &self,
        request: Request<Streaming<ChunkMessage>>,
    ) -> Result<Response<Self::ClaimChunksStream>, Status> {
        let certificates = request.peer_certs();
        let leaf = certificates.as_ref().and_then(|all| all.first());
        let identity = leaf.and_then(|leaf| identify(leaf).ok());
        let (Some(identity), Some(from)) = (identity, request.remote_addr()) else {
            return Err(Status::unauthenticated("no certificate of an agent"));
        };
        let state = self.0.clone();
        if let Some(status) = &lock(&state).refusal {
            return Err(status.clone());
        }
        let mut messages = request.into_inner();
        let (sender, queue) = mpsc::channel(1024);
        tokio::spawn(async move {
            let first = messages.message().await.ok().flatten().and_then(|first| first.message);
            let Some(Up::Begin(begin)) = first else { return };
            let (number, stream) = {
                let mut state = lock(&state);
                let number = state.begin(identity, from, begin, sender);
                (number, state.streams)
            };
            while let Ok(Some(message)) = messages.message().await {
                let mut state = lock(&state);
                if state.agents[number].stream == stream
                    && let Some(message) = message.message
                {
                    state.message(number, message);
                }
            }
            lock(&state).ended(number, stream);
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(queue))))
    }
}
