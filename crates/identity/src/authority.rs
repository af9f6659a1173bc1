//! The site's own certificate authority.
//!
//! One P-256 key signs all leaves directly: servers (`serverAuth`), members and agents (`clientAuth`). The path length is
//! 0: no issued certificate can sign another. The authority is valid for 20 years, and the CLI and the agents pin its hash.
//! Leaves are valid for hours to months and are reissued after two thirds of their lifetime.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, PublicKeyData as _, SanType, SerialNumber, SubjectPublicKeyInfo,
};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use secrecy::{ExposeSecret as _, SecretString};
use x509_parser::prelude::{FromDer as _, X509Certificate, X509CertificationRequest};

use crate::client::{ClientIdentity, IdentifyError};
use crate::rng::{Rng, RngError, random};

/// Lifetime of an authority: 20 years of 365.25 days.
const AUTHORITY_LIFETIME: Duration = Duration::from_secs(20 * 31_557_600);
/// Certificates become valid this long before "now", so that machines with slow clocks accept them.
const BACKDATE: Duration = Duration::from_secs(5 * 60);
/// Longest common name of an authority, in bytes.
pub(crate) const SUBJECT_MAX: usize = 64;
/// Limit for parsed certificate requests. A normal request has a few hundred bytes.
const CSR_MAX_BYTES: usize = 16 * 1024;
/// Maximum number of names in a server certificate.
const SERVER_NAMES_MAX: usize = 64;
/// OIDs of the accepted public keys: EC, Ed25519 (RFC 5480, RFC 8410).
const OID_EC_PUBLIC_KEY: &str = "1.2.840.10045.2.1";
const OID_ED25519: &str = "1.3.101.112";

/// Why a certificate could not be issued or read.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// No random bytes. Retryable.
    #[error(transparent)]
    Rng(#[from] RngError),
    /// The stored authority cannot be used. Permanent: the operator must restore it.
    #[error("the site's CA cannot be used: {0}; restore it from the backup of the data directory")]
    Authority(String),
    /// A new authority cannot have this name. Permanent.
    #[error(
        "no CA was created: its name {0:?} must have 1 to {SUBJECT_MAX} bytes and no control characters; the name of the \
         site is part of it, so change that name"
    )]
    Subject(String),
    /// The certificate request is malformed, or its signature does not match. Permanent.
    #[error("the certificate request is refused: {0}")]
    Request(String),
    /// The client's identity cannot be written into a certificate.
    #[error(transparent)]
    Identity(#[from] IdentifyError),
    /// A server name that is neither a host name nor an IP address.
    #[error("{0:?} is neither a host name nor an IP address; a server certificate cannot carry it")]
    ServerName(String),
    /// The number of server names is 0 or above the limit.
    #[error("a server certificate carries 1 to {SERVER_NAMES_MAX} names, not {0}")]
    ServerNames(usize),
    /// The time cannot be encoded, or lies outside the authority's validity.
    #[error("the certificate's time is refused: {0}")]
    Time(&'static str),
    /// Encoding or signing failed: a bug.
    #[error("the certificate could not be made")]
    Encode(#[source] rcgen::Error),
    /// The input is not a certificate.
    #[error("the certificate cannot be parsed: {0}")]
    Malformed(String),
}

/// Validity period of a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Validity {
    /// First valid moment.
    pub not_before: SystemTime,
    /// Last valid moment.
    pub not_after: SystemTime,
}

impl Validity {
    /// Reads the validity of a certificate (DER).
    pub fn of(certificate: &[u8]) -> Result<Self, CertificateError> {
        let (_, certificate) =
            X509Certificate::from_der(certificate).map_err(|e| CertificateError::Malformed(e.to_string()))?;
        let moment = |seconds: i64| {
            let seconds = u64::try_from(seconds).map_err(|_| CertificateError::Time("it begins before 1970"))?;
            UNIX_EPOCH
                .checked_add(Duration::from_secs(seconds))
                .ok_or(CertificateError::Time("it is out of range"))
        };
        let validity = certificate.validity();
        Ok(Self {
            not_before: moment(validity.not_before.timestamp())?,
            not_after: moment(validity.not_after.timestamp())?,
        })
    }

    /// When to issue the successor: after two thirds of the lifetime.
    pub fn reissue_at(&self) -> SystemTime {
        let lifetime = self.not_after.duration_since(self.not_before).unwrap_or_default();
        self.not_before + lifetime / 3 * 2
    }

    /// Whether the successor is due.
    pub fn is_reissue_due(&self, now: SystemTime) -> bool {
        now >= self.reissue_at()
    }

    /// Whether `now` lies within the validity, bounds included.
    pub fn contains(&self, now: SystemTime) -> bool {
        now >= self.not_before && now <= self.not_after
    }
}

/// A client's certificate.
#[derive(Debug, Clone)]
pub struct IssuedCertificate {
    /// The certificate without its chain.
    pub certificate_pem: String,
    /// The certificate, then the authority's certificate.
    pub chain_pem: String,
    /// SHA-256 of the authority's certificate.
    pub authority: String,
    /// Validity of the certificate.
    pub validity: Validity,
}

/// A server's certificate and key.
pub struct ServerCredential {
    /// The certificate, then the authority's. Clients pin the hash of the authority, so the server always sends both.
    pub chain: Vec<CertificateDer<'static>>,
    /// Private key, PKCS #8.
    pub key: PrivateKeyDer<'static>,
    /// Validity of the certificate.
    pub validity: Validity,
}

impl fmt::Debug for ServerCredential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerCredential")
            .field("validity", &self.validity)
            .finish_non_exhaustive()
    }
}

