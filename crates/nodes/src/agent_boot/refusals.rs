//! When refused agents were last reported.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use rackwright_ground::config::Config;
use rackwright_ground::features::FeatureState;
use rackwright_lifecycle::{NodeId, Timestamp, seconds};

/// Least time between two events about refused agents of one node.
const REFUSAL_EVENT_S: i64 = 3600;
/// Most nodes in [`Refusals`].
const REFUSALS_KEPT: usize = 4096;

/// By node, the time of the last event about a refused agent: a refused agent comes back every few seconds.
#[derive(Debug, Default)]
pub(super) struct Refusals(Mutex<HashMap<NodeId, Timestamp>>);

impl FeatureState for Refusals {
    fn new(_: &Config) -> Self {
        Self::default()
    }
}

impl Refusals {
    /// Whether a refusal of this node's agent may be reported now. If so, it counts as reported.
    pub(super) fn may_report(&self, node: &NodeId, now: Timestamp) -> bool {
        let mut reported = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_recent = |at: &Timestamp| *at <= now && now < at.plus(seconds(REFUSAL_EVENT_S));
        if reported.get(node).is_some_and(is_recent) {
            return false;
        }
        if reported.len() >= REFUSALS_KEPT {
            reported.retain(|_, at| is_recent(at));
        }
        if reported.len() >= REFUSALS_KEPT {
            return false;
        }
        reported.insert(node.to_owned(), now);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_that_is_refused_repeatedly_makes_one_event_an_hour() {
        let refusals = Refusals::default();
        let begin = Timestamp(1_000_000_000);
        assert!(refusals.may_report(&"n1".into(), begin) && refusals.may_report(&"n2".into(), begin));
        for s in 0..REFUSAL_EVENT_S {
            assert!(!refusals.may_report(&"n1".into(), begin.plus(seconds(s))));
        }
        assert!(refusals.may_report(&"n1".into(), begin.plus(seconds(REFUSAL_EVENT_S))));
        for n in 0..2 * REFUSALS_KEPT {
            refusals.may_report(&NodeId::stored(n.to_string().as_str()), begin);
        }
        assert!(refusals.0.lock().unwrap().len() <= REFUSALS_KEPT);
    }
}
