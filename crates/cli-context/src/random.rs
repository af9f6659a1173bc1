//! Random bytes for idempotency keys and for the jitter of pauses.

use ring::rand::SystemRandom;

/// The kernel's random number generator.
#[expect(clippy::disallowed_methods, reason = "this is the CLI's random module")]
pub fn source() -> SystemRandom {
    SystemRandom::new()
}