/// The site's certificate authority: certificate and private key.
pub struct Authority {
    certificate: CertificateDer<'static>,
    issuer: Issuer<'static, KeyPair>,
    validity: Validity,
    rng: Arc<dyn Rng>,
}

impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authority")
            .field("sha256", &self.ca_sha256())
            .finish_non_exhaustive()
    }
}

impl Authority {
    /// Creates an authority. `subject` is its common name, such as "Rackwright lab-1".
    pub fn create(subject: &str, now: SystemTime, rng: Arc<dyn Rng>) -> Result<Self, CertificateError> {
        if subject.is_empty() || subject.len() > SUBJECT_MAX || subject.chars().any(char::is_control) {
            return Err(CertificateError::Subject(
                subject.chars().take(2 * SUBJECT_MAX).collect(),
            ));
        }
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(CertificateError::Encode)?;
        let mut params = base_params(now, now.checked_add(AUTHORITY_LIFETIME), rng.as_ref())?;
        params.distinguished_name.push(DnType::CommonName, subject);
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let certificate = params.self_signed(&key).map_err(CertificateError::Encode)?;
        Self::assemble(certificate.into(), key, rng)
    }

    /// Loads a stored authority. Refuses a key that does not match the certificate, and a certificate that is not a CA.
    pub fn load(certificate_pem: &str, key_pem: &SecretString, rng: Arc<dyn Rng>) -> Result<Self, CertificateError> {
        let block = pem::parse(certificate_pem).map_err(|e| CertificateError::Authority(e.to_string()))?;
        if block.tag() != "CERTIFICATE" {
            return Err(CertificateError::Authority(format!(
                "expected a CERTIFICATE, found {:?}",
                block.tag()
            )));
        }
        let key = KeyPair::from_pkcs8_pem_and_sign_algo(key_pem.expose_secret(), &PKCS_ECDSA_P256_SHA256)
            .map_err(|_| CertificateError::Authority("its key is not a P-256 key in PKCS #8".into()))?;
        Self::assemble(CertificateDer::from(block.into_contents()), key, rng)
    }

    fn assemble(
        certificate: CertificateDer<'static>,
        key: KeyPair,
        rng: Arc<dyn Rng>,
    ) -> Result<Self, CertificateError> {
        let refuse = |what: &str| CertificateError::Authority(what.into());
        let (rest, parsed) = X509Certificate::from_der(&certificate).map_err(|e| refuse(&e.to_string()))?;
        if !rest.is_empty() {
            return Err(refuse("extra bytes follow its certificate"));
        }
        if !parsed.is_ca() {
            return Err(refuse("its certificate is not a CA certificate"));
        }
        if parsed.public_key().subject_public_key.data.as_ref() != key.public_key_raw() {
            return Err(refuse("its key does not belong to its certificate"));
        }
        parsed
            .verify_signature(None)
            .map_err(|_| refuse("its certificate is not signed by its own key"))?;
        let validity = Validity::of(&certificate)?;
        let issuer = Issuer::from_ca_cert_der(&certificate, key).map_err(|e| refuse(&e.to_string()))?;
        Ok(Self {
            certificate,
            issuer,
            validity,
            rng,
        })
    }

