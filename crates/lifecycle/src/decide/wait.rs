//! The reasons for which a node waits: stored as data, displayed as text.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::effect::{Effect, Network};
use crate::limits::{Kind, Resource};

/// Why nothing is done at the moment.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Wait {
    /// At rest: for a request.
    #[default]
    Rest,
    /// For an effect under way.
    Effect(Effect),
    /// For the next try after a failure.
    Retry {
        /// What failed.
        effect: Effect,
        /// The failure's message.
        message: String,
    },
    /// For the power to settle.
    PowerSettling,
    /// For the memory of the switched-off machine to lose its content.
    PowerLoss,
    /// For the machine to boot into the agent.
    AgentBoot,
    /// For an agent that was connected a moment ago.
    AgentReturn,
    /// For a possible second machine with the same MAC address to show itself.
    SecondMachine,
    Inventory,
    /// For an operator's decision.
    Operator,
    /// The node is checked, and waits for the other nodes of its cluster.
    Cluster,
    /// For the maintenance window of the node's holder.
    Window,
    /// For room in a shared resource.
    Turn {
        resource: Resource,
        /// Permits taken.
        taken: u32,
        /// Permits in all.
        room: u32,
    },
    /// For the BMC to forget refused logins, so that it does not lock the account.
    Lockout,
    /// For alarms about the node's power and cooling to clear, before the machine may be switched on.
    Alarm {
        /// What is wrong, for people.
        why: String,
    },
    /// For a cable that is on another switch port than the site file states.
    Cable {
        /// Which cable, and where it is, for people.
        why: String,
    },
    /// For an operator to confirm or reject the node's record.
    Doubt {
        /// Why the record may not hold, for people.
        why: String,
    },
    /// For a new version of this program: the step reached an impossible point.
    Bug {
        /// The impossible point, for people.
        why: String,
    },
}

impl Wait {
    /// True for a wait that no time ends: the time of the next look at the node does not predict its end.
    #[must_use]
    pub fn is_open_ended(&self) -> bool {
        matches!(
            self,
            Self::Operator | Self::Turn { .. } | Self::Cluster | Self::Window | Self::Alarm { .. } | Self::Doubt { .. }
        )
    }

    /// True while the machine is expected to boot: into the agent, or into the installed system.
    #[must_use]
    pub fn is_for_a_boot(&self) -> bool {
        matches!(
            self,
            Self::AgentBoot | Self::AgentReturn | Self::Effect(Effect::SetBoot(_) | Effect::AwaitHost)
        )
    }

