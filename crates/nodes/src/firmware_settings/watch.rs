//! Reads the settings of nodes at rest at intervals: a user with root or an update may have changed them.
//!
//! Nothing is written to a machine here. Each node is read by one replica, found by rendezvous hashing. The time follows
//! from the node's name and the round, so that the nodes are not all read at the same moment.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use rackwright_ground::bmc::{self, BmcError, watch_settings};
use rackwright_ground::clock;
use rackwright_ground::core::Core;
use rackwright_ground::polling::{self, DueQueue, Poller, Readings, moment_within};
use rackwright_ground::share::{Share, alive_since};
use rackwright_lifecycle::{EventKind, NodeId, Timestamp, seconds};
use rackwright_redfish::{BmcClient, BmcHints};
use rackwright_site::model::{SettingRow, WantedSettings, description};
use rackwright_store::{EventRow, NodeRecord, Scope, StoreError};
use tokio::task::JoinError;

use super::look::look;
use super::stored;
use super::wanted::Wanted;
use crate::credentials;
use crate::firmware_settings::WantedCache;

/// Least and most time between checks for due nodes, in milliseconds.
const TICK_MS: (u64, u64) = (250, 30_000);
/// The nodes are listed again after this share of the interval, and after a change of the site or the replicas. Between two
/// lists, the cost of a tick depends only on the due nodes.
const LIST: i64 = 64;
/// A busy node, or one that did not answer, is tried again after this share of the interval.
const RETRY_SHARE: i64 = 8;

/// Runs until the core stops.
pub async fn run(core: Arc<Core>) {
    let interval_s = core.config.settings_watch.interval_s;
    if interval_s == 0 {
        return core.stop.cancelled().await;
    }
    let tick_ms = (u64::from(interval_s) * 1000 / 16).clamp(TICK_MS.0, TICK_MS.1);
    let stop = core.stop.clone();
    let mut watch = Watch {
        core,
        interval_us: seconds(i64::from(interval_s)),
        listed: None,
        next: HashMap::new(),
        queue: DueQueue::default(),
    };
    polling::run(&stop, Duration::from_millis(tick_ms), &mut watch).await;
}

/// The readings of this process.
struct Watch {
    core: Arc<Core>,
    interval_us: i64,
    /// The last list of nodes.
    listed: Option<Listed>,
    /// For each node: its round, and its wish.
    next: HashMap<NodeId, Next>,
    queue: DueQueue<NodeId>,
}

/// The basis of a list of nodes.
struct Listed {
    at: Timestamp,
    wanted: Arc<Wanted>,
    /// The living replicas, in order.
    alive: Vec<String>,
}

struct Next {
    round: u64,
    settings: Arc<WantedSettings>,
}

impl Watch {
    /// Begins the due readings.
    async fn begin(&mut self, looks: &mut Readings<NodeId, bool>) -> Result<(), StoreError> {
        let now = clock::now();
        let wanted = self.core.feature::<WantedCache>().all(&self.core).await?;
        if wanted.is_empty() {
            self.listed = None;
            self.next.clear();
            self.queue.clear();
            return Ok(());
        }
        let alive = self.core.store.replicas(alive_since(now)).await?;
        let alive: Vec<String> = alive.into_iter().map(|replica| replica.id).collect();
        let is_listed = self.listed.as_ref().is_some_and(|listed| {
            let is_same = Arc::ptr_eq(&listed.wanted, &wanted) && listed.alive == alive;
            is_same && now.since(listed.at) < self.interval_us / LIST
        });
        if !is_listed {
            self.list(&wanted, &alive, now).await?;
            self.listed = Some(Listed { at: now, wanted, alive });
        }
        let mut room = self.core.config.settings_watch.at_once.saturating_sub(looks.len());
        while room > 0
            && let Some(node) = self.queue.take_due(now)
        {
            room -= 1;
            // Not due again while it is being read.
            self.reschedule(&node, true, now);
            let Some(settings) = self.next.get(&node).map(|next| next.settings.clone()) else {
                continue;
            };
            let core = self.core.clone();
            looks.begin(node.clone(), async move {
                match read(&core, &node, &settings).await {
                    Ok(was_read) => was_read,
                    Err(error) => {
                        tracing::warn!(node = node.as_str(), %error, "a reading of firmware settings could not be stored");
                        false
                    }
                }
            });
        }
        Ok(())
    }

    /// Adds the nodes of this replica's share, and drops the others.
    async fn list(&mut self, wanted: &Wanted, alive: &[String], now: Timestamp) -> Result<(), StoreError> {
        let share = Share::new(&self.core.replica, alive.iter().cloned());
        let mut next = HashMap::new();
        for (node, sku) in self.core.store.node_skus().await? {
            let Some(settings) = wanted.of(&node, &sku).filter(|_| share.has(node.as_str())).cloned() else {
                continue;
            };
            let round = self.next.get(&node).map_or(0, |known| known.round);
            if self.queue.at(&node).is_none() {
                // Spread over the first interval: a start of the daemon does not ask thousands of BMCs at once.
                self.queue.set(node.clone(), now.plus(part(&node, 0, self.interval_us)));
            }
            next.insert(node, Next { round, settings });
        }
        self.queue.retain(|node| next.contains_key(node));
        self.next = next;
        Ok(())
    }

