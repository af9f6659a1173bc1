//! Switch ports: the network that a node's ports must be in, by the node's state.
//!
//! | state | network |
//! |---|---|
//! | inspecting, imaging | provisioning, read in this state before the machine is switched on |
//! | rebooting, validating | provisioning until the provisioning key is off the machine, then the customer's |
//! | active, and held or failed after the hand-over | the customer's |
//! | reclaiming | quarantine before the machine is switched off, provisioning before it is switched on |
//! | quarantined | quarantine |
//! | available, and held or failed before a hand-over | provisioning |
//!
//! A port that cannot be moved or read holds the node where it is. The state's deadline ends that wait.

use super::{Ctx, Decision, Line, Wait};
use crate::chart::State;
use crate::effect::{Effect, Network};
use crate::facts::{Outcome, Power, Reading};
use crate::time::Timestamp;

impl Ctx<'_> {
    /// All ports of the node were read in this network, at or after `since`.
    pub(super) fn in_network(&self, network: Network, since: Timestamp) -> Line<()> {
        if !self.facts.manages_ports || self.facts.network.fresh(since) == Some(&network) {
            return Ok(());
        }
        Err(self.retry_forever(Effect::SetNetwork(network)))
    }

    /// No card of the node hears another switch port than the site file states, where the site holds such nodes back. A
    /// card that hears nothing is no fault: many switches do not send LLDP. The node goes on when the cable is put right,
    /// or waits until the state's deadline.
    pub(super) fn cabled(&self) -> Line<()> {
        let Some(why) = self.facts.miscabled.clone() else {
            return Ok(());
        };
        let deadline = self.policy.state_deadline(self.node.state, self.node.since);
        let until = deadline.map(|at| at.plus(self.facts.in_line_us + self.updating_us()));
        Err(Decision::Wait {
            why: Wait::Cable { why },
            until: until.unwrap_or(Timestamp::END),
        })
    }

    /// The customer's system still runs: its ports leave the customer's network first of all. A switch that refuses does
    /// not keep the machine on: the ports are moved while the machine is off, before the boot into the agent.
    pub(super) fn away_from_customer(&self) -> Line<()> {
        let away = Effect::SetNetwork(Network::Quarantine);
        let has_ended = |outcome: &Outcome| matches!(outcome, Outcome::Succeeded | Outcome::Failed { .. });
        let is_tried = self.facts.of(away).any(|attempt| has_ended(&attempt.outcome));
        let is_done = is_tried || self.facts.of(Effect::PowerOn).next().is_some();
        let is_off = self.facts.power.fresh(self.node.since) == Some(&Power::Off);
        if !self.facts.manages_ports || is_done || is_off {
            return Ok(());
        }
        Err(Decision::Act(away))
    }

    /// The network of a node at rest. If the ports of a node were never set, the node keeps its network while its customer
    /// has it: the hand-over was before the control plane set ports.
    pub(super) fn network_at_rest(&self) -> Line<()> {
        let claim = self.node.claim.as_ref();
        let handed_over = claim.is_some_and(|claim| claim.handed_over == Some(claim.deployment));
        match self.node.state {
            State::Quarantined => self.in_network(Network::Quarantine, Timestamp::default()),
            _ if handed_over && self.facts.network == Reading::Never => Ok(()),
            _ if handed_over => self.in_network(Network::Customer, Timestamp::default()),
            _ => self.in_network(Network::Provisioning, Timestamp::default()),
        }
    }
}
