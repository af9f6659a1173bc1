//! Hints between the replicas of a site on PostgreSQL: nodes became due, or events were added.
//!
//! A hint carries no data and gives no guarantee. Its receiver reads the database, which it also does at intervals: several
//! hints may arrive as one, a hint may be lost with a connection or with its sender, and after a lost connection every
//! receiver gets a hint. Therefore a hint is sent after the commit, not with it: `NOTIFY` within a change would make the
//! commits of all changes wait for each other.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sqlx::PgPool;
use sqlx::postgres::PgListener;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;

use crate::Store;

/// The channels. Their names are the only content of a hint.
const DUE: &str = "rackwright_due";
const EVENTS: &str = "rackwright_events";
/// Between two hints of one replica: merges many changes into one hint.
const PAUSE: Duration = Duration::from_millis(10);
/// Between two checks without a hint, for servers that do not forward hints.
const NOTIFY_PAUSE: Duration = Duration::from_secs(5);
/// Pause after a lost connection.
const RECONNECT_PAUSE: Duration = Duration::from_secs(1);

/// The content of a hint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// A node may have become due.
    Due,
    /// Events may have been added.
    Events,
}

/// A stream of hints from this and other replicas. From `Store::changes`.
#[derive(Debug)]
pub struct Changes {
    due: watch::Receiver<()>,
    events: watch::Receiver<()>,
}

impl Changes {
    /// Waits for the next hint; for ever on SQLite, which has no other replicas.
    pub async fn next(&mut self) -> Change {
        tokio::select! {
            Ok(()) = self.due.changed() => Change::Due,
            Ok(()) = self.events.changed() => Change::Events,
            else => std::future::pending().await,
        }
    }
}

/// One channel of this process: its unsent hints and its listeners.
#[derive(Debug)]
struct Channel {
    name: &'static str,
    is_pending: AtomicBool,
    listeners: watch::Sender<()>,
}

impl Channel {
    fn new(name: &'static str) -> Self {
        let (is_pending, listeners) = (AtomicBool::new(false), watch::Sender::new(()));
        Self {
            name,
            is_pending,
            listeners,
        }
    }
}

#[derive(Debug)]
struct Shared {
    due: Channel,
    events: Channel,
    wanted: Notify,
}

impl Shared {
    fn channels(&self) -> [&Channel; 2] {
        [&self.due, &self.events]
    }

    fn notify_listeners(&self) {
        for channel in self.channels() {
            channel.listeners.send_replace(());
        }
    }
}

/// The hints of one store. Dropping it ends its tasks.
#[derive(Debug)]
pub(crate) struct Hints {
    shared: Arc<Shared>,
    _tasks: JoinSet<()>,
}

impl Hints {
    /// Hints without a server, which go nowhere.
    pub(crate) fn none() -> Self {
        let shared = Arc::new(Shared {
            due: Channel::new(DUE),
            events: Channel::new(EVENTS),
            wanted: Notify::new(),
        });
        let _tasks = JoinSet::new();
        Self { shared, _tasks }
    }

    /// Hints through a server; takes two connections of the pool.
    pub(crate) fn through(pool: PgPool) -> Self {
        let mut hints = Self::none();
        hints._tasks.spawn(send_pending(pool.clone(), hints.shared.clone()));
        hints._tasks.spawn(listen(pool, hints.shared.clone()));
        hints._tasks.spawn(notify_regularly(hints.shared.clone()));
        hints
    }

    /// Sends a hint to the other replicas, within `PAUSE`.
    pub(crate) fn send(&self, change: Change) {
        let channel = match change {
            Change::Due => &self.shared.due,
            Change::Events => &self.shared.events,
        };
        channel.is_pending.store(true, Ordering::Relaxed);
        self.shared.wanted.notify_one();
    }
}

impl Store {
    /// Hints of other replicas' changes from now on. No guarantee: a waiting caller must also check at intervals.
    #[must_use]
    pub fn changes(&self) -> Changes {
        Changes {
            due: self.hints.shared.due.listeners.subscribe(),
            events: self.hints.shared.events.listeners.subscribe(),
        }
    }
}

/// Runs for ever.
async fn send_pending(pool: PgPool, shared: Arc<Shared>) {
    loop {
        shared.wanted.notified().await;
        for channel in shared.channels() {
            if !channel.is_pending.swap(false, Ordering::Relaxed) {
                continue;
            }
            let query = sqlx::query("SELECT pg_notify($1, '')").bind(channel.name);
            if let Err(error) = query.execute(&pool).await {
                tracing::debug!(%error, channel = channel.name, "a hint was not sent");
            }
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Runs for ever.
async fn notify_regularly(shared: Arc<Shared>) {
    loop {
        tokio::time::sleep(NOTIFY_PAUSE).await;
        shared.notify_listeners();
    }
}

/// Runs for ever.
async fn listen(pool: PgPool, shared: Arc<Shared>) {
    let mut is_warned = false;
    loop {
        match listen_once(&pool, &shared).await {
            Ok(()) => is_warned = false,
            Err(error) if is_warned => tracing::debug!(%error, "still no hints"),
            Err(error) => {
                tracing::warn!(%error, "no hints from the database for now; the database is read every few seconds instead");
                is_warned = true;
            }
        }
        tokio::time::sleep(RECONNECT_PAUSE).await;
    }
}

/// Listens until the connection is lost.
async fn listen_once(pool: &PgPool, shared: &Shared) -> sqlx::Result<()> {
    let mut listener = PgListener::connect_with(pool).await?;
    listener.listen_all(shared.channels().map(|c| c.name)).await?;
    // Hints sent before this connection are lost: check everything.
    shared.notify_listeners();
    while let Some(hint) = listener.try_recv().await? {
        for channel in shared.channels() {
            if channel.name == hint.channel() {
                channel.listeners.send_replace(());
            }
        }
    }
    Ok(())
}
