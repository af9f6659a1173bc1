//! Tests of the network between the nodes of a cluster, after all of them are checked and before the hand-over.
//!
//! | module | content |
//! |---|---|
//! | `machines` | logs in to the nodes, brings the traffic program, measures pairs, cleans up |
//! | `plan` | lanes of the nodes, rounds, further rounds, all nodes at once |
//! | `outcome` | the stored result |
//!
//! A run belongs to one replica. The cluster's row names the run and the time by which it has to end. A new run begins after
//! that time, or at once if the run's process was restarted. A result counts only while the row names its run.

mod machines;
pub(crate) mod outcome;
mod plan;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use rackwright_ground::clock;
use rackwright_ground::core::Core;
use rackwright_ground::text::counted;
use rackwright_lifecycle::cluster::{Member, Network, Standing, State};
use rackwright_lifecycle::{ClusterId, EventKind, NodeId, Timestamp, seconds};
use rackwright_store::{ClusterRecord, NetworkTest, NodeRecord, Scope, StoreError, WriteTx};
use tracing::Instrument as _;

use super::reserve::{ReserveError, event};
use crate::clusters::Clusters;

pub use outcome::report;
pub use plan::Found;

/// A running test. `None`: the process stops.
pub type TestFuture<'a> = Pin<Box<dyn Future<Output = Option<Found>> + Send + 'a>>;

/// Tests the network between nodes: the nodes themselves, or a test's substitute.
pub trait NetworkTester: Send + Sync {
    /// Tests the network between nodes of the cluster `cluster`.
    fn test<'a>(
        &'a self,
        core: &'a Arc<Core>,
        cluster: &'a ClusterId,
        began: &'a NetworkTest,
        nodes: Vec<NodeRecord>,
    ) -> TestFuture<'a>;
}

/// Traffic between the nodes over SSH.
struct Traffic;

impl NetworkTester for Traffic {
    fn test<'a>(
        &'a self,
        core: &'a Arc<Core>,
        cluster: &'a ClusterId,
        began: &'a NetworkTest,
        nodes: Vec<NodeRecord>,
    ) -> TestFuture<'a> {
        Box::pin(plan::run(core, cluster, began, nodes))
    }
}

/// What tests the networks of clusters in this process.
pub struct Tester(pub Arc<dyn NetworkTester>);

impl Default for Tester {
    fn default() -> Self {
        Self(Arc::new(Traffic))
    }
}

impl fmt::Debug for Tester {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tester")
    }
}

/// Time after which a blocked test is tried again, in seconds.
pub const REPEAT_S: i64 = 600;

/// The ids of this process's runs.
#[derive(Debug, Default)]
pub struct Running(Mutex<BTreeSet<String>>);

impl Running {
    /// Notes that this process makes a run.
    pub fn begin(self: &Running, run: &str) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(run.to_owned());
    }

    /// Notes that a run of this process has ended.
    pub fn end(&self, run: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(run);
    }

    /// Whether this process makes a run.
    #[must_use]
    pub fn is_any(&self) -> bool {
        !self.0.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    fn has(&self, run: &str) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).contains(run)
    }
}

/// The checked nodes of a cluster that wait for the test. `members` has the standing of `nodes`, in the same order.
#[must_use]
pub fn checked(members: &[Member], nodes: &[NodeRecord]) -> Vec<NodeRecord> {
    let both = members.iter().zip(nodes);
    let checked = both.filter(|(member, _)| member.standing == Standing::Checked);
    checked.map(|(_, node)| node.clone()).collect()
}

/// The deployment to which a result applies: a node with another claim or image is tested again.
#[must_use]
pub fn deployment(node: &NodeRecord) -> String {
    let claim = node.node.claim.as_ref();
    claim.map_or(String::new(), |claim| {
        format!("{}.{}", claim.generation, claim.deployment)
    })
}

