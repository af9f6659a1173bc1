//! Imaging: a fresh boot into the agent, then the image is written.
//!
//! The boot must be one of this state: the job carries the customer's host key, user data and login keys, and an agent that
//! was there before may be an impostor.

use super::{Ctx, Line, Never, take_edge};
use crate::chart::Edge;
use crate::effect::{Effect, Network};

impl Ctx<'_> {
    pub(super) fn imaging(&self) -> Line<Never> {
        if self.uncontested(Effect::WriteImage).is_some() {
            // LLDP reaches the agent only while it runs; the installed system reports no cables to the control plane.
            self.cabled()?;
            return Err(take_edge(Edge::Written));
        }
        self.agent_of_this_state()?;
        self.no_second_machine()?;
        self.in_network(Network::Provisioning, self.node.since)?;
        self.cabled()?;
        Err(self.attempt(Effect::WriteImage))
    }
}
