//! Random bytes for the keys of passes and samples, and for GUIDs.

use std::io;

use ring::rand::{SecureRandom as _, SystemRandom};

/// Fills `bytes` from the kernel's random number generator.
///
/// # Errors
/// The kernel returns no random bytes.
#[expect(clippy::disallowed_methods, reason = "this is the agent's random module")]
pub fn fill(bytes: &mut [u8]) -> io::Result<()> {
    let filled = SystemRandom::new().fill(bytes);
    filled.map_err(|_| io::Error::other("the kernel gives no random bytes"))
}
