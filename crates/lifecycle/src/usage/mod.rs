//! The part of a node's life that counts as its customer's use: the edges that begin and end it, and the part under a
//! reserved term. Whole seconds only, so that sums are exact.
//!
//! A node is in use while it is `active`, and while a reimage takes it from `active` back to `active`. A first deployment,
//! a failure, a repair and a quarantine are not use. `docs/metering.md` gives the reasons.

mod split;
#[cfg(test)]
mod tests;

use crate::chart::Edge;
use crate::ids::{ClusterId, CustomerId};
use crate::node::{Claim, Node};
use crate::time::{Timestamp, seconds};

pub use split::{InUse, Reserved, Share, split};

/// The customer and the cluster that a node works for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Holder {
    /// Empty: no customer in particular.
    pub customer: CustomerId,
    /// None: the node was deployed alone.
    pub cluster: Option<ClusterId>,
}

impl Holder {
    /// The holder by the claim.
    #[must_use]
    pub fn of(claim: Option<&Claim>) -> Self {
        let cluster_claim = claim.and_then(|claim| claim.cluster.as_ref());
        Self {
            customer: claim.map(|claim| claim.customer.clone()).unwrap_or_default(),
            cluster: cluster_claim.map(|cluster_claim| cluster_claim.cluster.clone()),
        }
    }
}

/// The effect of an edge on the use of a node. Each is idempotent: a running use is not begun again, and an absent use is
/// not ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// In use by the holder from here on; a running use of the same holder continues.
    Begin(Holder),
    /// A running use continues if it is this holder's, and ends here otherwise.
    Keep(Holder),
    /// A running use ends here.
    End,
}

/// The effect of taking `edge` from `before` to `after` on the use of the node; None: no effect.
#[must_use]
pub fn effect_of(edge: Edge, before: &Node, after: &Node) -> Option<Effect> {
    match edge {
        Edge::Validated => Some(Effect::Begin(Holder::of(after.claim.as_ref()))),
        // From here on the machine may be wanted for another holder.
        Edge::Reimaged => Some(Effect::Keep(Holder::of(after.claim.as_ref()))),
        _ if before.state.may_be_used() && !after.state.may_be_used() => Some(Effect::End),
        _ => None,
    }
}

/// The second that contains a moment, since 1970 UTC. Every edge is rounded down the same way: a later use never begins
/// before the earlier one ended, and an edge that ends one use and begins another gives both the same second.
#[must_use]
pub fn second_of(at: Timestamp) -> i64 {
    at.0.div_euclid(seconds(1))
}
