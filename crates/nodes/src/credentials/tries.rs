//! Limits the tries of a BMC with a password that may be wrong.
//!
//! A BMC counts refused logins and forgets them some time after the last one (`AccountLockoutCounterResetAfter`). Tries
//! that follow each other within that time form one series, and a series ends one short of the lock.

use rackwright_lifecycle::{Timestamp, seconds};
use rackwright_redfish::AccountPolicy;
use rackwright_store::{BmcAccount, Lockout};

/// For a BMC that does not show its policy: the strictest recorded threshold, and the longest known time (GBx00).
pub const UNKNOWN: Lockout = Lockout {
    threshold: 3,
    window_s: 600,
};
/// Tolerated difference between the clocks of BMC and daemon.
const MARGIN_S: i64 = 2;
/// Most stored tries.
const KEPT: usize = 16;

/// When a BMC locks accounts, according to its policy.
#[must_use]
pub fn lockout_of(policy: &AccountPolicy) -> Lockout {
    let Some(threshold) = policy.lockout_threshold else {
        return UNKNOWN;
    };
    let longest = policy.lockout_s.unwrap_or(0).max(policy.counter_reset_s.unwrap_or(0));
    let window_s = match u32::try_from(longest).unwrap_or(u32::MAX) {
        0 => UNKNOWN.window_s,
        s => s,
    };
    Lockout {
        threshold: u32::try_from(threshold).unwrap_or(u32::MAX),
        window_s,
    }
}

/// When the next login may be tried. `None`: now.
#[must_use]
pub fn closed_until(account: &BmcAccount, now: Timestamp) -> Option<Timestamp> {
    let lockout = account.lockout.unwrap_or(UNKNOWN);
    if lockout.threshold == 0 {
        return None;
    }
    let window_us = seconds(i64::from(lockout.window_s).saturating_add(MARGIN_S));
    let allowed = lockout.threshold.saturating_sub(1).max(1) as usize;
    let last = *account.tries.last()?;
    if now >= last.plus(window_us) {
        return None;
    }
    let pairs = account.tries.windows(2).rev();
    let row = 1 + pairs.take_while(|pair| pair[1].since(pair[0]) < window_us).count();
    (row >= allowed).then(|| last.plus(window_us))
}

/// Adds a try.
pub fn note(account: &mut BmcAccount, now: Timestamp) {
    if account.tries.len() >= KEPT {
        account.tries.remove(0);
    }
    account.tries.push(now);
    account.closed_until = None;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(s: i64) -> Timestamp {
        Timestamp(s * 1_000_000)
    }

    fn account(threshold: u32, window_s: u32, tries: &[i64]) -> BmcAccount {
        BmcAccount {
            lockout: Some(Lockout { threshold, window_s }),
            tries: tries.iter().map(|s| at(*s)).collect(),
            ..BmcAccount::default()
        }
    }

    #[test]
    fn tries_end_before_the_lockout() {
        for (threshold, tries, now, expected) in [
            (3, &[][..], 0, None),
            (3, &[0], 1, None),
            (3, &[0, 1], 2, Some(33)),
            (3, &[0, 1], 32, Some(33)),
            (3, &[0, 1], 33, None),
            // The BMC goes on counting until it has forgotten the last one.
            (3, &[0, 31], 33, Some(63)),
            (3, &[0, 32], 33, None),
            (5, &[0, 1, 2], 3, None),
            (5, &[0, 1, 2, 3], 4, Some(35)),
            (0, &[0, 1, 2, 3, 4, 5], 6, None),
            (1, &[], 0, None),
            (1, &[0], 1, Some(32)),
        ] {
            let found = closed_until(&account(threshold, 30, tries), at(now));
            assert_eq!(found, expected.map(at), "{threshold} {tries:?} at {now}");
        }
        let unknown = BmcAccount {
            tries: vec![at(0), at(1)],
            ..BmcAccount::default()
        };
        assert_eq!(closed_until(&unknown, at(500)), Some(at(603)));
    }

    #[test]
    fn lockout_policies_are_parsed() {
        let policy = |threshold, lockout_s, counter_reset_s| AccountPolicy {
            lockout_threshold: threshold,
            lockout_s,
            counter_reset_s,
            ..AccountPolicy::default()
        };
        let of = |threshold, window_s| Lockout { threshold, window_s };
        assert_eq!(lockout_of(&policy(Some(5), Some(30), Some(60))), of(5, 60));
        assert_eq!(lockout_of(&policy(Some(3), Some(0), None)), of(3, 600));
        assert_eq!(lockout_of(&policy(Some(0), Some(0), Some(0))).threshold, 0);
        assert_eq!(lockout_of(&policy(None, None, None)), UNKNOWN);
    }
}
