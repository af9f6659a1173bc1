//! TLS settings: rustls on `ring`, TLS 1.3 only, ALPN `h2` then `http/1.1`.
//!
//! Sessions are never resumed. A resumed session keeps the client certificate of the first handshake without checking its
//! validity again, and our certificates are short-lived on purpose.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use rustls::client::ResolvesClientCert;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::CryptoProvider;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::{
    CipherSuite, ClientConfig, DigitallySignedStruct, DistinguishedName, RootCertStore, ServerConfig, SignatureScheme,
    SupportedCipherSuite,
};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, UnixTime};

use crate::authority::ServerCredential;

/// Why the settings could not be created. Permanent.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// rustls refuses a certificate or a key.
    #[error("the TLS settings are refused")]
    Rustls(#[from] rustls::Error),
    /// A text is not PEM, or has no certificate or key.
    #[error("the PEM text is refused")]
    Pem(#[from] rustls_pki_types::pem::Error),
    /// The verifier of client certificates cannot be made from this CA.
    #[error("the client CA is refused")]
    Verifier(#[from] rustls::server::VerifierBuilderError),
}

/// Whether a server requests client certificates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientAuth {
    /// Requests no certificate.
    Off,
    /// Requests a certificate. A client may connect without one (to register), but a presented certificate must be valid.
    Optional,
    /// Refuses connections without a valid certificate.
    Required,
}

/// The certificate that a server presents; an agent presents it to other agents also as their client. It can be replaced
/// while connections are open.
pub struct ServerCertificate(RwLock<Arc<CertifiedKey>>);

impl fmt::Debug for ServerCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ServerCertificate")
    }
}

impl ServerCertificate {
    /// Fails if the key does not match the certificate.
    pub fn new(credential: ServerCredential) -> Result<Arc<Self>, TlsError> {
        Ok(Arc::new(Self(RwLock::new(certified_key(credential)?))))
    }

    /// A certificate and its chain from PEM text, with the key.
    ///
    /// Fails if a text is not PEM of the right kind, or the key does not match the certificate.
    pub fn of_pem(chain: &[u8], key: &[u8]) -> Result<Arc<Self>, TlsError> {
        Ok(Arc::new(Self(RwLock::new(certified_pem(chain, key)?))))
    }

    /// Presents the new certificate on connections from now on. Fails as [`ServerCertificate::of_pem`]; the old certificate
    /// then stays.
    pub fn replace_by_pem(&self, chain: &[u8], key: &[u8]) -> Result<(), TlsError> {
        self.set(certified_pem(chain, key)?);
        Ok(())
    }

    /// The certificate that is presented now.
    pub fn leaf(&self) -> Option<CertificateDer<'static>> {
        let key = self.0.read().unwrap_or_else(PoisonError::into_inner);
        key.cert.first().cloned()
    }

    fn set(&self, key: Arc<CertifiedKey>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = key;
    }

    /// Presents the new certificate on connections from now on.
    pub fn replace(&self, credential: ServerCredential) -> Result<(), TlsError> {
        self.set(certified_key(credential)?);
        Ok(())
    }
}

impl ResolvesServerCert for ServerCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.read().unwrap_or_else(PoisonError::into_inner).clone())
    }
}

impl ResolvesClientCert for ServerCertificate {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        Some(self.0.read().unwrap_or_else(PoisonError::into_inner).clone())
    }

    fn has_certs(&self) -> bool {
        true
    }
}

/// The authorities of accepted client certificates. They can be replaced while connections are open.
pub struct ClientTrust(RwLock<Arc<dyn ClientCertVerifier>>);

impl fmt::Debug for ClientTrust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClientTrust")
    }
}

