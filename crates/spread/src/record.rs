//! The record of one image version: its claim table, and the agents behind the table's numbers. No task and no clock; the
//! caller passes the time, and delivers nothing: the record puts messages into the agents' queues.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use rackwright_api::v1;
use rackwright_api::v1::grant_message::Message as Down;
use rackwright_fanout::{AgentNo, Bits, Chunk, ClaimTable, Grant, Moment, OriginCounts, Outside, RackNo, Span};
use rackwright_lifecycle::{NodeId, Timestamp};
use rackwright_store::AgentSession;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tonic::Status;

use super::message::{Beginning, Message};

/// Messages to one agent that may wait to be sent. A rack has at most 48 agents, and an agent few grants at once.
pub const QUEUE: usize = 128;
/// How long an agent without a stream stays in the record. It may connect again, and go on.
const GRACE: Span = Span::seconds(10);
/// Time until the record looks again for racks that wait, before the first grant has shown how long a lease is.
const FIRST_LEASE: Span = Span::seconds(4);
/// A lease ends after its last moment.
const MOMENT: Span = Span::millis(1);

/// A message to an agent, or the reason why its stream ends.
pub type ToAgent = Result<v1::GrantMessage, Status>;

/// An agent that writes the image, as its certificate, its job and its connection show.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Writer {
    pub node: NodeId,
    /// The claim generation and the boot in its certificate.
    pub of: AgentSession,
    /// Its job.
    pub operation: String,
    /// Where it serves other agents.
    pub address: SocketAddr,
    /// The name of its rack; empty: not known.
    pub rack: String,
}

/// The control plane's end of an agent's stream.
#[derive(Debug)]
pub struct Stream {
    /// Queue of messages to the agent.
    pub sender: mpsc::Sender<ToAgent>,
    /// Ends the stream: a newer one of the node has replaced it, or the agent does not read.
    pub end: CancellationToken,
}

/// A place in the record: the agent's number, and the number of its stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    agent: AgentNo,
    stream: u64,
}

#[derive(Debug)]
struct Agent {
    writer: Writer,
    stream: u64,
    /// `None`: the stream has ended, and a new one may come until `until`.
    open: Option<Stream>,
    until: Moment,
    since: Timestamp,
    held: Bits,
    /// Chunks that it still asks for.
    wanted: u32,
    is_alone: bool,
    /// It was reported as a sender of wrong bytes in this job.
    is_reported: bool,
    /// The agents that were named to this one.
    named: BTreeSet<AgentNo>,
}

/// A report of one agent about another one. Only the first report about a job becomes an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WrongBytes {
    /// The agent that got them.
    pub reporter: NodeId,
    /// The agent that sent them.
    pub sender: NodeId,
    /// The sender's job.
    pub operation: String,
    /// What was wrong, in the reporter's words.
    pub reason: String,
    /// The first report about this job of the sender.
    pub is_first: bool,
}

/// One agent, for operators.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentReport {
    pub node: NodeId,
    /// Chunks that it holds for others; if it is alone, chunks that it has taken.
    pub held: u32,
    /// Chunks that it fetches from outside its rack now.
    pub grants: u32,
    /// It reaches no other agent, or serves none.
    pub is_alone: bool,
    /// When its first stream for this job began.
    pub since: Timestamp,
}

/// One rack, for operators.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RackReport {
    /// Its name; empty: agents without a known rack.
    pub name: String,
    /// Chunks that its agents hold for others, each counted once.
    pub held: u32,
    /// Its agents, by node.
    pub agents: Vec<AgentReport>,
}

/// The spread of one image version, for operators.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpreadReport {
    /// Number of chunks with data.
    pub chunks: u32,
    /// Chunks from the image servers since the first agent of the present ones began.
    pub origin: OriginCounts,
    /// The racks with agents, by name.
    pub racks: Vec<RackReport>,
}

