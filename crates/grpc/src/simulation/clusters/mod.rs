//! Clusters in the simulation: two replicas create, resize, repair and release clusters on simulated machines, a simulated
//! fabric and simulated network tests, while each replica is killed at every commit and every effect.
//!
//! | module | content |
//! |---|---|
//! | `script` | the requests and mishaps of a seed |
//! | `requests` | the requests, as calls of the API |
//! | `fabric` | a subnet manager, and the ports, which survive the replicas |
//! | `traffic` | network tests with the verdicts of the seed |
//! | `faults` | what fails in a seed: writes of partitions, cables, BMCs |
//! | `checks` | the invariants after every commit and at the end |

mod checks;
pub mod fabric;
mod faults;
mod requests;
mod script;
pub mod traffic;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, OnceLock};

use rackwright_control::clusters::reconcile::Rounds;
use rackwright_ground::clock;
use rackwright_infiniband::Guid;
use rackwright_lifecycle::cluster::State;
use rackwright_lifecycle::{Timestamp, minutes};
use rackwright_site::generate::{ReferenceSku, Request, site_file};
use rackwright_site::model::Redundancy;
use rackwright_store::{ClusterRecord, Scope, Store};
use tokio::sync::Mutex;

use super::performer::Fake;
use super::process::Process;
use super::seeds;
use super::{Figures, Run, begin};
use crate::test_calls::apply_site;
use checks::ClusterChecks;
use fabric::Manager;
use requests::{PlannedRequest, RequestKind};

/// Seeds of a run without `RACKWRIGHT_SEED`. `RACKWRIGHT_SEEDS` sets another number.
const SEEDS: u64 = 40;
/// Nodes of the site. Some of them are enrolled.
const SITE_NODES: usize = 8;
/// The site's customers.
const CUSTOMERS: [&str; 2] = ["bolt", "cord"];
/// A fabric manager and network tests. The simulation replaces both.
const SETTINGS: &str = "fabric: {opensm: {partitions: /nowhere/p, log: /nowhere/l, pid_file: /nowhere/pid}, \
                        first_key: \"0x0001\", last_key: \"0x0004\", check_s: 600}\nnetwork_test: {program: /bin/sh}\n";
/// Nothing is due within this time at rest, in minutes: less than the hour of a rest divided by the nodes that there are at
/// most.
const REST_MIN: i64 = 4;
/// A released cluster is free within this time, in minutes.
const RELEASE_MIN: i64 = 48 * 60;

/// What a replica may do next about clusters.
#[derive(Debug, Clone, Copy)]
pub enum Turn {
    /// It leases due clusters.
    Lease(usize),
    /// It compares the partitions with the fabric.
    Fabric(usize),
    /// It gets a request.
    Request((Timestamp, u64), usize),
}

/// The clusters of a run.
#[derive(Default)]
pub struct Play {
    /// Requests to come.
    requests: BTreeMap<(Timestamp, u64), PlannedRequest>,
    /// Unanswered requests, by replica and target: repeated after a kill.
    open: BTreeMap<(usize, String), PlannedRequest>,
    /// The fabric rounds of each replica's present life, and the time of the next one.
    rounds: Vec<(Arc<Mutex<Rounds>>, Timestamp)>,
    checks: ClusterChecks,
    next: u64,
}

fn rounds(process: &Process) -> Arc<Mutex<Rounds>> {
    let settings = process.core.config.fabric.clone().expect("the settings have a fabric");
    let manager = Manager {
        fake: process.fake.clone(),
    };
    Arc::new(Mutex::new(Rounds::new(settings, Arc::new(manager))))
}

impl Play {
    fn at(&mut self, at: Timestamp, planned: PlannedRequest) {
        self.next += 1;
        self.requests.insert((at, self.next), planned);
    }

    /// Whether a request is to come, or has no answer yet.
    pub fn has_requests(&self) -> bool {
        !self.requests.is_empty() || !self.open.is_empty()
    }

