//! The agents' call for chunks, over TLS: which agents are heard, what they learn of each other, and the ticket of a job.

use std::path::Path;
use std::time::{Duration, SystemTime};

use rackwright_api::v1;
use rackwright_api::v1::agent_message::Message as Up;
use rackwright_api::v1::agent_service_client::AgentServiceClient;
use rackwright_api::v1::chunk_message::Message as Chunks;
use rackwright_api::v1::control_message::Message as Control;
use rackwright_api::v1::grant_message::Message as Down;
use rackwright_api::v1::job::Work;
use rackwright_ground::config::Config;
use rackwright_ground::core::Core;
use rackwright_ground::testing;
use rackwright_identity::{CertificateSigner, ClientIdentity, ClientKey, KeyFiles, SystemRng};
use rackwright_sim::install_crypto;
use rackwright_store::AgentSession;
use rackwright_tests::member::{authority, identity};
use rackwright_tests::ports::free_port;
use rackwright_tests::site::Site;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Code, Status, Streaming};

const CHUNKS: u32 = 12;
/// Longer than anything here takes on a busy computer.
const TEST_LIMIT: Duration = Duration::from_secs(60);

/// A control plane, and two nodes of a rack that write an image.
struct Bench {
    site: Site,
    api: u16,
    image: String,
    agents: Vec<Agent>,
}

/// An agent with its certificate, as the control plane issued it when it registered.
struct Agent {
    node: &'static str,
    of: AgentSession,
    operation: String,
}

impl Agent {
    async fn new(core: &Core, node: &'static str, image: &str) -> Self {
        let (of, operation) = testing::writing(core, node, "r1", image).await;
        Self { node, of, operation }
    }

    fn identity(&self) -> ClientIdentity {
        ClientIdentity::agent_of_boot(self.node, self.of.generation, &self.of.boot).expect("a name")
    }

    fn begin(&self) -> Chunks {
        Chunks::Begin(v1::BeginChunks {
            operation: self.operation.clone(),
            held: vec![0; 2],
            fetching: Vec::new(),
            port: 8470,
        })
    }
}

impl Bench {
    async fn start(dir: &Path) -> Self {
        install_crypto();
        let [api, store] = std::array::from_fn(|_| free_port());
        let config = format!(
            "data_dir: {}/data\napi: {{listen: \"127.0.0.1:{api}\", names: [\"127.0.0.1\"]}}\n\
             store: {{listen: \"127.0.0.1:{store}\"}}\nimages: {{peers: true, peer_port: 8471}}\n",
            dir.display()
        );
        let mut site = Site::start_with(dir, &config).await;
        site.halt().await;
        // No machine has to boot: the nodes are in the database, as after their boots.
        let config = Config::load(&dir.join("rackwrightd.yaml")).expect("the daemon took it");
        let core = testing::open(config).await.expect("the daemon does not run");
        let image = testing::put_index(&core, CHUNKS);
        let agents = vec![
            Agent::new(&core, "n1", &image).await,
            Agent::new(&core, "n2", &image).await,
        ];
        drop(core);
        site.restart().await;
        Self {
            site,
            api,
            image,
            agents,
        }
    }

    fn keys(&self) -> KeyFiles {
        let data = self.site.dir().join("data");
        let keys = KeyFiles::load_or_create(&data, "", SystemTime::now(), std::sync::Arc::new(SystemRng));
        keys.expect("the keys are there")
    }

    /// A connection with a certificate of the site for this agent.
    fn agent(&self, identity: &ClientIdentity) -> AgentServiceClient<Channel> {
        let key = rcgen::KeyPair::generate().expect("a key can be made");
        let request = rcgen::CertificateParams::default().serialize_request(&key);
        let request = request.and_then(|request| request.pem()).expect("a request");
        let public = ClientKey::of_request(&request).expect("the request is right");
        let hour = Duration::from_secs(3600);
        let issued = self
            .keys()
            .authority
            .issue_client(&public, identity, SystemTime::now(), hour);
        let certificate = issued.expect("the authority issues").certificate_pem;
        self.client(Some(Identity::from_pem(certificate, key.serialize_pem())))
    }

