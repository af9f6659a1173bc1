//! Time and chance as arguments, so that retries and waits can be tested without waiting.

use std::fmt::Debug;
use std::hash::{BuildHasher, RandomState};
use std::sync::OnceLock;
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::Instant;

/// Everything that the client takes from outside besides the network.
#[async_trait]
pub trait Environment: Debug + Send + Sync {
    /// Monotonic time since some fixed origin.
    fn now(&self) -> Duration;
    /// Returns after `duration`.
    async fn sleep(&self, duration: Duration);
    /// A number in `0.0..1.0` that spreads the retries of many clients.
    fn jitter(&self) -> f64;
}

/// The clock of tokio and the randomness of the standard library's hasher.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemEnvironment;

#[async_trait]
impl Environment for SystemEnvironment {
    fn now(&self) -> Duration {
        static ORIGIN: OnceLock<Instant> = OnceLock::new();
        ORIGIN.get_or_init(Instant::now).elapsed()
    }

    async fn sleep(&self, duration: Duration) {
        tokio::time::sleep(duration).await;
    }

    fn jitter(&self) -> f64 {
        // Every RandomState has its own keys; an f64 holds 53 bits exactly.
        let bits = RandomState::new().hash_one(0_u8) >> 11;
        bits as f64 / (1_u64 << 53) as f64
    }
}

/// Polling with growing pauses until a time limit.
#[derive(Debug)]
pub struct Poll<'a> {
    environment: &'a dyn Environment,
    started: Duration,
    limit: Duration,
    next: Duration,
    cap: Duration,
}

impl<'a> Poll<'a> {
    /// The first pause is `first`; each next pause is 1.6 times as long, up to `cap`. Polling ends after `limit`.
    pub fn new(environment: &'a dyn Environment, first: Duration, cap: Duration, limit: Duration) -> Self {
        Self {
            environment,
            started: environment.now(),
            limit,
            next: first,
            cap,
        }
    }

    /// Time since the start.
    pub fn elapsed(&self) -> Duration {
        self.environment.now().saturating_sub(self.started)
    }

    /// Sleeps until the next poll, at least `wish` if the BMC requested a pause. Returns false when the time limit is
    /// reached.
    pub async fn pause(&mut self, requested: Option<Duration>) -> bool {
        let left = self.limit.saturating_sub(self.elapsed());
        if left.is_zero() {
            return false;
        }
        let pause = requested.map_or(self.next, |requested| requested.min(self.cap).max(self.next));
        self.environment.sleep(pause.min(left)).await;
        self.next = self.next.mul_f64(1.6).min(self.cap);
        true
    }
}
