//! Machines that ask to boot and belong to no node. Any host on the wire can invent MAC addresses as fast as packets fit,
//! so this module limits the cost of a packet: a machine is stored at most every 30 s, and many machines share a commit.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rackwright_ground::clock;
use rackwright_ground::config::Config;
use rackwright_ground::core::Core;
use rackwright_ground::features::FeatureState;
use rackwright_lifecycle::{EventKind, Timestamp, seconds};
use rackwright_store::{EventRow, StoreError, UnknownMachineRow};
use tokio::sync::mpsc;

/// Least time between two stores of one machine.
const REWRITE_AFTER_S: i64 = 30;
/// Most machines remembered as stored or queued. While it is full, further machines are not stored.
const RECENT_MAX: usize = 4096;
/// Pause between two commits.
const PAUSE: Duration = Duration::from_secs(1);
/// Most events in an hour; further machines are only listed.
const EVENTS: u32 = 256;
const HOUR_S: i64 = 3600;

/// Queues the machines that ask to boot.
#[derive(Debug)]
pub(super) struct Sightings {
    recent: Mutex<Recent>,
    queue: mpsc::Sender<UnknownMachineRow>,
}

/// Machines to store.
pub(super) type Queue = mpsc::Receiver<UnknownMachineRow>;

impl Sightings {
    pub(super) fn new() -> (Self, Queue) {
        let (queue, waiting) = mpsc::channel(RECENT_MAX);
        let recent = Mutex::default();
        (Self { recent, queue }, waiting)
    }

    /// Queues a machine; costs one look-up in memory.
    pub(super) fn note(&self, row: UnknownMachineRow) {
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        if recent.is_due(&row.mac, row.last_seen) && self.queue.try_send(row).is_err() {
            tracing::debug!("a machine without a node was not stored: the queue is full");
        }
    }
}

/// When each machine was last stored.
#[derive(Debug, Default)]
struct Recent {
    written: HashMap<String, Timestamp>,
    swept: Timestamp,
}

impl Recent {
    /// Whether to store it now. If so, it counts as stored.
    fn is_due(&mut self, mac: &str, now: Timestamp) -> bool {
        let is_recent = |at: &Timestamp| *at <= now && now < at.plus(seconds(REWRITE_AFTER_S));
        if self.written.get(mac).is_some_and(is_recent) {
            return false;
        }
        if self.written.len() >= RECENT_MAX && !self.written.contains_key(mac) {
            if self.swept <= now && now < self.swept.plus(seconds(1)) {
                return false;
            }
            self.swept = now;
            self.written.retain(|_, at| is_recent(at));
            if self.written.len() >= RECENT_MAX {
                return false;
            }
        }
        self.written.insert(mac.to_owned(), now);
        true
    }
}

/// Number of events in the present hour.
#[derive(Debug, Default)]
pub struct EventBudget {
    since: Timestamp,
    count: u32,
}

impl EventBudget {
    /// Whether another event is allowed. If so, it counts.
    pub fn try_take(&mut self, now: Timestamp) -> bool {
        if now < self.since || now >= self.since.plus(seconds(HOUR_S)) {
            *self = Self { since: now, count: 0 };
        }
        if self.count == EVENTS {
            tracing::warn!(
                "{EVENTS} machines without a node in an hour: further machines get no event in this hour; `rackwright \
                 boot unknown` lists them"
            );
        }
        self.count = self.count.saturating_add(1);
        self.count <= EVENTS
    }
}

/// Limits the events about agents on machines that belong to no node.
#[derive(Debug, Default)]
pub struct UnknownReports(Mutex<EventBudget>);

impl UnknownReports {
    /// Whether another event is allowed. If so, it counts.
    pub fn try_take(&self, now: Timestamp) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).try_take(now)
    }
}

impl FeatureState for UnknownReports {
    fn new(_: &Config) -> Self {
        Self::default()
    }
}

