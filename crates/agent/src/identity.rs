//! The agent's identity: the pinned CA, the one-time token, a key generated on the machine, and its certificate.
//!
//! Certificate and key are stored in the agent's state folder (in memory, readable by root only), so that an agent that
//! restarts in the same boot keeps its identity: the token is used up.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::time::Duration;

use prost::Message as _;
use rackwright_api::v1::RegisterResponse;
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, PublicKeyData as _};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use secrecy::{ExposeSecret as _, SecretString};
use thiserror::Error;

use crate::clock;
use crate::jobs::writer::Credentials;

/// Upper limit for the size of a CA certificate.
const MAX_CA_BYTES: u64 = 64 << 10;
const HTTP_TIMEOUT: Duration = Duration::from_secs(10);
const KEY_FILE: &str = "identity.key";
const RESPONSE_FILE: &str = "identity.registration";

/// Why the agent has no identity.
#[derive(Debug, Error)]
pub enum IdentityError {
    /// The boot server did not return the CA certificate. Retryable.
    #[error("CA certificate from {url}: {why}")]
    Fetch {
        /// Requested URL.
        url: String,
        /// Reason of the failure.
        why: String,
    },
    /// The certificate is not the one in the boot plan. Permanent: another server answers.
    #[error(
        "CA certificate from {url} has SHA-256 {found}, but the boot plan names {expected}; the machine is on the \
         wrong network, or the boot plan is out of date"
    )]
    WrongCa {
        /// Source of the certificate.
        url: String,
        /// Hash of the certificate.
        found: String,
        /// Hash in the boot plan.
        expected: String,
    },
    /// The key could not be generated, or the request not signed. A bug, or a machine without random bytes.
    #[error("certificate request: {0}")]
    Request(#[from] rcgen::Error),
    /// The state folder cannot be used.
    #[error("{path}: {source}")]
    Io {
        /// File or folder.
        path: String,
        /// The kernel's error.
        source: io::Error,
    },
}

/// The pinned CA certificate.
#[derive(Clone, Debug)]
pub struct Authority {
    /// One certificate, PEM.
    pub pem: String,
    /// Validity of the certificate in Unix seconds, if it is readable.
    pub validity: Option<(i64, i64)>,
    /// `Date` header of the answer with the certificate.
    pub date: Option<String>,
}

/// Fetches the CA certificate over plain HTTP and compares it with the hash in the boot plan.
///
/// # Errors
/// [`IdentityError::Fetch`], [`IdentityError::WrongCa`].
pub fn fetch_authority(url: &str, sha256: &[u8; 32]) -> Result<Authority, IdentityError> {
    let failed = |why: String| IdentityError::Fetch {
        url: url.to_owned(),
        why,
    };
    let config = ureq::Agent::config_builder()
        .timeout_global(Some(HTTP_TIMEOUT))
        .max_redirects(0)
        .proxy(None);
    let mut response = ureq::Agent::new_with_config(config.build())
        .get(url)
        .call()
        .map_err(|error| failed(error.to_string()))?;
    let date = response
        .headers()
        .get("date")
        .and_then(|date| date.to_str().ok())
        .map(str::to_owned);
    let body = response
        .body_mut()
        .with_config()
        .limit(MAX_CA_BYTES)
        .read_to_vec()
        .map_err(|error| failed(error.to_string()))?;
    let authority = authority(url, &body, sha256)?;
    Ok(Authority { date, ..authority })
}

/// Finds the certificate with the pinned hash in a PEM text.
fn authority(url: &str, body: &[u8], sha256: &[u8; 32]) -> Result<Authority, IdentityError> {
    let mut found = None;
    for der in CertificateDer::pem_slice_iter(body).filter_map(Result::ok).take(16) {
        let digest = ring::digest::digest(&ring::digest::SHA256, &der);
        if digest.as_ref() == sha256 {
            return Ok(Authority {
                pem: to_pem(&der),
                validity: clock::validity(&der),
                date: None,
            });
        }
        found.get_or_insert_with(|| hex::encode(digest));
    }
    let Some(found) = found else {
        return Err(IdentityError::Fetch {
            url: url.to_owned(),
            why: "the answer contains no PEM certificate".into(),
        });
    };
    Err(IdentityError::WrongCa {
        url: url.to_owned(),
        found,
        expected: hex::encode(sha256),
    })
}

