use std::sync::Arc;
use std::sync::atomic::Ordering;

use rackwright_fanout::{CLOCK_SKEW_S, Chunk, LONGEST_VALIDITY_S, Refusal, Ticket};
use rackwright_identity::{CertificateSigner, ClientIdentity, SystemRng, peer_client_config};
use rackwright_peers::{Answer, AskError, PeerClient, SIGNATURE_BYTES, SignedTicket, TicketRefusal};
use rustls_pki_types::ServerName;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::support::{
    MEMORY, NOW, Served, Site, address, agent, authority, certificate, patient_client, patient_server, soon,
};

async fn served(site: &Site) -> Served {
    let store = site.image.store(MEMORY, &[0]);
    site.serve("gpu-001", store, patient_server()).await
}

#[tokio::test]
async fn a_wrong_ticket_opens_nothing() {
    let site = Site::new(1);
    let served = served(&site).await;
    let own = agent("gpu-002");
    let right = site.ticket(&own);
    let with = |change: &dyn Fn(&mut Ticket)| {
        let mut ticket = right.clone();
        change(&mut ticket);
        ticket
    };
    let cases = [
        (
            "another customer",
            with(&|t| t.customer = "customers/biology".to_owned()),
            Refusal::OtherCustomer,
        ),
        ("no customer", with(&|t| t.customer.clear()), Refusal::OtherCustomer),
        (
            "another image",
            with(&|t| t.image = format!("b3-{}", "a1".repeat(32))),
            Refusal::OtherImage,
        ),
        (
            "another node",
            with(&|t| t.node = "gpu-003".to_owned()),
            Refusal::OtherHolder,
        ),
        (
            "another boot",
            with(&|t| t.boot = "boot-before".to_owned()),
            Refusal::OtherHolder,
        ),
        ("a former claim", with(&|t| t.generation = 6), Refusal::OtherHolder),
        (
            "ended",
            with(&|t| (t.begins, t.ends) = (NOW - 3600, NOW - CLOCK_SKEW_S)),
            Refusal::Ended,
        ),
        ("future", with(&|t| t.begins = NOW + CLOCK_SKEW_S + 1), Refusal::NotYet),
        (
            "too long",
            with(&|t| t.ends = NOW + LONGEST_VALIDITY_S + 1),
            Refusal::TooLong,
        ),
    ];
    let count = cases.len() as u64;
    for (why, ticket, refusal) in cases {
        let client = site.client_with(&own, site.signed(&ticket), patient_client());
        let error = client.ask(&served.address, Chunk(0), soon()).await.unwrap_err();
        let AskError::Refused { reason, .. } = error else {
            panic!("{why}: {error}")
        };
        assert_eq!(reason, TicketRefusal::Refused(refusal), "{why}");
    }
    let counts = served.server.counts();
    assert_eq!((counts.refused, counts.frames, counts.looks), (count, 0, 0));
    // Clocks that differ by less than the allowed skew are no reason.
    for ticket in [
        with(&|t| t.begins = NOW + CLOCK_SKEW_S),
        with(&|t| (t.begins, t.ends) = (NOW - 3600, NOW - CLOCK_SKEW_S + 1)),
    ] {
        let client = site.client_with(&own, site.signed(&ticket), patient_client());
        let answer = client.ask(&served.address, Chunk(0), soon()).await.unwrap();
        site.image.open(&client, answer).unwrap();
    }
}

#[tokio::test]
async fn a_ticket_needs_the_control_planes_signature() {
    let site = Site::new(1);
    let served = served(&site).await;
    let own = agent("gpu-002");
    let signed = site.signed(&site.ticket(&own));
    let other_key = CertificateSigner::generate(&SystemRng).unwrap();
    let widened = String::from_utf8(signed.text().to_vec())
        .unwrap()
        .replace(&format!("ends={}", NOW + 3600), &format!("ends={}", NOW + 7200));
    let not_a_ticket = b"rackwright-erase-certificate-v4\n".to_vec();
    let mut signature = [0; SIGNATURE_BYTES];
    signature.copy_from_slice(&site.signer.sign(&not_a_ticket));
    let cases = [
        (
            "of another key",
            SignedTicket::sign(&site.ticket(&own), &other_key).unwrap(),
        ),
        (
            "changed",
            SignedTicket::new(widened.into_bytes(), *signed.signature()).unwrap(),
        ),
        ("empty", SignedTicket::new(Vec::new(), [0; SIGNATURE_BYTES]).unwrap()),
        ("of something else", SignedTicket::new(not_a_ticket, signature).unwrap()),
    ];
    for (why, ticket) in cases {
        let client = site.client_with(&own, ticket, patient_client());
        let error = client.look(&served.address, 0, soon()).await.unwrap_err();
        let AskError::Refused { reason, .. } = error else {
            panic!("{why}: {error}")
        };
        assert_eq!(reason, TicketRefusal::Unsigned, "{why}");
    }
}