/// A node's own place, for operators.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnReport {
    /// Other agents of its rack.
    pub mates: usize,
    /// Chunks that it holds for others, or has taken if it is alone.
    pub held: u32,
    /// Number of chunks with data.
    pub chunks: u32,
    /// It reaches no other agent, or serves none.
    pub is_alone: bool,
}

/// The claim table of one image version, and the agents behind its numbers.
#[derive(Debug)]
pub struct Record {
    chunks: u32,
    table: ClaimTable,
    /// By name, the number of each rack.
    racks: BTreeMap<String, RackNo>,
    /// The number of each node. A node that returns gets its number again, so that the table stays as small as the site.
    numbers: BTreeMap<NodeId, AgentNo>,
    agents: BTreeMap<AgentNo, Agent>,
    /// Agents that wait for grants.
    waiting: BTreeSet<AgentNo>,
    /// Agents whose stream broke; they may return for a short time.
    leaving: BTreeSet<AgentNo>,
    /// The grants that run, with the end of the lease.
    grants: BTreeMap<(AgentNo, Chunk), Moment>,
    /// The length of the newest lease.
    lease: Span,
    streams: u64,
}

/// The table takes no more agents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the claim table of this image is full")]
pub struct Full;

fn outgoing(message: Down) -> ToAgent {
    Ok(v1::GrantMessage { message: Some(message) })
}

impl Agent {
    fn peer(&self) -> v1::PeerAgent {
        v1::PeerAgent {
            node: format!("nodes/{}", self.writer.node),
            claim_generation: self.writer.of.generation,
            boot: self.writer.of.boot.clone(),
            address: self.writer.address.to_string(),
        }
    }

    /// Puts a message into the queue. An agent that does not read its messages loses its stream.
    fn send(&mut self, message: Down) -> bool {
        let Some(stream) = &self.open else {
            return false;
        };
        let is_sent = stream.sender.try_send(outgoing(message)).is_ok();
        if !is_sent {
            stream.end.cancel();
        }
        is_sent
    }
}

impl Record {
    /// The record of an image version with this number of chunks with data.
    pub fn new(chunks: u32, table: ClaimTable) -> Self {
        Self {
            chunks,
            table,
            racks: BTreeMap::new(),
            numbers: BTreeMap::new(),
            agents: BTreeMap::new(),
            waiting: BTreeSet::new(),
            leaving: BTreeSet::new(),
            grants: BTreeMap::new(),
            lease: FIRST_LEASE,
            streams: 0,
        }
    }

    /// Number of agents.
    pub fn len(&self) -> usize {
        self.agents.len()
    }

    /// Whether no agent is left.
    pub fn is_empty(&self) -> bool {
        self.agents.is_empty()
    }

    fn number(&mut self, node: &NodeId) -> Result<AgentNo, Full> {
        if let Some(number) = self.numbers.get(node) {
            return Ok(*number);
        }
        let number = AgentNo(u32::try_from(self.numbers.len()).map_err(|_| Full)?);
        self.numbers.insert(node.clone(), number);
        Ok(number)
    }

    fn rack(&mut self, name: &str) -> Result<RackNo, Full> {
        if let Some(number) = self.racks.get(name) {
            return Ok(*number);
        }
        let number = RackNo(u32::try_from(self.racks.len()).map_err(|_| Full)?);
        self.racks.insert(name.to_owned(), number);
        Ok(number)
    }

