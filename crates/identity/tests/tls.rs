//! Real handshakes: rustls must accept issued certificates and refuse all others.

#![allow(clippy::disallowed_methods)] // a test may read clocks and wait for the processes it started
#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rackwright_identity::{
    Authority, CertificateError, ClientAuth, ClientIdentity, ClientKey, ClientTrust, PEER_PROTOCOL, ServerCertificate,
    SystemRng, Validity, client_config, identify, peer_client_config, peer_server_config, server_config,
};
use rcgen::{CertificateParams, CertificateSigningRequest, KeyPair, PublicKeyData as _};
use rustls::{ClientConfig, ClientConnection, ServerConfig, ServerConnection};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};

const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(86_400);

fn authority(subject: &str) -> Authority {
    authority_at(subject, SystemTime::now())
}

fn authority_at(subject: &str, now: SystemTime) -> Authority {
    Authority::create(subject, now, Arc::new(SystemRng)).unwrap()
}

fn request() -> (KeyPair, CertificateSigningRequest) {
    let key = KeyPair::generate().unwrap();
    let csr = CertificateParams::default().serialize_request(&key).unwrap();
    (key, csr)
}

fn client_key(csr_pem: &str) -> ClientKey {
    ClientKey::of_request(csr_pem).unwrap()
}

fn credential(
    authority: &Authority,
    identity: &ClientIdentity,
    now: SystemTime,
) -> (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>) {
    let (key, csr) = request();
    let issued = authority
        .issue_client(&client_key(&csr.pem().unwrap()), identity, now, HOUR)
        .unwrap();
    let chain = CertificateDer::pem_slice_iter(issued.chain_pem.as_bytes())
        .collect::<Result<_, _>>()
        .unwrap();
    (chain, PrivatePkcs8KeyDer::from(key.serialize_der()).into())
}

fn trust(authority: &Authority) -> Arc<ClientTrust> {
    ClientTrust::new(std::slice::from_ref(authority.ca_der())).unwrap()
}

fn server(authority: &Authority, names: &[&str], client_auth: ClientAuth) -> Arc<ServerConfig> {
    let names: Vec<String> = names.iter().map(|n| (*n).into()).collect();
    let issued = authority.issue_server(&names, SystemTime::now(), DAY).unwrap();
    server_config(ServerCertificate::new(issued).unwrap(), trust(authority), client_auth).unwrap()
}

/// Runs a handshake in memory until both sides have finished.
fn handshake(
    client: &Arc<ClientConfig>,
    server: &Arc<ServerConfig>,
    name: &str,
) -> Result<(ClientConnection, ServerConnection), rustls::Error> {
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let mut client = ClientConnection::new(client.clone(), name).unwrap();
    let mut server = ServerConnection::new(server.clone()).unwrap();
    for _ in 0..10 {
        let mut wire = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut wire).unwrap();
        }
        feed(&wire, |bytes| server.read_tls(bytes));
        server.process_new_packets()?;
        let mut wire = Vec::new();
        while server.wants_write() {
            server.write_tls(&mut wire).unwrap();
        }
        feed(&wire, |bytes| client.read_tls(bytes));
        client.process_new_packets()?;
    }
    assert!(!client.is_handshaking() && !server.is_handshaking());
    Ok((client, server))
}

fn feed(mut wire: &[u8], mut read: impl FnMut(&mut &[u8]) -> std::io::Result<usize>) {
    while !wire.is_empty() {
        read(&mut wire).unwrap();
    }
}

#[test]
fn mutual_handshake_distinguishes_member_from_agent() {
    let site = authority("Rackwright site");
    let server = server(&site, &["127.0.0.1", "fd77::1", "control.lab"], ClientAuth::Required);
    let member = ClientIdentity::member("alice", 7).unwrap();
    let agent = ClientIdentity::agent("gpu-001", 7).unwrap();
    for identity in [member, agent] {
        let client = client_config(site.ca_der(), Some(credential(&site, &identity, SystemTime::now()))).unwrap();
        for name in ["127.0.0.1", "fd77::1", "control.lab"] {
            let (client, server) = handshake(&client, &server, name).unwrap();
            let peer = &server.peer_certificates().unwrap()[0];
            assert_eq!(identify(peer).unwrap(), identity);
            assert_eq!(server.alpn_protocol(), Some(&b"h2"[..]));
            assert_eq!(client.protocol_version(), Some(rustls::ProtocolVersion::TLSv1_3));
        }
    }
}

