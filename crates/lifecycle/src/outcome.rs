//! The effect of an edge on the node, and when a request has ended.

use crate::chart::{Edge, State};
pub use crate::decide::{firmware_outcome, power_outcome};
use crate::node::Node;
use crate::time::Timestamp;

/// The node after `edge`, or None where the chart has no such edge from its state.
#[must_use]
pub fn apply(node: &Node, edge: Edge, now: Timestamp) -> Option<Node> {
    let mut next = node.clone();
    next.state = edge.target(node.state)?;
    next.since = now;
    next.wanted.power = None;
    next.wanted.firmware = None;
    match edge {
        Edge::Inspected => next.evidence.clean_at = Some(now),
        Edge::Written => {
            let claim = node.claim.as_ref();
            next.evidence.image_digest = claim.map(|c| c.image_digest.clone());
            next.evidence.deployment = claim.map(|c| c.deployment);
        }
        Edge::Validated => {
            if let Some(claim) = &mut next.claim {
                claim.handed_over = Some(claim.deployment);
            }
        }
        Edge::Released | Edge::Readmitted => {
            // The operator has agreed to lose everything on the machine: its record holds again from here.
            next.believe();
            next.generation += 1;
            next.wanted.readmit = false;
            next.wanted.reinspect = false;
            next.wanted.retry = false;
            next.wanted.resume = false;
        }
        Edge::Erased => {
            next.claim = None;
            next.evidence.clean_at = Some(now);
            next.evidence.erased_at = Some(now);
            next.evidence.image_digest = None;
            next.evidence.deployment = None;
            next.evidence.drives.clear();
        }
        Edge::Unclaimed => next.claim = None,
        Edge::Held => {
            next.wanted.hold = None;
            next.wanted.reinspect = false;
        }
        // Earlier requests do not disturb the new holder.
        Edge::Claimed => next.wanted.reinspect = false,
        Edge::Condemned => {
            // Only a request made after the quarantine ends it.
            next.wanted.condemn = None;
            next.wanted.readmit = false;
            next.wanted.reinspect = false;
            next.wanted.hold = None;
        }
        Edge::Retried | Edge::Reinspect | Edge::Revalidate | Edge::Failed => {
            next.wanted.retry = false;
            next.wanted.resume = false;
            next.wanted.reinspect = false;
        }
        Edge::Enrolled | Edge::Started | Edge::HostUp | Edge::Reimaged => {}
    }
    Some(next)
}

/// A request about one node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request {
    /// Under management and inspected: ends in available.
    Enroll,
    /// Handed over with the wanted image: ends in active.
    Deploy,
    /// Erased and free: ends in available.
    Release,
    /// Back in service: ends in available or active.
    Resume,
    /// Settings of its firmware written and verified: ends in available, by way of another inspection.
    Settings,
}

impl Request {
    /// How the request ended now that the node is in `state`; None while it has not. The error is the state that ended it.
    #[must_use]
    pub fn ended(self, state: State) -> Option<Result<(), State>> {
        let good = match self {
            Self::Enroll | Self::Release | Self::Settings => state == State::Available,
            Self::Deploy => state == State::Active,
            Self::Resume => matches!(state, State::Available | State::Active),
        };
        if good {
            return Some(Ok(()));
        }
        let bad = match self {
            Self::Deploy => matches!(
                state,
                State::Failed | State::Quarantined | State::Maintenance | State::Reclaiming | State::Available
            ),
            Self::Settings => state != State::Inspecting,
            Self::Enroll | Self::Release | Self::Resume => {
                matches!(state, State::Failed | State::Quarantined | State::Maintenance)
            }
        };
        bad.then_some(Err(state))
    }
}
