//! The gate for all requests to one BMC: limits concurrent requests, and pauses them after several requests in a row got no
//! answer.
//!
//! Clients of one BMC share a [`Gate`] if they share the same [`Gates`]; a single client has its own. The gate closes after
//! [`FAILURES`] requests in a row without an answer. Later it lets one request at a time through as a trial; an answer to a
//! trial opens the gate for all.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};

use crate::address::BmcAddress;
use crate::environment::Environment;
use crate::error::RedfishError;
use crate::retry;

/// Requests in a row without an answer that close the gate. One call may count up to three times because of its retries.
const FAILURES: u32 = 5;
/// Length of the first pause; each failed trial doubles the pause.
const FIRST: Duration = Duration::from_secs(5);
/// Longest pause.
const CAP: Duration = Duration::from_secs(60);
/// Most concurrent requests that a profile may allow (GB200: "at most four clients").
const MAX_CONCURRENT: usize = 4;
/// Concurrent requests of all clients that share a gate, without a value in the profile.
const DEFAULT_CONCURRENT: usize = 2;
/// How often a waiter checks whether another caller's trial is over.
const PROBE_POLL: Duration = Duration::from_millis(100);
/// Longest stored text of the last failure, in characters.
const LAST_CHARS: usize = 300;

/// The gate of one BMC.
#[derive(Debug)]
pub struct Gate {
    permits: Semaphore,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Existing permits, and the number that should exist.
    width: usize,
    wanted: usize,
    breaker: Breaker,
}

/// The circuit breaker, as a pure function of its inputs.
#[derive(Debug, Default)]
struct Breaker {
    /// Failures since the last answer.
    failures: u32,
    /// How often the gate has closed since it was last open.
    closed: u32,
    state: BreakerState,
    last: String,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum BreakerState {
    #[default]
    Open,
    /// No request passes before this time.
    Closed { until: Duration },
    /// A trial is running.
    Probing,
}

/// A request that has passed the gate. The caller reports its result with [`answered`](Self::answered) or
/// [`failed`](Self::failed); a dropped pass reports nothing, and another caller may make the trial.
#[derive(Debug)]
pub(crate) struct Admission<'a> {
    gate: &'a Gate,
    is_probe: bool,
    _permit: Option<SemaphorePermit<'a>>,
}

impl Gate {
    /// A gate for this many concurrent requests, clamped to 1..=4.
    pub(crate) fn new(at_once: usize) -> Self {
        let width = at_once.clamp(1, MAX_CONCURRENT);
        Self {
            permits: Semaphore::new(width),
            state: Mutex::new(State {
                width,
                wanted: width,
                breaker: Breaker::default(),
            }),
        }
    }

    /// Sets the number of concurrent requests, clamped to 1..=4.
    pub fn set_concurrency(&self, at_once: usize) {
        let mut state = self.lock();
        state.wanted = at_once.clamp(1, MAX_CONCURRENT);
        if state.wanted > state.width {
            self.permits.add_permits(state.wanted - state.width);
            state.width = state.wanted;
        }
    }

    /// The number of concurrent requests.
    pub fn at_once(&self) -> usize {
        self.lock().wanted
    }

    /// Waits for a place; fails at once if the gate is closed. `now` is called when the place is free.
    pub(crate) async fn pass(&self, bmc: &str, now: impl Fn() -> Duration) -> Result<Admission<'_>, RedfishError> {
        // A caller that would be refused does not wait for a place.
        self.look(bmc, now())?;
        let permit = loop {
            // The semaphore is never closed; if it were, the request would go out without the limit.
            let Ok(permit) = self.permits.acquire().await else {
                break None;
            };
            let mut state = self.lock();
            if state.width <= state.wanted {
                break Some(permit);
            }
            state.width -= 1;
            permit.forget();
        };
        // A statement of its own: in the head of a match, the lock would be held in the arms, which lock again.
        let admitted = self.lock().breaker.admit(now());
        let is_probe = admitted.map_err(|wait| self.suspended_error(bmc, wait))?;
        Ok(Admission {
            gate: self,
            is_probe,
            _permit: permit,
        })
    }

    fn look(&self, bmc: &str, now: Duration) -> Result<(), RedfishError> {
        let wait = self.lock().breaker.wait(now);
        wait.map_or(Ok(()), |wait| Err(self.suspended_error(bmc, wait)))
    }

    fn suspended_error(&self, bmc: &str, wait: Duration) -> RedfishError {
        let state = self.lock();
        RedfishError::Suspended {
            bmc: bmc.to_owned(),
            failures: state.breaker.failures,
            wait_s: u64::try_from(wait.as_millis().div_ceil(1000))
                .unwrap_or(u64::MAX)
                .max(1),
            last: state.breaker.last.clone(),
        }
    }

    fn is_open(&self) -> bool {
        self.lock().breaker.state == BreakerState::Open
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Admission<'_> {
    /// The BMC has answered, with success or with an error.
    pub(crate) fn answered(mut self) {
        self.is_probe = false;
        self.gate.lock().breaker = Breaker::default();
    }

    /// No answer came. `jitter` in `0.0..1.0` spreads the trials of many clients.
    pub(crate) fn failed(mut self, failure: &RedfishError, now: Duration, jitter: f64) {
        let is_probe = std::mem::take(&mut self.is_probe);
        let breaker = &mut self.gate.lock().breaker;
        breaker.failed(is_probe, now, jitter);
        breaker.last = failure.to_string().chars().take(LAST_CHARS).collect();
    }
}

