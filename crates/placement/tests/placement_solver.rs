//! A thousand small random halls compared with an exact solver: no refusal if a placement exists, and the fewest
//! units.
//!
//! `RACKWRIGHT_HALLS` sets another number of halls.

#![allow(clippy::unwrap_used)] // helpers of tests fail loudly

mod placement_common;

use std::path::Path;

use placement_common::feed_loss::{feed_loss_hall, feed_loss_request};
use placement_common::{Size, TINY, exact, request, used_hall};
use rackwright_placement::*;

const HALLS: u64 = 1000;
const FEED_LOSS_HALLS: u64 = 300;

#[test]
fn nothing_is_refused_that_fits_and_no_unit_is_wasted() {
    let halls = std::env::var("RACKWRIGHT_HALLS").map_or(HALLS, |n| n.parse().unwrap());
    let instances: Vec<String> = (0..halls).map(instance).collect();
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    exact::compare(folder, "placement-instances.jsonl", &instances);
}

/// Nodes take unequal parts of the budgets that are scarce after the loss of a feed. Which nodes are left out decides how
/// many fit.
#[test]
fn nothing_is_refused_that_fits_after_the_loss_of_a_feed() {
    let of_seed = |seed: u64| {
        let (hall, mut dice) = feed_loss_hall(seed);
        let wish = feed_loss_request(&mut dice, &hall, 100);
        answered(seed, &hall, &wish)
    };
    let instances: Vec<String> = (0..FEED_LOSS_HALLS).map(of_seed).collect();
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    exact::compare(folder, "placement-feed-loss.jsonl", &instances);
}

fn instance(seed: u64) -> String {
    // Every third hall has fewer pods with more and wider units.
    let wide = Size {
        pods: (1, 2),
        units: (3, 6),
        hosts: (3, 8),
        parallel: 2,
    };
    let (hall, mut dice) = used_hall(seed, if seed.is_multiple_of(3) { wide } else { TINY });
    let wish = request(&mut dice, hall.spec(), 100);
    answered(seed, &hall, &wish)
}

fn answered(seed: u64, hall: &Hall, wish: &Request) -> String {
    let answer = plan(hall, wish).map(|placement| placement.units.len());
    exact::instance(seed, hall, wish, answer.map_err(|refusal| refusal.proven))
}
