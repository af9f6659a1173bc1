//! The real runner, `decide` and store over simulated machines: two replicas on one database. Each replica is killed before
//! and after every commit and every effect and stays down for a while, and agents move between them, in the order of a
//! seed. The same seed gives the same run.
//!
//! `RACKWRIGHT_SEED=17 cargo nextest run -p rackwright-grpc simulation` runs one seed and prints its trace.

mod bounds;
mod chance;
mod checks;
mod clusters;
mod events;
mod gate;
mod metering;
mod passwords;
mod performer;
mod process;
mod seeds;
mod turns;
mod world;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

use rackwright_ground::clock;
use rackwright_ground::core::CrashPoint;
use rackwright_lifecycle::{Timestamp, minutes, seconds};
use rackwright_nodes::runner;
use rackwright_store::Store;

use crate::test_calls::NodeRequest;
use chance::Chance;
use checks::EventFollower;
use performer::Fake;
use process::Process;
use turns::OwnershipCheck;
use world::{PlannedEvent, World};

/// The start time of every run: 2026-01-01.
const BEGIN: Timestamp = Timestamp(1_767_225_600_000_000);
/// More turns than any run needs.
const TURNS: usize = 100_000;
/// Kills in a thousand turns, approximately.
const KILLS_OF_1000: usize = 12;
/// Seeds of a run without `RACKWRIGHT_SEED`. `RACKWRIGHT_SEEDS` sets another number.
const SEEDS: u64 = 150;

/// Number of replicas.
const REPLICAS: usize = 2;
/// Pauses between rounds that check the other replicas, in milliseconds: while a replica is down or was just now, and
/// otherwise. A quiet round costs time and shows nothing new.
const ROUNDS_MS: (usize, usize) = (10_000, 240_000);

/// Figures of a run.
#[derive(Debug, Default, Clone, Copy)]
struct Figures {
    turns: u64,
    kills: u64,
    edges: u64,
    requests: u64,
    cancelled: u64,
    /// Connections of agents, and those to another replica than before.
    connections: u64,
    moves: u64,
    /// Commits after which a node was queued.
    in_line: u64,
    /// Clusters that were handed over whole, and nodes that others replaced in them.
    clusters: u64,
    replaced: u64,
    /// Network tests that found a node or the network at fault.
    faults_found: u64,
}

impl Figures {
    fn add(&mut self, other: &Self) {
        self.turns += other.turns;
        self.kills += other.kills;
        self.edges += other.edges;
        self.requests += other.requests;
        self.cancelled += other.cancelled;
        self.connections += other.connections;
        self.moves += other.moves;
        self.in_line += other.in_line;
        self.clusters += other.clusters;
        self.replaced += other.replaced;
        self.faults_found += other.faults_found;
    }
}

/// One run.
struct Run {
    fake: Fake,
    processes: Vec<Process>,
    /// For the checks: belongs to no replica.
    store: Store,
    follower: EventFollower,
    turns: OwnershipCheck,
    /// Commits of the running processes at the last check.
    committed: Option<u64>,
    /// How many more times an agent moves while a replica is in the middle of a change.
    moves_left: usize,
    /// How often, in a thousand, a slow replica is taken for dead.
    slow_of_1000: usize,
    /// Wishes with an unanswered call, by replica and machine: repeated after a kill.
    open_requests: BTreeMap<(usize, String), (NodeRequest, String)>,
    /// The last replica of each machine's agent.
    connected: BTreeMap<String, usize>,
    kills_of_1000: usize,
    /// At rest, nothing is due within this time, in microseconds.
    rest_us: i64,
    /// The clusters of a run that has any.
    clusters: Option<clusters::Play>,
    figures: Figures,
    trace: Vec<String>,
}

/// The result of a turn.
enum Turn {
    /// Something happened.
    Progressed,
    /// Nothing happens before that time.
    Idle(Timestamp),
}

enum Choice {
    Release(usize, usize),
    RunEvent((Timestamp, u64), usize),
    Lease(usize),
    Round(usize),
    Start(usize),
    Cluster(clusters::Turn),
}