/// Encodes only the pinned certificate; other parts of the answer are dropped.
fn to_pem(der: &[u8]) -> String {
    const LINE: usize = 48;
    let mut pem = String::from("-----BEGIN CERTIFICATE-----\n");
    for chunk in der.chunks(LINE) {
        pem.push_str(&base64(chunk));
        pem.push('\n');
    }
    pem.push_str("-----END CERTIFICATE-----\n");
    pem
}

fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for group in bytes.chunks(3) {
        let word = group
            .iter()
            .enumerate()
            .fold(0_u32, |word, (at, byte)| word | u32::from(*byte) << (16 - 8 * at));
        for at in 0..4 {
            let digit = ALPHABET[(word >> (18 - 6 * at) & 63) as usize];
            text.push(if at <= group.len() { char::from(digit) } else { '=' });
        }
    }
    text
}

/// A new key and a certificate request for it.
pub struct Request {
    /// Private key, PKCS #8, PEM.
    pub key_pem: SecretString,
    /// Certificate request, PKCS #10, PEM.
    pub csr_pem: String,
}

impl Request {
    /// Generates an ECDSA P-256 key and signs a request with it.
    ///
    /// # Errors
    /// [`IdentityError::Request`]
    pub fn new() -> Result<Self, IdentityError> {
        let key = KeyPair::generate()?;
        Ok(Self {
            csr_pem: request(&key)?,
            key_pem: SecretString::from(key.serialize_pem()),
        })
    }

    /// Creates a request for an existing key.
    ///
    /// # Errors
    /// [`IdentityError::Request`]
    pub fn of(key_pem: SecretString) -> Result<Self, IdentityError> {
        let csr_pem = request(&KeyPair::from_pem(key_pem.expose_secret())?)?;
        Ok(Self { key_pem, csr_pem })
    }
}

/// Creates a certificate request for the key. The control plane uses only the public key; the name is for people.
fn request(key: &KeyPair) -> Result<String, IdentityError> {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, "rackwright-agent");
    Ok(params.serialize_request(key)?.pem()?)
}

/// A registered agent.
#[derive(Clone, Debug)]
pub struct Identity {
    key_pem: SecretString,
    /// Last answer of the control plane.
    pub registration: RegisterResponse,
}

impl Identity {
    /// Combines a key and the answer to its request.
    pub fn new(key_pem: SecretString, registration: RegisterResponse) -> Self {
        Self { key_pem, registration }
    }

    /// Stores a renewed certificate for the same key. Ignores an answer without a certificate and returns false.
    pub fn renew(&mut self, renewed: RegisterResponse) -> bool {
        let is_certificate = CertificateDer::from_pem_slice(renewed.certificate_pem.as_bytes()).is_ok();
        if is_certificate {
            self.registration = renewed;
        }
        is_certificate
    }

    /// Creates a request (PEM) for a new certificate for the key.
    ///
    /// # Errors
    /// [`IdentityError::Request`]
    pub fn request(&self) -> Result<String, IdentityError> {
        request(&KeyPair::from_pem(self.key_pem.expose_secret())?)
    }

    /// SHA-256 of the public key, 64 hex digits. TPM quotes are bound to it.
    ///
    /// # Errors
    /// [`IdentityError::Request`]
    pub fn key_sha256(&self) -> Result<String, IdentityError> {
        let key = KeyPair::from_pem(self.key_pem.expose_secret())?;
        let digest = ring::digest::digest(&ring::digest::SHA256, &key.subject_public_key_info());
        Ok(hex::encode(digest))
    }

    /// The credentials for TLS connections.
    pub fn credentials(&self, authority: &Authority) -> Credentials {
        Credentials {
            ca_pem: self.trusted(authority),
            certificate_pem: self.registration.certificate_pem.clone(),
            key_pem: self.key_pem.clone(),
        }
    }

    /// The trusted CA certificates: those of the last answer, or the pinned one.
    fn trusted(&self, authority: &Authority) -> String {
        let given = &self.registration.ca_certificate_pem;
        match CertificateDer::from_pem_slice(given.as_bytes()) {
            Ok(_) => given.clone(),
            Err(_) => authority.pem.clone(),
        }
    }

    /// Stores the identity for later agents of this boot.
    ///
    /// # Errors
    /// [`IdentityError::Io`]
    pub fn save(&self, state: &Path) -> Result<(), IdentityError> {
        save_key(state, &self.key_pem)?;
        write_private(&state.join(RESPONSE_FILE), &self.registration.encode_to_vec())
    }

