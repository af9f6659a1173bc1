//! Faults of a network boot, and of the agent that runs after the boot.

use super::{During, Kind, Lost, Moment, Script, Then};
use std::time::Duration;

impl Script {
    /// The lost part of this DHCP exchange; `None`: nothing is lost.
    pub(in crate::fleet) fn dhcp(&self, moment: Moment<'_>) -> Option<Lost> {
        self.first(moment, |rule| match rule.kind {
            Kind::DhcpLost(lost) => Some(lost),
            _ => None,
        })
    }

    /// Whether this TFTP packet is lost. `Request` is a packet from firmware, `Answer` a packet from the server.
    pub(in crate::fleet) fn tftp(&self, lost: Lost, moment: Moment<'_>) -> bool {
        self.any(Kind::TftpLost(lost), moment)
    }

    /// The lost part of an HTTP fetch during boot; `None`: nothing is lost. `path` is the path that the machine requests.
    pub(in crate::fleet) fn boot_http(&self, path: &str, moment: Moment<'_>) -> Option<Lost> {
        self.first(moment, |rule| match rule.kind {
            Kind::HttpLost(lost) => {
                let matches = rule
                    .path
                    .as_ref()
                    .is_none_or(|prefix| path.starts_with(prefix.as_str()));
                matches.then_some(lost)
            }
            _ => None,
        })
    }

    /// The state of the machine after a crash of its agent during `at`; `None`: the agent does not crash.
    pub(in crate::fleet) fn agent_crash(&self, at: During, moment: Moment<'_>) -> Option<Then> {
        self.first(moment, |rule| match rule.kind {
            Kind::AgentCrash(during, then) if during == at => Some(then),
            _ => None,
        })
    }

    /// The time without data between agent and control plane, from this heartbeat on, in the machine's time.
    pub(in crate::fleet) fn heartbeat_lost(&self, moment: Moment<'_>) -> Option<Duration> {
        self.first(moment, |rule| match rule.kind {
            Kind::HeartbeatLost(time) => Some(time),
            _ => None,
        })
    }

    /// The number of answer bytes after which this connection to the image store ends.
    pub(in crate::fleet) fn image_cut(&self, moment: Moment<'_>) -> Option<u64> {
        self.first(moment, |rule| match rule.kind {
            Kind::ImageCut(bytes) => Some(bytes),
            _ => None,
        })
    }

    /// Whether this write of an image fails.
    pub(in crate::fleet) fn write_fails(&self, moment: Moment<'_>) -> bool {
        self.any(Kind::WriteErrors, moment)
    }

    /// Whether the script has faults for this machine's connections to the control plane or the image store.
    pub(in crate::fleet) fn has_connection_faults(&self, node: usize) -> bool {
        let is_connection_fault = |kind| matches!(kind, Kind::HeartbeatLost(_) | Kind::ImageCut(_));
        self.rules
            .iter()
            .any(|rule| is_connection_fault(rule.kind) && rule.nodes.contain(node))
    }

    /// Whether the script has a crash of this machine's agent with a restart in the same boot.
    pub(in crate::fleet) fn has_agent_restarts(&self, node: usize) -> bool {
        let restarts = |kind| matches!(kind, Kind::AgentCrash(_, Then::Restarts));
        self.rules
            .iter()
            .any(|rule| restarts(rule.kind) && rule.nodes.contain(node))
    }
}