/// The state of the tests between these nodes.
#[must_use]
pub fn fact(core: &Core, record: &ClusterRecord, checked: &[NodeRecord], now: Timestamp) -> Network {
    if core.config.network_test.file().is_err() {
        return Network::Off;
    }
    let Some(test) = &record.network else {
        return Network::Untested;
    };
    if let Some(until) = test.until {
        let is_lost =
            now >= until || (test.replica == core.replica && !core.feature::<Clusters>().tests.has(&test.run));
        return if is_lost {
            Network::Untested
        } else {
            Network::Running(until)
        };
    }
    let is = |known: Option<&String>, node: &NodeRecord| known == Some(&deployment(node));
    let faults: BTreeMap<NodeId, String> = checked
        .iter()
        .filter_map(|node| {
            let (tested, why) = test.faults.get(&node.id)?;
            (*tested == deployment(node)).then(|| (node.id.clone(), why.clone()))
        })
        .collect();
    // Without a substitute for the faulty nodes, the test is repeated from time to time: a cable may have been repaired.
    let is_old = test.ended_at.is_some_and(|ended| now.since(ended) >= seconds(REPEAT_S));
    let is_stuck = is_old && record.swap.is_some();
    if !faults.is_empty() && !is_stuck {
        let passed = checked.iter().filter(|node| is(test.passed.get(&node.id), node));
        return Network::Faulty {
            passed: passed.map(|node| node.id.clone()).collect(),
            nodes: faults,
        };
    }
    if !test.blocked.is_empty() && checked.iter().all(|node| is(test.members.get(&node.id), node)) {
        return Network::Blocked {
            fault: test.blocked.clone(),
            again: test.again_at.unwrap_or(now),
        };
    }
    if checked.iter().all(|node| is(test.passed.get(&node.id), node)) {
        Network::Passed
    } else {
        Network::Untested
    }
}

/// The state in one sentence, for `cluster get` and `cluster explain`; empty before the first test.
#[must_use]
pub fn words(record: &ClusterRecord) -> String {
    let Some(test) = &record.network else {
        return String::new();
    };
    if !test.skipped.is_empty() {
        return format!("the network test was skipped: {}", test.skipped);
    }
    if test.until.is_some() {
        return format!("a test between {} is under way", counted(test.members.len(), "node"));
    }
    if !test.faults.is_empty() {
        let (node, (_, why)) = test
            .faults
            .iter()
            .next()
            .map_or((String::new(), Default::default()), |(n, w)| (n.to_string(), w.clone()));
        return format!(
            "{} of {} nodes at fault: {node}: {why}",
            test.faults.len(),
            test.members.len()
        );
    }
    if !test.blocked.is_empty() {
        return format!("failed: {}", test.blocked);
    }
    let slowest = test.rows.iter().rev().find(|row| row.check == "network-slowest-pair");
    let slowest = slowest.map_or(String::new(), |row| format!(", slowest {}", row.measured));
    format!("{} passed{slowest}", counted(test.passed.len(), "node"))
}

/// Stores that no test is made, before nodes are handed over without one.
pub async fn note_skipped(core: &Core, record: &ClusterRecord, now: Timestamp) -> Result<(), StoreError> {
    let Err(why) = core.config.network_test.file() else {
        return Ok(());
    };
    if record.network.as_ref().is_some_and(|test| test.skipped == why) {
        return Ok(());
    }
    let mut tx = core.store.write().await?;
    let mut record = tx.cluster(&record.id).await?;
    record.network.get_or_insert_default().skipped = why;
    tx.save_cluster(&mut record, now).await?;
    core.commit(tx).await
}

/// Forgets that these nodes have passed, each with its cluster: their links were faulty since, and are sound again. A node
/// before the hand-over is tested again. A node in use runs its customer's system and is not tested.
pub(super) async fn test_again(
    tx: &mut WriteTx,
    mended: BTreeSet<(ClusterId, NodeId)>,
    now: Timestamp,
) -> Result<(), StoreError> {
    let clusters: BTreeSet<&ClusterId> = mended.iter().map(|(cluster, _)| cluster).collect();
    for id in clusters {
        let mut record = match tx.cluster(id).await {
            Err(StoreError::NotFound { .. }) => continue,
            other => other?,
        };
        let Some(test) = &mut record.network else { continue };
        let passed = test.passed.len();
        test.passed
            .retain(|node, _| !mended.contains(&(id.clone(), node.clone())));
        if test.passed.len() < passed {
            tx.save_cluster(&mut record, now).await?;
        }
    }
    Ok(())
}

