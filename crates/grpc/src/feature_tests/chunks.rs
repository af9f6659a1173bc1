//! The stream by which agents claim chunks, with the served services and without connections.

use std::sync::Arc;

use rackwright_api::v1;
use rackwright_api::v1::agent_service_client::AgentServiceClient;
use rackwright_api::v1::chunk_message::Message as Up;
use rackwright_api::v1::grant_message::Message as Down;
use rackwright_api::v1::image_service_client::ImageServiceClient;
use rackwright_ground::clock;
use rackwright_ground::core::Core;
use rackwright_ground::testing::{self, TestCore};
use rackwright_identity::ClientIdentity;
use rackwright_lifecycle::{NodeId, Outcome};
use rackwright_nodes::agent_session::admit_agent;
use rackwright_nodes::attestation::TpmEvidence;
use rackwright_spread::Spreads;
use rackwright_store::{AgentSession, ImageVersionRow, Scope};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::{Code, Status, Streaming};

use crate::tenancy::{as_identity, as_member, join};

const CHUNKS: u32 = 12;

async fn site() -> (TestCore, String) {
    let core = testing::core_with("images: {peers: true}\n").await;
    let image = testing::put_index(&core, CHUNKS);
    (core, image)
}

/// A node that writes the image, with its agent's session.
struct Writer {
    node: &'static str,
    of: AgentSession,
    operation: String,
}

impl Writer {
    async fn start(core: &Arc<Core>, node: &'static str, rack: &str, image: &str) -> Self {
        let (of, operation) = testing::writing(core, node, rack, image).await;
        let writer = Self { node, of, operation };
        writer.connect(core).await;
        writer
    }

    /// Begins a session of the agent, as `Connect` does.
    async fn connect(&self, core: &Core) {
        let agent = rackwright_nodes::testing::arriving_agent(self.node, self.of.clone(), "kernel");
        let (sender, end) = (mpsc::channel(1).0, CancellationToken::new());
        let admitted = admit_agent(core, &agent, &TpmEvidence::Nothing(String::new()), sender, end).await;
        assert!(matches!(admitted, Ok(Ok(_))));
    }

    fn identity(&self) -> ClientIdentity {
        ClientIdentity::agent_of_boot(self.node, self.of.generation, &self.of.boot).unwrap()
    }

    fn begin(&self) -> v1::BeginChunks {
        v1::BeginChunks {
            operation: self.operation.clone(),
            held: vec![0; 2],
            fetching: Vec::new(),
            port: 8470,
        }
    }

    async fn opens(&self, core: &Arc<Core>) -> Claiming {
        Claiming::open(core, self.identity(), Up::Begin(self.begin()))
            .await
            .unwrap()
    }
}

/// An open stream.
#[derive(Debug)]
struct Claiming {
    up: mpsc::Sender<v1::ChunkMessage>,
    down: Streaming<v1::GrantMessage>,
}

impl Claiming {
    async fn open(core: &Arc<Core>, identity: ClientIdentity, first: Up) -> Result<Self, Status> {
        let (up, messages) = mpsc::channel(8);
        up.send(v1::ChunkMessage { message: Some(first) }).await.unwrap();
        let mut client = AgentServiceClient::new(as_identity(core, identity));
        let down = client.claim_chunks(ReceiverStream::new(messages)).await?.into_inner();
        Ok(Self { up, down })
    }

    async fn send(&self, message: Up) {
        self.up.send(v1::ChunkMessage { message: Some(message) }).await.unwrap();
    }

    async fn wants(&self, wanted: u32) {
        self.wants_beside(wanted, vec![0; 2]).await;
    }

    async fn wants_beside(&self, wanted: u32, held: Vec<u8>) {
        let stuck = Vec::new();
        self.send(Up::Claim(v1::ClaimChunk { wanted, held, stuck })).await;
    }

    async fn next(&mut self) -> Down {
        self.down.message().await.unwrap().unwrap().message.unwrap()
    }

    async fn mate(&mut self) -> v1::PeerAgent {
        match self.next().await {
            Down::Mate(mate) => mate,
            Down::Grant(grant) => panic!("{grant:?}"),
        }
    }

    async fn grant(&mut self) -> v1::ChunkGrant {
        match self.next().await {
            Down::Grant(grant) => grant,
            Down::Mate(mate) => panic!("{mate:?}"),
        }
    }

    /// Ends the stream, as an agent does after its write.
    async fn close(self) -> (Code, String) {
        let Self { up, mut down } = self;
        drop(up);
        end(&mut down).await
    }

    /// The code and the words with which the stream ends.
    async fn end(&mut self) -> (Code, String) {
        end(&mut self.down).await
    }
}

