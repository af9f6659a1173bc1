//! State of the watch over nodes at rest (`watch_power`), for metrics and explanations.

use std::collections::HashMap;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rackwright_lifecycle::{NodeId, Timestamp};

/// State of the watch in this process, for metrics and explanations.
#[derive(Debug, Default)]
pub struct WatchStatus {
    /// When the BMC of each node last reported its power.
    seen: Mutex<HashMap<NodeId, Timestamp>>,
    watched: AtomicUsize,
    lag_us: AtomicI64,
    streams: AtomicUsize,
}

impl WatchStatus {
    fn seen(&self) -> MutexGuard<'_, HashMap<NodeId, Timestamp>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// When the BMC of a node last answered this process. `None` if this process does not watch the node.
    #[must_use]
    pub fn seen_at(&self, node: &NodeId) -> Option<Timestamp> {
        self.seen().get(node).copied()
    }

    /// Nodes that this process watches.
    #[must_use]
    pub fn watched(&self) -> usize {
        self.watched.load(Ordering::Relaxed)
    }

    /// Open event streams.
    #[must_use]
    pub fn streams(&self) -> usize {
        self.streams.load(Ordering::Relaxed)
    }

    /// How long the most overdue node has been due, in microseconds.
    #[must_use]
    pub fn lag_us(&self) -> i64 {
        self.lag_us.load(Ordering::Relaxed)
    }

    /// Notes the state of the watch: its nodes, open streams, and delay in microseconds.
    pub fn note(&self, watched: usize, streams: usize, lag_us: i64) {
        self.watched.store(watched, Ordering::Relaxed);
        self.streams.store(streams, Ordering::Relaxed);
        self.lag_us.store(lag_us, Ordering::Relaxed);
    }

    /// Notes that the BMC of a node has reported its power.
    pub fn note_seen(&self, node: &NodeId, now: Timestamp) {
        self.seen().insert(node.to_owned(), now);
    }

    /// Forgets nodes that this process watches no longer.
    pub fn forget(&self, nodes: &[NodeId]) {
        let mut seen = self.seen();
        for node in nodes {
            seen.remove(node);
        }
    }
}