/// A fresh database for the seed. Keys are kept from seed to seed: all belong to one site.
async fn replicas(dir: &Path, fake: &Fake, limits: &str) -> (Vec<Process>, Store) {
    let database = dir.join("rackwright.db");
    for ending in ["db", "db-wal", "db-shm"] {
        let _ = std::fs::remove_file(database.with_extension(ending));
    }
    let mut processes = Vec::new();
    for number in 0..REPLICAS {
        let own = dir.join(number.to_string());
        process::share_keys(&dir.join("0"), &own);
        let fake = Fake {
            gate: Arc::default(),
            ..fake.clone()
        };
        processes.push(Process::start(number, &own, &database, limits, fake).await);
    }
    let store = Store::open(&database).await.expect("it opens");
    (processes, store)
}

/// Sets the clock to the beginning. Returns the random numbers of a seed.
fn begin(seed: u64) -> Arc<Chance> {
    clock::simulated::set(BEGIN);
    Arc::new(Chance::new(seed))
}

impl Run {
    async fn new(seed: u64, dir: &Path) -> Self {
        let chance = begin(seed);
        let mut run = Self::with_settings(&chance, dir, bounds::settings(&chance)).await;
        run.script().await;
        run
    }

    /// A run without machines.
    async fn with_settings(chance: &Arc<Chance>, dir: &Path, settings: &str) -> Self {
        let fake = Fake {
            world: Arc::new(Mutex::new(World::default())),
            gate: Arc::default(),
            chance: chance.clone(),
        };
        let (processes, store) = replicas(dir, &fake, settings).await;
        Self {
            fake,
            processes,
            store,
            follower: EventFollower::default(),
            turns: OwnershipCheck::default(),
            committed: None,
            moves_left: chance.below(8),
            slow_of_1000: if chance.of_1000(200) { 100 } else { 0 },
            open_requests: BTreeMap::new(),
            connected: BTreeMap::new(),
            kills_of_1000: if chance.of_1000(200) { 0 } else { KILLS_OF_1000 },
            // Less than the hour of a rest divided by the four nodes that there are at most, and longer than a queued node
            // waits before it checks its queue by itself.
            rest_us: minutes(12),
            clusters: None,
            figures: Figures::default(),
            trace: Vec::new(),
        }
    }

    /// The machines of this seed, and their requests and mishaps.
    async fn script(&mut self) {
        let chance = self.fake.chance.clone();
        // A limit needs more machines than room.
        let is_bounded = !self.processes[0].core.config.limits.is_empty();
        let count = if is_bounded { 3 } else { 1 } + chance.below(2);
        let ids: Vec<String> = (0..count).map(|i| format!("n{i}")).collect();
        self.processes[0].add_image().await;
        for (number, id) in ids.iter().enumerate() {
            self.processes[0].enroll(id, bounds::labels(number)).await;
        }
        let wants_settings = chance.of_1000(400);
        for process in &mut self.processes {
            process.want_settings(wants_settings, &ids);
        }
        let mut world = self.fake.world();
        world.failures_of_1000 = [0, 10, 40, 120][chance.below(4)];
        world.wants_settings = wants_settings;
        for id in &ids {
            world.add(id);
            let mut at = BEGIN.plus(minutes(2));
            for number in 0..=chance.below(6) {
                at = at.plus(chance.millis(0, 600_000));
                let key = format!("{id}-{number}");
                let likely = [NodeRequest::Deploy, NodeRequest::Reimage, NodeRequest::Release];
                let request = if chance.of_1000(600) {
                    likely[chance.below(3)]
                } else {
                    NodeRequest::ALL[chance.below(NodeRequest::ALL.len())]
                };
                world.at(at, id, PlannedEvent::Request { request, key });
                if request == NodeRequest::Deploy && chance.of_1000(500) {
                    let (request, key) = (NodeRequest::Cancel, format!("{id}-{number}-cancel"));
                    let at = at.plus(chance.millis(0, 300_000));
                    world.at(at, id, PlannedEvent::Request { request, key });
                }
                if chance.of_1000(300) {
                    world.at(at.plus(chance.millis(0, 300_000)), id, PlannedEvent::Move);
                }
                if chance.of_1000(3 * world.failures_of_1000) {
                    let fail_briefly = at.plus(chance.millis(0, 300_000));
                    world.at(fail_briefly, id, PlannedEvent::BriefFailure);
                }
            }
        }
    }

