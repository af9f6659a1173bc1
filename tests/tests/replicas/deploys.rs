//! Many machines with agents deploy at once while replicas and the database are killed: each is handed over, and no disk is
//! written twice for one deployment.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rackwright_api::v1;
use rackwright_api::v1::node_service_client::NodeServiceClient;
use rackwright_api::v1::operation_service_client::OperationServiceClient;
use rackwright_lifecycle::{Effect, NodeId, Outcome, State};
use rackwright_store::{Database, Scope, Store};
use rackwright_tests::ports::free_port;
use tokio::task::JoinSet;

use crate::client::Client;
use crate::cluster::Cluster;
use crate::fleet::Fleet;
use crate::{Follower, chaos};

/// Default number of machines.
const MACHINES: usize = 500;
/// Deploys are repeated until this many replicas were killed.
const KILLS: u32 = 6;
/// Concurrent calls.
const CALLERS: usize = 16;
/// Replicas are killed while machines boot: machines get several boots, and interrupted attempts do not count against them.
const POLICY: &str = "policy: {power_off_s: 1, tries: 20, boots: 10, agent_boot_s: 60, agent_grace_s: 20, backoff_s: 1, backoff_max_s: 5}\n";
/// Time limit from the last kill to the end of all operations: a lease and the time until a replica counts as dead, a
/// minute each, a boot, and the work itself on a busy computer.
const ENDS: Duration = Duration::from_secs(1200);

/// The number of machines, from `RACKWRIGHT_CHAOS_MACHINES`.
fn machines() -> usize {
    let count = std::env::var("RACKWRIGHT_CHAOS_MACHINES").ok();
    count.map_or(MACHINES, |text| {
        text.parse().expect("RACKWRIGHT_CHAOS_MACHINES is a number")
    })
}

/// Settings that let machines boot from each replica.
fn settings(dir: &Path, ssh: u16, dhcp: u16) -> String {
    let [tftp, http, proxy] = std::array::from_fn(|_| free_port());
    let dir = dir.display();
    format!(
        "shared_dir: {dir}/shared\nssh_port: {ssh}\n{POLICY}boot:\n  \
         ramdisk: {{kernel: {dir}/vmlinuz, initrd: {dir}/initrd}}\n  network:\n    server_ip: 127.0.0.1\n    \
         interface: lo\n    dhcp_port: {dhcp}\n    boot_server_port: {proxy}\n    tftp_port: {tftp}\n    \
         http_port: {http}\n    first_stages: {{}}\n    dhcp:\n      server:\n        subnets:\n        \
         - network: 127.128.0.0/10\n          pool: {{first: 127.129.0.1, last: 127.129.3.255}}\n"
    )
}

async fn started(ssh: u16, dhcp: [u16; 2]) -> Cluster {
    let settings = |dir: &Path, number: usize| {
        for file in ["vmlinuz", "initrd"] {
            std::fs::write(dir.join(file), "no machine fetches it").expect("the file can be written");
        }
        std::fs::create_dir_all(dir.join("shared")).expect("a folder");
        settings(dir, ssh, dhcp[number])
    };
    let cluster = Cluster::start(2, settings).await;
    let image = cluster.dir().join("disk.raw");
    let noise: Vec<u8> = (0..1_u32 << 18)
        .flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes())
        .collect();
    std::fs::write(&image, noise).expect("the image can be written");
    cluster.cli(&["image", "add", "disk", "--file", &image.display().to_string()]);
    cluster
}

/// Does the same for each machine, a few at once, and returns the operations that began.
async fn for_each<W>(
    client: &Arc<Client>,
    fleet: &Fleet,
    work: impl Fn(Arc<Client>, String, v1::Bmc) -> W,
) -> Vec<String>
where
    W: Future<Output = String> + Send + 'static,
{
    let (mut calls, mut names) = (JoinSet::new(), Vec::new());
    for (id, bmc) in fleet.machines.iter().cloned() {
        if calls.len() >= CALLERS {
            names.extend(calls.join_next().await.map(|ended| ended.expect("it is answered")));
        }
        calls.spawn(work(client.clone(), id, bmc));
    }
    names.extend(calls.join_all().await);
    names
}

async fn enrol(client: Arc<Client>, id: String, bmc: v1::Bmc) -> String {
    let request = v1::EnrollNodeRequest {
        node_id: id,
        spec: Some(v1::NodeSpec {
            bmc: Some(bmc),
            ..v1::NodeSpec::default()
        }),
        mutation: client.fresh(),
        ..v1::EnrollNodeRequest::default()
    };
    let answer = client.call(request, async |channel, request| {
        NodeServiceClient::new(channel).enroll_node(request).await
    });
    answer.await.expect("a new node").name
}

fn deployment(hostname: String) -> v1::Deployment {
    v1::Deployment {
        image: "images/disk".into(),
        hostname,
        ..v1::Deployment::default()
    }
}