    /// The identity stored by an earlier agent of this boot.
    pub fn load(state: &Path) -> Option<Self> {
        let registration = RegisterResponse::decode(&*fs::read(state.join(RESPONSE_FILE)).ok()?).ok()?;
        let key_pem = load_key(state)?;
        Some(Self { key_pem, registration })
    }
}

/// Stores the key for later agents of this boot.
///
/// # Errors
/// [`IdentityError::Io`]
pub fn save_key(state: &Path, key_pem: &SecretString) -> Result<(), IdentityError> {
    make_state_folder(state).map_err(|source| IdentityError::Io {
        path: state.display().to_string(),
        source,
    })?;
    write_private(&state.join(KEY_FILE), key_pem.expose_secret().as_bytes())
}

/// The key stored by an earlier agent of this boot.
pub fn load_key(state: &Path) -> Option<SecretString> {
    Some(SecretString::from(fs::read_to_string(state.join(KEY_FILE)).ok()?))
}

/// Creates the folder for the agent's state, accessible to its owner only.
///
/// # Errors
/// The kernel's error.
pub fn make_state_folder(state: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(state)
}

/// Writes a temporary file and renames it: a reader sees the old content or the new.
fn write_private(path: &Path, content: &[u8]) -> Result<(), IdentityError> {
    let temporary = path.with_extension("new");
    let write = || {
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&temporary)?;
        file.write_all(content)?;
        file.sync_all()?;
        fs::rename(&temporary, path)
    };
    write().map_err(|source| IdentityError::Io {
        path: path.display().to_string(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn only_the_pinned_certificate_is_taken() {
        let pem = |name: &str| {
            rcgen::generate_simple_self_signed([name.to_owned()])
                .unwrap()
                .cert
                .pem()
        };
        let (ours, other) = (pem("ours"), pem("other"));
        let der = CertificateDer::from_pem_slice(ours.as_bytes()).unwrap();
        let mut sha256 = [0; 32];
        sha256.copy_from_slice(ring::digest::digest(&ring::digest::SHA256, &der).as_ref());
        let both = format!("{other}{ours}");
        let authority = super::authority("http://x/", both.as_bytes(), &sha256).unwrap();
        assert_eq!(
            CertificateDer::from_pem_slice(authority.pem.as_bytes()).unwrap(),
            der,
            "PEM made here reads back"
        );
        assert!(!authority.pem.contains(other.lines().nth(1).unwrap()));
        assert!(authority.validity.is_some());
        let wrong = super::authority("http://x/", other.as_bytes(), &sha256).unwrap_err();
        assert!(matches!(wrong, IdentityError::WrongCa { .. }), "{wrong}");
        let none = super::authority("http://x/", b"<html>", &sha256).unwrap_err();
        assert!(matches!(none, IdentityError::Fetch { .. }), "{none}");
    }

    #[test]
    fn base64_of_every_tail() {
        for (bytes, text) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
        ] {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
    }

    #[test]
    fn an_identity_survives_the_process_and_is_closed_to_others() {
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join("run/rackwright");
        assert!(Identity::load(&state).is_none());
        let request = Request::new().unwrap();
        assert!(load_key(&state).is_none());
        save_key(&state, &request.key_pem).unwrap();
        let again = Request::of(load_key(&state).unwrap()).unwrap();
        assert_eq!(again.key_pem.expose_secret(), request.key_pem.expose_secret());
        assert!(Identity::load(&state).is_none(), "a key alone is no identity");
        assert!(request.csr_pem.starts_with("-----BEGIN CERTIFICATE REQUEST-----"));
        let registration = RegisterResponse {
            node: "nodes/a".into(),
            claim_generation: 4,
            ..RegisterResponse::default()
        };
        let mut identity = Identity::new(request.key_pem, registration);
        identity.save(&state).unwrap();
        let loaded = Identity::load(&state).unwrap();
        assert_eq!(loaded.registration, identity.registration);
        assert_eq!(loaded.key_pem.expose_secret(), identity.key_pem.expose_secret());
        for file in [KEY_FILE, RESPONSE_FILE] {
            assert_eq!(
                fs::metadata(state.join(file)).unwrap().permissions().mode() & 0o777,
                0o600
            );
        }
        assert!(
            !identity.renew(RegisterResponse::default()),
            "no certificate, no renewal"
        );
        assert!(!format!("{identity:?}").contains("PRIVATE"));
    }
}
