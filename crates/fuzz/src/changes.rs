//! Changed copies of good inputs, for tests that need many malformed ones: the same seed gives the same copy.

use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng as _, SeedableRng as _};

/// The random numbers of one seed.
#[derive(Debug, Clone)]
pub struct Numbers(SplitMix64);

impl Numbers {
    /// The numbers of a seed.
    pub fn of(seed: u64) -> Self {
        Self(SplitMix64::from_seed(seed.to_le_bytes()))
    }

    /// A number from 0 to `end`, without `end`; 0 if `end` is 0.
    pub fn below(&mut self, end: usize) -> usize {
        (self.0.next_u64() % end.max(1) as u64) as usize
    }
}

/// A copy with one to eight changes: a bit, a byte at the edge of a range, a piece repeated or removed, the end cut off.
#[must_use]
pub fn changed(input: &[u8], numbers: &mut Numbers) -> Vec<u8> {
    let mut bytes = input.to_vec();
    for _ in 0..=numbers.below(8) {
        if bytes.is_empty() {
            return bytes;
        }
        let at = numbers.below(bytes.len());
        let end = at + numbers.below((bytes.len() - at).min(64));
        match numbers.below(5) {
            0 => bytes[at] ^= 1 << numbers.below(8),
            1 => bytes[at] = [0, 1, 0x7f, 0x80, 0xff, b'\n', b' ', b':'][numbers.below(8)],
            2 => {
                let piece = bytes[at..end].to_vec();
                let to = numbers.below(bytes.len());
                bytes.splice(to..to, piece);
            }
            3 => drop(bytes.drain(at..end)),
            _ => bytes.truncate(at + 1),
        }
    }
    bytes
}
