//! Asks other agents for chunks.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rackwright_fanout::{Bits, Chunk};
use rackwright_identity::{ClientIdentity, ClientTrust, PEER_PROTOCOL, ServerCertificate, peer_client_config};
use rustls_pki_types::ServerName;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::frame::{FrameCheck, FrameError, VerifiedFrame};
use crate::store::FrameStore;
use crate::ticket::{SignedTicket, TicketRefusal};
use crate::wire::{AnswerKind, Hello, Reply, Request, Welcome, WireError};

/// Limits of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientSettings {
    /// Longest time to a connection that is ready for requests: TCP, TLS and ticket.
    pub connect: Duration,
    /// Connections to one agent of the rack that are kept for its next request.
    pub kept: usize,
    /// Connections to all agents of other racks that are kept. The oldest one is closed for a new one.
    pub kept_outside: usize,
}

impl Default for ClientSettings {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(2),
            kept: 2,
            kept_outside: 8,
        }
    }
}

/// An agent to ask, as the control plane named it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerAddress {
    /// The address at which it serves.
    pub at: SocketAddr,
    /// The identity in its certificate: node, claim generation and boot. No other agent is asked.
    pub agent: ClientIdentity,
    /// Whether the asking agent is of another rack.
    pub is_outside: bool,
}

/// The agent's own state, sent with each answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holdings {
    /// The chunks that it holds.
    pub held: Bits,
    /// Number of requests that wait at the agent.
    pub load: u8,
}

/// The answer to a request for a chunk.
#[derive(Debug)]
pub enum Answer {
    /// A frame came. [`PeerClient::open`] compares its content.
    Frame(UncheckedFrame, Holdings),
    /// The agent does not hold the chunk.
    NotHeld(Holdings),
    /// The agent has no room for the request now.
    Busy(Holdings),
}

/// A frame as it came. Its bytes can be used after [`PeerClient::open`] only.
pub struct UncheckedFrame {
    from: PeerAddress,
    chunk: Chunk,
    bytes: Vec<u8>,
}

impl UncheckedFrame {
    /// Which chunk was asked for.
    #[must_use]
    pub fn chunk(&self) -> Chunk {
        self.chunk
    }

    /// Number of its bytes.
    pub(crate) fn len(&self) -> u64 {
        self.bytes.len() as u64
    }
}

impl fmt::Debug for UncheckedFrame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UncheckedFrame")
            .field("from", &self.from)
            .field("chunk", &self.chunk)
            .field("bytes", &self.bytes.len())
            .finish()
    }
}

/// An agent that sent what is wrong. Nothing more is asked from it in this job.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{agent} at {at} sent what is wrong, and is not asked again in this job: {reason}")]
pub struct WrongBytes {
    pub agent: ClientIdentity,
    /// Its address.
    pub at: SocketAddr,
    /// What is wrong with the bytes that it sent.
    pub reason: String,
}

/// Why an agent gave no chunk.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// No connection, or it broke. Other agents may have the chunk.
    #[error("{agent} at {at} cannot be reached: {reason}")]
    Unreachable {
        agent: ClientIdentity,
        /// Its address.
        at: SocketAddr,
        /// Why.
        reason: String,
    },
    /// The answer was not complete at the deadline.
    #[error("{agent} at {at} did not answer in time")]
    Late {
        agent: ClientIdentity,
        /// Its address.
        at: SocketAddr,
    },
    /// The agent does not accept the ticket.
    #[error("{agent} refuses: {reason}")]
    Refused {
        agent: ClientIdentity,
        /// Why.
        reason: TicketRefusal,
    },
    /// The agent has no room for another connection.
    #[error("{0} has no room for another connection")]
    Full(ClientIdentity),
    /// The agent sent wrong bytes. The caller reports the agent with this error, which is returned once for each agent.
    #[error(transparent)]
    WrongBytes(#[from] WrongBytes),
    /// The agent sent wrong bytes before, and gets no request.
    #[error("{0} lied before in this job")]
    Banned(ClientIdentity),
    /// The caller's buffer does not fit, or the image has no such chunk.
    #[error(transparent)]
    Frame(FrameError),
}

/// Asks agents that write the same image, for the time of one job.
pub struct PeerClient {
    own: Arc<ServerCertificate>,
    trust: Arc<ClientTrust>,
    store: Arc<FrameStore>,
    settings: ClientSettings,
    state: Mutex<State>,
}

struct State {
    ticket: SignedTicket,
    /// Connections to agents of the rack without a request.
    kept: HashMap<ClientIdentity, Vec<TlsStream<TcpStream>>>,
    /// The same to agents of other racks, the oldest one first.
    outside: VecDeque<(ClientIdentity, TlsStream<TcpStream>)>,
    banned: HashSet<ClientIdentity>,
}

