//! Public keys of devices in PEM, bare or in certificates.

use ring::signature::{ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, UnparsedPublicKey};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, SubjectPublicKeyInfoDer};
use x509_parser::oid_registry::{OID_EC_P256, OID_KEY_TYPE_EC_PUBLIC_KEY, OID_NIST_EC_P384};
use x509_parser::prelude::{FromDer as _, SubjectPublicKeyInfo, X509Certificate};

use crate::sha256_hex;

/// Maximum number of keys to try. A certificate chain has fewer.
const KEYS_MAX: usize = 16;
/// Maximum length of a PEM text, in bytes.
const PEM_MAX: usize = 64 * 1024;

/// A curve and its hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Curve {
    /// ECDSA over NIST P-256 with SHA-256.
    P256,
    /// ECDSA over NIST P-384 with SHA-384.
    P384,
}

/// A candidate for the signer's public key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key {
    /// SHA-256 of the key's `SubjectPublicKeyInfo`, 64 hex digits.
    pub sha256: String,
    pub(crate) curve: Curve,
    point: Vec<u8>,
}

impl Key {
    fn of(info: &SubjectPublicKeyInfo<'_>) -> Option<Self> {
        if info.algorithm.algorithm != OID_KEY_TYPE_EC_PUBLIC_KEY {
            return None;
        }
        let parameters = info.algorithm.parameters.as_ref()?.as_oid().ok()?;
        let curve = if parameters == OID_EC_P256 {
            Curve::P256
        } else if parameters == OID_NIST_EC_P384 {
            Curve::P384
        } else {
            return None;
        };
        Some(Self {
            sha256: sha256_hex(info.raw),
            curve,
            point: info.subject_public_key.data.to_vec(),
        })
    }

    /// `signature` is r followed by s, as in SPDM.
    pub(crate) fn has_signed(&self, message: &[u8], signature: &[u8]) -> bool {
        let algorithm = match self.curve {
            Curve::P256 => &ECDSA_P256_SHA256_FIXED,
            Curve::P384 => &ECDSA_P384_SHA384_FIXED,
        };
        UnparsedPublicKey::new(algorithm, &self.point)
            .verify(message, signature)
            .is_ok()
    }
}

/// The ECDSA keys in a PEM text, bare or from the certificates of a chain. Unreadable keys are skipped.
#[must_use]
pub fn keys(pem: &str) -> Vec<Key> {
    let Some(bytes) = (pem.len() <= PEM_MAX).then_some(pem.as_bytes()) else {
        return Vec::new();
    };
    let mut keys = Vec::new();
    for der in CertificateDer::pem_slice_iter(bytes).take(KEYS_MAX).flatten() {
        if let Ok((_, certificate)) = X509Certificate::from_der(&der) {
            keys.extend(Key::of(certificate.public_key()));
        }
    }
    for der in SubjectPublicKeyInfoDer::pem_slice_iter(bytes).take(KEYS_MAX).flatten() {
        if let Ok((_, info)) = SubjectPublicKeyInfo::from_der(&der) {
            keys.extend(Key::of(&info));
        }
    }
    keys
}