    /// The possible turns, each with its earliest time.
    pub fn turns(&self, processes: &[Process]) -> Vec<(Timestamp, Turn)> {
        let mut turns = Vec::new();
        for (number, process) in processes.iter().enumerate() {
            if process.answers() && !process.busy.contains(fabric::CALL) {
                turns.push((self.rounds[number].1, Turn::Fabric(number)));
            }
        }
        for (key, planned) in &self.requests {
            let may = |process: &Process| process.answers() && !process.busy.contains(&planned.target());
            let candidates: Vec<usize> = (0..processes.len()).filter(|n| may(&processes[*n])).collect();
            if !candidates.is_empty() {
                let spread = usize::try_from(key.1).unwrap_or(0);
                turns.push((key.0, Turn::Request(*key, candidates[spread % candidates.len()])));
                break;
            }
        }
        turns
    }

    /// A replica was killed: its unanswered requests are repeated.
    pub fn killed(&mut self, number: usize) {
        for ((of, target), planned) in std::mem::take(&mut self.open) {
            if of == number {
                self.at(clock::now(), planned);
            } else {
                self.open.insert((of, target), planned);
            }
        }
    }

    /// A replica has begun another life.
    pub fn started(&mut self, number: usize, process: &Process) {
        self.rounds[number] = (rounds(process), clock::now());
    }

    /// Forgets the requests that have an answer.
    pub fn forget_answered(&mut self, processes: &[Process]) {
        self.open
            .retain(|(number, target), _| processes[*number].busy.contains(target));
    }

    /// The checks after a commit.
    pub(super) async fn look(&mut self, store: &Store, fake: &Fake, figures: &mut Figures) -> Vec<String> {
        self.checks.look(store, fake, figures).await
    }
}

/// All clusters.
async fn clusters(store: &Store) -> Vec<ClusterRecord> {
    let all = store.clusters(&Scope::Site, &Vec::new(), "", 1000).await;
    all.expect("clusters can be read")
}

/// The site file.
fn site() -> &'static str {
    static SITE: OnceLock<String> = OnceLock::new();
    SITE.get_or_init(|| {
        let mut request = Request::new(ReferenceSku::DgxH100, SITE_NODES);
        request.customers = CUSTOMERS.map(|name| (name.into(), Redundancy::None, false)).to_vec();
        site_file(&request).expect("a site")
    })
}

/// Waits for a change of a replica before the seed begins: the gate is open.
async fn with_open_gate<T>(process: &Process, change: impl Future<Output = T>) -> T {
    let gate = process.fake.gate.clone();
    tokio::pin!(change);
    loop {
        for _ in gate.waiting() {
            gate.release(0);
        }
        tokio::select! {
            done = &mut change => return done,
            () = gate.came.notified() => {}
        }
    }
}

impl Run {
    /// A run with a site, machines and clusters.
    async fn with_clusters(seed: u64, dir: &Path) -> Self {
        let chance = begin(seed);
        let mut run = Self::with_settings(&chance, dir, SETTINGS).await;
        run.rest_us = minutes(REST_MIN);
        let process = &run.processes[0];
        let applied = with_open_gate(process, apply_site(&process.core, "site", site())).await;
        applied.expect("the site is applied");
        let (_, site) = process
            .core
            .sites
            .current(&run.store)
            .await
            .expect("the site can be read")
            .expect("a site is applied");
        process.add_image().await;
        let count = 5 + chance.below(3);
        let ids: Vec<String> = site
            .nodes
            .iter()
            .take(count)
            .map(|node| node.name.to_string())
            .collect();
        for id in &ids {
            process.enroll(id, BTreeMap::new()).await;
        }
        let mut play = Play {
            rounds: run
                .processes
                .iter()
                .map(|process| (rounds(process), clock::now()))
                .collect(),
            ..Play::default()
        };
        for process in &mut run.processes {
            process.want_settings(false, &ids);
        }
        {
            let mut world = run.fake.world();
            for node in &site.nodes {
                let guids = node.port_guids.iter().flatten();
                let ports: BTreeSet<Guid> = guids.filter_map(|guid| Guid::new(*guid)).collect();
                ports.iter().for_each(|port| world.fabric.add(*port));
                play.checks.ports.insert(node.name.to_string(), ports);
            }
            ids.iter().for_each(|id| world.add(id));
            faults::plan(&mut world, &ids, &chance);
            script::plan(&mut play, &mut world, &ids, &chance);
        }
        run.clusters = Some(play);
        run
    }

