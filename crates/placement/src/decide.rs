//! The decision: a placement, or the reason for a refusal.

use super::exact;
use super::hall::Hall;
use super::propose::{GUESSES, Proposal, fewest_units, proposals};
use super::refuse;
use super::request::{Placement, Refusal, Request};
use super::shape::{self, Even};
use super::view::{Effort, View};

/// Maximum number of exact search steps of [`plan`] in a hall of more than [`SMALL`] nodes.
pub const STEPS: u64 = 14_000;
/// Maximum number of exact search steps of [`plan`] in a small hall.
pub const SMALL_STEPS: u64 = 1_000_000;
/// Maximum number of nodes of a small hall. There, every unit's budgets are checked first.
pub const SMALL: usize = 2_048;

/// Places a cluster: on the fewest units, then in the fewest pods, then with the largest unbroken rest.
///
/// # Errors
/// The constraint in the way, the shortfall, and requests that would fit.
pub fn plan(hall: &Hall, request: &Request) -> Result<Placement, Refusal> {
    let small = hall.spec.nodes.len() <= SMALL;
    plan_within(hall, request, if small { SMALL_STEPS } else { STEPS })
}

/// Like [`plan`], with a limit on exact search steps. More steps give more certainty.
///
/// # Errors
/// Those of [`plan`].
pub fn plan_within(hall: &Hall, request: &Request, steps: u64) -> Result<Placement, Refusal> {
    if let Some(refusal) = refuse::immediate_refusal(hall, request) {
        return Err(refusal);
    }
    let mut effort = Effort::new(steps);
    match attempt(hall, request, &mut effort) {
        Some(placement) => Ok(placement),
        None => Err(refuse::explain(hall, request, effort)),
    }
}

/// Like [`plan_within`], without a reason for a refusal. Faster if there is no placement.
#[must_use]
pub fn find(hall: &Hall, request: &Request, steps: u64) -> Option<Placement> {
    let sound = refuse::immediate_refusal(hall, request).is_none();
    sound.then(|| attempt(hall, request, &mut Effort::new(steps))).flatten()
}

/// Searches a placement.
pub(super) fn attempt(hall: &Hall, request: &Request, effort: &mut Effort) -> Option<Placement> {
    let watts = hall.spec.skus[request.sku.at()].watts * u64::from(request.size());
    if hall.contract_left(request) < watts {
        return None;
    }
    let mut view = View::new(hall, request);
    if view.cap_of_fabric() < view.size {
        return None;
    }
    // A limit on nodes under one label applies in every unit.
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

/// The best valid proposal.
fn guess(view: &mut View, effort: &mut Effort) -> Option<Placement> {
    let mut lowered = 0;
    'anew: loop {
        for proposal in proposals(view, &mut effort.reached).into_iter().take(GUESSES) {
            let Proposal { even, odd, .. } = &proposal;
            let all = Even::of(view.hall, even);
            // Guesses use no search steps.
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
