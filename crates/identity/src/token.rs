//! One-time tokens: shown once, stored as a hash.
//!
//! A token is `rw1_` and 64 hex digits of 256 random bits; an API key has the same form with `rwk_`. With that much
//! randomness a plain SHA-256 is enough for storage: guessing is hopeless. The store enforces single use, lifetime and the
//! binding of a token.

use std::fmt;
use std::hint::black_box;

use secrecy::{ExposeSecret as _, SecretString};

use crate::rng::{Rng, RngError, random};

const PREFIX: &str = "rw1_";
/// Prefix of API keys, by which scanners for leaked secrets find them.
const KEY_PREFIX: &str = "rwk_";

/// Why a text is not a token or not a token hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// The text does not have the form of a token; the message omits the text.
    #[error("not a Rackwright token: expected {PREFIX} and 64 hex digits")]
    Form,
    /// The stored hash is malformed.
    #[error("a stored token hash is not 64 hex digits")]
    Hash,
}

/// Mints tokens.
#[derive(Debug)]
pub struct Token;

impl Token {
    /// Returns a new token and its hash for the store.
    pub fn mint(rng: &dyn Rng) -> Result<(SecretString, TokenHash), RngError> {
        Self::with_prefix(PREFIX, rng)
    }

    /// Returns a new API key and its hash for the store.
    pub fn mint_api_key(rng: &dyn Rng) -> Result<(SecretString, TokenHash), RngError> {
        Self::with_prefix(KEY_PREFIX, rng)
    }

    fn with_prefix(prefix: &str, rng: &dyn Rng) -> Result<(SecretString, TokenHash), RngError> {
        let text = SecretString::from(format!("{prefix}{}", hex::encode(random::<32>(rng)?)));
        let hash = TokenHash::digest(text.expose_secret());
        Ok((text, hash))
    }
}

/// SHA-256 of a token; the store keeps only this hash.
#[derive(Clone, Copy, Eq)]
pub struct TokenHash([u8; 32]);

impl TokenHash {
    /// Hashes a presented token. Refuses a text without the form of a token before hashing it.
    pub fn of(shown: &str) -> Result<Self, TokenError> {
        let digits = [PREFIX, KEY_PREFIX]
            .iter()
            .find_map(|prefix| shown.strip_prefix(prefix))
            .ok_or(TokenError::Form)?;
        let lower_hex = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
        if digits.len() == 64 && digits.bytes().all(lower_hex) {
            Ok(Self::digest(shown))
        } else {
            Err(TokenError::Form)
        }
    }

    /// Whether this is the hash of `shown`, in constant time.
    pub fn matches(&self, shown: &str) -> bool {
        Self::of(shown).is_ok_and(|hash| hash == *self)
    }

    /// Returns 64 hex digits for the store.
    pub fn to_hex(self) -> String {
        hex::encode(self.0)
    }

    /// Reads the 64 hex digits from the store.
    pub fn from_hex(text: &str) -> Result<Self, TokenError> {
        let mut bytes = [0; 32];
        hex::decode_to_slice(text, &mut bytes).map_err(|_| TokenError::Hash)?;
        Ok(Self(bytes))
    }

    fn digest(text: &str) -> Self {
        let digest = ring::digest::digest(&ring::digest::SHA256, text.as_bytes());
        let mut bytes = [0; 32];
        bytes.copy_from_slice(digest.as_ref());
        Self(bytes)
    }
}

impl PartialEq for TokenHash {
    /// Takes the same time wherever the two hashes differ.
    fn eq(&self, other: &Self) -> bool {
        black_box(self.0.iter().zip(&other.0).fold(0, |all, (a, b)| all | (a ^ b))) == 0
    }
}

impl fmt::Debug for TokenHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TokenHash({}…)", hex::encode(&self.0[..4]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SystemRng;

    #[test]
    fn a_token_matches_its_hash_only() {
        let rng = SystemRng;
        let (token, hash) = Token::mint(&rng).unwrap();
        let (other, other_hash) = Token::mint(&rng).unwrap();
        assert_eq!(token.expose_secret().len(), 68);
        assert!(hash.matches(token.expose_secret()));
        assert!(!hash.matches(other.expose_secret()));
        assert_ne!(hash, other_hash);
        assert_eq!(TokenHash::from_hex(&hash.to_hex()).unwrap(), hash);
        assert!(!hash.matches(&hash.to_hex()), "the hash must not serve as the token");
        for bit in 0..256 {
            let mut changed = hash;
            changed.0[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(changed, hash, "bit {bit}");
        }
    }

    #[test]
    fn malformed_tokens_are_refused() {
        let hex = "0".repeat(64);
        for text in [
            "",
            "rw1_",
            &hex,
            &format!("rw2_{hex}"),
            &format!("rw1_{hex}0"),
            &format!("rw1_{}", "G".repeat(64)),
        ] {
            assert_eq!(TokenHash::of(text), Err(TokenError::Form), "{text}");
        }
        // A token has one text: upper-case hex is refused.
        assert_eq!(TokenHash::of(&format!("rw1_{}", "A".repeat(64))), Err(TokenError::Form));
        assert!(TokenHash::of(&format!("rw1_{hex}")).is_ok());
        assert_ne!(
            TokenHash::of(&format!("rwk_{hex}")),
            TokenHash::of(&format!("rw1_{hex}"))
        );
        assert_eq!(TokenHash::from_hex("00"), Err(TokenError::Hash));
    }
}
