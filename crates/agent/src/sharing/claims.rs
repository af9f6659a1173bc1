//! The claim stream of one image. A stream that breaks is opened again; the download goes on meanwhile, with what it knows.

use std::collections::{BTreeSet, VecDeque};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use rackwright_api::v1::chunk_message::Message as Up;
use rackwright_api::v1::{BeginChunks, ChunkCame, ChunkMessage, ClaimChunk, GrantMessage};
use rackwright_peers::{FrameStore, FromTable, ToTable};
use thiserror::Error;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Streaming};

use super::Sharing;
use super::names::Names;
use crate::clock;
use crate::host::Host;
use crate::session::{self, SessionError};

/// After this time without a stream, the rest of the image comes from the image servers.
const LONGEST_AWAY: Duration = Duration::from_secs(30);
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// A stream without any message counts as one that worked after this time.
const STABLE: Duration = Duration::from_secs(10);
/// Time limit for the control plane's answer to a new stream.
const ANSWER: Duration = Duration::from_secs(15);
/// Messages that wait for the network.
const QUEUE: usize = 16;
/// A message of the control plane names one agent and one chunk.
const LONGEST_MESSAGE: usize = 16 << 10;
/// Reports of wrong bytes that wait for the next stream.
const MOST_REPORTS: usize = 64;
/// Wrong messages of the control plane that are logged.
const MOST_WARNINGS: u32 = 8;

/// Why no chunk can be claimed any more.
#[derive(Debug, Error)]
pub(super) enum ClaimsEnd {
    /// The control plane refuses the stream, and will do so again.
    #[error("the control plane refuses the claims of chunks: {0:?}: {1}")]
    Refused(Code, String),
    /// The control plane did not come back in time.
    #[error("claims of chunks did not reach the control plane for {LONGEST_AWAY:?}: {0}")]
    Away(String),
}

