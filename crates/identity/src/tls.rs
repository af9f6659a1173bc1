//! TLS settings: rustls on `ring`, TLS 1.3 only, ALPN `h2` then `http/1.1`.
//!
//! Sessions are never resumed: a resumed session keeps the client's certificate of the first handshake without looking
//! at its times again, and ours are short-lived on purpose.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

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

/// Why the settings could not be made. Permanent.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A certificate or a key that rustls refuses.
    #[error("the TLS settings are refused")]
    Rustls(#[from] rustls::Error),
    /// The verifier of client certificates cannot be made from this CA.
    #[error("the client CA is refused")]
    Verifier(#[from] rustls::server::VerifierBuilderError),
}

/// What a server asks of its clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientAuth {
    /// Does not ask for a certificate.
    Off,
    /// Asks; a client may come without one (to register), but one that is shown must be valid.
    Optional,
    /// No connection without a valid certificate.
    Required,
}

/// The certificate a server shows; can be replaced while connections go on.
pub struct ServerCertificate(RwLock<Arc<CertifiedKey>>);

impl fmt::Debug for ServerCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ServerCertificate")
    }
}

impl ServerCertificate {
    /// Checks that key and certificate belong together.
    pub fn new(credential: ServerCredential) -> Result<Arc<Self>, TlsError> {
        Ok(Arc::new(Self(RwLock::new(certified(credential)?))))
    }

    /// Connections made from now on see the new certificate.
    pub fn replace(&self, credential: ServerCredential) -> Result<(), TlsError> {
        let key = certified(credential)?;
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = key;
        Ok(())
    }
}

impl ResolvesServerCert for ServerCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.read().unwrap_or_else(PoisonError::into_inner).clone())
    }
}

/// The authorities whose client certificates are accepted; can be replaced while connections go on.
pub struct ClientTrust(RwLock<Arc<dyn ClientCertVerifier>>);

impl fmt::Debug for ClientTrust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClientTrust")
    }
}

impl ClientTrust {
    /// Trusts these authorities.
    pub fn new(authorities: &[CertificateDer<'static>]) -> Result<Arc<Self>, TlsError> {
        Ok(Arc::new(Self(RwLock::new(client_verifier(authorities)?))))
    }

    /// Handshakes from now on accept certificates of these authorities alone.
    pub fn replace(&self, authorities: &[CertificateDer<'static>]) -> Result<(), TlsError> {
        let verifier = client_verifier(authorities)?;
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = verifier;
        Ok(())
    }

    fn present(&self) -> Arc<dyn ClientCertVerifier> {
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

/// Asks clients for a certificate, and checks it under what is trusted at that moment.
#[derive(Debug)]
struct PresentTrust {
    trust: Arc<ClientTrust>,
    is_mandatory: bool,
}

impl ClientCertVerifier for PresentTrust {
    fn client_auth_mandatory(&self) -> bool {
        self.is_mandatory
    }

    /// Names no authority: a client then shows the certificate that it has.
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        self.trust.present().verify_client_cert(end_entity, intermediates, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.trust
            .present()
            .verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.trust
            .present()
            .verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.trust.present().supported_verify_schemes()
    }
}

/// A server's settings; `clients` are the authorities that issued its clients' certificates.
pub fn server_config(
    certificate: Arc<ServerCertificate>,
    clients: Arc<ClientTrust>,
    client_auth: ClientAuth,
) -> Result<Arc<ServerConfig>, TlsError> {
    let provider = Arc::new(provider());
    let verifier: Arc<dyn ClientCertVerifier> = match client_auth {
        ClientAuth::Off => WebPkiClientVerifier::no_client_auth(),
        ClientAuth::Optional | ClientAuth::Required => Arc::new(PresentTrust {
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

/// A client's settings: trusts `ca` alone; `credential` is its own chain and key.
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

/// The usual provider, but AES-128-GCM first: it comes with SHA-256, for which processors have instructions, and the usual
/// first choice with SHA-384, for which most have none. That is a hundredth of the control plane's CPU.
fn provider() -> CryptoProvider {
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

fn certified(credential: ServerCredential) -> Result<Arc<CertifiedKey>, TlsError> {
    let provider = provider();
    Ok(Arc::new(CertifiedKey::from_der(
        credential.chain,
        credential.key,
        &provider,
    )?))
}
