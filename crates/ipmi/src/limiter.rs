//! Limits for IPMI: one command at a time for each BMC, a maximum over all BMCs, and no repetition of a refused login.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedMutexGuard, Semaphore, SemaphorePermit};
use tokio::time::Instant;

use crate::error::IpmiError;

/// Maximum number of simultaneous programs: each is a process of some 10 MB.
const AT_ONCE: usize = 64;
/// Time until a refused login may be tried again, doubled after each refusal. BMCs lock accounts after 3 to 10
/// refusals, for minutes.
const FIRST_SUSPENSION: Duration = Duration::from_secs(300);
/// Maximum number of doublings: up to 80 minutes.
const DOUBLINGS: u32 = 4;
/// With more than this number of BMCs, those without a command in progress and without a refused login are removed from
/// memory.
const REMEMBERED: usize = 1024;

/// The state shared by all users of `ipmitool`.
#[derive(Debug)]
pub struct RequestLimiter {
    at_once: Semaphore,
    bmcs: Mutex<HashMap<String, Arc<Bmc>>>,
    hasher: RandomState,
}

#[derive(Debug, Default)]
struct Bmc {
    permit: Arc<tokio::sync::Mutex<()>>,
    refusal: Mutex<Option<Refusal>>,
}

#[derive(Debug, Clone, Copy)]
struct Refusal {
    account: u64,
    times: u32,
    at: Instant,
}

impl Refusal {
    fn suspension(&self) -> Duration {
        FIRST_SUSPENSION * 2_u32.pow(self.times.saturating_sub(1).min(DOUBLINGS))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The right to run a command at one BMC.
#[derive(Debug)]
pub(crate) struct Permit<'a> {
    _at_bmc: OwnedMutexGuard<()>,
    _in_all: Option<SemaphorePermit<'a>>,
}

impl Default for RequestLimiter {
    fn default() -> Self {
        Self {
            at_once: Semaphore::new(AT_ONCE),
            bmcs: Mutex::default(),
            hasher: RandomState::new(),
        }
    }
}

impl RequestLimiter {
    fn bmc(&self, place: &str) -> Arc<Bmc> {
        let mut bmcs = lock(&self.bmcs);
        if bmcs.len() >= REMEMBERED && !bmcs.contains_key(place) {
            bmcs.retain(|_, bmc| Arc::strong_count(bmc) > 1 || lock(&bmc.refusal).is_some());
        }
        bmcs.entry(place.to_owned()).or_default().clone()
    }

    /// Waits for the turn at a BMC. Cancellation safe.
    pub(crate) async fn permit(&self, place: &str) -> Permit<'_> {
        // The BMC's lock comes before the common one: a command that waits for one BMC does not hold up other BMCs.
        let at_bmc = self.bmc(place).permit.clone().lock_owned().await;
        Permit {
            _at_bmc: at_bmc,
            // The semaphore is never closed. If it were, the limit would not apply.
            _in_all: self.at_once.acquire().await.ok(),
        }
    }

    /// A number for a name and password, valid in this process only.
    pub(crate) fn account(&self, name: &str, password: &str) -> u64 {
        self.hasher.hash_one((name, password))
    }

    /// # Errors
    /// The same account was refused a short while ago.
    pub(crate) fn check(&self, place: &str, account: u64) -> Result<(), IpmiError> {
        let bmc = self.bmc(place);
        let Some(refusal) = *lock(&bmc.refusal) else {
            return Ok(());
        };
        let ago = refusal.at.elapsed();
        if refusal.account != account || ago >= refusal.suspension() {
            return Ok(());
        }
        Err(IpmiError::LoginSuspended {
            bmc: place.to_owned(),
            ago_s: ago.as_secs(),
            left_s: (refusal.suspension() - ago).as_secs().max(1),
        })
    }

    /// Records a refused account. Returns the time until the next try is allowed.
    pub(crate) fn record_refusal(&self, place: &str, account: u64) -> Duration {
        let bmc = self.bmc(place);
        let mut refusal = lock(&bmc.refusal);
        let before = refusal
            .filter(|before| before.account == account)
            .map_or(0, |r| r.times);
        let now = Refusal {
            account,
            times: before.saturating_add(1),
            at: Instant::now(),
        };
        *refusal = Some(now);
        now.suspension()
    }

    /// Records a successful login.
    pub(crate) fn record_success(&self, place: &str) {
        *lock(&self.bmc(place).refusal) = None;
    }

    /// The pause before try `number`, from 1: some seconds, doubled each time, with a random part.
    pub(crate) fn pause(&self, place: &str, number: u32) -> Duration {
        let longest = 1000_u64 << number.min(6);
        let dice = RandomState::new().hash_one((place, number));
        Duration::from_millis(longest / 2 + dice % (longest / 2))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_refused_account_rests_and_another_does_not() {
        let limiter = RequestLimiter::default();
        let (one, other) = (limiter.account("admin", "a"), limiter.account("admin", "b"));
        limiter.check("bmc:623", one).unwrap();
        assert_eq!(limiter.record_refusal("bmc:623", one), FIRST_SUSPENSION);
        let held = limiter.check("bmc:623", one).unwrap_err();
        assert!(held.to_string().contains("sent again in 300 s"), "{held}");
        limiter.check("bmc:623", other).unwrap();
        limiter.check("other:623", one).unwrap();
        tokio::time::advance(FIRST_SUSPENSION).await;
        limiter.check("bmc:623", one).unwrap();
        assert_eq!(
            limiter.record_refusal("bmc:623", one),
            FIRST_SUSPENSION * 2,
            "the second refusal counts for more"
        );
        limiter.record_success("bmc:623");
        limiter.check("bmc:623", one).unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn one_at_a_time_for_each_bmc() {
        let limiter = RequestLimiter::default();
        let first = limiter.permit("a:623").await;
        let _other = limiter.permit("b:623").await;
        let waits = tokio::time::timeout(Duration::from_secs(60), limiter.permit("a:623")).await;
        assert!(waits.is_err());
        drop(first);
        limiter.permit("a:623").await;
    }

    #[test]
    fn only_bmcs_with_a_refusal_are_remembered_over_the_limit() {
        let limiter = RequestLimiter::default();
        limiter.bmc("refused").refusal.lock().unwrap().replace(Refusal {
            account: 1,
            times: 1,
            at: Instant::now(),
        });
        for n in 0..3 * REMEMBERED {
            limiter.bmc(&n.to_string());
        }
        let bmcs = limiter.bmcs.lock().unwrap();
        assert!(bmcs.len() <= REMEMBERED + 1 && bmcs.contains_key("refused"));
    }

    #[test]
    fn pauses_grow_and_differ() {
        let limiter = RequestLimiter::default();
        let pauses: Vec<_> = (0..50).map(|_| limiter.pause("a", 1)).collect();
        assert!(pauses.iter().all(|p| (1000..2000).contains(&p.as_millis())));
        assert!(pauses.iter().any(|p| *p != pauses[0]));
        assert!(limiter.pause("a", 2) >= Duration::from_secs(2));
    }
}
