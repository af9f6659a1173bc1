//! Random bytes: passwords, tokens and keys of simulated machines. What a run must repeat comes from its seed instead.

use ring::rand::SystemRandom;

/// The kernel's random number generator.
#[expect(clippy::disallowed_methods, reason = "this is the simulator's random module")]
pub(crate) fn source() -> SystemRandom {
    SystemRandom::new()
}