async fn end(down: &mut Streaming<v1::GrantMessage>) -> (Code, String) {
    loop {
        match down.message().await {
            Ok(Some(_)) => {}
            Ok(None) => return (Code::Ok, String::new()),
            Err(status) => return (status.code(), status.message().to_owned()),
        }
    }
}

async fn refused(core: &Arc<Core>, identity: ClientIdentity, first: Up) -> (Code, String) {
    let status = Claiming::open(core, identity, first).await.unwrap_err();
    (status.code(), status.message().to_owned())
}

#[tokio::test]
async fn agents_get_mates_and_grants_and_operators_see_the_spread() {
    let (core, image) = site().await;
    let one = Writer::start(&core, "n1", "r1", &image).await;
    let two = Writer::start(&core, "n2", "r1", &image).await;
    let far = Writer::start(&core, "n3", "r2", &image).await;
    let mut first = one.opens(&core).await;
    let mut second = two.opens(&core).await;
    let mut third = far.opens(&core).await;
    let mate = first.mate().await;
    assert_eq!((mate.node.as_str(), &mate.boot), ("nodes/n2", &two.of.boot));
    assert_eq!(
        (mate.claim_generation, mate.address.as_str()),
        (two.of.generation, "127.0.0.1:8470")
    );
    assert_eq!(second.mate().await.node, "nodes/n1");

    first.wants(1).await;
    let grant = first.grant().await;
    assert!(grant.source.is_none() && grant.lease_ms > 1000, "{grant:?}");
    let mut held = vec![0; 2];
    held[grant.chunk as usize / 8] |= 1 << (grant.chunk % 8);
    let chunk = grant.chunk;
    first.send(Up::Came(v1::ChunkCame { chunk, held })).await;
    third.wants(CHUNKS).await;
    let mut held = vec![0; 2];
    let source = loop {
        let grant = third.grant().await;
        if let Some(source) = grant.source {
            assert_eq!(grant.chunk, chunk, "the servers give the others");
            break source;
        }
        let chunk = grant.chunk;
        held[chunk as usize / 8] |= 1 << (chunk % 8);
        let came = v1::ChunkCame {
            chunk,
            held: held.clone(),
        };
        third.send(Up::Came(came)).await;
        third.wants_beside(CHUNKS, held.clone()).await;
    };
    assert_eq!(source.node, "nodes/n1");
    let wrong = v1::WrongChunk {
        node: "nodes/n1".into(),
        reason: "frame of 3 bytes".into(),
    };
    third.send(Up::Wrong(wrong.clone())).await;
    third.send(Up::Wrong(wrong)).await;
    third.wants(0).await;
    the_spread_is_shown(&core, &image).await;
    // The stream ends after the report is stored.
    assert_eq!(third.close().await, (Code::Ok, String::new()));
    let events = core.store.events(&Scope::Site, 0, "nodes/n1", 10).await.unwrap();
    let reports = events
        .iter()
        .filter(|event| event.kind == "security.agent-sent-wrong-bytes");
    assert_eq!(reports.count(), 1);
}

async fn the_spread_is_shown(core: &Arc<Core>, image: &str) {
    let row = ImageVersionRow {
        image_id: "debian".into(),
        digest: image.to_owned(),
        created_at: clock::now(),
        body: rackwright_store::ImageVersionBody::default(),
    };
    let mut tx = core.store.write().await.unwrap();
    tx.add_image_version(&row, "uid").await.unwrap();
    tx.commit().await.unwrap();
    join(core, "vera", "viewer", "").await;
    let mut images = ImageServiceClient::new(as_member(core, "vera"));
    let request = v1::GetImageSpreadRequest {
        name: "images/debian".into(),
    };
    let spread = images.get_image_spread(request).await.unwrap().into_inner();
    assert_eq!((spread.name.as_str(), spread.versions.len()), ("images/debian", 1));
    let version = &spread.versions[0];
    assert_eq!(version.name, format!("images/debian/versions/{image}"));
    let racks: Vec<_> = version
        .racks
        .iter()
        .map(|rack| (rack.rack.as_str(), rack.agents.len()))
        .collect();
    assert_eq!((version.chunks, racks), (CHUNKS, vec![("r1", 2), ("r2", 1)]));
    assert!(version.server_chunks > 0, "{version:?}");
    assert!(version.racks[0].agents[0].begin_time.is_some());
    let explained = crate::explain::explain(core, &NodeId::named("n1")).await.unwrap();
    let line = explained.facts.iter().find(|line| line.name == "chunks").unwrap();
    assert_eq!(
        line.value,
        "writes images/some with 1 other agent of its rack; holds 1 of 12 chunks for others"
    );
}

