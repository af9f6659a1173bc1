//! Two replicas of `rackwrightd` on one PostgreSQL, as real processes. A replica is killed every few seconds, and the
//! database once in between, while clients keep working with simulated machines. Acknowledged changes are stored, begun
//! operations end, followers of events miss no event, and no operation is stuck.

#[path = "replicas/client.rs"]
mod client;
#[path = "replicas/cluster.rs"]
mod cluster;
#[path = "replicas/deploys.rs"]
mod deploys;
#[path = "replicas/fleet.rs"]
mod fleet;
#[path = "replicas/members.rs"]
mod members;

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use client::Client;
use cluster::Cluster;
use fleet::Fleet;
use rackwright_api::v1;
use tokio::task::JoinSet;

const MACHINES: usize = 40;
/// Duration of the kills.
const CHAOS: Duration = Duration::from_secs(45);
/// Pause between two kills.
const PAUSE: Duration = Duration::from_secs(3);
/// PostgreSQL is killed after this many kills of replicas.
const RESTARTED_AFTER: u32 = 3;
/// Agents never come, so the limits for them are short.
const POLICY: &str = "policy: {power_off_s: 1, agent_boot_s: 2, boots: 1, tries: 3, bmc_s: 20, agent_grace_s: 2, backoff_s: 1, backoff_max_s: 2}\n";

/// Kills one replica after the other, and PostgreSQL once, until `is_over`. Returns the numbers of kills.
async fn chaos(cluster: &mut Cluster, is_over: impl Fn(u32) -> bool) -> (u32, u32) {
    let (mut kills, mut restarts) = (0, 0);
    while !is_over(kills) {
        tokio::time::sleep(PAUSE).await;
        if kills == RESTARTED_AFTER {
            cluster.postgres.restart().await;
            restarts += 1;
        }
        let number = kills as usize % cluster.replicas.len();
        let replica = &mut cluster.replicas[number];
        replica.kill();
        kills += 1;
        // Every other time the other replicas run without it for a while.
        if kills % 4 < 2 {
            tokio::time::sleep(PAUSE / 2).await;
        }
        replica.start().await;
    }
    (kills, restarts)
}

/// Follows all events, from replica to replica.
struct Follower {
    seen: Arc<Mutex<Vec<v1::Event>>>,
    /// Ends when this is dropped.
    _following: JoinSet<()>,
}

impl Follower {
    fn of(cluster: &Cluster) -> Self {
        let (client, seen) = (cluster.client(), Arc::new(Mutex::new(Vec::new())));
        let mut following = JoinSet::new();
        let into = seen.clone();
        following.spawn(async move { client.follow(&into).await });
        Self {
            seen,
            _following: following,
        }
    }

    fn seen(&self) -> MutexGuard<'_, Vec<v1::Event>> {
        self.seen.lock().expect("the follower did not fail")
    }

    /// Checks that it has seen all events in order. Returns their number.
    async fn gapless(&self, client: &Client) -> u64 {
        let events = client.events(0).await;
        let last = events.last().expect("much has happened").position;
        let begun = Instant::now();
        while self.seen().last().is_none_or(|event| event.position < last) {
            assert!(
                begun.elapsed() < Duration::from_secs(60),
                "the follower does not come along"
            );
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert!(
            events.iter().map(|event| event.position).eq(1..=last),
            "positions without a gap"
        );
        assert!(
            self.seen().iter().take(events.len()).eq(&events),
            "the follower saw other events"
        );
        last
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_replicas_lose_nothing_and_block_nothing() {
    let mut cluster = Cluster::start(2, |_, _| POLICY.to_owned()).await;
    let fleet = Fleet::start(MACHINES);
    let client = Arc::new(cluster.client());
    let follower = Follower::of(&cluster);

    let end = Instant::now() + CHAOS;
    let mut clients = JoinSet::new();
    for (id, bmc) in fleet.machines.iter().cloned() {
        clients.spawn(fleet::live(client.clone(), id, bmc, end));
    }
    let (kills, restarts) = chaos(&mut cluster, |_| Instant::now() >= end).await;
    let mut settling = JoinSet::new();
    for account in clients.join_all().await {
        settling.spawn(fleet::settle(client.clone(), account));
    }
    let accounts = settling.join_all().await;

    for number in 0..cluster.replicas.len() {
        cluster.replicas[number].kill();
        cluster.cli(&["node", "get", &accounts[0].id]);
        cluster.replicas[number].start().await;
    }

    let last = follower.gapless(&client).await;

    let operations: usize = accounts.iter().map(|account| account.operations.len()).sum();
    let holds: u64 = accounts.iter().map(|account| account.holds).sum();
    let count = |n: &std::sync::atomic::AtomicU64| n.load(std::sync::atomic::Ordering::Relaxed);
    println!(
        "{MACHINES} machines, {kills} kills, {restarts} restarts of PostgreSQL; calls answered {}, refused {}, repeated {}; \
         {operations} operations ended, {holds} holds, {last} events",
        count(&client.answered),
        count(&client.refused),
        count(&client.again),
    );
    assert!(kills >= 6 && restarts == 1 && operations > MACHINES && count(&client.again) > 0);
}
