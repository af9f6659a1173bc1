//! Redfish values that a BMC and its machine share.

/// Power states of a machine; the names are those of Redfish's `PowerState`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PowerState {
    Off,
    PoweringOn,
    On,
    PoweringOff,
}

impl PowerState {
    /// The state as Redfish writes it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Off => "Off",
            Self::PoweringOn => "PoweringOn",
            Self::On => "On",
            Self::PoweringOff => "PoweringOff",
        }
    }
}

/// The target of a boot override.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BootTarget {
    Pxe,
    Hdd,
    Cd,
    UefiHttp,
}

impl BootTarget {
    /// All targets.
    pub const ALL: [Self; 4] = [Self::Pxe, Self::Hdd, Self::Cd, Self::UefiHttp];

    /// The target as Redfish writes it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pxe => "Pxe",
            Self::Hdd => "Hdd",
            Self::Cd => "Cd",
            Self::UefiHttp => "UefiHttp",
        }
    }
}

/// How long a boot override lasts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BootEnabled {
    Disabled,
    /// For the next boot.
    Once,
    Continuous,
}

impl BootEnabled {
    /// All values.
    pub const ALL: [Self; 3] = [Self::Disabled, Self::Once, Self::Continuous];

    /// The value as Redfish writes it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Disabled => "Disabled",
            Self::Once => "Once",
            Self::Continuous => "Continuous",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BootOverride {
    /// `None` is Redfish's target `None`.
    pub target: Option<BootTarget>,
    pub enabled: BootEnabled,
}

impl BootOverride {
    /// No override: the default order.
    pub const NONE: Self = Self {
        target: None,
        enabled: BootEnabled::Disabled,
    };

    /// The target of the next boot, if the override applies to it.
    pub fn effective(self) -> Option<BootTarget> {
        if self.enabled == BootEnabled::Disabled {
            None
        } else {
            self.target
        }
    }
}

/// Redfish's `ResetType`s that the lab's BMCs offer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResetType {
    On,
    ForceOff,
    GracefulShutdown,
    ForceRestart,
    PowerCycle,
}

impl ResetType {
    /// All reset types.
    pub const ALL: [Self; 5] = [
        Self::On,
        Self::ForceOff,
        Self::GracefulShutdown,
        Self::ForceRestart,
        Self::PowerCycle,
    ];

    /// The reset type as Redfish writes it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::On => "On",
            Self::ForceOff => "ForceOff",
            Self::GracefulShutdown => "GracefulShutdown",
            Self::ForceRestart => "ForceRestart",
            Self::PowerCycle => "PowerCycle",
        }
    }
}

/// Why a BMC refused a reset request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ResetRefused {
    /// The machine is already in the requested state, or this reset is not possible from its state.
    #[error("the machine is {power}, so {reset} does not apply")]
    WrongState { power: &'static str, reset: &'static str },
    /// The lab or the fleet was stopped.
    #[error("the machine's task has ended")]
    Stopped,
}
