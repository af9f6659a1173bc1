//! Randomness from a seed: a throw depends only on the seed, the node, its purpose and the number of earlier throws for
//! that purpose. So a run can be repeated, in whatever order its events occur.

use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng as _, SeedableRng as _};

/// The purpose of a throw. Throws for different purposes are independent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// The length of a machine's phase.
    Duration,
    /// The time of a BMC's answer.
    Answer,
    /// Whether fault number n of the script occurs.
    Fault(u32),
    /// The fleet's part of the machines' UUIDs.
    Uuid,
    BootId,
    /// The length of a drive's erase command.
    Erase,
    /// The time of an installed system's probe.
    Probe,
    /// The result of a network test.
    Traffic,
}

impl Purpose {
    fn number(self) -> u64 {
        match self {
            Self::Duration => 1,
            Self::Answer => 2,
            Self::Uuid => 3,
            Self::BootId => 4,
            Self::Erase => 5,
            Self::Probe => 6,
            Self::Traffic => 7,
            Self::Fault(number) => 1 << 32 | u64::from(number),
        }
    }
}

/// The fleet's seed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Dice(pub(super) u64);

impl Dice {
    /// 64 uniformly distributed bits.
    pub(super) fn draw(self, node: usize, purpose: Purpose, count: u64) -> u64 {
        [node as u64, purpose.number(), count]
            .into_iter()
            .fold(mix(self.0), |state, word| mix(state ^ mix(word)))
    }

    /// A number from 0 (included) to 1 (excluded).
    pub(super) fn fraction(self, node: usize, purpose: Purpose, count: u64) -> f64 {
        (self.draw(node, purpose, count) >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// A number in which every bit depends on every bit of `word`.
pub(super) fn mix(word: u64) -> u64 {
    SplitMix64::from_seed(word.to_le_bytes()).next_u64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_draw_is_repeatable_and_others_differ() {
        let dice = Dice(7);
        let first = dice.draw(3, Purpose::Duration, 1);
        assert_eq!(first, Dice(7).draw(3, Purpose::Duration, 1));
        for other in [
            dice.draw(4, Purpose::Duration, 1),
            dice.draw(3, Purpose::Answer, 1),
            dice.draw(3, Purpose::Duration, 2),
            Dice(8).draw(3, Purpose::Duration, 1),
            dice.draw(3, Purpose::Fault(1), 1),
        ] {
            assert_ne!(first, other);
        }
    }

    #[test]
    fn fractions_are_even() {
        let below = |limit: f64| {
            (0..10_000)
                .filter(|node| Dice(1).fraction(*node, Purpose::Answer, 1) < limit)
                .count()
        };
        for limit in [0.1, 0.5, 0.9] {
            let (found, wanted) = (below(limit) as f64, limit * 10_000.0);
            assert!((found - wanted).abs() < 200.0, "{found} of 10,000 below {limit}");
        }
    }
}