impl ClientTrust {
    /// Trusts these authorities only.
    pub fn new(authorities: &[CertificateDer<'static>]) -> Result<Arc<Self>, TlsError> {
        Ok(Arc::new(Self(RwLock::new(client_verifier(authorities)?))))
    }

    /// Accepts only certificates of these authorities in handshakes from now on.
    pub fn replace(&self, authorities: &[CertificateDer<'static>]) -> Result<(), TlsError> {
        let verifier = client_verifier(authorities)?;
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = verifier;
        Ok(())
    }

    pub(crate) fn current(&self) -> Arc<dyn ClientCertVerifier> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn client_verifier(authorities: &[CertificateDer<'static>]) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    let mut roots = RootCertStore::empty();
    for authority in authorities {
        roots.add(authority.clone())?;
    }
    Ok(WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::new(provider())).build()?)
}

/// Requests client certificates and checks them against the authorities that are trusted at that moment.
#[derive(Debug)]
struct CurrentTrust {
    trust: Arc<ClientTrust>,
    is_mandatory: bool,
}

impl ClientCertVerifier for CurrentTrust {
    fn client_auth_mandatory(&self) -> bool {
        self.is_mandatory
    }

    /// Names no authority, so that a client presents any certificate that it has.
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        self.trust.current().verify_client_cert(end_entity, intermediates, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.trust
            .current()
            .verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.trust
            .current()
            .verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.trust.current().supported_verify_schemes()
    }
}

/// Settings of a server. `clients` holds the authorities of accepted client certificates.
pub fn server_config(
    certificate: Arc<ServerCertificate>,
    clients: Arc<ClientTrust>,
    client_auth: ClientAuth,
) -> Result<Arc<ServerConfig>, TlsError> {
    let provider = Arc::new(provider());
    let verifier: Arc<dyn ClientCertVerifier> = match client_auth {
        ClientAuth::Off => WebPkiClientVerifier::no_client_auth(),
        ClientAuth::Optional | ClientAuth::Required => Arc::new(CurrentTrust {
            trust: clients,
            is_mandatory: client_auth == ClientAuth::Required,
        }),
    };
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_client_cert_verifier(verifier)
        .with_cert_resolver(certificate);
    config.alpn_protocols = alpn();
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}

/// Settings of a client. The client trusts `ca` alone; `credential` is its own chain and key.
pub fn client_config(
    ca: &CertificateDer<'static>,
    credential: Option<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)>,
) -> Result<Arc<ClientConfig>, TlsError> {
    let provider = Arc::new(provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_root_certificates(roots(ca)?);
    let mut config = match credential {
        Some((chain, key)) => builder.with_client_auth_cert(chain, key)?,
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = alpn();
    config.resumption = rustls::client::Resumption::disabled();
    Ok(Arc::new(config))
}

/// The default provider with AES-128-GCM first. That suite uses SHA-256, which most processors accelerate; the default
/// first suite uses SHA-384, which most do not. The change saves one percent of the control plane's CPU time.
pub(crate) fn provider() -> CryptoProvider {
    let mut provider = rustls::crypto::ring::default_provider();
    let is_later = |suite: &SupportedCipherSuite| suite.suite() != CipherSuite::TLS13_AES_128_GCM_SHA256;
    provider.cipher_suites.sort_by_key(is_later);
    provider
}

fn alpn() -> Vec<Vec<u8>> {
    vec![b"h2".to_vec(), b"http/1.1".to_vec()]
}

fn roots(ca: &CertificateDer<'static>) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    roots.add(ca.clone())?;
    Ok(roots)
}

fn certified_key(credential: ServerCredential) -> Result<Arc<CertifiedKey>, TlsError> {
    let provider = provider();
    Ok(Arc::new(CertifiedKey::from_der(
        credential.chain,
        credential.key,
        &provider,
    )?))
}

fn certified_pem(chain: &[u8], key: &[u8]) -> Result<Arc<CertifiedKey>, TlsError> {
    use rustls_pki_types::pem::PemObject as _;
    let chain = CertificateDer::pem_slice_iter(chain).collect::<Result<Vec<_>, _>>()?;
    let key = PrivateKeyDer::from_pem_slice(key)?;
    Ok(Arc::new(CertifiedKey::from_der(chain, key, &provider())?))
}