    /// The authority's certificate, PEM.
    pub fn ca_pem(&self) -> String {
        to_pem(&self.certificate)
    }

    /// The authority's certificate, DER.
    pub fn ca_der(&self) -> &CertificateDer<'static> {
        &self.certificate
    }

    /// `sha256:` and 64 hex digits over the certificate's DER; clients pin this value.
    pub fn ca_sha256(&self) -> String {
        sha256(&self.certificate)
    }

    /// Whether the authority's key signed this certificate (DER). The names in the certificate prove nothing.
    pub(crate) fn has_signed(&self, certificate: &[u8]) -> bool {
        let Ok((_, own)) = X509Certificate::from_der(&self.certificate) else {
            return false;
        };
        X509Certificate::from_der(certificate)
            .is_ok_and(|(_, leaf)| leaf.verify_signature(Some(own.public_key())).is_ok())
    }

    /// The authority's private key, PKCS #8 PEM. Only for the key file.
    pub fn key_pem(&self) -> SecretString {
        self.issuer.key().serialize_pem().into()
    }

    /// Validity of the authority's own certificate.
    pub fn validity(&self) -> Validity {
        self.validity
    }

    /// Issues a new key and certificate for a server with these `names` (host names and IP addresses).
    pub fn issue_server(
        &self,
        names: &[String],
        now: SystemTime,
        lifetime: Duration,
    ) -> Result<ServerCredential, CertificateError> {
        if names.is_empty() || names.len() > SERVER_NAMES_MAX {
            return Err(CertificateError::ServerNames(names.len()));
        }
        let mut params = self.leaf_params(now, lifetime)?;
        params.subject_alt_names = names.iter().map(|n| server_name(n)).collect::<Result<_, _>>()?;
        params.distinguished_name.push(DnType::CommonName, "rackwrightd");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(CertificateError::Encode)?;
        let certificate = params.signed_by(&key, &self.issuer).map_err(CertificateError::Encode)?;
        let validity = Validity::of(certificate.der())?;
        Ok(ServerCredential {
            chain: vec![certificate.into(), self.certificate.clone()],
            key: PrivatePkcs8KeyDer::from(key.serialize_der()).into(),
            validity,
        })
    }

    /// Issues a certificate for a client that has proved possession of its key.
    pub fn issue_client(
        &self,
        key: &ClientKey,
        identity: &ClientIdentity,
        now: SystemTime,
        lifetime: Duration,
    ) -> Result<IssuedCertificate, CertificateError> {
        identity.validate()?;
        let mut params = self.leaf_params(now, lifetime)?;
        params
            .distinguished_name
            .push(DnType::OrganizationalUnitName, identity.kind_name());
        params
            .distinguished_name
            .push(DnType::CommonName, identity.common_name.as_str());
        let uri = identity.uri().try_into().map_err(CertificateError::Encode)?;
        params.subject_alt_names = vec![SanType::URI(uri)];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let certificate = params
            .signed_by(&key.public_key, &self.issuer)
            .map_err(CertificateError::Encode)?;
        let certificate_pem = to_pem(certificate.der());
        Ok(IssuedCertificate {
            chain_pem: format!("{certificate_pem}{}", self.ca_pem()),
            authority: self.ca_sha256(),
            certificate_pem,
            validity: Validity::of(certificate.der())?,
        })
    }

    /// Parameters of every leaf. A leaf ends no later than the authority.
    fn leaf_params(&self, now: SystemTime, lifetime: Duration) -> Result<CertificateParams, CertificateError> {
        if !self.validity.contains(now) {
            return Err(CertificateError::Time(
                "the site's CA is not valid now; check this machine's clock",
            ));
        }
        if lifetime.is_zero() {
            return Err(CertificateError::Time("its lifetime is zero"));
        }
        let not_after = now.checked_add(lifetime).map(|end| end.min(self.validity.not_after));
        let mut params = base_params(now, not_after, self.rng.as_ref())?;
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.use_authority_key_identifier_extension = true;
        Ok(params)
    }
}

fn sha256(certificate: &[u8]) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, certificate);
    format!("sha256:{}", hex::encode(digest))
}

