//! Whole downloads of several agents, with a claim table in the same process.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use rackwright_fanout::{
    AgentNo, Bits, Chunk, ClaimTable, DownloadCounts, DownloadSettings, Moment, Outside, RackNo, Span, TableSettings,
    Ticket,
};
use rackwright_image::ChunkDigest;
use rackwright_image::writer::{ChunkSource, FetchControl, FetchError, Fetched, Frame, Object};
use rackwright_peers::{
    FrameCheck, FrameStore, FromTable, Heard, PeerAddress, PeerClient, Spread, SpreadChannels, SpreadEnd, SpreadError,
    ToTable,
};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::liars::{Fault, frame_answer, liar};
use crate::support::{MEMORY, PATIENT, Served, Site, agent, certificate, patient_client, patient_server};

/// The image servers: give frames from memory, and count them.
struct Servers {
    frames: HashMap<ChunkDigest, Vec<u8>>,
    given: AtomicU64,
    is_wrong: bool,
    /// Whether nothing is left.
    is_missing: bool,
    /// The first requests wait until this number has come.
    together: u32,
    came: Mutex<u32>,
    comes: Condvar,
}

impl Servers {
    fn new(site: &Site) -> Self {
        let data = site.image.index.data().iter().map(|chunk| chunk.digest);
        Self {
            frames: data.zip(site.image.frames.iter().cloned()).collect(),
            given: AtomicU64::new(0),
            is_wrong: false,
            is_missing: false,
            together: 0,
            came: Mutex::new(0),
            comes: Condvar::new(),
        }
    }

    /// Waits for other requests at the same time.
    fn meet(&self) {
        let mut came = self.came.lock().unwrap();
        *came += 1;
        self.comes.notify_all();
        let are_few = |came: &mut u32| *came < self.together;
        let (came, waited) = self.comes.wait_timeout_while(came, PATIENT / 4, are_few).unwrap();
        assert!(!waited.timed_out(), "only {came} requests at once");
    }
}

impl ChunkSource for Servers {
    fn fetch(&self, object: &Object, frame: &mut Frame, control: &FetchControl<'_>) -> Result<Fetched, FetchError> {
        control.check()?;
        let Object::Chunk(digest) = object else {
            panic!("{object}")
        };
        if self.is_missing {
            return Err(FetchError::Missing(*object));
        }
        let bytes = if self.is_wrong {
            &b"rubbish"[..]
        } else {
            &self.frames[digest]
        };
        self.meet();
        frame.clear();
        while frame.fill_from(&mut &bytes[frame.filled().len()..]).unwrap() > 0 {}
        self.given.fetch_add(1, Ordering::SeqCst);
        Ok(Fetched {
            origin: 0,
            resumed: false,
        })
    }

    fn reject(&self, _: usize, _: &dyn fmt::Display) -> bool {
        false
    }
}

/// The claim table in a task, with its agents.
#[derive(Clone)]
struct Table(mpsc::UnboundedSender<ToActor>);

enum ToActor {
    Join(AgentNo, RackNo, PeerAddress, mpsc::Sender<FromTable>),
    Message(AgentNo, ToTable),
}

struct Actor {
    table: ClaimTable,
    begun: Instant,
    agents: HashMap<AgentNo, (PeerAddress, mpsc::Sender<FromTable>)>,
    lies: Arc<Mutex<Vec<(AgentNo, AgentNo)>>>,
    /// Reports of agents that do not answer.
    silent: Arc<Mutex<Vec<(AgentNo, AgentNo)>>>,
    chunks: u32,
}

impl Actor {
    fn now(&self) -> Moment {
        Moment::micros(self.begun.elapsed().as_micros() as u64)
    }

    fn address(&self, of: AgentNo, is_outside: bool) -> (AgentNo, PeerAddress) {
        let peer = PeerAddress {
            is_outside,
            ..self.agents[&of].0.clone()
        };
        (of, peer)
    }

