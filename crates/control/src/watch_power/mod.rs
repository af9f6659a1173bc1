//! The watch over nodes at rest: Rackwright does nothing with them, but a person may pull a plug.
//!
//! One replica looks at each node every few minutes, and the looks are spread evenly. A look is one request to the BMC.
//! If the state is unchanged, nothing is written. The live replicas determine the watching replica of a node (`share`),
//! and the result of the last look determines the time of the next (`schedule`). Module `look` applies the changes.

pub(crate) mod look;
mod schedule;
mod streams;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use rackwright_ground::bmc;
use rackwright_ground::clock;
use rackwright_ground::core::Core;
use rackwright_ground::polling::{self, Poller, Readings};
use rackwright_ground::share::Share;
use rackwright_ground::share::alive_since;
use rackwright_lifecycle::{NodeId, Timestamp, seconds};
use rackwright_store::StoreError;
use tokio::sync::mpsc;
use tokio::task::JoinError;

use look::{BmcLocks, Known, LookOutcome, look};
use schedule::{Id, Look, Schedule};
use streams::{StreamEvent, Streams};

/// Pause between two looks for due nodes. Nodes that become due within it are read together.
const TICK: Duration = Duration::from_millis(500);
/// Seconds between two pages of the list of nodes at rest.
const PAGE_S: i64 = 1;
/// Nodes per page.
const PAGE: i64 = 500;
/// Seconds between the starts of two rounds over all nodes at rest; a shorter `interval_s` counts instead.
const ROUND_S: i64 = 60;
/// Seconds between two reads of the live replicas.
const SHARE_S: i64 = 10;

/// Runs until the core stops.
pub async fn run(core: Arc<Core>) {
    let stop = core.stop.clone();
    polling::run(&stop, TICK, &mut Watch::new(core)).await;
}

/// The watch of one process.
struct Watch {
    core: Arc<Core>,
    share: Share,
    shared_at: Timestamp,
    schedule: Schedule,
    round: Round,
    known: HashMap<Id, Known>,
    bmc_locks: Arc<BmcLocks>,
    streams: Streams,
    stream_events: mpsc::Receiver<StreamEvent>,
}

/// Progress of the current round over all nodes at rest.
struct Round {
    begun_at: Timestamp,
    /// Last id of the page before.
    after: String,
    next_page_at: Timestamp,
}

impl Watch {
    fn new(core: Arc<Core>) -> Self {
        let now = clock::now();
        let (streams, stream_events) = Streams::new(core.config.power_watch);
        Self {
            share: Share::new(&core.replica, []),
            shared_at: Timestamp::default(),
            schedule: Schedule::new(core.config.power_watch, now),
            round: Round {
                begun_at: now,
                after: String::new(),
                next_page_at: now,
            },
            known: HashMap::new(),
            bmc_locks: Arc::default(),
            streams,
            stream_events,
            core,
        }
    }

    /// Adds nodes that came to rest, and starts due looks.
    async fn look_for_due(&mut self, looks: &mut Readings<Id, LookOutcome>) -> Result<(), StoreError> {
        let now = clock::now();
        self.compare_shares(now).await?;
        self.read_page(now).await?;
        self.begin(now, looks).await?;
        let (watched, streams, lag_us) = (self.schedule.len(), self.streams.open(), self.schedule.lag_us(now));
        self.core.watch.note(watched, streams, lag_us);
        Ok(())
    }

    /// Updates this replica's share when replicas come or go.
    async fn compare_shares(&mut self, now: Timestamp) -> Result<(), StoreError> {
        if now < self.shared_at.plus(seconds(SHARE_S)) {
            return Ok(());
        }
        let alive = self.core.store.replicas(alive_since(now)).await?;
        let share = Share::new(&self.core.replica, alive.into_iter().map(|replica| replica.id));
        self.shared_at = now;
        if share != self.share {
            self.share = share;
            let gone = self.schedule.retain_share(&self.share);
            gone.iter().for_each(|node| self.streams.close(node));
            self.forget(&gone);
            // The next page is read at once, because this replica may have new nodes.
            self.round.next_page_at = now;
        }
        Ok(())
    }

    /// Reads the next page of nodes at rest when it is due. A node that comes to rest is found within a round.
    async fn read_page(&mut self, now: Timestamp) -> Result<(), StoreError> {
        if now < self.round.next_page_at {
            return Ok(());
        }
        let page = self.core.store.resting_ids(&self.round.after, PAGE).await?;
        for node in page.iter().filter(|node| self.share.has(node.as_str())) {
            self.schedule.found(node, now);
        }
        match page.last() {
            Some(last) if page.len() as i64 == PAGE => {
                last.as_str().clone_into(&mut self.round.after);
                self.round.next_page_at = now.plus(seconds(PAGE_S));
            }
            _ => {
                let gone = self.schedule.end_round();
                self.forget(&gone);
                let round_s = ROUND_S.min(self.core.config.power_watch.interval_s.into());
                let next = self.round.begun_at.plus(seconds(round_s));
                self.round = Round {
                    begun_at: now.max(next),
                    after: String::new(),
                    next_page_at: now.plus(seconds(PAGE_S)).max(next),
                };
            }
        }
        Ok(())
    }

