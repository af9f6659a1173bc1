//! TLS to a switch. The settings pin the switch's certificate, because certificates of switches rarely contain a name of
//! the switch. A switch may require a certificate of the control plane.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// Number of bytes in a SHA-256.
const LENGTH: usize = 32;

/// SHA-256 of a certificate in DER form.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Fingerprint(pub [u8; LENGTH]);

/// The text is not a valid fingerprint.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a SHA-256 of 64 hex digits, as `openssl x509 -noout -fingerprint -sha256 -in FILE` prints it for the \
     switch's certificate"
)]
pub struct FingerprintError(String);

impl Fingerprint {
    /// The fingerprint of a certificate.
    #[must_use]
    pub fn of(certificate: &CertificateDer<'_>) -> Self {
        let digest = ring::digest::digest(&ring::digest::SHA256, certificate);
        let mut bytes = [0; LENGTH];
        bytes.copy_from_slice(digest.as_ref());
        Self(bytes)
    }
}

impl FromStr for Fingerprint {
    type Err = FingerprintError;

    /// Reads hex digits, with or without colons and a leading `sha256:`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let digits = text.strip_prefix("sha256:").unwrap_or(text);
        let digits: Vec<u32> = digits
            .chars()
            .filter(|c| *c != ':')
            .map(|c| c.to_digit(16))
            .collect::<Option<_>>()
            .filter(|digits: &Vec<u32>| digits.len() == 2 * LENGTH)
            .ok_or_else(|| FingerprintError(text.chars().take(100).collect()))?;
        let mut bytes = [0; LENGTH];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks(2)) {
            let value = pair.iter().fold(0, |value, digit| 16 * value + digit);
            *byte = u8::try_from(value).unwrap_or_default();
        }
        Ok(Self(bytes))
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{self}")
    }
}

/// The settings of connections by TLS to one switch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsSettings {
    /// The switch's certificate. No other certificate is accepted.
    pub certificate: Fingerprint,
    /// The certificate that the switch may require. `None`: the switch requires none.
    pub own: Option<OwnCertificate>,
}

/// Files in PEM. They are read for each connection, so a renewed certificate is used without a restart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnCertificate {
    /// The certificate and its intermediate authorities.
    pub certificate: PathBuf,
    /// The private key.
    pub key: PathBuf,
}

/// Makes the connection secure.
///
/// # Errors
/// A sentence without the switch's name: a file is unusable, the certificate is another one, or the handshake failed.
pub(crate) async fn connect(
    settings: &TlsSettings,
    host: &str,
    stream: TcpStream,
) -> Result<TlsStream<TcpStream>, String> {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let name = ServerName::try_from(host.to_owned()).map_err(|_| format!("{host:?} is not a host name"))?;
    let connector = TlsConnector::from(Arc::new(config(settings).await?));
    connector.connect(name, stream).await.map_err(|error| sentence(&error))
}

fn sentence(error: &io::Error) -> String {
    match error.get_ref().and_then(|inner| inner.downcast_ref()) {
        Some(rustls::Error::General(words)) => words.clone(),
        _ => format!(
            "the TLS handshake failed ({error}); check that the switch listens with TLS at this port, and that it trusts \
             `ethernet.certificate_file` of the settings"
        ),
    }
}

async fn config(settings: &TlsSettings) -> Result<ClientConfig, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = PinVerifier {
        pin: settings.certificate,
        provider: provider.clone(),
    };
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier));
    let Some(own) = &settings.own else {
        return Ok(builder.with_no_client_auth());
    };
    let at = |path: &PathBuf, error: &dyn fmt::Display| format!("{} cannot be used: {error}", path.display());
    let read = async |path: &PathBuf| tokio::fs::read(path).await.map_err(|error| at(path, &error));
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&read(&own.certificate).await?).collect();
    let chain = chain.map_err(|error| at(&own.certificate, &error))?;
    let key = PrivateKeyDer::from_pem_slice(&read(&own.key).await?).map_err(|error| at(&own.key, &error))?;
    let config = builder.with_client_auth_cert(chain, key);
    config.map_err(|error| at(&own.certificate, &error))
}

/// Accepts exactly one certificate.
#[derive(Debug)]
struct PinVerifier {
    pin: Fingerprint,
    provider: Arc<CryptoProvider>,
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
        let shown = Fingerprint::of(end_entity);
        if shown == self.pin {
            return Ok(ServerCertVerified::assertion());
        }
        Err(rustls::Error::General(format!(
            "a server with another certificate answers, sha256:{shown}; check the address and the switch, and correct \
             `certificate_sha256` of the switch in the settings only if the switch has a new certificate"
        )))
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fingerprints_are_read_and_shown() {
        let hex = "0123456789abcdef".repeat(4);
        let pin: Fingerprint = hex.parse().unwrap();
        assert_eq!(pin.0[..4], [0x01, 0x23, 0x45, 0x67]);
        assert_eq!(pin.to_string(), hex);
        let pairs: Vec<String> = pin.0.iter().map(|byte| format!("{byte:02X}")).collect();
        assert_eq!(pairs.join(":").parse(), Ok(pin));
        assert_eq!(format!("sha256:{hex}").parse(), Ok(pin));
        for bad in ["", "sha256:", &hex[1..], &format!("{hex}0"), &hex.replace('0', "g")] {
            assert!(bad.parse::<Fingerprint>().is_err(), "{bad}");
        }
    }
}
