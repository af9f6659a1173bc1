//! The download of one image with the help of other agents: carries out the decisions of [`Download`].

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rackwright_fanout::{
    AgentNo, Bits, Chunk, Download, DownloadCounts, DownloadSettings, Moment, Outside, PeerNo, Source, Span, Step,
};
use rackwright_identity::ClientIdentity;
use rackwright_image::Index;
use rackwright_image::codec::MAX_FRAME_BYTES;
use rackwright_image::writer::{ChunkSource, FetchControl, FetchError, Frame, Object, Traffic};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::{AbortHandle, JoinError, JoinSet, spawn_blocking};
use tokio::time::Instant;

use crate::checks::Checks;
use crate::client::{Answer, AskError, Holdings, PeerAddress, PeerClient, UncheckedFrame};
use crate::frame::{FrameError, VerifiedFrame};
use crate::store::FrameStore;

/// Time limit for a request for the chunks that another agent holds.
const LOOK_TIMEOUT: Duration = Duration::from_secs(2);
/// Time limit for a request of a chunk, whatever the decisions allow.
const REQUEST: Duration = Duration::from_secs(60);
/// The usual [`Spread::patience`].
pub const PATIENCE: Duration = Duration::from_secs(60);
/// A download with less than this part of its chunks in its time of patience gets nowhere with other agents.
const PROGRESS_PART: u32 = 20;
/// Chunks that are decoded and taken at once. Further ones wait as frames, as long as their requests count.
const TAKEN_AT_ONCE: usize = 6;
/// Failures of the image servers in a row, after which the download ends.
const ORIGIN_FAILURES: u32 = 5;

/// A message of an agent to the claim table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToTable {
    /// The agent asks to fetch `wanted` chunks from outside its rack. `stuck`: chunks that it finds with no agent of its
    /// rack.
    Claim {
        /// Number of chunks; it replaces that of the last claim.
        wanted: u32,
        /// What the agent holds for others; for an agent that is alone, what it has taken.
        held: Bits,
        /// Chunks that are held in the rack according to the table.
        stuck: Vec<Chunk>,
    },
    /// A granted chunk came.
    Done {
        chunk: Chunk,
        /// What the agent holds for others.
        held: Bits,
    },
    /// A granted chunk did not come.
    Failed(Chunk),
    /// An agent does not answer.
    Unreachable(AgentNo),
    /// An agent sent wrong bytes.
    SentWrongBytes {
        agent: AgentNo,
        /// What it sent.
        reason: String,
    },
    /// No other agent can be reached, or this one has too little memory to serve. From now on, `held` is what it has taken.
    Alone,
}

/// A message of the claim table to an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FromTable {
    /// Another agent of the rack writes the image.
    Mate(AgentNo, PeerAddress),
    /// A chunk to fetch from outside the rack.
    Granted {
        chunk: Chunk,
        /// Where it comes from. `None`: the image servers.
        from: Option<(AgentNo, PeerAddress)>,
        /// How long the grant lasts.
        lease: Duration,
    },
    /// The claim table has been created anew, and already knows the agent.
    New,
}

/// Receives each chunk once or more, in any order and from several threads. An error ends the download.
pub type Take = Arc<dyn Fn(Chunk, &[u8]) -> io::Result<()> + Send + Sync>;

/// Why a download ended early.
#[derive(Debug, thiserror::Error)]
pub enum SpreadError {
    /// The claim table cannot be reached any more.
    #[error("the control plane's claim table cannot be reached")]
    NoTable,
    /// Too few chunks came. Other agents may hold the download up, by a fault or on purpose.
    #[error("only {came} chunks came in {} s", within.as_secs())]
    NoProgress {
        /// The time of patience.
        within: Duration,
        /// Chunks that came in this time.
        came: u32,
    },
    /// The image servers do not give a chunk.
    #[error("the image servers: {0}")]
    Origin(FetchError),
    /// Every image server sent wrong bytes.
    #[error("the image servers sent wrong bytes: {0}")]
    WrongOrigin(FrameError),
    /// A chunk could not be taken.
    #[error("{chunk} could not be taken: {source}")]
    Take {
        chunk: Chunk,
        /// The cause.
        source: io::Error,
    },
    /// A bug, or no memory for a decoder.
    #[error("a worker of the download failed: {0}")]
    Worker(String),
}

