//! What a node can be waiting for, in words.

use std::fmt;

use crate::effect::{Effect, Network};
use crate::limits::{Kind, Resource};

/// What the text of a wait for another try begins with.
const RETRY: &str = "the next try of ";
/// What the texts of waits in line begin with.
const POWER_TURN: &str = "its turn to be switched on";
const IMAGE_TURN: &str = "its turn to fetch the image";

/// Why nothing is done at the moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wait {
    /// At rest: for somebody to want something.
    Rest,
    /// For an effect under way.
    Effect(Effect),
    /// For the next try after a failure.
    Retry {
        /// What failed.
        effect: Effect,
        /// How.
        message: String,
    },
    /// For the power to settle.
    PowerSettling,
    /// For the memory of the machine, which is off, to lose what it holds.
    PowerLoss,
    /// For the machine to boot into the agent.
    AgentBoot,
    /// For an agent that was there a moment ago.
    AgentReturn,
    /// For a second machine with the same MAC address to show itself, if there is one.
    SecondMachine,
    /// For the agent's inventory.
    Inventory,
    /// For an operator, who has to decide.
    Operator,
    /// Checked: for the other nodes of its cluster.
    Cluster,
    /// For the maintenance window of whoever has it.
    Window,
    /// For room in what it shares with others.
    Turn {
        /// In what.
        resource: Resource,
        /// So many have a place in it.
        taken: u32,
        /// So many have room.
        room: u32,
    },
    /// For refused logins to be forgotten by the BMC, so that its account is not locked.
    Lockout,
    /// For alarms about what it hangs on to clear, before it may be switched on.
    Alarm {
        /// What is wrong.
        why: String,
    },
    /// For a cable that is on another switch port than the site file says.
    Cable {
        /// Which, and where it is.
        why: String,
    },
    /// For an operator to say whether the node's record holds.
    Doubt {
        /// Why it may not hold.
        why: String,
    },
}

impl Wait {
    /// What the text of a wait for alarms to clear begins with.
    pub const ALARM: &str = "an alarm to clear: ";
    /// What the text of a wait for a cable begins with.
    const CABLE: &str = "a cable to be put right: ";
    /// What the text of a doubted node's wait begins with.
    const DOUBT: &str = "an operator to settle a doubt: ";

    /// So many characters of a wait's text tell it from every other, whatever message follows.
    pub const HEAD: usize = 36;

