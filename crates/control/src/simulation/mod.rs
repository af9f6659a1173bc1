//! The real runner, `decide` and store over machines that are not there, killed before and after every commit and every
//! effect, in the order that a seed gives. The same seed gives the same run.
//!
//! `RACKWRIGHT_SEED=17 cargo nextest run -p rackwright-control simulation` runs one seed and prints what happened.

mod chance;
mod checks;
mod gate;
mod performer;
mod process;
mod world;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use rackwright_lifecycle::{Timestamp, minutes, seconds};

use crate::core::Point;
use crate::grpc::said::Wish;
use crate::{clock, runner};
use chance::Chance;
use checks::Follower;
use gate::Gate;
use performer::Fake;
use process::Process;
use world::{Coming, World};

/// When every run begins: 2026-01-01.
const BEGIN: Timestamp = Timestamp(1_767_225_600_000_000);
/// More turns than any run needs.
const TURNS: usize = 100_000;
/// A seed's number of kills is about this times its turns in a thousand.
const KILLS_OF_1000: usize = 12;
/// Seeds of a run without `RACKWRIGHT_SEED`; `RACKWRIGHT_SEEDS` sets another number.
const SEEDS: u64 = 2000;

/// What a run was.
#[derive(Debug, Default, Clone, Copy)]
struct Figures {
    turns: u64,
    kills: u64,
    edges: u64,
    wishes: u64,
    cancelled: u64,
}

/// One run.
struct Run {
    fake: Fake,
    process: Process,
    follower: Follower,
    /// Wishes whose call has not ended: asked again after a kill.
    asking: BTreeMap<String, (Wish, String)>,
    kills_of_1000: usize,
    figures: Figures,
    trace: Vec<String>,
}

/// What a turn was.
enum Turn {
    /// Something happened.
    Went,
    /// Nothing will before that time.
    Idle(Timestamp),
}

enum Choice {
    Go(usize),
    Happen((Timestamp, u64)),
    Lease,
}

impl Run {
    async fn new(seed: u64, dir: &Path) -> Self {
        clock::simulated::set(BEGIN);
        let chance = Arc::new(Chance::new(seed));
        let fake = Fake {
            world: Arc::new(Mutex::new(World::default())),
            gate: Arc::new(Gate::default()),
            chance: chance.clone(),
        };
        let process = Process::start(dir, &fake).await;
        let mut run = Self {
            fake,
            process,
            follower: Follower::default(),
            asking: BTreeMap::new(),
            kills_of_1000: if chance.of_1000(200) { 0 } else { KILLS_OF_1000 },
            figures: Figures::default(),
            trace: Vec::new(),
        };
        run.script().await;
        run
    }

    /// The machines of this seed, and what is wished of them and befalls them.
    async fn script(&mut self) {
        let chance = self.fake.chance.clone();
        let ids: Vec<String> = (0..1 + chance.below(2)).map(|i| format!("n{i}")).collect();
        self.process.add_image().await;
        for id in &ids {
            self.process.enroll(id).await;
        }
        let mut world = self.fake.world();
        world.storm = [0, 10, 40, 120][chance.below(4)];
        for id in &ids {
            world.add(id);
            let mut at = BEGIN.plus(minutes(2));
            for number in 0..=chance.below(6) {
                at = at.plus(chance.millis(0, 600_000));
                let key = format!("{id}-{number}");
                let likely = [Wish::Deploy, Wish::Reimage, Wish::Release];
                let wish = if chance.of_1000(600) {
                    likely[chance.below(3)]
                } else {
                    Wish::ALL[chance.below(Wish::ALL.len())]
                };
                world.at(at, id, Coming::Ask { wish, key });
                if wish == Wish::Deploy && chance.of_1000(500) {
                    let (wish, key) = (Wish::Cancel, format!("{id}-{number}-cancel"));
                    let at = at.plus(chance.millis(0, 300_000));
                    world.at(at, id, Coming::Ask { wish, key });
                }
                if chance.of_1000(3 * world.storm) {
                    let blip = at.plus(chance.millis(0, 300_000));
                    world.at(blip, id, Coming::Blip);
                }
            }
        }
    }

