//! The schedule for readings of nodes, PDUs and cooling units.
//!
//! One replica reads each of these targets (as in the watch over nodes at rest). A hash of the target's name gives its
//! moment within the interval, so the readings are spread out. Results are stored in batches, once per tick.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rackwright_ground::clock;
use rackwright_ground::config::facility::Settings;
use rackwright_ground::core::Core;
use rackwright_ground::hall::HallError;
use rackwright_ground::polling::{self, DueQueue, Poller, Readings, moment_within};
use rackwright_ground::share::{Share, alive_since};
use rackwright_lifecycle::{EventKind, NodeId, Timestamp, seconds};
use rackwright_redfish::BmcHints;
use rackwright_site::model::Site;
use rackwright_site::power::readings::Reading;
use rackwright_store::{ReadingRow, Scope, StoreError};
use tokio::task::JoinError;

use super::read::{self, Equipment, Kind};
use crate::facility::Facility;
use crate::watch_power::look::BmcLocks;

/// Pause between two looks for due readings.
const TICK: Duration = Duration::from_millis(500);
/// Seconds between two updates of the list of targets that this replica reads.
const LIST_S: i64 = 30;
/// Most readings stored in one transaction.
const STORED_AT_ONCE: usize = 256;
/// PDUs and cooling units read in parallel, apart from nodes: slow BMCs must not delay reports of leaks.
const EQUIPMENT_AT_ONCE: usize = 16;
/// Longest time for one reading.
const READING_MAX: Duration = Duration::from_secs(120);
/// Failed readings of equipment in a row before an event reports them.
const MISSES: u32 = 3;

type Key = (Kind, String);

/// A node, PDU or cooling unit to read.
#[derive(Debug, Default)]
struct Entry {
    hints: BmcHints,
    misses: u32,
    is_reading: bool,
    address: String,
    certificate: Option<String>,
}

/// Result of one reading.
struct PollResult {
    key: Key,
    hints: BmcHints,
    row: Option<ReadingRow>,
    /// Why the reading failed; empty if there is nothing to report.
    failure: String,
    /// The node no longer exists.
    is_gone: bool,
}

/// Runs until the core stops.
pub(super) async fn run(core: Arc<Core>, settings: Settings) {
    let stop = core.stop.clone();
    polling::run(&stop, TICK, &mut Poll::new(core, settings)).await;
}

struct Poll {
    core: Arc<Core>,
    settings: Settings,
    entries: HashMap<Key, Entry>,
    nodes: DueQueue<Key>,
    equipment: DueQueue<Key>,
    listed_at: Timestamp,
    waiting: Vec<ReadingRow>,
    bmc_locks: Arc<BmcLocks>,
    /// The log has the warning about the missing account.
    has_warned: bool,
}

impl Poll {
    fn new(core: Arc<Core>, settings: Settings) -> Self {
        Self {
            settings,
            entries: HashMap::new(),
            nodes: DueQueue::default(),
            equipment: DueQueue::default(),
            listed_at: Timestamp::default(),
            waiting: Vec::new(),
            bmc_locks: Arc::default(),
            has_warned: false,
            core,
        }
    }

    async fn turn(&mut self, reading: &mut Readings<Key, PollResult>) -> Result<(), StoreError> {
        let now = clock::now();
        if now >= self.listed_at.plus(seconds(LIST_S)) {
            self.list(now).await?;
        }
        self.store().await?;
        self.begin(now, reading);
        Ok(())
    }

    fn interval_s(&self, kind: Kind) -> i64 {
        i64::from(match kind {
            Kind::Node => self.settings.node_interval_s,
            Kind::Pdu | Kind::Cooling => self.settings.equipment_interval_s,
        })
    }

    /// Updates the list of targets that this replica reads.
    async fn list(&mut self, now: Timestamp) -> Result<(), StoreError> {
        let site = match self.core.sites.current(&self.core.store).await {
            Ok(Some((_, site))) => site,
            Ok(None) => Arc::default(),
            Err(error) => {
                tracing::warn!(%error, "the site cannot be read, so its power and cooling are not read");
                return Ok(());
            }
        };
        let alive = self.core.store.replicas(alive_since(now)).await?;
        let share = Share::new(&self.core.replica, alive.into_iter().map(|replica| replica.id));
        self.listed_at = now;
        let mut found = read_targets(&site, &self.settings);
        found.retain(|(_, name), _| share.has(name));
        self.entries.retain(|key, _| found.contains_key(key));
        self.nodes.retain(|key| found.contains_key(key));
        self.equipment.retain(|key| found.contains_key(key));
        for (key, (address, certificate)) in found {
            let interval_us = seconds(self.interval_s(key.0)).max(1);
            let queue = match key.0 {
                Kind::Node => &mut self.nodes,
                Kind::Pdu | Kind::Cooling => &mut self.equipment,
            };
            let entry = self.entries.entry(key.clone()).or_insert_with(|| {
                let offset = moment_within(interval_us, [key.0.as_str().as_bytes(), key.1.as_bytes()]);
                // Equipment serves many nodes, so its first reading is soon. First readings of nodes are spread over
                // the interval.
                let due = now.plus(if key.0 == Kind::Node { offset } else { offset / 10 });
                queue.set(key, due);
                Entry::default()
            });
            (entry.address, entry.certificate) = (address, certificate);
        }
        self.core
            .feature::<Facility>()
            .polled
            .store(self.entries.len(), Ordering::Relaxed);
        Ok(())
    }

