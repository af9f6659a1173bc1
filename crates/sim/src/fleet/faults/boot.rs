//! Faults of a network boot and of the agent that it starts.

use super::{During, Kind, Lost, Moment, Script, Then};
use std::time::Duration;

impl Script {
    /// The lost part of a DHCP exchange.
    pub(in crate::fleet) fn dhcp(&self, moment: Moment<'_>) -> Option<Lost> {
        self.first(moment, |rule| match rule.kind {
            Kind::DhcpLost(lost) => Some(lost),
            _ => None,
        })
    }

    /// Whether a packet of this direction, between firmware and the TFTP server, is lost.
    pub(in crate::fleet) fn tftp(&self, lost: Lost, moment: Moment<'_>) -> bool {
        self.any(Kind::TftpLost(lost), moment)
    }

    /// The lost part of an HTTP fetch; `path` is the firmware's request.
    pub(in crate::fleet) fn boot_http(&self, path: &str, moment: Moment<'_>) -> Option<Lost> {
        self.first(moment, |rule| match rule.kind {
            Kind::HttpLost(lost) => {
                let meant = rule.path.as_ref().is_none_or(|begin| path.starts_with(begin.as_str()));
                meant.then_some(lost)
            }
            _ => None,
        })
    }

    /// The machine's fate if its agent crashes here.
    pub(in crate::fleet) fn agent_crash(&self, at: During, moment: Moment<'_>) -> Option<Then> {
        self.first(moment, |rule| match rule.kind {
            Kind::AgentCrash(during, then) if during == at => Some(then),
            _ => None,
        })
    }

    /// How long the agent is cut off from this heartbeat, in the machine's time.
    pub(in crate::fleet) fn heartbeat_lost(&self, moment: Moment<'_>) -> Option<Duration> {
        self.first(moment, |rule| match rule.kind {
            Kind::HeartbeatLost(time) => Some(time),
            _ => None,
        })
    }

    /// The number of answer bytes after which a connection to the image store ends.
    pub(in crate::fleet) fn image_cut(&self, moment: Moment<'_>) -> Option<u64> {
        self.first(moment, |rule| match rule.kind {
            Kind::ImageCut(bytes) => Some(bytes),
            _ => None,
        })
    }

    /// Whether writing an image fails.
    pub(in crate::fleet) fn write_fails(&self, moment: Moment<'_>) -> bool {
        self.any(Kind::WriteErrors, moment)
    }

    /// Whether the machine's connections to the control plane may be disturbed, now or later.
    pub(in crate::fleet) fn spoils_connections(&self, node: usize) -> bool {
        let breaks = |kind| matches!(kind, Kind::HeartbeatLost(_) | Kind::ImageCut(_));
        self.rules
            .iter()
            .any(|rule| breaks(rule.kind) && rule.nodes.contain(node))
    }

    /// Whether the machine's agent may crash and be restarted in the same boot.
    pub(in crate::fleet) fn restarts_agents(&self, node: usize) -> bool {
        let restarts = |kind| matches!(kind, Kind::AgentCrash(_, Then::Restarts));
        self.rules
            .iter()
            .any(|rule| restarts(rule.kind) && rule.nodes.contain(node))
    }
}