    fn client(&self, identity: Option<Identity>) -> AgentServiceClient<Channel> {
        let ca = Certificate::from_pem(authority(&self.site.dir().join("cli")));
        let mut tls = ClientTlsConfig::new().ca_certificate(ca);
        if let Some(identity) = identity {
            tls = tls.identity(identity);
        }
        let endpoint = Endpoint::from_shared(format!("https://127.0.0.1:{}", self.api)).expect("a URL");
        let endpoint = endpoint.tls_config(tls).expect("PEM").timeout(TEST_LIMIT);
        AgentServiceClient::new(endpoint.connect_lazy())
    }

    /// Connects an agent. Returns its session, and the job that comes.
    async fn session(&self, agent: &Agent) -> (mpsc::Sender<v1::AgentMessage>, v1::Job) {
        let (up, messages) = mpsc::channel(8);
        let hello = v1::Hello {
            boot_id: "kernel".into(),
            ..v1::Hello::default()
        };
        let message = Some(Up::Hello(hello));
        up.send(v1::AgentMessage { message }).await.expect("there is room");
        let mut client = self.agent(&agent.identity());
        let down = client.connect(ReceiverStream::new(messages)).await;
        let mut down = down.expect("the agent is known").into_inner();
        let job = loop {
            let message = down.message().await.expect("the session lasts").expect("a job comes");
            if let Some(Control::Job(job)) = message.message {
                break job;
            }
        };
        // The session lasts as long as its stream is read.
        tokio::spawn(async move { while let Ok(Some(_)) = down.message().await {} });
        (up, job)
    }
}

/// An open stream for chunks.
#[derive(Debug)]
struct Claiming {
    up: mpsc::Sender<v1::ChunkMessage>,
    down: Streaming<v1::GrantMessage>,
}

async fn claim(mut client: AgentServiceClient<Channel>, first: Chunks) -> Result<Claiming, Status> {
    let (up, messages) = mpsc::channel(8);
    let message = Some(first);
    up.send(v1::ChunkMessage { message }).await.expect("there is room");
    let down = client.claim_chunks(ReceiverStream::new(messages)).await?.into_inner();
    Ok(Claiming { up, down })
}

impl Claiming {
    async fn next(&mut self) -> Down {
        let next = tokio::time::timeout(TEST_LIMIT, self.down.message()).await;
        let message = next.expect("it comes in time").expect("the stream lasts");
        message.and_then(|message| message.message).expect("a message")
    }

    async fn end(&mut self) -> Status {
        let ended = async {
            loop {
                match self.down.message().await {
                    Ok(Some(_)) => {}
                    Ok(None) => panic!("the stream ended without a reason"),
                    Err(status) => return status,
                }
            }
        };
        tokio::time::timeout(TEST_LIMIT, ended).await.expect("it ends in time")
    }
}

