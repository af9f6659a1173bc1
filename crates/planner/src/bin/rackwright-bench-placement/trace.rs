//! A month of clusters that arrive, queue, run and end: the utilisation of the hall for each placement policy.
//!
//! The queue is never empty, as in the evaluation of Jigsaw, so the result shows what placement leaves unused. Clusters
//! start in order of arrival. If the first does not fit, its earliest possible start is computed. Later clusters may
//! overtake it if they end before that time or use other units (EASY backfilling with known ends).

use std::collections::{BTreeSet, VecDeque};
use std::time::Instant;

use rackwright_placement::Hall;

use crate::Options;
use crate::hall::{Dice, hall, size};
use crate::placers::{CountingPlacer, HallPlacer, Placer};

const HOUR: u64 = 3600;
const DAY: u64 = 24 * HOUR;
/// Number of warm-up days.
const WARM: u64 = 3;
/// Number of waiting requests at any time. All of them are considered for backfilling.
const QUEUE: usize = 40;

/// A request with its lifetime.
#[derive(Debug, Clone, Copy)]
struct Job {
    cluster: u64,
    nodes: u32,
    seconds: u64,
}

/// Lifetimes are lognormal: half of the clusters end within a day, the mean is two days, the longest is two weeks.
fn job(dice: &mut Dice, cluster: u64, most: u32) -> Job {
    let hours = 24.0 * (1.2 * dice.normal()).exp();
    Job {
        cluster,
        nodes: size(dice, most),
        seconds: ((hours * HOUR as f64) as u64).clamp(HOUR / 2, 14 * DAY),
    }
}

/// The reservation of the first request in the queue.
struct Reserved {
    at: u64,
    units: BTreeSet<u32>,
}

struct Run {
    placer: Box<dyn Placer>,
    nodes: u32,
    dice: Dice,
    next: u64,
    queue: VecDeque<Job>,
    /// End time, cluster, number of nodes.
    running: BTreeSet<(u64, u64, u32)>,
    reserved: Option<Reserved>,
    /// Used node seconds of each day.
    used: Vec<u64>,
    ended: u32,
    /// Number of ended clusters on several units, and of those among them with traffic that may need links of other
    /// clusters.
    several: u32,
    exposed: u32,
}

/// Runs the month with every placer. False: Rackwright's utilisation is below Jigsaw's.
pub fn run(options: Options) -> bool {
    let pods = options.pods.unwrap_or(4);
    let spec = hall(pods);
    let nodes = spec.nodes.len() as u32;
    let Ok(empty) = Hall::new(spec) else {
        eprintln!("rackwright-bench-placement: the hall is invalid");
        return false;
    };
    let placers: [Box<dyn Placer>; 3] = [
        Box::new(HallPlacer(empty)),
        Box::new(CountingPlacer::new(pods, false)),
        Box::new(CountingPlacer::new(pods, true)),
    ];
    let mut enough = true;
    for placer in placers {
        let mut run = Run {
            placer,
            nodes,
            dice: Dice::new(options.seed),
            next: 0,
            queue: VecDeque::new(),
            running: BTreeSet::new(),
            reserved: None,
            used: vec![0; (WARM + u64::from(options.days)) as usize],
            ended: 0,
            several: 0,
            exposed: 0,
        };
        let started = Instant::now();
        run.month();
        let utilisation = run.print(started.elapsed().as_secs_f64());
        enough &= run.placer.name() != "rackwright" || utilisation >= 0.95;
    }
    enough
}

impl Run {
    fn month(&mut self) {
        let end = self.used.len() as u64 * DAY;
        let mut now = 0;
        while now < end {
            self.start(now);
            let Some(&(then, cluster, nodes)) = self.running.first() else {
                return;
            };
            self.count(now, then.min(end));
            self.running.remove(&(then, cluster, nodes));
            let (several, exposed) = self.placer.exposed(cluster);
            self.ended += 1;
            self.several += u32::from(several);
            self.exposed += u32::from(exposed);
            self.placer.end(cluster);
            now = then;
        }
    }

