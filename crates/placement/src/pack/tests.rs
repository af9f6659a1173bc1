//! Packing against the enumeration of all choices, on small random programs.

use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng as _, SeedableRng as _};

use super::*;

/// The random numbers of one seed.
struct Dice(SplitMix64);

impl Dice {
    fn new(seed: u64) -> Self {
        Self(SplitMix64::from_seed(seed.to_le_bytes()))
    }

    fn roll(&mut self, from: u64, to: u64) -> u64 {
        from + self.0.next_u64() % (to - from + 1)
    }
}

fn program(dice: &mut Dice) -> (Vec<u32>, Vec<Row>) {
    let items = dice.roll(1, 6);
    let most: Vec<u32> = (0..items).map(|_| dice.roll(0, 5) as u32).collect();
    let rows = (0..dice.roll(0, 6)).map(|_| {
        let mut terms = Vec::new();
        for item in 0..items as u32 {
            if dice.roll(0, 2) > 0 {
                terms.push((item, dice.roll(1, 9) * 700));
            }
        }
        let left = dice.roll(0, 60_000);
        Row { left, terms }
    });
    let rows = rows.collect();
    (most, rows)
}

/// The most nodes, by trying every choice.
fn enumerated(most: &[u32], rows: &[Row], taken: &mut Vec<u32>) -> u32 {
    let Some(&next) = most.get(taken.len()) else {
        return taken.iter().sum();
    };
    let mut best = 0;
    for nodes in 0..=next {
        taken.push(nodes);
        if within(rows, taken) {
            best = best.max(enumerated(most, rows, taken));
        }
        taken.pop();
    }
    best
}

fn within(rows: &[Row], taken: &[u32]) -> bool {
    rows.iter().all(|row| {
        let known = row.terms.iter().filter(|term| (term.0 as usize) < taken.len());
        let sum: u64 = known.map(|&(item, each)| each * u64::from(taken[item as usize])).sum();
        sum <= row.left
    })
}

#[test]
fn the_most_nodes_are_found_and_proven() {
    let (mut short, mut full) = (0, 0);
    for seed in 0..3000 {
        let (most, rows) = program(&mut Dice::new(seed));
        let best = enumerated(&most, &rows, &mut Vec::new());
        let all: u32 = most.iter().sum();
        *(if best < all { &mut short } else { &mut full }) += 1;
        for wanted in [best, best + 1] {
            let packed = pack(most.clone(), rows.clone(), wanted, &mut Effort::new(100_000));
            assert!(
                packed.taken.iter().zip(&most).all(|(taken, most)| taken <= most),
                "seed {seed}"
            );
            assert!(within(&rows, &packed.taken), "seed {seed}: {packed:?}");
            assert_eq!(packed.taken.iter().sum::<u32>(), packed.found, "seed {seed}");
            if wanted == best {
                assert!(packed.found >= best, "seed {seed}: {packed:?}, but {best} fit");
            } else {
                assert_eq!(packed.bound, best, "seed {seed}: {packed:?}");
            }
        }
    }
    assert!(short > 1000 && full > 300, "{short} {full}");
}

/// Without effort for branches, the bound and the nodes are true, though they may differ.
#[test]
fn without_effort_the_bound_holds() {
    let mut gaps = 0;
    for seed in 0..1000 {
        let (most, rows) = program(&mut Dice::new(seed));
        let best = enumerated(&most, &rows, &mut Vec::new());
        let packed = pack(most, rows.clone(), best + 1, &mut Effort::new(0));
        assert!(within(&rows, &packed.taken), "seed {seed}: {packed:?}");
        assert!(
            packed.found <= best && best <= packed.bound,
            "seed {seed}: {packed:?}, {best}"
        );
        gaps += u32::from(packed.found < packed.bound);
    }
    assert!(gaps < 200, "{gaps}");
}

/// Two rows of a thousand racks each, and the feed above them: more cells than a relaxation may have.
#[test]
fn a_program_of_any_size_keeps_every_row() {
    let racks = 400u32;
    let most = vec![4; racks as usize];
    let mut rows: Vec<Row> = (0..racks / 2)
        .map(|pair| Row {
            left: 5_000 + u64::from(pair),
            terms: vec![(pair * 2, 1_000), (pair * 2 + 1, 1_000 + u64::from(pair % 7))],
        })
        .collect();
    rows.push(Row {
        left: 900_000,
        terms: (0..racks).map(|rack| (rack, 1_000 + u64::from(rack % 11))).collect(),
    });
    let packed = pack(most, rows.clone(), 1_600, &mut Effort::new(1_000));
    assert!(!packed.whole && within(&rows, &packed.taken), "{packed:?}");
    assert!(
        packed.found >= 880 && packed.bound >= packed.found && packed.bound < 1_600,
        "{packed:?}"
    );
}
