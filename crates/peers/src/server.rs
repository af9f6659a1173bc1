//! Serves the frames of one image to the agents that write it too.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rackwright_fanout::{Bits, Chunk, Holder, OwnJob, Refusal, Span, Ticket, UploadSettings, Uploads, admit};
use rackwright_identity::{ClientIdentity, ClientKind, PEER_PROTOCOL, identify};
use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::client::Holdings;
use crate::counted::Counted;
use crate::places::{Place, PlaceLimits, Places};
use crate::store::FrameStore;
use crate::ticket::TicketRefusal;
use crate::wire::{AnswerKind, Hello, Reply, Request, Welcome, WireError};

/// The time in Unix seconds.
pub type Clock = Arc<dyn Fn() -> i64 + Send + Sync>;

/// Called with an agent that looked here, and with that agent's holdings. The function must not block.
pub type Heard = Arc<dyn Fn(&ClientIdentity, Holdings) + Send + Sync>;

/// Pause after a connection could not be accepted: most likely there are too few file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Limits of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerSettings {
    /// Connections without a ticket so far, in all.
    pub strangers: usize,
    /// Connections without a ticket so far, from one address.
    pub strangers_of_address: usize,
    /// Connections with a ticket, in all.
    pub connections: usize,
    /// Connections with tickets of one node.
    pub connections_of_node: usize,
    /// Longest time from a connection to its ticket, TLS included.
    pub hello: Duration,
    /// Longest time between an answer and the next request.
    pub idle: Duration,
    /// Longest time from a request to the last byte of its answer.
    pub answer: Duration,
    /// Age after which a connection ends with its next answer. The certificate of the next one is verified again.
    pub longest_connection: Duration,
    /// Shortest time between two looks on a connection.
    pub least_look: Duration,
    /// Which requests are answered at once, and which may wait.
    pub uploads: UploadSettings,
}

impl Default for ServerSettings {
    fn default() -> Self {
        Self {
            strangers: 64,
            strangers_of_address: 8,
            connections: 128,
            connections_of_node: 4,
            hello: Duration::from_secs(5),
            idle: Duration::from_secs(60),
            answer: Duration::from_secs(60),
            longest_connection: Duration::from_secs(600),
            least_look: Duration::from_millis(2),
            uploads: UploadSettings::default(),
        }
    }
}

/// What a server serves, and the agents that have a right to it.
pub struct Serving {
    /// The job of this agent.
    pub job: OwnJob,
    /// The keys of the control plane that sign tickets.
    pub ticket_keys: Vec<[u8; 32]>,
    /// The frames. Only these are served.
    pub store: Arc<FrameStore>,
    /// The clock that tickets are compared with.
    pub clock: Clock,
    /// Called with the holdings of each agent that looks here.
    pub heard: Heard,
}

/// What a server has done so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ServerCounts {
    /// Frames that were sent in full.
    pub frames: u64,
    /// Bytes of these frames.
    pub bytes: u64,
    /// Requests for chunks that were not in memory.
    pub not_held: u64,
    /// Requests for which there was no room.
    pub busy: u64,
    /// Looks that were answered.
    pub looks: u64,
    /// Connections with a refused ticket.
    pub refused: u64,
    /// Connections for which there was no room.
    pub full: u64,
    /// Answers that were read too slowly while another agent waited.
    pub slow: u64,
    /// Connections that ended in the middle of a message, took too long, or did not keep to the protocol.
    pub broken: u64,
}

