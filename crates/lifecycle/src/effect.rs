//! The effects: actions on a machine.

use serde::{Deserialize, Serialize};

/// The source of a machine's next boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BootTarget {
    /// The network, once.
    Network,
    /// The machine's own boot order, which has the disk first.
    Disk,
}

/// A network of the site's Ethernet switches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Network {
    /// A network that reaches nothing.
    Quarantine,
    /// A network that reaches the control plane.
    Provisioning,
    /// The network of the cluster or the customer that has the node.
    Customer,
}

impl Network {
    /// The name as shown and stored.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Quarantine => "quarantine",
            Self::Provisioning => "provisioning",
            Self::Customer => "customer",
        }
    }
}

/// One thing to do. At most one is open per node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Effect {
    /// Read the BMC: the machine's identity, its MAC addresses, its power.
    Identify,
    /// Read the power state.
    ObservePower,
    /// Set where the machine boots from next.
    SetBoot(BootTarget),
    /// Switch on and see the machine on.
    PowerOn,
    /// Switch off and see the machine off.
    PowerOff,
    /// Read that the machine is still off, so that its memory has lost what it held.
    ProvePowerOff,
    /// Have the agent write the claim's image.
    WriteImage,
    /// Have the agent erase every drive.
    EraseDrives,
    /// Wait until the installed system accepts the provisioning key.
    AwaitHost,
    /// Check the installed system from within.
    Validate,
    /// Check a system that was handed over before, from outside: its power and its SSH host key.
    ValidateFromOutside,
    /// Take the provisioning key off the machine and prove that it no longer opens the machine.
    HandOver,
    /// Read the settings of the firmware and write those that differ from the wanted ones; they take effect at the next
    /// start.
    ApplySettings,
    /// Read the BMC's list of drives, with the machine on.
    ReadDrives,
    /// Read the foreign things on the BMC, and change nothing.
    ReadBmcState,
    /// Remove the foreign things from the BMC, and prove by a second reading that they are gone.
    CleanBmc,
    /// Read the settings of the firmware after a start, and verify them.
    VerifySettings,
    /// Bring the firmware to the versions that the SKU wants, one component after the other. Reads the installed versions
    /// first, continues an update that the BMC has begun, and reads back.
    UpdateFirmware,
    /// Move the node's switch ports to a network, and read them back in it.
    SetNetwork(Network),
    /// Give the BMC a new password of the control plane and prove it; first find the valid one where that is unknown.
    ChangePassword,
}

/// How an effect may be repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EffectClass {
    /// Changes nothing.
    Observe,
    /// Sets something and reads it back.
    Level,
    /// Done by the agent only, once per operation id.
    Once,
}

impl Effect {
    /// How this effect may be repeated.
    #[must_use]
    pub fn class(self) -> EffectClass {
        match self {
            Self::Identify
            | Self::ObservePower
            | Self::ProvePowerOff
            | Self::AwaitHost
            | Self::Validate
            | Self::ValidateFromOutside
            | Self::ReadDrives
            | Self::ReadBmcState
            | Self::VerifySettings => EffectClass::Observe,
            Self::SetBoot(_)
            | Self::PowerOn
            | Self::PowerOff
            | Self::HandOver
            | Self::ApplySettings
            | Self::CleanBmc
            | Self::UpdateFirmware
            | Self::SetNetwork(_)
            | Self::ChangePassword => EffectClass::Level,
            Self::WriteImage | Self::EraseDrives => EffectClass::Once,
        }
    }

    /// The name as stored, logged and counted.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Identify => "identify",
            Self::ObservePower => "observe-power",
            Self::SetBoot(BootTarget::Network) => "set-boot-network",
            Self::SetBoot(BootTarget::Disk) => "set-boot-disk",
            Self::PowerOn => "power-on",
            Self::PowerOff => "power-off",
            Self::ProvePowerOff => "prove-power-off",
            Self::WriteImage => "write-image",
            Self::EraseDrives => "erase-drives",
            Self::AwaitHost => "await-host",
            Self::Validate => "validate",
            Self::ValidateFromOutside => "validate-from-outside",
            Self::HandOver => "hand-over",
            Self::ApplySettings => "apply-settings",
            Self::ReadDrives => "read-drives",
            Self::ReadBmcState => "read-bmc-state",
            Self::CleanBmc => "clean-bmc",
            Self::VerifySettings => "verify-settings",
            Self::UpdateFirmware => "update-firmware",
            Self::SetNetwork(Network::Quarantine) => "set-network-quarantine",
            Self::SetNetwork(Network::Provisioning) => "set-network-provisioning",
            Self::SetNetwork(Network::Customer) => "set-network-customer",
            Self::ChangePassword => "change-bmc-password",
        }
    }

    /// Every effect.
    pub const ALL: &'static [Self] = &[
        Self::Identify,
        Self::ObservePower,
        Self::SetBoot(BootTarget::Network),
        Self::SetBoot(BootTarget::Disk),
        Self::PowerOn,
        Self::PowerOff,
        Self::ProvePowerOff,
        Self::WriteImage,
        Self::EraseDrives,
        Self::AwaitHost,
        Self::Validate,
        Self::ValidateFromOutside,
        Self::HandOver,
        Self::ApplySettings,
        Self::ReadDrives,
        Self::ReadBmcState,
        Self::CleanBmc,
        Self::VerifySettings,
        Self::UpdateFirmware,
        Self::SetNetwork(Network::Quarantine),
        Self::SetNetwork(Network::Provisioning),
        Self::SetNetwork(Network::Customer),
        Self::ChangePassword,
    ];

    /// The effect with that name.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|e| e.as_str() == text)
    }
}