#[test]
fn the_chain_ends_with_the_pinned_authority() {
    let site = authority("Rackwright site");
    let server = server(&site, &["127.0.0.1"], ClientAuth::Off);
    let (client, _) = handshake(&client_config(site.ca_der(), None).unwrap(), &server, "127.0.0.1").unwrap();
    let chain = client.peer_certificates().unwrap();
    assert_eq!(chain.len(), 2);
    let digest = ring::digest::digest(&ring::digest::SHA256, &chain[1]);
    assert_eq!(site.ca_sha256(), format!("sha256:{}", hex::encode(digest)));
}

#[test]
fn client_certificate_is_requested_as_configured() {
    let site = authority("Rackwright site");
    let bare = client_config(site.ca_der(), None).unwrap();
    for (auth, accepted) in [
        (ClientAuth::Off, true),
        (ClientAuth::Optional, true),
        (ClientAuth::Required, false),
    ] {
        let result = handshake(&bare, &server(&site, &["127.0.0.1"], auth), "127.0.0.1");
        assert_eq!(result.is_ok(), accepted, "{auth:?}");
        if let Ok((_, server)) = result {
            assert!(server.peer_certificates().is_none());
        }
    }
}

#[test]
fn certificates_of_another_authority_are_refused() {
    let (site, other) = (authority("Rackwright site"), authority("Rackwright site"));
    let identity = ClientIdentity::member("alice", 7).unwrap();
    let foreign = client_config(site.ca_der(), Some(credential(&other, &identity, SystemTime::now()))).unwrap();
    for auth in [ClientAuth::Optional, ClientAuth::Required] {
        assert!(
            handshake(&foreign, &server(&site, &["127.0.0.1"], auth), "127.0.0.1").is_err(),
            "{auth:?}"
        );
    }
    let client = client_config(site.ca_der(), None).unwrap();
    assert!(handshake(&client, &server(&other, &["127.0.0.1"], ClientAuth::Off), "127.0.0.1").is_err());
}

#[test]
fn expired_and_future_certificates_are_refused() {
    let now = SystemTime::now();
    let site = authority_at("Rackwright site", now - 30 * DAY);
    let server = server(&site, &["127.0.0.1"], ClientAuth::Optional);
    let identity = ClientIdentity::agent("gpu-001", 1).unwrap();
    for (issued_at, accepted) in [(now - 2 * HOUR, false), (now - HOUR / 2, true), (now + HOUR, false)] {
        let client = client_config(site.ca_der(), Some(credential(&site, &identity, issued_at))).unwrap();
        assert_eq!(
            handshake(&client, &server, "127.0.0.1").is_ok(),
            accepted,
            "{issued_at:?}"
        );
    }
}

#[test]
fn a_server_is_only_what_it_was_issued_for() {
    let site = authority("Rackwright site");
    let client = client_config(site.ca_der(), None).unwrap();
    let server = server(&site, &["127.0.0.1", "control.lab"], ClientAuth::Off);
    assert!(handshake(&client, &server, "127.0.0.2").is_err());
    assert!(handshake(&client, &server, "other.lab").is_err());
    // A client certificate is not valid for a server, nor a server certificate for a client.
    let (chain, key) = credential(
        &site,
        &ClientIdentity::member("control.lab", 7).unwrap(),
        SystemTime::now(),
    );
    let as_server = rackwright_identity::ServerCredential {
        validity: Validity::of(&chain[0]).unwrap(),
        chain,
        key,
    };
    let impostor = server_config(
        ServerCertificate::new(as_server).unwrap(),
        trust(&site),
        ClientAuth::Off,
    )
    .unwrap();
    assert!(handshake(&client, &impostor, "control.lab").is_err());
    let issued = site
        .issue_server(&["control.lab".into()], SystemTime::now(), DAY)
        .unwrap();
    assert!(identify(&issued.chain[0]).is_err());
    let impostor = client_config(site.ca_der(), Some((issued.chain, issued.key))).unwrap();
    let server = crate::server(&site, &["127.0.0.1"], ClientAuth::Optional);
    assert!(handshake(&impostor, &server, "127.0.0.1").is_err());
}