    /// Lets one thing happen, if one can happen now.
    async fn turn(&mut self) -> Turn {
        for process in &mut self.processes {
            process.settle().await;
        }
        self.receive_messages().await;
        self.figures.turns += 1;
        let now = clock::now().plus(self.fake.chance.millis(0, 3));
        clock::simulated::set(now);
        let waiting: Vec<_> = self.processes.iter().map(|p| p.fake.gate.waiting()).collect();
        let dies = self.fake.chance.of_1000(self.kills_of_1000);
        // Nothing else runs while a task holds the database.
        for (number, waiting) in waiting.iter().enumerate() {
            if let Some(index) = waiting.iter().position(|w| w.0 == Some(CrashPoint::BeforeCommit)) {
                if dies {
                    self.kill(number, "before a commit").await;
                } else {
                    self.processes[number].fake.gate.release(index);
                }
                return Turn::Progressed;
            }
        }
        self.look().await;
        if dies {
            let number = self.fake.chance.below(REPLICAS);
            if self.processes[number].down_until.is_none() {
                self.kill(number, "anywhere").await;
            }
            return Turn::Progressed;
        }
        self.move_in_between(&waiting, now);
        let (choices, next) = self.choices(&waiting, now).await;
        if choices.is_empty() {
            if !self.turns.has_wrong_takeover && self.fake.chance.of_1000(300) {
                let wrong = turns::overdue_nodes(&self.store, &self.processes).await;
                self.fake.world().wrong.extend(wrong);
            }
            return Turn::Idle(next);
        }
        self.choose(choices).await;
        Turn::Progressed
    }

    /// Runs the checks after new commits.
    async fn look(&mut self) {
        let committed = self.processes.iter().map(|p| *p.core.commits.borrow()).sum();
        if self.committed.replace(committed) == Some(committed) {
            return;
        }
        self.follower.follow(&self.store, &self.fake).await;
        let mut wrong = self.turns.look(&self.store, &self.processes, &self.fake).await;
        let limits = &self.processes[0].core.config.limits;
        let (full, in_line) = bounds::look(&self.store, limits).await;
        self.figures.in_line += u64::from(in_line);
        wrong.extend(full);
        if let Some(clusters) = &mut self.clusters {
            wrong.extend(clusters.look(&self.store, &self.fake, &mut self.figures).await);
        }
        self.fake.world().wrong.extend(wrong);
    }

    /// Sometimes moves an agent just after a replica has stored a change and before it continues.
    fn move_in_between(&mut self, waiting: &[Vec<(Option<CrashPoint>, Timestamp)>], now: Timestamp) {
        let is_between = waiting.iter().flatten().any(|w| w.0 == Some(CrashPoint::AfterCommit));
        if self.moves_left > 0 && is_between && self.fake.chance.of_1000(20) {
            self.moves_left -= 1;
            let mut world = self.fake.world();
            let ids: Vec<_> = world.machines.keys().cloned().collect();
            world.at(now, &ids[self.fake.chance.below(ids.len())], PlannedEvent::Move);
        }
    }

    /// The possible next events, and the time of the first later one.
    async fn choices(
        &self,
        waiting: &[Vec<(Option<CrashPoint>, Timestamp)>],
        now: Timestamp,
    ) -> (Vec<Choice>, Timestamp) {
        let (mut choices, mut next) = (Vec::new(), Timestamp::END);
        let mut at = |choices: &mut Vec<Choice>, time: Timestamp, choice| {
            if time <= now {
                choices.push(choice);
            } else {
                next = next.min(time);
            }
        };
        for (number, process) in self.processes.iter().enumerate() {
            for (index, (_, until)) in waiting[number].iter().enumerate() {
                at(&mut choices, *until, Choice::Release(number, index));
            }
            match process.down_until {
                Some(until) => at(&mut choices, until, Choice::Start(number)),
                None if process.answers() && !process.busy.contains("") => {
                    at(&mut choices, process.next_round, Choice::Round(number));
                }
                None => {}
            }
        }
        if let Some((key, number)) = self.next_event() {
            at(&mut choices, key.0, Choice::RunEvent(key, number));
        }
        for (time, turn) in self
            .clusters
            .iter()
            .flat_map(|clusters| clusters.turns(&self.processes))
        {
            at(&mut choices, time, Choice::Cluster(turn));
        }
        // This query costs more than most turns, so it runs only if nothing else can happen, and sometimes.
        if choices.is_empty() || self.fake.chance.of_1000(150) {
            for (number, process) in self.processes.iter().enumerate().filter(|(_, p)| p.answers()) {
                let core = &process.core;
                let due = core.store.next_due(&core.replica).await.expect("the database answers");
                if let Some(due) = due {
                    at(&mut choices, due, Choice::Lease(number));
                }
                if self.clusters.is_some()
                    && let Some(due) = core.store.next_cluster_due().await.expect("the database answers")
                {
                    at(&mut choices, due, Choice::Cluster(clusters::Turn::Lease(number)));
                }
            }
        }
        (choices, next)
    }

