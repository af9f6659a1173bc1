//! Tests the rule against its meaning: accepted shapes route every pattern, and shapes listed as bad do not.

#![allow(clippy::unwrap_used)] // helpers of tests fail loudly

mod placement_common;

use placement_common::{Dice, Own};
use rackwright_placement::*;

fn wirings(spines: u32, parallel: u32, cores: u32) -> Wirings {
    Wirings {
        spines: Wiring {
            peers: spines,
            parallel,
        },
        cores: Wiring {
            peers: cores,
            parallel: 1,
        },
    }
}

/// Units of one pod: nodes and links.
fn units(shape: &[(u32, Mask)]) -> Vec<UnitShare> {
    let share = |(i, &(nodes, links)): (usize, &(u32, Mask))| UnitShare {
        unit: UnitId(i as u32),
        pod: PodId(0),
        hosts: low(nodes),
        links,
    };
    shape.iter().enumerate().map(share).collect()
}

fn routes(spines: u32, shape: &[(u32, Mask)]) -> bool {
    Own::of(wirings(spines, 1, 0), &units(shape), &[])
        .unroutable()
        .is_none()
}

fn accepted(spines: u32, shape: &[(u32, Mask)]) -> bool {
    check(wirings(spines, 1, 0), Bandwidth::FULL, &units(shape), &[]).is_ok()
}

#[test]
fn shapes_that_are_told_of_behave_as_told() {
    let good: [&[(u32, Mask)]; 7] = [
        &[(3, 0b111), (3, 0b111), (1, 0b100)],
        &[(3, 0b111), (2, 0b111), (1, 0b001)],
        &[(2, 0b110), (2, 0b110)],
        &[(5, 0b000)],
        // A big unit needs no more links than there are nodes in other units.
        &[(6, 0b1), (1, 0b1)],
        &[(5, 0b11), (2, 0b11)],
        &[(4, 0b111), (2, 0b111), (1, 0b010)],
    ];
    for shape in good {
        assert!(accepted(3, shape) && routes(3, shape), "{shape:?}");
    }
    let bad: [&[(u32, Mask)]; 4] = [
        // As many links as nodes, with all units different.
        &[(3, 0b111), (2, 0b011), (1, 0b001)],
        &[(3, 0b111), (2, 0b011), (1, 0b100)],
        // The odd unit has a link that the others lack.
        &[(2, 0b011), (2, 0b011), (1, 0b100)],
        &[(2, 0b011), (2, 0b110)],
    ];
    for shape in bad {
        assert!(!accepted(3, shape) && !routes(3, shape), "{shape:?}");
    }
}

/// With exactly as many links as nodes, (3,2,1), (3,2,2) and (2,1,1) cannot route every pattern with any choice of
/// links.
#[test]
fn uneven_shapes_without_spare_links_never_get_through() {
    for counts in [[3, 2, 1], [3, 2, 2], [2, 1, 1]] {
        let of = |n: u32| (0..8u128).filter(move |m| m.count_ones() == n);
        for a in of(counts[0]) {
            for b in of(counts[1]) {
                for c in of(counts[2]) {
                    let shape = [(counts[0], a), (counts[1], b), (counts[2], c)];
                    assert!(!routes(3, &shape), "{shape:?}");
                }
            }
        }
    }
}

#[test]
fn whatever_the_rule_accepts_in_one_pod_gets_through() {
    let mut dice = Dice::new(7);
    let (mut yes, mut no) = (0, 0);
    for _ in 0..6000 {
        let common = u128::from(dice.roll(1, 15));
        let shape: Vec<_> = (0..dice.roll(2, 4))
            .map(|_| {
                let links = if dice.chance(70) {
                    common
                } else {
                    u128::from(dice.roll(0, 15))
                };
                (dice.roll(1, 3) as u32, links)
            })
            .collect();
        if shape.iter().map(|s| s.0).sum::<u32>() > 7 {
            continue;
        }
        if accepted(4, &shape) {
            yes += 1;
            assert!(routes(4, &shape), "{shape:?}");
        } else {
            no += 1;
        }
    }
    assert!(yes > 500 && no > 500, "{yes} {no}");
}

#[test]
fn parallel_links_count_and_their_order_does_not() {
    let wirings = wirings(2, 2, 0);
    // Bits 0 and 2 go to the first spine, 1 and 3 to the second.
    let good = units(&[(2, 0b0101), (2, 0b0101), (1, 0b0100)]);
    let crossed = units(&[(2, 0b0101), (2, 0b1001)]);
    assert!(check(wirings, Bandwidth::FULL, &good, &[]).is_ok());
    assert!(Own::of(wirings, &good, &[]).unroutable().is_none());
    assert_eq!(check(wirings, Bandwidth::FULL, &crossed, &[]), Err(Breach::Units));
    assert!(Own::of(wirings, &crossed, &[]).unroutable().is_some());
}

#[test]
fn whatever_the_rule_accepts_over_pods_gets_through() {
    let mut dice = Dice::new(11);
    let wirings = wirings(2, 1, 3);
    let (mut yes, mut no, mut needed) = (0, 0, 0);
    for _ in 0..12_000 {
        let common = u128::from(dice.roll(1, 3));
        let mut units = Vec::new();
        for i in 0..dice.roll(2, 5) as u32 {
            let links = if dice.chance(85) {
                common
            } else {
                u128::from(dice.roll(0, 3))
            };
            let hosts = low(dice.roll(1, 2) as u32);
            units.push(UnitShare {
                unit: UnitId(i),
                pod: PodId(dice.roll(0, 2) as u32),
                hosts,
                links,
            });
        }
        let all: u32 = units.iter().map(|u| u.hosts.count_ones()).sum();
        if all > 7 {
            continue;
        }
        let plane = [dice.roll(0, 7), dice.roll(0, 7)];
        let mut cores = Vec::new();
        for pod in 0..3 {
            for spine in 0..2 {
                let links = u128::from(if dice.chance(75) {
                    plane[spine as usize]
                } else {
                    dice.roll(0, 7)
                });
                cores.push(SpineShare {
                    pod: PodId(pod),
                    spine,
                    links,
                });
            }
        }
        if check(wirings, Bandwidth::FULL, &units, &cores).is_ok() {
            yes += 1;
            let own = Own::of(wirings, &units, &cores);
            assert_eq!(own.unroutable(), None, "{units:?} {cores:?}");
            let several = units.iter().any(|u| u.pod != units[0].pod);
            needed += u32::from(several && Own::of(wirings, &units, &[]).unroutable().is_some());
        } else {
            no += 1;
        }
    }
    assert!(yes > 1000 && no > 1000 && needed > 300, "{yes} {no} {needed}");
}