#[tokio::test]
async fn a_ticket_that_ends_during_a_connection_is_no_longer_served_and_a_new_one_is() {
    let site = Site::new(1);
    let served = served(&site).await;
    let own = agent("gpu-002");
    let client = site.client(&own);
    client.look(&served.address, 0, soon()).await.unwrap();
    site.clock.store(NOW + 3600 + CLOCK_SKEW_S, Ordering::SeqCst);
    let error = client.ask(&served.address, Chunk(0), soon()).await.unwrap_err();
    let AskError::Refused { reason, .. } = error else {
        panic!("{error}")
    };
    assert_eq!(reason, TicketRefusal::Refused(Refusal::Ended));
    let later = Ticket {
        begins: NOW + 3600,
        ends: NOW + 7200,
        ..site.ticket(&own)
    };
    client.replace_ticket(site.signed(&later));
    let answer = client.ask(&served.address, Chunk(0), soon()).await.unwrap();
    assert!(matches!(answer, Answer::Frame(..)), "{answer:?}");
}

#[tokio::test]
async fn a_certificate_of_a_former_claim_is_no_longer_one_of_the_tickets_holder() {
    let site = Site::new(1);
    let served = served(&site).await;
    let now = agent("gpu-002");
    let before = ClientIdentity::agent_of_boot("gpu-002", 6, "boot-of-gpu-002").unwrap();
    let client = site.client_with(&before, site.signed(&site.ticket(&now)), patient_client());
    let error = client.ask(&served.address, Chunk(0), soon()).await.unwrap_err();
    let AskError::Refused { reason, .. } = error else {
        panic!("{error}")
    };
    assert_eq!(reason, TicketRefusal::Refused(Refusal::OtherHolder));
    // The other way round: an agent that still serves with such a certificate is not asked.
    let client = site.client(&now);
    let expected = ClientIdentity::agent_of_boot("gpu-001", 8, "boot-of-gpu-001").unwrap();
    let error = client
        .ask(&address(served.address.at, &expected), Chunk(0), soon())
        .await;
    assert!(matches!(error, Err(AskError::Unreachable { .. })), "{error:?}");
    assert!(!client.is_banned(&expected));
}

#[tokio::test]
async fn without_an_agents_certificate_of_this_site_no_ticket_is_read() {
    let site = Site::new(1);
    let served = served(&site).await;
    let own = agent("gpu-002");
    let ticket = site.signed(&site.ticket(&own));
    let foreign = PeerClient::new(
        certificate(&authority(), &own),
        site.trust(),
        ticket.clone(),
        site.image.store(MEMORY, &[]),
        patient_client(),
    );
    let error = foreign.ask(&served.address, Chunk(0), soon()).await;
    assert!(matches!(error, Err(AskError::Unreachable { .. })), "{error:?}");
    assert_eq!(served.server.counts().refused, 0);

    let member = ClientIdentity::member("gpu-002", 7).unwrap();
    let member = site.client_with(&member, ticket, patient_client());
    let error = member.ask(&served.address, Chunk(0), soon()).await.unwrap_err();
    let AskError::Refused { reason, .. } = error else {
        panic!("{error}")
    };
    assert_eq!(
        reason,
        TicketRefusal::Refused(Refusal::OtherHolder),
        "a member is no agent"
    );

    let config = peer_client_config(
        certificate(&site.authority, &own),
        site.trust(),
        served.address.agent.clone(),
    );
    let mut config = (*config.unwrap()).clone();
    config.client_auth_cert_resolver = Arc::new(NoCertificate);
    let stream = TcpStream::connect(served.address.at).await.unwrap();
    let name = ServerName::from(served.address.at.ip());
    let mut stream = TlsConnector::from(Arc::new(config))
        .connect(name, stream)
        .await
        .unwrap();
    let _ = stream.write_all(&[0; 3 + SIGNATURE_BYTES]).await;
    let error = stream.read_u8().await.unwrap_err();
    assert!(error.to_string().contains("CertificateRequired"), "{error}");
    assert_eq!(served.server.counts().frames, 0);
}

#[derive(Debug)]
struct NoCertificate;

impl rustls::client::ResolvesClientCert for NoCertificate {
    fn resolve(&self, _: &[&[u8]], _: &[rustls::SignatureScheme]) -> Option<Arc<rustls::sign::CertifiedKey>> {
        None
    }

    fn has_certs(&self) -> bool {
        false
    }
}