#[test]
fn a_member_cannot_sign_certificates() {
    let site = authority("Rackwright site");
    let (key, csr) = request();
    let issued = site
        .issue_client(
            &client_key(&csr.pem().unwrap()),
            &ClientIdentity::member("mallory", 7).unwrap(),
            SystemTime::now(),
            HOUR,
        )
        .unwrap();
    let der = CertificateDer::from_pem_slice(issued.certificate_pem.as_bytes()).unwrap();
    let issuer = rcgen::Issuer::from_ca_cert_der(&der, key).unwrap();
    let leaf_key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ClientAuth];
    params.subject_alt_names = vec![rcgen::SanType::URI("rackwright://member/alice".try_into().unwrap())];
    let Ok(forged) = params.signed_by(&leaf_key, &issuer) else {
        return;
    };
    let chain = vec![forged.into(), der, site.ca_der().clone()];
    let key = PrivatePkcs8KeyDer::from(leaf_key.serialize_der()).into();
    let client = client_config(site.ca_der(), Some((chain, key))).unwrap();
    assert!(
        handshake(
            &client,
            &server(&site, &["127.0.0.1"], ClientAuth::Optional),
            "127.0.0.1"
        )
        .is_err()
    );
}

#[test]
fn only_the_public_key_of_a_request_is_used() {
    let site = authority("Rackwright site");
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec!["evil.example".into()]).unwrap();
    params.distinguished_name.push(rcgen::DnType::CommonName, "root");
    params
        .subject_alt_names
        .push(rcgen::SanType::URI("rackwright://member/root".try_into().unwrap()));
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    params.key_usages = vec![rcgen::KeyUsagePurpose::KeyCertSign];
    let csr = params.serialize_request(&key).unwrap().pem().unwrap();
    let identity = ClientIdentity::agent("gpu-001", 2).unwrap();
    let issued = site
        .issue_client(&client_key(&csr), &identity, SystemTime::now(), HOUR)
        .unwrap();
    let der = CertificateDer::from_pem_slice(issued.certificate_pem.as_bytes()).unwrap();
    assert_eq!(identify(&der).unwrap(), identity);
    let (_, parsed) = x509_parser::parse_x509_certificate(&der).unwrap();
    assert!(!parsed.is_ca());
    assert_eq!(parsed.public_key().subject_public_key.data.as_ref(), key.der_bytes());
    let text = String::from_utf8_lossy(&der);
    assert!(!text.contains("evil") && !text.contains("root"), "{text}");
}

#[test]
fn broken_requests_are_refused() {
    let site = authority("Rackwright site");
    let (_, csr) = request();
    let mut der = csr.der().to_vec();
    *der.last_mut().unwrap() ^= 1;
    let unsigned = pem::encode(&pem::Pem::new("CERTIFICATE REQUEST", der));
    let long = pem::encode(&pem::Pem::new(
        "CERTIFICATE REQUEST",
        [csr.der().to_vec(), vec![0]].concat(),
    ));
    let other_tag = csr.pem().unwrap().replace("CERTIFICATE REQUEST", "CERTIFICATE");
    let huge = "x".repeat(1 << 20);
    for text in ["", "nothing", &unsigned, &long, &other_tag, &huge, &site.ca_pem()] {
        let result = ClientKey::of_request(text);
        assert!(matches!(result, Err(CertificateError::Request(_))), "{result:?}");
    }
}

#[test]
fn a_refused_authority_name_is_not_reported_as_a_broken_authority() {
    for name in ["", "a\nb", &"x".repeat(65)] {
        let error = Authority::create(name, SystemTime::now(), Arc::new(SystemRng)).unwrap_err();
        assert!(matches!(error, CertificateError::Subject(_)), "{error}");
        let text = error.to_string();
        assert!(
            text.starts_with("no CA was created: its name") && !text.contains("backup"),
            "{text}"
        );
    }
    assert!(Authority::create(&"x".repeat(64), SystemTime::now(), Arc::new(SystemRng)).is_ok());
}

#[test]
fn invalid_server_names_and_times_are_refused() {
    let site = authority("Rackwright site");
    let now = SystemTime::now();
    for name in ["", "a b", "*.lab", "lab/", "-lab", "10.0.0.0/8", "lab\0"] {
        let result = site.issue_server(&[name.into()], now, DAY);
        assert!(
            matches!(result, Err(CertificateError::ServerName(_))),
            "{name:?}: {result:?}"
        );
    }
    assert!(matches!(
        site.issue_server(&[], now, DAY),
        Err(CertificateError::ServerNames(0))
    ));
    let names = ["control.lab".to_owned()];
    assert!(matches!(
        site.issue_server(&names, now, Duration::ZERO),
        Err(CertificateError::Time(_))
    ));
    assert!(matches!(
        site.issue_server(&names, now + 21 * 366 * DAY, DAY),
        Err(CertificateError::Time(_))
    ));
    assert!(matches!(
        site.issue_server(&names, SystemTime::UNIX_EPOCH, DAY),
        Err(CertificateError::Time(_))
    ));
    // No leaf outlives the authority.
    let issued = site.issue_server(&names, now, 50 * 366 * DAY).unwrap();
    assert_eq!(issued.validity.not_after, site.validity().not_after);
}

