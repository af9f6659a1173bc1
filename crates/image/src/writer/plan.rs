//! Fits threads and buffers into the memory budget.

use std::fs;
use std::thread;

use super::WriteError;
use crate::codec::MAX_FRAME_BYTES;
use crate::index::{CHUNK_SIZE, Index};

/// Default budget; small machines use a quarter of their free memory if that is less.
pub(super) const DEFAULT_BUDGET: u64 = 256 << 20;
/// One buffer being filled and two in flight, 8 MiB per thread: enough to keep any drive busy.
const MAX_DEPTH: u64 = 3;
/// The packed chunk; the memory of zstd, HTTP and TLS; the thread's stack.
const PER_THREAD: u64 = MAX_FRAME_BYTES as u64 + STACK;
const STACK: u64 = 1 << 20;
const PER_BUFFER: u64 = CHUNK_SIZE as u64;
/// A download with other agents has at most this number of requests at once, each with a packed and an unpacked chunk.
const REQUESTS: u64 = 6;
const DOWNLOAD: u64 = REQUESTS * (MAX_FRAME_BYTES as u64 + PER_BUFFER);
/// Chunks for each thread that have arrived and wait: one is filled while the other waits.
const WAITING: u64 = 2;

/// The resources of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) threads: usize,
    /// Buffers per thread, each for one chunk.
    pub(super) depth: usize,
    /// Buffers between a download and the threads; 0 if each thread fetches its chunks itself.
    pub(super) waiting: usize,
}

impl Plan {
    /// Divides `budget` bytes. `threads` 0: one per core, between two (one fetches while the other decodes) and eight.
    pub(super) fn new(index: &Index, threads: usize, budget: u64) -> Result<Self, WriteError> {
        // Memory of the parsed index and the buffer of zeros.
        let shared = index.memory_bytes() + PER_BUFFER;
        let requested = match threads {
            0 => thread::available_parallelism().map_or(2, |n| n.get().clamp(2, 8)),
            given => given.min(64),
        };
        let left = budget.saturating_sub(shared);
        let depth_with = |threads: u64| (left / threads).saturating_sub(PER_THREAD) / PER_BUFFER;
        // With a single buffer, a thread waits for the drive before it can decode; fewer threads are better.
        let fits = |threads: &u64| depth_with(*threads) >= 2;
        let threads = (1..=requested as u64).rev().find(fits).unwrap_or(1);
        let depth = depth_with(threads).min(MAX_DEPTH);
        if depth == 0 {
            return Err(WriteError::MemoryBudget {
                budget,
                needed: shared + PER_THREAD + PER_BUFFER,
            });
        }
        Ok(Self {
            threads: threads as usize,
            depth: depth as usize,
            waiting: 0,
        })
    }

    /// Divides `budget` bytes among a download and the threads that write what has arrived. `threads` 0: one per core,
    /// between two and four.
    pub(super) fn of_arrivals(index: &Index, threads: usize, budget: u64) -> Result<Self, WriteError> {
        // Memory of the parsed index, the buffer of zeros, and the first chunk of the disk.
        let shared = index.memory_bytes() + 2 * PER_BUFFER + DOWNLOAD;
        let requested = match threads {
            0 => thread::available_parallelism().map_or(2, |n| n.get().clamp(2, 4)),
            given => given.min(64),
        };
        let left = budget.saturating_sub(shared);
        let depth_with = |threads: u64| ((left / threads).saturating_sub(STACK) / PER_BUFFER).saturating_sub(WAITING);
        let threads = (1..=requested as u64).rev().find(|threads| depth_with(*threads) >= 2);
        let threads = threads.unwrap_or(1);
        let depth = depth_with(threads).min(MAX_DEPTH);
        if depth == 0 {
            return Err(WriteError::MemoryBudget {
                budget,
                needed: shared + STACK + (1 + WAITING) * PER_BUFFER,
            });
        }
        Ok(Self {
            threads: threads as usize,
            depth: depth as usize,
            waiting: (WAITING * threads) as usize,
        })
    }

    /// Memory limit of the run in bytes.
    pub(super) fn memory_bytes(&self, index: &Index) -> u64 {
        let buffers = self.depth as u64 * PER_BUFFER;
        let (once, per_thread) = match self.waiting {
            0 => (PER_BUFFER, PER_THREAD + buffers),
            waiting => (2 * PER_BUFFER + DOWNLOAD + waiting as u64 * PER_BUFFER, STACK + buffers),
        };
        index.memory_bytes() + once + self.threads as u64 * per_thread
    }
}

/// The default budget: small machines keep three quarters of their free memory.
pub(super) fn default_budget() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let available = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = available.and_then(|rest| rest.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    kib.map_or(DEFAULT_BUDGET / 4, |kib| (kib * 1024 / 4).min(DEFAULT_BUDGET))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Format, Sha256};

    fn plan(threads: usize, budget_mib: u64) -> Result<Plan, WriteError> {
        let index = Index::new(1 << 30, Format::Raw, Sha256([0; 32]), vec![]).unwrap();
        let plan = Plan::new(&index, threads, budget_mib << 20);
        if let Ok(plan) = &plan {
            assert!(plan.memory_bytes(&index) <= budget_mib << 20);
        }
        plan
    }

    fn fetching(threads: usize, depth: usize) -> Plan {
        Plan {
            threads,
            depth,
            waiting: 0,
        }
    }

    #[test]
    fn the_budget_of_arrivals_is_kept_and_covers_the_download() {
        let index = Index::new(1 << 30, Format::Raw, Sha256([0; 32]), vec![]).unwrap();
        let plan = |threads, budget_mib: u64| {
            let plan = Plan::of_arrivals(&index, threads, budget_mib << 20)?;
            assert!(plan.memory_bytes(&index) <= budget_mib << 20, "{plan:?}");
            Ok::<_, WriteError>((plan.threads, plan.depth, plan.waiting))
        };
        assert_eq!(plan(4, 256).unwrap(), (4, 3, 8));
        assert_eq!(plan(4, 128).unwrap(), (4, 2, 8));
        assert_eq!(plan(4, 96).unwrap(), (2, 2, 4));
        let error = plan(4, 48).unwrap_err();
        let WriteError::MemoryBudget { needed, .. } = error else {
            panic!("{error}")
        };
        assert_eq!(plan(4, needed.div_ceil(1 << 20)).unwrap(), (1, 1, 2));
    }

    #[test]
    fn the_budget_is_kept_and_divided_sensibly() {
        assert_eq!(plan(4, 256).unwrap(), fetching(4, 3));
        assert_eq!(plan(4, 64).unwrap(), fetching(4, 2));
        assert_eq!(plan(8, 64).unwrap(), fetching(4, 2));
        assert_eq!(plan(4, 32).unwrap(), fetching(2, 2));
        assert_eq!(plan(4, 16).unwrap(), fetching(1, 1));
        let error = plan(4, 8).unwrap_err();
        assert_eq!(error.code(), "memory-budget");
        assert!(matches!(error, WriteError::MemoryBudget { needed, .. } if plan(4, needed.div_ceil(1 << 20)).is_ok()));
    }
}
