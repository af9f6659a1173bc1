//! The identity of servers and our own: server addresses, the first contact by a pinned authority, our keys and
//! certificates.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use rcgen::{CertificateParams, DistinguishedName, KeyPair};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use secrecy::SecretString;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use x509_parser::prelude::FromDer as _;
use x509_parser::prelude::X509Certificate;

use crate::error::CliError;

/// Longest time for connection and handshake.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The API's port for a server address without a port.
const DEFAULT_PORT: u16 = 7070;

/// An endpoint: `https://HOST[:PORT]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    pub host: String,
    pub port: u16,
}

impl Server {
    /// Reads `https://HOST[:PORT]` or `HOST[:PORT]`; plain http is refused.
    pub fn parse(text: &str) -> Result<Self, CliError> {
        let wrong = |why: &str| {
            CliError::usage(
                format!("`{text}` is not a server address: {why}"),
                "the form is https://HOST:7070",
            )
        };
        let rest = match text.split_once("://") {
            Some(("https", rest)) => rest,
            Some(_) => return Err(wrong("only https is supported")),
            None => text,
        };
        let authority = rest.strip_suffix('/').unwrap_or(rest);
        if authority.contains(['/', '?', '#', '@']) || authority.contains(char::is_whitespace) {
            return Err(wrong("give only a host and a port, no path and no user"));
        }
        let (host, port) = host_and_port(authority, DEFAULT_PORT).map_err(wrong)?;
        Ok(Self { host, port })
    }

    /// `https://HOST:PORT`
    pub fn url(&self) -> String {
        if self.host.contains(':') {
            format!("https://[{}]:{}", self.host, self.port)
        } else {
            format!("https://{}:{}", self.host, self.port)
        }
    }
}

/// Reads `HOST[:PORT]`, with `port` as the default. An IPv6 address may have brackets, and needs them before a port. The
/// returned host has no brackets.
///
/// # Errors
/// Why the text is wrong, as a clause.
pub fn host_and_port(authority: &str, port: u16) -> Result<(String, u16), &'static str> {
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !host.contains(':') || host.ends_with(']') => {
            let port: u16 = port.parse().map_err(|_| "the port must be a number up to 65535")?;
            (host, port)
        }
        _ => (authority, port),
    };
    let inner = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let host = inner.unwrap_or(host);
    if host.is_empty() {
        return Err("the host is missing");
    }
    ServerName::try_from(host.to_owned()).map_err(|_| "the host is neither a name nor an IP address")?;
    Ok((host.to_owned(), port))
}

/// Reads `sha256:` and 64 hex digits (the prefix may be left out).
pub fn parse_pin(text: &str) -> Result<[u8; 32], String> {
    let digits = text.strip_prefix("sha256:").unwrap_or(text);
    let mut pin = [0; 32];
    hex::decode_to_slice(digits, &mut pin).map_err(|_| "a pin must be `sha256:` and 64 hex digits".to_owned())?;
    Ok(pin)
}

/// Connects once and gets the certificate of the server's authority, proved by its SHA-256.
///
/// The handshake accepts any certificate, but nothing is sent over it: the presented chain must contain the pinned
/// certificate, and the server's own certificate must verify under it for the requested name.
///
/// # Errors
/// `Unreachable` if there is no connection; `Untrusted` if the pin is not in the chain or does not sign the server.
pub async fn fetch_authority(server: &Server, tls_name: &str, pin: &[u8; 32]) -> Result<String, CliError> {
    let chain = presented_chain(server, tls_name).await?;
    let Some(authority) = chain.iter().find(|certificate| sha256(certificate) == *pin) else {
        let seen: Vec<_> = chain
            .iter()
            .map(|c| format!("sha256:{}", hex::encode(sha256(c))))
            .collect();
        return Err(CliError::untrusted(
            format!(
                "{} is not the server of this token: no certificate of the server has the pinned SHA-256 (the server \
                 presents {})",
                server.url(),
                seen.join(", ")
            ),
            "compare --ca-sha256 with the SHA-256 of rackwrightd; if both are equal, the connection is intercepted",
        ));
    };
    verify_under(authority, &chain, tls_name).map_err(|why| {
        CliError::untrusted(
            format!(
                "{}: the server's certificate does not verify under the pinned authority: {why}",
                server.url()
            ),
            "if the certificate is for another name, give that name with --tls-name",
        )
    })?;
    Ok(pem::encode(&pem::Pem::new("CERTIFICATE", authority.as_ref())))
}