#[derive(Debug, Default)]
struct Counters {
    frames: AtomicU64,
    bytes: AtomicU64,
    not_held: AtomicU64,
    busy: AtomicU64,
    looks: AtomicU64,
    refused: AtomicU64,
    full: AtomicU64,
    slow: AtomicU64,
    broken: AtomicU64,
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// Serves chunks of one image over TLS, for the time of one job.
#[derive(Clone)]
pub struct PeerServer(Arc<Shared>);

struct Shared {
    serving: Serving,
    settings: ServerSettings,
    acceptor: TlsAcceptor,
    places: Arc<Places>,
    /// By the names of the nodes that ask.
    uploads: Mutex<Uploads<String, oneshot::Sender<Turn>>>,
    counters: Counters,
}

impl PeerServer {
    /// A server. `tls` comes from [`rackwright_identity::peer_server_config`].
    #[must_use]
    pub fn new(serving: Serving, tls: Arc<ServerConfig>, settings: ServerSettings) -> Self {
        let limits = PlaceLimits {
            strangers: (settings.strangers, settings.strangers_of_address),
            agents: (settings.connections, settings.connections_of_node),
        };
        Self(Arc::new(Shared {
            serving,
            acceptor: TlsAcceptor::from(tls),
            places: Places::new(limits),
            uploads: Mutex::new(Uploads::new(settings.uploads.clone())),
            counters: Counters::default(),
            settings,
        }))
    }

    /// What was done so far.
    #[must_use]
    pub fn counts(&self) -> ServerCounts {
        let counters = &self.0.counters;
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        ServerCounts {
            frames: read(&counters.frames),
            bytes: read(&counters.bytes),
            not_held: read(&counters.not_held),
            busy: read(&counters.busy),
            looks: read(&counters.looks),
            refused: read(&counters.refused),
            full: read(&counters.full),
            slow: read(&counters.slow),
            broken: read(&counters.broken),
        }
    }

    /// Connections with a ticket at present.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.0.places.agents()
    }

    /// Requests that wait or are answered.
    #[must_use]
    pub fn load(&self) -> u8 {
        self.0.uploads().load()
    }

