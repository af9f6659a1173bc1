//! Random bytes: passwords, tokens and keys of simulated machines. Repeatable values come from the seed instead.

use ring::rand::SystemRandom;

/// The kernel's random number generator.
#[expect(clippy::disallowed_methods, reason = "this is the simulator's random module")]
pub fn source() -> SystemRandom {
    SystemRandom::new()
}
