//! Limits of refused logins and of unknown secrets by address, of the calls of an API key, and of stored uses.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Refused logins of one address until the next one has to wait.
const FREE: u32 = 5;
/// Longest wait between two refused logins.
const WAIT_MAX: Duration = Duration::from_secs(64);
/// Refused logins are forgotten after this time.
const WINDOW: Duration = Duration::from_secs(600);
/// Most calls of an API key at once.
const BURST: f64 = 200.0;
/// Calls of an API key in a second, on average.
const RATE: f64 = 50.0;
/// Least time between two writes of the use of a session.
const USE: Duration = Duration::from_secs(60);
/// An unknown secret is refused without another look into the database for this time.
const UNKNOWN: Duration = Duration::from_secs(10);
/// Unknown secrets of one address at once.
const UNKNOWN_BURST: f64 = 50.0;
/// Unknown secrets of one address in a second, on average.
const UNKNOWN_RATE: f64 = 1.0;
/// Most remembered addresses, keys or sessions. Beyond this number, the oldest are forgotten.
const REMEMBERED: usize = 10_000;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes room for the entry of a new key: removes those before `oldest`, and if none is, the oldest one.
fn make_room<V>(entries: &mut HashMap<String, V>, key: &str, at: impl Fn(&V) -> Instant, now: Instant) {
    if entries.len() < REMEMBERED || entries.contains_key(key) {
        return;
    }
    entries.retain(|_, entry| now.duration_since(at(entry)) < WINDOW);
    if entries.len() < REMEMBERED {
        return;
    }
    let oldest = entries
        .iter()
        .min_by_key(|(_, entry)| at(entry))
        .map(|(key, _)| key.clone());
    if let Some(oldest) = oldest {
        entries.remove(&oldest);
    }
}

/// Slows down addresses with many refused logins.
#[derive(Debug, Default)]
pub struct LoginLimiter(Mutex<HashMap<String, RefusedLogins>>);

#[derive(Debug)]
struct RefusedLogins {
    count: u32,
    last: Instant,
}

impl RefusedLogins {
    /// The wait after the last one: doubled with each refusal beyond the free ones.
    fn wait(&self) -> Duration {
        match self.count.checked_sub(FREE) {
            None => Duration::ZERO,
            Some(more) => WAIT_MAX.min(Duration::from_secs(1 << more.min(6))),
        }
    }
}

impl LoginLimiter {
    /// Whether an address may try to log in now.
    ///
    /// # Errors
    /// The seconds to wait, at least 1.
    pub fn check(&self, address: &str) -> Result<(), u64> {
        let entries = lock(&self.0);
        let Some(refused) = entries.get(address) else {
            return Ok(());
        };
        let wait = refused.wait().saturating_sub(refused.last.elapsed());
        match wait.is_zero() {
            true => Ok(()),
            false => Err(wait.as_millis().div_ceil(1000).try_into().unwrap_or(u64::MAX)),
        }
    }

    /// Notes a refused login. Returns the number within the window when the address starts to wait.
    pub fn note_refused(&self, address: &str) -> Option<u32> {
        let (mut entries, now) = (lock(&self.0), Instant::now());
        make_room(&mut entries, address, |entry| entry.last, now);
        let entry = entries
            .entry(address.to_owned())
            .or_insert(RefusedLogins { count: 0, last: now });
        if now.duration_since(entry.last) >= WINDOW {
            entry.count = 0;
        }
        entry.count = entry.count.saturating_add(1);
        entry.last = now;
        (entry.count == FREE).then_some(entry.count)
    }

    /// Forgets the refused logins of an address.
    pub fn note_accepted(&self, address: &str) {
        lock(&self.0).remove(address);
    }
}

/// Limits the calls of each API key, or those of each address.
#[derive(Debug)]
pub struct CallLimiter {
    entries: Mutex<HashMap<String, Budget>>,
    limits: (f64, f64),
}

impl Default for CallLimiter {
    /// The limits of an API key.
    fn default() -> Self {
        Self::new((BURST, RATE))
    }
}

#[derive(Debug)]
struct Budget {
    calls: f64,
    at: Instant,
}

impl Budget {
    fn full(burst: f64, now: Instant) -> Self {
        Self { calls: burst, at: now }
    }