    fn reschedule(&mut self, node: &NodeId, was_read: bool, now: Timestamp) {
        let Some(next) = self.next.get_mut(node) else {
            return;
        };
        let pause = if was_read {
            next.round += 1;
            // Between three and five quarters of the interval.
            let half = self.interval_us / 2;
            self.interval_us - half / 2 + part(node, next.round, half)
        } else {
            (self.interval_us / RETRY_SHARE).max(1)
        };
        self.queue.set(node.clone(), now.plus(pause));
    }
}

impl Poller for Watch {
    type Key = NodeId;
    type Outcome = bool;
    type Event = ();

    async fn tick(&mut self, looks: &mut Readings<NodeId, bool>) {
        if let Err(error) = self.begin(looks).await {
            tracing::warn!(%error, "the due readings of firmware settings could not be started");
        }
    }

    /// After a panic, the next reading comes at the node's next turn.
    async fn ended(&mut self, node: NodeId, was_read: Result<bool, JoinError>) {
        match was_read {
            Ok(true) => {}
            Ok(false) => self.reschedule(&node, false, clock::now()),
            Err(error) => tracing::error!(node = node.as_str(), %error, "a reading of firmware settings panicked"),
        }
    }
}

/// A part of `span`, chosen by the node and the round.
fn part(node: &NodeId, round: u64, span: i64) -> i64 {
    moment_within(span, [node.as_str().as_bytes(), &round.to_be_bytes()])
}

/// Reads one node's settings and stores the comparison. Returns false if the node is busy or its BMC does not answer.
async fn read(core: &Core, node: &NodeId, wanted: &WantedSettings) -> Result<bool, StoreError> {
    let is_at_rest = !core.store.resting(&[node]).await?.is_empty();
    if !is_at_rest || core.running_steps.is_running(node) {
        return Ok(false);
    }
    let record = core.store.node(&Scope::Site, node).await?;
    let rows = match ask(core, &record, wanted).await {
        Ok(rows) => rows,
        Err(error) => {
            let description = error.description(&record.spec.bmc_address);
            tracing::info!(
                node = node.as_str(),
                description,
                "the firmware settings of a node cannot be read"
            );
            credentials::store_refusal(core, &record.id, &record.spec, &error).await?;
            return Ok(false);
        }
    };
    keep(core, &record, &rows).await
}

async fn ask(core: &Core, record: &NodeRecord, wanted: &WantedSettings) -> Result<Vec<SettingRow>, BmcError> {
    let target = bmc::target(&record.id, &record.spec, &core.keys.sealer)?;
    let client = BmcClient::for_polling(target, watch_settings(core), &BmcHints::default())?;
    let seen = look(&client, wanted).await;
    if let Err(error) = client.close().await {
        tracing::debug!(node = record.id.as_str(), %error, "a BMC session could not be closed; it will time out");
    }
    Ok(seen?.rows)
}

/// Stores a reading, unless the node has changed its state meanwhile.
async fn keep(core: &Core, seen: &NodeRecord, rows: &[SettingRow]) -> Result<bool, StoreError> {
    let now = clock::now();
    let mut tx = core.store.write().await?;
    let record = match tx.node(&seen.id).await {
        Err(StoreError::NotFound { .. }) => return Ok(false),
        record => record?,
    };
    if record.node.state != seen.node.state || record.node.since != seen.node.since {
        return Ok(false);
    }
    let is_new_drift = tx.put_node_settings(&seen.id, &stored(rows, false), now).await?;
    if is_new_drift {
        tx.add_event(&drift(&record, rows, now)).await?;
    }
    core.commit(tx).await?;
    Ok(true)
}

