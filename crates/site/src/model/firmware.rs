//! Firmware that nodes of a SKU shall have.

use serde::Serialize;

/// When a piece of firmware is updated, before others or after them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FirmwareOrder {
    /// The BMC itself: it takes the others.
    Bmc,
    /// The system's firmware.
    Bios,
    /// Everything else.
    Others,
}

impl FirmwareOrder {
    /// All, in their order.
    pub const ALL: [Self; 3] = [Self::Bmc, Self::Bios, Self::Others];

    /// As the site file writes it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Bmc => "bmc",
            Self::Bios => "bios",
            Self::Others => "others",
        }
    }

    /// What a name says of itself, where the site file does not.
    #[must_use]
    pub fn guess(name: &str) -> Self {
        let name = name.to_ascii_lowercase();
        // A baseboard's BMC is updated through the machine's: it is one of the others.
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

/// What makes a new version run, where the site knows better than the BMC's profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FirmwareActivation {
    /// Nothing: the BMC does what is needed by itself.
    None,
    /// The BMC restarts.
    BmcReset,
    /// The machine is switched off and on.
    HostReset,
    /// All power is taken away for a moment, standby power too.
    AcCycle,
}

impl FirmwareActivation {
    /// All.
    pub const ALL: [Self; 4] = [Self::None, Self::BmcReset, Self::HostReset, Self::AcCycle];

    /// As the site file writes it.
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

/// One wanted version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct WantedFirmware {
    /// What it is called here, in the catalogue and in reports.
    pub component: Box<str>,
    /// Pattern of the id in the BMC's inventory. `*` stands for anything, `?` for one character, letter case is ignored.
    pub id: Option<Box<str>>,
    /// Pattern of its name there.
    pub name: Option<Box<str>>,
    /// Pattern of its software id there.
    pub software_id: Option<Box<str>>,
    /// The version, as the BMC tells it once it is installed.
    pub version: Box<str>,
    /// The file: `sha256:` and 64 hexadecimal digits. None: the one in the catalogue for this component and version.
    pub file: Option<Box<str>>,
    /// Before or after others.
    pub order: FirmwareOrder,
    /// Whether a newer version is replaced too.
    pub downgrade: bool,
    /// What makes it run. None: what the BMC's profile knows, else a restart of what it belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub activation: Option<FirmwareActivation>,
}

impl WantedFirmware {
    /// Whether an entry of a BMC's inventory is meant. Without patterns the id must be the component's name.
    #[must_use]
    pub fn is_for(&self, id: &str, name: &str, software_id: &str) -> bool {
        let patterns = [(&self.id, id), (&self.name, name), (&self.software_id, software_id)];
        if patterns.iter().all(|(pattern, _)| pattern.is_none()) {
            return self.component.eq_ignore_ascii_case(id);
        }
        patterns
            .iter()
            .all(|(pattern, value)| pattern.as_ref().is_none_or(|pattern| matches(pattern, value)))
    }
}

/// Whether a text is of a pattern.
fn matches(pattern: &str, text: &str) -> bool {
    let pattern: Vec<char> = pattern.to_lowercase().chars().collect();
    let text: Vec<char> = text.to_lowercase().chars().collect();
    let (mut p, mut t) = (0, 0);
    // Behind the last star, and where what it stands for ends.
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        if pattern.get(p) == Some(&'*') {
            p += 1;
            star = Some((p, t));
        } else if pattern.get(p).is_some_and(|c| *c == '?' || *c == text[t]) {
            p += 1;
            t += 1;
        } else if let Some((behind, end)) = &mut star {
            *end += 1;
            (p, t) = (*behind, *end);
        } else {
            return false;
        }
    }
    pattern[p..].iter().all(|c| *c == '*')
}