    /// Serves until `stop` completes. Then all connections end, also in the middle of an answer.
    pub async fn run(&self, listener: TcpListener, stop: impl Future<Output = ()>) {
        let mut stop = std::pin::pin!(stop);
        let mut connections = JoinSet::new();
        loop {
            let accepted = tokio::select! {
                () = &mut stop => return,
                Some(_) = connections.join_next() => continue,
                () = self.0.serving.store.changed() => {
                    self.0.next_turns();
                    continue;
                }
                accepted = listener.accept() => accepted,
            };
            match accepted {
                Ok((stream, from)) => match self.0.places.stranger(from.ip().to_canonical()) {
                    Some(place) => _ = connections.spawn(self.0.clone().connection(stream, place, from.ip())),
                    None => count(&self.0.counters.full),
                },
                Err(error) => {
                    tracing::warn!(%error, "a connection of another agent could not be accepted");
                    sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }
}

/// A request's right to be answered now, until it is dropped.
struct Turn {
    shared: Arc<Shared>,
    node: String,
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.shared.uploads().sent(&self.node);
        self.shared.next_turns();
    }
}

/// A connection after its hello.
struct Connection {
    stream: TlsStream<TcpStream>,
    agent: ClientIdentity,
    ticket: Ticket,
    is_outside: bool,
}

impl Shared {
    fn uploads(&self) -> MutexGuard<'_, Uploads<String, oneshot::Sender<Turn>>> {
        self.uploads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives turns to requests that wait, as long as there is room.
    fn next_turns(self: &Arc<Self>) {
        loop {
            let held = self.serving.store.held().count();
            let next = self.uploads().next(held);
            let Some((node, next)) = next else { return };
            let shared = self.clone();
            // If its connection is gone, the turn comes back, and ends here.
            let _ = next.send(Turn { shared, node });
        }
    }

    async fn connection(self: Arc<Self>, stream: TcpStream, place: Place, from: IpAddr) {
        let served = match timeout(self.settings.hello, self.clone().hello(stream, place)).await {
            Ok(Ok(Some((connection, place)))) => self.clone().requests(connection, place).await,
            Ok(Ok(None)) => Ok(()),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(WireError::Protocol("no ticket in time".to_owned())),
        };
        if let Err(error) = served {
            count(&self.counters.broken);
            tracing::debug!(%from, %error, "a connection of another agent ended");
        }
    }

    /// The TLS handshake and the hello. `None`: it was refused.
    async fn hello(self: Arc<Self>, stream: TcpStream, place: Place) -> Result<Option<(Connection, Place)>, WireError> {
        stream.set_nodelay(true)?;
        let mut stream = self.acceptor.accept(stream).await?;
        let agent = agent(&stream)?;
        let Hello { ticket, is_outside } = Hello::read(&mut stream).await?;
        let (welcome, opened) = match self.admitted(&ticket, &agent) {
            Err(refusal) => {
                count(&self.counters.refused);
                tracing::info!(%agent, %refusal, "another agent asks for chunks without a right to them");
                (Welcome::Refused(refusal), None)
            }
            Ok(ticket) => match place.known(&agent.common_name) {
                Some(place) => (Welcome::Yes, Some((ticket, place))),
                None => {
                    count(&self.counters.full);
                    (Welcome::Full, None)
                }
            },
        };
        write(&mut stream, &[welcome.byte()]).await?;
        Ok(opened.map(|(ticket, place)| {
            let connection = Connection {
                stream,
                agent,
                ticket,
                is_outside,
            };
            (connection, place)
        }))
    }

    fn admitted(&self, ticket: &crate::SignedTicket, agent: &ClientIdentity) -> Result<Ticket, TicketRefusal> {
        let ticket = ticket.verify(&self.serving.ticket_keys)?;
        self.still_admitted(&ticket, agent)?;
        Ok(ticket)
    }

    fn still_admitted(&self, ticket: &Ticket, agent: &ClientIdentity) -> Result<(), TicketRefusal> {
        let ClientKind::Agent { claim_generation, boot } = &agent.kind else {
            return Err(TicketRefusal::Refused(Refusal::OtherHolder));
        };
        let holder = Holder {
            node: &agent.common_name,
            generation: *claim_generation,
            boot,
        };
        admit(ticket, &self.serving.job, holder, (self.serving.clock)()).map_err(TicketRefusal::Refused)
    }

    /// Answers one request after the other. Keeps the place until the end.
    async fn requests(self: Arc<Self>, mut connection: Connection, _place: Place) -> Result<(), WireError> {
        let begun = Instant::now();
        let chunks = self.serving.store.chunks();
        let mut looked: Option<Instant> = None;
        while begun.elapsed() < self.settings.longest_connection {
            let request = match timeout(self.settings.idle, Request::read(&mut connection.stream, chunks)).await {
                Ok(Ok(request)) => request,
                Ok(Err(WireError::Io(error))) if error.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(()),
                Ok(Err(error)) => return Err(error),
                Err(_) => return Ok(()),
            };
            if matches!(request, Request::Look(..)) {
                if let Some(last) = looked {
                    sleep_until(last + self.settings.least_look).await;
                }
                looked = Some(Instant::now());
            }
            match timeout(self.settings.answer, self.answer(&mut connection, request)).await {
                Ok(Ok(true)) => {}
                Ok(Ok(false)) => return Ok(()),
                Ok(Err(error)) => return Err(error.into()),
                Err(_) => return Err(WireError::Protocol("an answer was not read in time".to_owned())),
            }
        }
        Ok(())
    }

    /// Answers one request. Returns whether the connection goes on.
    async fn answer(self: &Arc<Self>, connection: &mut Connection, request: Request) -> std::io::Result<bool> {
        if let Err(refusal) = self.still_admitted(&connection.ticket, &connection.agent) {
            count(&self.counters.refused);
            tracing::info!(agent = %connection.agent, %refusal, "another agent is no longer served");
            let nothing = Bits::new(self.serving.store.chunks());
            Reply::write(&mut connection.stream, AnswerKind::Ended, (&nothing, 0), None).await?;
            return Ok(false);
        }
        let chunk = match request {
            Request::Chunk(chunk) => chunk,
            Request::Look(held, load) => {
                (self.serving.heard)(&connection.agent, Holdings { held, load });
                count(&self.counters.looks);
                self.reply(connection, AnswerKind::Holdings).await?;
                return Ok(true);
            }
        };
        let Some((turn, frame)) = self.turn(chunk, connection).await? else {
            return Ok(true);
        };
        let shown = (&self.serving.store.held(), self.uploads().load());
        let written = AtomicU64::new(0);
        let mut stream = Counted {
            stream: &mut connection.stream,
            written: &written,
        };
        tokio::select! {
            answered = Reply::write(&mut stream, AnswerKind::Frame, shown, Some(&frame)) => answered?,
            () = self.too_slow(&written) => {
                count(&self.counters.slow);
                return Err(std::io::Error::other("the answer is read too slowly while another agent waits"));
            }
        }
        drop(turn);
        count(&self.counters.frames);
        self.counters.bytes.fetch_add(frame.len() as u64, Ordering::Relaxed);
        Ok(true)
    }

    /// Completes when the reader of an answer has to give up its place.
    async fn too_slow(&self, written: &AtomicU64) {
        let time = Duration::from_micros(self.settings.uploads.slow_after.as_micros());
        let (mut since, mut before) = (Instant::now(), 0);
        loop {
            sleep_until(since + time).await;
            let (now, bytes) = (Instant::now(), written.load(Ordering::Relaxed));
            let micros = u64::try_from((now - since).as_micros()).unwrap_or(u64::MAX);
            if self.uploads().is_too_slow(bytes - before, Span::micros(micros)) {
                return;
            }
            (since, before) = (now, bytes);
        }
    }

    /// Waits until the frame may be sent. `None`: the chunk is not in memory, or there is no room, and the other agent was
    /// answered so.
    async fn turn(
        self: &Arc<Self>,
        chunk: Chunk,
        connection: &mut Connection,
    ) -> std::io::Result<Option<(Turn, Arc<Vec<u8>>)>> {
        let store = &self.serving.store;
        if store.get(chunk).is_none() {
            count(&self.counters.not_held);
            self.reply(connection, AnswerKind::NotHeld).await?;
            return Ok(None);
        }
        let (sender, turn) = oneshot::channel();
        let node = connection.agent.common_name.clone();
        let is_full = self.uploads().offer(node, sender, connection.is_outside).is_err();
        if is_full {
            count(&self.counters.busy);
            self.reply(connection, AnswerKind::Busy).await?;
            return Ok(None);
        }
        self.next_turns();
        // The sender is dropped only with its turn.
        let Ok(turn) = turn.await else {
            self.reply(connection, AnswerKind::Busy).await?;
            return Ok(None);
        };
        // A rarer chunk may have taken its room meanwhile.
        let Some(frame) = store.get(chunk) else {
            drop(turn);
            count(&self.counters.not_held);
            self.reply(connection, AnswerKind::NotHeld).await?;
            return Ok(None);
        };
        Ok(Some((turn, frame)))
    }

    async fn reply(&self, connection: &mut Connection, kind: AnswerKind) -> std::io::Result<()> {
        let shown = (&self.serving.store.held(), self.uploads().load());
        Reply::write(&mut connection.stream, kind, shown, None).await
    }
}

async fn write(stream: &mut TlsStream<TcpStream>, bytes: &[u8]) -> std::io::Result<()> {
    use tokio::io::AsyncWriteExt as _;
    stream.write_all(bytes).await?;
    stream.flush().await
}

/// The agent at the other end of a connection.
fn agent(stream: &TlsStream<TcpStream>) -> Result<ClientIdentity, WireError> {
    let tls = stream.get_ref().1;
    if tls.alpn_protocol() != Some(PEER_PROTOCOL) {
        return Err(WireError::Protocol("another protocol".to_owned()));
    }
    let leaf = tls.peer_certificates().and_then(<[_]>::first);
    let leaf = leaf.ok_or_else(|| WireError::Protocol("no certificate".to_owned()))?;
    identify(leaf).map_err(|error| WireError::Protocol(error.to_string()))
}
