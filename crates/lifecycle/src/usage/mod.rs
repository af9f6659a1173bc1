//! What of a node's life counts as its customer's use: which edges begin and end it, and what part of it is under a
//! reserved term. Whole seconds only, so that sums are exact.
//!
//! A node is in use while it is `active`, and while it goes from `active` through a reimage back to it. Everything else
//! is not: a first deployment, a failure, a repair, a quarantine. `docs/metering.md` gives the reasons.

mod split;
#[cfg(test)]
mod tests;

use crate::chart::Edge;
use crate::node::{Claim, Node};
use crate::time::{Timestamp, seconds};

pub use split::{InUse, Reserved, Share, split};

/// Whom a node works for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Holder {
    /// Empty: nobody in particular.
    pub customer: String,
    /// Empty: it was deployed by itself.
    pub cluster: String,
}

impl Holder {
    /// As the claim has it.
    #[must_use]
    pub fn of(claim: Option<&Claim>) -> Self {
        let seat = claim.and_then(|claim| claim.cluster.as_ref());
        Self {
            customer: claim.map(|claim| claim.customer.clone()).unwrap_or_default(),
            cluster: seat.map(|seat| seat.cluster.clone()).unwrap_or_default(),
        }
    }
}

/// What an edge does to the use of a node. Each is safe to apply twice: nothing is begun that runs, nothing ended that does
/// not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// In use by the holder from here on; one that is running for this holder goes on.
    Begin(Holder),
    /// One that is running goes on if it is this holder's, and else ends here.
    Keep(Holder),
    /// One that is running ends here.
    End,
}

/// What taking `edge` from `before` to `after` does to the use of the node; None: nothing.
#[must_use]
pub fn effect_of(edge: Edge, before: &Node, after: &Node) -> Option<Effect> {
    match edge {
        Edge::Validated => Some(Effect::Begin(Holder::of(after.claim.as_ref()))),
        // The same machine may be wanted for somebody else from here on.
        Edge::Reimaged => Some(Effect::Keep(Holder::of(after.claim.as_ref()))),
        _ if before.state.may_be_used() && !after.state.may_be_used() => Some(Effect::End),
        _ => None,
    }
}

/// The second that a moment lies in, since 1970 UTC. Every edge is cut down the same way: what follows another in time
/// never begins before it ended, and of an edge that ends one use and begins another both get the same second.
#[must_use]
pub fn second_of(at: Timestamp) -> i64 {
    at.0.div_euclid(seconds(1))
}