/// Starts a run between these nodes in a task of its own.
///
/// # Errors
/// The database failed, or the cluster was changed.
pub async fn begin(
    core: &Arc<Core>,
    mut record: ClusterRecord,
    nodes: Vec<NodeRecord>,
    now: Timestamp,
) -> Result<(), ReserveError> {
    let before = record.network.take().unwrap_or_default();
    let run = core.new_id();
    let members: BTreeMap<NodeId, String> = nodes.iter().map(|node| (node.id.clone(), deployment(node))).collect();
    let passed = before
        .passed
        .into_iter()
        .filter(|(node, tested)| members.get(node) == Some(tested));
    let began = NetworkTest {
        run: run.clone(),
        replica: core.replica.clone(),
        begun_at: Some(now),
        until: Some(now.plus(seconds(plan::longest_s(&core.config.network_test, nodes.len())))),
        passed: passed.collect(),
        members,
        usual: before.usual,
        // Old faults are stale. Old passes stay valid for the nodes that are still there.
        rows: before.rows.into_iter().filter(|row| row.verdict == "passed").collect(),
        ..NetworkTest::default()
    };
    record.network = Some(began.clone());
    let mut tx = core.store.write().await?;
    tx.save_cluster(&mut record, now).await?;
    core.feature::<Clusters>().tests.begin(&run);
    let stored = core.commit(tx).await;
    if let Err(error) = stored {
        core.feature::<Clusters>().tests.end(&run);
        return Err(error.into());
    }
    tracing::info!(
        run,
        nodes = nodes.len(),
        "a network test between the cluster's nodes begins"
    );
    let (test_core, id) = (core.clone(), record.id.clone());
    let span = tracing::Span::current();
    let testing = async move {
        let core = test_core;
        // The run notices by itself that the process stops, and cleans the machines before it ends.
        run_test(&core, &id, &began, nodes).await;
        core.feature::<Clusters>().tests.end(&run);
        core.clusters_due.notify_one();
    };
    core.spawn(testing.instrument(span));
    Ok(())
}

/// Waits, when the process stops, until its runs have ended or their time for that is over.
pub async fn ended(core: &Core) {
    let all = async {
        while core.feature::<Clusters>().tests.is_any() {
            core.clusters_due.notified().await;
        }
    };
    if tokio::time::timeout(plan::CLOSING, all).await.is_err() {
        tracing::warn!("traffic servers of a network test still run on nodes; they end by themselves within a minute");
    }
}

/// The whole run, from the first login to the stored result.
async fn run_test(core: &Arc<Core>, id: &ClusterId, began: &NetworkTest, nodes: Vec<NodeRecord>) {
    let Some(found) = core.feature::<Clusters>().tester.0.test(core, id, began, nodes).await else {
        return;
    };
    for _ in 0..10 {
        match outcome::store(core, id, began, &found).await {
            Ok(()) => return,
            Err(error) => tracing::warn!(%error, "the result of a network test could not be stored; it is tried again"),
        }
        // The row is contended, or the database is briefly away. After the last try the run counts as lost.
        let pause = tokio::time::sleep(std::time::Duration::from_secs(1));
        if core.stop.run_until_cancelled(pause).await.is_none() {
            return;
        }
    }
}

/// Whether the row still names this run and the cluster still waits for it.
async fn is_wanted(core: &Core, id: &ClusterId, run: &str) -> bool {
    match core.store.cluster(&Scope::Site, id).await {
        Ok(record) => {
            let waits = matches!(
                record.cluster.state,
                State::Validating | State::Degraded | State::Resizing | State::Reimaging
            );
            waits && !record.cluster.wanted.release && record.network.is_some_and(|test| test.run == run)
        }
        // Unknown without the database. The result is refused later if it is not wanted.
        Err(error) => !matches!(error, StoreError::NotFound { .. }),
    }
}

/// An event about a cluster's network.
fn network_event(id: &ClusterId, kind: EventKind, message: String) -> rackwright_store::EventRow {
    event(id, kind, message, clock::now())
}