async fn presented_chain(server: &Server, tls_name: &str) -> Result<Vec<CertificateDer<'static>>, CliError> {
    let unreachable = |why: String| CliError::Unreachable {
        doing: "log in".to_owned(),
        tried: vec![(server.url(), why)],
    };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let capture = Arc::new(Capture {
        provider: provider.clone(),
        chain: Mutex::default(),
    });
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| unreachable(e.to_string()))?
        .dangerous()
        .with_custom_certificate_verifier(capture.clone())
        .with_no_client_auth();
    let name = ServerName::try_from(tls_name.to_owned()).map_err(|e| unreachable(e.to_string()))?;
    let handshake = async {
        let stream = TcpStream::connect((server.host.as_str(), server.port)).await?;
        let mut config = config;
        config.alpn_protocols = vec![b"h2".to_vec()];
        TlsConnector::from(Arc::new(config))
            .connect(name, stream)
            .await
            .map(drop)
    };
    match tokio::time::timeout(CONNECT_TIMEOUT, handshake).await {
        Ok(Ok(())) => {}
        Ok(Err(e)) => return Err(unreachable(e.to_string())),
        Err(_) => return Err(unreachable(format!("no answer within {} s", CONNECT_TIMEOUT.as_secs()))),
    }
    let chain = capture.chain.lock().map(|chain| chain.clone()).unwrap_or_default();
    Ok(chain)
}

fn verify_under(
    authority: &CertificateDer<'static>,
    chain: &[CertificateDer<'static>],
    name: &str,
) -> Result<(), String> {
    let mut roots = RootCertStore::empty();
    roots.add(authority.clone()).map_err(|e| e.to_string())?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider)
        .build()
        .map_err(|e| e.to_string())?;
    let (leaf, intermediates) = chain.split_first().ok_or("the server presents no certificate")?;
    let name = ServerName::try_from(name.to_owned()).map_err(|e| e.to_string())?;
    verifier
        .verify_server_cert(leaf, intermediates, &name, &[], UnixTime::now())
        .map(drop)
        .map_err(|e| e.to_string())
}

/// Stores the presented chain. It does check that the server has the private key of its certificate.
#[derive(Debug)]
struct Capture {
    provider: Arc<CryptoProvider>,
    chain: Mutex<Vec<CertificateDer<'static>>>,
}

impl ServerCertVerifier for Capture {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        if let Ok(mut chain) = self.chain.lock() {
            chain.clear();
            chain.push(end_entity.clone().into_owned());
            chain.extend(intermediates.iter().map(|c| c.clone().into_owned()));
        }
        Ok(ServerCertVerified::assertion())
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

fn sha256(der: &CertificateDer<'_>) -> [u8; 32] {
    let mut digest = [0; 32];
    digest.copy_from_slice(ring::digest::digest(&ring::digest::SHA256, der).as_ref());
    digest
}

/// The pins of the certificates in a PEM text, in their order: `sha256:` and 64 hex digits each.
pub fn pins_of(pem: &str) -> Vec<String> {
    let blocks = pem::parse_many(pem).unwrap_or_default();
    let certificates = blocks.iter().filter(|block| block.tag() == "CERTIFICATE");
    let pin = |der: &[u8]| format!("sha256:{}", hex::encode(sha256(&CertificateDer::from(der))));
    certificates.map(|block| pin(block.contents())).collect()
}

/// Whether the authorities that the server names require a renewal of the credential, `own` being the trusted ones: a
/// rotation of the site's authority has begun or ended. A replica that names only our first one has not begun it yet.
pub fn is_outdated(own: &[String], named: &str) -> bool {
    let named: Vec<&str> = named.split(',').filter(|pin| !pin.is_empty()).collect();
    let is_beginning = named.len() <= own.len() && named.iter().zip(own).all(|(named, own)| named == own);
    !is_beginning
}

/// A new private key and a certificate request for it. The server uses only the public key of the request.
pub fn new_key() -> Result<(KeyPair, String), CliError> {
    let failed = |e: rcgen::Error| CliError::credential(format!("cannot make a key: {e}"), "");
    let key = KeyPair::generate().map_err(failed)?;
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    let csr = params
        .serialize_request(&key)
        .and_then(|csr| csr.pem())
        .map_err(failed)?;
    Ok((key, csr))
}

/// Certificate and key in one PEM text.
pub fn identity_pem(certificate_pem: &str, key: &KeyPair) -> SecretString {
    SecretString::from(format!("{}\n{}", certificate_pem.trim_end(), key.serialize_pem()))
}

/// Begin and end of a certificate's validity, in seconds since the epoch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Validity {
    pub not_before: f64,
    pub not_after: f64,
}

