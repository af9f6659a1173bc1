//! The decision: a placement, or why there is none.

use super::exact;
use super::hall::Hall;
use super::propose::{GUESSES, Proposal, fewest_units, proposals};
use super::refuse;
use super::request::{Placement, Refusal, Request};
use super::shape::{self, Even};
use super::view::{Effort, View};

/// Steps of exact search that [`plan`] goes in a hall of more than [`SMALL`] nodes.
pub const STEPS: u64 = 20_000;
/// The same in a small hall.
pub const SMALL_STEPS: u64 = 1_000_000;
/// So many nodes are a small hall: there every unit's budgets are looked at before anything else.
pub const SMALL: usize = 2_048;

/// Where the cluster fits: the fewest units, then the fewest pods, then where it leaves the largest whole parts.
///
/// # Errors
/// Says which constraint is in the way, by how much, and what would fit.
pub fn plan(hall: &Hall, request: &Request) -> Result<Placement, Refusal> {
    let small = hall.spec.nodes.len() <= SMALL;
    plan_within(hall, request, if small { SMALL_STEPS } else { STEPS })
}

/// As [`plan`], with so many steps of exact search: more steps, more certainty.
///
/// # Errors
/// As [`plan`].
pub fn plan_within(hall: &Hall, request: &Request, steps: u64) -> Result<Placement, Refusal> {
    if let Some(refusal) = refuse::at_once(hall, request) {
        return Err(refusal);
    }
    let mut effort = Effort::new(steps);
    match attempt(hall, request, &mut effort) {
        Some(placement) => Ok(placement),
        None => Err(refuse::explain(hall, request, effort)),
    }
}

/// A placement or nothing, without a word on why: quicker where the answer is no. The steps are those of [`plan_within`].
#[must_use]
pub fn find(hall: &Hall, request: &Request, steps: u64) -> Option<Placement> {
    let sound = refuse::at_once(hall, request).is_none();
    sound.then(|| attempt(hall, request, &mut Effort::new(steps))).flatten()
}

/// A placement, if one is found.
pub(super) fn attempt(hall: &Hall, request: &Request, effort: &mut Effort) -> Option<Placement> {
    let watts = hall.spec.skus[request.sku.at()].watts * u64::from(request.size());
    if hall.contract_left(request) < watts {
        return None;
    }
    let mut view = View::new(hall, request);
    if view.cap() < view.size {
        return None;
    }
    // A bound on nodes under one label binds in every unit.
    if (hall.spec.nodes.len() <= SMALL && view.is_tight()) || !view.spread.is_empty() {
        view.tighten();
    }
    let guess = guess(&mut view, effort);
    let fewest = fewest_units(&view)?;
    let below = guess.as_ref().map_or(usize::MAX, |g| g.units.len());
    if fewest >= below {
        return guess;
    }
    exact::search(&view, effort, fewest, below).or(guess)
}

/// The best proposal that holds.
fn guess(view: &mut View, effort: &mut Effort) -> Option<Placement> {
    let mut lowered = 0;
    'anew: loop {
        for proposal in proposals(view, &mut effort.reached).into_iter().take(GUESSES) {
            let Proposal { even, odd, .. } = &proposal;
            let all = Even::of(view.hall, even);
            // Guesses do not search.
            let mut quick = Effort::new(0);
            let placement = shape::on_units(view, &mut quick, &all, *odd);
            effort.reached = effort.reached.max(quick.reached);
            if placement.is_some() {
                return placement;
            }
            let concerned: Vec<u32> = even.iter().chain([odd]).copied().collect();
            if view.tighten_some(&concerned) {
                lowered += 1;
                if lowered == 4 {
                    view.tighten();
                }
                continue 'anew;
            }
        }
        return None;
    }
}
