//! Random numbers from a seed (SplitMix64: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014).

use std::sync::{Mutex, PoisonError};

use rackwright_identity::{Rng, RngError};
use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng as _, SeedableRng as _};

/// The random numbers of one seed.
#[derive(Debug)]
pub struct Chance(Mutex<SplitMix64>);

impl Chance {
    pub fn new(seed: u64) -> Self {
        Self(Mutex::new(SplitMix64::from_seed(seed.to_le_bytes())))
    }

    fn next(&self) -> u64 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).next_u64()
    }

    /// A number from 0 up to, but not including, `below`.
    pub fn below(&self, below: usize) -> usize {
        let below = u64::try_from(below.max(1)).unwrap_or(1);
        usize::try_from(self.next() % below).unwrap_or(0)
    }

    /// True in `times` of a thousand cases.
    pub fn of_1000(&self, times: usize) -> bool {
        self.below(1000) < times
    }

    /// A time in microseconds between two numbers of milliseconds.
    pub fn millis(&self, least: usize, most: usize) -> i64 {
        i64::try_from(least + self.below(most - least + 1)).unwrap_or(0) * 1000
    }
}

impl Rng for Chance {
    fn fill(&self, bytes: &mut [u8]) -> Result<(), RngError> {
        for chunk in bytes.chunks_mut(8) {
            let random = self.next().to_le_bytes();
            chunk.copy_from_slice(&random[..chunk.len()]);
        }
        Ok(())
    }
}