/// The parts of a download.
pub struct Spread {
    /// The verified index of the image.
    pub index: Arc<Index>,
    /// Asks other agents.
    pub client: Arc<PeerClient>,
    /// Receives frames for others.
    pub store: Arc<FrameStore>,
    /// The image servers.
    pub origin: Arc<dyn ChunkSource + Send + Sync>,
    /// Receives the chunks.
    pub take: Take,
    /// Counts the bytes of all frames that came.
    pub traffic: Arc<Traffic>,
    /// Requests that wait at this agent, for others.
    pub load: Arc<dyn Fn() -> u8 + Send + Sync>,
    /// Limits of the decisions.
    pub settings: DownloadSettings,
    /// The download ends with [`SpreadError::NoProgress`] if less than a twentieth of its chunks comes in this time.
    pub patience: Duration,
    /// For decisions by chance: another number at each agent.
    pub seed: u64,
}

/// The end of a download.
#[derive(Debug)]
pub struct SpreadEnd {
    /// What came, also before an error.
    pub counts: DownloadCounts,
    /// No chunk is taken any more. Without an error, every chunk was taken.
    pub result: Result<(), SpreadError>,
}

/// The channels of a download.
pub struct SpreadChannels {
    /// To the claim table.
    pub to_table: mpsc::Sender<ToTable>,
    /// From the claim table.
    pub from_table: mpsc::Receiver<FromTable>,
    /// Agents that looked at this one, from [`crate::Heard`].
    pub heard: mpsc::Receiver<(ClientIdentity, Holdings)>,
}

/// The end of a request or of a look.
enum Event {
    Came {
        chunk: Chunk,
        source: Source,
        frame: Option<VerifiedFrame>,
        holdings: Option<Holdings>,
    },
    Refused {
        chunk: Chunk,
        source: Source,
        holdings: Option<Holdings>,
    },
    Looked(PeerNo, Holdings),
    Failed {
        chunk: Option<Chunk>,
        source: Source,
        error: AskError,
    },
    OriginFailed(Chunk, FetchError),
    End(SpreadError),
}

struct Running {
    spread: Arc<Spread>,
    download: Download,
    begun: Instant,
    /// The agents of the rack, by their number in the download.
    mates: Vec<(AgentNo, PeerAddress)>,
    to_table: mpsc::Sender<ToTable>,
    tasks: JoinSet<Event>,
    /// The tasks of the requests that the decisions wait for.
    requests: BTreeMap<(Chunk, Source), AbortHandle>,
    checks: Arc<Checks>,
    /// Held by each worker; the download ends after all of them.
    workers: mpsc::Sender<()>,
    /// One place for each chunk that is decoded and taken.
    taking: Arc<Semaphore>,
    /// When progress was last compared, and the number of chunks then.
    progress: (Instant, u32),
    origin_failures: u32,
    was_alone: bool,
}