    fn message(&mut self, message: ToActor) {
        let now = self.now();
        match message {
            ToActor::Join(number, rack, address, sender) => {
                let held = Bits::new(self.chunks);
                let mates = self.table.join(number, rack, &held, &[], now).unwrap().to_vec();
                self.agents.insert(number, (address, sender));
                for mate in mates.into_iter().filter(|mate| *mate != number) {
                    for (to, of) in [(number, mate), (mate, number)] {
                        let (of, address) = self.address(of, false);
                        let _ = self.agents[&to].1.try_send(FromTable::Mate(of, address));
                    }
                }
            }
            ToActor::Message(number, message) => match message {
                ToTable::Claim { wanted, held, stuck } => _ = self.table.claim(number, wanted, &held, &stuck, now),
                ToTable::Done { chunk, held } => _ = self.table.done(number, chunk, &held, now),
                ToTable::Failed(chunk) => self.table.failed(number, chunk),
                ToTable::Unreachable(other) => {
                    self.silent.lock().unwrap().push((number, other));
                    self.table.away(number, other);
                }
                ToTable::SentWrongBytes { agent, .. } => {
                    self.lies.lock().unwrap().push((number, agent));
                    self.table.lied(number, agent, now);
                }
                ToTable::Alone => self.table.alone(number),
            },
        }
    }

    fn grants(&mut self) {
        let now = self.now();
        self.table.expire(now);
        for grant in self.table.grants(now) {
            let from = match grant.from {
                Outside::Origin => None,
                Outside::Agent(number) => Some(self.address(number, true)),
            };
            let granted = FromTable::Granted {
                chunk: grant.chunk,
                from,
                lease: Duration::from_micros(grant.lease.since(now).as_micros()),
            };
            let _ = self.agents[&grant.agent].1.try_send(granted);
        }
    }

    async fn run(mut self, mut messages: mpsc::UnboundedReceiver<ToActor>) {
        loop {
            // Leases end without a message.
            match tokio::time::timeout(Duration::from_millis(50), messages.recv()).await {
                Ok(Some(message)) => self.message(message),
                Ok(None) => return,
                Err(_) => {}
            }
            self.grants();
        }
    }
}

/// A hall of agents that write the image of a site.
struct Hall {
    site: Site,
    servers: Arc<Servers>,
    table: Table,
    lies: Arc<Mutex<Vec<(AgentNo, AgentNo)>>>,
    silent: Arc<Mutex<Vec<(AgentNo, AgentNo)>>>,
    patience: Duration,
    stuck_after: Span,
}

/// One agent of a hall.
struct Member {
    served: Served,
    taken: Arc<Mutex<HashSet<u32>>>,
    download: JoinHandle<SpreadEnd>,
}

impl Hall {
    fn new(chunks: u32, change: impl FnOnce(&mut Servers)) -> Self {
        let site = Site::new(chunks);
        let mut servers = Servers::new(&site);
        change(&mut servers);
        let (sender, messages) = mpsc::unbounded_channel();
        let settings = TableSettings {
            // A busy computer is slow, and a lease that ends early costs a second copy.
            expected: Span::seconds(20),
            ..TableSettings::default()
        };
        let (lies, silent) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Mutex::new(Vec::new())));
        let actor = Actor {
            table: ClaimTable::new(chunks, settings, 1),
            begun: Instant::now(),
            agents: HashMap::new(),
            lies: lies.clone(),
            silent: silent.clone(),
            chunks,
        };
        tokio::spawn(actor.run(messages));
        Self {
            site,
            servers: Arc::new(servers),
            table: Table(sender),
            lies,
            silent,
            patience: PATIENT,
            stuck_after: Span::seconds(20),
        }
    }

    fn join(&self, number: u32, rack: u32, address: PeerAddress) -> mpsc::Receiver<FromTable> {
        let (sender, receiver) = mpsc::channel(256);
        let join = ToActor::Join(AgentNo(number), RackNo(rack), address, sender);
        self.table.0.send(join).unwrap();
        receiver
    }

    /// Begins a download of an agent with this much memory.
    async fn begin(&self, number: u32, rack: u32, memory: u64) -> Member {
        let own = agent(&format!("gpu-{number:03}"));
        let ticket = self.site.ticket(&own);
        self.begin_with(number, rack, memory, ticket).await
    }

    /// The same with this ticket.
    async fn begin_with(&self, number: u32, rack: u32, memory: u64, ticket: Ticket) -> Member {
        let (site, name) = (&self.site, format!("gpu-{number:03}"));
        let store: Arc<FrameStore> = site.image.store(memory, &[]);
        let (to_heard, heard) = mpsc::channel(256);
        let tell: Heard = Arc::new(move |agent, holdings| _ = to_heard.try_send((agent.clone(), holdings)));
        let served = site.serve_with(&name, store.clone(), patient_server(), tell).await;
        let from_table = self.join(number, rack, served.address.clone());
        let (to_table, mut messages) = mpsc::channel(16);
        let table = self.table.clone();
        tokio::spawn(async move {
            while let Some(message) = messages.recv().await {
                let _ = table.0.send(ToActor::Message(AgentNo(number), message));
            }
        });
        let own = agent(&name);
        let client = PeerClient::new(
            certificate(&site.authority, &own),
            site.trust(),
            site.signed(&ticket),
            store.clone(),
            patient_client(),
        );
        let taken = Arc::new(Mutex::new(HashSet::new()));
        let (chunks, here) = (Arc::new(site.image.chunks.clone()), taken.clone());
        let server = served.server.clone();
        let spread = Spread {
            index: site.image.index.clone(),
            client: Arc::new(client),
            store,
            origin: self.servers.clone(),
            take: Arc::new(move |chunk, data| {
                assert!(data == chunks[chunk.0 as usize], "{chunk}");
                here.lock().unwrap().insert(chunk.0);
                Ok(())
            }),
            traffic: Arc::default(),
            load: Arc::new(move || server.load()),
            settings: DownloadSettings {
                least_patience: Span::seconds(20),
                stuck_after: self.stuck_after,
                ..DownloadSettings::default()
            },
            patience: self.patience,
            seed: u64::from(number),
        };
        let channels = SpreadChannels {
            to_table,
            from_table,
            heard,
        };
        Member {
            served,
            taken,
            download: tokio::spawn(spread.run(channels)),
        }
    }
}