    async fn choose(&mut self, mut choices: Vec<Choice>) {
        match choices.swap_remove(self.fake.chance.below(choices.len())) {
            Choice::Release(number, index) => self.processes[number].fake.gate.release(index),
            Choice::RunEvent(key, number) => self.run_event(key, number),
            Choice::Lease(number) => {
                let Process { core, steps, .. } = &mut self.processes[number];
                runner::lease_and_start(core, steps)
                    .await
                    .expect("the database answers");
            }
            Choice::Round(number) => self.round(number).await,
            Choice::Cluster(turn) => self.cluster_turn(turn).await,
            Choice::Start(number) => {
                self.note(format!("replica {number} starts again"));
                self.report_alive().await;
                self.processes[number].start_again().await;
                if let Some(clusters) = &mut self.clusters {
                    clusters.started(number, &self.processes[number]);
                }
            }
        }
    }

    /// Stores the signs of life of running replicas. In some runs, one is slow now and then.
    async fn report_alive(&mut self) {
        for process in self.processes.iter().filter(|p| p.down_until.is_none()) {
            if self.fake.chance.of_1000(self.slow_of_1000) {
                self.turns.has_wrong_takeover = true;
            } else {
                let alive = self.store.record_heartbeat(&process.core.replica, clock::now()).await;
                alive.expect("the database answers");
            }
        }
    }

    async fn round(&mut self, number: usize) {
        self.report_alive().await;
        let (often, seldom) = ROUNDS_MS;
        let is_undisturbed = self.processes.iter().all(|p| p.down_until.is_none()) && !self.fake.chance.of_1000(100);
        let pause = if is_undisturbed { seldom } else { often };
        let process = &mut self.processes[number];
        process.next_round = clock::now().plus(self.fake.chance.millis(pause, pause + 1000));
        process.round();
    }

    fn note(&mut self, what: String) {
        self.trace
            .push(format!("{:>9.3} {what}", clock::now().since(BEGIN) as f64 / 1e6));
    }

    async fn kill(&mut self, number: usize, place: &str) {
        self.note(format!("replica {number} killed {place}"));
        self.figures.kills += 1;
        let (now, chance) = (clock::now(), self.fake.chance.clone());
        let most = if chance.of_1000(750) { 20_000 } else { 200_000 };
        self.processes[number].kill(now.plus(chance.millis(100, most))).await;
        self.committed = None;
        if let Some(clusters) = &mut self.clusters {
            clusters.killed(number);
        }
        let soon = now.plus(chance.millis(100, 10_000));
        for process in &mut self.processes {
            process.next_round = process.next_round.min(soon);
        }
        let mut world = self.fake.world();
        for ((of, id), (request, key)) in std::mem::take(&mut self.open_requests) {
            if of == number {
                world.at(now, &id, PlannedEvent::Request { request, key });
            } else {
                self.open_requests.insert((of, id), (request, key));
            }
        }
    }

    /// Forgets the calls that have ended, so that they are not repeated.
    fn forget_answered(&mut self) {
        let processes = &self.processes;
        self.open_requests
            .retain(|(number, id), _| processes[*number].busy.contains(id));
        if let Some(clusters) = &mut self.clusters {
            clusters.forget_answered(processes);
        }
    }

