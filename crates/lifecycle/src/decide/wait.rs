//! What a node can be waiting for, in words.

use std::fmt;

use crate::effect::Effect;

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
    /// For the machine to boot into the agent.
    AgentBoot,
    /// For an agent that was there a moment ago.
    AgentReturn,
    /// For the agent's inventory.
    Inventory,
    /// For an operator, who has to decide.
    Operator,
}

impl Wait {
    /// A word for metrics: never the machine, never the message.
    #[must_use]
    pub fn label(&self) -> &'static str {
        match self {
            Self::Rest => "rest",
            Self::Effect(effect) => effect.as_str(),
            Self::Retry { .. } => "retry",
            Self::PowerSettling => "power-settling",
            Self::AgentBoot => "agent-boot",
            Self::AgentReturn => "agent-return",
            Self::Inventory => "inventory",
            Self::Operator => "operator",
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
                Effect::HandOver => "our key to be taken off the machine",
            }),
            Self::Retry { effect, message } => write!(f, "the next try of {}: {message}", effect.as_str()),
            Self::PowerSettling => f.write_str("the power to settle"),
            Self::AgentBoot => f.write_str("the machine to boot into the agent"),
            Self::AgentReturn => f.write_str("the agent to come back"),
            Self::Inventory => f.write_str("the agent's inventory"),
            Self::Operator => f.write_str("an operator"),
        }
    }
}