impl Member {
    /// Waits for the end of the download, with every chunk.
    async fn finish(&mut self, chunks: u32) -> DownloadCounts {
        let end = tokio::time::timeout(PATIENT, &mut self.download).await.unwrap();
        let SpreadEnd { counts, result } = end.unwrap();
        result.unwrap();
        assert_eq!(self.taken.lock().unwrap().len(), chunks as usize);
        counts
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_racks_take_an_image_from_the_origin_once() {
    const CHUNKS: u32 = 8;
    let hall = Hall::new(CHUNKS, |_| {});
    let mut members = Vec::new();
    for number in 0..6 {
        members.push(hall.begin(number, number / 3, MEMORY).await);
    }
    let mut sum = DownloadCounts::default();
    for member in &mut members {
        let counts = member.finish(CHUNKS).await;
        sum.from_rack += counts.from_rack;
        sum.from_other_racks += counts.from_other_racks;
        sum.from_origin += counts.from_origin;
    }
    assert_eq!(
        sum.from_rack + sum.from_other_racks + sum.from_origin,
        6 * CHUNKS,
        "{sum:?}"
    );
    assert_eq!(hall.servers.given.load(Ordering::SeqCst), u64::from(CHUNKS), "{sum:?}");
    assert_eq!(sum.from_origin, CHUNKS, "{sum:?}");
    assert_eq!(
        sum.from_other_racks, CHUNKS,
        "each chunk enters the other rack once: {sum:?}"
    );
    assert!(hall.lies.lock().unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_liar_and_a_killed_agent_hold_up_no_other_agent() {
    const CHUNKS: u32 = 3;
    let hall = Hall::new(CHUNKS, |_| {});
    // The liar says that it holds everything, and always sends the second chunk.
    let (address, _) = liar(&hall.site, Fault::Answers(frame_answer(&hall.site.image.frames[1]))).await;
    let _liars = hall.join(9, 0, address);
    let killed = hall.begin(8, 0, MEMORY).await;
    let mut members = Vec::new();
    for number in 2..5 {
        members.push(hall.begin(number, 0, MEMORY).await);
    }
    killed.download.abort();
    killed.served.stop().await;
    for member in &mut members {
        member.finish(CHUNKS).await;
    }
    let lies = hall.lies.lock().unwrap().clone();
    let reporters: HashSet<AgentNo> = lies.iter().map(|(reporter, _)| *reporter).collect();
    assert!(lies.iter().all(|(_, of)| *of == AgentNo(9)), "{lies:?}");
    assert_eq!(reporters.len(), lies.len(), "each reports it once: {lies:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agents_without_memory_to_serve_get_the_image_from_the_origin() {
    const CHUNKS: u32 = 2;
    let hall = Hall::new(CHUNKS, |_| {});
    let mut members = Vec::new();
    for number in 0..2 {
        members.push(hall.begin(number, 0, 0).await);
    }
    for member in &mut members {
        let counts = member.finish(CHUNKS).await;
        assert_eq!((counts.from_origin, counts.from_rack), (CHUNKS, 0));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_with_a_refused_ticket_gets_the_image_and_reports_no_agent() {
    const CHUNKS: u32 = 2;
    let hall = Hall {
        stuck_after: Span::seconds(1),
        ..Hall::new(CHUNKS, |_| {})
    };
    let mut holder = hall.begin(0, 0, MEMORY).await;
    holder.finish(CHUNKS).await;
    let own = agent("gpu-001");
    let ticket = Ticket {
        customer: "customers/chemistry".to_owned(),
        ..hall.site.ticket(&own)
    };
    let mut member = hall.begin_with(1, 0, MEMORY, ticket).await;
    let counts = member.finish(CHUNKS).await;
    assert_eq!((counts.from_origin, counts.from_rack), (CHUNKS, 0));
    assert!(holder.served.server.counts().refused > 0, "the ticket was shown");
    assert_eq!(*hall.silent.lock().unwrap(), []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_only_agent_fetches_six_chunks_at_once() {
    const CHUNKS: u32 = 7;
    let hall = Hall::new(CHUNKS, |servers| servers.together = 6);
    let mut member = hall.begin(0, 0, MEMORY).await;
    let counts = member.finish(CHUNKS).await;
    assert_eq!(counts.from_origin, CHUNKS);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_download_ends_with_the_cause_that_no_agent_can_mend() {
    type Case = (fn(&mut Servers), fn(&SpreadError) -> bool);
    let cases: [Case; 2] = [
        (
            |servers| servers.is_wrong = true,
            |error| matches!(error, SpreadError::WrongOrigin(_)),
        ),
        (
            |servers| servers.is_missing = true,
            |error| matches!(error, SpreadError::Origin(_)),
        ),
    ];
    for (change, is_expected) in cases {
        let hall = Hall::new(1, change);
        let mut member = hall.begin(0, 0, MEMORY).await;
        let error = tokio::time::timeout(PATIENT, &mut member.download)
            .await
            .unwrap()
            .unwrap();
        let error = error.result.unwrap_err();
        assert!(is_expected(&error), "{error}");
        assert!(member.taken.lock().unwrap().is_empty());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_shows_every_chunk_and_gives_none_does_not_hold_up_a_download_for_ever() {
    const CHUNKS: u32 = 3;
    let hall = Hall {
        patience: Duration::from_secs(2),
        ..Hall::new(CHUNKS, |_| {})
    };
    // "No room now", with the set of all three chunks. So the table grants the rack nothing. A single report about one of two
    // such agents changes nothing.
    let mut streams = Vec::new();
    for number in [8, 9] {
        let (address, _) = liar(&hall.site, Fault::Answers(vec![2, 0, 0b111])).await;
        streams.push(hall.join(number, 0, address));
        let shown = ToTable::Claim {
            wanted: 0,
            held: Bits::full(CHUNKS),
            stuck: Vec::new(),
        };
        hall.table.0.send(ToActor::Message(AgentNo(number), shown)).unwrap();
    }
    let mut member = hall.begin(1, 0, MEMORY).await;
    let end = tokio::time::timeout(PATIENT, &mut member.download).await.unwrap();
    let error = end.unwrap().result.unwrap_err();
    assert!(matches!(error, SpreadError::NoProgress { came: 0, .. }), "{error}");
    assert!(error.to_string().starts_with("only 0 chunks came in 2 s"), "{error}");
}

#[test]
fn a_frame_of_the_image_servers_may_be_packed_in_another_way_and_is_not_passed_on() {
    let site = Site::new(1);
    let chunk = &site.image.chunks[0];
    let mut check: FrameCheck = site.image.check();
    let mut data = vec![0; chunk.len()];
    let plain = check
        .open_own(Chunk(0), &site.image.frames[0], &mut data)
        .unwrap()
        .unwrap();
    assert!(data == *chunk && plain.bytes() == site.image.frames[0]);
    // A stream's header declares no size.
    let stream = zstd::encode_all(&chunk[..], 1).unwrap();
    data.fill(0);
    assert!(check.open_own(Chunk(0), &stream, &mut data).unwrap().is_none());
    assert!(data == *chunk);
    assert!(check.open(Chunk(0), stream, &mut data).is_err());
    assert!(check.open_own(Chunk(0), b"rubbish", &mut data).is_err());
}