    /// Takes turns until every machine is at rest.
    async fn until_rest(&mut self) {
        let end = clock::now().plus(minutes(72 * 60));
        for _ in 0..TURNS {
            let turn = self.turn().await;
            self.forget_answered();
            if !self.fake.world().wrong.is_empty() {
                return;
            }
            if let Turn::Idle(next) = turn {
                let is_quiet = self.processes.iter().all(|p| p.is_quiet() && p.down_until.is_none());
                let is_nothing_planned = is_quiet && checks::is_nothing_planned(&self.store, &self.fake).await;
                let names: Vec<_> = self.processes.iter().map(|p| p.core.replica.clone()).collect();
                if is_nothing_planned && checks::all_rest(&self.store, &names, self.rest_us).await {
                    return;
                }
                if next > end {
                    break;
                }
                clock::simulated::set(next);
            }
        }
        let stuck = checks::all_states(&self.store).await;
        let planned = format!("{:?}", self.fake.world().planned);
        let unsettled = format!("not at rest in the end: {stuck}; to come: {planned}");
        self.fake.world().wrong.push(unsettled);
    }

    /// Takes turns until that time.
    async fn run_until(&mut self, end: Timestamp) {
        while clock::now() < end && self.fake.world().wrong.is_empty() {
            if let Turn::Idle(next) = self.turn().await {
                clock::simulated::set(next.min(end));
            }
            self.forget_answered();
        }
    }

    /// The run from its first turn to the last check.
    async fn run_to_end(&mut self) {
        self.storm().await;
        // From every state, an operator's request leads back to the pool.
        self.until_rest().await;
        self.return_to_pool().await;
        self.last_checks().await;
    }

    /// Takes turns until the last request is answered. Then nothing is killed and nothing fails any more.
    async fn storm(&mut self) {
        while self.has_requests() {
            if let Turn::Idle(next) = self.turn().await {
                clock::simulated::set(next);
            }
            self.forget_answered();
            if !self.fake.world().wrong.is_empty() || self.figures.turns > TURNS as u64 {
                break;
            }
        }
        self.kills_of_1000 = 0;
        self.fake.world().failures_of_1000 = 0;
    }

    /// Whether a request is planned or unanswered.
    fn has_requests(&self) -> bool {
        let is_request = |planned: &PlannedEvent| matches!(planned, PlannedEvent::Request { .. });
        !self.open_requests.is_empty()
            || self.clusters.as_ref().is_some_and(clusters::Play::has_requests)
            || self
                .fake
                .world()
                .planned
                .values()
                .any(|(_, planned)| is_request(planned))
    }

    /// Returns each node to the pool by requests.
    async fn return_to_pool(&mut self) {
        for round in 0..4 {
            for (id, request) in checks::requests_to_pool(&self.store).await {
                let key = format!("{id}-out-{round}");
                let at = clock::now().plus(seconds(60));
                self.fake.world().at(at, &id, PlannedEvent::Request { request, key });
            }
            self.until_rest().await;
        }
        if passwords::has_abandoned_change(&self.store).await {
            self.run_until(clock::now().plus(minutes(24 * 60))).await;
            self.until_rest().await;
        }
    }

    /// The checks of the end, when every node is in the pool.
    async fn last_checks(&mut self) {
        let mut violations = checks::violations(&self.store, &self.fake).await;
        violations.extend(passwords::violations(&self.store, &self.fake, &self.processes[0].core.keys.sealer).await);
        violations.extend(bounds::violations(&self.store).await);
        violations.extend(metering::violations(&self.store).await);
        self.fake.world().wrong.extend(violations);
        let lost = self.follower.compare(&self.store).await;
        self.fake.world().wrong.extend(lost);
        self.figures.edges = self.follower.edges();
        let (cancelled, wrong) = checks::operations(&self.store).await;
        self.fake.world().wrong.extend(wrong);
        self.figures.cancelled = cancelled;
    }
}

fn run_seed(seed: u64, dir: &Path) -> (Figures, Vec<String>, Vec<String>) {
    seeds::block_on(async {
        let mut run = Run::new(seed, dir).await;
        run.run_to_end().await;
        run.end().await
    })
}

#[test]
fn random_kills_lose_nothing_and_destroy_nothing_twice() {
    let (count, total) = seeds::run(SEEDS, run_seed);
    if count < SEEDS {
        // A few seeds may not contain everything.
        return;
    }
    assert!(total.edges > count && total.requests > count, "{total:?}");
    assert!(
        total.cancelled >= count / 20,
        "hardly a deploy was cancelled: {total:?}"
    );
    assert!(total.moves >= count, "hardly an agent moved: {total:?}");
    assert!(total.in_line >= count, "hardly a machine stood in line: {total:?}");
}