    /// An agent begins a stream. A former stream of its node ends.
    ///
    /// # Errors
    /// [`Full`]
    pub fn begin(
        &mut self,
        writer: Writer,
        beginning: Beginning,
        stream: Stream,
        (now, at): (Moment, Timestamp),
    ) -> Result<Place, Full> {
        let (agent, rack) = (self.number(&writer.node)?, self.rack(&writer.rack)?);
        let Beginning { held, fetching, .. } = beginning;
        let former = self.agents.remove(&agent);
        self.leaving.remove(&agent);
        self.waiting.remove(&agent);
        if let Some(open) = former.as_ref().and_then(|former| former.open.as_ref()) {
            let words = "a newer stream of this node has replaced this one";
            let _ = open.sender.try_send(Err(Status::aborted(words)));
            open.end.cancel();
        }
        // Another boot or another job is another agent with the same number.
        let is_same = |former: &Agent| (&former.writer.of, &former.writer.operation) == (&writer.of, &writer.operation);
        let former = former.filter(is_same);
        if former.is_none() {
            self.forget(agent);
        }
        self.streams += 1;
        let place = Place {
            agent,
            stream: self.streams,
        };
        let is_alone = former.as_ref().is_some_and(|former| former.is_alone);
        let is_moved = former
            .as_ref()
            .is_none_or(|former| former.writer.address != writer.address);
        let new = Agent {
            writer,
            stream: place.stream,
            open: Some(stream),
            until: now,
            since: former.as_ref().map_or(at, |former| former.since),
            held: held.clone(),
            wanted: 0,
            is_alone,
            is_reported: former.as_ref().is_some_and(|former| former.is_reported),
            named: former.map(|former| former.named).unwrap_or_default(),
        };
        if is_alone && self.table.claim(agent, 0, &held, &[], now) {
            self.agents.insert(agent, new);
            return Ok(place);
        }
        let mates = self.table.join(agent, rack, &held, &fetching, now).ok_or(Full)?;
        let mates: Vec<AgentNo> = mates.iter().copied().filter(|mate| *mate != agent).collect();
        for chunk in fetching.into_iter().filter(|chunk| self.table.fetches(agent, *chunk)) {
            self.grants.entry((agent, chunk)).or_insert(now.plus(self.lease));
        }
        self.agents.insert(agent, new);
        self.introduce(agent, &mates, is_moved);
        if is_alone {
            self.table.alone(agent);
        }
        Ok(place)
    }

    /// Names the agents of a rack to a new one, and the new one to them, if they do not know it at this address.
    fn introduce(&mut self, agent: AgentNo, mates: &[AgentNo], is_moved: bool) {
        for mate in mates {
            let Some(message) = self.agents.get(mate).map(|mate| Down::Mate(mate.peer())) else {
                continue;
            };
            self.name(agent, *mate, message);
            if let Some(message) = self
                .agents
                .get(&agent)
                .filter(|_| is_moved)
                .map(|new| Down::Mate(new.peer()))
            {
                self.name(*mate, agent, message);
            }
        }
    }

    /// Sends a message that names another agent.
    fn name(&mut self, to: AgentNo, other: AgentNo, message: Down) -> bool {
        let Some(agent) = self.agents.get_mut(&to) else {
            return false;
        };
        let is_sent = agent.send(message);
        if is_sent {
            agent.named.insert(other);
        }
        is_sent
    }

    fn forget(&mut self, agent: AgentNo) {
        self.table.lost(agent);
        self.grants.retain(|(of, _), _| *of != agent);
    }

    /// A stream has ended. `is_gone`: the agent does not return. Otherwise it stays for a few seconds without grants.
    pub fn leave(&mut self, place: Place, is_gone: bool, now: Moment) {
        let Some(agent) = self
            .agents
            .get_mut(&place.agent)
            .filter(|agent| agent.stream == place.stream)
        else {
            return;
        };
        agent.open = None;
        agent.until = now.plus(GRACE);
        if is_gone {
            self.remove(place.agent);
        } else {
            self.leaving.insert(place.agent);
            self.wants_nothing(place.agent, now);
        }
    }

    /// Removes an agent with everything that it holds.
    fn remove(&mut self, agent: AgentNo) {
        self.agents.remove(&agent);
        self.waiting.remove(&agent);
        self.leaving.remove(&agent);
        self.forget(agent);
    }

    /// The table grants an agent nothing before its next claim.
    fn wants_nothing(&mut self, number: AgentNo, now: Moment) {
        if let Some(agent) = self.agents.get_mut(&number) {
            agent.wanted = 0;
            self.waiting.remove(&number);
            self.table.claim(number, 0, &agent.held, &[], now);
        }
    }