async fn deploy(client: Arc<Client>, id: String, _: v1::Bmc) -> String {
    let request = v1::DeployNodeRequest {
        name: format!("nodes/{id}"),
        deployment: Some(deployment(id)),
        mutation: client.fresh(),
    };
    let answer = client.call(request, async |channel, request| {
        NodeServiceClient::new(channel).deploy_node(request).await
    });
    answer.await.expect("the node is available").name
}

async fn reimage(client: Arc<Client>, id: String, _: v1::Bmc) -> String {
    let request = v1::ReimageNodeRequest {
        name: format!("nodes/{id}"),
        deployment: Some(deployment(id)),
        mutation: client.fresh(),
    };
    let answer = client.call(request, async |channel, request| {
        NodeServiceClient::new(channel).reimage_node(request).await
    });
    answer.await.expect("the node is active").name
}

/// Waits until every operation has ended successfully.
async fn ended(client: &Client, names: &[String]) {
    let begun = Instant::now();
    for name in names {
        loop {
            let request = v1::WaitOperationRequest {
                name: name.clone(),
                timeout: Some(prost_types::Duration { seconds: 1, nanos: 0 }),
            };
            let waited = client.call(request, async |channel, request| {
                OperationServiceClient::new(channel).wait_operation(request).await
            });
            let operation = waited.await.expect("it was acknowledged");
            if operation.done {
                assert!(operation.error.is_none(), "{operation:?}");
                break;
            }
            assert!(begun.elapsed() < ENDS, "it does not end: {operation:?}");
        }
    }
}

/// Checks the database's final state of each machine. Returns the number of image writes that began.
async fn checked(cluster: &Cluster, fleet: &Fleet, rounds: usize) -> usize {
    let database = Database::parse(&cluster.postgres.url(), None).expect("a database");
    let store = Store::open(database).await.expect("it can be opened");
    let mut writes = 0;
    for (id, _) in &fleet.machines {
        let record = store
            .node(&Scope::Site, &NodeId::stored(id.as_str()))
            .await
            .expect("the node is there");
        assert_eq!(record.node.state, State::Active, "{id}: {}", record.reason);
        let history = store
            .history(&NodeId::stored(id.as_str()), 1000)
            .await
            .expect("it can be read");
        let is_chain = history.windows(2).all(|pair| pair[0].from == pair[1].to);
        assert!(is_chain && history[0].to == State::Active, "{id}: {history:?}");
        let tries = store
            .tries_of(&NodeId::stored(id.as_str()), Effect::WriteImage)
            .await
            .expect("they can be read");
        let good = tries.iter().filter(|t| t.attempt.outcome == Outcome::Succeeded).count();
        assert_eq!(good, rounds, "{id} was written {good} times: {tries:?}");
        writes += tries.len();
    }
    let open = store.open_effects().await.expect("they can be read");
    assert!(open.is_empty(), "{open:?}");
    writes
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_machines_are_deployed_though_replicas_are_killed() {
    let machines = machines();
    let (ssh, dhcp) = (free_port(), [free_port(), free_port()]);
    let mut cluster = started(ssh, dhcp).await;
    let fleet = Fleet::start_with(machines, |command| {
        command.args(["--boot-server", &format!("127.0.0.1:{}", dhcp[0])]);
        command.args(["--ssh-listen", &format!("0.0.0.0:{ssh}")]);
    });
    let client = Arc::new(cluster.client());
    let follower = Follower::of(&cluster);

    let enrolled = for_each(&client, &fleet, enrol).await;
    ended(&client, &enrolled).await;
    let (is_done, killed) = (AtomicBool::new(false), AtomicU32::new(0));
    let deploying = async {
        let (begun, mut rounds) = (Instant::now(), 0);
        while killed.load(Ordering::Relaxed) < KILLS {
            let operation = if rounds == 0 {
                for_each(&client, &fleet, deploy).await
            } else {
                for_each(&client, &fleet, reimage).await
            };
            ended(&client, &operation).await;
            rounds += 1;
        }
        is_done.store(true, Ordering::Relaxed);
        (begun.elapsed(), rounds)
    };
    let is_over = |kills| {
        killed.store(kills, Ordering::Relaxed);
        is_done.load(Ordering::Relaxed)
    };
    let ((kills, restarts), (took, rounds)) = tokio::join!(chaos(&mut cluster, is_over), deploying);

    let writes = checked(&cluster, &fleet, rounds).await;
    let events = follower.gapless(&client).await;
    println!(
        "{machines} machines deployed {rounds} times in {:.0} s, {kills} kills, {restarts} restarts of PostgreSQL; images begun {writes} \
         times, {events} events",
        took.as_secs_f64()
    );
    assert!(kills >= KILLS && restarts == 1);
}
