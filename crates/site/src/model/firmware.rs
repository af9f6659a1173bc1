//! The firmware wanted for the nodes of a SKU.

use rackwright_pattern::fits_any_case;
use serde::Serialize;

/// The order of firmware updates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FirmwareOrder {
    /// The BMC itself, which installs the others.
    Bmc,
    /// The system's firmware.
    Bios,
    /// Everything else.
    Others,
}

impl FirmwareOrder {
    /// All positions, in order.
    pub const ALL: [Self; 3] = [Self::Bmc, Self::Bios, Self::Others];

    /// The name in the site file.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Bmc => "bmc",
            Self::Bios => "bios",
            Self::Others => "others",
        }
    }

    /// Guesses the position from a component's name, if the site file gives none.
    #[must_use]
    pub fn guess(name: &str) -> Self {
        let name = name.to_ascii_lowercase();
        // The BMC of a baseboard is updated through the machine's BMC, so it is one of the others.
        if name.contains("hgx") {
            Self::Others
        } else if name.contains("bios") || name.contains("uefi") {
            Self::Bios
        } else if name.contains("bmc") {
            Self::Bmc
        } else {
            Self::Others
        }
    }
}

/// The action that activates a new version, if the site knows better than the BMC's profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FirmwareActivation {
    /// No action: the BMC activates the version by itself.
    None,
    /// The BMC restarts.
    BmcReset,
    /// The machine is switched off and on.
    HostReset,
    /// All power, including standby power, is cut for a moment.
    AcCycle,
}

impl FirmwareActivation {
    /// All actions.
    pub const ALL: [Self; 4] = [Self::None, Self::BmcReset, Self::HostReset, Self::AcCycle];

    /// The name in the site file.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::BmcReset => "bmc_reset",
            Self::HostReset => "host_reset",
            Self::AcCycle => "ac_cycle",
        }
    }
}

/// A wanted version of a component.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct WantedFirmware {
    /// The name of the component in Rackwright, in the catalogue and in reports.
    pub component: Box<str>,
    /// Pattern for the id in the BMC's inventory. `*` matches any text, `?` one character. Case is ignored.
    pub id: Option<Box<str>>,
    /// Pattern for the name in the BMC's inventory.
    pub name: Option<Box<str>>,
    /// Pattern for the software id in the BMC's inventory.
    pub software_id: Option<Box<str>>,
    /// The version as the BMC reports it after the installation.
    pub version: Box<str>,
    /// The file: `sha256:` and 64 hexadecimal digits. `None`: the catalogue's file for this component and version.
    pub file: Option<Box<str>>,
    /// The position in the order of updates.
    pub order: FirmwareOrder,
    /// Whether a newer version is replaced too.
    pub downgrade: bool,
    /// The activating action. `None`: as in the BMC's profile, otherwise a restart of the updated device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub activation: Option<FirmwareActivation>,
}

impl WantedFirmware {
    /// Whether this entry of a BMC's inventory matches. Without patterns, the id must equal the component's name.
    #[must_use]
    pub fn is_for(&self, id: &str, name: &str, software_id: &str) -> bool {
        let patterns = [(&self.id, id), (&self.name, name), (&self.software_id, software_id)];
        if patterns.iter().all(|(pattern, _)| pattern.is_none()) {
            return self.component.eq_ignore_ascii_case(id);
        }
        patterns
            .iter()
            .all(|(pattern, value)| pattern.as_ref().is_none_or(|pattern| fits_any_case(pattern, value)))
    }
}