/// The hash of the certificate in a PEM text; `None` if the text holds no certificate.
pub(crate) fn sha256_of_pem(text: &str) -> Option<String> {
    let block = pem::parse(text).ok().filter(|block| block.tag() == "CERTIFICATE")?;
    Some(sha256(block.contents()))
}

fn base_params(
    now: SystemTime,
    not_after: Option<SystemTime>,
    rng: &dyn Rng,
) -> Result<CertificateParams, CertificateError> {
    let since_epoch = |moment: SystemTime| {
        moment
            .duration_since(UNIX_EPOCH)
            .map_err(|_| CertificateError::Time("it lies before 1970"))
    };
    let not_after = since_epoch(not_after.ok_or(CertificateError::Time("it ends out of range"))?)?;
    // RFC 5280 has four-digit years; our certificates end long before that limit.
    if not_after > Duration::from_secs(8000 * 31_536_000) {
        return Err(CertificateError::Time("it ends out of range"));
    }
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    let mut params = CertificateParams::default();
    params.not_before = epoch + since_epoch(now)?.saturating_sub(BACKDATE);
    params.not_after = epoch + not_after;
    params.distinguished_name = DistinguishedName::new();
    // RFC 5280, 4.1.2.2: positive and at most 20 octets. Here: 128 random bits with the top bit clear.
    let mut serial = random::<16>(rng)?;
    serial[0] = serial[0] & 0x7f | 0x40;
    params.serial_number = Some(SerialNumber::from_slice(&serial));
    Ok(params)
}

fn server_name(name: &str) -> Result<SanType, CertificateError> {
    let refuse = || CertificateError::ServerName(name.chars().take(253).collect());
    match ServerName::try_from(name).map_err(|_| refuse())? {
        ServerName::IpAddress(ip) => Ok(SanType::IpAddress(IpAddr::from(ip))),
        ServerName::DnsName(dns) => {
            let dns = dns.as_ref().to_owned().try_into().map_err(|_| refuse())?;
            Ok(SanType::DnsName(dns))
        }
        _ => Err(refuse()),
    }
}

/// The public key of a client. The client has proved possession of the private key by a request (PKCS #10). Names and
/// extensions of the request are ignored.
#[derive(Debug)]
pub struct ClientKey {
    public_key: SubjectPublicKeyInfo,
    sha256: String,
}

impl ClientKey {
    /// Reads a request and checks its signature.
    pub fn of_request(csr_pem: &str) -> Result<Self, CertificateError> {
        let refuse = |what: &str| CertificateError::Request(what.into());
        if csr_pem.len() > CSR_MAX_BYTES {
            return Err(refuse("it is larger than 16 KiB"));
        }
        let block = pem::parse(csr_pem).map_err(|_| refuse("it is not PEM"))?;
        if block.tag() != "CERTIFICATE REQUEST" {
            return Err(refuse("its PEM block is not a CERTIFICATE REQUEST"));
        }
        let (rest, request) =
            X509CertificationRequest::from_der(block.contents()).map_err(|_| refuse("it is not PKCS #10"))?;
        if !rest.is_empty() {
            return Err(refuse("extra bytes follow the request"));
        }
        let key = &request.certification_request_info.subject_pki;
        let algorithm = key.algorithm.algorithm.to_id_string();
        if algorithm != OID_EC_PUBLIC_KEY && algorithm != OID_ED25519 {
            return Err(refuse("its key is neither ECDSA (P-256, P-384) nor Ed25519"));
        }
        request
            .verify_signature()
            .map_err(|_| refuse("its signature does not match its key"))?;
        let public_key = SubjectPublicKeyInfo::from_der(key.raw)
            .map_err(|_| refuse("its key is neither ECDSA (P-256, P-384) nor Ed25519"))?;
        let digest = ring::digest::digest(&ring::digest::SHA256, &public_key.subject_public_key_info());
        Ok(Self {
            public_key,
            sha256: hex::encode(digest),
        })
    }

    /// SHA-256 of the key, 64 hex digits; the same for all requests with this key.
    pub fn sha256(&self) -> &str {
        &self.sha256
    }
}

/// Encodes a certificate as PEM with `\n` line ends.
fn to_pem(certificate: &CertificateDer<'_>) -> String {
    let block = pem::Pem::new("CERTIFICATE", certificate.as_ref());
    pem::encode_config(&block, pem::EncodeConfig::new().set_line_ending(pem::LineEnding::LF))
}
