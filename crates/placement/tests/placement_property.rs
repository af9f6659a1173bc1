//! Placements in random halls keep every budget, share nothing that is dedicated, and route all traffic on their own
//! links. The judge works from the definitions.

#![allow(clippy::unwrap_used)] // helpers of tests fail loudly

mod placement_common;

use placement_common::{Dice, Size, TINY, judge, request, used_hall};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use rackwright_placement::*;

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 1500,
        failure_persistence: None,
        // The halls are the same in every run, unless another seed is set.
        rng_seed: RngSeed::Fixed(placement_common::seed()),
        ..ProptestConfig::default()
    })]

    #[test]
    fn what_is_taken_keeps_every_promise(seed: u64) {
        let (mut hall, mut dice) = used_hall(seed, TINY);
        prop_assert_eq!(judge(&hall), Vec::<String>::new());
        let wish = request(&mut dice, hall.spec(), 100);
        let before = format!("{hall:?}");
        match plan(&hall, &wish) {
            Ok(placement) => {
                prop_assert_eq!(&placement, &plan(&hall, &wish).unwrap(), "the same question has the same answer");
                hall.take(&placement).unwrap();
                prop_assert_eq!(judge(&hall), Vec::<String>::new());
                prop_assert!(hall.take(&placement).is_err(), "nothing is taken twice");
                hall.free(wish.cluster).unwrap();
                prop_assert_eq!(without_maps(&format!("{hall:?}")), without_maps(&before));
            }
            Err(refusal) => {
                prop_assert!(!refusal.to_string().is_empty());
                for nearest in &refusal.nearest {
                    let placement = plan(&hall, &nearest.request);
                    prop_assert!(placement.is_ok(), "{refusal} does not fit");
                    let mut other = hall.clone();
                    other.take(&placement.unwrap()).unwrap();
                    prop_assert_eq!(judge(&other), Vec::<String>::new());
                }
            }
        }
    }

    #[test]
    fn a_smaller_request_fits_where_a_greater_does(seed: u64) {
        let (hall, mut dice) = used_hall(seed, TINY);
        let wish = request(&mut dice, hall.spec(), 100);
        if plan(&hall, &wish).is_ok() && wish.nodes > 1 {
            let smaller = Request { nodes: wish.nodes - 1, ..wish };
            prop_assert!(plan(&hall, &smaller).is_ok());
        }
    }
}

/// The order of the hash map with the customers' draws is not part of the hall.
fn without_maps(text: &str) -> String {
    let at = text.find("customers: {").unwrap();
    let end = at + text[at..].find('}').unwrap();
    let mut inner: Vec<_> = text[at + 12..end].split(", ").collect();
    inner.sort_unstable();
    format!("{}{}{}", &text[..at], inner.join(", "), &text[end..])
}

/// A changed placement is refused, and the hall stays unchanged.
#[test]
fn a_placement_that_was_tampered_with_is_not_taken() {
    let size = Size {
        pods: (2, 3),
        units: (2, 4),
        hosts: (3, 5),
        parallel: 1,
    };
    let mut refused = 0;
    for seed in 0..400 {
        let (mut hall, mut dice) = used_hall(seed, size);
        let wish = request(&mut dice, hall.spec(), 100);
        let Ok(placement) = plan(&hall, &wish) else { continue };
        for tampered in tamperings(&placement, &mut dice) {
            let before = format!("{hall:?}");
            if hall.take(&tampered).is_err() {
                refused += 1;
                assert_eq!(before, format!("{hall:?}"));
            } else {
                assert_eq!(judge(&hall), Vec::<String>::new(), "seed {seed}");
                hall.free(wish.cluster).unwrap();
            }
        }
    }
    assert!(refused > 500, "{refused}");
}

fn tamperings(placement: &Placement, dice: &mut Dice) -> Vec<Placement> {
    let mut out = Vec::new();
    let mut with = |change: &dyn Fn(&mut Placement)| {
        let mut other = placement.clone();
        change(&mut other);
        out.push(other);
    };
    let (a, b) = (dice.next() as usize % placement.units.len(), dice.next());
    with(&|p| p.nodes[0] = NodeId(p.nodes[0].0 + 1));
    with(&|p| p.units[a].links &= p.units[a].links.wrapping_sub(1));
    with(&|p| p.units[a].links ^= 1 << (b % 5));
    with(&|p| p.units[a].hosts <<= 1);
    with(&|p| {
        p.cores.pop();
    });
    with(&|p| {
        if let Some(share) = p.cores.first_mut() {
            share.links <<= 1;
        }
    });
    with(&|p| p.request.nodes += 1);
    out
}
