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
//! The associated data is the first 9 bytes and the purpose, such as `bmc-password:nodes/gpu-001`. A blob does not open
//! after a copy to another row, or after a change of its key id or version. Random 96-bit nonces are safe for 2^32 secrets
//! under one key, far more than a site seals.
//!
//! Other keys of the site are derived: HMAC-SHA-256(oldest sealing key, "rackwright derived key: " and the purpose).
//!
//! A running daemon can add keys (`Sealer::add_keys`). It removes none while it runs: a secret that it has sealed but not
//! stored yet must still open later.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use secrecy::zeroize::Zeroize as _;
use secrecy::{ExposeSecret as _, SecretBox, SecretString};

use crate::rng::{Rng, RngError, random};

const VERSION: u8 = 1;
const KEY_ID_BYTES: usize = 8;
const NONCE_BYTES: usize = 12;
const TAG_BYTES: usize = 16;
const HEADER_BYTES: usize = 1 + KEY_ID_BYTES;
/// Largest secret. The longest secrets are customers' cloud-configs.
const SECRET_MAX_BYTES: usize = 256 * 1024;

/// Why a secret could not be sealed or opened. Permanent, except [`SealError::Rng`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    /// No random bytes. Retryable.
    #[error(transparent)]
    Rng(#[from] RngError),
    /// The list of keys is empty.
    #[error("there is no sealing key")]
    NoKey,
    /// The purpose is empty.
    #[error("the purpose of a sealed secret must not be empty")]
    NoPurpose,
    /// The secret exceeds the limit.
    #[error("a secret for {purpose} is {bytes} bytes; at most {SECRET_MAX_BYTES} can be sealed")]
    TooLong {
        /// Purpose of the secret.
        purpose: String,
        /// Length of the secret in bytes.
        bytes: usize,
    },
    /// The cipher failed: a bug.
    #[error("a secret for {purpose} could not be sealed, because the cipher failed; no secret was stored")]
    NotSealed {
        /// Purpose of the secret.
        purpose: String,
    },
    /// The blob does not have the format of a sealed secret, or its content is not text.
    #[error("the sealed secret for {purpose} is damaged: {what}")]
    Damaged {
        /// Purpose of the secret.
        purpose: String,
        /// The fault in the blob.
        what: &'static str,
    },
    /// The secret is sealed under a key that is not in the set.
    #[error(
        "the sealed secret for {purpose} needs sealing key {key_id}, which is not in the key directory; restore that key file"
    )]
    UnknownKey {
        /// Purpose of the secret.
        purpose: String,
        /// Id of the missing key, hex.
        key_id: String,
    },
    /// The blob was changed, or sealed for another purpose.
    #[error(
        "the sealed secret for {purpose} cannot be opened: it was changed, or sealed for another purpose; set the \
         secret again"
    )]
    Refused {
        /// Purpose of the secret.
        purpose: String,
    },
}

/// One sealing key.
pub struct SealingKey(SecretBox<[u8; 32]>);

impl SealingKey {
    /// The id by which blobs name this key, as hex digits.
    pub fn id(&self) -> String {
        hex::encode(key_id(self))
    }

    /// Creates a new key.
    pub fn generate(rng: &dyn Rng) -> Result<Self, RngError> {
        let mut bytes = random::<32>(rng)?;
        let key = Self::from_bytes(bytes);
        bytes.zeroize();
        Ok(key)
    }

    /// Wraps a stored key.
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

/// Seals with one key, opens with any, derives from the oldest.
pub struct Sealer {
    ring: RwLock<Ring>,
    rng: Arc<dyn Rng>,
}

struct Ring {
    /// Newest first.
    keys: Vec<([u8; KEY_ID_BYTES], LessSafeKey)>,
    /// Index in `keys` of the key that seals.
    seals_with: usize,
    oldest: ring::hmac::Key,
}

impl Ring {
    fn new(keys: &[SealingKey]) -> Result<Self, SealError> {
        let oldest = keys.last().ok_or(SealError::NoKey)?;
        Ok(Self {
            oldest: ring::hmac::Key::new(ring::hmac::HMAC_SHA256, oldest.expose()),
            keys: keys.iter().map(opening_key).collect::<Result<_, _>>()?,
            seals_with: 0,
        })
    }