    /// Takes a message of an agent. Returns its report about another agent.
    pub fn heard(&mut self, place: Place, message: Message, now: Moment) -> Option<WrongBytes> {
        let number = place.agent;
        // Only the node's newest stream counts.
        let agent = self
            .agents
            .get_mut(&number)
            .filter(|agent| agent.stream == place.stream)?;
        match message {
            Message::Claim { wanted, held, stuck } => {
                agent.wanted = wanted;
                agent.held = held.clone();
                if wanted > 0 {
                    self.waiting.insert(number);
                } else {
                    self.waiting.remove(&number);
                }
                if !self.table.claim(number, wanted, &held, &stuck, now) {
                    self.join_again(number, &held, now);
                    self.table.claim(number, wanted, &held, &stuck, now);
                }
            }
            Message::Came { chunk, held } => {
                agent.held = held.clone();
                self.grants.remove(&(number, chunk));
                if !self.table.done(number, chunk, &held, now) {
                    self.join_again(number, &held, now);
                }
            }
            Message::Failed(chunk) => {
                self.grants.remove(&(number, chunk));
                self.table.failed(number, chunk);
            }
            Message::Unreachable(node) => {
                if let Some(other) = self.named_to(number, &node) {
                    self.table.away(number, other);
                }
            }
            Message::Wrong { node, reason } => {
                let other = self.named_to(number, &node)?;
                self.table.lied(number, other, now);
                let reporter = self.agents.get(&number)?.writer.node.clone();
                let sender = self.agents.get_mut(&other)?;
                return Some(WrongBytes {
                    reporter,
                    sender: node,
                    operation: sender.writer.operation.clone(),
                    reason,
                    is_first: !std::mem::replace(&mut sender.is_reported, true),
                });
            }
            Message::Alone => {
                if !std::mem::replace(&mut agent.is_alone, true) {
                    agent.wanted = 0;
                    self.waiting.remove(&number);
                    self.table.alone(number);
                    self.grants.retain(|(of, _), _| *of != number);
                }
            }
        }
        None
    }

    /// The table has given an agent up that is there: other agents did not reach it.
    fn join_again(&mut self, number: AgentNo, held: &Bits, now: Moment) {
        let Some(agent) = self.agents.get(&number) else {
            return;
        };
        let (name, is_alone) = (agent.writer.rack.clone(), agent.is_alone);
        let Ok(rack) = self.rack(&name) else {
            return;
        };
        let mates = self.table.join(number, rack, held, &[], now).unwrap_or_default();
        let mates: Vec<AgentNo> = mates.iter().copied().filter(|mate| *mate != number).collect();
        if is_alone {
            self.table.alone(number);
        } else {
            self.introduce(number, &mates, false);
        }
    }

    /// The number of an agent that was named to `reporter`. An agent cannot report one that it does not know of.
    fn named_to(&self, reporter: AgentNo, node: &NodeId) -> Option<AgentNo> {
        let other = *self.numbers.get(node)?;
        let knows = self.agents.get(&reporter)?.named.contains(&other);
        (knows && other != reporter && self.agents.contains_key(&other)).then_some(other)
    }

    /// Ends leases and agents that are over, and sends the grants that are possible now. Returns the sources of these
    /// grants, and the time of the next look; without one, only a message changes anything.
    pub fn look(&mut self, now: Moment) -> (Vec<Outside>, Option<Moment>) {
        self.table.expire(now);
        self.grants.retain(|_, lease| *lease >= now);
        let is_over = |number: &&AgentNo| self.agents.get(*number).is_none_or(|agent| agent.until <= now);
        let over: Vec<AgentNo> = self.leaving.iter().filter(is_over).copied().collect();
        for agent in over {
            self.remove(agent);
        }
        let mut sources = Vec::new();
        loop {
            let mut is_complete = true;
            for grant in self.table.grants(now) {
                if self.deliver(&grant, now) {
                    sources.push(grant.from);
                } else {
                    // Another agent of the rack may get the chunk at once. The one without a stream waits no more.
                    is_complete = false;
                    self.table.failed(grant.agent, grant.chunk);
                }
            }
            if is_complete {
                return (sources, self.next_look(now));
            }
        }
    }

