//! The ticket of a job at the server of another agent.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rackwright_fanout::{Chunk, OwnJob, Refusal};
use rackwright_ground::clock;
use rackwright_ground::core::Core;
use rackwright_ground::testing;
use rackwright_identity::{ClientIdentity, ClientKey, ClientTrust, ServerCertificate, peer_server_config};
use rackwright_image::{ChunkDigest, DataChunk, Format, ImageDigest, Index, Sha256};
use rackwright_lifecycle::{State, seconds};
use rackwright_peers::{
    Answer, AskError, ClientSettings, FrameStore, PeerAddress, PeerClient, PeerServer, ServerSettings, Serving,
    SignedTicket, TicketRefusal,
};
use tokio::net::TcpListener;
use tokio::time::Instant;

use super::*;

const MEMORY: u64 = 4 << 30;

/// A certificate as the control plane issues it to the agent of this session.
fn certificate(core: &Core, node: &str, of: &AgentSession) -> (ClientIdentity, Arc<ServerCertificate>) {
    let identity = ClientIdentity::agent_of_boot(node, of.generation, &of.boot).unwrap();
    let key = rcgen::KeyPair::generate().unwrap();
    let request = rcgen::CertificateParams::default().serialize_request(&key).unwrap();
    let public = ClientKey::of_request(&request.pem().unwrap()).unwrap();
    let hour = Duration::from_secs(3600);
    let issued = core
        .keys
        .authority
        .issue_client(&public, &identity, SystemTime::now(), hour);
    let issued = issued.unwrap().certificate_pem;
    let own = ServerCertificate::of_pem(issued.as_bytes(), key.serialize_pem().as_bytes()).unwrap();
    (identity, own)
}

fn index() -> Index {
    let chunk = DataChunk {
        number: 0,
        digest: ChunkDigest::of(b"chunk"),
    };
    Index::new(512, Format::Raw, Sha256([0; 32]), vec![chunk]).unwrap()
}

fn signed(peers: &v1::Peers) -> SignedTicket {
    let signature = peers.ticket_signature.as_slice().try_into().unwrap();
    SignedTicket::new(peers.ticket.clone(), signature).unwrap()
}

fn keys(peers: &v1::Peers) -> Vec<[u8; 32]> {
    peers
        .ticket_keys
        .iter()
        .map(|key| key.as_slice().try_into().unwrap())
        .collect()
}

/// An agent of another node and another customer, which serves the image by the job that it got.
async fn serving(core: &Core, trust: &Arc<ClientTrust>, peers: &v1::Peers, image: &str) -> PeerAddress {
    let of = AgentSession {
        generation: 9,
        boot: "boot-of-n2".into(),
    };
    let (agent, own) = certificate(core, "n2", &of);
    let serving = Serving {
        job: OwnJob {
            image: image.to_owned(),
            customer: "customers/other".into(),
            is_public: peers.is_public,
        },
        ticket_keys: keys(peers),
        store: Arc::new(FrameStore::new(&index(), MEMORY, 4)),
        clock: Arc::new(|| clock::now().0 / 1_000_000),
        heard: Arc::new(|_, _| {}),
    };
    let tls = peer_server_config(own, trust.clone()).unwrap();
    let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap();
    let at = listener.local_addr().unwrap();
    let server = PeerServer::new(serving, tls, ServerSettings::default());
    tokio::spawn(async move { server.run(listener, std::future::pending()).await });
    PeerAddress {
        at,
        agent,
        is_outside: false,
    }
}

#[tokio::test]
async fn another_agent_admits_the_ticket_of_a_job_with_the_certificate_of_the_agent() {
    let core = testing::core_with("images: {peers: true, peer_port: 9000}\n").await;
    let image = ImageDigest::of(&index().encode()).to_string();
    testing::add(&core, &testing::node("n1", State::Imaging, Some(&image))).await;
    let mut record = core
        .store
        .node(&rackwright_store::Scope::Site, &"n1".into())
        .await
        .unwrap();
    let claim = record.node.claim.as_mut().unwrap();
    claim.customer = "acme".into();
    let of = testing::booted(&core, "n1", "kernel").await;
    let now = clock::now();
    let peers = peers(&core, (&"n1".into(), &of), claim, (now, now.plus(seconds(600))))
        .unwrap()
        .unwrap();
    assert_eq!(
        (peers.port, peers.customer.as_str(), peers.is_public),
        (9000, "customers/acme", true)
    );
    let ticket = signed(&peers).verify(&[core.keys.signer.public_key()]).unwrap();
    assert_eq!(
        (ticket.node.as_str(), ticket.generation, &ticket.boot),
        ("n1", of.generation, &of.boot)
    );
    assert_eq!(
        (ticket.image.as_str(), ticket.ends - ticket.begins),
        (image.as_str(), 720)
    );
    assert!(keys(&peers).contains(&core.keys.signer.public_key()));

    let trust = core.keys.authority.client_trust();
    let other = serving(&core, &trust, &peers, &image).await;
    let client = |of: &AgentSession| {
        let (_, own) = certificate(&core, "n1", of);
        let store = Arc::new(FrameStore::new(&index(), MEMORY, 4));
        PeerClient::new(own, trust.clone(), signed(&peers), store, ClientSettings::default())
    };
    let soon = Instant::now() + Duration::from_secs(60);
    let answer = client(&of).ask(&other, Chunk(0), soon).await;
    assert!(matches!(answer, Ok(Answer::NotHeld(_))), "{answer:?}");
    // The same ticket with the certificate of another boot gives no right.
    let later = AgentSession {
        boot: "another".into(),
        ..of.clone()
    };
    let refused = client(&later).ask(&other, Chunk(0), soon).await.unwrap_err();
    let expected = TicketRefusal::Refused(Refusal::OtherHolder);
    assert!(
        matches!(&refused, AskError::Refused { reason, .. } if *reason == expected),
        "{refused:?}"
    );
}

#[tokio::test]
async fn a_ticket_ends_after_a_day_and_there_is_none_without_the_setting() {
    let core = testing::core_with("images: {peers: true}\n").await;
    let claim = testing::node("n1", State::Imaging, Some("b3-1")).node.claim.unwrap();
    let of = AgentSession::default();
    let now = clock::now();
    let month = now.plus(seconds(30 * 24 * 3600));
    for (deadline, validity_s) in [(month, 24 * 3600), (now.plus(seconds(-900)), 1)] {
        let peers = peers(&core, (&"n1".into(), &of), &claim, (now, deadline))
            .unwrap()
            .unwrap();
        let ticket = signed(&peers).verify(&keys(&peers)).unwrap();
        assert_eq!((ticket.ends - ticket.begins, peers.port), (validity_s, 8470));
        assert_eq!(ticket.customer, "", "the node has no customer");
    }
    let off = testing::core().await;
    let none = peers(&off, (&"n1".into(), &of), &claim, (now, month)).unwrap();
    assert_eq!(none, None);
}