/// Stores the queue until its senders are gone.
pub(super) async fn store(core: Arc<Core>, mut queue: Queue) {
    let mut batch = Vec::new();
    let mut budget = EventBudget::default();
    while queue.recv_many(&mut batch, RECENT_MAX).await > 0 {
        // All replicas hear the same broadcasts. They store in the same order, so that they cannot deadlock.
        batch.sort_by(|a, b| a.mac.cmp(&b.mac));
        if let Err(error) = store_batch(&core, &batch, &mut budget).await {
            tracing::error!(%error, lost = batch.len(), "machines without a node could not be stored");
        }
        batch.clear();
        tokio::time::sleep(PAUSE).await;
    }
}

async fn store_batch(core: &Core, batch: &[UnknownMachineRow], budget: &mut EventBudget) -> Result<(), StoreError> {
    let now = clock::now();
    let mut tx = core.store.write().await?;
    for row in batch {
        if tx.record_unknown_machine(row).await? && budget.try_take(now) {
            let mac = &row.mac;
            let event = EventRow {
                at: now,
                kind: EventKind::BootUnknownMachine,
                target: format!("machines/{mac}"),
                message: format!("a machine with MAC address {mac} asked to boot and belongs to no node"),
                ..EventRow::default()
            };
            tx.add_event(&event).await?;
        }
    }
    core.commit(tx).await
}

#[cfg(test)]
mod tests {
    use rackwright_ground::testing;
    use rackwright_store::Scope;

    use super::*;

    fn row(n: usize, at: Timestamp) -> UnknownMachineRow {
        UnknownMachineRow {
            mac: format!("52:54:00:00:{:02x}:{:02x}", n >> 8, n & 0xff),
            first_seen: at,
            last_seen: at,
            architecture: String::new(),
            relay: String::new(),
            system_uuid: String::new(),
            inventory: None,
        }
    }

    fn waiting(queue: &mut Queue) -> usize {
        std::iter::from_fn(|| queue.try_recv().ok()).count()
    }

    #[test]
    fn a_machine_is_written_at_most_every_30_s() {
        let (sightings, mut queue) = Sightings::new();
        let begin = Timestamp(1_000_000_000);
        for ms in 0..29_999 {
            sightings.note(row(1, begin.plus(ms * 1000)));
        }
        assert_eq!(waiting(&mut queue), 1);
        sightings.note(row(1, begin.plus(seconds(30))));
        sightings.note(row(2, begin.plus(seconds(30))));
        assert_eq!(waiting(&mut queue), 2);
        // The clock was set back: the machine is stored again, before the clock reaches its former time.
        sightings.note(row(1, Timestamp(5)));
        assert_eq!(waiting(&mut queue), 1);
    }

    #[test]
    fn machines_are_recorded_after_a_flood() {
        let (sightings, mut queue) = Sightings::new();
        let begin = Timestamp(1_000_000_000);
        for n in 0..20_000 {
            sightings.note(row(n, begin));
        }
        assert_eq!(waiting(&mut queue), RECENT_MAX);
        assert!(sightings.recent.lock().unwrap().written.len() <= RECENT_MAX);
        sightings.note(row(20_001, begin.plus(seconds(29))));
        assert_eq!(waiting(&mut queue), 0);
        sightings.note(row(20_001, begin.plus(seconds(31))));
        assert_eq!(waiting(&mut queue), 1);
    }

    #[tokio::test]
    async fn a_flood_makes_few_events() {
        let core = testing::core().await;
        let (sightings, queue) = Sightings::new();
        let now = clock::now();
        for n in 0..1000 {
            sightings.note(row(n, now));
        }
        drop(sightings);
        store(core.clone(), queue).await;
        assert_eq!(core.store.unknown_machines().await.unwrap().len(), 1000);
        let events = core.store.events(&Scope::Site, 0, "", 2000).await.unwrap();
        assert_eq!(events.len(), 256);
        assert_eq!(events[0].target, "machines/52:54:00:00:00:00");
        let mut budget = EventBudget::default();
        assert!(!(0..257).all(|_| budget.try_take(now)));
        assert!(budget.try_take(now.plus(seconds(HOUR_S))));
    }
}
