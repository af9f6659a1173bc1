//! Limited waits with jitter between attempts.

use std::time::Duration;

use ring::rand::{SecureRandom as _, SystemRandom};

use crate::random;

/// Delays that double from `first` to `cap`. Each is shortened by a random part of up to half, so that many clients of
/// a lost server do not return at the same time.
#[derive(Debug)]
pub struct Backoff {
    next: Duration,
    cap: Duration,
    left: u32,
    random: SystemRandom,
}

impl Backoff {
    pub fn new(first: Duration, cap: Duration, attempts: u32) -> Self {
        Self {
            next: first,
            cap,
            left: attempts,
            random: random::source(),
        }
    }

    /// For a single call: about seven seconds in total.
    pub fn for_call() -> Self {
        Self::new(Duration::from_millis(100), Duration::from_secs(2), 7)
    }

    /// For long work (streams, uploads, waits): minutes, so that a server may be restarted meanwhile.
    pub fn for_long_work() -> Self {
        Self::new(Duration::from_millis(200), Duration::from_secs(5), 30)
    }

    /// The delay before the next attempt; `None` if no attempts are left.
    pub fn delay(&mut self) -> Option<Duration> {
        self.left = self.left.checked_sub(1)?;
        let full = self.next;
        self.next = (full * 2).min(self.cap);
        let mut byte = [0u8];
        // Without randomness there is only no jitter.
        let _ = self.random.fill(&mut byte);
        Some(full.mul_f64(1.0 - f64::from(byte[0]) / 512.0))
    }

    /// Waits; false if no attempts are left.
    pub async fn pause(&mut self) -> bool {
        match self.delay() {
            Some(delay) => {
                tokio::time::sleep(delay).await;
                true
            }
            None => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_grow_are_capped_and_end() {
        let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_millis(300), 4);
        let mut limit = Duration::from_millis(100);
        for _ in 0..4 {
            let delay = backoff.delay().unwrap();
            assert!(
                delay <= limit && delay >= limit / 2,
                "{delay:?} is not within half of {limit:?}"
            );
            limit = (limit * 2).min(Duration::from_millis(300));
        }
        assert_eq!(backoff.delay(), None);
    }
}