    /// The calls that are allowed now.
    fn earned(&self, (burst, rate): (f64, f64), now: Instant) -> f64 {
        burst.min(self.calls + now.duration_since(self.at).as_secs_f64() * rate)
    }

    /// Takes one call, if one is allowed.
    fn take(&mut self, (burst, rate): (f64, f64), now: Instant) -> bool {
        self.calls = self.earned((burst, rate), now);
        self.at = now;
        let is_allowed = self.calls >= 1.0;
        self.calls -= f64::from(u8::from(is_allowed));
        is_allowed
    }
}

impl CallLimiter {
    /// Limits of the calls in a burst, and of the calls on average in a second.
    #[must_use]
    pub fn new(limits: (f64, f64)) -> Self {
        let entries = Mutex::default();
        Self { entries, limits }
    }

    /// Whether this key or address may make a call now; counts the call.
    pub fn allows(&self, key: &str) -> bool {
        let (mut entries, now) = (lock(&self.entries), Instant::now());
        make_room(&mut entries, key, |entry| entry.at, now);
        let entry = entries
            .entry(key.to_owned())
            .or_insert(Budget::full(self.limits.0, now));
        entry.take(self.limits, now)
    }
}

/// Whether the database is asked for a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lookup {
    /// The database is asked.
    Ask,
    /// The database had no such secret a moment ago.
    Unknown,
    /// The address has presented too many unknown secrets, and this secret was not seen to be valid lately.
    Wait,
}

/// What is remembered of presented secrets, so that unknown ones cost few reads of the database. Secrets are known by their
/// hashes.
#[derive(Debug, Default)]
pub struct SecretLimiter(Mutex<Presented>);

#[derive(Debug, Default)]
struct Presented {
    /// When a secret was last unknown.
    unknown: HashMap<String, Instant>,
    /// When a secret was last valid.
    valid: HashMap<String, Instant>,
    /// Unknown secrets that each address may still present.
    addresses: HashMap<String, Budget>,
}

impl SecretLimiter {
    const LIMITS: (f64, f64) = (UNKNOWN_BURST, UNKNOWN_RATE);

    /// Whether to ask the database for a secret from this address.
    pub fn lookup(&self, secret: &str, address: &str) -> Lookup {
        let (presented, now) = (lock(&self.0), Instant::now());
        let is_recent = |at: &Instant, limit| now.duration_since(*at) < limit;
        if presented.unknown.get(secret).is_some_and(|at| is_recent(at, UNKNOWN)) {
            return Lookup::Unknown;
        }
        let budget = presented.addresses.get(address);
        let is_spent = budget.is_some_and(|budget| budget.earned(Self::LIMITS, now) < 1.0);
        let was_valid = || presented.valid.get(secret).is_some_and(|at| is_recent(at, WINDOW));
        match is_spent && !was_valid() {
            true => Lookup::Wait,
            false => Lookup::Ask,
        }
    }

    /// Notes a secret that the database does not have.
    pub fn note_unknown(&self, secret: &str, address: &str) {
        let (mut presented, now) = (lock(&self.0), Instant::now());
        let presented = &mut *presented;
        presented.valid.remove(secret);
        make_room(&mut presented.unknown, secret, |at| *at, now);
        presented.unknown.insert(secret.to_owned(), now);
        make_room(&mut presented.addresses, address, |budget| budget.at, now);
        let budget = presented.addresses.entry(address.to_owned());
        budget
            .or_insert(Budget::full(UNKNOWN_BURST, now))
            .take(Self::LIMITS, now);
    }

    /// Notes a valid secret.
    pub fn note_valid(&self, secret: &str) {
        let (mut presented, now) = (lock(&self.0), Instant::now());
        make_room(&mut presented.valid, secret, |at| *at, now);
        presented.valid.insert(secret.to_owned(), now);
    }
}

/// When this process last stored the use of each session, so that many calls at once make one write.
#[derive(Debug, Default)]
pub struct NotedUses(Mutex<HashMap<String, Instant>>);

