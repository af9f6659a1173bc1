//! The boot mode and the boot override of a system.

use std::fmt;

use serde::Serialize;

use crate::resource::Resource;

/// The firmware's boot mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum BootMode {
    Uefi,
    /// BIOS, or UEFI's compatibility support module.
    Legacy,
}

impl BootMode {
    /// The mode in Redfish's spelling.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Uefi => "UEFI",
            Self::Legacy => "Legacy",
        }
    }
}

impl fmt::Display for BootMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The `Boot` property of a system or of its settings object, with the BMC's own values.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct BootView {
    /// `BootSourceOverrideTarget`.
    pub target: Option<String>,
    /// `BootSourceOverrideEnabled`.
    pub enabled: Option<String>,
    /// `BootSourceOverrideMode`.
    pub mode: Option<String>,
    pub http_boot_uri: Option<String>,
    /// Whether `HttpBootUri` exists, even as null.
    pub knows_http_boot_uri: bool,
    /// Whether `BootSourceOverrideMode` exists, even as null.
    pub knows_mode: bool,
    /// Targets that the BMC lists; empty if it has no list.
    pub allowed_targets: Vec<String>,
    /// Values for `BootSourceOverrideEnabled` that the BMC lists; empty if it has no list.
    pub allowed_enabled: Vec<String>,
    /// Modes that the BMC lists; empty if it has no list.
    pub allowed_modes: Vec<String>,
    /// `BootOrder`.
    pub order: Vec<String>,
    /// Whether an override can be written here: the settings object of some BMCs holds only the order.
    pub holds_override: bool,
}

impl BootView {
    pub(crate) fn read(resource: &Resource) -> Self {
        let text = |name| resource.text(&["Boot", name]);
        let listed = |name: &str| resource.texts(&["Boot", &format!("{name}@Redfish.AllowableValues")]);
        let has = |name: &str| {
            resource
                .at(&["Boot"])
                .and_then(serde_json::Value::as_object)
                .is_some_and(|boot| boot.contains_key(name))
        };
        Self {
            target: text("BootSourceOverrideTarget"),
            enabled: text("BootSourceOverrideEnabled"),
            mode: text("BootSourceOverrideMode"),
            http_boot_uri: resource.fact(&["Boot", "HttpBootUri"]),
            knows_http_boot_uri: has("HttpBootUri"),
            knows_mode: has("BootSourceOverrideMode"),
            allowed_targets: listed("BootSourceOverrideTarget"),
            allowed_enabled: listed("BootSourceOverrideEnabled"),
            allowed_modes: listed("BootSourceOverrideMode"),
            order: resource.texts(&["Boot", "BootOrder"]),
            holds_override: has("BootSourceOverrideTarget") || has("BootSourceOverrideEnabled"),
        }
    }

    /// Fills the lists that are missing in this view from another view of the same machine.
    pub(crate) fn completed_by(mut self, other: &Self) -> Self {
        for (list, other_list) in [
            (&mut self.allowed_targets, &other.allowed_targets),
            (&mut self.allowed_enabled, &other.allowed_enabled),
            (&mut self.allowed_modes, &other.allowed_modes),
        ] {
            if list.is_empty() {
                list.clone_from(other_list);
            }
        }
        self
    }
}