    fn forget(&mut self, nodes: &[Id]) {
        for node in nodes {
            self.known.remove(node);
        }
        self.core.watch.forget(nodes);
    }

    async fn begin(&mut self, now: Timestamp, looks: &mut Readings<Id, LookOutcome>) -> Result<(), StoreError> {
        let room = self.core.config.power_watch.at_once.saturating_sub(looks.len());
        let due = self.schedule.take(now, room);
        if due.is_empty() {
            return Ok(());
        }
        let ids: Vec<&NodeId> = due.iter().collect();
        let rows = match self.core.store.resting(&ids).await {
            Ok(rows) => rows,
            Err(error) => {
                for id in &due {
                    self.schedule.looked(id, Look::Unsettled, now);
                }
                return Err(error);
            }
        };
        let mut rows: HashMap<_, _> = rows.into_iter().map(|row| (row.id.clone(), row)).collect();
        for id in due {
            let Some(row) = rows.remove(&id) else {
                // The node is in use. A later round finds it when it is at rest again.
                self.schedule.forget(&id);
                self.forget(&[id]);
                continue;
            };
            let (core, bmc_locks) = (self.core.clone(), self.bmc_locks.clone());
            let (known, silent) = (self.known.remove(&id), self.schedule.silent(&id));
            looks.begin(id, async move { look(&core, &bmc_locks, row, known, silent).await });
        }
        Ok(())
    }

    fn looked(&mut self, looked: LookOutcome, now: Timestamp) {
        let id = looked.id;
        if looked.is_other_bmc {
            self.streams.close(&id);
        }
        let look = match looked.look {
            Look::Same if self.streams.has(&id) => Look::Streamed,
            other => other,
        };
        self.core.metrics.looked(look.as_str());
        if !self.schedule.looked(&id, look, now) {
            return;
        }
        let Some(known) = looked.known else { return };
        if look.has_seen() {
            self.core.watch.note_seen(&id, now);
            self.open_stream(&id, &known, now);
        }
        self.known.insert(id, known);
    }

    /// Opens an event stream to a BMC that answers, if there is room. The BMC may offer none.
    fn open_stream(&mut self, node: &Id, known: &Known, now: Timestamp) {
        if !self.streams.may_open(node, now) {
            return;
        }
        // The look has reported an invalid target already.
        let target = bmc::target(node, known.spec(), &self.core.keys.sealer).ok();
        let client = target.and_then(|target| known.client(&self.core, target).ok());
        if let Some(client) = client {
            self.streams.begin(node, client);
        }
    }
}

impl Poller for Watch {
    type Key = Id;
    type Outcome = LookOutcome;
    type Event = StreamEvent;

    async fn tick(&mut self, looks: &mut Readings<Id, LookOutcome>) {
        if let Err(error) = self.look_for_due(looks).await {
            tracing::warn!(
                %error,
                "nodes at rest cannot be read from the database, so their power is not watched"
            );
        }
    }

    async fn ended(&mut self, id: Id, looked: Result<LookOutcome, JoinError>) {
        let now = clock::now();
        match looked {
            Ok(looked) => self.looked(looked, now),
            Err(error) => {
                tracing::error!(node = id.as_str(), %error, "a power reading of the node panicked");
                self.schedule.looked(&id, Look::Silent, now);
            }
        }
    }

    async fn next_event(&mut self) -> StreamEvent {
        match self.stream_events.recv().await {
            Some(event) => event,
            // The channel does not end, because `streams` holds a sender.
            None => std::future::pending().await,
        }
    }

    async fn handle(&mut self, stream_event: StreamEvent) {
        let now = clock::now();
        match stream_event {
            StreamEvent::Open(node) => {
                self.streams.opened(&node, now);
                // Events before the stream opened are lost, so the node is looked at now.
                self.schedule.look_now(&node, now);
            }
            StreamEvent::Hint(node) => {
                if self.schedule.look_now(&node, now) {
                    return;
                }
                match look::mark_power_unknown(&self.core, &node).await {
                    Ok(true) => {}
                    Ok(false) => self.streams.close(&node),
                    Err(error) => {
                        tracing::warn!(
                            node = node.as_str(),
                            %error,
                            "the node's power could not be marked as unknown after an event of its BMC"
                        )
                    }
                }
            }
            StreamEvent::NotOffered(node) => self.streams.ended(&node, false, None, now),
            StreamEvent::Ended(node, last_id) => {
                self.streams.ended(&node, true, last_id, now);
                self.schedule.look_soon(&node, now);
            }
        }
    }
}

#[cfg(test)]
mod tests;