    /// Begins the due readings. Nodes and equipment have separate limits.
    fn begin(&mut self, now: Timestamp, reading: &mut Readings<Key, PollResult>) {
        for (is_node, most) in [(true, self.settings.at_once), (false, EQUIPMENT_AT_ONCE)] {
            let running = reading.count(|key| (key.0 == Kind::Node) == is_node);
            let mut room = most.saturating_sub(running);
            while room > 0
                && let Some(key) = self.queue(is_node).take_due(now)
            {
                let next = now.plus(seconds(self.interval_s(key.0)));
                self.queue(is_node).set(key.clone(), next);
                room -= usize::from(self.begin_one(key, reading));
            }
        }
    }

    fn queue(&mut self, is_node: bool) -> &mut DueQueue<Key> {
        if is_node { &mut self.nodes } else { &mut self.equipment }
    }

    /// Begins a reading, unless a reading of the same target is in progress. Returns whether it began.
    fn begin_one(&mut self, key: Key, reading: &mut Readings<Key, PollResult>) -> bool {
        let limit = READING_MAX.min(Duration::from_secs(self.interval_s(key.0).max(1).unsigned_abs()));
        let Some(entry) = self.entries.get_mut(&key).filter(|entry| !entry.is_reading) else {
            return false;
        };
        let (core, bmc_locks, settings) = (self.core.clone(), self.bmc_locks.clone(), self.settings.clone());
        let hints = entry.hints.clone();
        let equipment = Equipment {
            kind: key.0,
            name: key.1.clone(),
            address: entry.address.clone(),
            certificate: entry.certificate.clone(),
        };
        entry.is_reading = true;
        reading.begin(key.clone(), async move {
            match key.0 {
                Kind::Node => poll_node(&core, &bmc_locks, key, hints, limit).await,
                _ => poll_equipment(&core, &bmc_locks, &settings, key, &equipment, hints, limit).await,
            }
        });
        true
    }

    async fn done(&mut self, done: PollResult) {
        let Some(entry) = self.entries.get_mut(&done.key) else {
            return;
        };
        entry.is_reading = false;
        entry.hints = done.hints;
        let (kind, name) = &done.key;
        if done.is_gone {
            return;
        }
        if let Some(row) = done.row {
            self.waiting.push(row);
            if *kind != Kind::Node && entry.misses >= MISSES {
                let message = format!("{name} can be read again");
                self.core
                    .event(EventKind::FacilityReadAgain, &target(*kind, name), &message)
                    .await;
            }
            entry.misses = 0;
            return;
        }
        if done.failure.is_empty() {
            return;
        }
        entry.misses = entry.misses.saturating_add(1);
        tracing::debug!(kind = kind.as_str(), name, failure = done.failure, "a reading failed");
        // The watch over power reports a silent BMC of a node.
        if *kind != Kind::Node && entry.misses == MISSES {
            let message = format!(
                "{name} could not be read {MISSES} times in a row, so its state is unknown: {}",
                done.failure
            );
            self.core
                .event(EventKind::FacilityUnread, &target(*kind, name), &message)
                .await;
        }
        if done.failure == NO_ACCOUNT && !self.has_warned {
            self.has_warned = true;
            tracing::warn!("PDUs and cooling units are not read: facility.username and password_file are not set");
        }
    }

    async fn store(&mut self) -> Result<(), StoreError> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        let now = clock::now();
        let count = self.waiting.len().min(STORED_AT_ONCE);
        for row in &mut self.waiting[..count] {
            row.stored_at = now;
        }
        let mut tx = self.core.store.write().await?;
        tx.put_facility_readings(&self.waiting[..count]).await?;
        tx.commit().await?;
        self.waiting.drain(..count);
        Ok(())
    }
}

impl Poller for Poll {
    type Key = Key;
    type Outcome = PollResult;
    type Event = ();

    async fn tick(&mut self, readings: &mut Readings<Key, PollResult>) {
        if let Err(error) = self.turn(readings).await {
            tracing::warn!(%error, "power and cooling could not be read; the next attempt follows shortly");
        }
    }

    /// A panic counts as a failed reading; the next reading comes at its usual time.
    async fn ended(&mut self, key: Key, outcome: Result<PollResult, JoinError>) {
        let done = outcome.unwrap_or_else(|error| {
            tracing::error!(kind = key.0.as_str(), name = key.1, %error, "a reading panicked");
            let failure = "an internal fault of the control plane ended the reading; its log has the details";
            PollResult {
                key,
                hints: BmcHints::default(),
                row: None,
                failure: failure.to_owned(),
                is_gone: false,
            }
        });
        self.done(done).await;
    }
}