#[test]
fn reissue_is_due_after_two_thirds() {
    let site = authority("Rackwright site");
    let now = SystemTime::now();
    let validity = site
        .issue_server(&["control.lab".into()], now, 3 * HOUR)
        .unwrap()
        .validity;
    assert!(!validity.is_reissue_due(now));
    assert!(!validity.is_reissue_due(now + HOUR));
    assert!(validity.is_reissue_due(now + 2 * HOUR));
    assert!(validity.contains(now) && !validity.contains(now + 4 * HOUR));
}

#[test]
fn trusted_authorities_are_replaced_for_the_next_handshake() {
    let (old, new) = (authority("Rackwright site"), authority("Rackwright site 2"));
    let clients = trust(&old);
    let issued = old.issue_server(&["127.0.0.1".into()], SystemTime::now(), DAY).unwrap();
    let server = server_config(
        ServerCertificate::new(issued).unwrap(),
        clients.clone(),
        ClientAuth::Required,
    )
    .unwrap();
    let ann = ClientIdentity::member("ann", 1).unwrap();
    let works = |issuer: &Authority| {
        let client = client_config(old.ca_der(), Some(credential(issuer, &ann, SystemTime::now()))).unwrap();
        handshake(&client, &server, "127.0.0.1").is_ok()
    };
    assert!(works(&old) && !works(&new));
    clients.replace(&[old.ca_der().clone(), new.ca_der().clone()]).unwrap();
    assert!(works(&old) && works(&new));
    clients.replace(std::slice::from_ref(new.ca_der())).unwrap();
    assert!(!works(&old) && works(&new));
}

#[test]
fn a_replaced_server_certificate_is_shown_at_once() {
    let site = authority("Rackwright site");
    let issue = || {
        site.issue_server(&["127.0.0.1".into()], SystemTime::now(), DAY)
            .unwrap()
    };
    let first = issue();
    let first_der = first.chain[0].clone();
    let certificate = ServerCertificate::new(first).unwrap();
    let server = server_config(certificate.clone(), trust(&site), ClientAuth::Optional).unwrap();
    let client = client_config(site.ca_der(), None).unwrap();
    let shown = || {
        handshake(&client, &server, "127.0.0.1")
            .unwrap()
            .0
            .peer_certificates()
            .unwrap()[0]
            .clone()
    };
    assert_eq!(shown(), first_der);
    certificate.replace(issue()).unwrap();
    assert_ne!(shown(), first_der);
    // A key of another certificate is refused, and the old certificate stays.
    let mixed = rackwright_identity::ServerCredential {
        key: issue().key,
        ..issue()
    };
    let before = shown();
    assert!(certificate.replace(mixed).is_err());
    assert_eq!(shown(), before);
}

#[test]
fn the_authority_survives_storage() {
    let site = authority("Rackwright site");
    let again = Authority::load(&site.ca_pem(), &site.key_pem(), Arc::new(SystemRng)).unwrap();
    assert_eq!(site.ca_sha256(), again.ca_sha256());
    let server = server(&again, &["127.0.0.1"], ClientAuth::Off);
    handshake(&client_config(site.ca_der(), None).unwrap(), &server, "127.0.0.1").unwrap();
    assert!(Authority::load(&site.ca_pem(), &authority("other").key_pem(), Arc::new(SystemRng)).is_err());
    let leaf = site.issue_server(&["x".into()], SystemTime::now(), DAY).unwrap();
    let leaf_pem = pem::encode(&pem::Pem::new("CERTIFICATE", leaf.chain[0].to_vec()));
    assert!(
        Authority::load(&leaf_pem, &site.key_pem(), Arc::new(SystemRng)).is_err(),
        "a leaf is no authority"
    );
    assert!(!format!("{site:?}").contains("PRIVATE"));
}

/// The certificate of an agent, as it presents it to other agents.
fn agent_certificate(authority: &Authority, identity: &ClientIdentity) -> Arc<ServerCertificate> {
    let (key, csr) = request();
    let issued = authority
        .issue_client(&client_key(&csr.pem().unwrap()), identity, SystemTime::now(), HOUR)
        .unwrap();
    ServerCertificate::of_pem(issued.certificate_pem.as_bytes(), key.serialize_pem().as_bytes()).unwrap()
}