    fn sealing_key(&self) -> Result<&([u8; KEY_ID_BYTES], LessSafeKey), SealError> {
        self.keys.get(self.seals_with).ok_or(SealError::NoKey)
    }
}

fn opening_key(key: &SealingKey) -> Result<([u8; KEY_ID_BYTES], LessSafeKey), SealError> {
    let unbound = UnboundKey::new(&CHACHA20_POLY1305, key.expose()).map_err(|_| SealError::NoKey)?;
    Ok((key_id(key), LessSafeKey::new(unbound)))
}

impl fmt::Debug for Sealer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sealer")
            .field("key_ids", &self.key_ids())
            .finish_non_exhaustive()
    }
}

impl Sealer {
    /// `keys` has the newest key first; that key seals.
    pub fn new(keys: &[SealingKey], rng: Arc<dyn Rng>) -> Result<Self, SealError> {
        Ok(Self {
            ring: RwLock::new(Ring::new(keys)?),
            rng,
        })
    }

    fn ring(&self) -> RwLockReadGuard<'_, Ring> {
        self.ring.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds the keys that are new. `keys` has the newest first. The key that seals stays the same.
    pub fn add_keys(&self, keys: &[SealingKey]) -> Result<(), SealError> {
        let mut ring = self.ring.write().unwrap_or_else(PoisonError::into_inner);
        for key in keys.iter().rev() {
            let id = key_id(key);
            if !ring.keys.iter().any(|(known, _)| *known == id) {
                ring.keys.insert(0, opening_key(key)?);
                ring.seals_with += 1;
            }
        }
        Ok(())
    }

    /// Seals with the key of this id from now on. Returns false if there is no such key.
    pub fn use_sealing_key(&self, id: &str) -> bool {
        let mut ring = self.ring.write().unwrap_or_else(PoisonError::into_inner);
        let place = ring.keys.iter().position(|(known, _)| hex::encode(known) == id);
        if let Some(place) = place {
            ring.seals_with = place;
        }
        place.is_some()
    }

    /// Ids of all keys, newest first.
    pub fn key_ids(&self) -> Vec<String> {
        self.ring().keys.iter().map(|(id, _)| hex::encode(id)).collect()
    }

    /// The id of the key that seals.
    pub fn seals_with(&self) -> String {
        self.ring()
            .sealing_key()
            .map(|(id, _)| hex::encode(id))
            .unwrap_or_default()
    }

    /// Derives a key for one purpose, such as `request-digests`. The result is constant until the oldest sealing key is
    /// removed. It reveals nothing about the sealing keys or the keys for other purposes.
    pub fn derive(&self, purpose: &str) -> SecretBox<[u8; 32]> {
        let text = format!("rackwright derived key: {purpose}");
        let tag = ring::hmac::sign(&self.ring().oldest, text.as_bytes());
        SecretBox::init_with_mut(|key: &mut [u8; 32]| key.copy_from_slice(tag.as_ref()))
    }

    /// A sealer with the key that [`Sealer::derive`] gives for this purpose. For texts that leave the site: the keys of
    /// stored secrets seal no such text.
    pub fn derived(&self, purpose: &str) -> Result<Self, SealError> {
        let key = SealingKey(self.derive(purpose));
        Self::new(&[key], self.rng.clone())
    }

