//! Random names that cannot be guessed.

use std::fmt::Write as _;

use ring::rand::{SecureRandom as _, SystemRandom};

/// The system's random source failed.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("the system's random source gave no bytes")]
pub(crate) struct RandomError;

/// Returns 32 hex digits of 128 random bits.
#[expect(clippy::disallowed_methods, reason = "this is the random module of network boot")]
pub(crate) fn random_name() -> Result<String, RandomError> {
    let mut bytes = [0u8; 16];
    SystemRandom::new().fill(&mut bytes).map_err(|_| RandomError)?;
    let mut text = String::with_capacity(32);
    for byte in bytes {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    Ok(text)
}
