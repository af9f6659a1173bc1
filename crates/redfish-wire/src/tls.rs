//! TLS to BMCs. Their certificates are self-signed, so the client checks a pinned fingerprint, not a chain.

#[cfg(not(feature = "platform-tls"))]
mod built_in;
#[cfg(feature = "platform-tls")]
mod platform;

use std::error::Error;
use std::fmt;
use std::io;
use std::str::FromStr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ring::digest;
use rustls_pki_types::CertificateDer;
use serde::Serialize;

use crate::error::RedfishError;

#[cfg(not(feature = "platform-tls"))]
pub use built_in::NO_SHARED_CIPHER;
#[cfg(not(feature = "platform-tls"))]
pub(crate) use built_in::{Connector, Kept, Stream};
#[cfg(feature = "platform-tls")]
pub use platform::NO_SHARED_CIPHER;
#[cfg(feature = "platform-tls")]
pub(crate) use platform::{Connector, Kept, Stream};

pub(crate) type BoxError = Box<dyn Error + Send + Sync>;

/// Why a handshake failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TlsFault {
    /// The connection ended during the handshake.
    #[error(transparent)]
    Broken(io::Error),
    /// The BMC supports none of the cipher suites.
    #[error(transparent)]
    NoSharedCipher(BoxError),
    /// One side refused the other's message.
    #[error(transparent)]
    Refused(BoxError),
}

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

#[derive(Debug, Default)]
struct Seen {
    expected: Option<CertificateFingerprint>,
    observed: Option<CertificateFingerprint>,
    mismatched: Option<CertificateFingerprint>,
}

/// Accepts exactly one certificate: the pinned one; without a pin, the first one seen.
#[derive(Debug)]
pub struct Pin {
    seen: Mutex<Seen>,
}

/// The shown certificate is not the pinned one.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("the certificate is not the pinned certificate")]
pub(crate) struct NotPinned;

impl Pin {
    pub fn new(pin: Option<CertificateFingerprint>) -> Arc<Self> {
        Arc::new(Self {
            seen: Mutex::new(Seen {
                expected: pin,
                ..Seen::default()
            }),
        })
    }

    /// Checks the certificate that a BMC shows in a handshake.
    pub(crate) fn check(&self, shown: CertificateFingerprint) -> Result<(), NotPinned> {
        let mut seen = self.lock();
        if *seen.expected.get_or_insert(shown) != shown {
            seen.mismatched = Some(shown);
            return Err(NotPinned);
        }
        seen.observed = Some(shown);
        Ok(())
    }

    /// The certificate of the last accepted handshake.
    pub fn observed(&self) -> Option<CertificateFingerprint> {
        self.lock().observed
    }

    /// The expected certificate and the different one that was shown, if that has happened.
    pub(crate) fn mismatch(&self) -> Option<(CertificateFingerprint, CertificateFingerprint)> {
        let seen = self.lock();
        seen.expected.zip(seen.mismatched)
    }

    fn lock(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
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
        let pin = Pin::new(None);
        let check = |der: &[u8]| pin.check(CertificateFingerprint::of(&der.into())).is_ok();
        assert!(check(b"one") && check(b"one") && pin.mismatch().is_none());
        assert!(!check(b"two"));
        let (expected, seen) = pin.mismatch().unwrap();
        assert_eq!(Some(expected), pin.observed());
        assert_ne!(expected, seen);
    }
}