    /// The label of the wait that a text, or its first `HEAD` characters, came from; "other" when it came from none. No
    /// text is that of a node at rest.
    #[must_use]
    pub fn label_of(text: &str) -> &'static str {
        if text.is_empty() {
            return Self::Rest.label();
        }
        if text.starts_with(RETRY) {
            return "retry";
        }
        if text.starts_with(POWER_TURN) {
            return "power-turn";
        }
        if text.starts_with(Self::ALARM) {
            return "alarm";
        }
        if text.starts_with(Self::CABLE) {
            return "cable";
        }
        if text.starts_with(Self::DOUBT) {
            return "doubt";
        }
        if text.starts_with(IMAGE_TURN) {
            return "image-turn";
        }
        let fixed = [
            Self::PowerSettling,
            Self::PowerLoss,
            Self::AgentBoot,
            Self::AgentReturn,
            Self::SecondMachine,
            Self::Inventory,
            Self::Operator,
            Self::Cluster,
            Self::Window,
            Self::Lockout,
        ];
        let effects = Effect::ALL.iter().copied().map(Self::Effect);
        let found = fixed.into_iter().chain(effects).find(|wait| wait.to_string() == text);
        found.map_or("other", |wait| wait.label())
    }

    /// True for the text of a wait that no time ends: that the node is looked at again meanwhile tells nothing.
    #[must_use]
    pub fn is_open_ended(text: &str) -> bool {
        matches!(
            Self::label_of(text),
            "operator" | "power-turn" | "image-turn" | "cluster" | "window" | "alarm" | "doubt"
        )
    }

    /// A word for metrics: never the machine, never the message.
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
                Effect::Identify => "the BMC to say who it is",
                Effect::ObservePower => "the BMC to tell the power state",
                Effect::SetBoot(_) => "the BMC to take the boot target",
                Effect::PowerOn => "the machine to be switched on",
                Effect::PowerOff => "the machine to be switched off",
                Effect::WriteImage => "the agent to write the image",
                Effect::EraseDrives => "the agent to erase the drives",
                Effect::AwaitHost => "the installed system to answer",
                Effect::Validate | Effect::ValidateFromOutside => "the checks of the installed system",
                Effect::UpdateFirmware => "its firmware to be updated",
                Effect::ChangePassword => "the BMC to take a new password",
                Effect::HandOver => "our key to be taken off the machine",
                Effect::ApplySettings => "the firmware settings to be written",
                Effect::ProvePowerOff => "the BMC to say that it is still off",
                Effect::ReadDrives => "the BMC to list the drives",
                Effect::ReadBmcState => "the BMC to say who can use it",
                Effect::CleanBmc => "the BMC to be cleaned",
                Effect::VerifySettings => "the firmware settings to be read",
                Effect::SetNetwork(Network::Quarantine) => "its switch ports in quarantine",
                Effect::SetNetwork(Network::Provisioning) => "its switch ports in provisioning",
                Effect::SetNetwork(Network::Customer) => "its switch ports at its customer",
            }),
            Self::Retry { effect, message } => write!(f, "{RETRY}{}: {message}", effect.as_str()),
            Self::PowerSettling => f.write_str("the power to settle"),
            Self::PowerLoss => f.write_str("the memory to lose what it holds"),
            Self::AgentBoot => f.write_str("the machine to boot into the agent"),
            Self::AgentReturn => f.write_str("the agent to come back"),
            Self::SecondMachine => f.write_str("a second machine to show itself"),
            Self::Inventory => f.write_str("the agent's inventory"),
            Self::Operator => f.write_str("an operator"),
            Self::Cluster => f.write_str("the other nodes of its cluster"),
            Self::Window => f.write_str("its maintenance window for firmware"),
            Self::Lockout => f.write_str("the BMC to forget refused logins"),
            Self::Alarm { why } => write!(f, "{}{why}", Self::ALARM),
            Self::Cable { why } => write!(f, "{}{why}", Self::CABLE),
            Self::Doubt { why } => write!(f, "{}{why}", Self::DOUBT),
            Self::Turn { resource, taken, room } => {
                let turn = match resource.kind {
                    Kind::PowerOn => POWER_TURN,
                    Kind::Image => IMAGE_TURN,
                };
                write!(f, "{turn}, in line at {}: {taken} of {room} in use", resource.scope)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::Scope;

    #[test]
    fn the_head_of_a_text_tells_what_is_waited_for() {
        let effects = Effect::ALL.iter().copied();
        let retries = effects.clone().map(|effect| Wait::Retry {
            effect,
            message: "the agent to write the image".into(),
        });
        let others = [
            Wait::PowerSettling,
            Wait::PowerLoss,
            Wait::AgentBoot,
            Wait::AgentReturn,
            Wait::SecondMachine,
            Wait::Inventory,
            Wait::Operator,
            Wait::Cluster,
            Wait::Window,
            Wait::Lockout,
        ];
        let alarms = [
            Wait::Alarm {
                why: "a leak at cdu/cdu-1: tray 2".into(),
            },
            Wait::Doubt {
                why: "the database was restored".into(),
            },
            Wait::Cable {
                why: "eth0 is on leaf-1/swp2".into(),
            },
        ];
        let effects = effects.map(Wait::Effect);
        let turns = Kind::ALL.iter().map(|kind| Wait::Turn {
            resource: Resource {
                kind: *kind,
                scope: Scope::Circuit("C7".into()),
            },
            taken: 4,
            room: 4,
        });
        let waits: Vec<Wait> = others
            .into_iter()
            .chain(effects)
            .chain(retries)
            .chain(turns)
            .chain(alarms)
            .collect();
        for wait in &waits {
            let text = wait.to_string();
            let head: String = text.chars().take(Wait::HEAD).collect();
            // Some read the same: the boot target to be set, and the two ways to validate.
            let same = waits.iter().filter(|other| other.to_string() == text);
            let labels: Vec<_> = same.map(Wait::label).collect();
            assert!(labels.contains(&Wait::label_of(&head)), "{head:?}: {labels:?}");
        }
        assert_eq!(Wait::label_of(""), "rest");
        assert_eq!(Wait::label_of("the moon"), "other");
    }
}