impl NotedUses {
    /// Whether to store the use of a session now.
    pub fn is_due(&self, session: &str) -> bool {
        let (mut entries, now) = (lock(&self.0), Instant::now());
        if entries.get(session).is_some_and(|at| now.duration_since(*at) < USE) {
            return false;
        }
        make_room(&mut entries, session, |at| *at, now);
        entries.insert(session.to_owned(), now);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_address_with_refused_logins_waits_longer_each_time() {
        let limiter = LoginLimiter::default();
        for count in 1..FREE {
            assert_eq!(limiter.check("a"), Ok(()));
            assert_eq!(limiter.note_refused("a"), None, "{count}");
        }
        assert_eq!(limiter.note_refused("a"), Some(FREE), "noted once");
        assert_eq!(limiter.check("a"), Err(1));
        assert_eq!(limiter.check("b"), Ok(()), "other addresses do not wait");
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(limiter.check("a"), Ok(()));
        for wait in [2, 4, 8, 16, 32, 64, 64] {
            assert_eq!(limiter.note_refused("a"), None);
            assert_eq!(limiter.check("a"), Err(wait));
        }
        tokio::time::advance(WINDOW).await;
        assert_eq!(limiter.note_refused("a"), None, "the former ones are forgotten");
        assert_eq!(limiter.check("a"), Ok(()));
        for _ in 0..20 {
            limiter.note_refused("a");
        }
        limiter.note_accepted("a");
        assert_eq!(limiter.check("a"), Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn many_addresses_need_bounded_memory() {
        let limiter = LoginLimiter::default();
        for number in 0..REMEMBERED + 100 {
            limiter.note_refused(&format!("a{number}"));
            tokio::time::advance(Duration::from_millis(1)).await;
        }
        assert_eq!(lock(&limiter.0).len(), REMEMBERED);
        assert!(!lock(&limiter.0).contains_key("a0"), "the oldest is forgotten");
    }

    #[tokio::test(start_paused = true)]
    async fn a_use_is_stored_once_a_minute() {
        let uses = NotedUses::default();
        assert!(uses.is_due("s") && uses.is_due("t"));
        assert!(!uses.is_due("s"));
        tokio::time::advance(USE).await;
        assert!(uses.is_due("s"));
    }

    #[tokio::test(start_paused = true)]
    async fn unknown_secrets_cost_few_lookups() {
        let limiter = SecretLimiter::default();
        assert_eq!(limiter.lookup("s", "a"), Lookup::Ask);
        limiter.note_unknown("s", "a");
        assert_eq!(limiter.lookup("s", "b"), Lookup::Unknown, "from everywhere");
        tokio::time::advance(UNKNOWN).await;
        assert_eq!(limiter.lookup("s", "a"), Lookup::Ask);

        limiter.note_valid("good");
        let mut asked = 0;
        for number in 0..1000 {
            let secret = format!("guess {number}");
            if limiter.lookup(&secret, "a") == Lookup::Ask {
                limiter.note_unknown(&secret, "a");
                asked += 1;
            }
        }
        assert_eq!(asked, 50);
        assert_eq!(limiter.lookup("other", "a"), Lookup::Wait);
        assert_eq!(limiter.lookup("good", "a"), Lookup::Ask, "an open session goes on");
        assert_eq!(limiter.lookup("other", "b"), Lookup::Ask, "other addresses do not wait");
        limiter.note_unknown("good", "b");
        tokio::time::advance(UNKNOWN / 10).await;
        assert_eq!(limiter.lookup("other", "a"), Lookup::Ask, "one a second");
        for number in 0..REMEMBERED + 100 {
            limiter.note_unknown(&number.to_string(), &format!("a{number}"));
            limiter.note_valid(&number.to_string());
            tokio::time::advance(Duration::from_millis(1)).await;
        }
        let presented = lock(&limiter.0);
        let sizes = [
            presented.unknown.len(),
            presented.valid.len(),
            presented.addresses.len(),
        ];
        assert_eq!(sizes, [REMEMBERED; 3]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_has_a_burst_and_a_rate() {
        let limiter = CallLimiter::default();
        let allowed = (0..1000).filter(|_| limiter.allows("k")).count();
        assert_eq!(allowed, 200);
        assert!(limiter.allows("other"));
        tokio::time::advance(Duration::from_secs(2)).await;
        let allowed = (0..1000).filter(|_| limiter.allows("k")).count();
        assert_eq!(allowed, 100);
    }
}