impl Validity {
    /// The validity of the first certificate in a PEM text.
    pub fn of_pem(text: &str) -> Option<Self> {
        let blocks = pem::parse_many(text).ok()?;
        let block = blocks.iter().find(|block| block.tag() == "CERTIFICATE")?;
        let (_, certificate) = X509Certificate::from_der(block.contents()).ok()?;
        let validity = certificate.validity();
        Some(Self {
            not_before: validity.not_before.timestamp() as f64,
            not_after: validity.not_after.timestamp() as f64,
        })
    }

    pub fn ended(&self, now: f64) -> bool {
        now >= self.not_after
    }

    /// Whether less than a third of the lifetime is left.
    pub fn due(&self, now: f64) -> bool {
        self.not_after - now < (self.not_after - self.not_before) / 3.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_addresses() {
        let url = |text: &str| {
            Server::parse(text)
                .map(|server| server.url())
                .map_err(|e| e.to_string())
        };
        assert_eq!(url("https://10.0.0.1:7070").as_deref(), Ok("https://10.0.0.1:7070"));
        assert_eq!(url("rack.example").as_deref(), Ok("https://rack.example:7070"));
        assert_eq!(url("https://rack.example:1/").as_deref(), Ok("https://rack.example:1"));
        assert_eq!(url("https://[fd77::1]:99").as_deref(), Ok("https://[fd77::1]:99"));
        assert_eq!(url("[fd77::1]").as_deref(), Ok("https://[fd77::1]:7070"));
        for wrong in [
            "http://a:1",
            "https://",
            "https://a:x",
            "https://a:70000",
            "https://a/b",
            "https://u@a",
            "https://[::1",
            "https://::1]:99",
            "a b",
        ] {
            assert!(url(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn pins() {
        let digits = "ab".repeat(32);
        assert_eq!(parse_pin(&format!("sha256:{digits}")), Ok([0xab; 32]));
        assert_eq!(parse_pin(&digits), Ok([0xab; 32]));
        assert!(parse_pin("sha256:abcd").is_err());
        assert!(parse_pin(&format!("sha512:{digits}")).is_err());
    }

    #[test]
    fn another_list_of_authorities_outdates_the_credential() {
        let own = |pins: &[&str]| pins.iter().map(|pin| (*pin).to_owned()).collect::<Vec<_>>();
        assert!(!is_outdated(&own(&["a"]), "a"));
        assert!(!is_outdated(&own(&["a"]), ""), "an older server names none");
        assert!(is_outdated(&own(&["a"]), "a,b"), "a rotation has begun");
        assert!(!is_outdated(&own(&["a", "b"]), "a,b"));
        assert!(!is_outdated(&own(&["a", "b"]), "a"), "this replica follows later");
        assert!(is_outdated(&own(&["a", "b"]), "b"), "the rotation has ended");
        assert!(is_outdated(&own(&["a", "b"]), "b,c"));
    }

    #[test]
    fn renewal_is_due_in_the_last_third() {
        let validity = Validity {
            not_before: 0.0,
            not_after: 90.0,
        };
        assert!(!validity.due(59.0));
        assert!(validity.due(61.0));
        assert!(!validity.ended(89.0));
        assert!(validity.ended(90.0));
    }

    #[test]
    fn validity_is_read_from_the_certificate() {
        let (key, csr) = new_key().unwrap();
        assert!(csr.contains("CERTIFICATE REQUEST"));
        let mut params = CertificateParams::new(vec!["x".to_owned()]).unwrap();
        params.not_before = rcgen::date_time_ymd(2026, 1, 1);
        params.not_after = rcgen::date_time_ymd(2026, 1, 2);
        let certificate = params.self_signed(&key).unwrap();
        let validity = Validity::of_pem(&certificate.pem()).unwrap();
        assert_eq!(validity.not_after - validity.not_before, 86400.0);
        assert_eq!(Validity::of_pem("nonsense"), None);
    }
}