    /// One thing happens, if there is one now.
    async fn turn(&mut self) -> Turn {
        self.process.settle(&self.fake.gate).await;
        self.hear().await;
        self.figures.turns += 1;
        let now = clock::now().plus(self.fake.chance.millis(0, 3));
        clock::simulated::set(now);
        let waiting = self.fake.gate.waiting();
        let dies = self.fake.chance.of_1000(self.kills_of_1000);
        // Nothing else runs while something holds the database.
        if let Some(index) = waiting.iter().position(|w| w.0 == Some(Point::BeforeCommit)) {
            if dies {
                self.kill("before a commit").await;
            } else {
                self.fake.gate.release(index);
            }
            return Turn::Went;
        }
        self.follower.follow(&self.process.core, &self.fake).await;
        if dies {
            self.kill("anywhere").await;
            return Turn::Went;
        }
        let mut choices: Vec<Choice> = (0..waiting.len())
            .filter(|i| waiting[*i].1 <= now)
            .map(Choice::Go)
            .collect();
        // The question costs more than most turns: it is asked when there is nothing else to do, and now and then.
        let asks = choices.is_empty() || self.fake.chance.of_1000(150);
        let next_due = if self.process.is_recovering || !asks {
            None
        } else {
            self.process.core.store.next_due().await.expect("the database answers")
        };
        if next_due.is_some_and(|due| due <= now) {
            choices.push(Choice::Lease);
        }
        let first = self.first_to_happen();
        if let Some(key) = first.filter(|key| key.0 <= now) {
            choices.push(Choice::Happen(key));
        }
        if choices.is_empty() {
            let times = waiting
                .iter()
                .map(|w| w.1)
                .chain(next_due)
                .chain(first.map(|key| key.0));
            return Turn::Idle(times.min().unwrap_or(Timestamp::END));
        }
        match choices.swap_remove(self.fake.chance.below(choices.len())) {
            Choice::Go(index) => self.fake.gate.release(index),
            Choice::Happen(key) => self.happen(key),
            Choice::Lease => {
                let Process { core, steps, .. } = &mut self.process;
                runner::lease_and_start(core, steps)
                    .await
                    .expect("the database answers");
            }
        }
        Turn::Went
    }

    /// What is to come first, of machines with which nobody is just talking.
    fn first_to_happen(&self) -> Option<(Timestamp, u64)> {
        if self.process.is_recovering {
            return None;
        }
        let world = self.fake.world();
        let free = world.coming.iter().find(|(_, (id, _))| !self.process.busy.contains(id));
        free.map(|(key, _)| *key)
    }

    fn note(&mut self, what: String) {
        self.trace
            .push(format!("{:>9.3} {what}", clock::now().since(BEGIN) as f64 / 1e6));
    }

    async fn kill(&mut self, wher: &str) {
        self.note(format!("killed {wher}"));
        self.figures.kills += 1;
        self.process.kill(&self.fake).await;
        self.follower.look_again();
        let now = clock::now().plus(self.fake.chance.millis(100, 20_000));
        clock::simulated::set(now);
        let mut world = self.fake.world();
        for (id, (wish, key)) in std::mem::take(&mut self.asking) {
            world.at(now, &id, Coming::Ask { wish, key });
        }
    }

    /// Agents take what they were sent.
    async fn hear(&mut self) {
        let now = clock::now();
        let told = self.fake.world().sent(now, &self.fake.chance);
        for (id, message) in told {
            let wrong = checks::job(&self.process.core, &id, &message).await;
            let line = {
                let mut world = self.fake.world();
                world.wrong.extend(wrong);
                process::told(&mut world, &id, message, now, &self.fake.chance)
            };
            self.note(line);
        }
    }

    fn happen(&mut self, key: (Timestamp, u64)) {
        let now = clock::now();
        let Some((id, coming)) = self.fake.world().coming.remove(&key) else {
            return;
        };
        let mut line = format!("{id}: {coming:?}");
        line.truncate(150);
        self.note(line);
        let fake = self.fake.clone();
        let mut world = fake.world();
        let machine = world.machine(&id);
        match coming {
            Coming::AgentUp { boot } if machine.boot == boot => world.agent_up(&id, now, &self.fake.chance),
            Coming::HostUp { boot } if machine.boot == boot => machine.running = world::Running::Host,
            Coming::JobEnds { boot, operation, work } if machine.boot == boot => {
                world.job_ends(&id, &operation, &work, now, &self.fake.chance);
            }
            Coming::Blip => world.blip(&id, now, &self.fake.chance),
            Coming::Connect { boot } if machine.boot == boot => self.process.connect(&self.fake, &id, boot),
            Coming::Say { boot, message } if machine.boot == boot && machine.connection.is_some() => {
                self.process.say(&id, *message);
            }
            Coming::Gone { number } => self.process.gone(&id, number),
            Coming::Ask { wish, key } => {
                self.asking.insert(id.clone(), (wish, key.clone()));
                self.figures.wishes += 1;
                self.process.ask(&self.fake, &id, wish, key);
            }
            _ => {}
        }
    }