impl Drop for Admission<'_> {
    fn drop(&mut self) {
        if self.is_probe {
            self.gate.lock().breaker.abandon();
        }
    }
}

impl Breaker {
    /// How long the gate stays closed; none if it is open.
    fn wait(&self, now: Duration) -> Option<Duration> {
        match self.state {
            BreakerState::Open => None,
            BreakerState::Closed { until } if now >= until => None,
            BreakerState::Closed { until } => Some(until.saturating_sub(now)),
            BreakerState::Probing => Some(Duration::ZERO),
        }
    }

    /// Lets a request pass. True: the request is the trial for all callers.
    fn admit(&mut self, now: Duration) -> Result<bool, Duration> {
        match self.wait(now) {
            Some(wait) => Err(wait),
            None if self.state == BreakerState::Open => Ok(false),
            None => {
                self.state = BreakerState::Probing;
                Ok(true)
            }
        }
    }

    fn failed(&mut self, is_probe: bool, now: Duration, jitter: f64) {
        self.failures = self.failures.saturating_add(1);
        let closes = is_probe || (self.state == BreakerState::Open && self.failures >= FAILURES);
        if closes {
            let pause = retry::spread(retry::grow(FIRST, CAP, self.closed), jitter);
            self.closed = self.closed.saturating_add(1);
            self.state = BreakerState::Closed {
                until: now.saturating_add(pause),
            };
        }
    }

    fn abandon(&mut self) {
        if self.state == BreakerState::Probing {
            self.state = BreakerState::Closed { until: Duration::ZERO };
        }
    }
}

/// The gates of all BMCs of a program, by address.
#[derive(Debug, Default)]
pub struct Gates {
    by_address: Mutex<HashMap<String, Arc<Gate>>>,
}

impl Gates {
    pub(crate) fn of(&self, address: &str) -> Arc<Gate> {
        let mut gates = self.lock();
        let gate = gates.entry(address.to_owned());
        gate.or_insert_with(|| Arc::new(Gate::new(DEFAULT_CONCURRENT))).clone()
    }

    /// Waits until the closed gate of a BMC allows a trial, for `limit` at most. For callers that must reach the BMC; other
    /// callers are refused at once. `address` has the form that [`BmcAddress::parse`] accepts.
    pub async fn until_open(&self, address: &str, environment: &dyn Environment, limit: Duration) {
        let Ok(address) = BmcAddress::parse(address) else {
            return;
        };
        let address = address.to_string();
        let end = environment.now().saturating_add(limit);
        loop {
            let gate = self.lock().get(&address).cloned();
            let now = environment.now();
            let Some(wait) = gate.and_then(|gate| gate.lock().breaker.wait(now)) else {
                return;
            };
            if now >= end {
                return;
            }
            // Another caller's trial may be running.
            environment.sleep(wait.max(PROBE_POLL).min(end - now)).await;
        }
    }

    /// Forgets the unused gates, except closed ones.
    pub fn tidy(&self) {
        self.lock()
            .retain(|_, gate| Arc::strong_count(gate) > 1 || !gate.is_open());
    }

