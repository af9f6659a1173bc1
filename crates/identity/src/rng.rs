//! Source of randomness as an argument.

use ring::rand::SecureRandom as _;

/// The random number generator failed. The caller may retry, but must not continue without random bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the operating system's random number generator failed")]
pub struct RngError;

/// A source of cryptographic randomness.
pub trait Rng: Send + Sync {
    /// Fills all of `bytes` or returns an error.
    fn fill(&self, bytes: &mut [u8]) -> Result<(), RngError>;
}

/// The operating system's generator, through `ring`.
#[derive(Debug, Clone, Copy)]
pub struct SystemRng;

impl Rng for SystemRng {
    #[expect(
        clippy::disallowed_methods,
        reason = "this is the random module of the control plane"
    )]
    fn fill(&self, bytes: &mut [u8]) -> Result<(), RngError> {
        ring::rand::SystemRandom::new().fill(bytes).map_err(|_| RngError)
    }
}

/// Returns `N` random bytes.
pub(crate) fn random<const N: usize>(rng: &dyn Rng) -> Result<[u8; N], RngError> {
    let mut bytes = [0; N];
    rng.fill(&mut bytes)?;
    Ok(bytes)
}