/// Why a stream ended.
#[derive(Debug, Error)]
enum Lost {
    #[error(transparent)]
    Session(#[from] SessionError),
    #[error("the agent has no certificate")]
    NoCertificate,
    #[error("no URL of the control plane is known")]
    NoServer,
    #[error("no answer to the claims within {ANSWER:?}")]
    NoAnswer,
}

impl From<tonic::Status> for Lost {
    fn from(status: tonic::Status) -> Self {
        Self::Session(status.into())
    }
}

impl Lost {
    /// The answer, if a further attempt gets the same one.
    fn refusal(&self) -> Option<ClaimsEnd> {
        let Self::Session(SessionError::Status(status)) = self else {
            return None;
        };
        let code = status.code();
        let is_final = matches!(
            code,
            Code::Unimplemented
                | Code::FailedPrecondition
                | Code::PermissionDenied
                | Code::NotFound
                | Code::InvalidArgument
                | Code::AlreadyExists
                | Code::OutOfRange
        );
        is_final.then(|| ClaimsEnd::Refused(code, status.message().to_owned()))
    }
}

/// The parts of a claim stream.
pub(super) struct Claims {
    pub(super) sharing: Arc<Sharing>,
    pub(super) host: Arc<dyn Host>,
    pub(super) operation: String,
    pub(super) port: u16,
    pub(super) names: Names,
    pub(super) store: Arc<FrameStore>,
}

/// The state that outlives a stream.
struct Running {
    claims: Claims,
    to_table: mpsc::Receiver<ToTable>,
    from_table: mpsc::Sender<FromTable>,
    /// Chunks that were granted, and have neither come nor failed.
    fetching: BTreeSet<u32>,
    is_alone: bool,
    /// Reports that are made once, and were not sent.
    reports: VecDeque<ToTable>,
    /// The download has ended. The stream goes on, so that other agents are sent here.
    is_over: bool,
    warnings: u32,
}

/// An open stream.
struct Stream {
    up: mpsc::Sender<ChunkMessage>,
    down: Streaming<GrantMessage>,
}

impl Claims {
    /// Carries messages between a download and the control plane, also after the download, until no further stream can be
    /// opened. The caller drops the future to end it.
    pub(super) async fn run(self, to_table: mpsc::Receiver<ToTable>, from_table: mpsc::Sender<FromTable>) -> ClaimsEnd {
        let mut running = Running {
            claims: self,
            to_table,
            from_table,
            fetching: BTreeSet::new(),
            is_alone: false,
            reports: VecDeque::new(),
            is_over: false,
            warnings: 0,
        };
        let (mut away, mut pause, mut place) = (Instant::now(), FIRST_PAUSE, 0);
        loop {
            let (up, queue) = mpsc::channel(QUEUE);
            let opening = open(
                running.claims.sharing.clone(),
                running.claims.host.clone(),
                place,
                queue,
            );
            place += 1;
            running.begin(&up);
            let lost = match running.while_away(opening).await {
                Ok(down) => {
                    let begun = Instant::now();
                    let (lost, has_heard) = running.follow(Stream { up, down }).await;
                    if has_heard || begun.elapsed() >= STABLE {
                        (away, pause, place) = (Instant::now(), FIRST_PAUSE, 0);
                    }
                    lost
                }
                Err(lost) => lost,
            };
            if let Some(end) = lost.refusal() {
                return end;
            }
            if away.elapsed() >= LONGEST_AWAY {
                return ClaimsEnd::Away(lost.to_string());
            }
            tracing::info!(%lost, "the claim stream is opened again");
            running.while_away(tokio::time::sleep(clock::jittered(pause))).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }
}

/// Opens a stream to the control plane. Its first messages wait in `queue`. `place`: the attempt's number, which chooses the
/// server.
async fn open(
    sharing: Arc<Sharing>,
    host: Arc<dyn Host>,
    place: usize,
    queue: mpsc::Receiver<ChunkMessage>,
) -> Result<Streaming<GrantMessage>, Lost> {
    let (servers, credentials) = sharing.link();
    let credentials = credentials.ok_or(Lost::NoCertificate)?;
    let server = servers.get(place % servers.len().max(1)).ok_or(Lost::NoServer)?;
    let opened = async {
        let client = session::connect(&*host, server, &credentials.ca_pem, Some(&credentials)).await?;
        let mut client = client.max_decoding_message_size(LONGEST_MESSAGE);
        let answer = client.claim_chunks(ReceiverStream::new(queue)).await?;
        Ok(answer.into_inner())
    };
    timeout(ANSWER, opened).await.map_err(|_| Lost::NoAnswer)?
}

fn send(up: &mpsc::Sender<ChunkMessage>, message: Up) {
    // The first messages of a stream fit into its queue.
    let message = Some(message);
    if up.try_send(ChunkMessage { message }).is_err() {
        tracing::debug!("a message of the claim stream found no room");
    }
}

impl Running {
    /// Queues the first messages of a stream.
    fn begin(&mut self, up: &mpsc::Sender<ChunkMessage>) {
        let claims = &self.claims;
        let begin = BeginChunks {
            operation: claims.operation.clone(),
            held: claims.store.held().to_bytes(),
            fetching: self.fetching.iter().copied().collect(),
            port: claims.port.into(),
        };
        send(up, Up::Begin(begin));
        if self.is_alone {
            send(up, Up::IsAlone(true));
        }
    }

    /// Does `work` without a stream. What the download says meanwhile is noted as far as it matters for the next stream.
    async fn while_away<T>(&mut self, work: impl Future<Output = T>) -> T {
        tokio::select! {
            done = work => done,
            never = self.note_all() => match never {},
        }
    }

    async fn note_all(&mut self) -> Infallible {
        while let Some(message) = self.to_table.recv().await {
            self.note(&message);
            self.keep(message);
        }
        std::future::pending().await
    }