    /// Adds the use between two times to the days.
    fn count(&mut self, mut from: u64, to: u64) {
        let busy: u64 = self.running.iter().map(|r| u64::from(r.2)).sum();
        while from < to {
            let day = from / DAY;
            let until = to.min((day + 1) * DAY);
            self.used[day as usize] += busy * (until - from);
            from = until;
        }
    }

    fn start(&mut self, now: u64) {
        loop {
            while self.queue.len() < QUEUE {
                self.next += 1;
                let job = job(&mut self.dice, self.next, self.nodes / 2);
                self.queue.push_back(job);
            }
            let first = self.queue[0];
            let due = self.reserved.as_ref().is_none_or(|r| r.at <= now);
            if !due || !self.place(first, now) {
                break;
            }
            self.queue.pop_front();
            self.reserved = None;
        }
        if self.reserved.as_ref().is_none_or(|r| r.at <= now) {
            self.reserved = self.reserve(self.queue[0]);
        }
        let mut at = 1;
        while at < self.queue.len() {
            if self.backfill(self.queue[at], now) {
                self.queue.remove(at);
            } else {
                at += 1;
            }
        }
    }

    fn free(&self) -> u32 {
        self.nodes - self.running.iter().map(|r| r.2).sum::<u32>()
    }

    fn place(&mut self, job: Job, now: u64) -> bool {
        let fits = job.nodes <= self.free() && self.placer.place(job.cluster, job.nodes);
        if fits {
            self.running.insert((now + job.seconds, job.cluster, job.nodes));
        }
        fits
    }

    /// The earliest time at which the first request fits without new arrivals, and its units.
    fn reserve(&self, first: Job) -> Option<Reserved> {
        let mut later = self.placer.copy();
        let (mut free, mut tried) = (self.free(), 0);
        for &(at, cluster, nodes) in &self.running {
            later.end(cluster);
            free += nodes;
            // Does not retry after every node that becomes free.
            if free < first.nodes || free - tried < first.nodes / 8 {
                continue;
            }
            tried = free;
            if later.place(first.cluster, first.nodes) {
                let units = later.units(first.cluster).into_iter().collect();
                return Some(Reserved { at, units });
            }
        }
        None
    }

    fn backfill(&mut self, job: Job, now: u64) -> bool {
        if !self.place(job, now) {
            return false;
        }
        let Some(reserved) = &self.reserved else {
            return true;
        };
        let units = self.placer.units(job.cluster);
        let out_of_its_way = !units.iter().any(|u| reserved.units.contains(u));
        if now + job.seconds <= reserved.at || out_of_its_way {
            return true;
        }
        self.placer.end(job.cluster);
        self.running.remove(&(now + job.seconds, job.cluster, job.nodes));
        false
    }

    fn print(&self, seconds: f64) -> f64 {
        let name = self.placer.name();
        let all = u64::from(self.nodes) * DAY;
        for (day, &used) in self.used.iter().enumerate() {
            let part = used as f64 / all as f64;
            println!("{{\"bench\":\"trace\",\"policy\":\"{name}\",\"day\":{day},\"utilisation\":{part:.4}}}");
        }
        let counted = &self.used[WARM as usize..];
        let utilisation = counted.iter().sum::<u64>() as f64 / (all * counted.len() as u64) as f64;
        let (several, exposed) = (self.several, self.exposed);
        println!(
            "{{\"bench\":\"month\",\"policy\":\"{name}\",\"nodes\":{},\"clusters\":{},\"utilisation\":{utilisation:.4},\
             \"over_several_units\":{several},\"of_these_exposed\":{exposed},\"seconds\":{seconds:.1}}}",
            self.nodes, self.ended
        );
        utilisation
    }
}