impl State {
    /// A kept connection to this agent: the newest one.
    fn take(&mut self, agent: &ClientIdentity) -> Option<TlsStream<TcpStream>> {
        if let Some(stream) = self.kept.get_mut(agent).and_then(Vec::pop) {
            return Some(stream);
        }
        let at = self.outside.iter().rposition(|(other, _)| other == agent)?;
        self.outside.remove(at).map(|(_, stream)| stream)
    }
}

/// Why an exchange on a connection failed.
enum Failure {
    /// The connection ended before the first byte of the answer.
    Closed(std::io::Error),
    Wire(WireError),
}

impl PeerClient {
    /// A client. `own` is presented to other agents, `trust` has the authorities of their certificates. `store` is what this
    /// agent holds: others learn it when this agent looks.
    #[must_use]
    pub fn new(
        own: Arc<ServerCertificate>,
        trust: Arc<ClientTrust>,
        ticket: SignedTicket,
        store: Arc<FrameStore>,
        settings: ClientSettings,
    ) -> Self {
        let state = State {
            ticket,
            kept: HashMap::new(),
            outside: VecDeque::new(),
            banned: HashSet::new(),
        };
        Self {
            own,
            trust,
            store,
            settings,
            state: Mutex::new(state),
        }
    }

    /// Shows this ticket on connections from now on.
    pub fn replace_ticket(&self, ticket: SignedTicket) {
        let mut state = self.state();
        state.ticket = ticket;
        // Kept connections would end with the former ticket.
        state.kept.clear();
        state.outside.clear();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the agent has sent wrong bytes in this job.
    #[must_use]
    pub fn is_banned(&self, agent: &ClientIdentity) -> bool {
        self.state().banned.contains(agent)
    }

    /// Asks for a chunk. At the deadline the request is given up and its connection closed, also if the future is dropped.
    ///
    /// # Errors
    /// [`AskError`]
    pub async fn ask(&self, peer: &PeerAddress, chunk: Chunk, deadline: Instant) -> Result<Answer, AskError> {
        let reply = self.exchange(peer, &Request::Chunk(chunk), deadline).await?;
        let Reply {
            kind,
            load,
            held,
            frame,
        } = reply;
        let holdings = Holdings { held, load };
        match (kind, frame) {
            (AnswerKind::Frame, Some(bytes)) => {
                let from = peer.clone();
                Ok(Answer::Frame(UncheckedFrame { from, chunk, bytes }, holdings))
            }
            (AnswerKind::NotHeld, None) => Ok(Answer::NotHeld(holdings)),
            (AnswerKind::Busy, None) => Ok(Answer::Busy(holdings)),
            (kind, _) => Err(self.lied(peer, format!("the answer {kind:?} to a request for a chunk"))),
        }
    }

    /// Asks what the agent holds, and tells it what this agent holds and how many requests wait here.
    ///
    /// # Errors
    /// [`AskError`]
    pub async fn look(&self, peer: &PeerAddress, load: u8, deadline: Instant) -> Result<Holdings, AskError> {
        let request = Request::Look(self.store.held(), load);
        let Reply { kind, load, held, .. } = self.exchange(peer, &request, deadline).await?;
        match kind {
            AnswerKind::Holdings => Ok(Holdings { held, load }),
            kind => Err(self.lied(peer, format!("the answer {kind:?} to a look"))),
        }
    }

    /// Fills `data` with the chunk of a frame, after its declared size, its content and its digest were compared with the
    /// image's index. Takes a few milliseconds of CPU time, so it is not for a thread of the async runtime.
    ///
    /// # Errors
    /// [`AskError::WrongBytes`] or [`AskError::Banned`] if the frame is wrong; [`AskError::Frame`] if `data` has another length
    /// than the chunk.
    pub fn open(
        &self,
        check: &mut FrameCheck,
        frame: UncheckedFrame,
        data: &mut [u8],
    ) -> Result<VerifiedFrame, AskError> {
        let UncheckedFrame { from, chunk, bytes } = frame;
        check.open(chunk, bytes, data).map_err(|error| match error {
            wrong @ FrameError::Wrong { .. } => self.lied(&from, wrong.to_string()),
            other => AskError::Frame(other),
        })
    }

    /// Records that the agent sent wrong bytes. Only the first call for an agent returns [`AskError::WrongBytes`].
    fn lied(&self, peer: &PeerAddress, reason: String) -> AskError {
        let mut state = self.state();
        state.kept.remove(&peer.agent);
        state.outside.retain(|(agent, _)| *agent != peer.agent);
        if !state.banned.insert(peer.agent.clone()) {
            return AskError::Banned(peer.agent.clone());
        }
        let lie = WrongBytes {
            agent: peer.agent.clone(),
            at: peer.at,
            reason,
        };
        tracing::warn!(agent = %lie.agent, at = %lie.at, reason = lie.reason, "another agent sent what is wrong");
        lie.into()
    }

    async fn exchange(&self, peer: &PeerAddress, request: &Request, deadline: Instant) -> Result<Reply, AskError> {
        match timeout_at(deadline, self.exchange_within(peer, request)).await {
            Ok(reply) => reply,
            Err(_) => Err(AskError::Late {
                agent: peer.agent.clone(),
                at: peer.at,
            }),
        }
    }

    async fn exchange_within(&self, peer: &PeerAddress, request: &Request) -> Result<Reply, AskError> {
        loop {
            let kept = {
                let mut state = self.state();
                if state.banned.contains(&peer.agent) {
                    return Err(AskError::Banned(peer.agent.clone()));
                }
                state.take(&peer.agent)
            };
            let is_kept = kept.is_some();
            let mut stream = match kept {
                Some(stream) => stream,
                None => self.connect(peer).await?,
            };
            match self.on_connection(&mut stream, request).await {
                // The other agent closes connections that were idle for long: the next one is a new one.
                Err(Failure::Closed(_)) if is_kept => {}
                Err(Failure::Closed(error)) => return Err(unreachable(peer, error)),
                Err(Failure::Wire(error)) => return Err(self.wire(peer, error)),
                Ok(Reply {
                    kind: AnswerKind::Ended,
                    ..
                }) => {
                    let reason = TicketRefusal::Refused(rackwright_fanout::Refusal::Ended);
                    let agent = peer.agent.clone();
                    return Err(AskError::Refused { agent, reason });
                }
                Ok(reply) => {
                    self.keep(peer, stream);
                    return Ok(reply);
                }
            }
        }
    }

    async fn on_connection(&self, stream: &mut TlsStream<TcpStream>, request: &Request) -> Result<Reply, Failure> {
        let sent = async {
            stream.write_all(&request.encode()).await?;
            stream.flush().await?;
            let mut first = [0];
            tokio::io::AsyncReadExt::read_exact(stream, &mut first).await?;
            Ok(first)
        };
        let first = sent.await.map_err(Failure::Closed)?;
        let mut answer = tokio::io::AsyncReadExt::chain(&first[..], stream);
        let reply = Reply::read(&mut answer, self.store.chunks()).await;
        reply.map_err(Failure::Wire)
    }

    fn keep(&self, peer: &PeerAddress, stream: TlsStream<TcpStream>) {
        let mut state = self.state();
        if state.banned.contains(&peer.agent) {
            return;
        }
        if peer.is_outside {
            state.outside.push_back((peer.agent.clone(), stream));
            while state.outside.len() > self.settings.kept_outside {
                state.outside.pop_front();
            }
            return;
        }
        let kept = state.kept.entry(peer.agent.clone()).or_default();
        if kept.len() < self.settings.kept {
            kept.push(stream);
        }
    }

    async fn connect(&self, peer: &PeerAddress) -> Result<TlsStream<TcpStream>, AskError> {
        match timeout(self.settings.connect, self.connect_within(peer)).await {
            Ok(connected) => connected,
            Err(_) => Err(unreachable(peer, "no connection in time")),
        }
    }

    async fn connect_within(&self, peer: &PeerAddress) -> Result<TlsStream<TcpStream>, AskError> {
        let failed = |error: std::io::Error| unreachable(peer, error);
        let config = peer_client_config(self.own.clone(), self.trust.clone(), peer.agent.clone());
        let config = config.map_err(|error| unreachable(peer, error))?;
        let stream = TcpStream::connect(peer.at).await.map_err(failed)?;
        stream.set_nodelay(true).map_err(failed)?;
        let name = ServerName::from(peer.at.ip());
        let mut stream = TlsConnector::from(config).connect(name, stream).await.map_err(failed)?;
        if stream.get_ref().1.alpn_protocol() != Some(PEER_PROTOCOL) {
            return Err(unreachable(peer, "it serves another protocol"));
        }
        let hello = Hello {
            ticket: self.state().ticket.clone(),
            is_outside: peer.is_outside,
        };
        stream.write_all(&hello.encode()).await.map_err(failed)?;
        stream.flush().await.map_err(failed)?;
        match Welcome::read(&mut stream).await {
            Ok(Welcome::Yes) => Ok(stream),
            Ok(Welcome::Refused(reason)) => {
                let agent = peer.agent.clone();
                Err(AskError::Refused { agent, reason })
            }
            Ok(Welcome::Full) => Err(AskError::Full(peer.agent.clone())),
            Err(error) => Err(self.wire(peer, error)),
        }
    }

    fn wire(&self, peer: &PeerAddress, error: WireError) -> AskError {
        match error {
            WireError::Io(error) => unreachable(peer, error),
            WireError::Protocol(reason) => self.lied(peer, reason),
        }
    }
}

fn unreachable(peer: &PeerAddress, reason: impl fmt::Display) -> AskError {
    AskError::Unreachable {
        agent: peer.agent.clone(),
        at: peer.at,
        reason: reason.to_string(),
    }
}