#[test]
fn agents_verify_each_other_without_certificates_for_servers() {
    let site = authority("Rackwright site");
    let asked = ClientIdentity::agent_of_boot("gpu-001", 7, "boot-1").unwrap();
    let asking = ClientIdentity::agent_of_boot("gpu-002", 3, "boot-2").unwrap();
    let server = peer_server_config(agent_certificate(&site, &asked), trust(&site)).unwrap();
    let client = |own: &ClientIdentity, expected: &ClientIdentity| {
        peer_client_config(agent_certificate(&site, own), trust(&site), expected.clone()).unwrap()
    };
    let (client_end, server_end) = handshake(&client(&asking, &asked), &server, "127.0.0.1").unwrap();
    assert_eq!(identify(&server_end.peer_certificates().unwrap()[0]).unwrap(), asking);
    assert_eq!(client_end.alpn_protocol(), Some(PEER_PROTOCOL));
    assert_eq!(server_end.alpn_protocol(), Some(PEER_PROTOCOL));

    // Another node, an earlier claim and another boot of the same node, and a member answer in its place.
    let others = [
        ClientIdentity::agent_of_boot("gpu-003", 7, "boot-1").unwrap(),
        ClientIdentity::agent_of_boot("gpu-001", 6, "boot-1").unwrap(),
        ClientIdentity::agent_of_boot("gpu-001", 7, "boot-0").unwrap(),
        ClientIdentity::agent("gpu-001", 7).unwrap(),
        ClientIdentity::member("gpu-001", 7).unwrap(),
    ];
    for other in others {
        let impostor = peer_server_config(agent_certificate(&site, &other), trust(&site)).unwrap();
        assert!(
            handshake(&client(&asking, &asked), &impostor, "127.0.0.1").is_err(),
            "{other:?}"
        );
    }
    let foreign = peer_server_config(agent_certificate(&authority("Rackwright site"), &asked), trust(&site)).unwrap();
    assert!(
        handshake(&client(&asking, &asked), &foreign, "127.0.0.1").is_err(),
        "another authority"
    );
    // The certificate of the control plane is none of an agent.
    let issued = site
        .issue_server(&["127.0.0.1".into()], SystemTime::now(), DAY)
        .unwrap();
    let control = peer_server_config(ServerCertificate::new(issued).unwrap(), trust(&site)).unwrap();
    assert!(handshake(&client(&asking, &asked), &control, "127.0.0.1").is_err());
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

#[test]
fn an_agent_that_serves_refuses_strangers_and_poses_as_no_control_plane() {
    let site = authority("Rackwright site");
    let asked = ClientIdentity::agent_of_boot("127.0.0.1", 7, "boot-1").unwrap();
    let server = peer_server_config(agent_certificate(&site, &asked), trust(&site)).unwrap();
    let connects = |client: &ClientConfig| {
        let mut client = client.clone();
        client.alpn_protocols = vec![PEER_PROTOCOL.to_vec()];
        handshake(&Arc::new(client), &server, "127.0.0.1").is_ok()
    };
    // A client that verifies servers as the agents and the CLI do refuses the certificate, whatever its name.
    let member = ClientIdentity::member("ann", 1).unwrap();
    let known = credential(&site, &member, SystemTime::now());
    assert!(!connects(&client_config(site.ca_der(), Some(known)).unwrap()));
    // With the right verifier, the server still wants a certificate of the site.
    let peer = |own| peer_client_config(own, trust(&site), asked.clone()).unwrap();
    let asking = ClientIdentity::agent_of_boot("gpu-002", 3, "boot-2").unwrap();
    assert!(connects(&peer(agent_certificate(&site, &asking))));
    assert!(!connects(&peer(agent_certificate(
        &authority("Rackwright site"),
        &asking
    ))));
    let mut bare = (*peer(agent_certificate(&site, &asking))).clone();
    bare.client_auth_cert_resolver = Arc::new(NoCertificate);
    assert!(!connects(&bare), "no certificate");
    // Another protocol is refused by both ends.
    let mut other = (*peer(agent_certificate(&site, &asking))).clone();
    other.alpn_protocols = vec![b"h2".to_vec()];
    assert!(handshake(&Arc::new(other), &server, "127.0.0.1").is_err());
}
