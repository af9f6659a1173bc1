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
use tokio::time::{Instant, sleep_until, timeout};
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
/// Messages that wait in a stream.
const QUEUE: usize = 16;
/// Messages that wait for room in a stream. Beyond them, the download waits too.
const MOST_WAITING: usize = 64;
/// A message of the control plane names one agent and one chunk.
const LONGEST_MESSAGE: usize = 16 << 10;
/// Reports of wrong bytes that wait for the next stream.
const MOST_REPORTS: usize = 64;
/// After its download, an agent says in this time again what it holds. If others reported it as lost, it counts again.
const REPEAT: Duration = Duration::from_secs(5);
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
    reports: VecDeque<Up>,
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
            // The queue is empty, so there is room.
            let _ = up.try_send(running.begin());
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
    let (servers, credentials) = sharing.access();
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

impl Running {
    /// The first message of a stream.
    fn begin(&self) -> ChunkMessage {
        let claims = &self.claims;
        let begin = BeginChunks {
            operation: claims.operation.clone(),
            held: claims.store.held().to_bytes(),
            fetching: self.fetching.iter().copied().collect(),
            port: claims.port.into(),
        };
        ChunkMessage {
            message: Some(Up::Begin(begin)),
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
            self.reports.extend(self.claims.names.to_wire(message));
        }
    }

    /// Keeps the reports that did not go out on a stream.
    fn keep_unsent(&mut self, up: VecDeque<Up>) {
        let reports = up.into_iter().filter(|up| matches!(up, Up::Wrong(_)));
        self.reports.extend(reports.take(MOST_REPORTS));
    }

    /// Carries messages until the stream ends. Returns why it ended, and whether the control plane sent a message on it.
    async fn follow(&mut self, mut stream: Stream) -> (Lost, bool) {
        let mut up: VecDeque<Up> = VecDeque::new();
        if self.is_alone {
            up.push_back(Up::IsAlone(true));
        }
        up.extend(std::mem::take(&mut self.reports));
        if self.is_over {
            up.push_back(self.no_claim());
        }
        // The download says again what it claims.
        let mut down = Some(FromTable::New);
        let mut has_heard = false;
        let mut said = Instant::now();
        let from_table = self.from_table.clone();
        loop {
            tokio::select! {
                message = self.to_table.recv(), if up.len() < MOST_WAITING && !self.is_over => match message {
                    Some(message) => {
                        self.note(&message);
                        up.extend(self.claims.names.to_wire(message));
                    }
                    None => {
                        self.is_over = true;
                        said = Instant::now();
                        up.push_back(self.no_claim());
                    }
                },
                () = sleep_until(said + REPEAT), if self.is_over && up.is_empty() => {
                    said = Instant::now();
                    up.push_back(self.no_claim());
                }
                place = stream.up.reserve(), if !up.is_empty() => match place {
                    Ok(place) => place.send(ChunkMessage { message: up.pop_front() }),
                    // The answer of the control plane has the reason.
                    Err(_) => self.keep_unsent(std::mem::take(&mut up)),
                },
                place = from_table.reserve(), if down.is_some() => match (place, down.take()) {
                    (Ok(place), Some(message)) => place.send(message),
                    (Err(_), Some(message)) => up.extend(self.too_late(&message)),
                    (_, None) => {}
                },
                message = stream.down.message(), if down.is_none() && up.len() < MOST_WAITING => match message {
                    Ok(Some(message)) => {
                        has_heard = true;
                        match self.hear(message) {
                            Ok(message) => down = Some(message),
                            Err(answer) => up.extend(answer),
                        }
                    }
                    Ok(None) => {
                        self.keep_unsent(up);
                        return (SessionError::Closed.into(), has_heard);
                    }
                    Err(status) => {
                        self.keep_unsent(up);
                        return (status.into(), has_heard);
                    }
                },
            }
        }
    }

    /// The message for the download, or what to answer to a wrong one.
    fn hear(&mut self, message: GrantMessage) -> Result<FromTable, Option<Up>> {
        let granted = Names::granted(&message);
        match self.claims.names.read(message) {
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

#[cfg(test)]
mod tests {
    use rackwright_fanout::{AgentNo, Bits, Chunk};
    use rackwright_identity::ClientIdentity;
    use rackwright_image::{ChunkDigest, DataChunk, Format, Index, Sha256};
    use secrecy::SecretString;

    use super::*;
    use crate::host::KernelHost;
    use crate::jobs::writer::Credentials;
    use crate::root::SysRoot;

    fn claims(servers: &[&str]) -> Claims {
        let sharing = Arc::new(Sharing::default());
        sharing.set_servers(servers.iter().map(|url| (*url).to_owned()).collect());
        sharing.set_credentials(Credentials {
            ca_pem: String::new(),
            certificate_pem: String::new(),
            key_pem: SecretString::from(""),
        });
        let digest = ChunkDigest::of(b"x");
        let index = Index::new(512, Format::Raw, Sha256([0; 32]), vec![DataChunk { number: 0, digest }]).unwrap();
        Claims {
            sharing,
            host: Arc::new(KernelHost {
                root: SysRoot::below("/nowhere".as_ref()),
            }),
            operation: "op-1".into(),
            port: 7444,
            names: Names::new(ClientIdentity::agent_of_boot("gpu-001", 7, "boot").unwrap(), 1),
            store: Arc::new(FrameStore::new(&index, 0, 4)),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_absence_ends_after_its_time_and_does_not_hold_up_the_download() {
        for servers in [&[][..], &["https://127.0.0.1:1", "https://127.0.0.1:2"][..]] {
            let (to_table, from_download) = mpsc::channel(1);
            let (to_download, mut from_table) = mpsc::channel(1);
            let begun = Instant::now();
            let running = tokio::spawn(claims(servers).run(from_download, to_download));
            for _ in 0..10 * MOST_REPORTS {
                let reason = "rubbish".to_owned();
                let agent = AgentNo(0);
                to_table.send(ToTable::SentWrongBytes { agent, reason }).await.unwrap();
            }
            let held = Bits::new(1);
            to_table.send(ToTable::Done { chunk: Chunk(0), held }).await.unwrap();
            let end = running.await.unwrap();
            assert!(matches!(end, ClaimsEnd::Away(_)), "{end}");
            assert!(
                (LONGEST_AWAY..LONGEST_AWAY * 2).contains(&begun.elapsed()),
                "{:?}",
                begun.elapsed()
            );
            assert!(from_table.recv().await.is_none(), "the download learns it");
        }
    }

    #[test]
    fn only_a_lasting_refusal_ends_the_claims() {
        let refused = |status: tonic::Status| Lost::from(status).refusal().is_some();
        for status in [
            tonic::Status::unimplemented(""),
            tonic::Status::failed_precondition(""),
            tonic::Status::permission_denied(""),
            tonic::Status::not_found(""),
            tonic::Status::invalid_argument(""),
        ] {
            assert!(refused(status));
        }
        for status in [
            tonic::Status::unavailable(""),
            tonic::Status::unauthenticated(""),
            tonic::Status::internal(""),
            tonic::Status::resource_exhausted(""),
        ] {
            assert!(!refused(status));
        }
        assert!(Lost::NoServer.refusal().is_none());
    }
}