#[tokio::test]
async fn only_the_agent_of_the_present_session_with_its_open_write_is_heard() {
    let (core, image) = site().await;
    let writer = Writer::start(&core, "n1", "r1", &image).await;
    let begin = || Up::Begin(writer.begin());
    let of = |generation, boot: &str| ClientIdentity::agent_of_boot("n1", generation, boot).unwrap();
    let generation = writer.of.generation;
    for identity in [
        of(generation + 1, &writer.of.boot),
        of(generation, "another-boot"),
        ClientIdentity::agent("n1", generation).unwrap(),
        ClientIdentity::agent_of_boot("n9", generation, &writer.of.boot).unwrap(),
        ClientIdentity::agent_of_boot("unknown.525400000001", generation, &writer.of.boot).unwrap(),
    ] {
        let (code, words) = refused(&core, identity, begin()).await;
        assert!(
            code == Code::Unauthenticated && words.contains("has no session here"),
            "{words}"
        );
    }
    join(&core, "olga", "operator", "").await;
    let member = ClientIdentity::member("olga", 0).unwrap();
    let (code, words) = refused(&core, member, begin()).await;
    assert!(code == Code::PermissionDenied && words.contains("agent"), "{words}");

    let changed = |change: &dyn Fn(&mut v1::BeginChunks)| {
        let mut begin = writer.begin();
        change(&mut begin);
        Up::Begin(begin)
    };
    let operation = changed(&|begin| begin.operation = "another".into());
    let (code, words) = refused(&core, writer.identity(), operation).await;
    assert!(
        code == Code::FailedPrecondition && words.contains("no open write"),
        "{words}"
    );
    for (first, words) in [
        (
            changed(&|begin| begin.held = vec![0; 3]),
            "begin.held: the set of chunks has 3 bytes, expected 2",
        ),
        (changed(&|begin| begin.port = 70_000), "begin.port"),
        (
            changed(&|begin| begin.fetching = vec![CHUNKS]),
            "begin.fetching: the image has 12 chunks",
        ),
        (Up::Failed(1), "the first message must be begin"),
    ] {
        let (code, found) = refused(&core, writer.identity(), first).await;
        assert!(code == Code::InvalidArgument && found.contains(words), "{found}");
    }
    assert!(
        core.feature::<Spreads>().table(&image).is_none(),
        "no table without an agent"
    );

    let mut tx = core.store.write().await.unwrap();
    tx.end_effect(&writer.operation, &Outcome::Succeeded, clock::now())
        .await
        .unwrap();
    tx.commit().await.unwrap();
    let (code, words) = refused(&core, writer.identity(), begin()).await;
    assert!(
        code == Code::FailedPrecondition && words.contains("no open write"),
        "{words}"
    );
}

#[tokio::test]
async fn a_stream_ends_in_words_with_its_session_its_successor_and_a_wrong_message() {
    let (core, image) = site().await;
    let writer = Writer::start(&core, "n1", "r1", &image).await;
    let mut first = writer.opens(&core).await;
    let mut second = writer.opens(&core).await;
    let (code, words) = first.end().await;
    assert!(code == Code::Aborted && words.contains("a newer stream"), "{words}");

    let too_long = v1::ClaimChunk {
        wanted: 1,
        held: vec![0; 100],
        stuck: Vec::new(),
    };
    second.send(Up::Claim(too_long)).await;
    let (code, words) = second.end().await;
    assert!(code == Code::InvalidArgument && words.contains("claim.held"), "{words}");

    // A newer session of the same boot ends the stream of the former one.
    let mut third = writer.opens(&core).await;
    writer.connect(&core).await;
    let (code, words) = third.end().await;
    assert!(
        code == Code::Unavailable && words.contains("session has ended"),
        "{words}"
    );

    let mut fourth = writer.opens(&core).await;
    let number = core.agents.session(&"n1".into()).unwrap().number;
    rackwright_nodes::agent_session::note_disconnect(&core, &"n1".into(), number).await;
    let (code, words) = fourth.end().await;
    assert!(
        code == Code::Unavailable && words.contains("session has ended"),
        "{words}"
    );
    let (code, words) = refused(&core, writer.identity(), Up::Begin(writer.begin())).await;
    assert!(
        code == Code::Unauthenticated && words.contains("connect first"),
        "{words}"
    );
}

#[tokio::test]
async fn without_the_setting_agents_get_words_and_jobs_no_peers() {
    let core = testing::core().await;
    let identity = ClientIdentity::agent_of_boot("n1", 0, "boot").unwrap();
    let (code, words) = refused(&core, identity, Up::Begin(v1::BeginChunks::default())).await;
    assert!(
        code == Code::FailedPrecondition && words.contains("images.peers is false"),
        "{words}"
    );
}
