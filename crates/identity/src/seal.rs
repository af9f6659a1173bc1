//! Secrets at rest.
//!
//! A sealed blob is
//!
//! | bytes | what |
//! |---|---|
//! | 1 | version, 1 |
//! | 8 | key id: the first 8 bytes of HMAC-SHA-256(key, "rackwright sealing key id") |
//! | 12 | nonce, random |
//! | n + 16 | ChaCha20-Poly1305 (RFC 8439) of the secret, and its tag |
//!
//! The associated data is the first 9 bytes and the purpose, such as `bmc-password:nodes/gpu-001`: a blob copied to
//! another row, or with another key id or version written over it, does not open. Random 96-bit nonces are safe for
//! 2^32 secrets under one key, far more than a site seals.
//!
//! Other keys of the site are derived: HMAC-SHA-256(oldest sealing key, "rackwright derived key: " and the purpose).

use std::fmt;
use std::sync::Arc;

use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use secrecy::zeroize::Zeroize as _;
use secrecy::{ExposeSecret as _, SecretBox, SecretString};

use crate::rng::{Rng, RngError, random};

const VERSION: u8 = 1;
const KEY_ID_BYTES: usize = 8;
const NONCE_BYTES: usize = 12;
const TAG_BYTES: usize = 16;
const HEADER_BYTES: usize = 1 + KEY_ID_BYTES;
/// The longest secret: keys and passwords, not files.
const SECRET_MAX_BYTES: usize = 64 * 1024;

/// Why a secret was not sealed or not opened. All but [`SealError::Rng`] are permanent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    /// Retryable.
    #[error(transparent)]
    Rng(#[from] RngError),
    /// No key at all.
    #[error("there is no sealing key")]
    NoKey,
    /// The purpose is empty.
    #[error("a secret needs a purpose to be sealed for")]
    NoPurpose,
    /// Too long.
    #[error("a secret for {purpose} is {bytes} bytes; at most {SECRET_MAX_BYTES} can be sealed")]
    TooLong {
        /// What it was for.
        purpose: String,
        /// Its length.
        bytes: usize,
    },
    /// Not a blob of ours.
    #[error("the sealed secret for {purpose} is damaged: {what}")]
    Damaged {
        /// What it is for.
        purpose: String,
        /// What is wrong.
        what: &'static str,
    },
    /// Sealed under a key that is not here.
    #[error(
        "the sealed secret for {purpose} needs sealing key {key_id}, which is not in the key directory; restore that key file"
    )]
    UnknownKey {
        /// What it is for.
        purpose: String,
        /// Hex.
        key_id: String,
    },
    /// Tampered with, or sealed for another purpose.
    #[error(
        "the sealed secret for {purpose} does not open: it was changed, or sealed for something else; set the secret anew"
    )]
    Refused {
        /// What it is for.
        purpose: String,
    },
}

/// One sealing key.
pub struct SealingKey(SecretBox<[u8; 32]>);

impl SealingKey {
    /// Makes a new key.
    pub fn generate(rng: &dyn Rng) -> Result<Self, RngError> {
        let mut bytes = random::<32>(rng)?;
        let key = Self::from_bytes(bytes);
        bytes.zeroize();
        Ok(key)
    }

    /// Takes up a stored key.
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(SecretBox::new(Box::new(bytes)))
    }

    pub(crate) fn expose(&self) -> &[u8; 32] {
        self.0.expose_secret()
    }
}

impl fmt::Debug for SealingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SealingKey([hidden])")
    }
}

/// Seals under the newest key, opens under any, derives from the oldest.
pub struct Sealer {
    keys: Vec<([u8; KEY_ID_BYTES], LessSafeKey)>,
    oldest: ring::hmac::Key,
    rng: Arc<dyn Rng>,
}

impl fmt::Debug for Sealer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ids: Vec<String> = self.keys.iter().map(|(id, _)| hex::encode(id)).collect();
        f.debug_struct("Sealer").field("key_ids", &ids).finish_non_exhaustive()
    }
}