    /// The kind as a word, for metrics and for the database: without the message and the machine's name.
    #[must_use]
    pub fn label(&self) -> &'static str {
        match self {
            Self::Rest => "rest",
            Self::Effect(effect) => effect.as_str(),
            Self::Retry { .. } => "retry",
            Self::PowerSettling => "power-settling",
            Self::PowerLoss => "power-loss",
            Self::AgentBoot => "agent-boot",
            Self::AgentReturn => "agent-return",
            Self::SecondMachine => "second-machine",
            Self::Inventory => "inventory",
            Self::Operator => "operator",
            Self::Cluster => "cluster",
            Self::Window => "window",
            Self::Lockout => "lockout",
            Self::Alarm { .. } => "alarm",
            Self::Cable { .. } => "cable",
            Self::Doubt { .. } => "doubt",
            Self::Bug { .. } => "bug",
            Self::Turn { resource, .. } => match resource.kind {
                Kind::PowerOn => "power-turn",
                Kind::Image => "image-turn",
            },
        }
    }
}

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rest => f.write_str("nothing"),
            Self::Effect(effect) => f.write_str(match effect {
                Effect::Identify => "the BMC to report its identity",
                Effect::ObservePower => "the BMC to report the power state",
                Effect::SetBoot(_) => "the BMC to accept the boot target",
                Effect::PowerOn => "the machine to be switched on",
                Effect::PowerOff => "the machine to be switched off",
                Effect::WriteImage => "the agent to write the image",
                Effect::EraseDrives => "the agent to erase the drives",
                Effect::AwaitHost => "the installed system to answer",
                Effect::Validate | Effect::ValidateFromOutside => "the checks of the installed system",
                Effect::UpdateFirmware => "its firmware to be updated",
                Effect::ChangePassword => "the BMC to accept a new password",
                Effect::HandOver => "the provisioning key to be removed from the machine",
                Effect::ApplySettings => "the firmware settings to be written",
                Effect::ProvePowerOff => "the BMC to confirm that the machine is still off",
                Effect::ReadDrives => "the BMC to list the drives",
                Effect::ReadBmcState => "the BMC to report its accounts and settings",
                Effect::CleanBmc => "the BMC to be cleaned",
                Effect::VerifySettings => "the firmware settings to be read",
                Effect::SetNetwork(Network::Quarantine) => "its switch ports to be in quarantine",
                Effect::SetNetwork(Network::Provisioning) => "its switch ports to be in provisioning",
                Effect::SetNetwork(Network::Customer) => "its switch ports to be in its customer's network",
            }),
            Self::Retry { effect, message } => write!(f, "the next try of {}: {message}", effect.as_str()),
            Self::PowerSettling => f.write_str("the power to settle"),
            Self::PowerLoss => f.write_str("the memory to lose its data"),
            Self::AgentBoot => f.write_str("the machine to boot into the agent"),
            Self::AgentReturn => f.write_str("the agent to come back"),
            Self::SecondMachine => f.write_str("a second machine to answer for the boot"),
            Self::Inventory => f.write_str("the agent's inventory"),
            Self::Operator => f.write_str("an operator"),
            Self::Cluster => f.write_str("the other nodes of its cluster"),
            Self::Window => f.write_str("its maintenance window for firmware"),
            Self::Lockout => f.write_str("the BMC's login lockout to end"),
            Self::Alarm { why } => write!(f, "an alarm to clear: {why}"),
            Self::Cable { why } => write!(f, "a cable to be corrected: {why}"),
            Self::Doubt { why } => write!(f, "an operator to settle a doubt: {why}"),
            Self::Bug { why } => write!(f, "a new version of rackwrightd: {why} (a bug)"),
            Self::Turn { resource, taken, room } => {
                let turn = match resource.kind {
                    Kind::PowerOn => "its turn to be switched on",
                    Kind::Image => "its turn to fetch the image",
                };
                write!(f, "{turn}, in line at {}: {taken} of {room} in use", resource.scope)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::effect::BootTarget;
    use crate::limits::Scope;

    #[test]
    fn each_wait_is_stored_and_read_back_as_it_was() {
        let turn = |kind, scope| Wait::Turn {
            resource: Resource { kind, scope },
            taken: 4,
            room: 4,
        };
        let waits = [
            Wait::Rest,
            Wait::Effect(Effect::SetBoot(BootTarget::Network)),
            Wait::Effect(Effect::SetNetwork(Network::Customer)),
            Wait::Retry {
                effect: Effect::PowerOn,
                message: "the agent to write the image".into(),
            },
            Wait::AgentBoot,
            Wait::Cluster,
            turn(Kind::PowerOn, Scope::Circuit("C7".into())),
            turn(Kind::Image, Scope::Site),
            Wait::Alarm {
                why: "a leak at cdu/cdu-1: tray 2".into(),
            },
            Wait::Bug { why: "no edge".into() },
        ];
        for wait in waits {
            let text = serde_json::to_string(&wait).unwrap();
            assert_eq!(serde_json::from_str::<Wait>(&text).unwrap(), wait, "{text}");
        }
    }

    #[test]
    fn a_message_does_not_change_the_class_of_a_wait() {
        let retry = Wait::Retry {
            effect: Effect::Validate,
            message: "an operator".into(),
        };
        assert_eq!((retry.label(), retry.is_open_ended()), ("retry", false));
        assert!(Wait::Operator.is_open_ended() && Wait::AgentBoot.is_for_a_boot());
    }
}
