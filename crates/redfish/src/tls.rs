//! TLS towards BMCs: their certificates are self-signed, so that a fingerprint is pinned instead of a chain checked.

use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use ring::digest;
use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::{CipherSuite, ClientConfig, DigitallySignedStruct, SignatureScheme, SupportedCipherSuite};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use serde::Serialize;

use crate::error::RedfishError;

/// SHA-256 of a certificate in DER form.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct CertificateFingerprint(pub [u8; 32]);

impl CertificateFingerprint {
    /// The fingerprint of a certificate.
    pub fn of(certificate: &CertificateDer<'_>) -> Self {
        let digest = digest::digest(&digest::SHA256, certificate.as_ref());
        let mut bytes = [0; 32];
        bytes.copy_from_slice(digest.as_ref());
        Self(bytes)
    }
}

impl fmt::Display for CertificateFingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl fmt::Debug for CertificateFingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{self}")
    }
}

impl Serialize for CertificateFingerprint {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl FromStr for CertificateFingerprint {
    type Err = RedfishError;

    /// Reads 64 hexadecimal digits, with or without colons and a leading `sha256:`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let text = text.trim();
        let prefix = text
            .get(..7)
            .is_some_and(|prefix| prefix.eq_ignore_ascii_case("sha256:"));
        let digits: String = text
            .chars()
            .skip(if prefix { 7 } else { 0 })
            .filter(|c| *c != ':')
            .collect();
        let mut bytes = [0; 32];
        hex::decode_to_slice(&digits, &mut bytes).map_err(|_| RedfishError::InvalidFingerprint {
            given: text.chars().take(80).collect(),
        })?;
        Ok(Self(bytes))
    }
}

/// TLS sessions of one BMC that are kept to be resumed.
const TICKETS: usize = 8;

/// The usual provider, but AES-128-GCM first: processors have instructions for its SHA-256 (the usual first choice comes with
/// SHA-384), and a BMC's own processor has less to do, too.
static PROVIDER: LazyLock<Arc<CryptoProvider>> = LazyLock::new(|| {
    let mut provider = rustls::crypto::ring::default_provider();
    let is_later = |suite: &SupportedCipherSuite| suite.suite() != CipherSuite::TLS13_AES_128_GCM_SHA256;
    provider.cipher_suites.sort_by_key(is_later);
    Arc::new(provider)
});

#[derive(Debug, Default)]
struct Seen {
    expected: Option<CertificateFingerprint>,
    observed: Option<CertificateFingerprint>,
    intruder: Option<CertificateFingerprint>,
}

/// Accepts exactly one certificate: the pinned one, or else the first that it sees.
#[derive(Debug)]
pub(crate) struct PinVerifier {
    /// Kept here, so that it outlives the connections: one server, for which more room would be 15 kB for each BMC.
    tickets: Resumption,
    seen: Mutex<Seen>,
}

impl PinVerifier {
    pub(crate) fn new(pin: Option<CertificateFingerprint>) -> Arc<Self> {
        Arc::new(Self {
            tickets: Resumption::in_memory_sessions(TICKETS),
            seen: Mutex::new(Seen {
                expected: pin,
                ..Seen::default()
            }),
        })
    }

    /// A TLS configuration that asks this verifier.
    pub(crate) fn client_config(self: &Arc<Self>) -> Result<ClientConfig, rustls::Error> {
        let mut config = ClientConfig::builder_with_provider(Arc::clone(&PROVIDER))
            .with_safe_default_protocol_versions()?
            .dangerous()
            .with_custom_certificate_verifier(Arc::clone(self) as Arc<dyn ServerCertVerifier>)
            .with_no_client_auth();
        config.resumption = self.tickets.clone();
        Ok(config)
    }

    /// The certificate of the last accepted handshake.
    pub(crate) fn observed(&self) -> Option<CertificateFingerprint> {
        self.lock().observed
    }

    /// The expected certificate and the other one that was shown instead, once that has happened.
    pub(crate) fn mismatch(&self) -> Option<(CertificateFingerprint, CertificateFingerprint)> {
        let seen = self.lock();
        seen.expected.zip(seen.intruder)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ServerCertVerifier for PinVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let shown = CertificateFingerprint::of(end_entity);
        let mut seen = self.lock();
        if *seen.expected.get_or_insert(shown) != shown {
            seen.intruder = Some(shown);
            return Err(rustls::Error::General(
                "the certificate is not the pinned one".to_owned(),
            ));
        }
        seen.observed = Some(shown);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fingerprints_in_many_spellings() {
        let plain = "ab".repeat(32);
        let colons = vec!["AB"; 32].join(":");
        let expected = CertificateFingerprint([0xab; 32]);
        for text in [
            plain.clone(),
            colons.clone(),
            format!("sha256:{plain}"),
            format!("SHA256:{colons}"),
        ] {
            assert_eq!(text.parse::<CertificateFingerprint>().unwrap(), expected, "{text}");
        }
        assert_eq!(expected.to_string(), plain);
        for bad in ["", "ab", "zz", "sha256:", &"ab".repeat(33)] {
            assert!(bad.parse::<CertificateFingerprint>().is_err(), "{bad}");
        }
    }

    #[test]
    fn the_first_certificate_seen_is_kept() {
        let verifier = PinVerifier::new(None);
        let check = |der: &[u8]| {
            let name = ServerName::try_from("bmc").unwrap();
            verifier
                .verify_server_cert(&CertificateDer::from(der), &[], &name, &[], UnixTime::now())
                .is_ok()
        };
        assert!(check(b"one") && check(b"one") && verifier.mismatch().is_none());
        assert!(!check(b"two"));
        let (expected, seen) = verifier.mismatch().unwrap();
        assert_eq!(Some(expected), verifier.observed());
        assert_ne!(expected, seen);
    }
}