fn drift(record: &NodeRecord, rows: &[SettingRow], now: Timestamp) -> EventRow {
    EventRow {
        at: now,
        kind: EventKind::NodeSettingsDrift,
        target: format!("nodes/{}", record.id),
        message: format!(
            "firmware settings of {} are not as wanted: {}",
            record.id,
            description(rows)
        ),
        ..EventRow::default()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use rackwright_ground::testing;
    use rackwright_lifecycle::State;
    use tracing::field::{Field, Visit};
    use tracing::span;

    use super::*;

    /// The statements that the store has run.
    #[derive(Debug, Clone, Default)]
    struct Statements(Arc<Mutex<Vec<String>>>);

    impl Statements {
        fn take(&self) -> Vec<String> {
            std::mem::take(&mut *self.0.lock().unwrap())
        }
    }

    impl Visit for &Statements {
        fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
            if field.name() == "sql" {
                self.0.lock().unwrap().push(format!("{value:?}"));
            }
        }
    }

    impl tracing::Subscriber for Statements {
        fn enabled(&self, of: &tracing::Metadata<'_>) -> bool {
            of.target() == "rackwright_store::sql" && *of.level() == tracing::Level::TRACE
        }

        fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
            span::Id::from_u64(1)
        }

        fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

        fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

        fn event(&self, event: &tracing::Event<'_>) {
            let mut statements = self;
            event.record(&mut statements);
        }

        fn enter(&self, _: &span::Id) {}

        fn exit(&self, _: &span::Id) {}
    }

    fn watch_of(core: &Arc<Core>) -> Watch {
        Watch {
            core: Arc::clone(core),
            interval_us: seconds(64_000),
            listed: None,
            next: HashMap::new(),
            queue: DueQueue::default(),
        }
    }

    fn want(core: &Core, nodes: &[&str]) {
        let settings = Arc::new(WantedSettings::default());
        let nodes = nodes.iter().map(|node| (NodeId::stored(*node), settings.clone()));
        core.feature::<WantedCache>()
            .replace(Arc::new(Wanted::of_nodes(nodes.collect())));
    }

    /// Names of the watched nodes, in order.
    fn known(watch: &Watch) -> Vec<&str> {
        let mut names: Vec<&str> = watch.next.keys().map(NodeId::as_str).collect();
        names.sort_unstable();
        assert_eq!(watch.queue.count(), names.len());
        names
    }

    #[tokio::test]
    async fn a_tick_reads_only_what_is_due() {
        let core = testing::core().await;
        want(&core, &["n1", "n2"]);
        testing::add(&core, &testing::node("n1", State::Available, None)).await;
        let mut watch = watch_of(&core);
        let mut looks = Readings::default();
        watch.begin(&mut looks).await.unwrap();
        assert_eq!(known(&watch), ["n1"]);
        let first = watch.queue.at("n1");

        // The next list contains a new node, and leaves the turns of the others as they are.
        testing::add(&core, &testing::node("n2", State::Available, None)).await;
        watch.begin(&mut looks).await.unwrap();
        assert_eq!(known(&watch), ["n1"], "no list was made");
        watch.listed.as_mut().unwrap().at = clock::now().plus(-seconds(1001));
        watch.begin(&mut looks).await.unwrap();
        assert_eq!(known(&watch), ["n1", "n2"]);
        assert_eq!((watch.queue.at("n1"), looks.len()), (first, 0));

        // A due node is read once, and comes again at its next turn.
        watch.queue.set("n1".into(), clock::now());
        watch.begin(&mut looks).await.unwrap();
        watch.begin(&mut looks).await.unwrap();
        assert_eq!((looks.len(), watch.next["n1"].round), (1, 1));

        // So does one whose reading panicked.
        async fn panics() -> bool {
            panic!("an unexpected body")
        }
        looks.shutdown().await;
        looks.begin("n1".into(), panics());
        let (panicked, outcome) = looks.next().await.unwrap();
        assert!(outcome.is_err());
        watch.ended(panicked, outcome).await;
        assert_eq!(known(&watch), ["n1", "n2"], "it would never be read again");

        // Another site makes a new list at once.
        want(&core, &["n2"]);
        watch.begin(&mut looks).await.unwrap();
        assert_eq!(known(&watch), ["n2"]);
    }

    #[tokio::test]
    async fn the_cost_of_a_tick_does_not_depend_on_the_number_of_nodes() {
        let statements = Statements::default();
        tracing::subscriber::set_global_default(statements.clone()).unwrap();
        let mut ticks = Vec::new();
        for count in [2, 200] {
            let core = testing::core().await;
            let names: Vec<String> = (0..count).map(|n| format!("n{n}")).collect();
            want(&core, &names.iter().map(String::as_str).collect::<Vec<_>>());
            let mut tx = core.store.write().await.unwrap();
            for name in &names {
                tx.insert_node(&testing::node(name, State::Available, None))
                    .await
                    .unwrap();
            }
            tx.commit().await.unwrap();
            let (mut watch, mut looks) = (watch_of(&core), Readings::default());
            watch.begin(&mut looks).await.unwrap();
            assert_eq!(known(&watch).len(), count);
            let listing = statements.take();
            assert!(listing.iter().any(|sql| sql.contains("FROM nodes")), "{listing:?}");
            watch.begin(&mut looks).await.unwrap();
            ticks.push(statements.take());
        }
        // The tick reads the living replicas, and no node.
        assert_eq!(ticks[0], ticks[1]);
        assert_eq!(ticks[0].len(), 1, "{ticks:?}");
        assert!(ticks[0][0].contains("FROM replicas"), "{ticks:?}");
    }
}
