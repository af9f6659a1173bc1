//! Signs erase certificates: Ed25519 (RFC 8032) over the bytes of [`crate::EraseRecord::encode`].

use std::fmt;
use std::sync::{PoisonError, RwLock, RwLockReadGuard};

use ring::signature::{ED25519, Ed25519KeyPair, KeyPair as _, UnparsedPublicKey};
use secrecy::zeroize::{Zeroize as _, Zeroizing};
use secrecy::{ExposeSecret as _, SecretBox};

use crate::rng::{Rng, RngError, random};

/// The first line of a signing key's statement about its successor.
const STATEMENT: &str = "rackwright-signing-key-v1";

/// The signature is invalid, or the key cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SignatureError {
    /// The payload, the signature or the public key was changed.
    #[error("the signature does not match this key and this payload")]
    Invalid,
    /// The public key is not 32 bytes.
    #[error("an Ed25519 public key is 32 bytes, not {0}")]
    PublicKey(usize),
}

/// A signing key of the site, in use or retired. Each key is signed by its predecessor, so that a client that knows the
/// first key can verify the chain to the present one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SigningKey {
    /// Position among the site's signing keys, from 1.
    pub number: u32,
    /// Verifies the signatures of this key.
    pub public_key: [u8; 32],
    /// Signature of the previous key over [`SigningKey::statement`]; empty for the first key.
    pub signature: Vec<u8>,
}

impl SigningKey {
    /// The text that the previous key signs.
    #[must_use]
    pub fn statement(&self, previous: &[u8; 32]) -> String {
        format!(
            "{STATEMENT}\nnumber={}\npublic_key={}\nbefore={}\n",
            self.number,
            hex::encode(self.public_key),
            hex::encode(previous)
        )
    }

    /// Checks that each key but the first is signed by its predecessor.
    ///
    /// # Errors
    /// A signature or a number in the chain is wrong.
    pub fn check_chain(keys: &[Self]) -> Result<(), SignatureError> {
        for (place, key) in keys.iter().enumerate() {
            if usize::try_from(key.number) != Ok(place + 1) {
                return Err(SignatureError::Invalid);
            }
            let Some(previous) = place.checked_sub(1).and_then(|place| keys.get(place)) else {
                continue;
            };
            let statement = key.statement(&previous.public_key);
            CertificateSigner::verify(&previous.public_key, statement.as_bytes(), &key.signature)?;
        }
        Ok(())
    }
}

/// The control plane's signing key, and the public halves of all earlier keys.
pub struct CertificateSigner(RwLock<CurrentKeys>);

struct CurrentKeys {
    seed: SecretBox<[u8; 32]>,
    pair: Ed25519KeyPair,
    /// Oldest first; the last entry belongs to `pair`.
    keys: Vec<SigningKey>,
}

impl fmt::Debug for CertificateSigner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CertificateSigner")
            .field("public_key", &hex::encode(self.public_key()))
            .finish_non_exhaustive()
    }
}

impl CertificateSigner {
    /// Creates a new key.
    pub fn generate(rng: &dyn Rng) -> Result<Self, RngError> {
        let mut seed = random::<32>(rng)?;
        let signer = Self::from_seed(seed);
        seed.zeroize();
        signer.map_err(|_| RngError)
    }

    /// Loads a stored key.
    pub fn from_seed(seed: [u8; 32]) -> Result<Self, SignatureError> {
        // "unchecked" only means that there is no public key to compare with: the public key is derived from the seed.
        let pair = Ed25519KeyPair::from_seed_unchecked(&seed).map_err(|_| SignatureError::Invalid)?;
        let mut public_key = [0; 32];
        public_key.copy_from_slice(pair.public_key().as_ref());
        let only = SigningKey {
            number: 1,
            public_key,
            signature: Vec::new(),
        };
        Ok(Self(RwLock::new(CurrentKeys {
            seed: SecretBox::new(Box::new(seed)),
            pair,
            keys: vec![only],
        })))
    }

    /// Puts the key at the end of a chain: `keys` has the oldest first and this key last.
    ///
    /// # Errors
    /// A key is not signed by its predecessor, or the last key does not belong to the seed.
    pub fn with_chain(self, keys: Vec<SigningKey>) -> Result<Self, SignatureError> {
        SigningKey::check_chain(&keys)?;
        if keys.last().is_none_or(|last| last.public_key != self.public_key()) {
            return Err(SignatureError::Invalid);
        }
        let current = self.0.into_inner().unwrap_or_else(PoisonError::into_inner);
        Ok(Self(RwLock::new(CurrentKeys { keys, ..current })))
    }

    fn current(&self) -> RwLockReadGuard<'_, CurrentKeys> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Signs with the key of `other` from now on. Returns true if that is a different key.
    pub fn replace(&self, other: Self) -> bool {
        let is_changed = other.public_key() != self.public_key();
        let other = other.0.into_inner().unwrap_or_else(PoisonError::into_inner);
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = other;
        is_changed
    }