/// Sets its flag when it is dropped: a fetch in a thread of its own ends then.
struct CancelOnDrop(Arc<AtomicBool>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Spread {
    /// Fetches every chunk of the image, and returns after the last one was taken. Dropping the future ends the download,
    /// but a chunk may still be taken shortly after.
    pub async fn run(self, channels: SpreadChannels) -> SpreadEnd {
        let SpreadChannels {
            to_table,
            mut from_table,
            mut heard,
        } = channels;
        let chunks = self.store.chunks();
        let (workers, mut ended) = mpsc::channel(1);
        let mut running = Running {
            download: Download::new(Bits::new(chunks), self.settings.clone(), self.seed),
            begun: Instant::now(),
            mates: Vec::new(),
            to_table,
            tasks: JoinSet::new(),
            requests: BTreeMap::new(),
            checks: Arc::new(Checks::new(self.index.clone())),
            workers,
            taking: Arc::new(Semaphore::new(TAKEN_AT_ONCE)),
            progress: (Instant::now(), 0),
            origin_failures: 0,
            was_alone: false,
            spread: Arc::new(self),
        };
        let result = running.all(&mut from_table, &mut heard).await;
        let (counts, checks) = (running.download.counts(), running.checks.clone());
        drop(running);
        // Completes when the last worker has dropped its sender.
        let _ = ended.recv().await;
        let counts = checks.complete(counts);
        SpreadEnd { counts, result }
    }
}

impl Running {
    async fn all(
        &mut self,
        from_table: &mut mpsc::Receiver<FromTable>,
        heard: &mut mpsc::Receiver<(ClientIdentity, Holdings)>,
    ) -> Result<(), SpreadError> {
        loop {
            let Some(rest) = self.steps().await? else {
                return Ok(());
            };
            self.abort_given_up();
            self.check_progress()?;
            let compared = self.progress.0 + self.spread.patience;
            tokio::select! {
                Some(ended) = self.tasks.join_next() => self.ended(ended).await?,
                message = from_table.recv() => match message {
                    Some(message) => self.hear_table(message),
                    None => return Err(SpreadError::NoTable),
                },
                Some((agent, holdings)) = heard.recv() => {
                    if let Some(peer) = self.mate(&agent) {
                        self.saw(peer, &holdings);
                    }
                }
                () = tokio::time::sleep_until(self.begun + Duration::from_micros(rest.as_micros())) => {}
                () = tokio::time::sleep_until(compared) => {}
            }
        }
    }

    /// Ends the download if other agents give it too little: an agent could show chunks that it never gives.
    fn check_progress(&mut self) -> Result<(), SpreadError> {
        let ((since, before), within) = (self.progress, self.spread.patience);
        if since.elapsed() < within {
            return Ok(());
        }
        let done = self.download.done();
        let (came, needed) = (done.count() - before, (done.chunks() / PROGRESS_PART).max(1));
        if came < needed {
            return Err(SpreadError::NoProgress { within, came });
        }
        self.progress = (Instant::now(), done.count());
        Ok(())
    }

    fn now(&self) -> Moment {
        let micros = self.begun.elapsed().as_micros();
        Moment::micros(u64::try_from(micros).unwrap_or(u64::MAX))
    }

    fn mate(&self, agent: &ClientIdentity) -> Option<PeerNo> {
        let place = self.mates.iter().position(|(_, mate)| mate.agent == *agent)?;
        // A download has at most 64 peers.
        u16::try_from(place).ok().map(PeerNo)
    }

    fn saw(&mut self, peer: PeerNo, holdings: &Holdings) {
        let now = self.now();
        self.download.saw(peer, &holdings.held, holdings.load, now);
    }

    /// What the claim table learns: what this agent holds for others, or, if it counts as alone, what it needs no more.
    fn held(&self) -> Bits {
        if self.was_alone {
            self.download.done().clone()
        } else {
            self.spread.store.held()
        }
    }

    async fn tell(&self, message: ToTable) -> Result<(), SpreadError> {
        self.to_table.send(message).await.map_err(|_| SpreadError::NoTable)
    }

    /// Carries out steps. `None`: every chunk is there; otherwise the time of the next step.
    async fn steps(&mut self) -> Result<Option<Moment>, SpreadError> {
        let is_alone = self.download.is_alone() || self.spread.store.limit_bytes() == 0;
        if is_alone && !std::mem::replace(&mut self.was_alone, true) {
            self.tell(ToTable::Alone).await?;
        }
        loop {
            match self.download.step(self.now()) {
                Step::Done => return Ok(None),
                Step::Rest(until) => return Ok(Some(until)),
                Step::Ask(peer, chunk) => {
                    if let Some((_, address)) = self.mates.get(usize::from(peer.0)).cloned() {
                        self.ask(address, chunk, Source::Peer(peer));
                    }
                }
                Step::Look(peer) => self.look(peer),
                Step::Claim { wanted, stuck } => {
                    let held = self.held();
                    self.tell(ToTable::Claim { wanted, held, stuck }).await?;
                }
                // A chunk that was taken and not kept may be granted again. Nothing failed then.
                Step::GiveUp(chunk, _) if self.download.done().has(chunk) => {
                    let held = self.held();
                    self.tell(ToTable::Done { chunk, held }).await?;
                }
                Step::GiveUp(chunk, _) => self.tell(ToTable::Failed(chunk)).await?,
                Step::Unreachable(source) => {
                    if let Some(agent) = self.agent_no(source) {
                        self.tell(ToTable::Unreachable(agent)).await?;
                    }
                }
            }
        }
    }

    fn agent_no(&self, source: Source) -> Option<AgentNo> {
        match source {
            Source::Peer(peer) => self.mates.get(usize::from(peer.0)).map(|(number, _)| *number),
            Source::Outside(Outside::Agent(number)) => Some(number),
            Source::Outside(Outside::Origin) => None,
        }
    }

    /// Ends the requests that the decisions no longer wait for: their connections are closed.
    fn abort_given_up(&mut self) {
        let waited: Vec<(Chunk, Source)> = self.download.requests().collect();
        self.requests.retain(|request, task| {
            let is_waited = waited.contains(request);
            if !is_waited {
                task.abort();
            }
            is_waited
        });
    }

    fn hear_table(&mut self, message: FromTable) {
        let now = self.now();
        match message {
            FromTable::New => self.download.rejoined(),
            FromTable::Mate(number, address) => {
                match self.mate(&address.agent) {
                    // It may serve at another address now.
                    Some(peer) => self.mates[usize::from(peer.0)] = (number, address),
                    None if self.download.add_peer().is_some() => self.mates.push((number, address)),
                    None => {}
                }
            }
            FromTable::Granted { chunk, from, lease } => {
                let micros = u64::try_from(lease.as_micros()).unwrap_or(u64::MAX);
                let lease = now.plus(Span::micros(micros));
                let outside = match &from {
                    None => Outside::Origin,
                    Some((number, _)) => Outside::Agent(*number),
                };
                if !self.download.granted(chunk, outside, lease, now) {
                    return;
                }
                match from {
                    None => self.fetch(chunk),
                    Some((_, address)) => self.ask(address, chunk, Source::Outside(outside)),
                }
            }
        }
    }

    fn ask(&mut self, address: PeerAddress, chunk: Chunk, source: Source) {
        let (spread, checks, worker) = (self.spread.clone(), self.checks.clone(), self.workers.clone());
        let taking = self.taking.clone();
        let task = self.tasks.spawn(async move {
            let failed = |error| Event::Failed {
                chunk: Some(chunk),
                source,
                error,
            };
            let refused = |holdings| Event::Refused {
                chunk,
                source,
                holdings: Some(holdings),
            };
            match spread.client.ask(&address, chunk, Instant::now() + REQUEST).await {
                Ok(Answer::Frame(frame, holdings)) => {
                    spread.traffic.fetched.fetch_add(frame.len(), Ordering::Relaxed);
                    let Ok(place) = taking.acquire_owned().await else {
                        return Event::End(SpreadError::Worker("the download has ended".to_owned()));
                    };
                    let opened = spawn_blocking(move || {
                        let _place = place;
                        open(&spread, &checks, (frame, source), &worker)
                    });
                    match opened.await {
                        Ok(Ok(frame)) => Event::Came {
                            chunk,
                            source,
                            frame: Some(frame),
                            holdings: Some(holdings),
                        },
                        Ok(Err(Opened::Asked(error))) => failed(error),
                        Ok(Err(Opened::End(error))) => Event::End(error),
                        Err(error) => Event::End(worker_failed(&error)),
                    }
                }
                Ok(Answer::NotHeld(holdings) | Answer::Busy(holdings)) => refused(holdings),
                Err(error) => failed(error),
            }
        });
        self.requests.insert((chunk, source), task);
    }

    fn look(&mut self, peer: PeerNo) {
        let Some((_, address)) = self.mates.get(usize::from(peer.0)).cloned() else {
            return;
        };
        let spread = self.spread.clone();
        self.tasks.spawn(async move {
            let load = (spread.load)();
            match spread.client.look(&address, load, Instant::now() + LOOK_TIMEOUT).await {
                Ok(holdings) => Event::Looked(peer, holdings),
                Err(error) => Event::Failed {
                    chunk: None,
                    source: Source::Peer(peer),
                    error,
                },
            }
        });
    }

    fn fetch(&mut self, chunk: Chunk) {
        let (spread, checks, worker) = (self.spread.clone(), self.checks.clone(), self.workers.clone());
        let cancel = Arc::new(AtomicBool::new(false));
        let task = self.tasks.spawn(async move {
            let _cancel = CancelOnDrop(cancel.clone());
            let fetched = spawn_blocking(move || fetch(&spread, &checks, chunk, &cancel, &worker));
            match fetched.await {
                Ok(event) => event,
                Err(error) => Event::End(worker_failed(&error)),
            }
        });
        let source = Source::Outside(Outside::Origin);
        self.requests.insert((chunk, source), task);
    }

    async fn ended(&mut self, ended: Result<Event, JoinError>) -> Result<(), SpreadError> {
        let event = match ended {
            Ok(event) => event,
            Err(error) if error.is_cancelled() => return Ok(()),
            Err(error) => return Err(worker_failed(&error)),
        };
        match event {
            Event::Looked(peer, holdings) => self.saw(peer, &holdings),
            Event::Came {
                chunk,
                source,
                frame,
                holdings,
            } => {
                self.note_holdings(source, holdings);
                return self.came(chunk, source, frame).await;
            }
            Event::Refused {
                chunk,
                source,
                holdings,
            } => {
                self.note_holdings(source, holdings);
                let now = self.now();
                self.download.refused(chunk, source, now);
            }
            Event::Failed { chunk, source, error } => return self.failed(chunk, source, error).await,
            Event::OriginFailed(chunk, error) => {
                self.origin_failures += 1;
                if !error.retryable() || self.origin_failures >= ORIGIN_FAILURES {
                    return Err(SpreadError::Origin(error));
                }
                let now = self.now();
                self.download.refused(chunk, Source::Outside(Outside::Origin), now);
            }
            Event::End(error) => return Err(error),
        }
        Ok(())
    }

    /// Notes the holdings in the answer of an agent of the rack.
    fn note_holdings(&mut self, source: Source, holdings: Option<Holdings>) {
        if let (Source::Peer(peer), Some(holdings)) = (source, holdings) {
            self.saw(peer, &holdings);
        }
    }

    async fn came(&mut self, chunk: Chunk, source: Source, frame: Option<VerifiedFrame>) -> Result<(), SpreadError> {
        let now = self.now();
        self.download.received(chunk, source, now);
        if source == Source::Outside(Outside::Origin) {
            self.origin_failures = 0;
        }
        let store = &self.spread.store;
        if let Some(frame) = frame {
            store.offer(frame, |chunk| self.download.seen(chunk));
        }
        if matches!(source, Source::Outside(_)) {
            let held = self.held();
            self.tell(ToTable::Done { chunk, held }).await?;
        }
        Ok(())
    }

    async fn failed(&mut self, chunk: Option<Chunk>, source: Source, error: AskError) -> Result<(), SpreadError> {
        let now = self.now();
        tracing::debug!(?source, %error, "another agent gave no chunk");
        // Without a chunk, no request is found: only the agent counts.
        let asked = chunk.unwrap_or(Chunk(u32::MAX));
        match (error, source) {
            (AskError::WrongBytes(lie), _) => {
                self.download.lied(asked, source);
                if let Some(agent) = self.agent_no(source) {
                    let reason = lie.reason;
                    self.tell(ToTable::SentWrongBytes { agent, reason }).await?;
                }
            }
            (AskError::Banned(_), _) => _ = self.download.lied(asked, source),
            (AskError::Frame(error), _) => return Err(SpreadError::Worker(error.to_string())),
            (AskError::Full(_), _) => self.download.refused(asked, source, now),
            // The ticket may be at fault. The other agent answers, so it is not reported.
            (AskError::Refused { .. }, Source::Peer(peer)) => self.download.shut_out(peer, now),
            (AskError::Refused { .. }, _) => self.download.refused(asked, source, now),
            (_, Source::Peer(peer)) => self.download.unreachable(peer, now),
            (_, Source::Outside(_)) => {
                self.download.refused(asked, source, now);
                if let Some(agent) = self.agent_no(source) {
                    self.tell(ToTable::Unreachable(agent)).await?;
                }
            }
        }
        Ok(())
    }
}

fn worker_failed(error: &JoinError) -> SpreadError {
    SpreadError::Worker(error.to_string())
}

/// Why a frame of another agent was not taken.
enum Opened {
    Asked(AskError),
    End(SpreadError),
}

fn no_memory(error: &io::Error) -> SpreadError {
    SpreadError::Worker(format!("no memory for a decoder: {error}"))
}

/// Opens a frame of another agent, and takes its chunk.
fn open(
    spread: &Spread,
    checks: &Checks,
    (frame, source): (UncheckedFrame, Source),
    _worker: &mpsc::Sender<()>,
) -> Result<VerifiedFrame, Opened> {
    let mut check = checks.take().map_err(|error| Opened::End(no_memory(&error)))?;
    let chunk = frame.chunk();
    let mut data = vec![0; check.chunk_len(chunk).unwrap_or_default()];
    let opened = spread.client.open(&mut check, frame, &mut data);
    checks.free().push(check);
    let frame = opened.map_err(Opened::Asked)?;
    let passed_on = checks.pass_on(spread, (chunk, source), &data);
    passed_on.map_err(Opened::End)?;
    Ok(frame)
}

/// Fetches a chunk from the image servers, and takes it.
fn fetch(spread: &Spread, checks: &Checks, chunk: Chunk, cancel: &AtomicBool, _worker: &mpsc::Sender<()>) -> Event {
    let mut check = match checks.take() {
        Ok(check) => check,
        Err(error) => return Event::End(no_memory(&error)),
    };
    let Some(known) = spread.index.data().get(chunk.0 as usize) else {
        return Event::End(SpreadError::Worker(format!(
            "a grant for {chunk}, which the image does not have"
        )));
    };
    let control = FetchControl {
        cancel,
        fetched: &spread.traffic.fetched,
        resumes: &spread.traffic.resumes,
    };
    let mut was_spliced = false;
    let mut frame = Frame::new(MAX_FRAME_BYTES);
    let mut data = vec![0; spread.index.chunk_len(known.number)];
    loop {
        let got = match spread.origin.fetch(&Object::Chunk(known.digest), &mut frame, &control) {
            Ok(got) => got,
            Err(error) => return Event::OriginFailed(chunk, error),
        };
        match check.open_own(chunk, frame.filled(), &mut data) {
            Ok(frame) => {
                checks.free().push(check);
                let source = Source::Outside(Outside::Origin);
                if let Err(error) = checks.pass_on(spread, (chunk, source), &data) {
                    return Event::End(error);
                }
                return Event::Came {
                    chunk,
                    source,
                    frame,
                    holdings: None,
                };
            }
            // The two parts may come from different packings of the chunk; neither server is at fault.
            Err(_) if got.resumed && !was_spliced => was_spliced = true,
            Err(error) if spread.origin.reject(got.origin, &error) => {}
            Err(error) => return Event::End(SpreadError::WrongOrigin(error)),
        }
    }
}