    fn play(&mut self) -> &mut Play {
        self.clusters.as_mut().expect("a run with clusters")
    }

    /// Lets a replica do something about clusters.
    pub(super) async fn cluster_turn(&mut self, turn: Turn) {
        match turn {
            Turn::Lease(number) => {
                let Process { core, steps, .. } = &mut self.processes[number];
                let leased = rackwright_control::testing::start_cluster_steps(core, steps).await;
                leased.expect("the database answers");
            }
            Turn::Fabric(number) => {
                let next = clock::now().plus(self.fake.chance.millis(2_000, 40_000));
                let round = &mut self.play().rounds[number];
                round.1 = next;
                let rounds = round.0.clone();
                let process = &mut self.processes[number];
                let core = process.core.clone();
                process.call(fabric::CALL, async move { rounds.lock().await.run(&core).await });
            }
            Turn::Request(key, number) => self.make_request(key, number).await,
        }
    }

    /// The run from its first turn to the last check.
    async fn clusters_to_end(&mut self) {
        self.storm().await;
        faults::end(&mut self.fake.world());
        self.run_until(clock::now().plus(minutes(30))).await;
        self.release_clusters().await;
        self.until_rest().await;
        self.return_to_pool().await;
        self.last_checks().await;
        let (wrong, replaced) = checks::last_checks(&self.store, &self.fake).await;
        let mut world = self.fake.world();
        world.wrong.extend(wrong);
        self.figures.replaced = replaced;
        self.figures.faults_found = world.verdicts.faults_found;
    }

    /// Releases every cluster and waits until each is free.
    async fn release_clusters(&mut self) {
        let end = clock::now().plus(minutes(RELEASE_MIN));
        for round in 0.. {
            let mut held = clusters(&self.store).await;
            held.retain(|record| record.cluster.state != State::Released);
            if held.is_empty() || !self.fake.world().wrong.is_empty() {
                return;
            }
            if clock::now() > end {
                let of = |record: &ClusterRecord| {
                    let (id, state, wait) = (&record.id, record.cluster.state, &record.wait);
                    format!("{id} is {state} and waits for {wait:?}, long after its release")
                };
                let states = super::checks::all_states(&self.store).await;
                let mut world = self.fake.world();
                world.wrong.extend(held.iter().map(of));
                world.wrong.push(states);
                return;
            }
            held.retain(|record| record.cluster.state != State::Releasing);
            for record in held {
                let planned = PlannedRequest {
                    key: format!("{}-out-{round}", record.id),
                    cluster: record.id.to_string(),
                    kind: RequestKind::Release,
                };
                self.play().at(clock::now(), planned);
            }
            self.run_until(clock::now().plus(minutes(10))).await;
        }
    }
}

fn story(seed: u64, dir: &Path) -> (Figures, Vec<String>, Vec<String>) {
    seeds::block_on(async {
        let mut run = Run::with_clusters(seed, dir).await;
        run.clusters_to_end().await;
        run.end().await
    })
}

#[test]
fn random_kills_leave_each_node_in_one_cluster_tested_and_isolated() {
    let (count, total) = seeds::run(SEEDS, story);
    if count < SEEDS {
        // A few seeds may not contain everything.
        return;
    }
    assert!(total.kills > count, "hardly a replica was killed: {total:?}");
    assert!(
        total.clusters > count / 2,
        "hardly a cluster was handed over: {total:?}"
    );
    assert!(total.replaced > count / 4, "hardly a node was replaced: {total:?}");
    assert!(
        total.faults_found > count / 4,
        "hardly a network test found a fault: {total:?}"
    );
}