    fn deliver(&mut self, grant: &Grant, now: Moment) -> bool {
        let source = match grant.from {
            Outside::Origin => None,
            Outside::Agent(source) => match self.agents.get(&source) {
                Some(source) => Some(source.peer()),
                None => {
                    self.table.lost(source);
                    return false;
                }
            },
        };
        let lease = grant.lease.since(now);
        let message = Down::Grant(v1::ChunkGrant {
            chunk: grant.chunk.0,
            source,
            lease_ms: u32::try_from(lease.as_micros() / 1000).unwrap_or(u32::MAX),
        });
        let is_sent = match grant.from {
            Outside::Agent(source) => self.name(grant.agent, source, message),
            Outside::Origin => self
                .agents
                .get_mut(&grant.agent)
                .is_some_and(|agent| agent.send(message)),
        };
        if !is_sent {
            self.wants_nothing(grant.agent, now);
            return false;
        }
        if let Some(agent) = self.agents.get_mut(&grant.agent) {
            agent.wanted = agent.wanted.saturating_sub(1);
            if agent.wanted == 0 {
                self.waiting.remove(&grant.agent);
            }
        }
        self.lease = lease;
        self.grants.insert((grant.agent, grant.chunk), grant.lease);
        true
    }

    /// The next moment at which time alone changes the decisions: the end of a lease, the end of an agent's grace, and, for
    /// racks that wait, the time of a lease.
    fn next_look(&self, now: Moment) -> Option<Moment> {
        let leases = self.grants.values().copied();
        let graces = self.leaving.iter().filter_map(|number| self.agents.get(number));
        let again = (!self.waiting.is_empty() || !self.grants.is_empty()).then(|| now.plus(self.lease));
        let all = leases.chain(graces.map(|agent| agent.until)).chain(again);
        all.min().map(|next| next.plus(MOMENT))
    }

    /// The state of the spread.
    pub fn report(&self) -> SpreadReport {
        let mut racks: BTreeMap<&str, (Bits, Vec<AgentReport>)> = BTreeMap::new();
        for (number, agent) in &self.agents {
            let empty = || (Bits::new(self.chunks), Vec::new());
            let (held, agents) = racks.entry(&agent.writer.rack).or_insert_with(empty);
            if !agent.is_alone {
                for chunk in agent.held.iter() {
                    held.add(chunk);
                }
            }
            let grants = self
                .grants
                .range((*number, Chunk(0))..=(*number, Chunk(u32::MAX)))
                .count();
            agents.push(AgentReport {
                node: agent.writer.node.clone(),
                held: agent.held.count(),
                grants: u32::try_from(grants).unwrap_or(u32::MAX),
                is_alone: agent.is_alone,
                since: agent.since,
            });
        }
        let racks = racks.into_iter().map(|(name, (held, mut agents))| {
            agents.sort_by(|a, b| a.node.cmp(&b.node));
            RackReport {
                name: name.to_owned(),
                held: held.count(),
                agents,
            }
        });
        SpreadReport {
            chunks: self.chunks,
            origin: self.table.origin(),
            racks: racks.collect(),
        }
    }

    /// The place of one node.
    pub fn report_of(&self, node: &NodeId) -> Option<OwnReport> {
        let agent = self.agents.get(self.numbers.get(node)?)?;
        let others = self
            .agents
            .values()
            .filter(|other| other.writer.rack == agent.writer.rack && other.writer.node != *node);
        let mates = others.filter(|other| !other.is_alone && other.open.is_some());
        Some(OwnReport {
            mates: mates.count(),
            held: agent.held.count(),
            chunks: self.chunks,
            is_alone: agent.is_alone,
        })
    }
}
