//! Limits the records of failed calls and of reads: strangers and customers must not be able to fill the disk with
//! records.
//!
//! Each caller may add a number of records per window. All callers without a certificate share one such number. Calls
//! above the limit are counted, and the end of the window leaves one record with the count. Records of changes have no
//! limit.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rackwright_identity::AuditRecord;

/// Length of a window.
const WINDOW: Duration = Duration::from_secs(600);
/// Records of failed calls of one member or agent in a window.
const FAILURES: u32 = 200;
/// Records of sensitive reads of one member in a window.
const READS: u32 = 1000;
/// Records of calls without a certificate from one address in a window.
const ADDRESS_MAX: u32 = 10;
/// Records of calls without a certificate from all addresses in a window.
const ANONYMOUS_MAX: u32 = 100;
/// Callers and addresses that are counted separately in a window; further ones share one count.
const COUNTED_MAX: usize = 10_000;
/// Pause between two checks for the end of the window.
pub const ROUND: Duration = Duration::from_secs(60);

/// Counts of the current window.
#[derive(Debug, Default)]
pub struct Budget(Mutex<Window>);

#[derive(Debug, Default)]
struct Window {
    began: Option<Instant>,
    failures: HashMap<String, Count>,
    reads: HashMap<String, Count>,
    addresses: HashMap<String, Count>,
    anonymous: u32,
}

#[derive(Debug, Default)]
struct Count {
    written: u32,
    left_out: u64,
}

impl Budget {
    /// Whether this sensitive read of a member gets a record of its own.
    pub fn allows_read(&self, caller: &str) -> bool {
        let mut window = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        window.began.get_or_insert_with(Instant::now);
        count(&mut window.reads, caller, READS)
    }

    /// Whether this failed call gets a record of its own. The caller is empty for a call without a certificate.
    pub fn allows(&self, caller: &str, address: &str) -> bool {
        let mut window = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        window.began.get_or_insert_with(Instant::now);
        if !caller.is_empty() {
            return count(&mut window.failures, caller, FAILURES);
        }
        let is_room = window.anonymous < ANONYMOUS_MAX;
        let limit = if is_room { ADDRESS_MAX } else { 0 };
        let allowed = count(&mut window.addresses, address, limit);
        window.anonymous += u32::from(allowed);
        allowed
    }

    /// Records for the calls above the limits, once the window is over or with `is_end`. A new window begins then.
    pub fn summaries(&self, is_end: bool) -> Vec<AuditRecord> {
        let mut window = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !is_end && window.began.is_none_or(|began| began.elapsed() < WINDOW) {
            return Vec::new();
        }
        let ended = std::mem::take(&mut *window);
        drop(window);
        let left_out = |counts: HashMap<String, Count>| {
            let mut left: Vec<(String, u64)> = counts
                .into_iter()
                .filter(|(_, count)| count.left_out > 0)
                .map(|(name, count)| (name, count.left_out))
                .collect();
            left.sort();
            left
        };
        let mut records = Vec::new();
        for (caller, calls) in left_out(ended.failures) {
            let message = format!("{calls} further calls failed or were refused, and are not recorded one by one");
            records.push(AuditRecord {
                caller,
                ..summary("local/refused-calls", "PERMISSION_DENIED", calls, message)
            });
        }
        for (caller, calls) in left_out(ended.reads) {
            let message = format!("{calls} further sensitive reads are not recorded one by one");
            records.push(AuditRecord {
                caller,
                ..summary("local/reads", "OK", calls, message)
            });
        }
        let addresses = left_out(ended.addresses);
        if let Some((first, _)) = addresses.first() {
            let calls = addresses.iter().map(|(_, calls)| calls).sum();
            let message = format!(
                "{calls} further calls without a certificate were refused and are not recorded one by one; they came from \
                 {} addresses",
                addresses.len()
            );
            let address = first.clone();
            records.push(AuditRecord {
                address,
                ..summary("local/refused-calls", "UNAUTHENTICATED", calls, message)
            });
        }
        records
    }
}

fn count(counts: &mut HashMap<String, Count>, name: &str, limit: u32) -> bool {
    let name = if counts.len() < COUNTED_MAX || counts.contains_key(name) {
        name
    } else {
        "others"
    };
    let count = counts.entry(name.to_owned()).or_default();
    let allowed = count.written < limit;
    match allowed {
        true => count.written += 1,
        false => count.left_out += 1,
    }
    allowed
}

fn summary(method: &str, outcome: &str, calls: u64, message: String) -> AuditRecord {
    AuditRecord {
        method: method.into(),
        target: "site".into(),
        outcome: outcome.into(),
        message,
        calls,
        ..AuditRecord::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn anonymous_calls_have_few_records_and_one_count() {
        let budget = Budget::default();
        let allowed = (0..1000).filter(|_| budget.allows("", "192.0.2.1")).count();
        assert_eq!(allowed, 10);
        let others = (0..5000).filter(|n| budget.allows("", &format!("host-{n}"))).count();
        assert_eq!(others, 90, "all strangers together have 100");
        let allowed = (0..500).filter(|_| budget.allows("members/ann", "192.0.2.1")).count();
        assert_eq!(allowed, 200, "strangers leave the records of members alone");
        let reads = (0..1500).filter(|_| budget.allows_read("members/ann")).count();
        assert_eq!(reads, 1000);
        assert!(budget.summaries(false).is_empty(), "the window is not over");
        let summaries = budget.summaries(true);
        let calls: Vec<(&str, u64)> = summaries.iter().map(|r| (r.caller.as_str(), r.calls)).collect();
        assert_eq!(calls, [("members/ann", 300), ("members/ann", 500), ("", 990 + 4910)]);
        assert!(budget.summaries(true).is_empty());
    }
}