    /// Takes turns until every machine is at rest.
    async fn until_rest(&mut self) {
        let end = clock::now().plus(minutes(72 * 60));
        for _ in 0..TURNS {
            let turn = self.turn().await;
            self.asking.retain(|id, _| self.process.busy.contains(id));
            if !self.fake.world().wrong.is_empty() {
                return;
            }
            if let Turn::Idle(next) = turn {
                let nothing_comes = self.fake.world().coming.is_empty() && self.process.is_quiet();
                if nothing_comes && checks::all_rest(&self.process.core).await {
                    return;
                }
                if next > end {
                    break;
                }
                clock::simulated::set(next);
            }
        }
        let stuck = checks::all_states(&self.process.core).await;
        let coming = format!("{:?}", self.fake.world().coming);
        let told = format!("not at rest in the end: {stuck}; to come: {coming}");
        self.fake.world().wrong.push(told);
    }

    async fn whole(&mut self) {
        let minute = seconds(60);
        while self
            .fake
            .world()
            .coming
            .values()
            .any(|(_, c)| matches!(c, Coming::Ask { .. }))
            || !self.asking.is_empty()
        {
            if let Turn::Idle(next) = self.turn().await {
                clock::simulated::set(next);
            }
            self.asking.retain(|id, _| self.process.busy.contains(id));
            if !self.fake.world().wrong.is_empty() || self.figures.turns > TURNS as u64 {
                break;
            }
        }
        // The storm is over: whatever state a node is in has a way out of it, and that way leads to the pool.
        self.kills_of_1000 = 0;
        self.fake.world().storm = 0;
        self.until_rest().await;
        for round in 0..4 {
            for (id, wish) in checks::ways_out(&self.process.core).await {
                let key = format!("{id}-out-{round}");
                let at = clock::now().plus(minute);
                self.fake.world().at(at, &id, Coming::Ask { wish, key });
            }
            self.until_rest().await;
        }
        let left = checks::left(&self.process.core, &self.fake).await;
        self.fake.world().wrong.extend(left);
        let lost = self.follower.compare(&self.process.core).await;
        self.fake.world().wrong.extend(lost);
        self.figures.edges = self.follower.edges();
        let (cancelled, wrong) = checks::operations(&self.process.core).await;
        self.fake.world().wrong.extend(wrong);
        self.figures.cancelled = cancelled;
    }
}

fn one(seed: u64, dir: &Path) -> (Figures, Vec<String>, Vec<String>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let mut run = Run::new(seed, dir).await;
        run.whole().await;
        run.process.end().await;
        let wrong = std::mem::take(&mut run.fake.world().wrong);
        (run.figures, wrong, run.trace)
    })
}

/// The processors that this process may use.
fn cpus() -> Vec<usize> {
    let allowed = sched_getaffinity(Pid::from_raw(0)).expect("the processors can be asked for");
    (0..CpuSet::count())
        .filter(|cpu| allowed.is_set(*cpu).unwrap_or(false))
        .collect()
}

/// A run hands over between its thread and the database's at every statement, never both at once: that costs a fifth
/// less on one processor.
fn stay_on(cpu: usize) {
    let mut set = CpuSet::new();
    set.set(cpu).expect("a processor of this machine");
    sched_setaffinity(Pid::from_raw(0), &set).expect("the thread stays where it is told");
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn whatever_is_killed_whenever_nothing_is_lost_and_nothing_is_destroyed_twice() {
    let (first, count) = match number("RACKWRIGHT_SEED") {
        Some(seed) => (seed, 1),
        None => (0, number("RACKWRIGHT_SEEDS").unwrap_or(SEEDS)),
    };
    let (next, total) = (AtomicU64::new(first), Mutex::new(Figures::default()));
    let (next, total) = (&next, &total);
    std::thread::scope(|scope| {
        for cpu in cpus() {
            scope.spawn(move || {
                stay_on(cpu);
                let dir = process::folder();
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= first + count {
                        return;
                    }
                    let (figures, wrong, trace) = one(seed, dir.path());
                    if count == 1 {
                        println!("{}", trace.join("\n"));
                    }
                    assert!(wrong.is_empty(), "seed {seed}: {}", wrong.join("\n"));
                    let mut total = total.lock().expect("no thread failed");
                    total.turns += figures.turns;
                    total.kills += figures.kills;
                    total.edges += figures.edges;
                    total.wishes += figures.wishes;
                    total.cancelled += figures.cancelled;
                }
            });
        }
    });
    let total = *total.lock().expect("no thread failed");
    println!("{count} seeds: {total:?}");
    assert!(total.edges > count && total.wishes > count, "{total:?}");
    assert!(
        total.cancelled >= count / 20,
        "hardly a deploy was cancelled: {total:?}"
    );
}
