//! Agents that write one image and exchange its chunks: the jobs of several agents in this process, each with an address of
//! its own, a chunk store with HTTPS, and a control plane with the real claim table.

// Helpers outside of test functions.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

#[path = "../../../image/tests/support/mod.rs"]
mod image;
#[path = "../../../bench/src/fanout/keys.rs"]
mod keys;
#[path = "../../../bench/src/fanout/plane.rs"]
mod plane;
mod site;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rackwright_agent::session;
use rackwright_api::v1::chunk_message::Message as Up;
use rackwright_api::v1::{BeginChunks, ChunkMessage, JobState, WriteImageResult};
use rackwright_fanout::{Bits, Chunk, OwnJob, Refusal};
use rackwright_identity::{ClientTrust, ServerCertificate, peer_server_config};
use rackwright_image::codec::Encoder;
use rackwright_image::{CHUNK_SIZE, ChunkDigest, DataChunk, Format, Index, Sha256};
use rackwright_peers::{
    Answer, AskError, ClientSettings, FrameCheck, FrameStore, PeerAddress, PeerClient, PeerServer, ServerSettings,
    Serving, SignedTicket, TicketRefusal,
};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use secrecy::ExposeSecret as _;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

use plane::Plane;
use site::{Node, Site, agent};

/// Generous: the tests wait for events.
pub const WAIT: Duration = Duration::from_secs(180);
const MEMORY: u64 = 4 << 30;

async fn nodes(site: &Site, plane: &Plane, names: &[&str]) -> Vec<Node> {
    let nodes = names.iter().zip(2..);
    nodes
        .map(|(name, address)| site.node(name, address, &plane.url))
        .collect()
}