    /// The number of stored gates.
    pub fn count(&self) -> usize {
        self.lock().len()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Arc<Gate>>> {
        self.by_address.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(s: u64) -> Duration {
        Duration::from_secs(s)
    }

    /// Its time advances when a caller sleeps.
    #[derive(Debug, Default)]
    struct Slept(Mutex<Duration>);

    #[async_trait::async_trait]
    impl Environment for Slept {
        fn now(&self) -> Duration {
            *self.0.lock().unwrap()
        }
        async fn sleep(&self, duration: Duration) {
            *self.0.lock().unwrap() += duration;
        }
        fn jitter(&self) -> f64 {
            0.5
        }
    }

    #[tokio::test]
    async fn a_request_that_must_run_waits_until_the_gate_admits_a_probe() {
        let gates = Gates::default();
        let environment = &Slept::default();
        let address = BmcAddress::parse("https://10.0.0.1").unwrap().to_string();
        let began = environment.now();
        gates.until_open("https://10.0.0.1", environment, at(60)).await;
        assert_eq!(environment.now(), began, "an unknown BMC is not left alone");
        let gate = gates.of(&address);
        for _ in 0..FAILURES {
            gate.lock().breaker.failed(false, environment.now(), 0.5);
        }
        gates.until_open("https://10.0.0.1/", environment, at(1)).await;
        assert!(
            gate.lock().breaker.admit(environment.now()).is_err(),
            "the limit was first"
        );
        gates.until_open("https://10.0.0.1/", environment, at(60)).await;
        assert_eq!(gate.lock().breaker.admit(environment.now()), Ok(true));
    }

    #[test]
    fn the_gate_closes_after_consecutive_failures_and_one_request_at_a_time_probes() {
        let mut breaker = Breaker::default();
        for _ in 1..FAILURES {
            breaker.failed(false, at(0), 0.5);
            assert_eq!(breaker.admit(at(0)), Ok(false));
        }
        breaker.failed(false, at(0), 0.5);
        assert_eq!(breaker.admit(at(4)), Err(at(1)));
        assert_eq!(breaker.admit(at(5)), Ok(true), "one probe");
        assert_eq!(breaker.admit(at(5)), Err(at(0)), "one at a time");
        breaker.abandon();
        assert_eq!(breaker.admit(at(5)), Ok(true), "an abandoned request proves nothing");
        for (now, next) in [(5, 15), (15, 35), (35, 75), (75, 135), (135, 195)] {
            breaker.failed(true, at(now), 0.5);
            assert_eq!(breaker.admit(at(next - 1)), Err(at(1)));
            assert_eq!(breaker.admit(at(next)), Ok(true), "pauses grow up to a minute");
        }
    }

    #[test]
    fn a_request_from_before_the_gate_closed_does_not_close_it_again() {
        let mut breaker = Breaker::default();
        (0..FAILURES).for_each(|_| breaker.failed(false, at(0), 0.5));
        breaker.failed(false, at(3), 0.5);
        assert_eq!(breaker.admit(at(5)), Ok(true));
    }

    #[tokio::test]
    async fn the_width_follows_the_setting_and_never_exceeds_four() {
        let gate = Gate::new(100);
        assert_eq!(gate.at_once(), 4);
        let passes = [
            gate.pass("b", Duration::default).await.unwrap(),
            gate.pass("b", Duration::default).await.unwrap(),
        ];
        gate.set_concurrency(1);
        drop(passes);
        let one = gate.pass("b", Duration::default).await.unwrap();
        assert_eq!(gate.permits.available_permits(), 0);
        one.answered();
        gate.set_concurrency(9);
        assert_eq!((gate.at_once(), gate.permits.available_permits()), (4, 4));
    }

    #[tokio::test]
    async fn waiting_requests_are_refused_when_the_gate_closes() {
        let gate = &Gate::new(1);
        let first = gate.pass("b", Duration::default).await.unwrap();
        let fails = async {
            let failures = |gate: &Gate| (0..FAILURES).for_each(|_| gate.lock().breaker.failed(false, at(0), 0.5));
            failures(gate);
            drop(first);
        };
        // Polled in this order: the second call waits for a place before the first one fails.
        let (second, ()) = tokio::join!(biased; gate.pass("b", Duration::default), fails);
        assert!(
            matches!(second, Err(RedfishError::Suspended { wait_s: 5, .. })),
            "{second:?}"
        );
    }

    #[test]
    fn unused_gates_are_removed_unless_they_are_closed() {
        let gates = Gates::default();
        let kept = gates.of("a");
        let closed = gates.of("b");
        (0..FAILURES).for_each(|_| closed.lock().breaker.failed(false, at(0), 0.5));
        drop(closed);
        drop(gates.of("c"));
        gates.tidy();
        assert_eq!(gates.count(), 2);
        assert!(Arc::ptr_eq(&kept, &gates.of("a")));
        assert!(!gates.of("b").is_open());
    }
}