    /// Seals a secret for one purpose, such as `bmc-password:nodes/gpu-001`. Sealing a secret twice gives two different
    /// blobs.
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
        let ring = self.ring();
        let (id, key) = ring.sealing_key()?;
        let nonce = random::<NONCE_BYTES>(self.rng.as_ref())?;
        let mut header = [VERSION; HEADER_BYTES];
        header[1..].copy_from_slice(id);
        // The capacity includes the tag, so that the buffer never moves and leaves a copy of the plain text behind.
        let mut body = Vec::with_capacity(plain.len() + TAG_BYTES);
        body.extend_from_slice(plain);
        let aad = Aad::from(associated_data(&header, purpose));
        key.seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), aad, &mut body)
            .map_err(|_| SealError::NotSealed {
                purpose: purpose.into(),
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
        let ring = self.ring();
        let (_, key) = ring
            .keys
            .iter()
            .find(|(id, _)| id == &header[1..])
            .ok_or_else(|| SealError::UnknownKey {
                purpose: purpose.into(),
                key_id: hex::encode(&header[1..]),
            })?;
        let mut body = body.to_vec();
        let aad = Aad::from(associated_data(header, purpose));
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

    /// Whether another key than the present sealing key sealed `blob`, so that it should be resealed.
    pub fn needs_reseal(&self, blob: &[u8]) -> bool {
        match (split(blob), self.ring().sealing_key()) {
            (Some((header, ..)), Ok((current, _))) => header[1..] != current[..],
            _ => false,
        }
    }

    /// Reseals `blob` if necessary. `None`: the blob stays as it is.
    pub fn reseal(&self, blob: &[u8], purpose: &str) -> Result<Option<Vec<u8>>, SealError> {
        if !self.needs_reseal(blob) {
            return Ok(None);
        }
        self.seal(&self.open(blob, purpose)?, purpose).map(Some)
    }
}

/// The id of the key that sealed `blob`, as hex digits. `None` if `blob` is not a sealed secret.
pub fn sealed_under(blob: &[u8]) -> Option<String> {
    split(blob).map(|(header, ..)| hex::encode(&header[1..]))
}

/// The first bytes of every blob that the key of this id sealed. `None` if `id` is not a key id.
pub fn seal_header(id: &str) -> Option<[u8; HEADER_BYTES]> {
    let mut header = [VERSION; HEADER_BYTES];
    hex::decode_to_slice(id, &mut header[1..]).ok()?;
    Some(header)
}

fn split(blob: &[u8]) -> Option<(&[u8; HEADER_BYTES], &[u8; NONCE_BYTES], &[u8])> {
    let (header, rest) = blob.split_first_chunk::<HEADER_BYTES>()?;
    let (nonce, body) = rest.split_first_chunk::<NONCE_BYTES>()?;
    (body.len() >= TAG_BYTES).then_some((header, nonce, body))
}

fn associated_data(header: &[u8; HEADER_BYTES], purpose: &str) -> Vec<u8> {
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
    fn added_keys_open_and_seal_once_selected() {
        let sealer = sealer(&[key(1)]);
        let blob = sealer.seal(&secret("hunter2"), PURPOSE).unwrap();
        sealer.add_keys(&[key(2), key(1)]).unwrap();
        assert_eq!(sealer.key_ids(), [key(2).id(), key(1).id()]);
        assert_eq!(sealer.seals_with(), key(1).id());
        assert!(!sealer.needs_reseal(&blob));
        assert_eq!(sealer.reseal(&blob, PURPOSE).unwrap(), None);
        assert!(!sealer.use_sealing_key(&key(3).id()));
        assert!(sealer.use_sealing_key(&key(2).id()));
        let resealed = sealer.reseal(&blob, PURPOSE).unwrap().unwrap();
        assert_eq!(sealed_under(&resealed), Some(key(2).id()));
        assert_eq!(seal_header(&key(2).id()).unwrap(), resealed[..HEADER_BYTES]);
        assert_eq!(seal_header("no id"), None);
        assert_eq!(sealed_under(&blob), Some(key(1).id()));
        assert_eq!(sealer.open(&resealed, PURPOSE).unwrap().expose_secret(), "hunter2");
        assert!(sealer.reseal(&blob, "bmc-password:nodes/gpu-002").is_err());
        sealer.add_keys(&[key(2)]).unwrap();
        assert_eq!(sealer.key_ids().len(), 2, "all are listed");
        assert!(sealer.open(&blob, PURPOSE).is_ok());
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
    fn a_derived_sealer_has_a_key_of_its_own() {
        let site = sealer(&[key(1)]);
        let derived = site.derived("web logins").unwrap();
        let blob = derived.seal(&secret("hunter2"), PURPOSE).unwrap();
        assert!(matches!(site.open(&blob, PURPOSE), Err(SealError::UnknownKey { .. })));
        let again = sealer(&[key(2), key(1)]).derived("web logins").unwrap();
        assert_eq!(again.open(&blob, PURPOSE).unwrap().expose_secret(), "hunter2");
        let other = site.derived("web login").unwrap();
        assert!(other.open(&blob, PURPOSE).is_err());
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
    fn a_failure_to_seal_is_not_a_damaged_secret() {
        let error = SealError::NotSealed {
            purpose: PURPOSE.to_owned(),
        };
        let text = error.to_string();
        assert!(
            text.starts_with("a secret for bmc-password:nodes/gpu-001 could not be sealed"),
            "{text}"
        );
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
