//! TLS by rustls, which is built into this program.

use std::io;
use std::sync::{Arc, LazyLock};

use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::{
    AlertDescription, CipherSuite, ClientConfig, DigitallySignedStruct, SignatureScheme, SupportedCipherSuite,
};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::{BoxError, CertificateFingerprint, Pin, TlsFault};

/// The error text if the BMC supports none of the cipher suites.
pub const NO_SHARED_CIPHER: &str = "the BMC and this program have no common cipher suite (alert handshake_failure). The \
     BMC may offer only RSA key exchange: use a build with `--features platform-tls`";

/// TLS over TCP.
pub(crate) type Stream = tokio_rustls::client::TlsStream<TcpStream>;

/// TLS sessions of one BMC that are kept for resumption.
const TICKETS: usize = 8;

/// The usual provider, but AES-128-GCM first: processors have instructions for its SHA-256 (the usual first choice uses
/// SHA-384), and it is less work for a BMC's own processor.
static PROVIDER: LazyLock<Arc<CryptoProvider>> = LazyLock::new(|| {
    let mut provider = rustls::crypto::ring::default_provider();
    let is_later = |suite: &SupportedCipherSuite| suite.suite() != CipherSuite::TLS13_AES_128_GCM_SHA256;
    provider.cipher_suites.sort_by_key(is_later);
    Arc::new(provider)
});

/// State that outlives the connections to a BMC: its tickets, for one server, as more room would be 15 kB for each BMC.
#[derive(Debug)]
pub(crate) struct Kept {
    tickets: Resumption,
}

impl Default for Kept {
    fn default() -> Self {
        Self {
            tickets: Resumption::in_memory_sessions(TICKETS),
        }
    }
}

/// Performs the handshake with one BMC and requires the pinned certificate.
#[derive(Clone)]
pub(crate) struct Connector(TlsConnector);

impl Connector {
    pub(crate) fn new(pin: &Arc<Pin>, kept: &Kept) -> Result<Self, BoxError> {
        let mut config = ClientConfig::builder_with_provider(Arc::clone(&PROVIDER))
            .with_safe_default_protocol_versions()?
            .dangerous()
            .with_custom_certificate_verifier(Arc::clone(pin) as Arc<dyn ServerCertVerifier>)
            .with_no_client_auth();
        config.resumption = kept.tickets.clone();
        Ok(Self(TlsConnector::from(Arc::new(config))))
    }

    pub(crate) async fn connect(&self, host: &str, tcp: TcpStream) -> Result<Stream, TlsFault> {
        let name = ServerName::try_from(host.to_owned()).map_err(|fault| TlsFault::Refused(fault.into()))?;
        self.0.connect(name, tcp).await.map_err(fault)
    }
}

fn fault(source: io::Error) -> TlsFault {
    use AlertDescription::{HandshakeFailure, InsufficientSecurity};
    let tls = source.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    match tls {
        Some(tls @ rustls::Error::AlertReceived(HandshakeFailure | InsufficientSecurity)) => {
            TlsFault::NoSharedCipher(tls.clone().into())
        }
        Some(tls) => TlsFault::Refused(tls.clone().into()),
        None => TlsFault::Broken(source),
    }
}

impl ServerCertVerifier for Pin {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let checked = self.check(CertificateFingerprint::of(end_entity));
        checked.map_err(|fault| rustls::Error::General(fault.to_string()))?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &PROVIDER.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &PROVIDER.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        PROVIDER.signature_verification_algorithms.supported_schemes()
    }
}
