use std::sync::{Arc, Mutex};
use std::time::Duration;

use rackwright_redfish::{BmcClient, BmcTarget, CertificateFingerprint, ErrorKind, RedfishError, Settings};
use rcgen::{
    CertificateParams, CertifiedKey, KeyPair, PKCS_ECDSA_P256_SHA256, date_time_ymd, generate_simple_self_signed,
};
use serde_json::json;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio_rustls::rustls::server::{ClientHello, ResolvesServerCert};
use tokio_rustls::rustls::{ServerConfig, crypto, sign, version};

use crate::server::{Answer, Server};

pub struct Certificate {
    der: CertificateDer<'static>,
    key: KeyPair,
}

impl Certificate {
    pub fn new() -> Self {
        let CertifiedKey { cert, signing_key } = generate_simple_self_signed(vec!["bmc".to_owned()]).unwrap();
        Self {
            der: cert.der().clone(),
            key: signing_key,
        }
    }

    /// An expired certificate with another name.
    fn expired() -> Self {
        let mut parameters = CertificateParams::new(vec!["elsewhere".to_owned()]).unwrap();
        parameters.not_before = date_time_ymd(1999, 1, 1);
        parameters.not_after = date_time_ymd(2000, 1, 1);
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
        let certificate = parameters.self_signed(&key).unwrap();
        Self {
            der: certificate.der().clone(),
            key,
        }
    }

    pub fn fingerprint(&self) -> CertificateFingerprint {
        CertificateFingerprint::of(&self.der)
    }

    pub fn acceptor(&self) -> TlsAcceptor {
        self.acceptor_with_key(&self.key)
    }

    /// Shows this certificate but signs with a different key, as an attacker in the middle would.
    fn acceptor_with_key(&self, key: &KeyPair) -> TlsAcceptor {
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let key = crypto::ring::sign::any_supported_type(&key).unwrap();
        let chosen = Arc::new(sign::CertifiedKey::new(vec![self.der.clone()], key));
        let config = ServerConfig::builder_with_provider(Arc::new(crypto::ring::default_provider()))
            .with_protocol_versions(&[&version::TLS13, &version::TLS12])
            .unwrap()
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(Fixed(chosen)));
        TlsAcceptor::from(Arc::new(config))
    }
}

#[derive(Debug)]
struct Fixed(Arc<sign::CertifiedKey>);

impl ResolvesServerCert for Fixed {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<sign::CertifiedKey>> {
        Some(Arc::clone(&self.0))
    }
}

/// A BMC with only a root and a system that needs Basic authentication.
async fn start(acceptor: TlsAcceptor) -> (Server, Arc<Mutex<TlsAcceptor>>) {
    let acceptor = Arc::new(Mutex::new(acceptor));
    let server = Server::start(
        Some(Arc::clone(&acceptor)),
        Duration::ZERO,
        Arc::new(|request| match request.path.trim_end_matches('/') {
            "/redfish/v1" => Answer::json(200, &json!({"Systems": {"@odata.id": "/redfish/v1/Systems"}})),
            "/redfish/v1/Systems" => Answer::json(200, &json!({"Members": [{"@odata.id": "/redfish/v1/Systems/1"}]})),
            // Each answer ends its connection, so that each request makes a new handshake.
            _ => Answer::Raw(
                b"HTTP/1.1 200 OK\r\nContent-Length: 21\r\nConnection: close\r\n\r\n{\"PowerState\": \"Off\"}".to_vec(),
            ),
        }),
    )
    .await;
    (server, acceptor)
}

async fn connect(server: &Server, pin: Option<CertificateFingerprint>) -> Result<BmcClient, RedfishError> {
    let target = BmcTarget {
        address: server.url(),
        username: "admin".to_owned(),
        password: "secret-secret".into(),
        certificate_sha256: pin,
        system: None,
    };
    BmcClient::connect(target, Settings::default()).await
}

#[tokio::test]
async fn the_first_certificate_is_trusted_and_shown() {
    let certificate = Certificate::new();
    let (server, _) = start(certificate.acceptor()).await;
    let client = connect(&server, None).await.unwrap();
    assert_eq!(client.observed_fingerprint(), Some(certificate.fingerprint()));
    assert!(!client.is_plain());
    let pinned = connect(&server, client.observed_fingerprint()).await.unwrap();
    pinned.system().await.unwrap();
}

#[tokio::test]
async fn dates_and_names_of_a_pinned_certificate_are_ignored() {
    let certificate = Certificate::expired();
    let (server, _) = start(certificate.acceptor()).await;
    let client = connect(&server, Some(certificate.fingerprint())).await.unwrap();
    client.system().await.unwrap();
}

#[tokio::test]
async fn another_certificate_than_the_pinned_one_stops_everything() {
    let (expected, seen) = (Certificate::new(), Certificate::new());
    let (server, _) = start(seen.acceptor()).await;
    let failure = connect(&server, Some(expected.fingerprint())).await.unwrap_err();
    assert_eq!(failure.kind(), ErrorKind::Security);
    let text = failure.to_string();
    assert!(matches!(failure, RedfishError::CertificateChanged { .. }), "{text}");
    assert!(text.contains(&expected.fingerprint().to_string()) && text.contains(&seen.fingerprint().to_string()));
    assert!(server.requests().is_empty(), "nothing may be sent to a stranger");
    assert_eq!(server.connections(), 1, "and it is not tried again");
}

#[tokio::test]
async fn a_certificate_that_changes_during_use_stops_the_client_for_good() {
    let (first, second) = (Certificate::new(), Certificate::new());
    let (server, acceptor) = start(first.acceptor()).await;
    let client = connect(&server, None).await.unwrap();
    client.system().await.unwrap();
    *acceptor.lock().unwrap() = second.acceptor();
    let before = server.requests().len();
    let failed = |outcome: Result<_, RedfishError>| match outcome {
        Err(RedfishError::CertificateChanged { expected, seen, .. }) => {
            expected == first.fingerprint() && seen == second.fingerprint()
        }
        _ => false,
    };
    assert!(failed(client.system().await));
    let connections = server.connections();
    *acceptor.lock().unwrap() = first.acceptor();
    assert!(
        failed(client.system().await),
        "even if the old one returns: an operator must check it"
    );
    assert_eq!((server.requests().len(), server.connections()), (before, connections));
}

#[tokio::test]
async fn the_pinned_certificate_without_its_key_is_worth_nothing() {
    let certificate = Certificate::new();
    let stranger = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
    let (server, _) = start(certificate.acceptor_with_key(&stranger)).await;
    let failure = connect(&server, Some(certificate.fingerprint())).await.unwrap_err();
    assert!(matches!(failure, RedfishError::Tls { .. }), "{failure}");
    assert!(server.requests().is_empty());
}

#[tokio::test]
async fn plain_http_is_flagged() {
    let bmc = crate::bmc::Bmc::plain().await;
    let client = bmc.connect().await;
    assert!(client.is_plain());
    assert_eq!(client.observed_fingerprint(), None);
}
