//! Ed25519 SSH keys, in the formats of OpenSSH.
//!
//! The private key is an unencrypted `openssh-key-v1` (OpenSSH's PROTOCOL.key), the public key an `authorized_keys` line.
//! Host keys are created here so that clients know them before the first SSH connection.

use std::fmt;

use base64::Engine as _;
use base64::prelude::{BASE64_STANDARD, BASE64_STANDARD_NO_PAD};
use ring::signature::{Ed25519KeyPair, KeyPair as _};
use secrecy::SecretString;
use secrecy::zeroize::{Zeroize as _, Zeroizing};

use crate::rng::{Rng, RngError, random};

const ALGORITHM: &str = "ssh-ed25519";
const COMMENT_MAX: usize = 128;
/// Block size to which an unencrypted private section is padded.
const BLOCK_BYTES: usize = 8;

/// Why a key could not be created.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SshKeyError {
    /// No random bytes. Retryable.
    #[error(transparent)]
    Rng(#[from] RngError),
    /// The comment would break the key's line.
    #[error("the SSH key's comment {0:?} is refused: use at most {COMMENT_MAX} printable ASCII characters")]
    Comment(String),
    /// Indicates a bug.
    #[error("the SSH key could not be made")]
    Key,
}

/// An Ed25519 key pair for SSH.
pub struct SshKeyPair {
    private: SecretString,
    public_line: String,
    fingerprint: String,
}

impl fmt::Debug for SshKeyPair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SshKeyPair")
            .field("fingerprint", &self.fingerprint)
            .finish_non_exhaustive()
    }
}

impl SshKeyPair {
    /// Creates a pair. `comment` ends the public line, such as `gpu-001 host key`.
    pub fn generate(rng: &dyn Rng, comment: &str) -> Result<Self, SshKeyError> {
        if comment.len() > COMMENT_MAX || !comment.bytes().all(|b| b == b' ' || b.is_ascii_graphic()) {
            return Err(SshKeyError::Comment(comment.chars().take(COMMENT_MAX).collect()));
        }
        let mut seed = random::<32>(rng)?;
        let check = random::<4>(rng)?;
        let pair = Self::from_seed(&seed, check, comment.trim());
        seed.zeroize();
        pair
    }

    fn from_seed(seed: &[u8; 32], check: [u8; 4], comment: &str) -> Result<Self, SshKeyError> {
        let pair = Ed25519KeyPair::from_seed_unchecked(seed).map_err(|_| SshKeyError::Key)?;
        let public = pair.public_key().as_ref();
        let mut blob = Vec::new();
        put_string(&mut blob, ALGORITHM.as_bytes());
        put_string(&mut blob, public);

        // Sized in advance: a buffer that grows leaves copies of the seed behind.
        let mut section = Zeroizing::new(Vec::with_capacity(512));
        section.extend_from_slice(&check);
        section.extend_from_slice(&check);
        put_string(&mut section, ALGORITHM.as_bytes());
        put_string(&mut section, public);
        let both = Zeroizing::new([&seed[..], public].concat());
        put_string(&mut section, &both);
        put_string(&mut section, comment.as_bytes());
        for pad in 1u8.. {
            if section.len().is_multiple_of(BLOCK_BYTES) {
                break;
            }
            section.push(pad);
        }

        let mut file = Zeroizing::new(Vec::with_capacity(1024));
        file.extend_from_slice(b"openssh-key-v1\0");
        put_string(&mut file, b"none");
        put_string(&mut file, b"none");
        put_string(&mut file, b"");
        file.extend_from_slice(&1u32.to_be_bytes());
        put_string(&mut file, &blob);
        put_string(&mut file, &section);

        let public_line = format!("{ALGORITHM} {} {comment}", BASE64_STANDARD.encode(&blob));
        let digest = ring::digest::digest(&ring::digest::SHA256, &blob);
        Ok(Self {
            private: armour(&file).into(),
            public_line: public_line.trim_end().into(),
            fingerprint: format!("SHA256:{}", BASE64_STANDARD_NO_PAD.encode(digest)),
        })
    }

    /// The private key in the file format of OpenSSH.
    pub fn private_key(&self) -> &SecretString {
        &self.private
    }

    /// `ssh-ed25519 BASE64 COMMENT`, without a line end.
    pub fn public_line(&self) -> &str {
        &self.public_line
    }

    /// The fingerprint, as `ssh-keygen -l` prints it.
    pub fn fingerprint(&self) -> &str {
        &self.fingerprint
    }
}

/// Writes a string of RFC 4251: its length in four bytes, then its bytes.
fn put_string(buffer: &mut Vec<u8>, bytes: &[u8]) {
    // All strings here have at most a few hundred bytes.
    buffer.extend_from_slice(&(bytes.len() as u32).to_be_bytes());
    buffer.extend_from_slice(bytes);
}

fn armour(file: &[u8]) -> String {
    let encoded = Zeroizing::new(BASE64_STANDARD.encode(file));
    let mut text = String::with_capacity(encoded.len() + 128);
    text.push_str("-----BEGIN OPENSSH PRIVATE KEY-----\n");
    for (n, character) in encoded.chars().enumerate() {
        if n > 0 && n.is_multiple_of(70) {
            text.push('\n');
        }
        text.push(character);
    }
    text.push_str("\n-----END OPENSSH PRIVATE KEY-----\n");
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SystemRng;

    #[test]
    fn comments_cannot_add_lines() {
        let rng = SystemRng;
        for comment in ["a\nssh-ed25519 AAAA", "a\r", "ä", &"x".repeat(COMMENT_MAX + 1)] {
            assert!(
                matches!(SshKeyPair::generate(&rng, comment), Err(SshKeyError::Comment(_))),
                "{comment:?}"
            );
        }
    }

    #[test]
    fn debug_hides_the_key() {
        use secrecy::ExposeSecret as _;
        let pair = SshKeyPair::generate(&SystemRng, "test").unwrap();
        let text = format!("{pair:?}");
        assert!(text.contains("SHA256:") && !text.contains(&pair.private_key().expose_secret()[60..80]));
    }
}