impl Sealer {
    /// `keys` with the newest first.
    pub fn new(keys: &[SealingKey], rng: Arc<dyn Rng>) -> Result<Self, SealError> {
        let oldest = keys.last().ok_or(SealError::NoKey)?;
        let oldest = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, oldest.expose());
        let keys = keys
            .iter()
            .map(|key| {
                let unbound = UnboundKey::new(&CHACHA20_POLY1305, key.expose()).map_err(|_| SealError::NoKey)?;
                Ok((key_id(key), LessSafeKey::new(unbound)))
            })
            .collect::<Result<Vec<_>, SealError>>()?;
        Ok(Self { keys, oldest, rng })
    }

    /// A key for one purpose, such as `request-digests`: always the same one, until the oldest sealing key is taken
    /// away. It tells nothing of the sealing keys, nor of keys for other purposes.
    pub fn derive(&self, purpose: &str) -> SecretBox<[u8; 32]> {
        let text = format!("rackwright derived key: {purpose}");
        let tag = ring::hmac::sign(&self.oldest, text.as_bytes());
        SecretBox::init_with_mut(|key: &mut [u8; 32]| key.copy_from_slice(tag.as_ref()))
    }

    /// Seals a secret for one purpose, such as `bmc-password:nodes/gpu-001`. Sealing twice gives two different blobs.
    pub fn seal(&self, secret: &SecretString, purpose: &str) -> Result<Vec<u8>, SealError> {
        let plain = secret.expose_secret().as_bytes();
        if purpose.is_empty() {
            return Err(SealError::NoPurpose);
        }
        if plain.len() > SECRET_MAX_BYTES {
            return Err(SealError::TooLong {
                purpose: purpose.into(),
                bytes: plain.len(),
            });
        }
        let (id, key) = self.keys.first().ok_or(SealError::NoKey)?;
        let nonce = random::<NONCE_BYTES>(self.rng.as_ref())?;
        let mut header = [VERSION; HEADER_BYTES];
        header[1..].copy_from_slice(id);
        // The capacity holds the tag too, so that the plain text is never moved and left behind.
        let mut body = Vec::with_capacity(plain.len() + TAG_BYTES);
        body.extend_from_slice(plain);
        let aad = Aad::from(associated(&header, purpose));
        key.seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), aad, &mut body)
            .map_err(|_| SealError::Damaged {
                purpose: purpose.into(),
                what: "sealing failed",
            })?;
        Ok([&header[..], &nonce, &body].concat())
    }

    /// Opens a blob that was sealed for the same purpose.
    pub fn open(&self, blob: &[u8], purpose: &str) -> Result<SecretString, SealError> {
        let damaged = |what| SealError::Damaged {
            purpose: purpose.into(),
            what,
        };
        let (header, nonce, body) = split(blob).ok_or_else(|| damaged("it is too short"))?;
        if header[0] != VERSION {
            return Err(damaged("its version is unknown"));
        }
        if body.len() > SECRET_MAX_BYTES + TAG_BYTES {
            return Err(damaged("it is too long"));
        }
        let (_, key) = self
            .keys
            .iter()
            .find(|(id, _)| id == &header[1..])
            .ok_or_else(|| SealError::UnknownKey {
                purpose: purpose.into(),
                key_id: hex::encode(&header[1..]),
            })?;
        let mut body = body.to_vec();
        let aad = Aad::from(associated(header, purpose));
        let plain = key
            .open_in_place(Nonce::assume_unique_for_key(*nonce), aad, &mut body)
            .map_err(|_| SealError::Refused {
                purpose: purpose.into(),
            })?;
        let secret = std::str::from_utf8(plain).map(|text| SecretString::from(text.to_owned()));
        let secret = secret.map_err(|_| damaged("it is not text"));
        body.zeroize();
        secret
    }

    /// Whether `blob` was sealed under an older key, and should be sealed anew.
    pub fn needs_reseal(&self, blob: &[u8]) -> bool {
        match (split(blob), self.keys.first()) {
            (Some((header, ..)), Some((newest, _))) => header[1..] != newest[..],
            _ => false,
        }
    }
}

fn split(blob: &[u8]) -> Option<(&[u8; HEADER_BYTES], &[u8; NONCE_BYTES], &[u8])> {
    let (header, rest) = blob.split_first_chunk::<HEADER_BYTES>()?;
    let (nonce, body) = rest.split_first_chunk::<NONCE_BYTES>()?;
    (body.len() >= TAG_BYTES).then_some((header, nonce, body))
}

fn associated(header: &[u8; HEADER_BYTES], purpose: &str) -> Vec<u8> {
    [&header[..], purpose.as_bytes()].concat()
}