    /// Follows what a message says about the state of the download.
    fn note(&mut self, message: &ToTable) {
        match message {
            ToTable::Done { chunk, .. } | ToTable::Failed(chunk) => _ = self.fetching.remove(&chunk.0),
            ToTable::Alone => self.is_alone = true,
            ToTable::Claim { .. } | ToTable::Unreachable(_) | ToTable::SentWrongBytes { .. } => {}
        }
    }

    /// Keeps a message for the next stream, if the download does not say it again.
    fn keep(&mut self, message: ToTable) {
        if matches!(message, ToTable::SentWrongBytes { .. }) && self.reports.len() < MOST_REPORTS {
            self.reports.push_back(message);
        }
    }

    /// Carries messages until the stream ends. Returns why it ended, and whether the control plane sent a message on it.
    async fn follow(&mut self, mut stream: Stream) -> (Lost, bool) {
        let mut up: VecDeque<Up> = VecDeque::new();
        for report in std::mem::take(&mut self.reports) {
            up.extend(self.claims.names.to_wire(report));
        }
        if self.is_over {
            up.push_back(self.no_claim());
        }
        // The download says again what it claims.
        let mut down = Some(FromTable::New);
        let mut has_heard = false;
        let from_table = self.from_table.clone();
        loop {
            tokio::select! {
                message = self.to_table.recv(), if up.is_empty() && !self.is_over => match message {
                    Some(message) => {
                        self.note(&message);
                        up.extend(self.claims.names.to_wire(message));
                    }
                    None => {
                        self.is_over = true;
                        up.push_back(self.no_claim());
                    }
                },
                place = stream.up.reserve(), if !up.is_empty() => match place {
                    Ok(place) => place.send(ChunkMessage { message: up.pop_front() }),
                    // The answer of the control plane has the reason.
                    Err(_) => up.clear(),
                },
                place = from_table.reserve(), if down.is_some() => match (place, down.take()) {
                    (Ok(place), Some(message)) => place.send(message),
                    (Err(_), Some(message)) => up.extend(self.too_late(&message)),
                    (_, None) => {}
                },
                message = stream.down.message(), if down.is_none() && up.is_empty() => match message {
                    Ok(Some(message)) => {
                        has_heard = true;
                        match self.hear(message) {
                            Ok(message) => down = Some(message),
                            Err(answer) => up.extend(answer),
                        }
                    }
                    Ok(None) => return (SessionError::Closed.into(), has_heard),
                    Err(status) => return (status.into(), has_heard),
                },
            }
        }
    }

    /// The message for the download, or what to answer to a wrong one.
    fn hear(&mut self, message: GrantMessage) -> Result<FromTable, Option<Up>> {
        let granted = Names::granted(&message);
        match self.claims.names.from_wire(message) {
            Ok(message) => {
                if let FromTable::Granted { chunk, .. } = &message {
                    self.fetching.insert(chunk.0);
                }
                Ok(message)
            }
            Err(wrong) => {
                self.warnings = self.warnings.saturating_add(1);
                if self.warnings <= MOST_WARNINGS {
                    tracing::warn!(%wrong, "a message of the control plane about chunks is not used");
                }
                Err(granted.map(Up::Failed))
            }
        }
    }

    /// The last claim of a download: it wants nothing more, and holds this.
    fn no_claim(&self) -> Up {
        Up::Claim(ClaimChunk {
            wanted: 0,
            held: self.claims.store.held().to_bytes(),
            stuck: Vec::new(),
        })
    }

    /// The answer to a grant after the end of the download: the chunk is there.
    fn too_late(&mut self, message: &FromTable) -> Option<Up> {
        let FromTable::Granted { chunk, .. } = message else {
            return None;
        };
        self.fetching.remove(&chunk.0);
        Some(Up::Came(ChunkCame {
            chunk: chunk.0,
            held: self.claims.store.held().to_bytes(),
        }))
    }
}
