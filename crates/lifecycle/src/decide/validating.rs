//! Validating: the checks pass, the provisioning key is taken off the machine, and the switch ports move to the customer's
//! network. A node of a cluster waits after its checks until the whole cluster is handed over.
//!
//! A node that was handed over before no longer has the provisioning key. It is checked from outside.

use super::{Ctx, Decision, Line, Never, Wait, take_edge};
use crate::chart::{Edge, State};
use crate::effect::{Effect, Network};
use crate::facts::Power;
use crate::time::{Timestamp, minutes};

impl Ctx<'_> {
    pub(super) fn validating(&self) -> Line<Never> {
        let handed_over = self
            .node
            .claim
            .as_ref()
            .is_some_and(|c| c.handed_over == Some(c.deployment));
        if handed_over {
            if self.facts.succeeded(Effect::ValidateFromOutside).is_some() {
                return Err(take_edge(Edge::Validated));
            }
            // The customer may have switched the machine off.
            if self.power_since(Timestamp::default())? == Power::Off {
                return Err(self.attempt(Effect::PowerOn));
            }
            return Err(self.attempt(Effect::ValidateFromOutside));
        }
        if let Some(taken_off) = self.facts.succeeded(Effect::HandOver) {
            self.in_network(Network::Customer, taken_off.ended_at.unwrap_or(taken_off.started_at))?;
            return Err(take_edge(Edge::Validated));
        }
        self.in_network(Network::Provisioning, Timestamp::default())?;
        if self.facts.succeeded(Effect::Validate).is_some() {
            if self.waits_for_cluster() {
                return Err(Decision::Wait {
                    why: Wait::Cluster,
                    until: self.now.plus(minutes(60)),
                });
            }
            return Err(self.attempt(Effect::HandOver));
        }
        Err(self.attempt(Effect::Validate))
    }

    /// The node passed its checks, and its cluster has not let it go yet.
    pub(super) fn waits_for_cluster(&self) -> bool {
        let cluster_claim = self.node.claim.as_ref().and_then(|claim| claim.cluster.as_ref());
        self.node.state == State::Validating
            && cluster_claim.is_some_and(|cluster_claim| cluster_claim.let_go.is_none())
            && self.facts.succeeded(Effect::Validate).is_some()
    }
}