fn key_id(key: &SealingKey) -> [u8; KEY_ID_BYTES] {
    let mac = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, key.expose());
    let tag = ring::hmac::sign(&mac, b"rackwright sealing key id");
    let mut id = [0; KEY_ID_BYTES];
    id.copy_from_slice(&tag.as_ref()[..KEY_ID_BYTES]);
    id
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SystemRng;

    const PURPOSE: &str = "bmc-password:nodes/gpu-001";

    fn key(n: u8) -> SealingKey {
        SealingKey::from_bytes([n; 32])
    }

    fn sealer(keys: &[SealingKey]) -> Sealer {
        Sealer::new(keys, Arc::new(SystemRng)).unwrap()
    }

    fn secret(text: &str) -> SecretString {
        SecretString::from(text.to_owned())
    }

    #[test]
    fn opens_what_it_sealed() {
        let sealer = sealer(&[key(1)]);
        for text in ["", "hunter2", "pass wörd\n", &"x".repeat(SECRET_MAX_BYTES)] {
            let blob = sealer.seal(&secret(text), PURPOSE).unwrap();
            assert_eq!(sealer.open(&blob, PURPOSE).unwrap().expose_secret(), text);
            assert_ne!(
                blob,
                sealer.seal(&secret(text), PURPOSE).unwrap(),
                "a nonce was used twice"
            );
            if !text.is_empty() {
                assert!(!blob.windows(text.len()).any(|w| w == text.as_bytes()));
            }
        }
    }

    #[test]
    fn refuses_another_row_and_every_changed_bit() {
        let sealer = sealer(&[key(1)]);
        let blob = sealer.seal(&secret("hunter2"), PURPOSE).unwrap();
        for other in [
            "bmc-password:nodes/gpu-002",
            "bmc-password:nodes/gpu-0011",
            "",
            "ssh-host-key:nodes/gpu-001",
        ] {
            assert!(
                matches!(sealer.open(&blob, other), Err(SealError::Refused { .. })),
                "{other}"
            );
        }
        for bit in 0..blob.len() * 8 {
            let mut changed = blob.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(sealer.open(&changed, PURPOSE).is_err(), "bit {bit}");
        }
        for length in 0..blob.len() {
            assert!(sealer.open(&blob[..length], PURPOSE).is_err(), "{length} bytes");
        }
    }

    #[test]
    fn rotation_opens_old_seals_new() {
        let old = sealer(&[key(1)]);
        let blob = old.seal(&secret("hunter2"), PURPOSE).unwrap();
        let both = sealer(&[key(2), key(1)]);
        assert_eq!(both.open(&blob, PURPOSE).unwrap().expose_secret(), "hunter2");
        assert!(both.needs_reseal(&blob));
        let fresh = both.seal(&secret("hunter2"), PURPOSE).unwrap();
        assert!(!both.needs_reseal(&fresh));
        assert!(matches!(old.open(&fresh, PURPOSE), Err(SealError::UnknownKey { .. })));
    }

    #[test]
    fn derived_keys_differ_by_purpose_and_site_and_outlive_a_rotation() {
        let derived = |keys: &[SealingKey], purpose: &str| *sealer(keys).derive(purpose).expose_secret();
        let first = derived(&[key(1)], "request-digests");
        assert_eq!(first, derived(&[key(2), key(1)], "request-digests"));
        assert_ne!(first, derived(&[key(2)], "request-digests"));
        assert_ne!(first, derived(&[key(1)], "request-digest"));
        assert_ne!(first, [1; 32]);
    }

    #[test]
    fn misuse_is_refused() {
        assert!(matches!(Sealer::new(&[], Arc::new(SystemRng)), Err(SealError::NoKey)));
        let sealer = sealer(&[key(1)]);
        assert_eq!(sealer.seal(&secret("x"), ""), Err(SealError::NoPurpose));
        let long = secret(&"x".repeat(SECRET_MAX_BYTES + 1));
        assert!(matches!(sealer.seal(&long, PURPOSE), Err(SealError::TooLong { .. })));
    }

    #[test]
    fn without_randomness_nothing_is_sealed() {
        struct Broken;
        impl Rng for Broken {
            fn fill(&self, _: &mut [u8]) -> Result<(), RngError> {
                Err(RngError)
            }
        }
        let sealer = Sealer::new(&[key(1)], Arc::new(Broken)).unwrap();
        assert_eq!(sealer.seal(&secret("x"), PURPOSE), Err(SealError::Rng(RngError)));
    }

    #[test]
    fn debug_hides_keys() {
        let text = format!("{:?} {:?}", key(0xab), sealer(&[key(0xab)]));
        assert!(!text.contains("171") && !text.contains("abab"), "{text}");
    }
}
