//! The record of one image version, shared by the streams of its agents, and the task that sends the grants.
//!
//! Streams change the record under a lock and then wake the task. The task looks at the record, sends grants, and sleeps
//! until a stream wakes it or until a lease ends. If anything panics with the record, the record is closed: the streams
//! end, and the agents begin new streams with a new record.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use rackwright_fanout::{ClaimTable, Moment, Outside, TableSettings};
use rackwright_ground::clock;
use rackwright_ground::core::Core;
use rackwright_ground::metrics::Metrics;
use rackwright_lifecycle::NodeId;
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::Spreads;
use super::message::{Beginning, Message};
use super::record::{Full, OwnReport, Place, QUEUE, Record, SpreadReport, Stream, ToAgent, Writer, WrongBytes};

/// Shortest time between two looks at the record: messages that come within this time are one look.
const LEAST_REST: Duration = Duration::from_millis(2);

/// The record of one image version.
#[derive(Debug)]
pub struct Table {
    digest: String,
    begun: Instant,
    chunks: u32,
    record: Mutex<Record>,
    changed: Notify,
    /// The record is over: its streams end.
    closed: CancellationToken,
}

/// An agent's stream in a table. Dropping it counts as a broken stream.
#[derive(Debug)]
pub struct Joined {
    table: Arc<Table>,
    place: Place,
    has_left: bool,
    /// The stream has to end: a newer one has replaced it, or the agent does not read.
    pub end: CancellationToken,
    /// The agent's queue, for the reason of the end.
    pub sender: mpsc::Sender<ToAgent>,
}

impl Table {
    pub(super) fn new(digest: &str, chunks: u32, settings: TableSettings, seed: u64) -> Self {
        Self {
            digest: digest.to_owned(),
            begun: Instant::now(),
            chunks,
            record: Mutex::new(Record::new(chunks, ClaimTable::new(chunks, settings, seed))),
            changed: Notify::new(),
            closed: CancellationToken::new(),
        }
    }

    /// Number of chunks of the image with data.
    #[must_use]
    pub fn chunks(&self) -> u32 {
        self.chunks
    }

    /// Completes when the record is over: its streams have to end.
    #[must_use]
    pub fn closed(&self) -> &CancellationToken {
        &self.closed
    }

    fn now(&self) -> Moment {
        let micros = self.begun.elapsed().as_micros();
        Moment::micros(u64::try_from(micros).unwrap_or(u64::MAX))
    }

    /// After a panic the record may contradict itself, so it is over.
    fn lock(&self) -> MutexGuard<'_, Record> {
        self.record.lock().unwrap_or_else(|poisoned| {
            self.closed.cancel();
            poisoned.into_inner()
        })
    }

    /// Begins an agent's stream. Returns it, and the agent's messages.
    pub(super) fn begin(
        self: &Arc<Self>,
        writer: Writer,
        beginning: Beginning,
    ) -> Result<(Joined, mpsc::Receiver<ToAgent>), Full> {
        let (sender, receiver) = mpsc::channel(QUEUE);
        let end = CancellationToken::new();
        let stream = Stream {
            sender: sender.clone(),
            end: end.clone(),
        };
        let times = (self.now(), clock::now());
        let place = self.lock().begin(writer, beginning, stream, times)?;
        self.changed.notify_one();
        let joined = Joined {
            table: self.clone(),
            place,
            has_left: false,
            end,
            sender,
        };
        Ok((joined, receiver))
    }

    /// The state of the spread.
    #[must_use]
    pub fn report(&self) -> SpreadReport {
        self.lock().report()
    }

    /// The place of one node. `None`: it has no stream here.
    #[must_use]
    pub fn report_of(&self, node: &NodeId) -> Option<OwnReport> {
        self.lock().report_of(node)
    }

    /// Panics with the record, as a bug would.
    #[cfg(test)]
    pub(super) fn break_lock(self: &Arc<Self>) {
        let table = self.clone();
        let broken = std::thread::spawn(move || {
            let _record = table.lock();
            panic!("a test breaks the record");
        });
        assert!(broken.join().is_err());
    }

    /// Whether the table has no agents. The caller holds the lock of all tables, so that none begins meanwhile.
    pub(super) fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    /// Sends grants until the last agent has gone. Returns when the record is over.
    async fn run(&self, spreads: &Spreads, metrics: &Metrics, stop: &CancellationToken) {
        // Also at a panic of this task.
        let _closed = self.closed.clone().drop_guard();
        let mut agents = Counted { metrics, agents: 0 };
        loop {
            let looked = Instant::now();
            let next = {
                let mut record = self.lock();
                let (sources, next) = record.look(self.now());
                for source in sources {
                    metrics.spread_granted(match source {
                        Outside::Origin => "servers",
                        Outside::Agent(_) => "racks",
                    });
                }
                agents.set(record.len());
                next
            };
            if spreads.remove_if_empty(&self.digest, self) {
                return;
            }
            let at = next.map(|next| self.begun + Duration::from_micros(next.as_micros()));
            let due = async {
                match at {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            let rested = async {
                tokio::select! {
                    () = self.changed.notified() => {}
                    () = due => {}
                }
                tokio::time::sleep_until(looked + LEAST_REST).await;
            };
            tokio::select! {
                () = rested => {}
                () = self.closed.cancelled() => return,
                () = stop.cancelled() => return,
            }
        }
    }
}

/// The agents of one table in the metric of all tables.
struct Counted<'a> {
    metrics: &'a Metrics,
    agents: i64,
}

impl Counted<'_> {
    fn set(&mut self, agents: usize) {
        let agents = i64::try_from(agents).unwrap_or(i64::MAX);
        self.metrics.spread_agents.inc_by(agents - self.agents);
        self.agents = agents;
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.set(0);
    }
}

/// Begins the task of a table. A panic in it ends the table only.
pub(super) fn start(core: &Arc<Core>, table: &Arc<Table>) {
    let (core, table) = (core.clone(), table.clone());
    let task = {
        let core = core.clone();
        async move {
            let spreads = core.feature::<Spreads>();
            table.run(spreads, &core.metrics, &core.stop).await;
            spreads.remove(&table.digest, &table);
        }
    };
    core.spawn(task);
}

impl Joined {
    /// Number of chunks of the image with data.
    #[must_use]
    pub fn chunks(&self) -> u32 {
        self.table.chunks()
    }

    /// Completes when the record is over.
    #[must_use]
    pub fn closed(&self) -> &CancellationToken {
        self.table.closed()
    }

    /// Takes a message of the agent. Returns its report about another agent.
    pub fn heard(&self, message: Message) -> Option<WrongBytes> {
        let report = self.table.lock().heard(self.place, message, self.table.now());
        self.table.changed.notify_one();
        report
    }

    /// Ends the stream. `is_gone`: the agent does not return. Otherwise it may begin a new stream within a few seconds, and
    /// keeps its place.
    pub fn leave(mut self, is_gone: bool) {
        self.left(is_gone);
    }

    fn left(&mut self, is_gone: bool) {
        if !std::mem::replace(&mut self.has_left, true) {
            self.table.lock().leave(self.place, is_gone, self.table.now());
            self.table.changed.notify_one();
        }
    }
}

impl Drop for Joined {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // The record may contradict itself. Its other streams end, too.
            self.table.closed.cancel();
            return;
        }
        self.left(false);
    }
}