fn came(result: &WriteImageResult) -> u64 {
    result.chunks_from_servers + result.chunks_from_rack + result.chunks_from_other_racks
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn four_agents_in_two_racks_take_an_image_from_the_store_once() {
    const CHUNKS: usize = 24;
    let site = Site::new(CHUNKS);
    let plane = site.plane().await;
    let nodes = nodes(&site, &plane, &["left-1", "left-2", "right-1", "right-2"]).await;
    nodes.iter().for_each(|node| node.begin(&site));
    let mut results = Vec::new();
    for node in &nodes {
        let (result, step) = node.finish(&site).await;
        assert!(!step.contains("other agents"), "{step}");
        assert_eq!(came(&result), CHUNKS as u64, "{result:?}");
        assert!(result.fetched_bytes >= site.disk.len() as u64, "{result:?}");
        assert_eq!(
            (result.logical_bytes, result.written_bytes),
            (site.disk.len() as u64, site.disk.len() as u64)
        );
        assert!(node.runner.sharing().is_serving(), "others may come");
        results.push(result);
    }
    let requests = site.store_requests();
    assert_eq!(requests.len(), CHUNKS, "each chunk was given");
    let given: usize = requests.values().sum();
    assert!(given <= CHUNKS * 3 / 2, "{given} of {CHUNKS} chunks: {results:?}");
    let from_agents: u64 = results.iter().map(|result| result.chunks_from_rack).sum();
    assert!(from_agents >= CHUNKS as u64, "{results:?}");
    assert!(plane.origin_chunks() <= (CHUNKS * 3 / 2) as u64);
    assert!(plane.reports().is_empty());
    assert_eq!(plane.begins().len(), 4);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_is_killed_holds_up_no_other_one() {
    const CHUNKS: usize = 16;
    let site = Site::new(CHUNKS);
    let plane = site.plane().await;
    let nodes = nodes(&site, &plane, &["gpu-1", "gpu-2", "gpu-3"]).await;
    nodes.iter().for_each(|node| node.begin(&site));
    nodes[0].progress(3 * CHUNK_SIZE as u64).await;
    nodes[0].runner.abandon();
    assert!(!nodes[0].runner.sharing().is_serving());
    for node in &nodes[1..] {
        let (result, _) = node.finish(&site).await;
        assert_eq!(came(&result), CHUNKS as u64, "{result:?}");
    }
    let report = nodes[0].ended("op-1").await;
    if report.state() != JobState::Succeeded {
        assert_eq!(report.error.unwrap().code, "interrupted");
    }
}

/// An agent of the site that serves chunks of another image with the same number of chunks: their frames are sound, their
/// content is not the image's.
async fn liar(site: &Site, plane: &Plane, chunks: usize) -> (mpsc::Sender<ChunkMessage>, tokio::task::JoinHandle<()>) {
    let identity = agent("gpu-9");
    let credentials = site.keys.credentials(&identity).unwrap();
    let content = image::noise(5, CHUNK_SIZE);
    let mut frame = Vec::new();
    Encoder::new(1).unwrap().encode(&content, &mut frame).unwrap();
    let digest = ChunkDigest::of(&content);
    let data = (0..chunks as u32).map(|number| DataChunk { number, digest });
    let other = Index::new(
        (chunks * CHUNK_SIZE) as u64,
        Format::Raw,
        Sha256([0; 32]),
        data.collect(),
    )
    .unwrap();
    let store = Arc::new(FrameStore::new(&other, MEMORY, 4));
    let mut check = FrameCheck::new(Arc::new(other)).unwrap();
    let mut buffer = vec![0; CHUNK_SIZE];
    for chunk in 0..chunks as u32 {
        let verified = check.open(Chunk(chunk), frame.clone(), &mut buffer).unwrap();
        assert!(store.offer(verified, |_| 0));
    }
    let serving = Serving {
        job: own_job(site),
        ticket_keys: vec![site.keys.signer.public_key()],
        store,
        clock: Arc::new(rackwright_agent::clock::unix_s),
        heard: Arc::new(|_, _| {}),
    };
    let (own, trust) = tls(site, &credentials);
    let tls = peer_server_config(own, trust).unwrap();
    let node = site.node("gpu-9", 9, &plane.url);
    let listener = TcpListener::bind(SocketAddr::new(node.address, site.port))
        .await
        .unwrap();
    let server = PeerServer::new(serving, tls, ServerSettings::default());
    let serve = tokio::spawn(async move { server.run(listener, std::future::pending()).await });
    let client = session::connect(&*node.host, &plane.url, &site.keys.ca_pem, Some(&credentials)).await;
    let (up, queue) = mpsc::channel(4);
    let begin = BeginChunks {
        operation: "op-1".into(),
        held: Bits::full(chunks as u32).to_bytes(),
        fetching: Vec::new(),
        port: site.port.into(),
    };
    let message = Some(Up::Begin(begin));
    up.send(ChunkMessage { message }).await.unwrap();
    let mut answers = client
        .unwrap()
        .claim_chunks(ReceiverStream::new(queue))
        .await
        .unwrap()
        .into_inner();
    tokio::spawn(async move { while let Ok(Some(_)) = answers.message().await {} });
    (up, serve)
}

fn own_job(site: &Site) -> OwnJob {
    OwnJob {
        image: site.image.to_string(),
        customer: "customers/physics".into(),
        is_public: false,
    }
}

fn tls(
    site: &Site,
    credentials: &rackwright_agent::jobs::writer::Credentials,
) -> (Arc<ServerCertificate>, Arc<ClientTrust>) {
    let key = credentials.key_pem.expose_secret().as_bytes();
    let own = ServerCertificate::of_pem(credentials.certificate_pem.as_bytes(), key).unwrap();
    let ca = CertificateDer::from_pem_slice(site.keys.ca_pem.as_bytes()).unwrap();
    (own, ClientTrust::new(&[ca]).unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_sends_wrong_bytes_is_reported_and_the_drives_are_right() {
    const CHUNKS: usize = 8;
    let site = Site::new(CHUNKS);
    let plane = site.plane().await;
    let (_up, serve) = liar(&site, &plane, CHUNKS).await;
    timeout(WAIT, async {
        while plane.begins().is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await
    .unwrap();
    let nodes = nodes(&site, &plane, &["gpu-1", "gpu-2"]).await;
    nodes.iter().for_each(|node| node.begin(&site));
    for node in &nodes {
        let (result, _) = node.finish(&site).await;
        assert_eq!(came(&result), CHUNKS as u64, "{result:?}");
    }
    let reports = plane.reports();
    assert!(!reports.is_empty(), "the liar was asked");
    assert!(reports.iter().all(|(_, of, _)| of == "nodes/gpu-9"), "{reports:?}");
    let reporters: BTreeSet<_> = reports.iter().map(|(reporter, ..)| reporter).collect();
    assert_eq!(reporters.len(), reports.len(), "each reports it once: {reports:?}");
    serve.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_claim_stream_comes_back_and_the_job_goes_on() {
    const CHUNKS: usize = 24;
    let site = Site::new(CHUNKS);
    let plane = site.plane().await;
    let nodes = nodes(&site, &plane, &["gpu-1", "gpu-2", "gpu-3"]).await;
    nodes.iter().for_each(|node| node.begin(&site));
    nodes[0].progress(4 * CHUNK_SIZE as u64).await;
    plane.restart();
    for node in &nodes {
        let (result, step) = node.finish(&site).await;
        assert_eq!(came(&result), CHUNKS as u64, "{result:?}");
        assert!(!step.contains("other agents"), "{step}");
    }
    let back = timeout(WAIT, async {
        loop {
            let begins = plane.begins();
            if let Some((_, begin)) = begins.get(3..).and_then(|again| again.first()) {
                return begin.clone();
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    let held = Bits::from_bytes(CHUNKS as u32, &back.await.unwrap().held).unwrap();
    assert!(!held.is_empty(), "the new table learns what the agent holds");
    let given: usize = site.store_requests().values().sum();
    assert!(given < 3 * CHUNKS, "not each agent fetched all: {given}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_control_plane_that_refuses_claims_costs_only_traffic() {
    const CHUNKS: usize = 8;
    let site = Site::new(CHUNKS);
    let plane = site.plane().await;
    plane.refuse(&Status::failed_precondition("no chunks for you"));
    let node = site.node("gpu-1", 2, &plane.url);
    node.begin(&site);
    let (result, step) = node.finish(&site).await;
    assert_eq!(
        (result.chunks_from_servers, result.chunks_from_rack),
        (CHUNKS as u64, 0)
    );
    assert!(step.contains("8 chunks without other agents"), "{step}");
    assert!(step.contains("no chunks for you"), "{step}");
    assert!(!node.runner.sharing().is_serving());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claims_that_are_refused_midway_lose_no_chunk_that_is_written() {
    const CHUNKS: usize = 24;
    let site = Site::new(CHUNKS);
    let plane = site.plane().await;
    let node = site.node("gpu-1", 2, &plane.url);
    node.begin(&site);
    node.progress(3 * CHUNK_SIZE as u64).await;
    plane.refuse(&Status::failed_precondition("no more chunks"));
    let (result, step) = node.finish(&site).await;
    assert_eq!(result.chunks_from_servers, CHUNKS as u64);
    // A job that was through already has no remark.
    let given: usize = site.store_requests().values().sum();
    // Requests that ran at that moment are repeated.
    assert!(given <= CHUNKS + 4, "{given}: {step}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_cannot_listen_or_has_a_wrong_ticket_writes_without_others() {
    const CHUNKS: usize = 3;
    let site = Site::new(CHUNKS);
    let plane = site.plane().await;
    let node = site.node("gpu-1", 2, &plane.url);
    let taken = TcpListener::bind(SocketAddr::new(node.address, site.port))
        .await
        .unwrap();
    node.begin(&site);
    let (result, step) = node.finish(&site).await;
    assert_eq!((came(&result), result.fetched_bytes > 0), (0, true));
    assert!(
        step.contains("written without other agents") && step.contains("listen"),
        "{step}"
    );
    drop(taken);

    let node = site.node("gpu-2", 3, &plane.url);
    let mut peers = site.peers(&node.identity);
    peers.ticket[30] ^= 1;
    node.runner.submit(node.job(&site, "op-1", Some(peers)));
    let (_, step) = node.finish(&site).await;
    assert!(
        step.contains("written without other agents") && step.contains("ticket"),
        "{step}"
    );
    assert!(plane.begins().is_empty());
    assert!(!node.runner.sharing().is_serving());

    // A certificate without a boot is none that others accept.
    let node = site.node("gpu-3", 4, &plane.url);
    let identity = rackwright_identity::ClientIdentity::agent("gpu-3", 7).unwrap();
    node.runner.set_credentials(site.keys.credentials(&identity).unwrap());
    node.begin(&site);
    let (_, step) = node.finish(&site).await;
    assert!(step.contains("certificate"), "{step}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_has_its_image_says_again_what_it_holds() {
    const CHUNKS: usize = 2;
    let site = Site::new(CHUNKS);
    let plane = site.plane().await;
    let node = site.node("gpu-1", 2, &plane.url);
    node.begin(&site);
    node.finish(&site).await;
    let again = timeout(WAIT, async {
        // The first one ends its download.
        while plane.idle_claims() < 2 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    again.await.unwrap();
}

/// Asks the agent for the first chunk, with this ticket.
async fn ask(site: &Site, node: &Node, asker: &str, ticket: SignedTicket) -> Result<Answer, AskError> {
    let identity = agent(asker);
    let (own, trust) = tls(site, &site.keys.credentials(&identity).unwrap());
    let store = Arc::new(FrameStore::new(&site.index, MEMORY, 4));
    let client = PeerClient::new(own, trust, ticket, store, ClientSettings::default());
    let peer = PeerAddress {
        at: SocketAddr::new(node.address, site.port),
        agent: node.identity.clone(),
        is_outside: false,
    };
    client.ask(&peer, Chunk(0), Instant::now() + WAIT).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_serves_its_customer_after_its_job_until_the_next_one() {
    const CHUNKS: usize = 3;
    let site = Site::new(CHUNKS);
    let plane = site.plane().await;
    let node = site.node("gpu-1", 2, &plane.url);
    node.begin(&site);
    node.finish(&site).await;
    let other = agent("gpu-2");
    let refused = ask(&site, &node, "gpu-2", site.ticket(&other, "customers/chemistry")).await;
    let is_refused = matches!(
        refused,
        Err(AskError::Refused {
            reason: TicketRefusal::Refused(Refusal::OtherCustomer),
            ..
        })
    );
    assert!(is_refused, "{refused:?}");
    let ticket = site.ticket(&other, "customers/physics");
    let answer = ask(&site, &node, "gpu-2", ticket.clone()).await;
    assert!(matches!(answer, Ok(Answer::Frame(..))), "{answer:?}");
    // A renewed certificate changes nothing for others.
    node.runner
        .set_credentials(site.keys.credentials(&node.identity).unwrap());
    let answer = ask(&site, &node, "gpu-2", ticket.clone()).await;
    assert!(matches!(answer, Ok(Answer::Frame(..))), "{answer:?}");

    // The next job listens at the same port, and serves again.
    node.runner
        .submit(node.job(&site, "op-2", Some(site.peers(&node.identity))));
    let report = node.ended("op-2").await;
    assert_eq!(report.state(), JobState::Succeeded, "{report:?}");
    assert!(!report.progress.unwrap().step.contains("other agents"));
    let answer = ask(&site, &node, "gpu-2", ticket.clone()).await;
    assert!(matches!(answer, Ok(Answer::Frame(..))), "{answer:?}");
    // A job without peers ends it.
    node.runner.submit(node.job(&site, "op-3", None));
    assert!(!node.runner.sharing().is_serving());
    assert_eq!(node.ended("op-3").await.state(), JobState::Succeeded);
    let answer = ask(&site, &node, "gpu-2", ticket).await;
    assert!(matches!(answer, Err(AskError::Unreachable { .. })), "{answer:?}");
}
