//! 300 small halls, each made irregular by taking parts away and adding parts. `site validate` names exactly these
//! parts with their cost, placement is as good as an exact solver, and every cluster routes all its traffic on cables that
//! are there. The hall that the planner makes of the site file is compared with the parts that the small hall has, so that
//! the solver does not take over what the reading of the file loses.

#![allow(clippy::unwrap_used)] // helpers of tests fail loudly

mod irregular_common;
#[path = "../../placement/tests/placement_common/mod.rs"]
mod placement_common;
mod small_hall;

use std::collections::BTreeMap;
use std::path::Path;

use irregular_common::{read, sound};
use placement_common::{Dice, exact};
use rackwright_placement::{Bandwidth, ClusterId, CustomerId, Request, SkuId};
use rackwright_planner::planner::{Planner, Refused};
use rackwright_site::file::Source;
use rackwright_site::finding::Severity;
use small_hall::{SURVIVES_FEED_LOSS, SmallHall};

const HALLS: u64 = 300;

/// The texts of all warnings, and none is an error.
fn warnings(seed: u64, text: &str) -> Vec<String> {
    let name = "site.yaml";
    let findings = rackwright_planner::check(&[Source { name, text }]).findings;
    assert_eq!(findings.errors, 0, "hall {seed}: {:?}", findings.list);
    let warnings = findings
        .list
        .into_iter()
        .filter(|one| one.severity == Severity::Warning);
    warnings.map(|one| one.what).collect()
}

/// Every warning has an expected part, and every expected part has a warning.
fn compare_warnings(seed: u64, hall: &SmallHall) {
    let warnings = warnings(seed, &hall.text());
    let expected = hall.expected();
    for warning in &warnings {
        let is_expected = expected.iter().any(|one| one.matches(warning));
        assert!(
            is_expected,
            "hall {seed} warns of a sound part: {warning}\nexpected: {expected:#?}"
        );
    }
    for one in &expected {
        let is_told = warnings.iter().any(|warning| one.matches(warning));
        assert!(is_told, "hall {seed} has no warning like {one:?}: {warnings:#?}");
    }
}

/// A request of one of the two customers, of which one has the promise to survive the loss of a feed. Half of the requests
/// are non-blocking.
fn wish(dice: &mut Dice, number: u64, most: u64) -> Request {
    let nodes = dice.roll(1, most) as u32;
    let customer = CustomerId(dice.roll(0, 1) as u32);
    let bandwidth = match dice.roll(0, 3) {
        0 => Bandwidth::Ratio { down: 2, up: 1 },
        1 => Bandwidth::BestEffort,
        _ => Bandwidth::FULL,
    };
    Request {
        bandwidth,
        ..Request::plain(ClusterId(number), customer, SkuId(0), nodes)
    }
}

/// The request with the promise of its customer, as the hall's own site file gives it.
fn promised(request: &Request) -> Request {
    Request {
        survives_feed_loss: request.customer.0 == SURVIVES_FEED_LOSS,
        ..request.clone()
    }
}

/// The last requests, counted by what they ask for and by the answer.
type Asked = BTreeMap<(String, bool, &'static str), u32>;

/// Some clusters come, some go, and the answer to a last request becomes an instance for the solver.
fn place(seed: u64, hall: &SmallHall, dice: &mut Dice, asked: &mut Asked) -> String {
    let site = read(&hall.text());
    let mut planner = Planner::new(&site).unwrap();
    hall.compare(planner.hall());
    let nodes = hall.node_count();
    for number in 0..dice.roll(0, 4) {
        let request = wish(dice, number, nodes / 2);
        let placed = planner.place(request);
        if placed.is_ok() && dice.chance(30) {
            planner.release(ClusterId(number)).unwrap();
        }
    }
    for placement in planner.hall().clusters().values() {
        assert_eq!(placement.request, promised(&placement.request), "hall {seed}");
    }
    let request = wish(dice, 100, nodes);
    let before = planner.hall().clone();
    let answer = match planner.place(request.clone()) {
        Ok(placement) => Ok(placement.units.len()),
        Err(Refused::Placement(refusal)) => Err(refusal.proven),
        Err(other) => panic!("hall {seed}: placement knows every limit of the hall: {other}"),
    };
    sound(&planner, &site);
    let request = promised(&request);
    let is_placed = if answer.is_ok() { "placed" } else { "refused" };
    *asked
        .entry((
            format!("{:?}", request.bandwidth),
            request.survives_feed_loss,
            is_placed,
        ))
        .or_default() += 1;
    exact::instance(seed, &before, &request, answer)
}

#[test]
fn a_regular_small_hall_has_no_warning() {
    for seed in 0..20 {
        let hall = SmallHall::regular(&mut Dice::new(seed));
        assert_eq!(warnings(seed, &hall.text()), Vec::<String>::new(), "hall {seed}");
    }
}

#[test]
fn three_hundred_irregular_halls_are_named_placed_and_routed() {
    let (mut kinds, mut asked) = (BTreeMap::<&str, u32>::new(), Asked::new());
    let mut instances = Vec::new();
    for seed in 0..HALLS {
        let mut dice = Dice::new(seed);
        let mut hall = SmallHall::regular(&mut dice);
        for kind in hall.change(&mut dice) {
            *kinds.entry(kind).or_default() += 1;
        }
        compare_warnings(seed, &hall);
        instances.push(place(seed, &hall, &mut dice, &mut asked));
    }
    println!("{kinds:?}\n{asked:?}");
    // Every kind of change occurs often enough to be tried beside the others.
    assert_eq!(kinds.len(), small_hall::KINDS.len(), "{kinds:?}");
    assert!(kinds.values().all(|count| *count >= 20), "{kinds:?}");
    // Three bandwidths, with and without the promise, placed and refused.
    assert!(
        asked.len() == 12 && asked.values().all(|count| *count >= 10),
        "{asked:?}"
    );
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    exact::compare(folder, "irregular-halls.jsonl", &instances);
}
