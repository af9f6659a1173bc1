//! Runs the seeds of a test on all processors.

use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

use super::{Figures, Run, process};

/// The story of one seed.
pub(super) type Story = fn(u64, &Path) -> (Figures, Vec<String>, Vec<String>);

/// The processors that this process may use.
fn cpus() -> Vec<usize> {
    let allowed = sched_getaffinity(Pid::from_raw(0)).expect("the processors can be asked for");
    (0..CpuSet::count())
        .filter(|cpu| allowed.is_set(*cpu).unwrap_or(false))
        .collect()
}

/// A run alternates between its thread and the database's thread at every statement, and never uses both at once. On one
/// processor that costs a fifth less.
fn pin_to_cpu(cpu: usize) {
    let mut set = CpuSet::new();
    set.set(cpu).expect("a processor of this machine");
    sched_setaffinity(Pid::from_raw(0), &set).expect("the thread can be bound to a processor");
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Runs `RACKWRIGHT_SEED` alone and prints its trace; without it, `usual` seeds, or as many as `RACKWRIGHT_SEEDS` says.
/// Returns the number of seeds and the sum of their figures.
pub(super) fn run(usual: u64, story: Story) -> (u64, Figures) {
    let (first, count) = match number("RACKWRIGHT_SEED") {
        Some(seed) => (seed, 1),
        None => (0, number("RACKWRIGHT_SEEDS").unwrap_or(usual)),
    };
    let (next, total) = (AtomicU64::new(first), Mutex::new(Figures::default()));
    let (next, total) = (&next, &total);
    std::thread::scope(|scope| {
        for cpu in cpus() {
            scope.spawn(move || {
                pin_to_cpu(cpu);
                let dir = process::folder();
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= first + count {
                        return;
                    }
                    let (figures, wrong, trace) = story(seed, dir.path());
                    if count == 1 {
                        println!("{}", trace.join("\n"));
                    }
                    if !wrong.is_empty() {
                        // One failed seed is enough.
                        next.store(first + count, Ordering::Relaxed);
                    }
                    assert!(wrong.is_empty(), "seed {seed}: {}", wrong.join("\n"));
                    total.lock().expect("no thread failed").add(&figures);
                }
            });
        }
    });
    let total = *total.lock().expect("no thread failed");
    println!("{count} seeds: {total:?}");
    (count, total)
}

/// Runs a future on a runtime of its own, in this thread.
pub(super) fn block_on<T>(story: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(story)
}

impl Run {
    /// Ends the replicas. Returns the figures, the violations and the trace.
    pub(super) async fn end(mut self) -> (Figures, Vec<String>, Vec<String>) {
        for process in &mut self.processes {
            process.end().await;
        }
        self.store.close().await;
        let wrong = std::mem::take(&mut self.fake.world().wrong);
        (self.figures, wrong, self.trace)
    }
}
