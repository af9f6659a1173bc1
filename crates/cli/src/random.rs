//! Random bytes: keys of changes, and pauses before another attempt.

use ring::rand::SystemRandom;

/// The kernel's random number generator.
#[expect(clippy::disallowed_methods, reason = "this is the CLI's random module")]
pub fn source() -> SystemRandom {
    SystemRandom::new()
}