    /// Creates the successor of this key, with its seed. The present key signs it.
    pub(crate) fn successor(&self, rng: &dyn Rng) -> Result<(Self, SigningKey), RngError> {
        let next = Self::generate(rng)?;
        let current = self.current();
        let last = current.keys.last().ok_or(RngError)?;
        let mut key = SigningKey {
            number: last.number + 1,
            public_key: next.public_key(),
            signature: Vec::new(),
        };
        let statement = key.statement(&last.public_key);
        key.signature = current.pair.sign(statement.as_bytes()).as_ref().to_vec();
        Ok((next, key))
    }

    /// The public key that verifies the signatures.
    pub fn public_key(&self) -> [u8; 32] {
        let mut key = [0; 32];
        key.copy_from_slice(self.current().pair.public_key().as_ref());
        key
    }

    /// All signing keys in the history of the site, oldest first. The site vouches for certificates by any of them.
    pub fn keys(&self) -> Vec<SigningKey> {
        self.current().keys.clone()
    }

    /// Returns a signature of 64 bytes, and the public key that verifies it.
    pub fn sign_with_key(&self, payload: &[u8]) -> (Vec<u8>, [u8; 32]) {
        let current = self.current();
        let mut key = [0; 32];
        key.copy_from_slice(current.pair.public_key().as_ref());
        (current.pair.sign(payload).as_ref().to_vec(), key)
    }

    /// Returns a signature of 64 bytes.
    pub fn sign(&self, payload: &[u8]) -> Vec<u8> {
        self.sign_with_key(payload).0
    }

    /// Checks that `signature` is by `public_key` over `payload`. The caller must know the owner of the key: compare it
    /// with the site's keys, and never take it from the certificate alone.
    pub fn verify(public_key: &[u8], payload: &[u8], signature: &[u8]) -> Result<(), SignatureError> {
        if public_key.len() != 32 {
            return Err(SignatureError::PublicKey(public_key.len()));
        }
        UnparsedPublicKey::new(&ED25519, public_key)
            .verify(payload, signature)
            .map_err(|_| SignatureError::Invalid)
    }

    pub(crate) fn seed(&self) -> Zeroizing<[u8; 32]> {
        Zeroizing::new(*self.current().seed.expose_secret())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 8032, 7.1, TEST 2.
    #[test]
    fn known_answer() {
        let mut seed = [0; 32];
        hex::decode_to_slice(
            "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
            &mut seed,
        )
        .unwrap();
        let signer = CertificateSigner::from_seed(seed).unwrap();
        assert_eq!(
            hex::encode(signer.public_key()),
            "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c"
        );
        let signature = signer.sign(&[0x72]);
        assert_eq!(
            hex::encode(&signature),
            "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00"
        );
        CertificateSigner::verify(&signer.public_key(), &[0x72], &signature).unwrap();
    }

    #[test]
    fn the_first_key_leads_to_the_current_one() {
        let signer = CertificateSigner::from_seed([7; 32]).unwrap();
        let first = signer.public_key();
        let mut keys = signer.keys();
        for number in 2..4 {
            let (next, key) = signer.successor(&crate::SystemRng).unwrap();
            assert_eq!(key.number, number);
            keys.push(key);
            let next = next.with_chain(keys.clone()).unwrap();
            assert!(signer.replace(next));
        }
        let keys = signer.keys();
        assert_eq!(keys[0].public_key, first);
        assert_eq!(keys[2].public_key, signer.public_key());
        SigningKey::check_chain(&keys).unwrap();
        let (signature, by) = signer.sign_with_key(b"payload");
        assert_eq!(by, keys[2].public_key);
        CertificateSigner::verify(&by, b"payload", &signature).unwrap();

        let mut other = keys.clone();
        other[1].signature[0] ^= 1;
        assert!(SigningKey::check_chain(&other).is_err(), "a changed signature");
        let mut other = keys.clone();
        other[1].public_key = [8; 32];
        assert!(SigningKey::check_chain(&other).is_err(), "another key");
        let mut other = keys.clone();
        other.remove(1);
        assert!(SigningKey::check_chain(&other).is_err(), "a gap");
        let stranger = CertificateSigner::from_seed([9; 32]).unwrap();
        assert!(stranger.with_chain(keys).is_err(), "another key than the last one");
    }

    #[test]
    fn tampering_shows() {
        let signer = CertificateSigner::from_seed([7; 32]).unwrap();
        let (public, payload, signature) = (signer.public_key(), b"payload".to_vec(), signer.sign(b"payload"));
        for bit in 0..payload.len() * 8 {
            let mut changed = payload.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(CertificateSigner::verify(&public, &changed, &signature).is_err());
        }
        let other = CertificateSigner::from_seed([8; 32]).unwrap();
        assert!(CertificateSigner::verify(&other.public_key(), &payload, &signature).is_err());
        assert!(CertificateSigner::verify(&public, &payload, &signature[..63]).is_err());
        assert_eq!(
            CertificateSigner::verify(&public[..31], &payload, &signature),
            Err(SignatureError::PublicKey(31))
        );
        assert!(!format!("{signer:?}").contains("0707"));
    }
}