fn check_job(bench: &Bench, agent: &Agent, job: v1::Job) {
    assert_eq!(job.operation, agent.operation);
    let Some(Work::WriteImage(write)) = job.work else {
        panic!("the job is to write an image");
    };
    let peers = write.peers.expect("the settings say so");
    assert_eq!(peers.port, 8471);
    let key = bench.keys().signer.public_key();
    assert!(peers.ticket_keys.contains(&key.to_vec()));
    CertificateSigner::verify(&key, &peers.ticket, &peers.ticket_signature).expect("the site signed it");
    let ticket = String::from_utf8(peers.ticket).expect("it is text");
    for line in [
        format!("image={}", bench.image),
        format!("node={}", agent.node),
        format!("generation={}", agent.of.generation),
        format!("boot={}", agent.of.boot),
    ] {
        assert!(ticket.lines().any(|found| found == line), "{line} is not in {ticket}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agents_of_a_rack_get_tickets_mates_and_grants_and_others_are_refused() {
    let dir = tempfile::tempdir().expect("a folder");
    let bench = Bench::start(dir.path()).await;
    let [one, two] = [&bench.agents[0], &bench.agents[1]];
    let refused = claim(bench.agent(&one.identity()), one.begin()).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unauthenticated, "without a session: {refused:?}");

    let (first_session, job) = bench.session(one).await;
    check_job(&bench, one, job);
    let (_second_session, job) = bench.session(two).await;
    check_job(&bench, two, job);
    others_are_refused(&bench, one).await;

    let mut first = claim(bench.agent(&one.identity()), one.begin())
        .await
        .expect("it is its job");
    let _second = claim(bench.agent(&two.identity()), two.begin())
        .await
        .expect("it is its job");
    let Down::Mate(mate) = first.next().await else {
        panic!("the other agent of the rack comes first");
    };
    let named = (
        mate.node.as_str(),
        mate.claim_generation,
        mate.boot.as_str(),
        mate.address.as_str(),
    );
    assert_eq!(
        named,
        ("nodes/n2", two.of.generation, two.of.boot.as_str(), "127.0.0.1:8470")
    );
    let claims = v1::ClaimChunk {
        wanted: 1,
        held: vec![0; 2],
        stuck: Vec::new(),
    };
    let message = Some(Chunks::Claim(claims));
    first
        .up
        .send(v1::ChunkMessage { message })
        .await
        .expect("the stream lasts");
    let Down::Grant(grant) = first.next().await else {
        panic!("the grant comes next");
    };
    assert!(
        grant.chunk < CHUNKS && grant.source.is_none() && grant.lease_ms > 0,
        "{grant:?}"
    );

    let mut again = claim(bench.agent(&one.identity()), one.begin())
        .await
        .expect("it may begin again");
    let ended = first.end().await;
    assert!(ended.message().contains("a newer stream"), "{ended:?}");
    drop(first_session);
    let ended = again.end().await;
    assert!(ended.message().contains("session has ended"), "{ended:?}");
    let log = bench.site.log_tail();
    assert!(!log.contains("panicked"), "{log}");
    bench.site.stop().await;
}

async fn others_are_refused(bench: &Bench, agent: &Agent) {
    let of = |generation, boot: &str| ClientIdentity::agent_of_boot(agent.node, generation, boot).expect("a name");
    let member = identity(&bench.site.dir().join("cli"));
    let (generation, boot) = (agent.of.generation, agent.of.boot.as_str());
    let wrong = |operation: &str, held: usize| {
        Chunks::Begin(v1::BeginChunks {
            operation: operation.to_owned(),
            held: vec![0; held],
            port: 8470,
            ..v1::BeginChunks::default()
        })
    };
    let own = &agent.operation;
    let other = &bench.agents[1].operation;
    for (client, first, code, words) in [
        (bench.client(None), agent.begin(), Code::Unauthenticated, ""),
        (bench.client(Some(member)), agent.begin(), Code::PermissionDenied, ""),
        (
            bench.agent(&of(generation + 1, boot)),
            agent.begin(),
            Code::Unauthenticated,
            "no session here",
        ),
        (
            bench.agent(&of(generation, "former")),
            agent.begin(),
            Code::Unauthenticated,
            "no session here",
        ),
        (
            bench.agent(&agent.identity()),
            wrong(other, 2),
            Code::FailedPrecondition,
            "no open write",
        ),
        (
            bench.agent(&agent.identity()),
            wrong("", 2),
            Code::FailedPrecondition,
            "no open write",
        ),
        (
            bench.agent(&agent.identity()),
            wrong(own, 4096),
            Code::InvalidArgument,
            "begin.held",
        ),
        (
            bench.agent(&agent.identity()),
            Chunks::Failed(1),
            Code::InvalidArgument,
            "begin",
        ),
    ] {
        let refused = claim(client, first).await.unwrap_err();
        assert_eq!(refused.code(), code, "{refused:?}");
        assert!(refused.message().contains(words), "{refused:?}");
    }
}
