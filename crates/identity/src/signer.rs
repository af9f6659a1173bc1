//! Signs erase certificates: Ed25519 (RFC 8032) over the bytes of [`crate::EraseRecord::encode`].

use std::fmt;

use ring::signature::{ED25519, Ed25519KeyPair, KeyPair as _, UnparsedPublicKey};
use secrecy::zeroize::Zeroize as _;
use secrecy::{ExposeSecret as _, SecretBox};

use crate::rng::{Rng, RngError, random};

/// The signature does not hold, or the key cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SignatureError {
    /// The payload, the signature or the public key was changed.
    #[error("the signature is not by this key over this payload")]
    Invalid,
    /// The public key is not 32 bytes.
    #[error("an Ed25519 public key is 32 bytes, not {0}")]
    PublicKey(usize),
}

/// The control plane's signing key.
pub struct CertificateSigner {
    seed: SecretBox<[u8; 32]>,
    pair: Ed25519KeyPair,
}

impl fmt::Debug for CertificateSigner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CertificateSigner")
            .field("public_key", &hex::encode(self.public_key()))
            .finish_non_exhaustive()
    }
}

impl CertificateSigner {
    /// Makes a new key.
    pub fn generate(rng: &dyn Rng) -> Result<Self, RngError> {
        let mut seed = random::<32>(rng)?;
        let signer = Self::from_seed(seed);
        seed.zeroize();
        signer.map_err(|_| RngError)
    }

    /// Takes up a stored key.
    pub fn from_seed(seed: [u8; 32]) -> Result<Self, SignatureError> {
        // "unchecked" only means that there is no public key to compare with: it follows from the seed.
        let pair = Ed25519KeyPair::from_seed_unchecked(&seed).map_err(|_| SignatureError::Invalid)?;
        Ok(Self {
            seed: SecretBox::new(Box::new(seed)),
            pair,
        })
    }

    /// What verifies the signatures; 32 bytes.
    pub fn public_key(&self) -> [u8; 32] {
        let mut key = [0; 32];
        key.copy_from_slice(self.pair.public_key().as_ref());
        key
    }

    /// 64 bytes.
    pub fn sign(&self, payload: &[u8]) -> Vec<u8> {
        self.pair.sign(payload).as_ref().to_vec()
    }

    /// Whether `signature` is by `public_key` over `payload`. The caller must know whose key that is: compare it with
    /// the site's, never take it from the certificate alone.
    pub fn verify(public_key: &[u8], payload: &[u8], signature: &[u8]) -> Result<(), SignatureError> {
        if public_key.len() != 32 {
            return Err(SignatureError::PublicKey(public_key.len()));
        }
        UnparsedPublicKey::new(&ED25519, public_key)
            .verify(payload, signature)
            .map_err(|_| SignatureError::Invalid)
    }

    pub(crate) fn seed(&self) -> &[u8; 32] {
        self.seed.expose_secret()
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