const NO_ACCOUNT: &str = "facility.username and password_file are not set";

fn target(kind: Kind, name: &str) -> String {
    format!("{}/{name}", kind.as_str())
}

/// For each kind, the number of targets in the site and the number of fresh readings.
///
/// # Errors
/// The database failed, or the stored site cannot be read.
pub async fn coverage(core: &Core) -> Result<Vec<(&'static str, usize, i64)>, HallError> {
    let Some(settings) = &core.config.facility else {
        return Ok(Vec::new());
    };
    let Some((_, site)) = core.sites.current(&core.store).await? else {
        return Ok(Vec::new());
    };
    let mut known: BTreeMap<Kind, usize> = BTreeMap::new();
    for (kind, _) in read_targets(&site, settings).into_keys() {
        *known.entry(kind).or_default() += 1;
    }
    let since = clock::now().plus(-seconds(settings.fresh_s.into()));
    let read = core.store.count_facility_readings(since).await?;
    let of = |(kind, count): (Kind, usize)| {
        let kind = kind.as_str();
        (kind, count, read.get(kind).copied().unwrap_or(0))
    };
    Ok(known.into_iter().map(of).collect())
}

/// Address and certificate of each target in a site, by kind and name. The address of a node is empty: the node's record
/// has it.
fn read_targets(site: &Site, settings: &Settings) -> BTreeMap<Key, (String, Option<String>)> {
    let certificate = |name: &str| settings.certificates.get(name).cloned();
    let nodes = site.nodes.iter().map(|node| (Kind::Node, &node.name, Some("")));
    let pdus = site
        .domains
        .iter()
        .map(|unit| (Kind::Pdu, &unit.name, unit.bmc.as_deref()));
    let cooling = site.cooling_units.iter();
    let cooling = cooling.map(|unit| (Kind::Cooling, &unit.name, unit.bmc.as_deref()));
    let all = nodes.chain(pdus).chain(cooling);
    all.filter_map(|(kind, name, bmc)| {
        let access = (bmc?.to_owned(), certificate(name));
        Some(((kind, name.to_string()), access))
    })
    .collect()
}

fn row(key: &Key, reading: &Reading) -> Result<ReadingRow, String> {
    let now = clock::now();
    Ok(ReadingRow {
        kind: key.0.as_str().to_owned(),
        name: key.1.clone(),
        at: now,
        stored_at: now,
        body: serde_json::to_string(reading).map_err(|e| e.to_string())?,
    })
}

async fn poll_node(core: &Core, bmc_locks: &BmcLocks, key: Key, mut hints: BmcHints, limit: Duration) -> PollResult {
    let mut is_gone = false;
    let outcome = async {
        let record = match core.store.node(&Scope::Site, &NodeId::stored(key.1.as_str())).await {
            Err(StoreError::NotFound { .. }) => {
                is_gone = true;
                return Ok(None);
            }
            record => record.map_err(|e| e.to_string())?,
        };
        // Another task uses this BMC now: the next reading comes after an interval.
        let Some(_bmc_lock) = bmc_locks.begin(&record.spec.bmc_address) else {
            return Ok(None);
        };
        let read = read::node(core, &record, &mut hints, limit).await?;
        row(&key, &read).map(Some)
    };
    let outcome = outcome.await;
    poll_result(key, hints, outcome, is_gone)
}

async fn poll_equipment(
    core: &Core,
    bmc_locks: &BmcLocks,
    settings: &Settings,
    key: Key,
    equipment: &Equipment,
    mut hints: BmcHints,
    limit: Duration,
) -> PollResult {
    let outcome = async {
        let account = settings.account()?.ok_or(NO_ACCOUNT)?;
        // Targets with the same address take turns.
        let Some(_bmc_lock) = bmc_locks.wait(&equipment.address).await else {
            return Ok(None);
        };
        let kept = core.store.facility_pin(key.0.as_str(), &key.1).await;
        let kept = kept.map_err(|e| e.to_string())?;
        let read = read::equipment(core, equipment, account, kept.as_deref(), &mut hints, limit).await;
        if let Some(pin) = read.pin.filter(|pin| kept.as_ref() != Some(pin)) {
            keep_pin(core, &key, &pin).await.map_err(|e| e.to_string())?;
        }
        row(&key, &read.reading?).map(Some)
    };
    let outcome = outcome.await;
    poll_result(key, hints, outcome, false)
}

async fn keep_pin(core: &Core, (kind, name): &Key, pin: &str) -> Result<(), StoreError> {
    let mut tx = core.store.write().await?;
    tx.put_facility_pin(kind.as_str(), name, pin).await?;
    tx.commit().await
}

fn poll_result(key: Key, hints: BmcHints, outcome: Result<Option<ReadingRow>, String>, is_gone: bool) -> PollResult {
    let (row, failure) = match outcome {
        Ok(row) => (row, String::new()),
        Err(failure) => (None, failure),
    };
    PollResult {
        key,
        hints,
        row,
        failure,
        is_gone,
    }
}

#[cfg(test)]
#[path = "poll_tests.rs"]
mod tests;
